"""Vector environments from a Gymnasium id or a function."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from parl.errors import ConfigError
from parl.types import Autoreset, EnvSpec

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

AUTORESETS: dict[str, Autoreset] = {"next_step": "next_step", "same_step": "same_step"}

# Acrobots that cost as much one after the other as all of numpy's operations.
_TOGETHER = 4


_CONTROL = "gymnasium.envs.classic_control"


def _classic(env: str, num_envs: int) -> VectorEnv[Any, Any, Any] | None:
    """Parl's vector environment of an id, if it has one and Gymnasium registers what it registered."""
    import gymnasium

    spec = gymnasium.registry.get(env)
    if spec is None or spec.max_episode_steps != 500 or spec.kwargs:
        return None
    if num_envs >= _TOGETHER and (env, spec.entry_point) == ("Acrobot-v1", f"{_CONTROL}.acrobot:AcrobotEnv"):
        from parl.envs.classic import AcrobotVectorEnv

        return AcrobotVectorEnv(num_envs)
    own = f"{_CONTROL}.cartpole:CartPoleVectorEnv"
    if (env, spec.vector_entry_point) == ("CartPole-v1", own):
        from parl.envs.cartpole import CartPoleVectorEnv

        return CartPoleVectorEnv(num_envs, max_episode_steps=500)
    return None


