"""Uniform replay: :class:`PrioritizedReplay` without priorities.

Source: Lin (1992), "Self-improving reactive agents based on reinforcement learning, planning and teaching".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from parl.replay.prioritized import Autoreset, Compression, PrioritizedReplay
from parl.signatures import show_init

if TYPE_CHECKING:
    import os

    from numpy.typing import ArrayLike

    from parl.replay.fields import FieldSpec
    from parl.replay.hindsight import Hindsight


@show_init
class UniformReplay(PrioritizedReplay):
    """A :class:`PrioritizedReplay` that samples uniformly from all rows that can be sampled.

    Args:
        capacity: number of rows kept; then the oldest are overwritten.
        fields: name -> (shape, dtype), a gymnasium space, or a nested mapping; the shape is that of one row.
        n_step: largest number of steps of a transition.
        gamma: discount per step.
        fan_out: children per node of the sum tree: 4, 8, 16, 32 or 64.
        num_envs: number of environments; ``env_id`` is in ``0..num_envs``.
        autoreset: ``"next_step"``, ``"same_step"`` or ``"disabled"``, as of :class:`PrioritizedReplay`.
        shared: name of the shared memory; created, or attached to if a process already uses it.
        seed: seed of the sampling.
        frame_stack: number of frames in a stack, as of :class:`PrioritizedReplay`.
        stack_padding: what fills a stack before the first frame of an episode: ``"zero"`` or ``"first"``.
        compression: ``"lz4"`` or ``"none"``, as of :class:`PrioritizedReplay`.
        hindsight: relabels goals of sampled rows.
        path: a file that is mapped into memory and holds the replay.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:<number>"``.

    Raises:
        ValueError: a setting is out of its bounds.
        MemoryError, SharedMemoryError, CudaUnavailableError: as :class:`PrioritizedReplay`.
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

    @classmethod
    def _check_kind(cls, settings: Mapping[str, Any], hindsight: Hindsight | None) -> None:
        super()._check_kind(settings, hindsight)
        if settings["alpha"] != 0.0:
            raise ValueError(f"this replay is not a {cls.__name__}; use PrioritizedReplay")

    def update_priorities(self, tickets: ArrayLike, priorities: ArrayLike) -> int:
        """Does nothing and returns 0, so that a training loop can use either kind of replay."""
        return 0

    def add(
        self, *, env_id: ArrayLike | None = None, priorities: ArrayLike | None = None, **columns: Any
    ) -> Any:
        """As :meth:`PrioritizedReplay.add`; ``priorities`` are ignored."""
        return super().add(env_id=env_id, priorities=None, **columns)
