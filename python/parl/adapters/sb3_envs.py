"""Atari environments as a ``VecEnv`` of Stable-Baselines3; :mod:`parl.adapters.sb3` exports it.

Source: the interface of ``stable_baselines3.common.vec_env.VecEnv`` (2.9), and its documentation of the
entries ``terminal_observation``, ``TimeLimit.truncated`` and ``episode`` of infos.
"""

# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv

from parl.atari.actions import Action
from parl.envs.atari.vector import AtariVectorEnv, make_vec
from parl.errors import AtariError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from parl.envs.atari.states import Arrays

# Number of seeds of the environments; Stable-Baselines3 draws from twice as many.
_SEEDS = 2**31
_INFO_NAMES: tuple[str, ...] = ("lives", "frame_number", "episode_frame_number")
_FIXED_OPTIONS = ("num_envs", "batch_size", "autoreset_mode", "ordered", "output", "device")


class AtariVecEnv(VecEnv):
    """N Atari environments of :class:`parl.AtariVectorEnv`, stepped by Rust threads, for SB3's algorithms.

    Observations are uint8 (N, 4, 84, 84), oldest picture first, so that ``"CnnPolicy"`` needs neither
    ``VecTransposeImage`` nor ``VecFrameStack``. An environment whose episode ends is reset in the same step.
    Its info then holds

    - ``terminal_observation``: the last observation of the episode;
    - ``TimeLimit.truncated``: whether the episode was truncated, not terminated;
    - ``episode``: if the whole game has ended, as ``Monitor`` returns it: ``r``, the game's points before
      clipping, ``l``, its steps, and ``t``, seconds since the environments were made. With the default
      preset an episode of the algorithm is a life; ``evaluate_policy`` and the log count games.

    Args:
        game: a game's id, or several ids.
        n_envs: number of environments N.
        preset: as in :func:`parl.make_vec`.
        options: keywords of :class:`parl.AtariVectorEnv`, except ``batch_size``, ``autoreset_mode``,
            ``ordered``, ``output`` and ``device``; ``players`` is 1, and ``life_loss`` is not ``"reports"``.

    Raises:
        AtariError: an option is not allowed; and as :class:`parl.AtariVectorEnv`.

    Examples:
        >>> from parl.adapters.sb3 import AtariVecEnv
        >>> envs = AtariVecEnv("breakout", n_envs=2)
        >>> envs.reset().shape
        (2, 4, 84, 84)
        >>> envs.close()
    """

    def __init__(
        self, game: str | Sequence[str], n_envs: int = 8, *, preset: str = "nature", **options: Any
    ) -> None:
        for name in _FIXED_OPTIONS:
            if name in options:
                raise AtariError(f"{name} is {options[name]!r}: AtariVecEnv sets it itself")
        for name in ("ram_info", "sound"):
            if options.get(name):
                raise AtariError(f"{name} is {options[name]!r}, but infos of AtariVecEnv do not have it")
        if options.get("players", 1) != 1:
            raise AtariError(
                f"players is {options['players']}, expected 1: SB3 has one reward per environment"
            )
        options.setdefault("reward_dtype", "float32")
        self.envs: AtariVectorEnv = make_vec(
            game, n_envs, preset=preset, autoreset_mode=AutoresetMode.SAME_STEP, **options
        )
        if self.envs.life_loss == "reports":
            self.envs.close()
            raise AtariError(
                'life_loss is "reports" (life_loss_info), but a done of SB3 means that the environment was '
                'reset: use life_loss="continues" or "ends"'
            )
        self._sub_envs = [AtariSubEnv(self.envs, i) for i in range(n_envs)]
        self._actions: NDArray[Any] | None = None
        self._lengths = np.zeros(n_envs, np.int64)
        self._created_at = time.time()
        super().__init__(n_envs, self.envs.single_observation_space, self.envs.single_action_space)
        self.metadata = {**self.metadata, "render_fps": self.envs.metadata["render_fps"]}

    # ------------------------------------------------------------------ playing

    def reset(self) -> Arrays:
        """Resets all environments, with the seeds of ``seed`` modulo 2^31.

        Raises:
            AtariError: ``set_options`` has set options, which are not supported.
        """
        if any(self._options):
            raise AtariError(f"options are {self._options}, expected none")
        seeds = None
        if any(seed is not None for seed in self._seeds):
            seeds = np.array([-1 if seed is None else seed % _SEEDS for seed in self._seeds], np.int64)
        obs, infos = self.envs.reset(seed=seeds)
        self._reset_seeds()
        self._actions = None
        self._lengths.fill(0)
        self.reset_infos = _rows(infos, self.num_envs)
        return obs

    def step_async(self, actions: NDArray[Any]) -> None:
        """Stores the actions for :meth:`step_wait`."""
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[Arrays, Arrays, NDArray[np.bool_], list[dict[str, Any]]]:
        """Steps every environment with the actions of :meth:`step_async`.

        Returns:
            Observations, rewards (N,) float32, dones (N,) bool, and one info per environment.

        Raises:
            AtariError: :meth:`step_async` was not called; and as :meth:`parl.AtariVectorEnv.step`.
        """
        if self._actions is None:
            raise AtariError("step_wait needs actions: call step_async first")
        actions, self._actions = self._actions, None
        obs, rewards, terminated, truncated, found = self.envs.step(actions)
        dones = terminated | truncated
        infos = _rows(found, self.num_envs)
        cut = truncated & ~terminated
        for info, was_cut in zip(infos, cut.tolist(), strict=True):
            info["TimeLimit.truncated"] = was_cut
        self._lengths += 1
        for i in np.flatnonzero(dones).tolist():
            self._finish_episode(i, infos[i], found)
        return obs, rewards, dones, infos

    def _finish_episode(self, i: int, info: dict[str, Any], found: dict[str, Any]) -> None:
        """Adds the entries of an ended episode to an info; lives and frame numbers become that episode's."""
        self.reset_infos[i] = {name: info[name] for name in _INFO_NAMES}
        info["terminal_observation"] = found["final_obs"][i]
        info.update({name: int(found["final_info"][name][i]) for name in _INFO_NAMES})
        if not found.get("_game_return", found["_episode_return"])[i]:
            # Only a life has ended.
            return
        points = found.get("game_return", found["episode_return"])[i]
        seconds = round(time.time() - self._created_at, 6)
        info["episode"] = {"r": float(points), "l": int(self._lengths[i]), "t": seconds}
        self._lengths[i] = 0

    def close(self) -> None:
        """Frees the environments; a second call does nothing."""
        self.envs.close()

    # ------------------------------------------------------------------ pictures

    def get_images(self) -> Sequence[Any]:
        """Screens at the native size, (rows, 160, 3) uint8 each; needs ``render_mode="rgb_array"``."""
        return self.envs.render()

    def render(self, mode: str | None = None) -> Any:
        """All screens tiled into one image, or shown in a window, as in SB3."""
        if self.render_mode == "human":
            return self.envs.render()
        return super().render(mode)

    # ------------------------------------------------------------------ members

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Values of an attribute of the :class:`AtariSubEnv` objects of ``indices``.

        Raises:
            AttributeError: there is no such attribute.
        """
        return [getattr(self._sub_envs[i], attr_name) for i in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Sets an attribute of the :class:`AtariSubEnv` objects; does not change settings of the game."""
        for i in self._get_indices(indices):
            setattr(self._sub_envs[i], attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Calls a method of the :class:`AtariSubEnv` objects of ``indices``."""
        return [getattr(self._sub_envs[i], method_name)(*args, **kwargs) for i in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """True for ``Monitor``, because infos have its ``episode``; False for other wrappers."""
        return [issubclass(Monitor, wrapper_class) for _ in self._get_indices(indices)]


class AtariSubEnv:
    """One environment of an :class:`AtariVecEnv`, as ``get_attr`` and ``env_method`` see it.

    Attributes:
        index: number of the environment.
        game: id of its game.
        render_mode, spec, metadata: those of the vector environment.
        observation_space, action_space: spaces of one environment.
    """

    def __init__(self, envs: AtariVectorEnv, index: int) -> None:
        self._envs = envs
        self.index = index
        self.game = envs.variations[index].game
        self.render_mode, self.spec, self.metadata = envs.render_mode, envs.spec, envs.metadata
        self.observation_space, self.action_space = envs.single_observation_space, envs.single_action_space

    @property
    def unwrapped(self) -> AtariSubEnv:
        """The object itself."""
        return self

    def get_wrapper_attr(self, name: str) -> Any:
        """The attribute of this name, as in Gymnasium's environments."""
        return getattr(self, name)

    def get_action_meanings(self) -> list[str]:
        """Names of the actions by number."""
        return [Action(code).name for code in self._envs.action_codes]

    def get_state(self) -> NDArray[np.uint8]:
        """The complete state of the environment, (size,) uint8."""
        return self._envs.get_state(self._mask())[0]

    def set_state(self, state: NDArray[np.uint8]) -> None:
        """Restores a state of :meth:`get_state`."""
        self._envs.set_state(np.asarray(state)[None], self._mask())

    def render(self) -> Any:
        """The screen at the native size, (rows, 160, 3) uint8."""
        return self._envs.render()[self.index]

    def _mask(self) -> NDArray[np.bool_]:
        return np.arange(self._envs.num_envs) == self.index


def _rows(infos: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """One dict per environment with lives and frame numbers."""
    columns = [infos[name].tolist() for name in _INFO_NAMES]
    return [dict(zip(_INFO_NAMES, values, strict=True)) for values in zip(*columns, strict=True)][:count]
