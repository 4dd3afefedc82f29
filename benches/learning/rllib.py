"""DQN and SAC beside RLlib on Ray: time to a score, and rates of sampling and of learning.

    python benches/learning/rllib.py goals --seeds 3 --finished runs.jsonl
    python benches/learning/rllib.py rates --rounds 3 --finished rates.jsonl
    ... --record                    # writes the figures to benches/records/DATE-rllib.csv

It needs ``ray[rllib]`` and ``gymnasium[mujoco]``: ``make bench-rllib``. Every run is a separate process whose
torch has one thread; Ray's processes have one each.

``goals``: both libraries have settings of their own for the task, RLlib those of its examples in
``rllib/examples/algorithms``, ``dqn/cartpole_dqn.py`` and ``sac/pendulum_sac.py``. It has no TD3 and no DDPG.
A goal is reached when the mean of 50 greedy episodes reaches it and the mean of 50 more on other seeds too.
parl evaluates when training returns come close to the goal, and its seconds include the evaluations. RLlib is
evaluated after every thousand transitions (DQN) or every 500 (SAC), with the mean of its policy, and its
seconds exclude the evaluations and the start of Ray. A run of RLlib also ends after ``--limit`` processor
seconds of training. Processor seconds are those of all processes of a run.

``rates``: SAC with the same networks, batches and updates per transition. Transitions per second, and rows
that are trained on per second: the batch size times the updates per second. A measurement lasts ``--seconds``
processor seconds of all processes.
"""

import dataclasses
import logging
import os
import tempfile
import time
import warnings

from processes import Record, add_finished, median, parse_or_run, run_in_process, shared_options, version_of

EPISODES = 50
# (actors, learners)
SPLITS = ((1, 1), (2, 1), (1, 2), (2, 2))


@dataclasses.dataclass(frozen=True)
class Case:
    """A task of ``goals``.

    Attributes:
        algorithm: its name.
        env: name of the environment.
        goals: mean returns, ascending.
        options: of ``parl.train``.
        steps: most transitions of a run.
        every: transitions between evaluations of RLlib.
    """

    algorithm: str
    env: str
    goals: tuple
    options: dict
    steps: int
    every: int


CASES = {
    "dqn-cartpole": Case("dqn", "CartPole-v1", (195.0, 475.0), {}, 200_000, 1_000),
    "sac-pendulum": Case("sac", "Pendulum-v1", (-200.0,), {"preset": "pendulum"}, 40_000, 500),
}
# name: (library, actors, learners, environments, schedule)
MODES = {
    "async, 1 actor": ("parl", 1, 16, "async"),
    "async, 2 actors": ("parl", 2, 16, "async"),
    "deterministic": ("parl", 1, 16, "deterministic"),
    "1 env runner": ("RLlib", 1, 16, ""),
    "2 env runners": ("RLlib", 2, 16, ""),
}
# (environment, batch size, rows trained on per transition, modes)
WORKLOADS = (
    ("Pendulum-v1", 256, 256, tuple(MODES)),
    ("HalfCheetah-v5", 256, 256, tuple(MODES)),
    ("Pendulum-v1", 8_192, 1_024, ("async, 1 actor", "deterministic", "1 env runner")),
)


def processor_of_all():
    """Seconds of processor time of this process and of all that descend from it."""
    import psutil

    own = psutil.Process()
    total = 0.0
    for process in [own, *own.children(recursive=True)]:
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total


def train_parl(name, goal, actors, learners, seed):
    """Trains until 2 x 50 greedy episodes reach the goal."""
    import parl
    from parl.train import evaluate

    case, began = CASES[name], {}

    class Start(parl.Callback):
        def on_start(self, _):
            began.update(clock=time.monotonic(), cpu_s=processor_of_all())

    options = {"total_steps": case.steps, "evaluation_episodes": EPISODES, "threads": 1, **case.options}
    options |= {"actors": actors, "learners": learners, "stop_at_return": goal, "seed": seed}
    if "preset" not in options:
        options["env"] = case.env
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        run = parl.train(case.algorithm, runs=runs, quiet=True, callbacks=[Start()], **options)
        seconds, cpu_s = time.monotonic() - began["clock"], processor_of_all() - began["cpu_s"]
        fresh = float(evaluate(run.path, episodes=100, seed=10**6 + 10**4 * seed).mean())
    reached = run.stopped == "stop_at_return"
    return {
        "seconds": seconds,
        "cpu_s": cpu_s,
        "steps": run.env_steps,
        "reached": reached,
        "fresh": fresh,
        "load": os.getloadavg()[0],
    }


