"""One Atari environment with the interface of ``gymnasium.Env``."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from parl.envs.atari import make_vec
from parl.errors import AtariError


class AtariEnv(gymnasium.Env[NDArray[np.uint8], Any]):
    """One environment of :class:`parl.AtariVectorEnv`, same keywords and defaults.

    Args:
        game: a game's id.
        preset: as in :func:`parl.make_vec`.
        render_mode: ``"rgb_array"`` or ``"human"``.
        options: keywords of :class:`parl.AtariVectorEnv` that are not about many environments.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "human"], "render_fps": 15}  # noqa: RUF012

    def __init__(
        self, game: str, *, preset: str = "ale", render_mode: str | None = None, **options: Any
    ) -> None:
        for name in ("num_envs", "batch_size", "autoreset_mode", "lockstep", "output"):
            if name in options:
                raise AtariError(f"{name} is for many environments: use parl.make_vec")
        if render_mode == "rgb_grid":
            raise AtariError('render_mode is "rgb_grid", expected "rgb_array", "human" or None')
        options.setdefault("num_threads", 1)
        self._envs = make_vec(
            game,
            1,
            preset=preset,
            render_mode=render_mode,
            autoreset_mode=AutoresetMode.DISABLED,
            **options,
        )
        self._resets_games = self._envs.life_loss == "reports"
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": self._envs.metadata["render_fps"]}
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Starts an episode; the seed is that of environment 0 of a vector environment."""
        super().reset(seed=seed)
        del options
        obs, infos = self._envs.reset(seed=seed)
        return obs[0], self._single(infos)

    def step(self, action: Any) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """One action, as :meth:`parl.AtariVectorEnv.step`."""
        obs, rewards, terminated, truncated, infos = self._envs.step(np.asarray(action)[None])
        return obs[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), self._single(infos)

    def _single(self, infos: dict[str, Any]) -> dict[str, Any]:
        """The figures of environment 0 that are there, without masks."""
        # Here a reported end is followed by a reset, which leaves the game.
        left_out = ("env_id", *(("game_over", "game_return") if self._resets_games else ()))
        return {
            key: value[0].item() if value[0].ndim == 0 else value[0]
            for key, value in infos.items()
            if not key.startswith("_") and key not in left_out and infos[f"_{key}"][0]
        }

    def render(self) -> Any:
        """The native picture, (rows, 160, 3) uint8, or None once a window shows it."""
        pictures = self._envs.render()
        return None if pictures is None else pictures[0]

    def get_state(self) -> NDArray[np.uint8]:
        """The environment as bytes, (size,) uint8."""
        return self._envs.get_state()[0]

    def set_state(self, state: NDArray[np.uint8]) -> None:
        """Takes back what :meth:`get_state` gave."""
        self._envs.seed_states(state)

    def close(self) -> None:
        """Frees the environment; closing twice does nothing."""
        self._envs.close()
