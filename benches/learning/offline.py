"""Offline DQN, CQL and behavior cloning on one dataset of Pong: half random play, half a simple policy.

Protocol: two datasets of ``--steps`` steps each, with sticky actions (0.25), merged into one. The simple
policy moves the paddle towards the ball and takes a random action in one of ten steps. Observations are two
stacked copies of the console's 128 bytes of memory; rewards are clipped. Each algorithm learns from
``--samples`` sampled transitions of the same dataset and no step of an environment; its score is the mean
return of ``--episodes`` greedy games, with sticky actions, on seeds that no run uses. The scores of random
actions and of the simple policy are those of their whole games in the dataset.

    python benches/learning/offline.py [--seeds 3] [--record]

This takes some minutes on two cores.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import parl
from parl import datasets
from parl.run import parse_count

sys.path.append(str(Path(__file__).parents[1]))
from record import Record, add_option

MEMORY = {"obs_type": "ram", "stack_num": 2, "repeat_action_probability": 0.25}
# Bytes of the memory of Pong: the vertical positions of the ball and of the player's paddle.
BALL, PADDLE, OFFSET = 54, 51, 2
UP, DOWN, FIRE = 2, 3, 1
DQN = {"n_step": 10, "learning_rate": 1e-3, "hidden": (128, 128), "target_period": 200}
RUNS = {
    "dqn": ("dqn", {**DQN}),
    "cql": ("dqn", {**DQN, "cql_alpha": 0.1}),
    "bc": ("bc", {"learning_rate": 1e-3, "hidden": (128, 128), "normalize_observations": True}),
}


def simple_policy(rng):
    """Moves the paddle towards the ball; one action in ten is random."""

    def act(observation):
        memory = observation[:, -1].astype(int)
        distance = memory[:, BALL] - memory[:, PADDLE] - OFFSET
        action = np.where(distance > 3, DOWN, np.where(distance < -3, UP, FIRE))
        return np.where(rng.random(len(action)) < 0.1, rng.integers(6, size=len(action)), action)

    return act


def whole_games(dataset):
    """Returns of the episodes that the recording did not cut."""
    return [episode.episode_return for episode in dataset.episodes if episode.end != "cut"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0..N")
    parser.add_argument("--steps", type=parse_count, default=60_000, help="steps of each half")
    parser.add_argument("--samples", type=parse_count, default=1_500_000, help="sampled transitions")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--algorithms", default=",".join(RUNS))
    add_option(parser, "offline")
    args = parser.parse_args()
    about = {"steps": 2 * args.steps, "conditions": f"{args.samples} sampled transitions, memory, Pong"}
    with tempfile.TemporaryDirectory() as name, Record(args.record, "Learning from a dataset") as record:
        folder = Path(name)
        halves = {
            "random actions": datasets.record("pong", folder / "a", args.steps, num_envs=4, **MEMORY),
            "simple policy": datasets.record(
                "pong",
                folder / "b",
                args.steps,
                num_envs=4,
                policy=simple_policy(np.random.default_rng(0)),
                **MEMORY,
            ),
        }
        for half, dataset in halves.items():
            score = statistics.mean(whole_games(dataset))
            record.print(f"{half}: mean return {score:.1f} of {len(whole_games(dataset))} games")
            record.add("learning", half, "mean return", "points", score, **about)
        both = datasets.merge([folder / "a", folder / "b"], folder / "both")
        for label in args.algorithms.split(","):
            algorithm, settings = RUNS[label]
            scores = []
            for seed in range(args.seeds):
                start = time.process_time()
                run = parl.train(
                    algorithm,
                    dataset=str(both.path),
                    env_options={"obs_type": "ram", "stack_num": 2},
                    total_steps=args.samples,
                    seed=seed,
                    evaluation_episodes=0,
                    runs=str(folder / "runs"),
                    quiet=True,
                    **(
                        {"batch_size": 128, "num_envs": 16, "replay_capacity": 2 * args.steps}
                        if algorithm == "dqn"
                        else {}
                    ),
                    **settings,
                )
                seconds = time.process_time() - start
                scores.append(float(parl.evaluate(run.path, args.episodes, checkpoint="last").mean()))
                record.print(
                    f"{label}, seed {seed}: mean return {scores[-1]:.1f}, {seconds:.0f} s of processor time"
                )
            record.print(f"{label}: median of {args.seeds} seeds {statistics.median(scores):.1f}")
            record.add("learning", label, "mean return", "points", scores, **about)


if __name__ == "__main__":
    main()
