"""Hindsight on a device: goals that are chosen by kernels and put into a batch by torch, without waiting.

Source: Andrychowicz et al. (2017), "Hindsight Experience Replay".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parl.replay.device import layout, structs
from parl.replay.device.structs import Strategy
from parl.replay.fields import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Container

    from torch import Tensor

    from parl.replay.device.place import Place
    from parl.replay.device.replay import DeviceReplay
    from parl.replay.hindsight import Hindsight


def strategy_of(settings: tuple[str, float, str] | None) -> Strategy:
    """The strategy as kernels know it; of a replay's settings."""
    return Strategy.NONE if settings is None else Strategy[settings[0].upper()]


def column(settings: tuple[str, float, str], fields: Container[str]) -> str:
    """The field that goals are copied from: what a step achieved, in its own row if that has it."""
    following = "next_" + settings[2]
    return following if following in fields else settings[2]


def choose(replay: DeviceReplay, table: Tensor, drawn: Tensor, relabelled: Tensor) -> None:
    """Finds a goal for the share of the rows drawn that get one; does not wait."""
    count = len(drawn)
    call = structs.ReplayGoals(table.data_ptr(), drawn.data_ptr(), relabelled.data_ptr(), count)
    for kernel in ("reach", "goals"):
        replay._launch(kernel, layout.blocks(count), layout.THREADS, call)


def relabel(hindsight: Hindsight, batch: Any, gamma: float, place: Place) -> None:
    """Puts the goals that were chosen into a batch, and the rewards that follow; does not wait."""
    torch = place.torch
    goals, chosen = batch.pop("hindsight_goal"), batch["relabelled"]
    desired = hindsight.observation + SEPARATOR + hindsight.desired

    def put(name: str, values: Tensor) -> None:
        there = batch[name]
        mask = chosen.reshape(-1, *[1] * (there.ndim - 1))
        there.copy_(torch.where(mask, values.to(there.dtype), there))

    def given(name: str, function: Any) -> Tensor:
        found = torch.as_tensor(function(achieved, batch[desired], info), device=place.device)
        if tuple(found.shape) != (len(chosen),):
            raise ValueError(f"{name} gave shape {tuple(found.shape)}, expected {(len(chosen),)}")
        return found

    for name in (desired, "next_" + desired):
        put(name, goals)
    achieved = batch["next_" + hindsight.observation + SEPARATOR + hindsight.achieved]
    info = {
        name.removeprefix("info" + SEPARATOR): values
        for name, values in batch.items()
        if name.startswith("info" + SEPARATOR)
    }
    put("reward", given("reward_fn", hindsight.reward_fn))
    if hindsight.terminated_fn is not None:
        ended = given("terminated_fn", hindsight.terminated_fn).bool()
        put("terminated", ended)
        put("discount", torch.where(ended, 0.0, gamma))
