"""Search with `AtariVectorEnv.branch` beside the same search over ale-py's `cloneState` and `restoreState`.

    python benches/python/search.py [--rounds 7] [--seconds 3] [--only go-explore mcts] [--record]

Both play `examples/go_explore.py` and `examples/mcts.py`, in turns for the same short time in each round, and
count environment steps (4 frames) a second of wall-clock time, with everything that the search does besides.

    parl, 1 and 2 threads   `AtariVectorEnv.branch`
    ale-py                  the same functions over a stand-in for `branch`: for each sequence `restoreState`,
                            `act` for each step, `getRAM`, `cloneState`
    ale-py, few copies      Go-Explore run by run, not step by step: `restoreState` once for each run, and
                            `cloneState` only for a cell that is kept; fewer copies than with a vector of runs

ale-py's consoles make their picture in each frame; it has no option to leave it out. It runs in one thread.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ale_py
import numpy as np
from ale_py import roms
from gymnasium.spaces import Discrete

import parl
from parl.envs.atari.branches import BranchResult

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[2] / "examples"))
import go_explore
import mcts

from record import Record, add_option, version_of

Array = np.ndarray[Any, Any]
BAR = 5.0
GAMES = {
    "go-explore": ("montezuma_revenge", "pitfall"),
    "mcts": ("seaquest", "breakout", "ms_pacman", "space_invaders"),
}
RUNS, STEPS = 256, 100

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


class AlePy:
    """One console of ale-py with the methods of `parl.AtariVectorEnv` that the searches use.

    Args:
        game: the game.
        life_ends: whether a lost life ends an episode.
    """

    def __init__(self, game: str, life_ends: bool) -> None:
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("frame_skip", 4)
        self.ale.loadROM(roms.get_rom_path(game))
        self.life_ends, self.codes = life_ends, self.ale.getMinimalActionSet()
        self.single_action_space = Discrete(len(self.codes))
        self.memory = np.empty(128, np.uint8)

    def reset(self, seed: int) -> tuple[Array, dict[str, Any]]:
        del seed
        self.ale.reset_game()
        return self.ale.getRAM()[None], {}

    def get_state(self) -> Array:
        return boxed([self.ale.cloneState()], (1,))

    def branch(self, states: Array, actions: Array, observe: bool = True) -> BranchResult:
        """As `AtariVectorEnv.branch`: one sequence after the other."""
        count, branches, _ = actions.shape
        shape, ale = (count, branches), self.ale
        memory = np.empty((*shape, 128), np.uint8) if observe else None
        rewards, lengths, lives = (np.zeros(shape, np.int64) for _ in range(3))
        ends, after = np.zeros(shape, bool), []
        for n in range(count):
            for k in range(branches):
                ale.restoreState(states[n])
                before = ale.lives()
                for action in actions[n, k].tolist():
                    if ale.game_over() or (self.life_ends and ale.lives() < before):
                        break
                    rewards[n, k] += ale.act(self.codes[action])
                    lengths[n, k] += 1
                ends[n, k] = ale.game_over() or (self.life_ends and ale.lives() < before)
                if memory is not None:
                    ale.getRAM(memory[n, k])
                after.append(ale.cloneState())
        states = boxed(after, shape)
        cut = np.zeros(shape, bool)
        return BranchResult(memory, rewards, rewards, ends, cut, lengths, lives, states, None)


def boxed(states: list[Any], shape: tuple[int, ...]) -> Array:
    """States of ale-py as an array of objects."""
    array = np.empty(len(states), object)
    array[:] = states
    return array.reshape(shape)


def few_copies_round(
    envs: AlePy,
    archive: go_explore.Archive,
    cell_of: Callable[[Array], Array],
    rng: np.random.Generator,
    runs: int,
    steps: int,
) -> int:
    """As `go_explore.explore_round`, run by run: one `restoreState` each, `cloneState` for kept cells."""
    ale, count, done = envs.ale, envs.single_action_space.n, 0
    for place in archive.choose(rng, runs):
        points, length, parent, _ = archive.ways[place].tolist()
        ale.restoreState(archive.states[place])
        lives, action, taken = ale.lives(), int(rng.integers(count)), []
        for fresh, other in zip(rng.random(steps), rng.integers(count, size=steps).tolist(), strict=True):
            action = other if fresh >= go_explore.KEEP_ACTION else action
            taken.append(action)
            points += ale.act(envs.codes[action])
            length, done = length + 1, done + 1
            if ale.game_over() or ale.lives() < lives:
                break
            ale.getRAM(envs.memory)
            found = archive.visit(cell_of(envs.memory[None]).tobytes(), points, length)
            if found >= 0:
                archive.keep(found, ale.cloneState(), points, length, parent, np.array(taken, np.uint8))
    return done


class GoExplore:
    """Rounds of the exploration phase; a call runs one and returns its steps."""

    def __init__(self, envs: Any, game: str, one_round: Callable[..., int], runs: int) -> None:
        self.envs, self.round, self.runs = envs, one_round, runs
        self.cell_of, self.rng = go_explore.cell_function(game, "memory"), np.random.default_rng(0)
        self.archive = go_explore.start(envs, self.cell_of)

    def __call__(self) -> int:
        return self.round(self.envs, self.archive, self.cell_of, self.rng, self.runs, STEPS)


class Mcts:
    """Steps of a game, each with its own search; a call plays one and returns the steps searched."""

    def __init__(self, envs: Any) -> None:
        self.envs = envs
        envs.reset(seed=0)
        self.search = mcts.Search(envs, envs.get_state()[0], envs.single_action_space.n)

    def __call__(self) -> int:
        before = self.search.steps
        self.search.simulate(16)
        action = self.search.best()
        after = self.envs.branch(boxed_like(self.search.root.last), np.full((1, 1, 1), action))
        if after.terminated[0, 0] or after.truncated[0, 0]:
            self.envs.reset(seed=0)
            steps = self.search.steps
            self.search = mcts.Search(self.envs, self.envs.get_state()[0], self.envs.single_action_space.n)
            return steps - before
        self.search.advance(action, after.states[0, 0])
        return self.search.steps - before


def boxed_like(state: Any) -> Array:
    """One state as an array of states (1, ...)."""
    return state[None] if isinstance(state, np.ndarray) else boxed([state], (1,))


def sides(what: str, game: str) -> dict[str, Callable[[], int]]:
    """The searches to compare."""
    memory = {"obs_type": "ram", "stack_num": None}
    found: dict[str, Callable[[], int]] = {}
    if what == "mcts":
        for threads in (1, 2):
            found[f"parl, {threads}"] = Mcts(parl.AtariVectorEnv(game, num_threads=threads, **memory))
        found["ale-py"] = Mcts(AlePy(game, life_ends=False))
        return found
    plain = go_explore.explore_round
    for threads in (1, 2):
        envs = parl.AtariVectorEnv(game, num_threads=threads, **go_explore.RULES, **memory)
        found[f"parl, {threads}"] = GoExplore(envs, game, plain, RUNS)
    # Smaller rounds, since a round should not take longer than the time of a measurement.
    found["ale-py"] = GoExplore(AlePy(game, life_ends=True), game, plain, RUNS // 8)
    found["ale-py, few copies"] = GoExplore(AlePy(game, life_ends=True), game, few_copies_round, RUNS // 8)
    return found


def rate(call: Callable[[], int], seconds: float) -> float:
    """Steps a second over some time."""
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        done += call()
    return done / (time.perf_counter() - begin)


def compare(what: str, game: str, args: argparse.Namespace, record: Record) -> None:
    """Measures a search in a game, prints the rates and adds them to the record."""
    calls = sides(what, game)
    rates: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(args.rounds + 1):
        for name in sorted(calls, reverse=bool(number % 2)):
            value = rate(calls[name], args.seconds)
            if number:  # The first round fills archives, trees and caches.
                rates[name].append(value)
    conditions = f"rounds of {args.seconds} s, without sticky actions, memory as observation"
    about: dict[str, Any] = {"rounds": args.rounds, "conditions": conditions}
    peers = [name for name in rates if name.startswith("ale-py")]
    version = version_of("ale-py")
    for name, values in rates.items():
        library, _, detail = name.partition(", ")
        threads = int(detail) if library == "parl" else 1
        case = f"{what}, {game}" + (f", {detail}" if detail and library != "parl" else "")
        own = {"library": library, "version": "" if library == "parl" else version, "threads": threads}
        record.print(f"{what}, {game}: {name}: {statistics.median(values):,.0f} steps/s")
        record.add("search", case, "steps per second", "steps/s", values, spread="quartiles", **own, **about)
        for peer in peers if library == "parl" else ():
            ratios = [ours / theirs for ours, theirs in zip(values, rates[peer], strict=True)]
            middle = statistics.median(ratios)
            bar = f">= {BAR:g}" if peer == "ale-py" and threads == 2 else ""
            record.print(f"{what}, {game}: {name} beside {peer}: {middle:.1f}x, bar {bar or 'none'}")
            peer_case = f"{what}, {game}" + (", few copies" if peer != "ale-py" else "")
            peer_columns = {"peer": "ale-py", "version": version, "bar": bar, "threads": threads}
            record.add(
                "search", peer_case, "speed ratio", "x", ratios, spread="quartiles", **peer_columns, **about
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each side in a round")
    parser.add_argument("--only", nargs="+", choices=sorted(GAMES), default=sorted(GAMES))
    add_option(parser, "search")
    args = parser.parse_args()
    with Record(args.record, "Search over consoles beside ale-py") as record:
        for what in args.only:
            for game in GAMES[what]:
                compare(what, game, args, record)


if __name__ == "__main__":
    main()
