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
from typing import TYPE_CHECKING, Any

import numpy as np

from parl.envs.make import EnvMaker
from parl.errors import ConfigError
from parl.types import GOALS, Array

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

# Steps whose rewards are compared with those of `compute_reward`.
_PROBED_STEPS = 5
GoalFunction = Callable[[Array, Array, Mapping[str, Any]], Array]


def goal_functions(maker: EnvMaker) -> tuple[GoalFunction, GoalFunction | None]:
    """Functions of achieved and desired goals (m, *shape), to rewards (m,) and to whether steps terminate.

    Args:
        maker: makes the environments; one is made for its methods.

    Returns:
        Both functions; None in place of the second if the environment has no ``compute_terminated``.

    Raises:
        ConfigError: the environment has no ``compute_reward``, or its steps have other rewards; or its goals
            are neither Box nor MultiBinary.
    """
    from gymnasium.spaces import Box, MultiBinary

    made = maker(1)
    env: Any = made.unwrapped
    single = env.envs[0] if hasattr(env, "envs") else env
    space = env.single_observation_space[GOALS[0]]
    if not isinstance(space, Box | MultiBinary):
        raise ConfigError(f"goals of {maker.name} are in {space}, expected a Box or MultiBinary space")

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

    reward, terminated = _method(single, "compute_reward"), _method(single, "compute_terminated")
    if reward is None:
        raise ConfigError(
            f"{maker.name} has no method compute_reward(achieved_goal, desired_goal, info), which goals need"
        )
    compute_reward = convert("compute_reward", reward, np.float32)
    _check_reward(maker.name, made, compute_reward)
    return (
        compute_reward,
        None if terminated is None else convert("compute_terminated", terminated, np.bool_),
    )


def _method(env: Any, name: str) -> Any:
    """The method of the outermost wrapper that has it, or of the environment; None if there is none."""
    while env is not None:
        # Not of what it wraps, to which some wrappers pass on missing attributes.
        if hasattr(type(env), name) or name in vars(env):
            return getattr(env, name)
        env = getattr(env, "env", None)
    return None


def _check_reward(name: str, env: VectorEnv[Any, Any, Any], compute_reward: GoalFunction) -> None:
    """Compares the rewards of a few steps with those that ``compute_reward`` has for their goals.

    Raises:
        ConfigError: they differ, as with a wrapper that changes rewards or goals and has no
            ``compute_reward``.
    """
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(_PROBED_STEPS):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        # After the end of an episode, goals may be those of the next one.
        if terminated.any() or truncated.any():
            return
        computed = compute_reward(observation[GOALS[0]], observation[GOALS[1]], {})
        if not np.allclose(reward, computed, rtol=1e-3, atol=1e-5):
            raise ConfigError(
                f"{name}: a step has the reward {reward[0]:g}, compute_reward {computed[0]:g} for its goals: "
                "rewards for other goals would be wrong too. A wrapper that changes rewards or goals needs a "
                "compute_reward of its own"
            )
