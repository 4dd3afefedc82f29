"""Hindsight relabeling for environments with goals.

Source: Andrychowicz et al. (2017), "Hindsight Experience Replay".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from parl.replay.fields import SEPARATOR, column, dtype_of

# Array of the native batch: a goal drawn for each row.
_GOAL = "hindsight_goal"

if TYPE_CHECKING:
    from numpy.typing import NDArray

    # (achieved goals (m, *shape), desired goals (m, *shape), info) -> (m,)
    GoalFunction = Callable[[NDArray[Any], NDArray[Any], Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Hindsight:
    """Settings of hindsight relabeling: sampled rows get a goal that was achieved in their own episode.

    A fraction ``k / (k + 1)`` of the sampled rows is relabeled. The desired goal of such a row, in ``obs``
    and ``next_obs``, becomes the goal that another step of its episode achieved, and its reward that of
    ``reward_fn``. The batch has ``relabelled`` (B,) bool. Episodes that have not ended are relabeled with the
    goals achieved so far. With ``autoreset`` other than ``"next_step"``, and if rows do not store
    ``next_obs``, give ``final_obs`` of terminated rows too: without it such a row keeps its goal, and the
    goal that it achieved is not drawn.

    Attributes:
        reward_fn: function of the goals achieved by m steps (m, *shape), their new desired goals (m, *shape)
            and ``info``, the fields nested in ``info`` (or an empty mapping), to rewards (m,). Called once
            per batch with the m relabeled rows; the signature is that of gymnasium-robotics'
            ``compute_reward``.
        strategy: which step's achieved goal is used: ``"future"``: the row's or a later one of its episode;
            ``"final"``: the last one; ``"episode"``: any step of the episode that the replay still holds.
        k: number of relabeled rows per row that keeps its goal.
        observation: name of the field in which the goals are nested.
        achieved: name of the achieved goal in that field.
        desired: name of the desired goal in that field.
        terminated_fn: function as ``reward_fn`` to (m,) bool, whether the relabeled steps terminate; None
            keeps ``terminated``. A step that terminated and then does not has the discount gamma, without a
            factor from its field ``discount``.
    """

    reward_fn: GoalFunction
    strategy: Literal["future", "final", "episode"] = "future"
    k: float = 4.0
    observation: str = "obs"
    achieved: str = "achieved_goal"
    desired: str = "desired_goal"
    terminated_fn: GoalFunction | None = None

    def settings(self, fields: Mapping[str, Any]) -> tuple[str, float, str]:
        """Strategy, fraction of relabeled rows and column of the achieved goal, for the native replay.

        Args:
            fields: shape and dtype, or the space, of each column of the replay by name.

        Raises:
            ValueError: a goal is missing, the goals have other shapes or dtypes, a field has a reserved name,
                or ``k`` is out of its bounds.
        """
        if not 0 <= self.k < float("inf"):
            raise ValueError(f"k is {self.k}, expected a finite number of at least 0")
        achieved, desired = (self.observation + SEPARATOR + name for name in (self.achieved, self.desired))
        for name in (achieved, desired):
            if name not in fields:
                raise ValueError(f"field {name!r} is missing: hindsight needs achieved and desired goals")
        (_, of_achieved, shape, *_), (_, of_desired, other, *_) = (
            column(name, fields[name], 1) for name in (achieved, desired)
        )
        # Achieved goals are written over desired ones.
        if shape != other or not np.can_cast(dtype_of(of_achieved), dtype_of(of_desired), "same_kind"):
            raise ValueError(
                f"{achieved} is {of_achieved} of shape {tuple(shape)} and {desired} is {of_desired} of shape "
                f"{tuple(other)}, expected goals of one shape and dtype"
            )
        if _GOAL in fields:
            raise ValueError(f"field {_GOAL!r} has a name that is reserved for an array of hindsight")
        return str(self.strategy), self.k / (self.k + 1), achieved

    def relabel(self, flat: dict[str, NDArray[Any]], gamma: float) -> None:
        """Replaces goals and rewards of the relabeled rows of a batch, in place.

        Args:
            flat: columns of the batch by name, with the goals drawn in ``hindsight_goal``, which is removed.
            gamma: discount of the rows that terminated in the environment and do not by ``terminated_fn``.

        Raises:
            ValueError: a function returned another shape than (m,).
        """
        goals, chosen = flat.pop(_GOAL), flat["relabelled"]
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
            # The discount of a row that terminated is stored as 0, so its own factor is unknown.
            going_on = np.where(flat["terminated"][rows], gamma, flat["discount"][rows])
            flat["terminated"][rows] = ended
            flat["discount"][rows] = np.where(np.asarray(ended, bool), 0.0, going_on)


def _per_row(name: str, value: Any, rows: int) -> NDArray[Any]:
    array = np.asarray(value)
    if array.shape != (rows,):
        raise ValueError(f"{name} returned shape {array.shape}, expected {(rows,)}")
    return array
