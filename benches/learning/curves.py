"""Learning curves beside Stable-Baselines3: classic control with RL Baselines3 Zoo's settings, and MuJoCo.

Every run is a separate process with one torch thread. parl trains with the preset or defaults for the
environment, in one process. A point of a curve is the mean return of 10 greedy episodes against the processor
time of training, which excludes the evaluations; the final score is that of 100 greedy episodes with the last
weights, which start in the same states in both libraries. The time to the goal is that of the first point at
the goal's return (a run's whole time if there is none). The area ratio compares the areas under both curves
up to the median time of parl's runs: means over time of the return, scaled to 0 for random actions and 1 for
the goal, and limited to that range. A curve starts at 0. SB3's has as many points in the first tenth of its
run as in the whole, from a repetition of that tenth. The ratio approaches 1 the longer parl's run goes on
after both libraries have reached the goal.

    python benches/learning/curves.py --seeds 10 --peer-seeds 5 --finished runs.jsonl --record
    python benches/learning/curves.py --only ppo-cartpole --seeds 1 --peer-seeds 1
"""

import dataclasses
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import offpolicy
import sb3
from processes import (
    Record,
    add_finished,
    median,
    parse_or_run,
    processor_s,
    run_in_process,
    shared_options,
    version_of,
)

POINTS, EPISODES, FINAL_EPISODES = 20, 10, 100
# The share of SB3's run that is repeated with as many points as the whole: parl's run often takes less time.
EARLY = 0.1
# environment: (return of random actions, return of the goal)
SCALES = {
    "HalfCheetah-v5": (-280.0, 3_000.0),
    "Hopper-v5": (20.0, 1_000.0),
    "CartPole-v1": (20.0, 475.0),
    "Acrobot-v1": (-500.0, -100.0),
    "Pendulum-v1": (-1_200.0, -200.0),
    "LunarLander-v3": (-200.0, 200.0),
    "MountainCarContinuous-v0": (-33.0, 90.0),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """Settings of both libraries for an algorithm on an environment.

    Attributes:
        env: name of the environment.
        steps: transitions of parl's run.
        options: of ``parl.train``, apart from defaults.
        peer_steps: transitions of SB3's run, as in the Zoo.
        num_envs: environments of SB3's run.
        peer: arguments of SB3's class.
        linear: which of the arguments fall linearly to 0.
        normalize: whether observations and rewards are normalized in SB3's run.
        noise: standard deviation of the normal noise of actions in SB3's run.
        correlated_noise: whether the noise is SB3's Ornstein-Uhlenbeck process, with this sigma, instead.
        time_bar: largest ratio of processor times to report as met; None: areas are compared, not times.
    """

    env: str
    steps: int
    options: dict
    peer_steps: int
    num_envs: int
    peer: dict
    linear: tuple = ()
    normalize: bool = False
    noise: float = 0.0
    correlated_noise: bool = False
    time_bar: float | None = None


_DQN = {
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "gamma": 0.99,
    "target_update_interval": 250,
    "train_freq": 4,
    "gradient_steps": -1,
    "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
    "policy_kwargs": {"net_arch": [256, 256]},
}
_TD3 = {
    "gamma": 0.98,
    "buffer_size": 200_000,
    "learning_starts": 10_000,
    "gradient_steps": 1,
    "train_freq": 1,
    "learning_rate": 1e-3,
    "policy_kwargs": {"net_arch": [400, 300]},
}
_PPO = {name: value for name, value in sb3.CASES["ppo-cartpole"][-1].items() if name != "linear"}
# The defaults of parl's algorithms where SB3's are different.
_EQUAL = {"learning_starts": 1_000, "policy_kwargs": {"net_arch": [256, 256]}}
_PPO_MUJOCO = {"n_steps": 2_048, "learning_rate": 3e-4, "clip_range": 0.2, "clip_range_vf": 0.2}
_PPO_ACROBOT = Case(
    "Acrobot-v1",
    100_000,
    {"preset": "acrobot"},
    1_000_000,
    16,
    {"n_steps": 256, "gae_lambda": 0.94, "n_epochs": 4},
    normalize=True,
)
_LUNAR = {"preset": "lunarlander"}
_PENDULUM = {"preset": "pendulum"}
_MOUNTAIN_CAR = {"preset": "mountaincar"}
_EXPLORING = Case(
    "MountainCarContinuous-v0",
    30_000,
    _MOUNTAIN_CAR,
    300_000,
    1,
    {},
    noise=0.5,
    correlated_noise=True,
)
CASES = {
    "ppo-cartpole": Case(
        "CartPole-v1",
        25_000,
        {"preset": "cartpole"},
        100_000,
        8,
        _PPO,
        linear=("learning_rate", "clip_range"),
    ),
    "a2c-cartpole": Case("CartPole-v1", 60_000, {"preset": "cartpole"}, 500_000, 8, {}),
    "dqn-cartpole": Case(
        "CartPole-v1",
        200_000,
        {},
        50_000,
        1,
        offpolicy.DQN["zoo"],
    ),
    "ppo-acrobot": _PPO_ACROBOT,
    "ppo-acrobot-long": dataclasses.replace(_PPO_ACROBOT, steps=1_000_000),
    "a2c-acrobot": Case("Acrobot-v1", 200_000, {"preset": "acrobot"}, 500_000, 16, {}, normalize=True),
    "dqn-acrobot": Case("Acrobot-v1", 400_000, {"preset": "acrobot"}, 100_000, 1, _DQN),
    "ppo-pendulum": Case(
        "Pendulum-v1",
        100_000,
        _PENDULUM,
        100_000,
        4,
        {
            "n_steps": 1_024,
            "gamma": 0.9,
            "n_epochs": 10,
            "learning_rate": 1e-3,
            "use_sde": True,
            "sde_sample_freq": 4,
        },
    ),
    "sac-pendulum": Case("Pendulum-v1", 20_000, _PENDULUM, 20_000, 1, {"learning_rate": 1e-3}),
    "td3-pendulum": Case("Pendulum-v1", 20_000, _PENDULUM, 20_000, 1, _TD3, noise=0.1),
    "ddpg-pendulum": Case("Pendulum-v1", 20_000, _PENDULUM, 20_000, 1, _TD3, noise=0.1),
    "sac-mountaincar": Case(
        "MountainCarContinuous-v0",
        30_000,
        _MOUNTAIN_CAR,
        50_000,
        1,
        {
            "buffer_size": 50_000,
            "batch_size": 512,
            "ent_coef": 0.1,
            "train_freq": 32,
            "gradient_steps": 32,
            "gamma": 0.9999,
            "tau": 0.01,
            "learning_starts": 0,
            "use_sde": True,
            "policy_kwargs": {"log_std_init": -3.67, "net_arch": [64, 64]},
        },
    ),
    "td3-mountaincar": _EXPLORING,
    "ddpg-mountaincar": _EXPLORING,
    "ppo-lunarlander": Case(
        "LunarLander-v3",
        1_000_000,
        _LUNAR,
        1_000_000,
        16,
        {"n_steps": 1_024, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01},
    ),
    "a2c-lunarlander": Case(
        "LunarLander-v3",
        1_000_000,
        _LUNAR,
        200_000,
        8,
        {"gamma": 0.995, "learning_rate": 8.3e-4, "ent_coef": 1e-5},
        linear=("learning_rate",),
    ),
    "dqn-lunarlander": Case("LunarLander-v3", 250_000, _LUNAR, 100_000, 1, _DQN),
    **{
        f"{name}-{env.partition('-')[0].lower()}": case
        for env in ("HalfCheetah-v5", "Hopper-v5")
        for name, case in (
            ("sac", Case(env, 150_000, {}, 150_000, 1, _EQUAL, time_bar=0.6)),
            ("td3", Case(env, 150_000, {}, 150_000, 1, _EQUAL, noise=0.1, time_bar=0.6)),
            ("ddpg", Case(env, 150_000, {}, 150_000, 1, _EQUAL, noise=0.1, time_bar=0.6)),
            (
                "ppo",
                Case(
                    env,
                    1_000_000,
                    {"preset": "mujoco", "value_clip": 0.2},
                    1_000_000,
                    1,
                    _PPO_MUJOCO,
                    linear=("learning_rate",),
                    normalize=True,
                    time_bar=0.35,
                ),
            ),
        )
    },
}
OFF_POLICY = ("dqn", "sac", "td3", "ddpg")


def run(what, seed):
    import torch

    torch.set_num_threads(1)
    library, name, steps = what
    if library == "parl":
        return train_parl(name, steps, seed)
    return train_sb3(name, steps, seed, EARLY if library == "SB3, early" else 1.0)


def train_parl(name, steps, seed):
    import parl

    algorithm, case, curve = name.partition("-")[0], CASES[name], []
    clock = Clock()

    class Curve(parl.Callback):
        def on_start(self, _):
            clock.start()

        def on_evaluation(self, evaluation):
            curve.append((evaluation.env_steps, clock.seconds, evaluation.mean_return))

    clock.leave_out_evaluations()
    options = {
        "threads": 1,
        "evaluation_every": steps // POINTS,
        "evaluation_episodes": EPISODES,
        "quiet": True,
        **case.options,
    }
    if algorithm in OFF_POLICY:
        options["schedule"] = "deterministic"
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        run = parl.train(
            algorithm, env=case.env, total_steps=steps, seed=seed, runs=runs, callbacks=[Curve()], **options
        )
        seconds = clock.now()
        score = score_of(parl.load(run.path, checkpoint="last"), case.env, seed)
    return {"points": curve, "score": score, "cpu_s": seconds}


def score_of(policy, name, seed):
    """Mean return of the greedy policy in episodes that start as those of :func:`train_sb3`."""
    import gymnasium

    env = gymnasium.make(name)
    observation, _ = env.reset(seed=first_seed(seed))
    total, episodes = 0.0, 0
    while episodes < FINAL_EPISODES:
        action, _ = policy.predict(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        if terminated or truncated:
            observation, _ = env.reset()
            episodes += 1
    return total / episodes


def first_seed(seed):
    """Seed of the first of the final episodes; the later ones continue its random numbers."""
    return 10**6 + seed


def train_sb3(name, steps, seed, share):
    """Trains for a share of ``steps``, on which settings depend that change in a run."""
    from stable_baselines3.common.callbacks import BaseCallback

    model, evaluated = make_sb3(name, seed)
    clock, curve = Clock(), []

    class Curve(BaseCallback):
        def _on_step(self):
            if self.num_timesteps >= (len(curve) + 1) * share * steps // POINTS:
                score = clock.without(evaluated, EPISODES, 10**5 + seed)
                curve.append((self.num_timesteps, clock.seconds, score))
            return share == 1 or len(curve) < POINTS

    clock.start()
    model.learn(total_timesteps=steps, callback=Curve())
    seconds = clock.now()
    return {"points": curve, "score": evaluated(FINAL_EPISODES, first_seed(seed)), "cpu_s": seconds}


def make_sb3(name, seed):
    """A model of Stable-Baselines3, and a function that returns its mean return in greedy episodes."""
    import numpy as np
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
    from stable_baselines3.common.vec_env import VecNormalize

    algorithm, case = name.partition("-")[0], CASES[name]

    def evaluated(episodes, first_seed):
        fresh = make_vec_env(case.env, 1, seed=first_seed)
        if case.normalize:
            fresh = VecNormalize(fresh, training=False, norm_reward=False)
            fresh.obs_rms = envs.obs_rms
        return float(evaluate_policy(model, fresh, episodes, warn=False)[0])

    envs = make_vec_env(case.env, case.num_envs, seed=seed)
    if case.normalize:
        envs = VecNormalize(envs)
    options = dict(case.peer)
    for argument in case.linear:
        options[argument] = lambda left, first=options[argument]: left * first
    if case.noise:
        actions = envs.action_space.shape[0]
        process = OrnsteinUhlenbeckActionNoise if case.correlated_noise else NormalActionNoise
        options["action_noise"] = process(np.zeros(actions), case.noise * np.ones(actions))
    kind = getattr(stable_baselines3, algorithm.upper())
    model = kind("MlpPolicy", envs, seed=seed, device="cpu", **options)
    return model, evaluated


class Clock:
    """Processor seconds of this process since :meth:`start`, without those of some calls.

    Attributes:
        seconds: those before the last of these calls.
    """

    def start(self):
        self._began, self.seconds = processor_s(), 0.0

    def now(self):
        return processor_s() - self._began

    def leave_out_evaluations(self):
        """Lets the evaluations of parl's runs in this process not count."""
        from parl.runtime.evaluate import Evaluator

        play = Evaluator.play
        Evaluator.play = lambda *arguments: self.without(play, *arguments)

    def without(self, work, *arguments):
        """Returns ``work(*arguments)``, whose time does not count."""
        before = processor_s()
        self.seconds = before - self._began
        result = work(*arguments)
        self._began += processor_s() - before
        return result


def at(curve, share):
    """The last point of a curve within a share of its steps; its first point if there is none."""
    most = share * curve[-1][0]
    return [point for point in curve if point[0] <= most][-1] if curve[0][0] <= most else curve[0]


def area(curve, seconds, env):
    """The mean over ``seconds`` of a curve's return from 0, of random actions, to 1, of the goal.

    The curve starts at 0; it is linear between points, and constant after the last.
    """
    import numpy as np

    low, goal = SCALES[env]
    times = np.array([0.0] + [now for _, now, _ in curve])
    values = np.array([low] + [returned for *_, returned in curve])
    values = ((values - low) / (goal - low)).clip(0, 1)
    at_end = np.interp(seconds, times, values)
    inside = times < seconds
    times, values = np.append(times[inside], seconds), np.append(values[inside], at_end)
    return float(np.trapezoid(values, times)) / seconds


def time_to_goal(row, env):
    """Seconds until the first point at the goal's return; all of a run that has none."""
    return next((now for _, now, returned in row["points"] if returned >= SCALES[env][1]), row["cpu_s"])


def add_to_record(record, name, rows, peers):
    """Adds a case to the record: final scores, times, their ratio or that of areas, and the curves."""
    case = CASES[name]
    claim = "mujoco" if case.time_bar else "curves"
    label = f"{name.partition('-')[0].upper()}, {case.env}"
    if name.endswith("-long") or (case.time_bar and rows[0]["points"][-1][0] >= case.steps):
        label += f", {case.steps:,} transitions"
    seconds = median([row["cpu_s"] for row in rows])
    version = {"version": version_of("stable-baselines3")}
    for library, found, more in (("parl", rows, {}), ("Stable-Baselines3", peers, version)):
        if not found:
            continue
        same = {"library": library, "threads": 1, "seeds": len(found), **more}
        bar = {}
        if library == "parl" and peers:
            bar = {"bar": f">= {median([row['score'] for row in peers]):.4g}"}
        record.add(claim, label, "final score", "return", [row["score"] for row in found], **same, **bar)
        record.add(claim, label, "processor time", "s", [row["cpu_s"] for row in found], **same)
        times = [time_to_goal(row, case.env) for row in found]
        record.add(claim, label, "time to the goal", "s", times, **same)
        parts = [part / POINTS for part in range(1, POINTS + 1)]
        if library != "parl" and not case.time_bar:
            parts = sorted({EARLY * part for part in parts} | set(parts))
        for part in parts:
            points = [at(row["points"], part) for row in found]
            steps = round(median([point[0] for point in points]))
            for metric, unit, column in (("time of a point", "s", 1), ("return of a point", "return", 2)):
                values = [point[column] for point in points]
                record.add(claim, label, metric, unit, values, steps=steps, spread="quartiles", **same)
    if case.time_bar:
        ratios = [row["cpu_s"] / peer["cpu_s"] for row, peer in zip(rows, peers, strict=False)]
        same = {"peer": "Stable-Baselines3", "threads": 1, "seeds": len(ratios), **version}
        if ratios:
            record.add(claim, label, "time ratio", "x", ratios, **same, bar=f"<= {case.time_bar}")
            return median(ratios)
    elif peers:
        theirs = median([area(row["points"], seconds, case.env) for row in peers])
        # A curve that is still at random actions has no area to divide by.
        ratios = [area(row["points"], seconds, case.env) / max(theirs, 0.01) for row in rows]
        same = {"peer": "Stable-Baselines3", "threads": 1, "seeds": len(rows), "bar": ">= 3", **version}
        record.add(claim, label, "area ratio", "x", ratios, **same)
        return median(ratios)
    return float("nan")


def main():
    parser = shared_options(__doc__)
    add_finished(parser)
    parser.add_argument("--seeds", type=int, default=10, help="seeds 0..N of parl")
    parser.add_argument("--peer-seeds", type=int, default=5, help="seeds 0..N of Stable-Baselines3")
    parser.add_argument("--only", nargs="*", choices=sorted(CASES), default=list(CASES))
    parser.add_argument("--steps", type=int, help="transitions of every run")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="runs at once")
    arguments = parse_or_run(parser, run)
    if arguments is None:
        return

    def finish(what):
        library, name, seed = what
        case = CASES[name]
        if library == "SB3":
            name = name.removesuffix("-long")  # the same runs
        steps = arguments.steps or (case.steps if library == "parl" else case.peer_steps)
        row = run_in_process(__file__, [library, name, steps], seed, arguments.finished)
        if library == "SB3" and not case.time_bar:
            early = run_in_process(__file__, [f"{library}, early", name, steps], seed, arguments.finished)
            last = early["points"][-1][0]
            row["points"] = early["points"] + [point for point in row["points"] if point[0] > last]
        print(
            f"{name}, {library}, {seed}: {row['score']:.0f}, {row['cpu_s']:.1f} s",
            file=sys.stderr,
            flush=True,
        )
        return row

    conditions = f"{arguments.jobs} runs at a time"
    with (
        Record(arguments.record, "Learning curves beside Stable-Baselines3", conditions) as record,
        ThreadPoolExecutor(arguments.jobs) as pool,
    ):
        record.print(f"{'case':<16} {'score':>8} {'SB3':>8} {'cpu s':>7} {'SB3':>7} {'ratio':>6}")
        for name in arguments.only:
            jobs = [("parl", name, seed) for seed in range(arguments.seeds)]
            jobs += [("SB3", name, seed) for seed in range(arguments.peer_seeds)]
            found = list(pool.map(finish, jobs))
            rows, peers = found[: arguments.seeds], found[arguments.seeds :]
            ratio = add_to_record(record, name, rows, peers)
            parts = [(key, part) for key in ("score", "cpu_s") for part in (rows, peers)]
            one, two, three, four = (
                median([row[key] for row in part]) if part else float("nan") for key, part in parts
            )
            record.print(f"{name:<16} {one:>8.1f} {two:>8.1f} {three:>7.1f} {four:>7.1f} {ratio:>6.2f}")


if __name__ == "__main__":
    main()
