"""Hindsight relabelling for environments with goals.

Source: Andrychowicz et al. (2017), "Hindsight Experience Replay".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from parl.replay.fields import SEPARATOR

if TYPE_CHECKING:
    from numpy.typing import NDArray

    # (achieved goals (m, *shape), desired goals (m, *shape), info) -> (m,)
    GoalFunction = Callable[[NDArray[Any], NDArray[Any], Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Hindsight:
    """How a replay gives rows a goal that was achieved in their own episode.

    Of the rows drawn, a share of ``k / (k + 1)`` gets the goal that another step of its episode achieved as
    its desired goal, in ``obs`` and ``next_obs``, and the reward that ``reward_fn`` gives for it. The batch
    has ``relabelled`` (B,) bool. Goals are those that steps have achieved so far: an episode need not have
    ended.

    Attributes:
        reward_fn: of goals achieved by the step (m, *shape), goals now desired (m, *shape) and ``info``, the
            values nested in the field ``info`` (or an empty mapping), to m rewards. Called once per batch,
            with the m rows that are relabelled; as gymnasium-robotics' ``compute_reward``.
        strategy: ``"future"``: a step from the row's on; ``"final"``: the last step of the episode;
            ``"episode"``: any step of it, as far as the replay still holds it.
        k: relabelled rows per row left as it was.
        observation: field that the goals are nested in.
        achieved: name of the goal achieved.
        desired: name of the goal desired.
        terminated_fn: as ``reward_fn``, to whether the episode would have ended; by default it ended as it
            did.
    """

    reward_fn: GoalFunction
    strategy: Literal["future", "final", "episode"] = "future"
    k: float = 4.0
    observation: str = "obs"
    achieved: str = "achieved_goal"
    desired: str = "desired_goal"
    terminated_fn: GoalFunction | None = None

    def settings(self, fields: Mapping[str, Any]) -> tuple[str, float, str]:
        """Strategy, share and column, as the core wants them.

        Raises:
            ValueError: the goals are not among the fields, or differ in shape.
        """
        if not 0 <= self.k < float("inf"):
            raise ValueError(f"k {self.k} is outside 0.. (finite)")
        achieved, desired = (self.observation + SEPARATOR + name for name in (self.achieved, self.desired))
        for name in (achieved, desired):
            if name not in fields:
                raise ValueError(f"field {name!r} is missing, and hindsight needs it")
        return str(self.strategy), self.k / (self.k + 1), achieved

    def relabel(self, flat: dict[str, NDArray[Any]], gamma: float) -> None:
        """Puts the goals that were drawn into the columns of a batch, and the rewards that follow."""
        goals, chosen = flat.pop("hindsight_goal"), flat["relabelled"]
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return
        desired = self.observation + SEPARATOR + self.desired
        goals = goals[rows]
        flat[desired][rows] = goals
        flat["next_" + desired][rows] = goals
        achieved = flat["next_" + self.observation + SEPARATOR + self.achieved][rows]
        info: dict[str, Any] = {
            name.removeprefix("info" + SEPARATOR): array[rows]
            for name, array in flat.items()
            if name.startswith("info" + SEPARATOR)
        }
        flat["reward"][rows] = _per_row("reward_fn", self.reward_fn(achieved, goals, info), len(rows))
        if self.terminated_fn is not None:
            ended = _per_row("terminated_fn", self.terminated_fn(achieved, goals, info), len(rows))
            flat["terminated"][rows] = ended
            flat["discount"][rows] = np.where(np.asarray(ended, bool), 0.0, gamma)


def _per_row(name: str, value: Any, rows: int) -> NDArray[Any]:
    array = np.asarray(value)
    if array.shape != (rows,):
        raise ValueError(f"{name} gave shape {array.shape}, expected {(rows,)}")
    return array
