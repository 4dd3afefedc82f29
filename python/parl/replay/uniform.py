"""Uniform replay: the same rows, windows and sharing, without priorities.

Source: Lin (1992), "Self-improving reactive agents based on reinforcement learning, planning and teaching".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from parl.replay.prioritized import Autoreset, Compression, PrioritizedReplay

if TYPE_CHECKING:
    import os

    from numpy.typing import ArrayLike

    from parl.replay.fields import FieldSpec
    from parl.replay.hindsight import Hindsight


class UniformReplay(PrioritizedReplay):
    """A :class:`PrioritizedReplay` in which every row that can be drawn has weight 1.

    Args:
        capacity: rows kept; the oldest are overwritten.
        fields: name -> (shape, dtype), shape without the row.
        n_step: steps summed into one transition.
        gamma: discount per step.
        fan_out: children per node of the sum tree: 4, 8, 16, 32 or 64.
        num_envs: environments are numbered ``0..num_envs``.
        autoreset: ``"next_step"``, ``"same_step"`` or ``"disabled"``, as in gymnasium.
        shared: name of shared memory, to create or, if a process already uses it, attach to.
        seed: of the draws.
        frame_stack: frames of the stacks that are rebuilt from rows of single frames.
        stack_padding: ``"zero"`` or ``"first"``, before the first frame of an episode.
        compression: ``"lz4"`` for rows of many bytes.
        hindsight: relabel goals when rows are drawn.
        path: a file to keep everything in.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:<number>"``.
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, FieldSpec],
        *,
        n_step: int = 1,
        gamma: float = 0.99,
        fan_out: int = 16,
        num_envs: int = 1024,
        autoreset: Autoreset = "next_step",
        shared: str | None = None,
        seed: int = 0,
        frame_stack: int | Mapping[str, int] = 1,
        stack_padding: Literal["zero", "first"] = "zero",
        compression: Compression = "none",
        hindsight: Hindsight | None = None,
        path: str | os.PathLike[str] | None = None,
        device: str = "cpu",
    ) -> None:
        super().__init__(
            capacity,
            fields,
            alpha=0.0,
            n_step=n_step,
            gamma=gamma,
            epsilon=0.0,
            fan_out=fan_out,
            num_envs=num_envs,
            autoreset=autoreset,
            shared=shared,
            seed=seed,
            frame_stack=frame_stack,
            stack_padding=stack_padding,
            compression=compression,
            hindsight=hindsight,
            path=path,
            device=device,
        )

    def update_priorities(self, tickets: ArrayLike, priorities: ArrayLike) -> int:
        """Does nothing and returns 0, so that one loop serves both kinds of replay."""
        return 0

    def add(
        self, *, env_id: ArrayLike | None = None, priorities: ArrayLike | None = None, **columns: Any
    ) -> Any:
        """As :meth:`PrioritizedReplay.add`; ``priorities`` are not looked at."""
        return super().add(env_id=env_id, priorities=None, **columns)
