"""Hindsight relabeling on a CUDA device: kernels choose the goals, torch writes them into the batch.

Source: Andrychowicz et al. (2017), "Hindsight Experience Replay".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parl.replay.cuda import layout, structs
from parl.replay.cuda.structs import Strategy
from parl.replay.fields import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Container

    from torch import Tensor

    from parl.replay.cuda.device import CudaDevice
    from parl.replay.cuda.replay import CudaReplay
    from parl.replay.hindsight import Hindsight


def strategy_of(settings: tuple[str, float, str] | None) -> Strategy:
    """The strategy of a replay's settings as the kernels' constant."""
    return Strategy.NONE if settings is None else Strategy[settings[0].upper()]


def goal_column(settings: tuple[str, float, str], fields: Container[str]) -> str:
    """The field that holds the goal achieved by a step: the next observation's if it is stored."""
    following = "next_" + settings[2]
    return following if following in fields else settings[2]


def choose_goals(replay: CudaReplay, table: Tensor, drawn: Tensor, relabelled: Tensor) -> None:
    """Chooses the rows to relabel and the slots of their goals; does not synchronize.

    Args:
        replay: the replay that the rows were sampled from.
        table: int32 table of slots that the sampling kernel wrote, to which the goals' slots are added.
        drawn: (B,) int32 slots of the sampled rows.
        relabelled: (B,) bool, written: which rows are relabeled.
    """
    count = len(drawn)
    call = structs.ReplayGoals(table.data_ptr(), drawn.data_ptr(), relabelled.data_ptr(), count)
    for kernel in ("reach", "goals"):
        replay._launch(kernel, layout.blocks(count), layout.THREADS, call)


def apply(hindsight: Hindsight, batch: Any, gamma: float, cuda: CudaDevice) -> None:
    """Replaces goals and rewards of the relabeled rows of a batch, in place; does not synchronize.

    Raises:
        ValueError: a function returned another shape than (B,).
    """
    torch = cuda.torch
    goals, chosen = batch.pop("hindsight_goal"), batch["relabelled"]
    desired = hindsight.observation + SEPARATOR + hindsight.desired

    def put(name: str, values: Tensor) -> None:
        old = batch[name]
        mask = chosen.reshape(-1, *[1] * (old.ndim - 1))
        old.copy_(torch.where(mask, values.to(old.dtype), old))

    def result_of(name: str, function: Any) -> Tensor:
        found = torch.as_tensor(function(achieved, batch[desired], info), device=cuda.device)
        if tuple(found.shape) != (len(chosen),):
            raise ValueError(f"{name} returned shape {tuple(found.shape)}, expected {(len(chosen),)}")
        return found

    for name in (desired, "next_" + desired):
        put(name, goals)
    achieved = batch["next_" + hindsight.observation + SEPARATOR + hindsight.achieved]
    info = {
        name.removeprefix("info" + SEPARATOR): values
        for name, values in batch.items()
        if name.startswith("info" + SEPARATOR)
    }
    put("reward", result_of("reward_fn", hindsight.reward_fn))
    if hindsight.terminated_fn is not None:
        ended = result_of("terminated_fn", hindsight.terminated_fn).bool()
        # A row that terminated has lost its own factor of the discount with the rest of it.
        going_on = torch.where(batch["terminated"], gamma, batch["discount"])
        put("terminated", ended)
        put("discount", torch.where(ended, 0.0, going_on))
