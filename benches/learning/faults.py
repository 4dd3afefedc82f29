"""Injects one NaN or infinity into a small run of every algorithm, and prints how each run ended.

    python benches/learning/faults.py
    python benches/learning/faults.py --only ppo dqn --schedule deterministic

A fault is one NaN or infinity in a reward or in an element of an observation, or an infinite loss: a finite
reward of 3e38 with a reward scale of 100 (for algorithms whose loss has no rewards or clips them, a step size
of 1e38 instead, which makes the weights overflow). Checkpoints are saved before the fault. A run passes if it
ends with an error that names what was not finite, all its checkpoints have finite weights, and the last one
can be evaluated.

Prints a table, and exits with status 1 if a run did not pass.
"""

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

# Vector step of the fault, and length of an episode.
AT, LENGTH = 65, 20
FAULTS = ("none", "reward", "observation", "loss")
CONTINUOUS = ("sac", "td3", "ddpg")
SMALL = {
    "num_envs": 4,
    "total_steps": 1_000,
    "checkpoint_every": 100,
    "evaluation_episodes": 2,
    "gamma": 0.9,
    "hidden": (8,),
    "quiet": True,
}
REPLAY = {"learning_starts": 40, "batch_size": 16, "replay_ratio": 4.0, "replay_capacity": 500}
ROLLOUT = {"rollout_steps": 8, "random_starts": 0}
OWN = {
    **dict.fromkeys(("dqn", "rainbow"), REPLAY | {"actors": 1, "learners": 1}),
    **dict.fromkeys(CONTINUOUS, REPLAY | {"actors": 1, "learners": 1, "random_steps": 40}),
    **dict.fromkeys(("a2c", "ppo", "pqn"), ROLLOUT),
    **dict.fromkeys(("a3c", "impala", "ga3c"), ROLLOUT | {"actors": 2}),
    "bc": {"rollout_steps": 8},
    "es": {"actors": 2},
    "ga": {"actors": 2},
}
# Settings that overflow in algorithms whose rewards do not: the weights, or in ga the mutations.
OVERFLOW = dict.fromkeys(("bc", "es", "rainbow"), ("learning_rate", 1e38)) | {"ga": ("sigma", 1e38)}


class Faulty(VectorEnv):
    """Random observations, reward 10 or 11, episodes of 20 steps; one environment has one fault.

    Args:
        num_envs: N.
        fault: ``"reward"``, ``"observation"``, ``"final"`` (the last observation of an episode where
            environments are reset in the same step), ``"loss"`` (a reward of 3e38) or ``"none"``.
        value: the faulty value in the first three cases.
        continuous: whether actions are in -1..1 instead of 0 or 1.
        autoreset: the autoreset mode, ``"next_step"`` or ``"same_step"``.
    """

    def __init__(self, num_envs, fault="none", value=math.nan, continuous=False, autoreset="next_step"):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode[autoreset.upper()]}
        self.single_observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
        actions = gymnasium.spaces
        self.single_action_space = actions.Box(-1, 1, (1,), np.float32) if continuous else actions.Discrete(2)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self._fault, self._value, self._steps = fault, value, 0
        self._same_step = autoreset == "same_step"
        self._rng = np.random.default_rng(0)
        self._ages = np.zeros(num_envs, np.int64)

    def _observations(self):
        return self._rng.uniform(-1, 1, (self.num_envs, 3)).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        self._rng = np.random.default_rng(seed)
        self._ages[:] = 0
        return self._observations(), {}

    def step(self, actions):
        self._steps += 1
        obs = self._observations()
        reward = 10.0 + self._rng.integers(2, size=self.num_envs)
        self._ages += 1
        over = self._ages > LENGTH if not self._same_step else self._ages >= LENGTH
        self._ages[over] = 0
        ended = self._ages == LENGTH
        info = {}
        if self._same_step:
            ended = over
            if over.any():
                final = self._observations()
                if self._fault == "final" and self._steps > AT - LENGTH:
                    final[-1, 1] = self._value
                info = {"final_obs": np.array([*final, None], object)[:-1], "_final_obs": over}
        if self._steps == AT:
            where = self.num_envs - 1
            if self._fault == "reward":
                reward[where] = self._value
            if self._fault == "loss":
                reward[where] = 3e38
            if self._fault == "observation":
                obs[where, 1] = self._value
        return obs, reward, np.zeros(self.num_envs, bool), ended, info


def maker(name, fault, value):
    """A function that makes faulty vector environments for an algorithm."""

    def faulty(num_envs):
        return Faulty(num_envs, fault, value, continuous=name in CONTINUOUS)

    return faulty