def usable_cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class EnvMaker:
    """Makes vector environments of any size; travels to other processes.

    Args:
        env: a Gymnasium id; its own vector environment is used where it registers one, else a
            ``SyncVectorEnv``; four and more Acrobots are stepped together, and CartPoles in fewer
            operations, to the same numbers (``parl.envs.classic``, ``parl.envs.cartpole``). Or a function:
            with one parameter it is called with the number of environments and returns a ``VectorEnv``, with
            none it returns one ``Env``.
        options: keywords of ``gymnasium.make_vec``; none with a function.
    """

    def __init__(self, env: str | Callable[..., Any], options: Mapping[str, Any] | None = None) -> None:
        if not isinstance(env, str) and options:
            raise ConfigError(f"env options {sorted(options)} are for ids; a function sets its own")
        self.env = env
        self.options = dict(options or {})

    @property
    def name(self) -> str:
        """The id, or the function's name."""
        return self.env if isinstance(self.env, str) else getattr(self.env, "__name__", "env")

    def beside(self, makers: int) -> EnvMaker:
        """What makes the environments of one of so many actors on these cores, which then divide the threads.

        parl's Atari environments on the CPU have a thread per core unless ``num_threads`` is given; here it
        is a thread per core that is the actor's own, at least one. Others stay as they are.
        """
        if makers < 2 or not self.has_threads or "num_threads" in self.options:
            return self
        return EnvMaker(self.env, {**self.options, "num_threads": max(1, usable_cores() // makers)})

    @property
    def has_threads(self) -> bool:
        """Whether these are parl's Atari environments on the CPU, which step in threads of their own."""
        own = isinstance(self.env, str) and self.env.startswith("parl/")
        return own and str(self.options.get("device", "cpu")) == "cpu"

    def threads_of(self, makers: int, num_envs: int) -> int:
        """Threads that step ``num_envs`` environments of one of so many actors; 0: none of their own."""
        if not self.has_threads:
            return 0
        return min(num_envs, int(self.options.get("num_threads", 0)) or max(1, usable_cores() // makers))

    def __call__(self, num_envs: int) -> VectorEnv[Any, Any, Any]:
        """A vector environment of ``num_envs``.

        Raises:
            ConfigError: Gymnasium knows no such id, or the function returns no environment.
        """
        import gymnasium
        from gymnasium.vector import SyncVectorEnv, VectorEnv

        if isinstance(self.env, str):
            found = None if self.options else _classic(self.env, num_envs)
            if found is not None:
                return found
            try:
                return gymnasium.make_vec(self.env, num_envs=num_envs, **self.options)
            except gymnasium.error.UnregisteredEnv as error:
                raise ConfigError(f"env = {self.env!r}: {error}") from error
        function = self.env
        if inspect.signature(function).parameters:
            made = function(num_envs)
            if not isinstance(made, VectorEnv) or made.num_envs != num_envs:
                raise ConfigError(f"{self.name}({num_envs}) returned {made!r}, not that many environments")
            return made
        return SyncVectorEnv([function] * num_envs)

    def __getstate__(self) -> dict[str, Any]:
        import cloudpickle

        return {"env": cloudpickle.dumps(self.env), "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        import cloudpickle

        self.env = cloudpickle.loads(state["env"])
        self.options = state["options"]


def steps_one_by_one(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether a step costs about the same for each environment, so that two small vectors cost as one large.

    Those that step all with the same numpy operations cost nearly the same whatever their number.
    """
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    from parl.envs.atari import AtariVectorEnv

    return isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv | AtariVectorEnv)


def spec_of(env: VectorEnv[Any, Any, Any]) -> EnvSpec:
    """Shapes, types and reset habit of a vector environment; 64-bit float observations become 32-bit ones.

    Raises:
        ConfigError: observations are no Box nor a Dict of them, actions neither Box nor Discrete, or the
            environment does not reset itself.
    """
    from gymnasium.spaces import Box, Dict, Discrete

    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    observation, action = env.single_observation_space, env.single_action_space
    parts = tuple(_parts(observation)) if isinstance(observation, Dict) else ()
    if not parts and not isinstance(observation, Box):
        raise ConfigError(
            f"observation space {observation} is neither Box nor a Dict of them: take FlattenObservation"
        )
    if isinstance(action, Discrete):
        if action.start != 0:
            raise ConfigError(f"action space {action} does not start at 0")
        num_actions, action_shape, action_dtype = int(action.n), (), "int64"
    elif isinstance(action, Box):
        num_actions, action_shape, action_dtype = None, tuple(action.shape), "float32"
        low, high = tuple(action.low.ravel().tolist()), tuple(action.high.ravel().tolist())
    else:
        raise ConfigError(f"action space {action} is neither Discrete nor Box")
    mode = env.metadata.get("autoreset_mode", "next_step")
    autoreset = str(getattr(mode, "name", mode)).lower()
    if autoreset not in AUTORESETS:
        raise ConfigError(f"autoreset mode {autoreset!r} is not one of {', '.join(AUTORESETS)}")
    # Asked of the class: a wrapper would pass the question on, and may have changed the pictures.
    asked: Any = env if hasattr(type(env), "frame_stack") else None
    stack, padding = (1, "zero") if asked is None else asked.frame_stack
    return EnvSpec(
        observation_shape=() if parts else tuple(observation.shape or ()),
        observation_dtype="float32" if parts else _dtype_of(observation),
        action_shape=action_shape,
        action_dtype=action_dtype,
        num_actions=num_actions,
        autoreset=AUTORESETS[autoreset],
        action_low=low,
        action_high=high,
        observation_parts=parts,
        frame_stack=stack,
        stack_padding=padding,
    )


def _dtype_of(space: Any) -> str:
    dtype = np.dtype(space.dtype or np.float32)
    return "float32" if dtype == np.float64 else dtype.name


def _parts(space: Any, prefix: str = "") -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Name, shape and dtype of each part of a Dict space; the names of nested ones are joined by dots."""
    from gymnasium.spaces import Box, Dict

    for name, part in space.spaces.items():
        if not isinstance(name, str) or not name or set(name) & {".", "/"}:
            raise ConfigError(f"observation part {prefix}{name!r} is no name without dots and slashes")
        if isinstance(part, Dict):
            yield from _parts(part, f"{prefix}{name}.")
        elif isinstance(part, Box):
            yield f"{prefix}{name}", tuple(part.shape), _dtype_of(part)
        else:
            raise ConfigError(
                f"observation part {prefix}{name} is {part}, no Box; wrap it in FlattenObservation"
            )
