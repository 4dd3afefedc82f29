"""Go-Explore's robust phase: PPO learns a found trajectory backward, with sticky actions.

python examples/robustify.py [montezuma_revenge-way.npz] [--points 400] [--total-steps 1M]

`examples/go_explore.py --points 400` writes the file: actions that work once, without sticky actions. Here
PPO learns a policy that gets the same points when a quarter of the actions are repeated. The trajectory is
cut into segments, each of which ends with a step that gets points. At first episodes start near the ends of
all segments, where a few right actions get the points. As soon as one in five of them does, the start of this
segment moves back, until it is the segment's first step; then episodes of the segment before go on into it.
The loss of PPO also has that of behavior cloning on the trajectory's own actions, with a weight that
decreases: where episodes start further back, the policy tries these actions first.

Without segments an episode would take as many steps as the rest of the trajectory, and the training steps
until episodes begin at the start of the game would grow with the square of its length.

Source: Salimans, Chen (2018), "Learning Montezuma's Revenge from a single demonstration"; Ecoffet et al.
(2021), "First return, then explore"; for the loss Rajeswaran et al. (2018), "Learning complex dexterous
manipulation with deep reinforcement learning and demonstrations".
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
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

import parl
from parl.algos import ppo
from parl.algos.common.actor_critic import evaluate_actions

Array = go_explore.Array

OBSERVATIONS: dict[str, Any] = {"obs_type": "ram", "stack_num": 2, "padding": "reset"}
STICKY = {"repeat_action_probability": 0.25}
# Those of the preset atari-ram, with a longer horizon.
SETTINGS: dict[str, Any] = {**ppo.PRESETS["atari-ram"].algorithm, "gamma": 0.997}
# Weight of the loss of behavior cloning beside PPO's; from the middle of the run on it decreases to 0.
IMITATION = 0.5
# Of the last EPISODES near the earliest start, the share that must succeed before this start moves back.
EPISODES, SHARE = 25, 0.2
# Steps that it moves back if all succeed, in proportion fewer otherwise; steps from it on that count as near.
MOVE, NEAR = 20, 8


class Trajectory:
    """What a sequence of actions does without sticky actions.

    Args:
        game: the game.
        actions: (T,) from the start of the game on.
        points: cuts the trajectory after the action with which it has as many points.

    Attributes:
        actions: (T,), those up to the cut.
        states, observations: (T, ...), before each action.
        points: (T,), of each action.
    """

    def __init__(self, game: str, actions: Array, points: int | None = None) -> None:
        env = parl.AtariVectorEnv(game, **go_explore.RULES, **OBSERVATIONS, reward_clipping=False)
        obs, _ = env.reset(seed=0)
        states, observations, got = [], [], []
        for action in actions:
            states.append(env.get_state()[0])
            observations.append(obs[0].copy())
            obs, rewards, *_ = env.step(np.array([action]))
            got.append(int(rewards[0]))
            if points is not None and sum(got) >= points:
                break
        self.game, self.actions, self.points = game, actions[: len(got)], np.array(got)
        self.states, self.observations = np.array(states), np.array(observations)


class BackwardEnvs(VectorEnv[Any, Any, Any]):
    """Environments with sticky actions whose episodes start on a trajectory.

    At first they start near the ends of its segments. Rewards are the signs of points. An episode ends with a
    lost life, with the last points of the trajectory, or when it is in a segment for one and a half times as
    many steps as the trajectory.

    Args:
        num_envs: number of environments.
        trajectory: it gets points.
        seed: of starts and sticky actions.
    """

    def __init__(self, num_envs: int, trajectory: Trajectory, seed: int = 0) -> None:
        rules = {**go_explore.RULES, **OBSERVATIONS, **STICKY, "reward_clipping": "sign"}
        self.envs = parl.AtariVectorEnv(trajectory.game, num_envs, autoreset_mode="Disabled", **rules)
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": AutoresetMode.SAME_STEP}
        for name in ("single_observation_space", "single_action_space", "observation_space", "action_space"):
            setattr(self, name, getattr(self.envs, name))
        self.frame_stack = self.envs.frame_stack
        self.trajectory, self.rng = trajectory, np.random.default_rng(seed)
        points = trajectory.points
        # Of each segment: first and last step, points since the beginning of the trajectory at its end.
        self.lasts = np.flatnonzero(points > 0)
        self.firsts = np.append(0, self.lasts[:-1] + 1)
        self.before, self.goals = np.cumsum(points) - points, np.cumsum(points)[self.lasts]
        # Of each segment: the earliest start of episodes, and outcomes of the last episodes from near there.
        self.earliest = self.lasts.copy()
        self.outcomes: list[deque[bool]] = [deque(maxlen=EPISODES) for _ in self.lasts]
        # Of each environment: start, its segment and the present one, steps left in the latter, and points.
        self.starts, self.origins, self.segments, self.left, self.got = np.zeros((5, num_envs), np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in each environment."""
        self.envs.reset(seed=seed)
        return self._begin(np.ones(self.num_envs, np.bool_)), {}

    def _begin(self, mask: Array) -> Array:
        """Starts episodes where `mask` is true; returns all observations."""
        trajectory = self.trajectory
        # Each segment has equally many environments; half of the episodes start near its earliest start, the
        # others anywhere from there on, so that what was learned is not forgotten while none succeeds.
        segments, count = self._share_out(mask), int(mask.sum())
        reach = self.lasts[segments] - self.earliest[segments] + 1
        near = self.rng.random(count) < 0.5
        starts = self.earliest[segments] + self.rng.integers(np.where(near, np.minimum(NEAR, reach), reach))
        # One step before with a seed of its own: sticky actions differ between episodes with the same start.
        before, seeds = np.maximum(starts - 1, 0), self.rng.integers(2**31, size=(count, 1))
        after = self.envs.branch(
            trajectory.states[before], trajectory.actions[before].reshape(-1, 1, 1), seeds=seeds
        )
        obs, _ = self.envs.reset(options={"reset_mask": mask, "states": after.states[:, 0]})
        self.starts[mask], self.origins[mask], self.segments[mask] = starts, segments, segments
        self.left[mask] = 1.5 * (self.lasts[segments] - starts) + 20
        self.got[mask] = self.before[before] + after.raw_rewards[:, 0]
        whole = mask & (self.starts == 0)  # The first start is the start of the game.
        return self.envs.reset(options={"reset_mask": whole})[0] if whole.any() else obs

    def _share_out(self, mask: Array) -> Array:
        """Segments for new episodes where `mask` is true: always one with the fewest environments."""
        counts = np.bincount(self.origins[~mask], minlength=len(self.lasts))
        segments = []
        for _ in range(int(mask.sum())):
            segments.append(int(counts.argmin()))
            counts[segments[-1]] += 1
        return np.array(segments)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps every environment; ended episodes start anew within the step."""
        obs, rewards, terminated, truncated, infos = self.envs.step(actions)
        self.left -= 1
        self.got += infos["raw_reward"]
        reached = self.got >= self.goals[self.segments]
        failed = (terminated | truncated | (self.left <= 0)) & ~reached
        for env in np.flatnonzero((reached | failed) & (self.segments == self.origins)):
            self._count(self.origins[env], self.starts[env], bool(reached[env]))
        # An episode goes on if it can start where it is now.
        following = np.minimum(self.segments + 1, len(self.lasts) - 1)
        goes_on = (self.segments < following) & (self.earliest[following] == self.firsts[following])
        # Too late is a failure, not a truncation: with the value of what follows, waiting would be as good.
        ended, never = failed | (reached & ~goes_on), np.zeros(self.num_envs, np.bool_)
        onward = np.flatnonzero(reached & ~ended)
        self.segments[onward] += 1
        segments = self.segments[onward]
        self.left[onward] = 1.5 * (self.lasts[segments] - self.firsts[segments]) + 20
        if not ended.any():
            return obs, rewards, ended, never, {}
        return self._begin(ended), rewards, ended, never, {"final_obs": obs, "_final_obs": ended}

    def _count(self, segment: int, start: int, success: bool) -> None:
        """Counts the outcome of an episode in its first segment, whose start moves if enough succeeded."""
        # Episodes that began before the last move, further along the trajectory, do not count.
        if start >= self.earliest[segment] + NEAR:
            return
        self.outcomes[segment].append(success)
        share = np.mean(self.outcomes[segment])
        if (
            len(self.outcomes[segment]) < EPISODES
            or share < SHARE
            or self.earliest[segment] == self.firsts[segment]
        ):
            return
        self.earliest[segment] = max(self.earliest[segment] - round(MOVE * share), self.firsts[segment])
        self.outcomes[segment].clear()
        if self.earliest[segment] == self.firsts[segment]:
            print(f"segment {segment + 1} of {len(self.lasts)}: episodes start at its first step", flush=True)


class ImitatingLearner(ppo.PPOLearner):
    """PPO's learner, whose loss also has that of behavior cloning on the trajectory's actions."""

    trajectory: Trajectory
    weight = torch.zeros(())

    def optimize(self, rollout: Any, progress: float, average: Any) -> int:
        """Makes the updates of a rollout."""
        self.weight.fill_(IMITATION * min(1.0, 2.0 * (1.0 - progress)))
        return super().optimize(rollout, progress, average)

    def loss(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss of a minibatch and of the whole trajectory, and metrics."""
        total, figures = super().loss(*args, **kwargs)
        obs = torch.from_numpy(self.trajectory.observations)
        actions = torch.from_numpy(self.trajectory.actions).long()
        imitation = -evaluate_actions(self.network, obs, actions)[0].mean()
        return total + self.weight * imitation, figures | {"imitation_loss": imitation.detach()}


