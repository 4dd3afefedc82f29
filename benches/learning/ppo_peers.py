"""PPO beside Stable-Baselines3 and a rewrite with CleanRL's settings (published_ppo.py), in turns.

    python benches/learning/ppo_peers.py breakout --minutes 20 --seeds 1
    python benches/learning/ppo_peers.py breakout --presets atari-small atari-cpu --record breakout-pictures
    python benches/learning/ppo_peers.py breakout --presets atari-small atari-cpu --minutes 0.5 --games 0 \\
        --seeds 5 --record pictures-speed
    python benches/learning/ppo_peers.py cheetah --steps 1e6 --seeds 3
    ... --record          # writes the figures to benches/records/DATE-ppo-peers.csv
    ... --finished FILE   # goes on where an earlier call with FILE was ended

``breakout``: training for ``--minutes`` on all cores, from the start of collection. parl learns with each of
``--presets``: ``atari-ram`` from the console's 128 bytes, ``atari-cpu`` from the rewrite's pictures, and
``atari-small`` from small pictures with a small network. All are scored in the same way at the end: mean
points of ``--games`` whole games, greedy, up to 30 no-ops, no sticky actions, 27,000 frames at most. With
``--games 0`` there are no scores: short runs in turns compare speeds. Processor time is that of all threads.

``cheetah``: HalfCheetah-v5, one environment, the same hyper-parameters and steps, one torch thread each; the
score is the mean return of the last 100 training episodes.

Each run is a separate process.
"""

import json
import os
import tempfile
import time

from processes import (
    Record,
    add_finished,
    median,
    parse_or_run,
    processor_s,
    run_in_process,
    shared_options,
    use_cores,
    version_of,
)

FRAMES_MAX = 27_000


class Limit:
    """A callback that ends a run after ``seconds`` of training and measures its processor time."""

    def __init__(self, seconds):
        self.seconds, self.cpu_s = seconds, 0.0

    def on_start(self, run):
        self.cpu_s = -processor_s()

    def on_record(self, record):
        return record.wall_time_s < self.seconds

    def on_end(self, result):
        self.cpu_s += processor_s()


def parl_breakout(case, seed):
    from parl.train import evaluate, train

    shared = {"env": "parl/Breakout-v0", "total_steps": 10**9, "evaluation_episodes": 0, "anneal": False}
    limit = f"max_num_frames_per_episode={FRAMES_MAX}"
    clock = Limit(case["seconds"])
    with tempfile.TemporaryDirectory() as runs:
        run = train(
            "ppo",
            preset=case["preset"],
            evaluation_env_options=("reward_clipping=False", "episodic_life=False", limit),
            seed=seed,
            quiet=True,
            runs=runs,
            checkpoint_every_s=10**6,
            callbacks=[clock],
            **(shared | case["options"]),
        )
        games = case["games"]
        scores = evaluate(run.path, games, checkpoint="last") if games else []
    return figures(run.env_steps, run.training_s, clock.cpu_s, scores)


def figures(steps, seconds, cpu_s, scores):
    """The figures of a run on Breakout; the scores are those of the games played at its end."""
    frames = 4 * steps
    rates = {"frames_per_s": frames / seconds, "frames_per_core_s": frames / cpu_s}
    found = {"frames": frames, "seconds": seconds, "cpu_s": cpu_s} | rates
    return found | ({"score": float(sum(scores)) / len(scores)} if len(scores) else {})