def record_demonstration(folder, fault, value):
    """Writes a file of demonstrations for bc, with one faulty observation if ``fault`` says so."""
    rng = np.random.default_rng(0)
    observations = rng.uniform(-1, 1, (500, 3)).astype(np.float32)
    if fault == "observation":
        observations[400, 1] = value
    path = Path(folder) / f"play-{fault}-{value}.npz"
    np.savez(path, observations=observations, actions=rng.integers(2, size=500))
    return str(path)


def settings(name, fault, value, folder, schedule):
    """Keywords of ``parl.train`` for a run."""
    env = maker(name, fault if name not in OVERFLOW or fault != "loss" else "none", value)
    found = SMALL | OWN[name] | {"env": env, "runs": str(folder), "schedule": schedule}
    if name in ("es", "ga"):
        del found["gamma"]
    elif name == "bc":
        found |= {"env": maker(name, "none", value), "data": (record_demonstration(folder, fault, value),)}
        del found["gamma"]
    if schedule == "deterministic" and name in ("a3c", "impala", "ga3c", "es", "ga"):
        del found["actors"]
    if fault == "loss":
        setting, number = OVERFLOW.get(name, ("reward_scale", 100.0))
        found[setting] = number
    return found


def checkpoints(folder):
    """Whether the weights of each checkpoint in ``folder`` are finite, by path."""
    import torch

    found = {}
    for path in sorted(Path(folder).rglob("learner.pt")):
        state = torch.load(path, weights_only=True)
        numbers = [value for value in state.values() if isinstance(value, torch.Tensor)]
        found[path] = all(bool(torch.isfinite(one).all()) for one in numbers if one.is_floating_point())
    return found


def evaluate_last(folder):
    """Whether the last checkpoint in ``folder`` can be evaluated: ``"yes"``, ``"none"`` or the error."""
    from parl.train import evaluate

    for config in Path(folder).glob("*/config.toml"):
        try:
            returns = evaluate(config.parent, episodes=2, checkpoint="last")
        except FileNotFoundError:
            return "none"
        except Exception as error:
            return f"NO: {error}"
        return "yes" if np.isfinite(returns).all() else f"NO: {returns}"
    return "none"


def run_with_fault(name, fault, value, folder, schedule):
    """Runs ``name`` with a fault.

    Returns:
        How the run ended, the numbers of finite and of other checkpoints, and :func:`evaluate_last`.
    """
    from parl.errors import ParlError
    from parl.train import train

    folder = Path(folder) / f"{name}-{fault}-{value}"
    folder.mkdir()
    try:
        ended = f"ran to the end ({train(name, **settings(name, fault, value, folder, schedule)).stopped})"
    except ParlError as error:
        ended = f"{type(error).__name__}: {str(error).splitlines()[-1]}"
    except Exception as error:
        ended = f"NOT AN ERROR OF PARL: {type(error).__name__}: {str(error).splitlines()[-1]}"
    finite = checkpoints(folder)
    plays = evaluate_last(folder)
    good = sum(finite.values())
    return ended, good, len(finite) - good, plays


def is_expected(fault, result):
    """Whether a result of :func:`run_with_fault` is as expected."""
    ended, _, bad, plays = result
    as_expected = ended.startswith("ran") if fault == "none" else ended.startswith("NonFiniteError")
    return as_expected and bad == 0 and not plays.startswith("NO")


def main():
    from parl.train import ALGORITHMS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="*", default=sorted(ALGORITHMS), help="algorithms")
    parser.add_argument("--schedule", default="async", choices=("async", "deterministic"))
    parser.add_argument("--values", nargs="*", type=float, default=[math.nan, math.inf])
    options = parser.parse_args()
    failed = 0
    print("| algorithm | fault | how the run ended | finite / other checkpoints | last one usable | s |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="parl-faults-") as folder:
        for name in options.only:
            for fault in FAULTS:
                if name == "bc" and fault == "reward":
                    continue  # demonstrations have no rewards
                values = options.values if fault in ("reward", "observation") else [math.inf]
                for value in values:
                    began = time.monotonic()
                    result = run_with_fault(name, fault, value, folder, options.schedule)
                    failed += not is_expected(fault, result)
                    ended, good, bad, plays = result
                    what = f"{value} in {fault}" if fault in ("reward", "observation") else fault
                    mark = "" if is_expected(fault, result) else " FAILED"
                    seconds = time.monotonic() - began
                    print(f"| {name} | {what} | {ended} | {good} / {bad} | {plays}{mark} | {seconds:.1f} |")
                    sys.stdout.flush()
    print(f"\n{failed} runs did not pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