class Backward(ppo.PPO):
    """PPO with the loss of behavior cloning."""

    Config = ppo.Config
    topology = "rollout"
    learner = ImitatingLearner
    default_config = staticmethod(ppo.default_config)


def points_from_the_start(policy: Any, game: str, episodes: int) -> Array:
    """Points of episodes from the start of the game, until the first lost life, with sticky actions."""
    rules = {**go_explore.RULES, **OBSERVATIONS, **STICKY, "max_num_steps_per_episode": 5_000}
    envs = parl.AtariVectorEnv(game, episodes, **rules, reward_clipping=False)
    obs, _ = envs.reset(seed=1)
    points, alive = np.zeros(episodes), np.ones(episodes, bool)
    while alive.any():
        actions, _ = policy.predict(obs)
        obs, rewards, terminated, truncated, _ = envs.step(np.asarray(actions))
        points += rewards * alive
        alive &= ~(terminated | truncated)
    return points


def main() -> None:
    quick = bool(os.environ.get("PARL_EXAMPLE_QUICK"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trajectory", nargs="?", default="montezuma_revenge-way.npz", help="of go_explore.py")
    parser.add_argument("--points", type=int, help="learn it up to as many points (default: all of it)")
    parser.add_argument("--total-steps", default="2k" if quick else "1M")
    parser.add_argument("--num-envs", type=int, default=4 if quick else 64)
    parser.add_argument("--episodes", type=int, default=4 if quick else 100, help="of the evaluation")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if quick and not Path(options.trajectory).exists():  # Across the road, without stopping.
        np.savez(options.trajectory, game="freeway", actions=np.ones(60, np.uint8), points=1)
    with np.load(options.trajectory) as file:
        trajectory = Trajectory(str(file["game"]), file["actions"], options.points)
    if not trajectory.points.any():
        parser.error(f"{options.trajectory} is a trajectory of 0 points, expected more")
    steps, points = len(trajectory.actions), trajectory.points.sum()
    print(f"{trajectory.game}: a trajectory of {steps} steps and {points:,} points")
    ImitatingLearner.trajectory = trajectory
    parl.register_algorithm("backward", Backward)
    run = parl.train(
        "backward",
        env=functools.partial(BackwardEnvs, trajectory=trajectory, seed=options.seed),
        num_envs=options.num_envs,
        total_steps=options.total_steps,
        evaluation_episodes=0,
        seed=options.seed,
        **SETTINGS,
    )
    points = points_from_the_start(parl.load(run.path, trust=True), trajectory.game, options.episodes)
    print(f"from the start of the game, with sticky actions: {points.mean():,.0f} points on average")
    for goal in np.cumsum(trajectory.points)[trajectory.points > 0]:
        print(f"at least {goal:,} points: {np.mean(points >= goal):.0%} of {options.episodes} episodes")


if __name__ == "__main__":
    main()
