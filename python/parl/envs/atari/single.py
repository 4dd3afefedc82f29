"""One Atari environment with the interface of ``gymnasium.Env``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from parl.atari.actions import Action
from parl.atari.console import AUDIO_SAMPLES
from parl.envs.atari.variations import KEYS, check_options
from parl.envs.atari.vector import make_vec
from parl.errors import AtariError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parl.envs.atari.variations import Variation
    from parl.envs.atari.vector import AtariVectorEnv

# Keys for the four directions and the button, in the form of `gymnasium.utils.play`.
_KEYS = {"UP": "w", "DOWN": "s", "RIGHT": "d", "LEFT": "a", "FIRE": " "}
_NOOP_KEY = "e"


class AtariEnv(gymnasium.Env[Any, Any]):
    """A single Atari environment, with the keywords and defaults of :class:`parl.AtariVectorEnv`.

    It has the methods that wrappers for ``ale_py.AtariEnv`` use: :meth:`get_action_meanings`, :attr:`ale`
    and, with ``preset="raw"``, one frame per step at the native size. Therefore
    ``stable_baselines3.common.env_util.make_atari_env`` and ``gymnasium.wrappers.AtariPreprocessing`` work
    with it, as ``"parl:parl/BreakoutNoFrameskip-v0"``.

    Args:
        game: a game's id.
        preset: as in :func:`parl.make_vec`.
        render_mode: ``"rgb_array"``, ``"human"`` or None.
        sound_obs: whether observations are dictionaries, as of ``ale_py.AtariEnv``: ``image``, what it is
            otherwise, and ``sound``, (512,) uint8, the sound of the last frame (zeros before the first). On
            the CPU only. With it, or with ``sound=True``, ``info["audio"]`` holds the sound of all frames
            of a step.
        options: keywords of :class:`parl.AtariVectorEnv`, except those for several environments
            (``num_envs``, ``batch_size``, ``autoreset_mode``, ``ordered``, ``output``) and ``players``.
            ``stack_num=None`` gives observations without the stack dimension.

    Raises:
        AtariError: an argument is out of its bounds or is for several environments.
        ConfigError: there is no such preset.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "human"], "render_fps": 15}  # noqa: RUF012

    def __init__(
        self,
        game: str,
        *,
        preset: str = "ale",
        render_mode: str | None = None,
        sound_obs: bool = False,
        **options: Any,
    ) -> None:
        for name in ("num_envs", "batch_size", "autoreset_mode", "ordered", "output"):
            if name in options:
                raise AtariError(f"{name} is for several environments: use parl.make_vec")
        if options.get("players", 1) != 1:
            raise AtariError(
                f"players is {options['players']}, expected 1: use parl.AtariVectorEnv or "
                "parl.atari.parallel_env"
            )
        if render_mode == "rgb_grid":
            raise AtariError('render_mode is "rgb_grid", expected "rgb_array", "human" or None')
        options.setdefault("num_threads", 1)
        self._sound_obs = bool(sound_obs)
        if self._sound_obs:
            options["sound"] = True
        self._game = game
        self._keywords: dict[str, Any] = {"preset": preset, "render_mode": render_mode, **options}
        self._envs = self._make()
        self._resets_games = self._envs.life_loss == "reports"
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": self._envs.metadata["render_fps"]}
        self.observation_space = self._envs.single_observation_space
        if self._sound_obs:
            sound = gymnasium.spaces.Box(0, 255, (AUDIO_SAMPLES,), np.uint8)
            self.observation_space = gymnasium.spaces.Dict(image=self.observation_space, sound=sound)
        self.action_space = self._envs.single_action_space

    def _make(self) -> AtariVectorEnv:
        return make_vec(self._game, 1, autoreset_mode=AutoresetMode.DISABLED, **self._keywords)

    def _make_again(self, played: Sequence[Variation]) -> AtariVectorEnv:
        envs = self._make()
        envs._vary(played)
        return envs

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_envs": self._envs.variations} if self._envs.closed else self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(state["_envs"], tuple):
            self._envs = self._make_again(state["_envs"])
            self._envs.close()

    @property
    def ale(self) -> ConsoleView:
        """The state of the console under ale-py's method names; read only."""
        return ConsoleView(self)

    @property
    def _frameskip(self) -> int | tuple[int, int]:
        # `AtariPreprocessing` reads this attribute.
        low, high = self._envs.variations[0].frameskip
        return low if low == high else (low, high)

    def get_action_meanings(self) -> list[str]:
        """Names of the actions by number: ``["NOOP", "FIRE", ...]``."""
        return [Action(code).name for code in self._envs.action_codes]

    def get_keys_to_action(self) -> dict[tuple[str, ...], int]:
        """Maps keys to actions for ``gymnasium.utils.play``: w, a, s, d, space for FIRE, e for NOOP.

        Raises:
            AttributeError: actions are continuous.
        """
        if isinstance(self.action_space, gymnasium.spaces.Box):
            raise AttributeError(
                "continuous actions have no keys: make the environment with continuous=False"
            )
        return {_keys_of(name): number for number, name in enumerate(self.get_action_meanings())}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode.

        Creates the environment again if it was closed, with what earlier resets have changed.

        Args:
            seed: as the seed of environment 0 of a vector environment; None keeps the generators.
            options: the keys of :meth:`parl.AtariVectorEnv.reset` that change what the environment plays;
                others are ignored, unless they look like a misspelled one.

        Returns:
            The observation, uint8 or with ``sound_obs`` a dictionary, and the infos of
            :meth:`parl.AtariVectorEnv.reset` as scalars.

        Raises:
            AtariError: a key of ``options`` looks like a misspelled one, or a value is out of its bounds.
        """
        check_options(options)
        own = seed
        if seed is not None and seed >= 0 and self._envs.settings["noops"] == "numpy":
            # As in ale-py's environment: wrappers draw their number of no-op frames from this generator.
            own = int(np.random.SeedSequence(seed).generate_state(1)[0])
        super().reset(seed=own)
        if self._envs.closed:
            self._envs = self._make_again(self._envs.variations)
        changes = {name: value for name, value in (options or {}).items() if name in KEYS}
        obs, infos = self._envs.reset(seed=seed, options=changes)
        self.metadata["render_fps"] = self._envs.metadata["render_fps"]
        return self._observation(obs, infos), self._single(infos)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Steps the environment by one action, as :meth:`parl.AtariVectorEnv.step`.

        Args:
            action: int, or with ``continuous`` (3,) float32.

        Returns:
            The observation, reward, terminated, truncated, and infos as scalars.
        """
        obs, rewards, terminated, truncated, infos = self._envs.step(np.asarray(action)[None])
        seen = self._observation(obs, infos)
        return seen, float(rewards[0]), bool(terminated[0]), bool(truncated[0]), self._single(infos)

    def _observation(self, obs: Any, infos: dict[str, Any]) -> Any:
        if not self._sound_obs:
            return obs[0]
        return {"image": obs[0], "sound": infos["audio"][0, -AUDIO_SAMPLES:]}

    def _single(self, infos: dict[str, Any]) -> dict[str, Any]:
        """The infos of environment 0 as scalars, without masks and masked entries."""
        # After a reported end the caller resets, which ends the game, so these would never be filled.
        left_out = ("env_id", *(("game_over", "game_return") if self._resets_games else ()))
        return {
            key: value[0].item() if value[0].ndim == 0 else value[0]
            for key, value in infos.items()
            if not key.startswith("_") and key not in left_out and infos[f"_{key}"][0]
        }

    def render(self) -> Any:
        """The screen at the native size, (H, 160, 3) uint8; None with ``render_mode="human"``."""
        pictures = self._envs.render()
        return None if pictures is None else pictures[0]

    def get_state(self) -> NDArray[np.uint8]:
        """The complete state, (size,) uint8; see :meth:`parl.AtariVectorEnv.get_state`."""
        return self._envs.get_state()[0]

    def set_state(self, state: NDArray[np.uint8]) -> None:
        """Restores a state of :meth:`get_state`."""
        self._envs.seed_states(state)

    def close(self) -> None:
        """Frees the environment; a second call does nothing. :meth:`reset` creates it again."""
        self._envs.close()


