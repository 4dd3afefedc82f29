"""Construction and description of vector environments, from a Gymnasium id or a function."""

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

# From this number of Acrobots on, stepping them together in numpy is faster than one by one.
_MIN_ACROBOTS_FOR_BATCH = 4

_CONTROL = "gymnasium.envs.classic_control"


def _classic(env: str, num_envs: int) -> VectorEnv[Any, Any, Any] | None:
    """Parl's faster vector environment for an id, or None if there is none or the id was registered anew."""
    import gymnasium

    spec = gymnasium.registry.get(env)
    if spec is None or spec.max_episode_steps != 500 or spec.kwargs:
        return None
    acrobot = f"{_CONTROL}.acrobot:AcrobotEnv"
    if num_envs >= _MIN_ACROBOTS_FOR_BATCH and (env, spec.entry_point) == ("Acrobot-v1", acrobot):
        from parl.envs.classic import AcrobotVectorEnv

        return AcrobotVectorEnv(num_envs)
    cartpole = f"{_CONTROL}.cartpole:CartPoleVectorEnv"
    if (env, spec.vector_entry_point) == ("CartPole-v1", cartpole):
        from parl.envs.cartpole import CartPoleVectorEnv

        return CartPoleVectorEnv(num_envs, max_episode_steps=500)
    return None


def usable_cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class EnvMaker:
    """Makes vector environments of any size; can be pickled.

    Args:
        env: a Gymnasium id or a function. An id's own vector environment is used if it has one, else a
            ``SyncVectorEnv``; CartPole and four or more Acrobots use faster vector environments with equal
            results (``parl.envs.cartpole``, ``parl.envs.classic``). A function with one parameter gets the
            number of environments and returns a ``VectorEnv``; one without parameters returns an ``Env``.
        options: keywords of ``gymnasium.make_vec``; not allowed with a function.

    Raises:
        ConfigError: ``env`` is a function and ``options`` are given.
    """

    def __init__(self, env: str | Callable[..., Any], options: Mapping[str, Any] | None = None) -> None:
        if not isinstance(env, str) and options:
            raise ConfigError(
                f"env options {sorted(options)} are for Gymnasium ids, env is a function: set them in the "
                "function"
            )
        self.env = env
        self.options = dict(options or {})

    @property
    def name(self) -> str:
        """The Gymnasium id, or the name of the function."""
        return self.env if isinstance(self.env, str) else getattr(self.env, "__name__", "env")

    def for_actors(self, actors: int) -> EnvMaker:
        """A maker for one of several actors of this machine, which share its cores.

        parl's Atari environments on the CPU use one thread per core by default. With several actors each one
        gets an equal share of the threads, at least one, unless ``num_threads`` is given. Other environments
        are made as before.

        Args:
            actors: number of actors.
        """
        if actors < 2 or not self.has_threads or "num_threads" in self.options:
            return self
        return EnvMaker(self.env, {**self.options, "num_threads": max(1, usable_cores() // actors)})

    @property
    def has_threads(self) -> bool:
        """Whether these are parl's Atari environments on the CPU, which step in their own threads."""
        own = isinstance(self.env, str) and self.env.startswith("parl/")
        return own and str(self.options.get("device", "cpu")) == "cpu"

    def threads_per_actor(self, actors: int, num_envs: int) -> int:
        """Number of threads with which each of several actors steps its environments.

        Args:
            actors: number of actors.
            num_envs: number of environments of one actor.

        Returns:
            The number of threads, or 0 if the environments have none of their own.
        """
        if not self.has_threads:
            return 0
        return min(num_envs, int(self.options.get("num_threads", 0)) or max(1, usable_cores() // actors))

    def __call__(self, num_envs: int) -> VectorEnv[Any, Any, Any]:
        """Makes a vector environment of ``num_envs`` environments.

        Raises:
            ConfigError: the id is not registered with Gymnasium, or the function does not return a
                ``VectorEnv`` of ``num_envs`` environments.
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
                raise ConfigError(
                    f"{self.name}({num_envs}) returned {made!r}, expected a VectorEnv of {num_envs} "
                    "environments"
                )
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
    """Whether the time of a step is proportional to the number of environments.

    If so, two small vector environments take as long as one large one. It is not so for vector environments
    that step all environments with the same numpy operations.
    """
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    from parl.envs.atari.vector import AtariVectorEnv

    return isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv | AtariVectorEnv)


def spec_of(env: VectorEnv[Any, Any, Any]) -> EnvSpec:
    """Describes a vector environment: shapes, dtypes, bounds of actions, autoreset mode, frame stack.

    float64 observations are described as float32, to which :class:`parl.envs.Observer` converts them.

    Raises:
        ConfigError: the observation space is neither Box nor a Dict of Box spaces, the action space is
            neither Box nor a Discrete that starts at 0, or the autoreset mode is not one of
            ``AUTORESETS``.
    """
    from gymnasium.spaces import Box, Dict, Discrete

    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    observation, action = env.single_observation_space, env.single_action_space
    parts = tuple(_parts(observation)) if isinstance(observation, Dict) else ()
    if not parts and not isinstance(observation, Box):
        raise ConfigError(
            f"observation space {observation} is neither Box nor a Dict of Box spaces: wrap the "
            "environment in "
            "FlattenObservation"
        )
    if isinstance(action, Discrete):
        if action.start != 0:
            raise ConfigError(f"action space {action} starts at {action.start}, expected 0")
        num_actions, action_shape, action_dtype = int(action.n), (), "int64"
    elif isinstance(action, Box):
        num_actions, action_shape, action_dtype = None, tuple(action.shape), "float32"
        low, high = tuple(action.low.ravel().tolist()), tuple(action.high.ravel().tolist())
    else:
        raise ConfigError(f"action space is {action}, expected Discrete or Box")
    mode = env.metadata.get("autoreset_mode", "next_step")
    autoreset = str(getattr(mode, "name", mode)).lower()
    if autoreset not in AUTORESETS:
        raise ConfigError(f"autoreset mode is {autoreset!r}, expected one of {', '.join(AUTORESETS)}")
    # Looked up on the class: a wrapper forwards attributes, but may have changed the images.
    stacked: Any = env if hasattr(type(env), "frame_stack") else None
    stack, padding = (1, "zero") if stacked is None else stacked.frame_stack
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
    """Name, shape and dtype of each Box in a Dict space; names of nested spaces are joined by dots."""
    from gymnasium.spaces import Box, Dict

    for name, part in space.spaces.items():
        if not isinstance(name, str) or not name or set(name) & {".", "/"}:
            raise ConfigError(
                f"the Dict observation has the key {prefix}{name!r}, expected a non-empty string without . "
                "and /"
            )
        if isinstance(part, Dict):
            yield from _parts(part, f"{prefix}{name}.")
        elif isinstance(part, Box):
            yield f"{prefix}{name}", tuple(part.shape), _dtype_of(part)
        else:
            raise ConfigError(
                f"observation part {prefix}{name} is {part}, expected a Box: wrap the environment in "
                "FlattenObservation"
            )
