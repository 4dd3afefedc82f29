"""Steps of Atari environments inside programs of JAX, beside `AtariVectorEnv.step` and EnvPool.

    python benches/python/jax_steps.py [--games pong breakout] [--num-envs 8 64] [--rounds 9] [--record]

Every side steps the same game with the same random actions, in turns within each round, with as many threads
as there are cores and EnvPool's settings (84 x 84 gray, stacks of four, four frames a step).

    step            `parl.AtariVectorEnv.step`, NumPy arrays
    scan            `parl.jax`: all steps in one `lax.scan`
    calls           `parl.jax`: one call of a compiled step for each step, states donated
    EnvPool, step   `step` of `envpool.make_gymnasium`
    EnvPool, scan   `envpool.make_gymnasium(...).xla()`: all steps in one `lax.scan`

A ratio is the speed of a side divided by that of its peer in the same round. EnvPool's `xla()` carries a
handle to its environments through the program; a state cannot be kept.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import parl
import parl.jax

sys.path.append(str(Path(__file__).parents[1]))

from record import Record, add_option, version_of

Array = np.ndarray[Any, Any]
ENVPOOL_IDS = {"pong": "Pong-v5", "breakout": "Breakout-v5", "seaquest": "Seaquest-v5"}
# Side -> the sides that its speed is divided by.
PEERS = {"scan": ("step", "EnvPool, scan"), "calls": ("step",), "EnvPool, scan": ("EnvPool, step",)}
BAR = {("scan", "step"): ">= 0.9", ("scan", "EnvPool, scan"): ">= 5"}


def parl_step(game: str, num_envs: int, threads: int, actions: Array) -> Callable[[], None]:
    envs = parl.make_vec(game, num_envs, preset="envpool", num_threads=threads)
    envs.reset(seed=0)

    def run() -> None:
        for row in actions:
            envs.step(row)

    return run


def parl_scan(game: str, num_envs: int, threads: int, actions: Array) -> Callable[[], None]:
    env = parl.jax.make(game, num_envs, preset="envpool", num_threads=threads)
    rows = jnp.asarray(actions)

    def body(state: Any, row: Any) -> tuple[Any, tuple[Any, Any]]:
        state, _, reward, terminated, *_ = env.step(state, row)
        return state, (reward, terminated)

    program = jax.jit(lambda state, rows: jax.lax.scan(body, state, rows), donate_argnums=0)
    held = [env.reset(jax.random.key(0))[0]]

    def run() -> None:
        held[0], results = program(held[0], rows)
        jax.block_until_ready((held[0], results))

    return run


def parl_calls(game: str, num_envs: int, threads: int, actions: Array) -> Callable[[], None]:
    env = parl.jax.make(game, num_envs, preset="envpool", num_threads=threads)
    # Indexing an array of JAX takes longer than a call.
    rows = [jnp.asarray(row) for row in actions]

    def one(state: Any, row: Any) -> tuple[Any, Any, Any]:
        state, _, reward, terminated, *_ = env.step(state, row)
        return state, reward, terminated

    step = jax.jit(one, donate_argnums=0)
    held = [env.reset(jax.random.key(0))[0]]

    def run() -> None:
        for row in rows:
            held[0], reward, terminated = step(held[0], row)
            jax.block_until_ready((held[0], reward, terminated))

    return run


def envpool_step(game: str, num_envs: int, threads: int, actions: Array) -> Callable[[], None]:
    import envpool

    envs = envpool.make_gymnasium(ENVPOOL_IDS[game], num_envs=num_envs, num_threads=threads, seed=0)
    envs.reset()

    def run() -> None:
        for row in actions:
            envs.step(row)

    return run


def envpool_scan(game: str, num_envs: int, threads: int, actions: Array) -> Callable[[], None]:
    import envpool

    envs = envpool.make_gymnasium(ENVPOOL_IDS[game], num_envs=num_envs, num_threads=threads, seed=0)
    envs.reset()
    handle, _, _, step = envs.xla()
    rows = jnp.asarray(actions)

    def body(handle: Any, row: Any) -> tuple[Any, tuple[Any, Any]]:
        handle, (_, reward, terminated, *_) = step(handle, row)
        return handle, (reward, terminated)

    program = jax.jit(lambda handle, rows: jax.lax.scan(body, handle, rows))
    held = [handle]

    def run() -> None:
        held[0], results = program(held[0], rows)
        jax.block_until_ready((held[0], results))

    return run


SIDES: dict[str, Callable[[str, int, int, Array], Callable[[], None]]] = {
    "step": parl_step,
    "scan": parl_scan,
    "calls": parl_calls,
    "EnvPool, step": envpool_step,
    "EnvPool, scan": envpool_scan,
}


def compare(game: str, num_envs: int, args: argparse.Namespace, record: Record) -> None:
    """Measures all sides, prints their speeds and ratios, and adds them to the record."""
    threads = len(os.sched_getaffinity(0))
    steps = max(1, args.steps // num_envs)
    count = len(parl.make_vec(game, preset="envpool").action_codes)
    actions = np.random.default_rng(0).integers(0, count, (steps, num_envs)).astype(np.int32)
    sides = {name: make(game, num_envs, threads, actions) for name, make in SIDES.items()}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(args.rounds + 1):
        for name in sorted(sides, reverse=bool(number % 2)):
            began = time.perf_counter()
            sides[name]()
            if number:  # The first round compiles.
                rates[name].append(steps * num_envs / (time.perf_counter() - began))
    about: dict[str, Any] = {"rounds": args.rounds, "threads": threads, "steps": steps * num_envs}
    version = version_of("envpool")
    conditions = f"rounds of {steps} steps of {num_envs} environments, JAX {version_of('jax')}"
    for name, values in rates.items():
        library = "envpool" if name.startswith("EnvPool") else "parl"
        case = f"{game}, {num_envs} environments, {name.removeprefix('EnvPool, ')}"
        own = {"library": library, "version": version if library == "envpool" else ""}
        record.print(f"{case}: {library}: {statistics.median(values):,.0f} environment steps/s")
        record.add(
            "jax-steps",
            case,
            "environment steps per second",
            "steps/s",
            values,
            spread="quartiles",
            conditions=conditions,
            **own,
            **about,
        )
        for peer in PEERS.get(name, ()):
            ratios = [ours / theirs for ours, theirs in zip(values, rates[peer], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            bar = BAR.get((name, peer), "")
            record.print(f"    beside {peer}: {middle:.2f} ({low:.2f} to {high:.2f}), bar {bar or 'none'}")
            record.add(
                "jax-steps",
                case,
                "speed ratio",
                "x",
                ratios,
                spread="quartiles",
                conditions=conditions,
                peer=peer if peer.startswith("EnvPool") else f"AtariVectorEnv.{peer}",
                library=library,
                version=version if "EnvPool" in (name[:7], peer[:7]) else "",
                bar=bar,
                **about,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", nargs="+", choices=sorted(ENVPOOL_IDS), default=["pong", "breakout"])
    parser.add_argument("--num-envs", nargs="+", type=int, default=[8, 64])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=4_096, help="of all environments together, in a round")
    add_option(parser, "jax-steps")
    args = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    with Record(args.record, "Environment steps in programs of JAX") as record:
        for game in args.games:
            for num_envs in args.num_envs:
                compare(game, num_envs, args, record)


if __name__ == "__main__":
    main()