def start_ray():
    """Starts Ray on this machine, without messages; returns the seconds that it took."""
    import ray

    os.environ["RAY_worker_niceness"] = "0"  # Ray would lower the priority of its workers.
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    started = time.monotonic()
    # More logical processors than a machine with two cores has: one for every process.
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    return time.monotonic() - started


def settings_of_rllib(name, learners):
    """RLlib's settings for a case, those of its examples."""
    from ray.rllib.algorithms.dqn import DQNConfig
    from ray.rllib.algorithms.sac import SACConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from torch import nn

    scale, case = learners**0.5, CASES[name]
    if case.algorithm == "dqn":
        model = DefaultModelConfig(
            fcnet_hiddens=[256],
            fcnet_activation="tanh",
            fcnet_bias_initializer="zeros_",
            head_fcnet_hiddens=[256],
            head_fcnet_bias_initializer="zeros_",
        )
        training = {
            "lr": 0.0005 * scale,
            "train_batch_size_per_learner": 32,
            "replay_buffer_config": buffer(50_000, 0.6, 0.4),
            "n_step": (2, 5),
            "double_q": True,
            "dueling": True,
            "epsilon": [(0, 1.0), (25_000, 0.02)],
        }
        return DQNConfig().environment(case.env).training(**training).rl_module(model_config=model)
    model = DefaultModelConfig(
        fcnet_hiddens=[256, 256],
        fcnet_activation="relu",
        fcnet_kernel_initializer=nn.init.xavier_uniform_,
        head_fcnet_hiddens=[],
        head_fcnet_activation=None,
        head_fcnet_kernel_initializer="orthogonal_",
        head_fcnet_kernel_initializer_kwargs={"gain": 0.01},
        fusionnet_hiddens=[256, 256, 256],
        fusionnet_activation="relu",
    )
    training = {
        "initial_alpha": 1.001,
        "actor_lr": 2e-4 * scale,
        "critic_lr": 8e-4 * scale,
        "alpha_lr": 9e-4 * scale,
        "lr": None,
        "target_entropy": "auto",
        "n_step": (2, 5),
        "tau": 0.005,
        "train_batch_size_per_learner": 256,
        "target_network_update_freq": 1,
        "replay_buffer_config": buffer(100_000, 1.0, 0.0),
        "num_steps_sampled_before_learning_starts": 256 * learners,
    }
    return SACConfig().environment(case.env).training(**training).rl_module(model_config=model)


def buffer(capacity, alpha, beta):
    return {"type": "PrioritizedEpisodeReplayBuffer", "capacity": capacity, "alpha": alpha, "beta": beta}


def build(config, actors, learners, seed):
    """The algorithm of a configuration. One learner is in the driver's process, as by default."""
    import torch

    torch.set_num_threads(1)
    config.env_runners(num_env_runners=actors).debugging(seed=seed, log_level="ERROR")
    config.learners(num_learners=0 if learners == 1 else learners)
    return config.build_algo()


