"""DQN on Pong from pixels: steps and updates per second, beside Stable-Baselines3 and a one-file loop.

    python benches/learning/atari_dqn.py --steps 3000 --rounds 3
    python benches/learning/atari_dqn.py --steps 100k --rounds 1 --score
    ... --record    # writes the figures to benches/records/DATE-atari-dqn.csv

All three use the Nature CNN, batches of 32, one update per 4 environment steps, uniform replay, Adam at 1e-4,
frame skip 4, 84 x 84 pixels, 4 stacked frames, and all cores of the CPU. parl steps 8 environments in an
actor that runs concurrently with the learner; the others alternate between one environment and learning, as
their scripts do. Rates are measured over ``--steps`` environment steps after the first 1,500, when learning
has started. ``--score``: also the mean of 10 greedy games at the end.
"""

import argparse
import json
import os
import tempfile
import time
import warnings

from processes import Record, add_cores, add_option, median, run_in_process, use_cores, version_of

STARTS = 1_500
BATCH, EVERY = 32, 4
CAPACITY = 20_000
EPSILON_STEPS = 10_000
CASE = "Pong, Nature CNN, batch 32"


def parl(steps, seed, score):
    from parl.run import read_metrics
    from parl.train import evaluate, train

    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        run = train(
            "dqn",
            "parl/Pong-v0",
            seed=seed,
            runs=runs,
            total_steps=STARTS + steps,
            num_envs=8,
            actors=1,
            learners=1,
            actor_kind="thread",
            threads=2,
            batch_size=BATCH,
            replay_ratio=BATCH / EVERY,
            replay_capacity=CAPACITY,
            learning_starts=STARTS,
            prioritized=False,
            double=False,
            dueling=False,
            n_step=1,
            learning_rate=1e-4,
            target_period=250,
            epsilon_steps=EPSILON_STEPS,
            evaluation_episodes=0,
            log_every_s=0.5,
            quiet=True,
        )
        rows = [r for r in read_metrics(run.path) if r.get("updates", 0) > 0 and "updates_per_s" in r]
        first, last = rows[0], rows[-1]
        elapsed = last["wall_time_s"] - first["wall_time_s"]
        result = {
            "env_steps_per_s": (last["env_steps"] - first["env_steps"]) / elapsed,
            "updates_per_s": (last["updates"] - first["updates"]) / elapsed,
        }
        if score:
            result["score"] = float(evaluate(run.path, episodes=10, checkpoint="last").mean())
        return result


def sb3(steps, seed, score):
    import ale_py
    import gymnasium
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecFrameStack

    gymnasium.register_envs(ale_py)

    def make(number):
        return VecFrameStack(make_atari_env("PongNoFrameskip-v4", 1, seed=number), 4)

    model = DQN(
        "CnnPolicy",
        make(seed),
        seed=seed,
        device="cpu",
        buffer_size=CAPACITY,
        learning_rate=1e-4,
        batch_size=BATCH,
        learning_starts=STARTS,
        train_freq=EVERY,
        gradient_steps=1,
        target_update_interval=1_000,
        # As many random actions as the others take, which need no network.
        exploration_fraction=EPSILON_STEPS / (STARTS + steps),
        exploration_final_eps=0.01,
    )
    model.learn(STARTS)
    started, updates = time.time(), model._n_updates
    model.learn(steps, reset_num_timesteps=False)
    elapsed = time.time() - started
    result = {"env_steps_per_s": steps / elapsed, "updates_per_s": (model._n_updates - updates) / elapsed}
    if score:
        result["score"] = float(evaluate_policy(model, make(10**6), 10, warn=False)[0])
    return result


