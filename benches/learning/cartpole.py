"""Time to solve CartPole-v1 with 2 actors and 2 learners, over several seeds.

    python benches/learning/cartpole.py --seeds 10
    python benches/learning/cartpole.py --seeds 4 --peer sb3     # needs stable-baselines3

A run ends when 100 greedy episodes have a mean return of 475 and a second evaluation, on other seeds,
confirms it. Each seed is a separate process. Columns: seconds of training, from the start of collection to
the checkpoint that reached the goal; seconds of the whole process, including the start of Python and the
import of torch; processor seconds of the process and its workers, which depend less on other load of the
machine; transitions; updates; mean of the second evaluation; mean of 100 more episodes of ``parl.evaluate``
on seeds that the run did not use; and the machine's load average.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from processes import Record, add_option, median, processor_s, version_of

GOAL = 475.0
STEPS_MAX = 500_000


def ours(seed, options):
    """One run of parl, in this process."""
    from parl.train import train

    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        run = train(
            "dqn",
            "CartPole-v1",
            seed=seed,
            stop_at_return=GOAL,
            total_steps=STEPS_MAX,
            runs=runs,
            quiet=True,
            **json.loads(options),
        )
        ended = time.time()
        used = processor_s(children=True)
        from parl.train import evaluate

        fresh = float(evaluate(run.path, episodes=100, seed=10**6 + 10**4 * seed).mean())
    return {
        "training_s": run.training_s,
        "ended": ended,
        "cpu_s": used,
        "env_steps": run.env_steps,
        "updates": run.updates,
        "evaluation": run.evaluation_return,
        "fresh": fresh,
        "reached": run.stopped == "stop_at_return",
    }


def sb3(seed, _):
    """Stable-Baselines3's DQN with RL Baselines3 Zoo's settings for CartPole-v1, evaluated during training.

    Source of the settings: rl-baselines3-zoo, hyperparams/dqn.yml, CartPole-v1.
    """
    import gymnasium
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.evaluation import evaluate_policy

    class UntilGoal(BaseCallback):
        score = 0.0

        def _evaluated(self, seed):
            env = gymnasium.make("CartPole-v1")
            env.reset(seed=seed)
            self.score = float(evaluate_policy(self.model, env, n_eval_episodes=100, warn=False)[0])
            return self.score >= GOAL

        def _on_step(self):
            recent = [episode["r"] for episode in list(self.model.ep_info_buffer)[-10:]]
            if self.n_calls % 2_400 or len(recent) < 10 or sum(recent) / 10 < 0.9 * GOAL:
                return True
            # As in parl: a second evaluation on other seeds must confirm that the goal is reached.
            first = 10**6 * (seed + 1) + self.n_calls
            return not (self._evaluated(first) and self._evaluated(2**31 + first))

    model = DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1_000,
        gamma=0.99,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        # 0.16 of the zoo's 50,000 steps, as a fraction of the largest number of steps here.
        exploration_fraction=0.16 * 50_000 / STEPS_MAX,
        exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256, 256]},
        seed=seed,
        device="cpu",
    )
    until = UntilGoal()
    started = time.time()
    model.learn(total_timesteps=STEPS_MAX, callback=until)
    ended = time.time()
    cpu_s = processor_s()
    return {
        "training_s": ended - started,
        "ended": ended,
        "cpu_s": cpu_s,
        "env_steps": model.num_timesteps,
        "updates": model._n_updates,
        "evaluation": until.score,
        "fresh": until.score,
        "reached": until.score >= GOAL,
    }


def table(record, name, seeds, options):
    record.print(f"{name} {options}")
    record.print("seed  train s  process s  cpu s    steps  updates    mean   fresh  load")
    rows = []
    for seed in seeds:
        started = time.time()
        done = subprocess.run(
            [sys.executable, __file__, "--one", name, "--seed", str(seed), "--options", options],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        row = json.loads(done.stdout.splitlines()[-1])
        row["process_s"] = row["ended"] - started
        rows.append(row)
        record.print(
            f"{seed:>4} {row['training_s']:8.2f} {row['process_s']:10.2f} {row['cpu_s']:6.1f}"
            f" {row['env_steps']:8,} {row['updates']:8,} {row['evaluation']:7.1f} {row['fresh']:7.1f}"
            f" {os.getloadavg()[0]:5.1f}{'' if row['reached'] else '  not reached'}"
        )
    reached = [row for row in rows if row["reached"]]
    columns = ("training_s", "process_s", "cpu_s", "env_steps", "updates")
    middle = {key: median([row[key] for row in rows]) for key in columns}
    in_time = sum(row["training_s"] <= 15.0 for row in reached)
    who = {"library": "parl" if name == "parl" else "Stable-Baselines3", "seeds": len(rows)}
    who |= {"version": "" if name == "parl" else version_of("stable-baselines3"), "conditions": options}
    claim = "dqn-cartpole-475"
    record.add(claim, "seeds that reach 475", "seeds", "seeds", len(reached), **who)
    for case, metric, unit, key in (
        ("training", "time", "s", "training_s"),
        ("process", "time", "s", "process_s"),
        ("processor", "time", "s", "cpu_s"),
        ("transitions", "count", "transitions", "env_steps"),
        ("updates", "count", "updates", "updates"),
        ("mean of 100 fresh episodes", "score", "return", "fresh"),
    ):
        record.add(claim, case, metric, unit, [row[key] for row in rows], **who)
    record.print(
        f"median: training {middle['training_s']:.2f} s, process {middle['process_s']:.2f} s, processor "
        f"{middle['cpu_s']:.1f} s, {middle['env_steps']:,.0f} steps, {middle['updates']:,.0f} updates\n"
        f"reached {GOAL:g}: {len(reached)} of {len(rows)}, in 15 s of training: {in_time} of {len(rows)}\n"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10, help="seeds 0..N")
    parser.add_argument("--peer", choices=["sb3"], help="also measure this library")
    parser.add_argument("--options", default='{"actors": 2, "learners": 2}', help="settings of parl, as JSON")
    add_option(parser, "cartpole")
    parser.add_argument("--one", choices=["parl", "sb3"], help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps({"parl": ours, "sb3": sb3}[arguments.one](arguments.seed, arguments.options)))
        return
    with Record(arguments.record, "DQN on CartPole-v1 to a mean of 475") as record:
        table(record, "parl", range(arguments.seeds), arguments.options)
        if arguments.peer:
            table(record, arguments.peer, range(arguments.seeds), "{}")


if __name__ == "__main__":
    main()