def train_rllib(name, actors, learners, seed, limit_s):
    """Trains until the highest goal or a limit; a list with a result for each goal."""
    import ray

    case, results = CASES[name], []
    start_s = start_ray()
    started = time.monotonic()
    algorithm = build(settings_of_rllib(name, learners), actors, learners, seed)
    start_s += time.monotonic() - started
    seconds = cpu_s = 0.0
    steps = evaluated = rounds = 0
    while len(results) < len(case.goals):
        before, used = time.monotonic(), processor_of_all()
        report = algorithm.train()
        seconds, cpu_s = seconds + time.monotonic() - before, cpu_s + processor_of_all() - used
        steps = int(report["env_runners"].get("num_env_steps_sampled_lifetime", 0))
        over = steps >= case.steps or cpu_s >= limit_s
        while len(results) < len(case.goals) and (over or steps >= evaluated + case.every):
            rounds += 1
            first, goal = 10**5 * (seed + 1) + 1_000 * rounds, case.goals[len(results)]
            # Other seeds confirm a mean that reaches the goal.
            reached = all(play(algorithm, case.env, first + more) >= goal for more in (0, 500))
            if not reached and not over:
                break
            fresh = play(algorithm, case.env, 10**6 + 10**4 * seed, 100)
            found = {"seconds": seconds, "cpu_s": cpu_s, "steps": steps, "reached": reached, "fresh": fresh}
            results.append(found | {"load": os.getloadavg()[0], "start_s": start_s})
        if steps >= evaluated + case.every:
            evaluated = steps
    algorithm.stop()
    ray.shutdown()
    return results


def play(algorithm, env, seed, episodes=EPISODES):
    """The mean return of greedy episodes in the driver; of SAC with the mean of the squashed Gaussian."""
    import gymnasium
    import numpy as np
    import torch

    module = algorithm.get_module()
    envs = gymnasium.make_vec(env, episodes, vectorization_mode="sync")
    obs, _ = envs.reset(seed=seed)
    returns, playing = np.zeros(episodes), np.ones(episodes, bool)
    space = envs.single_action_space
    while playing.any():
        with torch.no_grad():
            out = module.forward_inference({"obs": torch.from_numpy(np.asarray(obs, np.float32))})
        if "actions" in out:
            actions = out["actions"].numpy()
        else:
            mean = torch.tanh(out["action_dist_inputs"].chunk(2, dim=-1)[0]).numpy()
            actions = (space.low + (mean + 1) / 2 * (space.high - space.low)).astype(np.float32)
        obs, reward, terminated, truncated, _ = envs.step(actions)
        returns += np.where(playing, reward, 0.0)
        playing &= ~(terminated | truncated)
    envs.close()
    return float(returns.mean())


def rates_of_parl(env, batch, ratio, mode, seconds, seed):
    import parl

    _, actors, num_envs, schedule = MODES[mode]
    marks = []

    class Marks(parl.Callback):
        def on_record(self, record):
            if record.updates:
                marks.append((time.monotonic(), processor_of_all(), record.env_steps, record.updates))
            return not measured(marks, seconds)

    options = {"batch_size": batch, "replay_ratio": float(ratio), "num_envs": num_envs, "hidden": (256, 256)}
    options |= {"learning_starts": 1_000, "replay_capacity": 100_000, "total_steps": 10**9}
    options |= {"schedule": schedule, "actors": actors, "learners": 1, "threads": 1, "seed": seed}
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        options |= {"evaluation_episodes": 0, "log_every_s": 0.25}
        if schedule == "async":
            options["checkpoint_every_s"] = 10**6
        parl.train("sac", env=env, runs=runs, quiet=True, callbacks=[Marks()], **options)
    return between(marks, batch)


