"""Frozen convolutions with stored embeddings (``freeze_after``): memory, processor time, and learning.

    python benches/learning/embeddings.py --only bytes    # of a transition, with images and with embeddings
    python benches/learning/embeddings.py --only updates  # processor time of an update, of both kinds
    python benches/learning/embeddings.py --only learn    # a small game, with and without, several seeds
    python benches/learning/embeddings.py --record        # all, as benches/records/DATE-embeddings.csv

``bytes`` divides the memory of a replay (sum tree and other fields included) by its capacity. ``updates``
takes batches of random images and of their embeddings in turn, in one thread; the ratio is the median over
rounds, with quartiles. ``learn`` trains DQN on Catch, in which a ball falls through a picture of 36 x 36
pixels and a paddle at the bottom must catch it: +1 or -1 after 8 steps. Deterministic schedule, one thread;
the score is the mean of 100 greedy episodes at the end. Each seed runs without freezing and with each
value of ``--freeze-after`` in turn.
"""

import argparse
import statistics
import tempfile
import time

import gymnasium
import numpy as np
import torch
from processes import Record, add_option

import parl
from parl.algos import dqn, rainbow, sac
from parl.replay.conversion import Conversion
from parl.types import EnvSpec

ACTIONS = 3
SHAPES = {
    "84 x 84, stack of 4": ((4, 84, 84), 4),
    "42 x 42, stack of 4": ((4, 42, 42), 4),
    "84 x 84 in color, no stack": ((3, 84, 84), 1),
    "96 x 96 in color, no stack": ((3, 96, 96), 1),
}


class Catch(gymnasium.Env):
    """See the module."""

    SIDE, CELLS = 36, 9
    observation_space = gymnasium.spaces.Box(0, 255, (1, SIDE, SIDE), np.uint8)
    action_space = gymnasium.spaces.Discrete(ACTIONS)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._ball = [0, int(self.np_random.integers(1, self.CELLS - 1))]
        self._paddle = self.CELLS // 2
        return self._picture(), {}

    def step(self, action):
        self._paddle = int(np.clip(self._paddle + int(action) - 1, 1, self.CELLS - 2))
        self._ball[0] += 1
        ended = self._ball[0] == self.CELLS - 1
        caught = abs(self._ball[1] - self._paddle) <= 1
        return self._picture(), (1.0 if caught else -1.0) if ended else 0.0, ended, False, {}

    def _picture(self):
        cells = np.zeros((self.CELLS, self.CELLS), np.uint8)
        cells[-1, self._paddle - 1 : self._paddle + 2] = 255
        cells[self._ball[0], self._ball[1]] = 255
        return cells.repeat(4, 0).repeat(4, 1)[None]


def spec_of(shape, stack):
    return EnvSpec(shape, "uint8", (), "int64", ACTIONS, "next_step", frame_stack=stack)


def algorithms(images="nature"):
    """The algorithms at the sizes of their publications."""
    common = {"freeze_after": 1, "images": images}
    return {
        "dqn": (dqn.DQN, dqn.Config(hidden=(512,), dueling=True, n_step=3, **common)),
        "rainbow": (
            rainbow.Rainbow,
            rainbow.Config(hidden=(512,), dueling_hidden=512, layer_norm=False, **common),
        ),
        "sac": (sac.SAC, sac.Config(**common)),
    }


def replay_of(shape, dtype, stack, rows):
    columns = {
        "obs": (shape[1:] if stack > 1 else shape, dtype),
        "action": ((), "int64"),
        "reward": ((), "float32"),
        "terminated": ((), "bool"),
        "truncated": ((), "bool"),
    }
    return parl.PrioritizedReplay(rows, columns, num_envs=16, n_step=3, frame_stack=stack)


def measure_bytes(options, record):
    rows = 2_000
    print(f"{'observation':28} {'network':8} {'algorithm':10} images  embeddings  ratio")
    for name, (shape, stack) in SHAPES.items():
        for images in ("nature", "impala"):
            for algorithm in ("dqn", "sac"):
                kind, config = algorithms(images)[algorithm]
                learner = kind(config, spec_of(shape, stack)).make_learner(0, "cpu")
                before = replay_of(shape, "uint8", stack, rows)
                embedded = learner.embedding_shape
                after = Conversion(before, "obs", embedded, "float16", learner.embed).finish()
                a, b = before.nbytes / rows, after.nbytes / rows
                print(f"{name:28} {images:8} {algorithm:10} {a:6,.0f} {b:11,.0f} {b / a:6.2f}", flush=True)
                case = f"{algorithm}, {name}, {images}"
                for what, value in (("images", a), ("embeddings", b)):
                    record.add("embeddings", case, f"replay with {what}", "bytes a transition", value)


