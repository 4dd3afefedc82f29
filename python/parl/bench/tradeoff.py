"""``parl bench tradeoff``: batching strategies of A2C, updates per second against steps per second.

Trains an actor-critic with V-trace (``parl train a2c``) with several strategies: an update every ``steps``
vector steps, from the last ``window`` steps of one of ``groups`` groups of environments. Long rollouts of all
environments give many steps and few updates per second, overlapping windows of few environments the opposite.
The benchmark measures which strategy reaches a score first. Advantages are not normalized, and the entropy
coefficient is 0.01.

Source of the strategies: Dalton and Frosio (2020), "Accelerating RL through GPU Atari emulation", table 2.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parl.bench.loops import (
    axes_of,
    check_figure,
    check_seconds,
    figure_line,
    make_loop,
    save,
    table,
)
from parl.errors import ParlError

_RECENT = 50


@dataclass(frozen=True)
class TradeoffOptions:
    """Measure updates and steps per second, and the time to a score, of batching strategies of A2C."""

    env: str = "CartPole-v1"
    """Gymnasium id of the environment."""
    env_options: tuple[str, ...] = ()
    """Keyword arguments of the environment, such as obs_type=ram stack_num=2 padding=reset."""
    num_envs: int = 64
    """Number of environments."""
    goal: float = 195.0
    """Score to reach: mean return of the last 50 training episodes."""
    seconds: float = 30.0
    """Largest duration per strategy; it ends earlier, a quarter of this time after the score is reached."""
    strategies: tuple[str, ...] = ("20/20/1", "5/5/1", "5/20/4", "1/5/4", "1/20/16")
    """Strategies, each as steps/window/groups."""
    learning_rate: float = 5e-4
    """Learning rate of all strategies. Rates that suit long rollouts are too large for many small updates."""
    seed: int = 0
    """Seed of all strategies."""
    device: str = "cpu"
    """Device of the learner."""
    out: Path = Path("tradeoff.png")
    """File of the figure."""

    def __post_init__(self) -> None:
        check_seconds(self.seconds)
        if not math.isfinite(self.goal):
            raise ParlError(f"goal is {self.goal}, expected a finite number")
        check_figure(self.out)


@dataclass(frozen=True)
class Strategy:
    """A batching strategy.

    Attributes:
        steps: vector steps between updates.
        window: number of steps that an update learns from.
        groups: number of groups of environments; updates use one group after the other.
    """

    steps: int
    window: int
    groups: int

    @classmethod
    def parse(cls, text: str) -> Strategy:
        """Parses ``steps/window/groups``.

        Raises:
            ParlError: the text does not have this form.
        """
        parts = text.split("/")
        if len(parts) != 3 or not all(part.isdigit() and int(part) for part in parts):
            raise ParlError(f"strategy is {text!r}, expected steps/window/groups, such as 5/20/4")
        return cls(*map(int, parts))

    def __str__(self) -> str:
        return f"{self.steps}/{self.window}/{self.groups}"


def bench(options: TradeoffOptions) -> Iterator[str]:
    """Runs the benchmark and writes the figure; yields the lines to print."""
    columns = ["steps/window/groups", "steps/s", "updates/s", "seconds to score", "steps to score", "return"]
    yield (
        f"a2c with V-trace, {options.env}, {options.num_envs} environments, learning rate "
        f"{options.learning_rate:g}, score {options.goal:g}, at most {options.seconds:g} s per strategy"
    )
    strategies = [Strategy.parse(text) for text in options.strategies]
    yield from table(columns, [])
    found: list[dict[str, Any]] = []
    for strategy in strategies:
        one = measure(options, strategy)
        found.append(one)
        cells = {
            columns[0]: str(strategy),
            "steps/s": f"{one['steps/s']:,.0f}",
            "updates/s": f"{one['updates/s']:,.0f}",
            "return": f"{one['return']:.1f}",
        }
        if one["seconds"] is not None:
            cells |= {columns[3]: f"{one['seconds']:.1f}", columns[4]: f"{one['steps']:,}"}
        yield table(columns, [cells])[-1]
    yield figure_line(lambda: draw(found, options))


def measure(options: TradeoffOptions, strategy: Strategy) -> dict[str, Any]:
    """Measures one strategy.

    Returns:
        The rates, seconds and steps to the score (None if it was not reached), and the last mean return.
    """
    loop = make_loop(
        "a2c",
        options.env,
        options.env_options,
        seed=options.seed,
        num_envs=options.num_envs,
        device=options.device,
        advantage="vtrace",
        anneal=False,
        learning_rate=options.learning_rate,
        # Normalized advantages stay large near convergence, where many small updates then harm the policy.
        normalize_advantages=False,
        entropy_coefficient=0.01,
        rollout_steps=strategy.steps,
        window=0 if strategy.window == strategy.steps else strategy.window,
        env_groups=strategy.groups,
    )
    recent: deque[float] = deque(maxlen=_RECENT)
    reached: tuple[float, int] | None = None
    started = time.monotonic()
    end = started + options.seconds
    try:
        while (now := time.monotonic()) < end:
            loop.advance(loop.env_steps + 10 * options.num_envs, 0.25)
            recent.extend(value for value, _ in loop.take_episodes())
            full = len(recent) == _RECENT
            if reached is None and full and sum(recent) / _RECENT >= options.goal:
                reached = (time.monotonic() - started, loop.env_steps)
                end = min(end, now + options.seconds / 4)
        elapsed = time.monotonic() - started
        return {
            "strategy": strategy,
            "steps/s": loop.env_steps / elapsed,
            "updates/s": loop.updates / elapsed,
            "seconds": reached[0] if reached else None,
            "steps": reached[1] if reached else None,
            "return": sum(recent) / len(recent) if recent else float("nan"),
        }
    finally:
        loop.close()


def draw(rows: list[dict[str, Any]], options: TradeoffOptions) -> Path:
    """Draws the rates of the strategies and their times to the score; returns the path of the figure."""
    figure, axes = axes_of(11, 4.5, panels=2)
    left, right = axes[0]
    for row in rows:
        left.plot(row["steps/s"], row["updates/s"], "o")
        left.annotate(str(row["strategy"]), (row["steps/s"], row["updates/s"]))
    left.set(xlabel="steps per second", ylabel="updates per second", yscale="log")
    left.set_title(f"{options.env}, {options.num_envs} environments; steps/window/groups")
    names = [str(row["strategy"]) for row in rows]
    right.bar(names, [row["seconds"] or options.seconds for row in rows])
    for position, row in enumerate(rows):
        if row["seconds"] is None:
            right.annotate("not reached", (position, options.seconds), ha="center", va="top", rotation=90)
    right.set(ylabel=f"seconds to a mean return of {options.goal:g}")
    return save(figure, options.out)
