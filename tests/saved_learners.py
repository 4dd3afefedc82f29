"""What learners of runs have saved in their checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from parl.run import RunDirectory


def learner_in(checkpoint: Path) -> dict[str, Any]:
    """The state of the learner in the folder of a checkpoint."""
    return torch.load(checkpoint / "learner.pt", weights_only=True)


def learner_of(run: str | Path, which: str = "last") -> dict[str, Any]:
    """The state of the learner in the ``last`` or ``best`` checkpoint of a run directory."""
    return learner_in(RunDirectory.open(run).checkpoints.verified(which))


def weights_of(run: str | Path, which: str = "last") -> torch.Tensor:
    """The weights of the learner in the ``last`` or ``best`` checkpoint of a run directory."""
    return learner_of(run, which)["weights"]
