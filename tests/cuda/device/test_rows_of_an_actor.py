"""The rows that an actor on a device writes into its replay."""

import types
from typing import Any

import pytest
import torch

import parl
from parl.runtime.cuda.off_policy import CudaActor


def rows(mode: str, planes: int) -> torch.Tensor:
    """Observations of twenty steps, in which episodes end."""
    found: list[torch.Tensor] = []
    envs: Any = parl.AtariVectorEnv(
        "breakout",
        3,
        device="cuda",
        autoreset_mode=mode,
        max_num_frames_per_episode=20,
        img_height=20,
        img_width=20,
        sliding_buffer_planes=planes,
    )
    fire = torch.ones(3, dtype=torch.int64, device=envs.device)
    replay: Any = types.SimpleNamespace(add=lambda **given: found.append(given["obs"].clone()))
    actor = CudaActor(envs, types.SimpleNamespace(act=lambda *_: fire), replay, mode == "SameStep", 3)
    for step in range(20):
        actor.step(step)
    actor.close()
    return torch.stack(found)


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_rows_with_sliding_observations_equal_those_without(mode: str) -> None:
    """A reset writes all planes of the next observation, some of which the one before also has."""
    expected = rows(mode, 0)
    for planes in (5, 64):
        assert torch.equal(rows(mode, planes), expected)
