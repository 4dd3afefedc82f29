"""Emulated frames per second on the device, plain and as a CUDA graph; start-up, compile time, memory.

Skip 4, pooled 84 x 84 gray stacks of 4, random actions, decorrelated starts, autoreset on.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from typing import Any
from unittest.mock import patch

import torch
from common import TWENTY, Record, arguments, here, machine

import parl
from parl import _native
from parl.atari.roms import rom_folder
from parl.cuda import nvrtc_folders

REPEATS = 5
SKIP = 4


def started(game: str, envs: int, device: str) -> Any:
    """Environments whose episodes have come apart."""
    env = parl.AtariVectorEnv(game, envs, device=device)
    env.reset(seed=0)
    for _ in range(100):
        env.step(torch.randint(env.single_action_space.n, (envs,), device=device))
    torch.cuda.synchronize(device)
    return env


def frames_per_second(env: Any, device: str, steps: int) -> list[float]:
    """Of `REPEATS` runs, each over random actions that lie there already."""
    envs = env.num_envs
    actions = torch.randint(env.single_action_space.n, (steps, envs), device=device)
    out = torch.empty((envs, *env.single_observation_space.shape), dtype=torch.uint8, device=device)
    rates = []
    for _ in range(REPEATS):
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        for row in actions:
            env.step(row, out=out)
        torch.cuda.synchronize(device)
        rates.append(SKIP * envs * steps / (time.perf_counter() - start))
    env.check()
    return rates


def graph_rate(env: Any, device: str, steps: int) -> float:
    """Frames per second of replays of one captured step."""
    actions = torch.randint(env.single_action_space.n, (env.num_envs,), device=device)
    out = torch.empty((env.num_envs, *env.single_observation_space.shape), dtype=torch.uint8, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        env.step(actions, out=out)
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    for _ in range(steps):
        graph.replay()
    torch.cuda.synchronize(device)
    return SKIP * env.num_envs * steps / (time.perf_counter() - start)


def main() -> int:
    given = arguments(envs=32_768, steps=20)
    folder, reason = rom_folder()
    if folder is None:
        print(f"no ROMs: {reason}")
        return 1
    facts = machine(given.device)
    record = Record(given.out, "speed", facts)
    steps = 5 if given.quick else 20
    major, minor = torch.cuda.get_device_capability(given.device)
    with tempfile.TemporaryDirectory() as cache, patch.dict(os.environ, {"PARL_CACHE_DIR": cache}):
        for name in ("first use", "from the cache"):
            target, seconds, files = _native.cuda_compile(10 * major + minor, nvrtc_folders(), False)
            record.add("compile", when=name, target=target, seconds=seconds, files=files)
    for envs in (256, 1024, 4096, 32_768):
        start = time.perf_counter()
        env = parl.AtariVectorEnv("breakout", envs, device=given.device)
        env.reset(seed=0)
        torch.cuda.synchronize(given.device)
        record.add(
            "start",
            game="breakout",
            envs=envs,
            seconds=time.perf_counter() - start,
            bytes_per_env=env.device_bytes / envs,
        )
        env.close()
        env = started("breakout", envs, given.device)
        rates = frames_per_second(env, given.device, steps)
        record.add(
            "frames per second", game="breakout", envs=envs, median=statistics.median(rates), all=rates
        )
        record.add(
            "frames per second, graph", game="breakout", envs=envs, rate=graph_rate(env, given.device, steps)
        )
        env.close()
    present = here(folder)
    games = given.games or (present[::10] if given.quick else present)
    medians: dict[str, float] = {}
    for game in games:
        env = started(game, given.envs, given.device)
        rates = frames_per_second(env, given.device, steps)
        medians[game] = statistics.median(rates)
        record.add("frames per second", game=game, envs=given.envs, median=medians[game], all=rates)
        env.close()
    twenty = [medians[game] for game in TWENTY if game in medians]
    if twenty:
        record.add(
            "median of the twenty games",
            games=len(twenty),
            envs=given.envs,
            frames_per_second=statistics.median(twenty),
        )
    worst = min(medians, key=medians.__getitem__)
    record.add("worst game", game=worst, envs=given.envs, frames_per_second=medians[worst])
    return 0


if __name__ == "__main__":
    sys.exit(main())
