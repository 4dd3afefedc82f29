"""Atari 2600 games as pure functions for ``jax.jit``, ``jax.lax.scan`` and ``jax.vmap``, on the CPU.

:func:`make` makes the environments. Their state is an array that the caller holds; a step is one call of a
handler of XLA's foreign function interface, which is part of parl's extension. JAX is imported by the first
:func:`make`.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
from gymnasium.vector import AutoresetMode

from parl import _native
from parl.atari.catalogue import game_id
from parl.envs.atari import arguments, step_results
from parl.envs.atari.options import CommonAtariOptions
from parl.envs.atari.presets import preset_options
from parl.envs.atari.vector import AtariVectorEnv
from parl.errors import AtariError
from parl.extras import install_command
from parl.signatures import show_options

__all__ = ["AtariEnv", "JaxAtariOptions", "State", "make"]

# An array of JAX. Its types are not imported, so that this module can be imported without JAX.
Array = Any

# Columns of the numbers of a call by their names in the infos.
_INFO = {
    "raw_reward": step_results.RAW_REWARD,
    "lives": step_results.LIVES,
    "frame_number": step_results.FRAME,
    "episode_frame_number": step_results.EPISODE_FRAME,
    "episode_return": step_results.EPISODE_RETURN,
    "episode_length": step_results.EPISODE_LENGTH,
    "game_return": step_results.GAME_RETURN,
}
# Configuration of `_native.AtariRows` on which no result depends, or that the hash of the ROM replaces.
_NOT_IN_NAME = {
    "assignment",
    "batch_size",
    "entropy",
    "folders",
    "ordered",
    "ram_info",
    "thread_affinity_offset",
}
# Bytes for kept pictures. With random actions, 103 games were seen to need at most 8,549 bytes, and
# Tic-Tac-Toe 3D, which draws a part of its picture in a frame, 14,098.
_PICTURE_BYTES = 12_288
_PICTURE_BYTES_OF = {"tic_tac_toe_3d": 32_768}


class JaxAtariOptions(CommonAtariOptions, total=False):
    """Keywords of :func:`make` that :class:`parl.AtariVectorEnv` describes."""

    repeat_action_probability: float
    frameskip: int | tuple[int, int]
    obs_type: Literal["gray", "rgb", "index", "ram"] | None
    mode: int | None
    difficulty: int | None
    patches: Mapping[Any, int] | None
    ram: Mapping[Any, int] | None
    hold: Mapping[Any, int] | None
    modifications: str | tuple[str, ...] | None


class State(NamedTuple):
    """The state of N environments: a tuple of arrays, which JAX takes as a pytree.

    Attributes:
        rows: (N, S) uint8: consoles, counters of the episode, generators; :attr:`AtariEnv.state_bytes` is S.
        obs: (N, *shape) uint8: the observation, whose images the next observation contains.
    """

    rows: Array
    obs: Array


class _Checked(AtariVectorEnv):
    """Checks the keywords of :class:`parl.AtariVectorEnv`, and makes environments without states."""

    def __init__(self, game: str, num_envs: int, picture_bytes: int, **options: Any) -> None:
        self.picture_bytes = picture_bytes
        super().__init__(game, num_envs, **options)
        # The extension owns the environments.
        self.closed = True

    def _make_native(self, config: dict[str, Any]) -> Any:
        if self._fields:
            raise AtariError(
                'obs_type is "objects", expected "gray", "rgb", "index" or "ram" in programs of JAX'
            )
        if len(config["games"]) > 1:
            raise AtariError(
                f"there are {len(config['games'])} variations, expected one for all environments"
            )
        named = {name: value for name, value in config.items() if name not in _NOT_IN_NAME}
        self.name = json.dumps({**named, "picture_bytes": self.picture_bytes}, sort_keys=True)
        return _native.AtariRows(config, self.name, self.picture_bytes)


class AtariEnv:
    """Environments of one game whose state the caller holds; :func:`make` makes them.

    :meth:`reset` and :meth:`step` are pure functions of arrays: equal arguments give equal results, and a
    state can be kept, copied and stepped again. They work inside ``jax.jit``, ``jax.lax.scan``, ``jax.vmap``
    and ``jax.shard_map``, on the CPU. An object has no state of its own, only settings.

    Attributes:
        num_envs: number of environments N that :meth:`reset` begins.
        num_actions: number of actions.
        action_codes: the console's action code of each action.
        obs_shape: shape of an observation.
        state_bytes: bytes S of a row of :attr:`State.rows`.
        num_threads: number of threads that step environments, the calling thread included.
        settings: every keyword of :class:`parl.AtariVectorEnv` with its value, and the name of the preset.
        single_observation_space, single_action_space: spaces of Gymnasium.
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        *,
        preset: str | None,
        final_obs: bool,
        picture_bytes: int | None,
        options: Mapping[str, Any],
    ) -> None:
        self._jax = _import_jax()
        if picture_bytes is None:
            picture_bytes = _PICTURE_BYTES_OF.get(game_id(game), _PICTURE_BYTES)
        picture_bytes = arguments.integer("picture_bytes", picture_bytes, 0, 1 << 20)
        checked = _Checked(game, num_envs, picture_bytes, **options)
        native = checked._native
        self._final_obs, self._ram_info = bool(final_obs), bool(checked.settings["ram_info"])
        self._same_step = checked.autoreset_mode is AutoresetMode.SAME_STEP
        if self._final_obs and not self._same_step:
            raise AtariError(
                f"final_obs is True with autoreset_mode={checked.autoreset_mode.value}, expected SameStep"
            )
        self._attributes = {
            "settings": checked.name,
            "rom_md5": native.rom_md5,
            "extras": " ".join(["final_obs"] * self._final_obs + ["ram"] * self._ram_info),
        }
        self._reward_dtype = checked.settings["reward_dtype"]
        self.game = checked.games[0]
        self.num_envs = checked.num_envs
        self.single_observation_space = checked.single_observation_space
        self.single_action_space = checked.single_action_space
        self.obs_shape: tuple[int, ...] = checked.single_observation_space.shape or ()
        self.action_codes: tuple[int, ...] = tuple(native.actions)
        self.num_actions = len(self.action_codes)
        self.num_threads: int = native.num_threads
        self.state_bytes: int = native.row_bytes
        self.settings: dict[str, Any] = {**checked.settings, "preset": preset}

    def __repr__(self) -> str:
        return f"parl.jax.AtariEnv({self.game}, num_envs={self.num_envs})"

    def seeds(self, key: Array) -> Array:
        """The seeds with which :meth:`reset` begins: (N,) uint32 below 2^31, drawn from a key of JAX.

        ``parl.AtariVectorEnv.reset(seed=...)`` takes them for the same episodes.
        """
        return self._jax.random.bits(key, (self.num_envs,), np.uint32) >> 1

    def reset(self, key: Array) -> tuple[State, Array]:
        """Begins the first episodes.

        Args:
            key: a key of ``jax.random``, from which the seeds of the environments are drawn.

        Returns:
            the state, and the observation (N, *shape) uint8, which is also ``state.obs``.
        """
        return self.reset_with_seeds(self.seeds(key))

    def reset_with_seeds(self, seeds: Array) -> tuple[State, Array]:
        """Begins the first episodes with these seeds: those of :meth:`parl.AtariVectorEnv.reset`.

        Args:
            seeds: (N,) unsigned integers, or non-negative ones, of at most 32 bits. Any shape is possible:
                state and observation have it in front of theirs.

        Returns:
            as :meth:`reset`.

        Raises:
            TypeError: seeds are no integers.
        """
        seeds = self._integers("seeds", seeds)
        state, obs, *_ = self._call("parl_atari_reset", seeds.shape, seeds.astype(np.uint32))
        return state, obs

    def step(self, state: State, actions: Array) -> tuple[State, Array, Array, Array, Array, dict[str, Any]]:
        """Steps every environment by one action.

        An environment whose episode has ended is reset as ``autoreset_mode`` says, with its own generators:
        by the next step, which ignores its action (NEXT_STEP), or within the step (SAME_STEP).

        Args:
            state: the state before, from :meth:`reset` or :meth:`step`. It remains valid.
            actions: (N,) integers in ``0..num_actions``. Any shape is possible, if the arrays of ``state``
                have it in front of theirs.

        Returns:
            state, observation (N, *shape) uint8, reward (N,) of ``reward_dtype``, terminated and truncated
            (N,) bool, and ``info``. The entries of ``info`` are arrays (N,): int32 ``lives``,
            ``frame_number``, ``episode_frame_number``, ``raw_reward`` (before clipping); bool ``ended``,
            whether an episode ended in this step; and int32 ``episode_return`` (before clipping) and
            ``episode_length`` (in steps), bool ``game_over`` and int32 ``game_return``, which are 0 where
            none ended. With SAME_STEP also ``final_info``, a dict of ``lives``, ``frame_number`` and
            ``episode_frame_number`` before the reset, and with ``final_obs=True`` also ``final_obs`` (N,
            *shape), zeros where no episode ended; with ``ram_info=True`` also ``ram`` (N, 128) uint8.

        Raises:
            TypeError: the state is none, or an array has another dtype.
            ValueError: an array has another shape.
            ValueError, jax.errors.JaxRuntimeError: the program fails: an action is outside the action space,
                a row is not a state of these environments, a state needs more room for pictures, or an
                environment that has ended is stepped (DISABLED). The message names the row and the value. JAX
                may run a program after the call: then it raises a JaxRuntimeError where the results are used.
        """
        if not isinstance(state, State):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"state is a {type(state).__name__}, expected a parl.jax.State")
        actions = self._integers("actions", actions)
        lead = actions.shape
        self._check("state.rows", state.rows, lead, (self.state_bytes,))
        self._check("state.obs", state.obs, lead, self.obs_shape)
        # The new state may take the place of the old one. XLA copies the old one first if it is used later.
        return self._call("parl_atari_step", lead, state.rows, actions, state.obs, aliases={0: 0, 2: 1})

    def _check(self, name: str, array: Array, lead: tuple[int, ...], shape: tuple[int, ...]) -> None:
        if array.dtype != np.uint8:
            raise TypeError(f"{name} has dtype {array.dtype}, expected uint8")
        if array.shape != (*lead, *shape):
            raise ValueError(
                f"{name} has shape {array.shape} with actions of shape {lead}, expected {(*lead, *shape)}"
            )

    def _integers(self, name: str, values: Array) -> Array:
        """An int32 or uint32 array; larger integers become values that are out of every range."""
        jnp = self._jax.numpy
        array = jnp.asarray(values)
        if array.dtype.kind not in "iu":
            raise TypeError(f"{name} have dtype {array.dtype}, expected integers")
        if name == "seeds":
            return array
        if array.dtype.itemsize > 4 or array.dtype == np.uint32:
            array = array.clip(max=np.iinfo(np.int32).max)
        if array.dtype == np.int64:
            array = array.clip(min=-1)
        return array.astype(np.int32)

    def _call(
        self, target: str, lead: tuple[int, ...], *args: Array, aliases: dict[int, int] | None = None
    ) -> Any:
        """Calls a handler and arranges its results as those of :meth:`step`."""
        jax = self._jax
        shapes: list[tuple[Any, tuple[int, ...]]] = [
            (np.uint8, (self.state_bytes,)),
            (np.uint8, self.obs_shape),
            (np.int32, (step_results.NUMBERS,)),
            (np.bool_, (step_results.FLAGS,)),
        ]
        shapes += [(np.uint8, self.obs_shape)] * self._final_obs + [(np.uint8, (128,))] * self._ram_info
        call = jax.ffi.ffi_call(
            target,
            [jax.ShapeDtypeStruct((*lead, *shape), dtype) for dtype, shape in shapes],
            vmap_method="broadcast_all",
            input_output_aliases=aliases,
        )
        rows, obs, numbers, flags, *extras = call(*args, **self._attributes)
        info: dict[str, Any] = {name: numbers[..., column] for name, column in _INFO.items()}
        terminated, truncated, info["ended"], info["game_over"] = (
            flags[..., i] for i in range(step_results.FLAGS)
        )
        if self._same_step:
            info["final_info"] = {
                name: numbers[..., step_results.FINAL + i] for i, name in enumerate(step_results.FINAL_INFO)
            }
        if self._final_obs:
            info["final_obs"] = extras[0]
        if self._ram_info:
            info["ram"] = extras[-1]
        reward = numbers[..., step_results.REWARD]
        if self._reward_dtype != "int32":
            reward = reward.astype(jax.dtypes.canonicalize_dtype(np.dtype(self._reward_dtype)))
        return State(rows, obs), obs, reward, terminated, truncated, info


