"""Atari vector environments side by side: parl, ale_py's AtariVectorEnv and EnvPool, in one process and in
turns.

``python benches/python/atari_vector.py`` prints emulated frames per core-second (process CPU time of all
threads, skipped frames counted) and per second of wall-clock, for the full pipeline: frame skip 4, max of two
frames, 84 x 84 gray, stack 4, random actions. A round gives every library the same short time; ratios are
taken within a round, their median and quartiles are printed. ``--json FILE`` keeps the numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

GAMES = (
    "pong", "breakout", "space_invaders", "seaquest", "ms_pacman", "qbert", "freeway", "enduro", "beam_rider",
    "montezuma_revenge",
)  # fmt: skip
FRAME_SKIP = 4


def camel(game: str) -> str:
    return "".join(word.capitalize() for word in game.split("_"))


def make_parl(game: str, envs: int, threads: int) -> tuple[Any, int]:
    import parl

    env = parl.AtariVectorEnv(game, envs, num_threads=threads)
    return env, env.single_action_space.n


def make_ale(game: str, envs: int, threads: int) -> tuple[Any, int]:
    import ale_py

    env = ale_py.AtariVectorEnv(game, envs, num_threads=threads)
    return env, env.single_action_space.n


def make_envpool(game: str, envs: int, threads: int) -> tuple[Any, int]:
    import envpool

    env = envpool.make_gymnasium(f"{camel(game)}-v5", num_envs=envs, num_threads=threads)
    return env, env.action_space.n


MAKERS: dict[str, Callable[[str, int, int], tuple[Any, int]]] = {
    "parl": make_parl,
    "ale_py": make_ale,
    "envpool": make_envpool,
}


class Runner:
    """One library's environments with actions drawn in advance."""

    def __init__(self, name: str, game: str, envs: int, threads: int) -> None:
        self.env, actions = MAKERS[name](game, envs, threads)
        rng = np.random.default_rng(0)
        self.actions = rng.integers(0, actions, (256, envs))
        if name == "envpool":
            self.actions = self.actions.astype(np.int32)
            self.env.reset()
        else:
            self.env.reset(seed=0)
        self.frames = envs * FRAME_SKIP
        self.at = 0

    def run(self, seconds: float) -> tuple[float, float]:
        """Frames per second of CPU time and of wall-clock."""
        steps = 0
        cpu, wall = time.process_time(), time.perf_counter()
        while time.perf_counter() - wall < seconds:
            self.env.step(self.actions[self.at % len(self.actions)])
            self.at += 1
            steps += 1
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return steps * self.frames / cpu, steps * self.frames / wall


def measure(
    game: str, envs: int, threads: int, libraries: list[str], rounds: int, seconds: float
) -> dict[str, Any]:
    runners = {name: Runner(name, game, envs, threads) for name in libraries}
    for runner in runners.values():
        runner.run(seconds)  # Warm caches, leave the first screens behind.
    per_core: dict[str, list[float]] = {name: [] for name in libraries}
    per_wall: dict[str, list[float]] = {name: [] for name in libraries}
    for i in range(rounds):
        for name in libraries[i % len(libraries) :] + libraries[: i % len(libraries)]:
            core, wall = runners[name].run(seconds)
            per_core[name].append(core)
            per_wall[name].append(wall)
    for runner in runners.values():
        runner.env.close()
    peers = [name for name in libraries if name != "parl"]
    result: dict[str, Any] = {"game": game, "envs": envs, "threads": threads}
    for kind, values in (("core", per_core), ("wall", per_wall)):
        result[kind] = {name: statistics.median(v) for name, v in values.items()}
        best = max(peers, key=lambda name: result[kind][name]) if peers else None
        if best is not None:
            ratios = sorted(a / b for a, b in zip(values["parl"], values[best], strict=True))
            result[f"{kind}_ratio"] = statistics.median(ratios)
            result[f"{kind}_ratio_spread"] = [ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]]
            result[f"{kind}_best_peer"] = best
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", default=",".join(GAMES))
    parser.add_argument("--envs", default="8,64")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--libraries", default="parl,ale_py,envpool")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    libraries = args.libraries.split(",")
    records = []
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; frames per core-second (wall)"
    )
    for threads in map(int, args.threads.split(",")):
        for envs in map(int, args.envs.split(",")):
            rows = []
            for game in args.games.split(","):
                row = measure(game, envs, threads, libraries, args.rounds, args.seconds)
                rows.append(row)
                rates = "  ".join(f"{n} {row['core'][n]:>9,.0f} ({row['wall'][n]:>9,.0f})" for n in libraries)
                low, high = row.get("core_ratio_spread", (0.0, 0.0))
                ratio = f"x{row.get('core_ratio', 0.0):.2f} [{low:.2f}, {high:.2f}]"
                print(f"{game:20} {envs:4} envs {threads} thr  {rates}  {ratio}")
            records += rows
            if len(libraries) > 1:
                core = sorted(row["core_ratio"] for row in rows)
                wall = sorted(row["wall_ratio"] for row in rows)
                print(
                    f"== {envs} envs, {threads} threads: "
                    f"per core-second median x{statistics.median(core):.2f}, "
                    f"worst x{core[0]:.2f}; wall-clock median x{statistics.median(wall):.2f}"
                )
    if args.json:
        machine = {"cpu": platform.processor(), "cores": os.cpu_count(), "python": platform.python_version()}
        args.json.write_text(json.dumps({"machine": machine, "rows": records}, indent=1))


if __name__ == "__main__":
    main()
