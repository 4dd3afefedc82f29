"""Construction and description of vector environments, from a Gymnasium id, a function or an instance."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from parl._system import usable_cores
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


def _is_env(env: Any) -> bool:
    """Whether ``env`` is an environment or a vector environment of Gymnasium."""
    from gymnasium import Env
    from gymnasium.vector import VectorEnv

    return isinstance(env, Env | VectorEnv)


class EnvMaker:
    """Makes vector environments of any size; can be pickled.

    Spaces are converted to those that algorithms take, see ``parl.envs.spaces``.

    Args:
        env: one of

            - a Gymnasium id. Its own vector environment is used if it has one, else a ``SyncVectorEnv``;
              CartPole and four or more Acrobots use faster vector environments with equal results
              (``parl.envs.cartpole``, ``parl.envs.classic``).
            - ``module:Id``: the id after importing the module, which may lie in the current folder; or
              ``module:Class`` and ``module:function``.
            - a class or function, also a ``functools.partial``. With a parameter ``num_envs``, or one without
              a default, a function gets the number of environments and returns a ``VectorEnv``; else it
              returns an ``Env``.
            - an ``Env`` or ``VectorEnv``, of which copies are made; it is itself not stepped.
        options: keywords of ``gymnasium.make_vec``, or of the class; not allowed with a function or instance.
        wrappers: functions or classes that wrap each single environment, the first innermost; or text, see
            ``parl.envs.load.load_wrapper``.
        masks: whether action masks, ``info["action_mask"]``, become a part of the observation.

    Raises:
        ConfigError: ``env`` is of another type, or does not take ``options``.
    """

    def __init__(
        self,
        env: Any,
        options: Mapping[str, Any] | None = None,
        wrappers: Iterable[str | Callable[[Any], Any]] = (),
        masks: bool = False,
    ) -> None:
        if not isinstance(env, str) and not callable(env) and not _is_env(env):
            raise ConfigError(
                f"env = {env!r} is neither a Gymnasium id, a class, a function, an Env nor a VectorEnv"
            )
        if not isinstance(env, str) and not inspect.isclass(env) and options:
            raise ConfigError(
                f"env options {sorted(options)} are for Gymnasium ids and classes, env is a "
                f"{'function' if callable(env) else 'instance'}: set them there"
            )
        if isinstance(wrappers, str) or not hasattr(wrappers, "__iter__"):
            raise ConfigError(f"wrappers = {wrappers!r} is no list, expected [{wrappers!r}]")
        wrappers = tuple(wrappers)
        for number, wrapper in enumerate(wrappers):
            if not isinstance(wrapper, str) and not callable(wrapper):
                raise ConfigError(f"wrappers[{number}] = {wrapper!r} is neither a function, a class nor text")
        self.env = _without_processes(env)
        self.options = dict(options or {})
        self.wrappers = wrappers
        self.masks = masks

    @property
    def name(self) -> str:
        """The text that names the environment, or the name of the function or class."""
        return self.env if isinstance(self.env, str) else _name_of(self.env)

    @property
    def wrapper_names(self) -> tuple[str, ...]:
        """The text or the name of each wrapper."""
        return tuple(one if isinstance(one, str) else _name_of(one) for one in self.wrappers)

    @property
    def is_text(self) -> bool:
        """Whether text describes the environment, so that a run needs no pickle to make it again."""
        return isinstance(self.env, str) and all(isinstance(one, str) for one in self.wrappers)

    def with_options(self, options: Mapping[str, Any]) -> EnvMaker:
        """A maker of the same environments with other options."""
        return EnvMaker(self.env, options, self.wrappers, self.masks)

    def with_pictures(self, *, sound: bool = False) -> EnvMaker:
        """A maker of the same environments that render pictures, if they take ``render_mode``.

        Args:
            sound: whether parl's Atari environments on the CPU also make sound, ``info["audio"]``. With a
                range of frame skips they make none, since its length differs from step to step.
        """
        from parl.envs.load import load_env

        env = load_env(self.env) if isinstance(self.env, str) else self.env
        takes = inspect.isclass(env) and "render_mode" in inspect.signature(env).parameters
        render: dict[str, Any] = {"render_mode": "rgb_array"} if isinstance(env, str) or takes else {}
        if sound and self.has_threads and isinstance(self.options.get("frameskip", 4), int):
            render["sound"] = True
        return self.with_options({**self.options, **render})

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
        return self.with_options({**self.options, "num_threads": max(1, usable_cores() // actors)})

    @property
    def is_atari(self) -> bool:
        """Whether these are parl's Atari environments."""
        return isinstance(self.env, str) and self.env.startswith("parl/")

    @property
    def is_on_device(self) -> bool:
        """Whether these are parl's Atari environments on a CUDA device."""
        return self.is_atari and str(self.options.get("device", "cpu")) != "cpu"

    @property
    def has_threads(self) -> bool:
        """Whether these are parl's Atari environments on the CPU, which step in their own threads."""
        return self.is_atari and not self.is_on_device and not self.wrappers

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
            ConfigError: Gymnasium cannot make the environment (unknown id, missing package, unknown keyword),
                a function does not return what it should, or a space cannot be converted; or the environment
                starts processes in an actor process.
        """
        from parl.envs.spaces import adapt

        try:
            made = self._make(num_envs)
        except AssertionError as error:
            if "daemonic processes" not in str(error):
                raise
            raise ConfigError(
                f"env = {self.name} starts processes, which an actor process cannot: make a SyncVectorEnv, "
                "since actors step at the same time, or set actor_kind = 'thread' if the algorithm has it"
            ) from error
        return adapt(made, self.masks)

    def _make(self, num_envs: int) -> VectorEnv[Any, Any, Any]:
        """As :meth:`__call__`, with the environment's own spaces."""
        from gymnasium import Env
        from gymnasium.vector import VectorEnv

        from parl.envs import load

        env = load.load_env(self.env) if isinstance(self.env, str) else self.env
        if isinstance(env, str):
            found = None if self.options or self.wrappers else _classic(env, num_envs)
            return found or load.make_registered(env, num_envs, self.options, self._loaded_wrappers())
        function: Callable[..., Any] = env
        if isinstance(env, VectorEnv):
            function = functools.partial(load.resize, env)
        elif isinstance(env, Env):
            function = functools.partial(load.copy_env, env)
        return load.make_by_function(function, num_envs, self.name, self.options, self._loaded_wrappers())

    def _loaded_wrappers(self) -> list[Callable[[Any], Any]]:
        from parl.envs.load import load_wrapper

        return [load_wrapper(one) if isinstance(one, str) else one for one in self.wrappers]

    def find_masks(self) -> None:
        """Sets ``masks`` if the environments report action masks, for which one is made and reset.

        parl's Atari games report none and are not reset.
        """
        from parl.envs.spaces import has_masks

        if self.is_atari:
            return
        probe = self._make(1)
        self.masks = has_masks(probe)
        probe.close()

    def __getstate__(self) -> dict[str, Any]:
        import cloudpickle

        try:
            return vars(self) | {name: cloudpickle.dumps(getattr(self, name)) for name in ("env", "wrappers")}
        except ConfigError:  # of another instance, which the environment refers to
            raise
        except Exception as error:  # an environment may raise any error
            raise ConfigError(
                f"env = {self.name} cannot be sent to other processes or kept in the run directory "
                f"({type(error).__name__}: {error}): pass a function that makes it"
            ) from error

    def __setstate__(self, state: dict[str, Any]) -> None:
        import cloudpickle

        vars(self).update(state | {name: cloudpickle.loads(state[name]) for name in ("env", "wrappers")})


