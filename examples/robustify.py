"""Go-Explore's robust phase: PPO learns a found way backward, with sticky actions.

python examples/robustify.py [montezuma_revenge-way.npz] [--total-steps 20M]

`examples/go_explore.py` writes the file: actions that work once, without sticky actions. Here PPO learns a
policy that gets the same points when a quarter of the actions are repeated. At first its episodes start near
the end of the way, where a few right actions give the next points. As soon as one in five of them gets at
least the points that the way gets from there, the start moves back, until it is the start of the game.

Source: Salimans, Chen (2018), "Learning Montezuma's Revenge from a single demonstration"; Ecoffet et al.
(2021), "First return, then explore".
"""

from __future__ import annotations

import argparse
import functools
import os
from collections import deque
from pathlib import Path
from typing import Any

import go_explore
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

import parl
from parl.algos import ppo

OBSERVATIONS: dict[str, Any] = {"obs_type": "ram", "stack_num": 2, "padding": "reset"}
STICKY = {"repeat_action_probability": 0.25}
# Those of the preset atari-ram, with a longer horizon.
SETTINGS: dict[str, Any] = {**ppo.PRESETS["atari-ram"].algorithm, "gamma": 0.997}
# Of the last EPISODES from the newest starts, the share that must succeed before the start moves back.
EPISODES, SHARE = 100, 0.2
# Steps that the start moves back at once, and steps before it in which episodes start too.
MOVE, SPREAD = 4, 8


def states_on_way(game: str, actions: go_explore.Array) -> tuple[go_explore.Array, go_explore.Array]:
    """The states before each action of a way, (T, S), and the points that follow from there on, (T,)."""
    env = parl.AtariVectorEnv(game, **go_explore.RULES, **OBSERVATIONS, reward_clipping=False)
    env.reset(seed=0)
    states, points = [], []
    for action in actions:
        states.append(env.get_state()[0])
        points.append(int(env.step(np.array([action]))[1][0]))
    return np.stack(states), np.cumsum(points[::-1])[::-1]


class BackwardEnvs(VectorEnv[Any, Any, Any]):
    """Environments with sticky actions whose episodes start on a way, at first near its end.

    Rewards are the signs of points. An episode ends with a lost life, or when it has taken one and a half
    times as many steps as the way. It succeeds if it gets the points that the way gets from its start on.

    Args:
        num_envs: number of environments.
        game: the game.
        actions: (T,) actions of the way.
        seed: of starts and sticky actions.
    """

    def __init__(self, num_envs: int, game: str, actions: go_explore.Array, seed: int = 0) -> None:
        rules = {**go_explore.RULES, **OBSERVATIONS, **STICKY, "reward_clipping": "sign"}
        self.envs = parl.AtariVectorEnv(game, num_envs, autoreset_mode="Disabled", **rules)
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": AutoresetMode.SAME_STEP}
        for name in ("single_observation_space", "single_action_space", "observation_space", "action_space"):
            setattr(self, name, getattr(self.envs, name))
        self.frame_stack = self.envs.frame_stack
        self.actions, self.rng = actions, np.random.default_rng(seed)
        self.states, self.points = states_on_way(game, actions)
        # Without points after it, a start teaches nothing.
        self.start = self.last = int(np.flatnonzero(self.points > 0)[-1])
        self.outcomes: deque[bool] = deque(maxlen=EPISODES)
        self.starts, self.lengths, self.got = (np.zeros(num_envs, np.int64) for _ in range(3))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in each environment."""
        self.envs.reset(seed=seed)
        return self._begin(np.ones(self.num_envs, np.bool_)), {}

    def _begin(self, mask: go_explore.Array) -> go_explore.Array:
        """Starts episodes where `mask` is true; returns all observations."""
        count = int(mask.sum())
        starts = np.minimum(self.start + self.rng.integers(SPREAD, size=count), self.last)
        # One step with a seed of its own: sticky actions differ between episodes with the same start.
        chosen, seeds = self.actions[starts].reshape(-1, 1, 1), self.rng.integers(2**31, size=(count, 1))
        after = self.envs.branch(self.states[starts], chosen, seeds=seeds)
        self.envs.set_state(after.states[:, 0], mask)
        self.starts[mask], self.lengths[mask], self.got[mask] = starts, 1, after.raw_rewards[:, 0]
        # A reset of no environment returns the observations of all.
        return self.envs.reset(options={"reset_mask": np.zeros(self.num_envs, np.bool_)})[0]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps every environment; ended episodes start anew within the step."""
        obs, rewards, terminated, truncated, infos = self.envs.step(actions)
        self.lengths += 1
        self.got += infos["raw_reward"]
        truncated = truncated | (self.lengths > 1.5 * (len(self.actions) - self.starts) + 20)
        ended = terminated | truncated
        if not ended.any():
            return obs, rewards, terminated, truncated, {}
        success = self.got >= self.points[self.starts]
        # Episodes that began before the last move, further along the way, do not count.
        newest = ended & (self.starts < self.start + SPREAD)
        self.outcomes.extend(success[newest].tolist())
        if len(self.outcomes) == EPISODES and np.mean(self.outcomes) >= SHARE:
            self.start = max(self.start - MOVE, 0)
            self.outcomes.clear()
            if self.start % 40 < MOVE:
                print(f"starts at step {self.start} of {len(self.actions)}", flush=True)
        return self._begin(ended), rewards, terminated, truncated, {"final_obs": obs, "_final_obs": ended}


def points_from_the_start(policy: Any, game: str, episodes: int) -> float:
    """Mean points of episodes from the start of the game, until the first lost life, with sticky actions."""
    rules = {**go_explore.RULES, **OBSERVATIONS, **STICKY, "max_num_steps_per_episode": 5_000}
    envs = parl.AtariVectorEnv(game, episodes, **rules, reward_clipping=False)
    obs, _ = envs.reset(seed=1)
    points, alive = np.zeros(episodes), np.ones(episodes, bool)
    while alive.any():
        actions, _ = policy.predict(obs)
        obs, rewards, terminated, truncated, _ = envs.step(np.asarray(actions))
        points += rewards * alive
        alive &= ~(terminated | truncated)
    return float(points.mean())


def main() -> None:
    quick = bool(os.environ.get("PARL_EXAMPLE_QUICK"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("way", nargs="?", default="montezuma_revenge-way.npz", help="of go_explore.py")
    parser.add_argument("--total-steps", default="2k" if quick else "20M")
    parser.add_argument("--num-envs", type=int, default=4 if quick else 64)
    options = parser.parse_args()
    if quick and not Path(options.way).exists():  # Across the road, without stopping.
        np.savez(options.way, game="freeway", actions=np.ones(60, np.uint8), points=1)
    with np.load(options.way) as way:
        game, actions, points = str(way["game"]), way["actions"], int(way["points"])
    if points <= 0:
        parser.error(f"{options.way} is a way of {points} points, expected more than 0")
    print(f"{game}: a way of {len(actions)} steps and {points} points")
    run = parl.train(
        "ppo",
        env=functools.partial(BackwardEnvs, game=game, actions=actions),
        num_envs=options.num_envs,
        total_steps=options.total_steps,
        evaluation_episodes=1,
        **SETTINGS,
    )
    policy = parl.load(run.path, trust=True)
    print(f"from the start, with sticky actions: {points_from_the_start(policy, game, 20):,.0f} points")


if __name__ == "__main__":
    main()
