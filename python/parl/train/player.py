"""Plays episodes of a policy with pictures: for videos, and to show a run while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from parl.envs import AtariVectorEnv, EnvMaker, games_over, points
from parl.errors import ConfigError

if TYPE_CHECKING:
    from parl.train.policy import Policy
    from parl.types import Array


class Player:
    """Plays episodes of a policy, one after the other, in one environment that renders pictures.

    Args:
        maker: makes the environment.
        sound: whether an Atari game on the CPU makes sound.

    Attributes:
        env: a vector environment with one environment.
        is_atari: whether it is an Atari game of parl.
        fps: pictures per second in real time.
        episode_return: undiscounted sum of the rewards of this episode so far.
        info: what the last step or reset returned.
    """

    def __init__(self, maker: EnvMaker, sound: bool = False) -> None:
        self._name = maker.name
        self.env: Any = maker.with_pictures(sound=sound)(1)
        self.is_atari = isinstance(self.env.unwrapped, AtariVectorEnv)
        self.fps = float(self.env.metadata.get("render_fps") or 30)
        self._same_step = "same" in str(self.env.metadata.get("autoreset_mode", "")).lower()
        self.episode_return = 0.0
        self.info: dict[str, Any] = {}

    def episode(self, policy: Policy, seed: int) -> Iterator[Array]:
        """Plays one greedy episode and yields the picture of each step, (H, W, 3) uint8.

        Args:
            policy: chooses the actions.
            seed: seed of the environment.

        Raises:
            ConfigError: the environment renders no pictures.
        """
        obs, self.info = self.env.reset(seed=seed)
        self.episode_return, state, over = 0.0, None, False
        while not over:
            yield self._picture()
            action, state = policy.predict(obs, state=state)
            obs, reward, terminated, truncated, self.info = self.env.step(action)
            self.episode_return += float(points(reward, self.info)[0])
            over = bool(games_over(terminated, np.logical_or(terminated, truncated), self.info)[0])
        if not self._same_step:
            yield self._picture()

    def _picture(self) -> Array:
        pictures = self.env.render() if self.env.render_mode == "rgb_array" else None
        if pictures is None or not len(pictures):
            raise ConfigError(f"{self._name} gives no pictures: it needs render_mode = 'rgb_array'")
        return np.asarray(pictures[0], np.uint8)

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()