def rewrite_breakout(case, seed):
    import published_ppo as p
    import torch

    makers = [lambda i=i: p.atari_env("Breakout", seed + i) for i in range(p.ATARI.num_envs)]
    network = p.Pixels(4)
    steps, seconds, cpu_s, _ = p.train(makers, network, p.ATARI, seed, 10**9, case["seconds"])
    torch.set_num_threads(1)  # More threads do not speed up single pictures.
    scores = []
    env = p.atari_env("Breakout", 10**6 + seed, training=False)
    for game in range(case["games"]):
        obs, _ = env.reset(seed=10**6 + game)
        over, points, frames = False, 0.0, 0
        while not over and frames < FRAMES_MAX:
            with torch.no_grad():
                logits = network(torch.as_tensor(obs[None], dtype=torch.float32))[0].logits
            obs, reward, terminated, truncated, _ = env.step(int(logits.argmax()))
            points, frames, over = points + float(reward), frames + 4, terminated or truncated
        scores.append(points)
    return figures(steps, seconds, cpu_s, scores)


def parl_cheetah(case, seed):
    import torch

    from parl.run import read_metrics
    from parl.train import train

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as runs:
        run = train(
            "ppo",
            preset="mujoco",
            value_clip=0.2,
            seed=seed,
            threads=1,
            total_steps=case["steps"],
            evaluation_episodes=0,
            quiet=True,
            runs=runs,
        )
        found = [r["episode_return"] for r in read_metrics(run.path) if r.get("episode_return") is not None]
        return {"seconds": run.training_s, "steps": run.env_steps, "score": found[-1] if found else 0.0}


def rewrite_cheetah(case, seed):
    import published_ppo as p
    import torch

    torch.set_num_threads(1)
    makers = [lambda: p.continuous_env("HalfCheetah-v5")]
    steps, seconds, _, returns = p.train(makers, p.Vectors(17, 6), p.CONTINUOUS, seed, case["steps"])
    return {"seconds": seconds, "steps": steps, "score": mean_of_last(returns)}


def sb3_cheetah(case, seed):
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    env = VecNormalize(make_vec_env("HalfCheetah-v5", 1, seed=seed))
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=2_048,
        batch_size=64,
        n_epochs=10,
        learning_rate=lambda left: 3e-4 * left,
        clip_range=0.2,
        clip_range_vf=0.2,
        seed=seed,
        device="cpu",
    )
    started = time.time()
    model.learn(case["steps"])
    ended = time.time()
    returns = [episode["r"] for episode in model.ep_info_buffer]
    return {"seconds": ended - started, "steps": model.num_timesteps, "score": mean_of_last(returns)}


def mean_of_last(returns, count=100):
    """Mean of the last ``count`` returns, as in the metrics of parl's runs; 0 if there are none."""
    last = returns[-count:]
    return sum(last) / len(last) if last else 0.0


WORK = {
    "breakout": {"parl": parl_breakout, "rewrite": rewrite_breakout},
    "cheetah": {"parl": parl_cheetah, "sb3": sb3_cheetah, "rewrite": rewrite_cheetah},
}
PRESETS = ("atari-ram", "atari-small", "atari-cpu")
FIGURES = {
    "breakout": (
        ("frames", "frames", "frames"),
        ("training", "s", "seconds"),
        ("frames per second", "frames/s", "frames_per_s"),
        ("frames per core-second", "frames/s", "frames_per_core_s"),
        ("score", "points", "score"),
    ),
    "cheetah": (("training", "s", "seconds"), ("score", "return", "score")),
}
# Key of the figure and name of the ratio: parl's divided by the other's.
RATIOS = {
    "breakout": (
        ("frames_per_s", "speed ratio"),
        ("frames_per_core_s", "frames per core-second ratio"),
    ),
    "cheetah": (("seconds", "time ratio"),),
}


def work(case, seed):
    return WORK[case["what"]][case["name"]](case, seed)


def cases_of(what, options):
    """The cases that run in turns, parl's first: name -> what a process of :func:`work` gets."""
    if what == "cheetah":
        return {name: {"what": what, "name": name, "steps": int(options.steps)} for name in WORK[what]}
    shared = {"what": what, "seconds": 60 * options.minutes, "games": options.games}
    settings = json.loads(options.options)
    own = {f"parl, {one}": {"name": "parl", "preset": one, "options": settings} for one in options.presets}
    return {name: shared | case for name, case in (own | {"rewrite": {"name": "rewrite"}}).items()}