def _without_processes(env: Any) -> Any:
    """What makes vector environments as Gymnasium's ``env`` does; another ``env`` as it is."""
    if not hasattr(env, "num_envs"):
        return env
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    from parl.envs.load import Remade

    # A subclass with a constructor of its own takes no functions.
    known = type(env).__init__ in (SyncVectorEnv.__init__, AsyncVectorEnv.__init__)
    return Remade(env) if known else env


def _name_of(made: Any) -> str:
    """The name of a function or class, of the function of a partial, or of the class of an instance."""
    made = getattr(made, "func", made)
    return getattr(made, "__name__", None) or type(getattr(made, "unwrapped", made)).__name__


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

    Other floats are described as float32, to which :class:`parl.envs.Observer` converts them.

    Args:
        env: made by an :class:`EnvMaker`, which converts other spaces (``parl.envs.spaces``).

    Raises:
        ConfigError: the observation space is neither Box nor a Dict of Box spaces, the action space is
            neither Box nor a Discrete or MultiDiscrete that starts at 0, or the autoreset mode is not one
            of ``AUTORESETS``; or it has two players.
    """
    from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

    from parl.envs.spaces import AdaptedSpaces

    if getattr(env, "players", 1) != 1:
        raise ConfigError(
            "players is 2, expected 1: algorithms have one reward per environment; examples/self_play.py "
            "trains both players with an environment of its own"
        )
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    branches: tuple[int, ...] = ()
    observation, action = env.single_observation_space, env.single_action_space
    parts = tuple(_parts(observation)) if isinstance(observation, Dict) else ()
    if not parts and not isinstance(observation, Box):
        raise ConfigError(
            f"observation space {observation} is neither Box nor a Dict of Box spaces: make the environment "
            "with parl.envs.EnvMaker"
        )
    if isinstance(action, Discrete):
        if action.start != 0:
            raise ConfigError(f"action space {action} starts at {action.start}, expected 0")
        num_actions, action_shape, action_dtype = int(action.n), (), "int64"
    elif isinstance(action, Box):
        num_actions, action_shape, action_dtype = None, tuple(action.shape), "float32"
        low, high = tuple(action.low.ravel().tolist()), tuple(action.high.ravel().tolist())
    elif isinstance(action, MultiDiscrete) and action.nvec.ndim == 1 and not action.start.any():
        num_actions, action_shape, action_dtype = None, tuple(action.shape), "int64"
        branches = tuple(action.nvec.tolist())
    else:
        raise ConfigError(
            f"action space is {action}, expected Discrete, Box, or a MultiDiscrete from 0 on: make the "
            "environment with parl.envs.EnvMaker"
        )
    # Looked up on the class: a wrapper forwards attributes, but may have changed the images.
    stacked: Any = env if hasattr(type(env), "frame_stack") else None
    stack, padding = (1, "zero") if stacked is None else stacked.frame_stack
    return EnvSpec(
        observation_shape=() if parts else tuple(observation.shape or ()),
        observation_dtype="float32" if parts else _dtype_of(observation),
        action_shape=action_shape,
        action_dtype=action_dtype,
        num_actions=num_actions,
        autoreset=_autoreset_of(env),
        action_low=low,
        action_high=high,
        observation_parts=parts,
        frame_stack=stack,
        stack_padding=padding,
        action_branches=branches,
        mask_size=env.mask_size if isinstance(env, AdaptedSpaces) else 0,
    )


def _autoreset_of(env: VectorEnv[Any, Any, Any]) -> Autoreset:
    if "autoreset_mode" not in env.metadata:
        warnings.warn(
            f"{env} has no metadata['autoreset_mode']: taken for NEXT_STEP, in which the step after the end "
            "of an episode only resets",
            stacklevel=3,
        )
    mode = env.metadata.get("autoreset_mode", "next_step")
    name = str(getattr(mode, "name", mode)).lower()
    if name not in AUTORESETS:
        raise ConfigError(f"autoreset mode is {name!r}, expected one of {', '.join(AUTORESETS)}")
    return AUTORESETS[name]


def _dtype_of(space: Any) -> str:
    dtype = np.dtype(space.dtype or np.float32)
    return "float32" if dtype.kind == "f" else dtype.name


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
                f"observation part {prefix}{name} is {part}, expected a Box: make the environment with "
                "parl.envs.EnvMaker"
            )
