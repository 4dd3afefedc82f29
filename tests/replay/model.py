"""Reference implementation of a replay in plain Python: lists of rows, windows by direct search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Row:
    number: int  # in order of adding, over all environments
    obs: float
    reward: float
    terminated: bool
    truncated: bool
    is_final: bool = False  # carries only the final observation of the row before it
    final_obs: float | None = None  # passed with this row when its episode is truncated


@dataclass
class Expected:
    reward: float
    discount: float
    next_obs: float | None  # None where it is undefined, because nothing is bootstrapped
    terminated: bool
    truncated: bool


class NaiveReplay:
    """Keeps all rows and builds each transition from the rows of its environment."""

    def __init__(self, capacity: int, n_step: int, gamma: float, autoreset: str, explicit_next: bool) -> None:
        self.capacity, self.n_step, self.gamma = capacity, n_step, gamma
        self.autoreset, self.explicit_next = autoreset, explicit_next
        self.envs: dict[int, list[Row]] = {}
        self.slots_taken = 0

    def add(
        self, env: int, obs: float, reward: float, terminated: bool, truncated: bool, final: float
    ) -> Row:
        rows = self.envs.setdefault(env, [])
        is_final = bool(
            self.autoreset == "next_step"
            and rows
            and not rows[-1].is_final
            and (rows[-1].terminated or rows[-1].truncated)
        )
        row = Row(self.slots_taken, obs, reward, terminated, truncated, is_final)
        self.slots_taken += 1
        rows.append(row)
        if self.autoreset != "next_step" and truncated and not terminated and not self.explicit_next:
            row.final_obs = final
        return row

    def transitions(self, oldest: int) -> dict[int, Expected]:
        """Transitions by row number, of all rows from ``oldest`` on whose window is complete."""
        found: dict[int, Expected] = {}
        for rows in self.envs.values():
            for i, row in enumerate(rows):
                if row.number >= oldest and not row.is_final:
                    transition = self._transition(rows, i)
                    if transition is not None:
                        found[row.number] = transition
        return found

    def _transition(self, rows: list[Row], i: int) -> Expected | None:
        reward = 0.0
        for k in range(self.n_step):
            if i + k >= len(rows):
                return None
            row = rows[i + k]
            reward += self.gamma**k * row.reward
            if row.terminated or row.truncated or k == self.n_step - 1:
                break
        after = rows[i + k + 1] if i + k + 1 < len(rows) else None
        if row.terminated:
            next_obs = after.obs if after is not None and after.is_final else None
            if self.explicit_next:
                next_obs = row.obs + 0.5
            return Expected(reward, 0.0, next_obs, True, row.truncated)
        discount = self.gamma ** (k + 1)
        if self.explicit_next:
            return Expected(reward, discount, row.obs + 0.5, False, row.truncated)
        if row.truncated and self.autoreset != "next_step":
            return Expected(reward, discount, row.final_obs, False, True)
        if after is None:
            return None
        return Expected(reward, discount, after.obs, False, row.truncated)


def fields(explicit_next: bool = False) -> dict[str, Any]:
    """The fields that most tests use; an observation is one number."""
    found: dict[str, Any] = {
        "obs": ((), "float32"),
        "action": ((), "int64"),
        "reward": ((), "float32"),
        "terminated": ((), "bool"),
        "truncated": ((), "bool"),
    }
    if explicit_next:
        found["next_obs"] = ((), "float32")
    return found
