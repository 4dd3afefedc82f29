"""Learning in situ: TD3 learns from a simulator in Rust while it runs, without files between them.

python examples/in_situ.py [--total-steps 12000]

The simulator (`crates/sumtree/examples/pendulum.rs`) is a program of its own, and no Python environment. It
attaches by name to a replay that this program makes in shared memory, and writes the transitions of its
pendulums there; any program that links the crate `sumtree` can do so. This program samples from the same
memory, learns, and sends its policy to the simulator's standard input, each time with a number of steps. The
next message is always sent before the steps of the last one have been learned from: the simulator steps while
this program learns, with a policy that is one round old. The number of updates per step is fixed, so neither
side runs ahead of the other.

At the end the policy plays in Gymnasium's Pendulum-v1, which the simulator models.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import parl
from parl.algos import td3
from parl.envs import EnvMaker, spec_of

ROOT = Path(__file__).resolve().parents[1]
ENVS, BATCH = 8, 256
FIELDS = {
    "obs": ((3,), "float32"),
    "action": ((1,), "float32"),
    "reward": ((), "float32"),
    "terminated": ((), "bool"),
    "truncated": ((), "bool"),
}


def build() -> str:
    """Compiles the simulator, if that has not been done; returns its path."""
    command = ["cargo", "build", "--quiet", "--package", "sumtree", "--example", "pendulum"]
    built = subprocess.run(
        [*command, "--message-format", "json"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    found = [json.loads(line).get("executable") for line in built.stdout.splitlines()]
    return next(path for path in found if path)


def message(actor: Any, steps: int, noise: float) -> bytes:
    """A policy for the simulator: steps, standard deviation of its noise, and the layers of TD3's actor."""
    layers = zip(actor.layers.weights, actor.layers.biases, strict=True)
    parameters = [part.detach().numpy().ravel() for layer in layers for part in layer]
    return struct.pack("<If", steps, noise) + np.concatenate(parameters).astype("<f4").tobytes()


class Simulator:
    """The program, and the number of rows that it has been asked for.

    Args:
        replay: a replay in shared memory.
        seed: of its random numbers.
    """

    def __init__(self, replay: parl.PrioritizedReplay, seed: int) -> None:
        self.replay, self.asked = replay, 0
        self.process = subprocess.Popen(
            [build(), str(replay.shared), "--seed", str(seed)], stdin=subprocess.PIPE
        )

    def send(self, actor: Any, steps: int, noise: float) -> None:
        """Asks for steps with a policy; a negative noise stands for random actions."""
        assert self.process.stdin is not None
        self.process.stdin.write(message(actor, steps, noise))
        self.process.stdin.flush()
        self.asked += steps * ENVS

    def wait(self, rows: int) -> None:
        """Waits until the replay has as many rows."""
        while self.replay.counters["added"] < rows:
            if self.process.poll() is not None:
                raise SystemExit(f"the simulator has ended with status {self.process.returncode}")
            time.sleep(0.0005)

    def close(self) -> None:
        """Ends the program by the end of its input."""
        self.process.communicate()
        if self.process.returncode:
            raise SystemExit(f"the simulator has ended with status {self.process.returncode}")


def learn(options: argparse.Namespace, algorithm: td3.TD3, replay: parl.PrioritizedReplay) -> Any:
    """Learns while the simulator runs; returns the learner."""
    learner, simulator = algorithm.make_learner(options.seed, "cpu"), Simulator(replay, options.seed)
    actor = learner.networks.actor
    simulator.send(actor, options.random_steps // ENVS, noise=-1.0)
    batch = replay.empty_batch(BATCH, as_torch=True)
    per_round = options.round_steps * ENVS
    updates = 0
    while simulator.asked < options.total_steps:
        earlier = simulator.asked
        simulator.send(actor, options.round_steps, noise=2.0 * algorithm.config.exploration_noise)
        simulator.wait(earlier)
        for _ in range(round(options.replay_ratio * per_round / BATCH)):
            replay.sample(BATCH, as_torch=True, out=batch)
            learner.compute(batch)
            learner.step()
            updates += 1
    simulator.wait(simulator.asked)
    simulator.close()
    print(f"{replay.counters['added']:,} rows of the simulator, {updates:,} updates")
    return learner


def mean_return(algorithm: td3.TD3, learner: Any, episodes: int) -> float:
    """Mean return of greedy episodes in Gymnasium's Pendulum-v1."""
    policy = algorithm.make_policy(0, 1, 1, 0)
    policy.weights.copy_(learner.weights)
    env, returns = gymnasium.make("Pendulum-v1"), []
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        returns.append(0.0)
        ended = False
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(policy.act_greedily(obs[None])[0])
            returns[-1] += float(reward)
            ended = terminated or truncated
    return float(np.mean(returns))


def main() -> None:
    quick = bool(os.environ.get("PARL_EXAMPLE_QUICK"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--total-steps", type=int, default=2_400 if quick else 12_000)
    parser.add_argument("--random-steps", type=int, default=1_600, help="of random actions, before learning")
    parser.add_argument("--round-steps", type=int, default=10, help="steps of each pendulum with a policy")
    parser.add_argument("--replay-ratio", type=float, default=128.0, help="sampled per simulated transition")
    parser.add_argument("--episodes", type=int, default=2 if quick else 20, help="of the evaluation")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    algorithm = td3.TD3(td3.Config(**td3.PRESETS["pendulum"].algorithm), spec_of(EnvMaker("Pendulum-v1")(1)))
    name = f"parl-in-situ-{os.getpid()}"
    replay = parl.PrioritizedReplay(
        50_000,
        FIELDS,
        num_envs=ENVS,
        autoreset="next_step",
        shared=name,
        seed=options.seed,
        **algorithm.replay_options(),
    )
    try:
        learner = learn(options, algorithm, replay)
    finally:
        replay.close()
    score = mean_return(algorithm, learner, options.episodes)
    print(f"mean return of {options.episodes} episodes in Gymnasium's Pendulum-v1: {score:.0f}")


if __name__ == "__main__":
    main()