@show_options(JaxAtariOptions)
def make(
    game: str,
    num_envs: int = 1,
    *,
    preset: str = "ale",
    final_obs: bool = False,
    picture_bytes: int | None = None,
    **options: Unpack[JaxAtariOptions],
) -> AtariEnv:
    """Atari environments as pure functions: ``reset`` and ``step`` of explicit state, for programs of JAX.

    Args:
        game: a game's id, such as ``"breakout"``.
        num_envs: number of environments N.
        preset: as in :func:`parl.make_vec`.
        final_obs: whether ``info["final_obs"]`` holds the last observations of episodes that ended in a step,
            with ``autoreset_mode="SameStep"``.
        picture_bytes: bytes in the state of an environment for the pictures of the last two frames, as runs
            of equal pixels; None for 12,288, in Tic-Tac-Toe 3D 32,768. An environment keeps pictures if they
            cannot be made again from its console: until two whole frames have run within a step, and in
            games that draw parts of a picture. A step that needs more bytes is an error, which says how many.
            Without effect with ``obs_type="ram"``.
        **options: keywords of :class:`parl.AtariVectorEnv`, which override those of the preset, without those
            for several games or variations, objects, two players, other devices, asynchronous stepping,
            continuous actions, sound, rendering and the type of arrays. ``reward_dtype`` is a dtype of JAX:
            without ``jax_enable_x64`` float64 becomes float32.

    The first call with some settings starts ``num_threads`` threads, which live as long as the process; later
    calls with the same settings use these. ``num_envs`` is no setting.

    Raises:
        ModuleNotFoundError: JAX is not installed; the message has the command.
        TypeError: an option is unknown.
        ConfigError, AtariError: (ValueErrors) there is no such preset; an argument is out of its bounds.
        FileNotFoundError: the game's ROM was not found.

    Examples:
        >>> import jax, parl
        >>> env = parl.jax.make("breakout", num_envs=2)
        >>> state, obs = env.reset(jax.random.key(0))
        >>> step, actions = jax.jit(env.step), jax.numpy.array([1, 0])
        >>> state, obs, reward, terminated, truncated, info = step(state, actions)
        >>> obs.shape, info["lives"].tolist()
        ((2, 4, 84, 84), [5, 5])
    """
    known = JaxAtariOptions.__annotations__
    if unknown := sorted(set(options) - set(known)):
        raise TypeError(f"{unknown[0]} is no option of parl.jax.make, expected one of {sorted(known)}")
    if not isinstance(game, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"game is {game!r}, expected the id of one game")
    chosen = {name: value for name, value in preset_options(preset).items() if name in known}
    given = {**chosen, **options}
    return AtariEnv(
        game,
        num_envs,
        preset=preset,
        final_obs=final_obs,
        picture_bytes=picture_bytes,
        options=given,
    )


@functools.cache
def _import_jax() -> Any:
    """The module ``jax``, with parl's handlers registered.

    Raises:
        ModuleNotFoundError: it is not installed, or has no ``jax.ffi``.
    """
    try:
        jax = importlib.import_module("jax")
        importlib.import_module("jax.ffi")
    except ModuleNotFoundError as error:
        reason = f"parl.jax needs {error.name}: {install_command(error) or 'pip install parl-rl[jax]'}"
        raise ModuleNotFoundError(reason, name=error.name) from error
    for name, handler in _native.xla_targets():
        jax.ffi.register_ffi_target(name, handler, platform="cpu")
    return jax