def claim_of(what, options):
    """The claim and the label of the rows of the record."""
    if what == "cheetah":
        return "ppo-cheetah", f"HalfCheetah-v5, {int(options.steps):,} steps"
    claim = "breakout-20" if options.games else "pictures-speed"
    return claim, f"Breakout, {options.minutes:g} minutes"


def add_to_record(record, what, options, rows):
    """Adds a comparison to the record."""
    names = {"sb3": "Stable-Baselines3", "rewrite": "rewrite with CleanRL's settings"}
    versions = {"sb3": version_of("stable-baselines3")}
    same = {"seeds": options.seeds}
    if what == "cheetah":
        same |= {"steps": int(options.steps), "threads": 1}
    claim, label = claim_of(what, options)
    for name, found in rows.items():
        library, _, preset = name.partition(", ")
        who = {"library": names.get(name, library), "version": versions.get(name, "")} | same
        case = f"{label}, {preset}" if preset else label
        for metric, unit, key in FIGURES[what]:
            if key != "score" or what == "cheetah" or options.games:
                record.add(claim, case, metric, unit, [row[key] for row in found], **who)
    for name, other, key, metric, ratios in ratios_of(what, rows):
        _, _, preset = name.partition(", ")
        bar = ">= 3" if (preset, key) == ("atari-small", "frames_per_s") else ""
        peer = {"peer": names[other], "version": versions.get(other, ""), "bar": bar} | same
        record.add(claim, f"{label}, {preset}" if preset else label, metric, "x", ratios, **peer)


def ratios_of(what, rows):
    """Yields parl's name, the other's, and for one of :data:`RATIOS` the ratios of all seeds."""
    own = [name for name in rows if name.startswith("parl")]
    for name in own:
        for other in set(rows) - set(own):
            for key, metric in RATIOS[what]:
                pairs = zip(rows[name], rows[other], strict=True)
                yield name, other, key, metric, [a[key] / b[key] for a, b in pairs]


def compare(record, what, options):
    """Runs all cases in turns, seed by seed."""
    cases = cases_of(what, options)
    rows = {name: [] for name in cases}
    for seed in range(options.seeds):
        for name, case in cases.items():
            row = run_in_process(__file__, case, seed, options.finished)
            rows[name].append(row)
            cells = "  ".join(f"{key} {value:,.1f}" for key, value in row.items())
            record.print(f"seed {seed}  {name:<18} {cells}  load {os.getloadavg()[0]:.1f}")
    for name, found in rows.items():
        middle = {key: median([row[key] for row in found]) for key in found[0]}
        record.print(
            f"{name:<18} median: " + "  ".join(f"{key} {value:,.1f}" for key, value in middle.items())
        )
    add_to_record(record, what, options, rows)
    for name, other, key, _, ratios in ratios_of(what, rows):
        record.print(
            f"{name} / {other}, {key}: median {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}"
        )


def main():
    parser = shared_options(__doc__)
    add_finished(parser)
    parser.add_argument("what", nargs="?", choices=sorted(WORK), default="breakout")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0..N")
    parser.add_argument("--minutes", type=float, default=20.0, help="minutes of training of breakout")
    parser.add_argument("--games", type=int, default=30, help="games of the score of breakout; 0: no score")
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=["atari-ram"], help="of parl")
    parser.add_argument("--options", default="{}", help="settings of parl in breakout, as JSON")
    parser.add_argument("--steps", type=float, default=1e6, help="number of steps of cheetah")
    options = parse_or_run(parser, work)
    if options is None:
        return
    cores = use_cores(options.cores)
    title = "PPO beside Stable-Baselines3 and a rewrite with CleanRL's settings"
    with Record(options.record, title, cores) as record:
        record.print(cores)
        compare(record, options.what, options)


if __name__ == "__main__":
    main()