def one_file(steps, seed, score):
    """DQN in one file with CleanRL's settings: Gymnasium's wrappers, a network, a buffer of arrays."""
    import ale_py
    import gymnasium
    import numpy as np
    import torch
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
    from torch import nn

    gymnasium.register_envs(ale_py)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)

    def make():
        env = gymnasium.make("PongNoFrameskip-v4")
        return FrameStackObservation(AtariPreprocessing(env, noop_max=30, frame_skip=4), 4)

    def network():
        return nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
            nn.Linear(512, 6),
        )

    def values(net, obs):
        return net(torch.from_numpy(obs).float() / 255)

    env, q, target = make(), network(), network()
    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-4)
    size = CAPACITY
    obs_rows = np.zeros((size, 4, 84, 84), np.uint8)
    next_rows = np.zeros((size, 4, 84, 84), np.uint8)
    actions, rewards, dones = np.zeros(size, np.int64), np.zeros(size, np.float32), np.zeros(size, np.float32)
    obs, _ = env.reset(seed=seed)
    updates, started = 0, 0.0
    for step in range(STARTS + steps):
        if step == STARTS:
            started, updates = time.time(), 0
        epsilon = max(0.01, 1 - step / EPSILON_STEPS)
        if rng.random() < epsilon:
            action = int(rng.integers(6))
        else:
            with torch.no_grad():
                action = int(values(q, np.asarray(obs)[None]).argmax())
        following, reward, terminated, truncated, _ = env.step(action)
        place = step % size
        obs_rows[place], next_rows[place] = obs, following
        actions[place], rewards[place], dones[place] = action, np.sign(reward), terminated
        obs = env.reset()[0] if terminated or truncated else following
        if step >= STARTS and step % EVERY == 0:
            rows = rng.integers(min(step + 1, size), size=BATCH)
            with torch.no_grad():
                best = values(target, next_rows[rows]).max(1).values
                y = torch.from_numpy(rewards[rows]) + 0.99 * best * (1 - torch.from_numpy(dones[rows]))
            chosen = values(q, obs_rows[rows]).gather(1, torch.from_numpy(actions[rows])[:, None]).squeeze(1)
            loss = nn.functional.mse_loss(y, chosen)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            updates += 1
            if updates % 250 == 0:
                target.load_state_dict(q.state_dict())
    elapsed = time.time() - started
    result = {"env_steps_per_s": steps / elapsed, "updates_per_s": updates / elapsed}
    if score:
        returns = []
        for game in range(10):
            obs, _ = env.reset(seed=10**6 + game)
            total, over = 0.0, False
            while not over:
                with torch.no_grad():
                    action = int(values(q, np.asarray(obs)[None]).argmax())
                obs, reward, terminated, truncated, _ = env.step(action)
                total, over = total + float(reward), terminated or truncated
            returns.append(total)
        result["score"] = float(np.mean(returns))
    return result


LIBRARIES = {"parl": parl, "sb3": sb3, "one file": one_file}


def add_to_record(record, steps, found):
    """Adds the results to the record."""
    names = {"sb3": "Stable-Baselines3", "one file": "rewrite with CleanRL's settings"}
    for name, rows in found.items():
        same = {"rounds": len(rows), "steps": steps}
        version = version_of("stable-baselines3") if name == "sb3" else ""
        who = {"library": names.get(name, name), "version": version} | same
        for metric, unit, key in (
            ("steps per second", "steps/s", "env_steps_per_s"),
            ("updates per second", "updates/s", "updates_per_s"),
            ("score", "return", "score"),
        ):
            if key in rows[0]:
                record.add("dqn-pong-pixels", CASE, metric, unit, [row[key] for row in rows], **who)
        if name != "parl" and "parl" in found:
            key = "env_steps_per_s"
            ratios = [a[key] / b[key] for a, b in zip(found["parl"], rows, strict=True)]
            peer = {"peer": names[name], "version": version} | same
            record.add("dqn-pong-pixels", CASE, "speed ratio", "x", ratios, **peer)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", default="3000", help="number of measured environment steps")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=sorted(LIBRARIES))
    parser.add_argument("--score", action="store_true")
    add_cores(parser)
    add_option(parser, "atari-dqn")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.one:
        name, steps, score = json.loads(arguments.one)
        print(json.dumps(LIBRARIES[name](steps, arguments.seed, score)))
        return
    from parl.run import parse_count

    steps, names = parse_count(arguments.steps), arguments.only or list(LIBRARIES)
    cores = use_cores(arguments.cores)
    title = "DQN on Pong from pixels beside Stable-Baselines3 and a one-file loop"
    with Record(arguments.record, title, cores) as record:
        record.print(f"dqn, Pong from pixels, {steps:,} steps after the first {STARTS:,}, in turns")
        record.print(cores)
        record.print("turn  library  env steps/s  updates/s  score  load")
        found = {name: [] for name in names}
        for turn in range(arguments.rounds):
            for name in names:
                row = run_in_process(__file__, [name, steps, arguments.score], turn)
                found[name].append(row)
                shown = f"{row['score']:.1f}" if "score" in row else "-"
                record.print(
                    f"{turn:>4}  {name:<8} {row['env_steps_per_s']:12.1f} {row['updates_per_s']:10.1f}"
                    f" {shown:>6} {os.getloadavg()[0]:5.1f}"
                )
        add_to_record(record, steps, found)
        for name in names:
            rates = [
                median([row[key] for row in found[name]]) for key in ("env_steps_per_s", "updates_per_s")
            ]
            record.print(f"{name}: median {rates[0]:.1f} env steps/s, {rates[1]:.1f} updates/s")


if __name__ == "__main__":
    main()