def batch_of(obs, next_obs, rng):
    """A batch of random transitions."""
    size = len(obs)
    return parl.replay.Batch(
        obs=torch.from_numpy(obs),
        next_obs=torch.from_numpy(next_obs),
        action=torch.from_numpy(rng.integers(0, ACTIONS, size)),
        reward=torch.from_numpy(rng.random(size, np.float32)),
        discount=torch.full((size,), 0.97),
        weights=torch.ones(size),
        tickets=None,
    )


def measure_updates(options, record):
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    print("milliseconds of processor time per update with 32 transitions of 84 x 84, stack of 4")
    for images in ("nature", "impala"):
        for name, (kind, config) in algorithms(images).items():
            learner = kind(config, spec_of((4, 84, 84), 4)).make_learner(0, "cpu")
            learner.use_threads(1)
            pictures = [rng.integers(0, 255, (32, 4, 84, 84), np.uint8) for _ in range(2)]
            batches = {"images": batch_of(*pictures, rng)}
            times = {"images": [], "frozen": [], "embeddings": []}
            for _ in range(options.rounds + 1):
                times["images"].append(seconds(learner, batches["images"]))
            learner.freeze()
            batches["embeddings"] = batch_of(*(learner.embed(one) for one in pictures), rng)
            for _ in range(options.rounds + 1):
                times["frozen"].append(seconds(learner, batches["images"]))
                times["embeddings"].append(seconds(learner, batches["embeddings"]))
            found = {key: statistics.quantiles(values[1:], n=4) for key, values in times.items()}
            shown = "; ".join(
                f"{key} {1e3 * middle:.1f} ({1e3 * low:.1f} to {1e3 * high:.1f})"
                for key, (low, middle, high) in found.items()
            )
            print(
                f"{images} {name}: {shown}; {found['images'][1] / found['embeddings'][1]:.2f} times",
                flush=True,
            )
            same = {"rounds": options.rounds, "threads": 1, "spread": "quartiles"}
            for key in ("images", "embeddings"):
                values = [1e3 * value for value in times[key][1:]]
                case = f"{name}, 84 x 84, stack of 4, {images}"
                record.add("embeddings", case, f"update with {key}", "ms", values, **same)


def seconds(learner, batch):
    """Processor time of one update of this thread."""
    before = time.thread_time()
    learner.compute(batch)
    learner.step()
    return time.thread_time() - before


def measure_learning(options, record):
    print(f"Catch, {options.steps} transitions")
    scores = {freeze_after: [] for freeze_after in (0, *options.freeze_after)}
    times = {freeze_after: [] for freeze_after in scores}
    for seed in range(options.seeds):
        for freeze_after in scores:
            with tempfile.TemporaryDirectory() as runs:
                before = time.process_time()
                result = parl.train(
                    "dqn",
                    env=Catch,
                    total_steps=options.steps,
                    freeze_after=freeze_after,
                    seed=seed,
                    num_envs=8,
                    batch_size=32,
                    replay_ratio=16.0,
                    learning_starts=1_000,
                    replay_capacity=20_000,
                    epsilon_steps=options.steps // 2,
                    target_period=100,
                    learning_rate=5e-4,
                    adam_epsilon=1e-8,
                    hidden=(128,),
                    layer_norm=True,
                    n_step=5,
                    schedule="deterministic",
                    evaluation_episodes=0,
                    quiet=True,
                    runs=runs,
                )
                cpu = time.process_time() - before
                last = parl.run.read_metrics(result.path / "metrics.jsonl")[-1]
                score = greedy_score(parl.load(result.path))
            scores[freeze_after].append(score)
            times[freeze_after].append(cpu)
            memory = f", replay of {last['replay_bytes'] / 1e6:.1f} MB" if freeze_after else ""
            print(f"seed {seed} freeze_after {freeze_after}: {score:.2f}, {cpu:.0f} s{memory}", flush=True)
    for freeze_after, found in scores.items():
        low, high = min(found), max(found)
        print(f"freeze_after {freeze_after}: {statistics.median(found):.2f} ({low:.2f} to {high:.2f})")
        same = {"seeds": options.seeds, "steps": options.steps}
        case = f"dqn, Catch, freeze_after {freeze_after}"
        record.add("embeddings", case, "score", "return", found, **same)
        record.add("embeddings", case, "processor time", "s", times[freeze_after], **same)


def greedy_score(policy, episodes=100):
    env, total = Catch(), 0.0
    obs, _ = env.reset(seed=1)
    for _ in range(episodes):
        ended = False
        while not ended:
            obs, reward, ended, _, _ = env.step(policy.predict(obs)[0])
            total += reward
        obs, _ = env.reset()
    return total / episodes


PARTS = {"bytes": measure_bytes, "updates": measure_updates, "learn": measure_learning}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    add_option(parser, "embeddings")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8_000)
    parser.add_argument("--freeze-after", type=int, nargs="+", default=[2_000, 5_000])
    options = parser.parse_args()
    with Record(options.record, "Stored embeddings") as record:
        for part in options.only:
            PARTS[part](options, record)


if __name__ == "__main__":
    main()