class ConsoleView:
    """Read-only state of an :class:`AtariEnv` under ale-py's method names, for wrappers that use ``env.ale``.

    The methods always read the current state. ``parl.atari.ale`` has the complete interface, on a console of
    its own.

    Raises:
        AtariError: (each method) the environment has not been reset, is closed, or is on a CUDA device.
    """

    # ruff: noqa: N802 - the names are ALE's
    def __init__(self, env: AtariEnv) -> None:
        self._env = env

    @property
    def _native(self) -> Any:
        envs = self._env._envs
        envs._check_open()
        if not hasattr(envs._native, "console_status"):
            raise AtariError(f'ale needs device="cpu", the environment is on {envs.settings["device"]!r}')
        return envs._native

    def lives(self) -> int:
        """Number of lives left; 0 in games without lives."""
        return self._native.console_status(0)[0]

    def game_over(self, with_truncation: bool = True) -> bool:
        """Whether the game has ended; with ``with_truncation`` also whether its frame limit was reached."""
        _, over, truncated, *_ = self._native.console_status(0)
        return over or (truncated and with_truncation)

    def game_truncated(self) -> bool:
        """Whether the console's frame limit was reached."""
        return self._native.console_status(0)[2]

    def getFrameNumber(self) -> int:
        """Number of frames since the ROM was loaded."""
        return self._native.console_status(0)[3]

    def getEpisodeFrameNumber(self) -> int:
        """Number of frames since the last reset."""
        return self._native.console_status(0)[4]

    def getRAM(self, buffer: NDArray[np.uint8] | None = None) -> NDArray[np.uint8] | None:
        """The RAM, (128,) uint8; or None after writing it into ``buffer``."""
        return _filled(buffer, self._native.console_status(0)[5])

    def getRAMSize(self) -> int:
        """Size of the RAM in bytes: 128."""
        return 128

    def getScreenDims(self) -> tuple[int, int]:
        """Height and width of the screen in pixels."""
        height, width = self._native.screen(0, False).shape
        return height, width

    @overload
    def getScreen(self) -> NDArray[np.uint8]: ...
    @overload
    def getScreen(self, buffer: NDArray[np.uint8]) -> None: ...
    def getScreen(self, buffer: NDArray[np.uint8] | None = None) -> NDArray[np.uint8] | None:
        """The screen as palette indices, (H, 160) uint8; or None after writing it into ``buffer``."""
        return _filled(buffer, self._native.screen(0, False))

    @overload
    def getScreenGrayscale(self) -> NDArray[np.uint8]: ...
    @overload
    def getScreenGrayscale(self, buffer: NDArray[np.uint8]) -> None: ...
    def getScreenGrayscale(self, buffer: NDArray[np.uint8] | None = None) -> NDArray[np.uint8] | None:
        """The screen as gray values, (H, 160) uint8; or None after writing it into ``buffer``."""
        return _filled(buffer, self._native.screen(0, True))

    @overload
    def getScreenRGB(self) -> NDArray[np.uint8]: ...
    @overload
    def getScreenRGB(self, buffer: NDArray[np.uint8]) -> None: ...
    def getScreenRGB(self, buffer: NDArray[np.uint8] | None = None) -> NDArray[np.uint8] | None:
        """The screen as RGB, (H, 160, 3) uint8; or None after writing it into ``buffer``."""
        return _filled(buffer, self._native.picture(0))

    def getMinimalActionSet(self) -> list[Action]:
        """The actions of the environment by number."""
        return [Action(code) for code in self._env._envs.action_codes]


def _filled(buffer: NDArray[np.uint8] | None, values: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
    if buffer is None:
        return values
    if buffer.shape != values.shape or buffer.dtype != np.uint8:
        raise AtariError(
            f"buffer is {buffer.dtype} of shape {buffer.shape}, expected uint8 of shape {values.shape}"
        )
    buffer[...] = values
    return None


def _keys_of(name: str) -> tuple[str, ...]:
    """``UPRIGHTFIRE`` -> ``("w", "d", " ")``."""
    return tuple(key for part, key in _KEYS.items() if part in name) or (_NOOP_KEY,)
