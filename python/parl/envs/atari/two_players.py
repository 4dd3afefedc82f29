"""Environments of PettingZoo for games that two play: :func:`parl.atari.parallel_env` makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec_wrapper
from pettingzoo.utils.wrappers import AssertOutOfBoundsWrapper, OrderEnforcingWrapper

from parl.atari.catalogue import game_id
from parl.envs.atari import arguments
from parl.envs.atari.arguments import INT32_MAX
from parl.envs.atari.vector import AtariVectorEnv
from parl.errors import AtariError

AGENTS = ("first_0", "second_0")
# As the console is: frame by frame, in color, nothing left out.
_RAW: dict[str, Any] = {
    "obs_type": "rgb",
    "img_height": None,
    "img_width": None,
    "stack_num": None,
    "frameskip": 1,
    "maxpool": False,
    "noop_max": 0,
    "use_fire_reset": False,
    "reward_clipping": False,
    "full_action_space": True,
    "max_num_frames_per_episode": None,
    "show_last_frame": True,
}
# Options that concern several environments, or other kinds of results.
_REFUSED = (
    "num_envs", "batch_size", "players", "autoreset_mode", "ordered", "output", "device", "continuous",
)  # fmt: skip
_RENDER_MODES = (None, "human", "rgb_array")


class ParallelAtariEnv(ParallelEnv[str, Any, Any]):
    """One game that two play, with PettingZoo's parallel API.

    Args:
        game: a game for two players.
        max_cycles: steps after which an episode is truncated.
        options: keywords of :class:`parl.AtariVectorEnv`.
    """

    def __init__(self, game: str, max_cycles: int, options: Mapping[str, Any]) -> None:
        for name in _REFUSED:
            if name in options:
                raise AtariError(f"{name} is {options[name]!r}, expected no {name}: this is one environment")
        self.render_mode = options.get("render_mode")
        if self.render_mode not in _RENDER_MODES:
            raise AtariError(f"render_mode is {self.render_mode!r}, expected one of {_RENDER_MODES}")
        self.max_cycles = arguments.integer("max_cycles", max_cycles, 1, INT32_MAX)
        chosen: dict[str, Any] = {**_RAW, "num_threads": 1, **options}
        self._envs = AtariVectorEnv(game, 1, players=2, autoreset_mode=AutoresetMode.DISABLED, **chosen)
        self.metadata = {
            "name": game_id(game),
            "render_modes": ["human", "rgb_array"],
            "render_fps": self._envs.metadata["render_fps"],
            "is_parallelizable": True,
        }
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        count = len(self._envs.action_codes)
        shown = self._envs.single_observation_space
        self.observation_spaces = {agent: spaces.Box(0, 255, shown.shape, np.uint8) for agent in AGENTS}
        self.action_spaces: dict[str, Any] = {agent: spaces.Discrete(count) for agent in AGENTS}
        self.state_space = spaces.Box(0, 255, (128,), np.uint8)
        self._cycles = 0

    @property
    def action_codes(self) -> tuple[int, ...]:
        """The console's action code of each action."""
        return self._envs.action_codes

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Space of an agent's actions."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Starts an episode; ``options`` are ignored. A seed is as for ``AtariVectorEnv.reset``."""
        del options
        observations, infos = self._envs.reset(seed=seed)
        self.agents = list(AGENTS)
        self._cycles = 0
        return self._of_agents(observations[0]), self._infos(infos)

    def step(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Runs one step with an action of each agent.

        Raises:
            AtariError: (a ValueError) the actions are not those of ``agents``, or outside of their spaces.
        """
        if set(actions) != set(self.agents):
            hint = "" if self.agents else ": the episode has ended, or not begun; call reset"
            raise AtariError(f"actions are of {sorted(actions)}, expected of {self.agents}{hint}")
        if not self.agents:
            return {}, {}, {}, {}, {}
        chosen = np.array([[actions[agent] for agent in AGENTS]])
        observations, rewards, terminated, truncated, infos = self._envs.step(chosen)
        self._cycles += 1
        over, cut = bool(terminated[0]), bool(truncated[0]) or self._cycles >= self.max_cycles
        if over or cut:
            self.agents = []
        return (
            self._of_agents(observations[0]),
            {agent: float(reward) for agent, reward in zip(AGENTS, rewards[0], strict=True)},
            dict.fromkeys(AGENTS, over),
            dict.fromkeys(AGENTS, cut),
            self._infos(infos),
        )

    @staticmethod
    def _of_agents(observation: NDArray[np.uint8]) -> dict[str, Any]:
        return {agent: observation.copy() for agent in AGENTS}

    @staticmethod
    def _infos(infos: dict[str, Any]) -> dict[str, dict[str, Any]]:
        names = ("lives", "frame_number", "episode_frame_number")
        found: dict[str, dict[str, Any]] = {
            agent: {name: int(infos[name][0]) for name in names} for agent in AGENTS
        }
        for player, info in enumerate(found.values()):
            if "raw_reward" in infos:
                info["raw_reward"] = int(infos["raw_reward"][0, player])
            for name in ("ram", "audio"):
                if name in infos:
                    info[name] = infos[name][0].copy()
        return found

    def state(self) -> NDArray[np.uint8]:
        """The memory of the console, (128,) uint8."""
        return self._envs._native.console_status(0)[5]

    def render(self) -> Any:
        """The screen, (H, 160, 3) uint8, with ``"rgb_array"``; ``"human"`` shows a window after each step.

        Raises:
            AtariError: the environment was made without ``render_mode``.
        """
        shown = self._envs.render()
        return None if shown is None else shown[0]

    def close(self) -> None:
        """Ends the console; a second call does nothing."""
        self._envs.close()


def in_turn(game: str, max_cycles: int, options: Mapping[str, Any]) -> AECEnv[str, Any, int | None]:
    """A :class:`ParallelAtariEnv` whose agents act in turn; other actions are AssertionErrors."""
    env: AECEnv[str, Any, Any] = parallel_to_aec_wrapper(ParallelAtariEnv(game, max_cycles, options))
    return OrderEnforcingWrapper(AssertOutOfBoundsWrapper(env))