def rates_of_rllib(env, batch, ratio, mode, seconds, seed):
    import ray
    from ray.rllib.algorithms.sac import SACConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    _, actors, num_envs, _ = MODES[mode]
    start_ray()
    # RLlib divides by the number of env runners and one more, its local one, which samples nothing.
    intensity = ratio * actors / (actors + 1)
    training = {"train_batch_size_per_learner": batch, "training_intensity": intensity, "n_step": 1}
    training |= {"num_steps_sampled_before_learning_starts": 1_000}
    training |= {"replay_buffer_config": buffer(100_000, 0.6, 0.4)}
    model = DefaultModelConfig(
        fcnet_hiddens=[256, 256],
        fcnet_activation="relu",
        head_fcnet_hiddens=[],
        fusionnet_hiddens=[256, 256],
        fusionnet_activation="relu",
    )
    config = SACConfig().environment(env).training(**training).rl_module(model_config=model)
    config.env_runners(num_envs_per_env_runner=num_envs // actors)
    algorithm = build(config, actors, 1, seed)
    marks, rows = [], 0
    while not measured(marks, seconds):
        report = algorithm.train()
        counts = report.get("learners", {}).get("__all_modules__", {})
        rows = counts.get("num_env_steps_trained_lifetime", rows)
        if rows > batch:
            steps = report["env_runners"]["num_env_steps_sampled_lifetime"]
            marks.append((time.monotonic(), processor_of_all(), steps, rows / batch))
    algorithm.stop()
    ray.shutdown()
    return between(marks, batch)


def counted_of(marks):
    """The marks after the first two processor seconds of learning, which are not counted."""
    return [mark for mark in marks if mark[1] >= marks[0][1] + 2]


def measured(marks, seconds):
    """Whether the marks span this many processor seconds."""
    counted = counted_of(marks) if marks else []
    return len(counted) > 1 and counted[-1][1] >= counted[0][1] + seconds


def between(marks, batch):
    """Rates between the first and the last counted mark: (time, processor time, transitions, updates)."""
    first, *_, last = counted_of(marks)
    seconds, cpu_s, steps, updates = (float(b - a) for a, b in zip(first, last, strict=True))
    found = {"steps": steps / seconds, "rows": batch * updates / seconds, "ratio": batch * updates / steps}
    found |= {"steps_cpu": steps / cpu_s, "rows_cpu": batch * updates / cpu_s, "seconds": seconds}
    return found | {"load": os.getloadavg()[0]}


def work(case, seed):
    what, *given = case
    do = {
        "parl": train_parl,
        "RLlib": lambda name, actors, learners, limit_s, seed: train_rllib(
            name, actors, learners, seed, limit_s
        ),
        "parl rates": rates_of_parl,
        "RLlib rates": rates_of_rllib,
    }[what]
    return do(*given, seed=seed)


def goals(record, arguments):
    splits = [tuple(map(int, split.split("+"))) for split in arguments.splits]
    for name in arguments.only:
        found = {}
        for seed in range(arguments.seeds):
            for split in splits:
                case = ["RLlib", name, *split, arguments.limit]
                rows = run_in_process(__file__, case, seed, arguments.finished)
                for goal, row in zip(CASES[name].goals, rows, strict=True):
                    found.setdefault((split, goal, "RLlib"), []).append(row)
                    tell(record, name, split, goal, "RLlib", seed, row)
                    case = ["parl", name, goal, *split]
                    row = run_in_process(__file__, case, seed, arguments.finished)
                    found.setdefault((split, goal, "parl"), []).append(row)
                    tell(record, name, split, goal, "parl", seed, row)
        for split in splits:
            for goal in CASES[name].goals:
                ours, theirs = found[split, goal, "parl"], found[split, goal, "RLlib"]
                add_goal(record, name, split, goal, ours, theirs, arguments.limit)


def tell(record, name, split, goal, library, seed, row):
    end = "" if row["reached"] else ", not reached"
    record.print(
        f"{name} to {goal:g}, {split[0]} + {split[1]}, {library}, seed {seed}: {row['seconds']:.1f} s,"
        f" processor {row['cpu_s']:.1f} s, {row['steps']:,} transitions, fresh {row['fresh']:.1f},"
        f" load {row['load']:.1f}{end}"
    )


def add_goal(record, name, split, goal, ours, theirs, limit_s):
    """Adds a goal of a case to the record."""
    case, version = CASES[name], version_of("ray")
    parts = ", ".join(
        f"{n} {name}{'s' * (n > 1)}" for n, name in zip(split, ("actor", "learner"), strict=True)
    )
    label = f"{case.algorithm.upper()}, {case.env} to {goal:g}, {parts}"
    for library, rows in (("parl", ours), ("RLlib", theirs)):
        same = {"library": library, "seeds": len(rows), "version": version if library == "RLlib" else ""}
        limit = f", or {limit_s:g} processor s" if library == "RLlib" else ""
        same["conditions"] = f"at most {case.steps:,} transitions{limit}; load {median_of(rows, 'load'):.1f}"
        reached = sum(row["reached"] for row in rows)
        record.add("rllib-goals", label, "seeds that reach the goal", "seeds", reached, **same)
        for metric, unit, key in (
            ("training", "s", "seconds"),
            ("processor time", "s", "cpu_s"),
            ("transitions", "transitions", "steps"),
            ("score of 100 fresh episodes", "return", "fresh"),
        ):
            record.add("rllib-goals", label, metric, unit, [row[key] for row in rows], **same)
    if all(row["reached"] for row in ours):
        # Of a run of RLlib that ended at the limit, the ratio is a lower bound.
        same = {"peer": "RLlib", "version": version, "seeds": len(ours)}
        if not all(row["reached"] for row in theirs):
            same["conditions"] = "at least: RLlib did not reach the goal on every seed"
        for metric, key in (("wall-clock speed ratio", "seconds"), ("processor-time speed ratio", "cpu_s")):
            ratios = [two[key] / one[key] for one, two in zip(ours, theirs, strict=True)]
            record.add("rllib-goals", label, metric, "x", ratios, **same)


def median_of(rows, key):
    return median([row[key] for row in rows])


def rates(record, arguments):
    version = version_of("ray")
    record.print(f"{'case':<42} {'mode':<18} {'steps/s':>9} {'rows/s':>11} {'steps/cpu-s':>11} {'ratio':>7}")
    found = {}
    for seed in range(arguments.rounds):
        for env, batch, ratio, modes in WORKLOADS:
            chosen = env in arguments.envs and batch in arguments.batches
            for mode in (mode for mode in modes if chosen and mode in arguments.modes):
                library = MODES[mode][0]
                case = [f"{library} rates", env, batch, ratio, mode, arguments.seconds]
                row = run_in_process(__file__, case, seed, arguments.finished)
                found.setdefault((env, batch, ratio, mode), []).append(row)
    for (env, batch, ratio, mode), rows in found.items():
        library = MODES[mode][0]
        label = f"{env}, batches of {batch:,}, {mode}"
        record.print(
            f"{label[: -len(mode) - 2]:<42} {mode:<18} {median_of(rows, 'steps'):>9,.0f}"
            f" {median_of(rows, 'rows'):>11,.0f} {median_of(rows, 'steps_cpu'):>11,.0f}"
            f" {median_of(rows, 'ratio'):>7.0f}"
        )
        same = {"library": library, "rounds": len(rows), "version": version if library == "RLlib" else ""}
        same["conditions"] = f"{ratio} rows per transition; load {median_of(rows, 'load'):.1f}"
        for metric, unit, key in (
            ("transitions per second", "transitions/s", "steps"),
            ("rows trained on per second", "rows/s", "rows"),
            ("transitions per processor second", "transitions/core-s", "steps_cpu"),
            ("rows trained on per processor second", "rows/core-s", "rows_cpu"),
        ):
            record.add("rllib-rates", label, metric, unit, [row[key] for row in rows], **same)


def main():
    parser = shared_options(__doc__)
    add_finished(parser)
    parser.add_argument("what", nargs="?", choices=["goals", "rates"], default="goals")
    parser.add_argument("--only", nargs="*", choices=sorted(CASES), default=list(CASES))
    splits = [f"{actors}+{learners}" for actors, learners in SPLITS]
    parser.add_argument("--splits", nargs="*", choices=splits, default=splits, help="actors + learners")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0..N")
    parser.add_argument("--limit", type=float, default=400.0, help="processor seconds of a run of RLlib")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of rates")
    envs, batches = ({load[at] for load in WORKLOADS} for at in (0, 1))
    parser.add_argument("--envs", nargs="*", choices=sorted(envs), default=sorted(envs), help="of rates")
    parser.add_argument(
        "--batches", nargs="*", type=int, default=sorted(batches), help="batch sizes of rates"
    )
    parser.add_argument("--modes", nargs="*", choices=list(MODES), default=list(MODES), help="of rates")
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="processor seconds of a measurement of rates"
    )
    arguments = parse_or_run(parser, work)
    if arguments is None:
        return
    conditions = "one torch thread per process; two cores"
    with Record(arguments.record, "DQN and SAC beside RLlib", conditions) as record:
        {"goals": goals, "rates": rates}[arguments.what](record, arguments)


if __name__ == "__main__":
    main()
