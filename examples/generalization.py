"""How well does a policy play variations of a game that it was not trained on?

python examples/generalization.py [--game freeway] [--seeds 3] [--total-steps 1M]

Half of the game's modes are for training, the others for the test. For each seed, PPO learns from the
console's memory in environments of all training modes at once. Then its policy plays every mode. The table
has, for both halves and each mode, the interquartile mean of the points with a stratified bootstrap interval:
the scores of the seeds are resampled within each mode.

Sources: Farebrother, Machado, Bowling (2018), "Generalization and Regularization in DQN", for training and
test in different modes; Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical
Precipice", for the statistics.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import parl
from parl.envs.atari.registration import env_id
from parl.run.scores import bootstrap_interval, interquartile_mean

OBSERVATIONS: dict[str, Any] = {"obs_type": "ram", "stack_num": 2, "padding": "reset"}
STICKY = {"repeat_action_probability": 0.25}
Scores = NDArray[np.float64]


def points_by_mode(
    policy: Any, game: str, modes: Sequence[int], episodes: int, most_frames: int, seed: int
) -> Scores:
    """Mean points of greedy episodes in each mode, (modes,); all modes and episodes are one batch."""
    count = len(modes) * episodes
    envs = parl.AtariVectorEnv(
        game,
        count,
        mode=modes,
        reward_clipping=False,
        max_num_frames_per_episode=most_frames,
        **OBSERVATIONS,
        **STICKY,
    )
    obs, _ = envs.reset(seed=seed)
    points, running = np.zeros(count), np.ones(count, bool)
    while running.any():
        actions, _ = policy.predict(obs)
        obs, rewards, terminated, truncated, _ = envs.step(np.asarray(actions))
        points += rewards * running
        running &= ~(terminated | truncated)
    envs.close()
    return points.reshape(episodes, len(modes)).mean(0)


def halves(game: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The modes of a game for training, and those for the test.

    Raises:
        ValueError: the game has one mode.
    """
    modes = parl.variations(game).modes
    if len(modes) < 2:
        raise ValueError(f"{game} has {len(modes)} mode, expected a game with at least 2")
    return tuple(modes[::2]), tuple(modes[1::2])


def trained_points(
    game: str,
    seed: int,
    total_steps: int | str,
    num_envs: int,
    episodes: int,
    most_frames: int,
    **options: Any,
) -> tuple[Scores, Scores]:
    """Trains a policy; its mean points in each mode for training, and in each for the test.

    Args:
        game: a game with several modes.
        seed: of the run.
        total_steps: environment steps.
        num_envs: number of environments.
        episodes: of each mode.
        most_frames: frames after which an episode of the evaluation is truncated.
        options: further settings of the run.
    """
    training, test = halves(game)
    run = parl.train(
        "ppo",
        env_id(game),
        preset="atari-ram",
        env_options={**OBSERVATIONS, **STICKY, "mode": list(training)},
        num_envs=num_envs,
        total_steps=total_steps,
        evaluation_episodes=0,
        seed=seed,
        name=f"generalization-{game}-{seed}",
        quiet=True,
        **options,
    )
    points = points_by_mode(
        parl.load(run.path), game, [*training, *test], episodes, most_frames, 10_000 + seed
    )
    return points[: len(training)], points[len(training) :]


def summary(name: str, scores: Scores) -> str:
    """A line of the table; `scores` (seeds, modes)."""
    iqm = float(interquartile_mean(scores.ravel()))
    low, high = bootstrap_interval(list(scores.T), interquartile_mean)
    return f"{name:<22} {iqm:8.2f}   {low:8.2f} to {high:.2f}"


def main() -> None:
    quick = bool(os.environ.get("PARL_EXAMPLE_QUICK"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--game", default="freeway")
    parser.add_argument("--seeds", type=int, default=2 if quick else 3)
    parser.add_argument("--total-steps", default="2k" if quick else "1M")
    parser.add_argument("--num-envs", type=int, default=8 if quick else 64)
    parser.add_argument("--episodes", type=int, default=2 if quick else 10, help="of each mode and seed")
    parser.add_argument("--runs", default="runs", help="folder of the runs")
    options = parser.parse_args()
    try:
        training, test = halves(options.game)
    except ValueError as error:
        parser.error(f"--game: {error}")
    print(f"{options.game}: training in modes {list(training)}, test in modes {list(test)}")
    scores = []
    for seed in range(options.seeds):
        points = trained_points(
            options.game,
            seed,
            options.total_steps,
            options.num_envs,
            options.episodes,
            400 if quick else 30_000,
            runs=options.runs,
        )
        scores.append(np.concatenate(points))
        means = [half.mean() for half in points]
        print(
            f"seed {seed}: {means[0]:.2f} points in training modes, {means[1]:.2f} in test modes", flush=True
        )
    table = np.stack(scores)
    print(f"{'points':<22} {'IQM':>8}   95 % interval")
    print(summary("training modes", table[:, : len(training)]))
    print(summary("test modes", table[:, len(training) :]))
    for column, mode in enumerate([*training, *test]):
        half = "training" if mode in training else "test"
        print(summary(f"  mode {mode}, {half}", table[:, column : column + 1]))


if __name__ == "__main__":
    main()
