"""PPO beside Stable-Baselines3 and a rewrite with CleanRL's settings (published_ppo.py), in turns.

    python benches/learning/ppo_peers.py breakout --minutes 20 --seeds 1
    python benches/learning/ppo_peers.py cheetah --steps 1e6 --seeds 3
    ... --record    # writes the figures to benches/records/DATE-ppo-peers.csv

``breakout``: training for ``--minutes`` on all cores, from the start of collection. parl learns from the
console's 128 bytes (``--preset atari-ram``), or with ``--pixels`` from the same pictures as the rewrite. Both
are scored in the same way at the end: mean points of 30 whole games, greedy, up to 30 no-ops, no sticky
actions, 27,000 frames at most. ``cheetah``: HalfCheetah-v5, one environment, the same hyper-parameters and
steps, one torch thread each; the score is the mean return of the last 100 training episodes. Each run is a
separate process.
"""

import argparse
import json
import os
import tempfile
import threading
import time
import warnings

from processes import Record, add_cores, add_option, median, run_in_process, use_cores, version_of

GAMES, FRAMES_MAX = 30, 27_000


def parl_breakout(case, seed):
    from parl.train import evaluate, train

    shared = {"env": "parl/Breakout-v0", "total_steps": 10**9, "evaluation_episodes": 0, "anneal": False}
    limit = f"max_num_frames_per_episode={FRAMES_MAX}"
    with tempfile.TemporaryDirectory() as runs:
        timer = threading.Timer(case["seconds"], lambda: os.kill(os.getpid(), 2))
        timer.start()
        run = train(
            "ppo",
            preset="atari-cpu" if case["pixels"] else "atari-ram",
            evaluation_env_options=("reward_clipping=False", "episodic_life=False", limit),
            seed=seed,
            quiet=True,
            runs=runs,
            checkpoint_every_s=10**6,
            **(shared | case["options"]),
        )
        timer.cancel()
        score = float(evaluate(run.path, GAMES, checkpoint="last").mean())
        return {"frames": 4 * run.env_steps, "seconds": run.training_s, "score": score}


def rewrite_breakout(case, seed):
    import published_ppo as p
    import torch

    makers = [lambda i=i: p.atari_env("Breakout", seed + i) for i in range(p.ATARI.num_envs)]
    network = p.Pixels(4)
    steps, seconds, _ = p.train(makers, network, p.ATARI, seed, 10**9, case["seconds"])
    torch.set_num_threads(1)  # More threads do not speed up single pictures.
    scores = []
    env = p.atari_env("Breakout", 10**6 + seed, training=False)
    for game in range(GAMES):
        obs, _ = env.reset(seed=10**6 + game)
        over, points, frames = False, 0.0, 0
        while not over and frames < FRAMES_MAX:
            with torch.no_grad():
                logits = network(torch.as_tensor(obs[None], dtype=torch.float32))[0].logits
            obs, reward, terminated, truncated, _ = env.step(int(logits.argmax()))
            points, frames, over = points + float(reward), frames + 4, terminated or truncated
        scores.append(points)
    return {"frames": 4 * steps, "seconds": seconds, "score": sum(scores) / len(scores)}


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
    steps, seconds, returns = p.train(makers, p.Vectors(17, 6), p.CONTINUOUS, seed, case["steps"])
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


def add_to_record(record, what, case, rows):
    """Adds a comparison to the record."""
    names = {"sb3": "Stable-Baselines3", "rewrite": "rewrite with CleanRL's settings"}
    versions = {"sb3": version_of("stable-baselines3")}
    same = {"seeds": len(rows["parl"])}
    if what == "breakout":
        names["rewrite"] = "published PPO, rewritten"
        claim, label = "breakout-20", f"Breakout, {case['seconds'] / 60:g} minutes"
        metrics = (("frames", "frames", "frames"), ("score", "points", "score"))
    else:
        claim, label = "ppo-cheetah", f"HalfCheetah-v5, {case['steps']:,} steps"
        same |= {"steps": case["steps"], "threads": 1}
        metrics = (("training", "s", "seconds"), ("score", "return", "score"))
    for name, found in rows.items():
        who = {"library": names.get(name, name), "version": versions.get(name, "")} | same
        for metric, unit, key in metrics:
            record.add(claim, label, metric, unit, [row[key] for row in found], **who)
        if name != "parl":
            key = metrics[0][2]
            ratios = [a[key] / b[key] for a, b in zip(rows["parl"], found, strict=True)]
            peer = {"peer": who["library"], "version": who["version"]} | same
            record.add(claim, label, "speed ratio" if key == "frames" else "time ratio", "x", ratios, **peer)


def compare(record, what, case, seeds):
    rows = {name: [] for name in WORK[what]}
    record.print(f"{what} {json.dumps({key: value for key, value in case.items() if key != 'what'})}")
    for seed in range(seeds):
        for name in WORK[what]:
            row = run_in_process(__file__, case | {"what": what, "name": name}, seed)
            rows[name].append(row)
            cells = "  ".join(f"{key} {value:,.1f}" for key, value in row.items())
            record.print(f"seed {seed}  {name:<8} {cells}  load {os.getloadavg()[0]:.1f}")
    for name, found in rows.items():
        middle = {key: median([row[key] for row in found]) for key in found[0]}
        record.print(
            f"{name:<8} median: " + "  ".join(f"{key} {value:,.1f}" for key, value in middle.items())
        )
    add_to_record(record, what, case, rows)
    for name in list(rows)[1:]:
        pairs = list(zip(rows["parl"], rows[name], strict=True))
        key = "frames" if what == "breakout" else "seconds"
        ratios = [a[key] / b[key] for a, b in pairs]
        record.print(
            f"parl / {name}, {key}: median {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=sorted(WORK), default="breakout")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0..N")
    parser.add_argument("--minutes", type=float, default=20.0, help="minutes of training of breakout")
    parser.add_argument("--pixels", action="store_true", help="let parl learn from pictures in breakout")
    parser.add_argument("--options", default="{}", help="settings of parl in breakout, as JSON")
    parser.add_argument("--steps", type=float, default=1e6, help="number of steps of cheetah")
    add_cores(parser)
    add_option(parser, "ppo-peers")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.one:
        case = json.loads(arguments.one)
        print(json.dumps(WORK[case["what"]][case["name"]](case, arguments.seed)))
        return
    if arguments.what == "breakout":
        case = {"seconds": 60 * arguments.minutes, "pixels": arguments.pixels}
        case["options"] = json.loads(arguments.options)
    else:
        case = {"steps": int(arguments.steps)}
    cores = use_cores(arguments.cores)
    title = "PPO beside Stable-Baselines3 and a rewrite with CleanRL's settings"
    with Record(arguments.record, title, cores) as record:
        record.print(cores)
        compare(record, arguments.what, case, arguments.seeds)


if __name__ == "__main__":
    main()
