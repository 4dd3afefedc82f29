"""Rewards and ends of an environment with goals, for other goals than those it had.

Such an environment has Dict observations with ``achieved_goal`` and ``desired_goal``, and the methods
``compute_reward(achieved_goal, desired_goal, info)`` and, if reaching a goal terminates,
``compute_terminated`` with the same arguments. Both should take arrays of several goals; a method that
returns one number for them, as ``compute_terminated`` of gymnasium-robotics' mazes, is called for each goal
alone. ``info`` is empty.

Source: the interface ``GoalEnv`` of gymnasium-robotics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from parl.envs.make import EnvMaker
from parl.errors import ConfigError
from parl.types import Array

GOALS = ("achieved_goal", "desired_goal")
GoalFunction = Callable[[Array, Array, Mapping[str, Any]], Array]


def goal_functions(maker: EnvMaker) -> tuple[GoalFunction, GoalFunction | None]:
    """Functions of achieved and desired goals (m, *shape), to rewards (m,) and to whether steps terminate.

    Args:
        maker: makes the environments; one is made for its methods.

    Returns:
        Both functions; None in place of the second if the environment has no ``compute_terminated``.

    Raises:
        ConfigError: the environment has no ``compute_reward``, or its goals are neither Box nor MultiBinary.
    """
    from gymnasium.spaces import Box, MultiBinary

    env: Any = maker(1).unwrapped
    single = env.envs[0] if hasattr(env, "envs") else env
    space = env.single_observation_space[GOALS[0]]
    if not isinstance(space, Box | MultiBinary):
        raise ConfigError(f"goals of {maker.name} are in {space}, expected a Box or MultiBinary space")

    def find(name: str) -> Any:
        for one in (single, single.unwrapped):
            if hasattr(one, name):
                return getattr(one, name)
        return None

    def convert(name: str, function: Any, dtype: Any) -> GoalFunction:
        def compute(achieved: Array, desired: Array, info: Mapping[str, Any]) -> Array:
            own = [one.astype(space.dtype).reshape(-1, *space.shape) for one in (achieved, desired)]
            found = np.asarray(function(*own, info), dtype)
            if found.ndim == 0:
                # The method may take one goal only, and one result for several goals then means nothing.
                found = np.array([function(*goals, info) for goals in zip(*own, strict=True)], dtype)
            if found.shape != (len(achieved),):
                raise ConfigError(
                    f"{name} of {maker.name} returned shape {found.shape} for {len(achieved)} goals, "
                    f"expected ({len(achieved)},): let it take arrays of goals (m, *shape)"
                )
            return found

        return compute

    reward, terminated = find("compute_reward"), find("compute_terminated")
    if reward is None:
        raise ConfigError(
            f"{maker.name} has no method compute_reward(achieved_goal, desired_goal, info), which goals need"
        )
    return (
        convert("compute_reward", reward, np.float32),
        None if terminated is None else convert("compute_terminated", terminated, np.bool_),
    )
