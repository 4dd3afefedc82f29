"""Go-Explore on Montezuma's Revenge and Pitfall: the exploration phase, by `AtariVectorEnv.branch`.

python examples/go_explore.py [montezuma_revenge | pitfall] [--minutes 10] [--cells memory | pictures]
                              [--points 400]

An archive holds, for each *cell* that was reached, the best trajectory to it: the console's state, the
points, the length. A cell is a coarse description of what the console shows: level, screen, inventory and
position in tiles, read from the console's memory, or with `--cells pictures` a gray picture of 11 x 8 pixels
with 8 shades. In every round some cells are drawn, and random actions continue from their states; every cell
on the trajectory that is new, or reached with more points or sooner, is kept. Nothing is learned. The actions
of the best trajectory are then replayed in an ordinary environment, which must give the same points, and
written to a file, from which `examples/robustify.py` makes a policy that works with sticky actions.

Source: Ecoffet, Huizinga, Lehman, Stanley, Clune (2021), "First return, then explore".
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import parl

Array = np.ndarray[Any, Any]

# Bytes of the console's memory that describe where the player is, and the number by which each is divided.
MEMORY = {
    "montezuma_revenge": {"level": 57, "screen": 3, "inventory": 65, "x": 42, "y": 43},
    "pitfall": {"screen": 1, "x": 97, "y": 105},
}
TILES = {"montezuma_revenge": {"x": 8, "y": 8}, "pitfall": {"x": 8, "y": 16}}
# A lost life ends an episode: no trajectory leads through it.
RULES: dict[str, Any] = {
    "life_loss": "ends",
    "noop_max": 0,
    "use_fire_reset": False,
    "max_num_frames_per_episode": None,
}
OBSERVATIONS: dict[str, dict[str, Any]] = {
    "memory": {"obs_type": "ram", "stack_num": None},
    "pictures": {"img_height": 8, "img_width": 11, "stack_num": None, "ram_info": True},
}
KEEP_ACTION = 0.95


def cell_function(game: str, kind: str) -> Callable[[Array], Array]:
    """A function from observations (N, ...) to the bytes that describe their cells, (N, fields) uint8."""
    if kind == "pictures":
        return lambda pictures: (pictures >> 5).reshape(len(pictures), -1)
    addresses = list(MEMORY[game].values())
    tiles = np.array([TILES[game].get(name, 1) for name in MEMORY[game]], np.uint8)
    return lambda memory: memory[:, addresses] // tiles


class Archive:
    """The best trajectory to each cell.

    A trajectory is a node: the node where it began and the actions since then.
    """

    def __init__(self) -> None:
        self.cells: dict[bytes, int] = {}
        self.states: list[Any] = []
        # Columns: points, length in steps, node, times seen since the trajectory was found.
        self.ways = np.zeros((64, 4), np.int64)
        self.nodes: list[tuple[int, Array]] = [(-1, np.empty(0, np.uint8))]

    def __len__(self) -> int:
        return len(self.cells)

    def choose(self, rng: np.random.Generator, count: int) -> Array:
        """Draws cells, those that were seen rarely more often."""
        weights = 1.0 / np.sqrt(self.ways[: len(self), 3] + 1.0)
        return rng.choice(len(self), count, p=weights / weights.sum())

    def visit(self, cell: bytes, points: int, length: int) -> int:
        """Counts a visit; returns the place to keep the trajectory at if it is the best one, otherwise -1."""
        place = self.cells.get(cell, -1)
        if place < 0:
            place = self.cells[cell] = len(self.cells)
            self.states.append(None)
            if place == len(self.ways):
                self.ways = np.concatenate([self.ways, self.ways])
        else:
            way = self.ways[place]
            if points < way[0] or (points == way[0] and length >= way[1]):
                way[3] += 1
                return -1
        return place

    def keep(self, place: int, state: Any, points: int, length: int, parent: int, actions: Array) -> None:
        """Keeps a trajectory, whose node continues the node `parent` with `actions`."""
        self.states[place] = state
        self.ways[place] = points, length, len(self.nodes), 0
        self.nodes.append((parent, actions))

    def best(self, enough: int | None = None) -> int:
        """The place with the most points, no more than `enough` counted, the shortest of them."""
        points, lengths = self.ways[: len(self), :2].T
        return int(np.lexsort((lengths, -np.minimum(points, enough or points.max())))[0])

    def actions_to(self, place: int) -> Array:
        """All actions from the start of the episode to a cell."""
        parts, node = [], int(self.ways[place, 2])
        while node >= 0:
            node, actions = self.nodes[node]
            parts.append(actions)
        return np.concatenate(parts[::-1])


def stacked(states: list[Any]) -> Array:
    """States as the rows of an array; zeros fill those that are shorter than others."""
    if not isinstance(states[0], np.ndarray):  # States of another emulator.
        array = np.empty(len(states), object)
        array[:] = states
        return array
    rows = np.zeros((len(states), max(map(len, states))), np.uint8)
    for row, state in zip(rows, states, strict=True):
        row[: len(state)] = state
    return rows


def explore_round(
    envs: Any,
    archive: Archive,
    cell_of: Callable[[Array], Array],
    rng: np.random.Generator,
    runs: int,
    steps: int,
) -> int:
    """Continues from `runs` cells with `steps` random actions each; returns the number of steps that ran."""
    chosen = archive.choose(rng, runs)
    states, done = stacked([archive.states[place] for place in chosen]), 0
    points, lengths, parents = (archive.ways[chosen, i] for i in range(3))
    taken = np.empty((runs, steps), np.uint8)
    actions = rng.integers(envs.single_action_space.n, size=runs)
    alive = np.arange(runs)
    for step in range(steps):
        fresh = rng.random(runs) >= KEEP_ACTION
        actions = np.where(fresh, rng.integers(envs.single_action_space.n, size=runs), actions)
        taken[:, step] = actions
        result = envs.branch(states, actions[alive][:, None, None])
        done += len(alive)
        points[alive] += result.raw_rewards[:, 0]
        goes_on = np.flatnonzero(~(result.terminated | result.truncated)[:, 0])
        alive, states = alive[goes_on], result.states[goes_on, 0]
        if len(alive) == 0:
            break
        cells = cell_of(result.observations[goes_on, 0])
        for i, (run, cell) in enumerate(zip(alive, cells, strict=True)):
            length = int(lengths[run]) + step + 1
            place = archive.visit(cell.tobytes(), int(points[run]), length)
            if place >= 0:
                way = (int(points[run]), length, int(parents[run]), taken[run, : step + 1].copy())
                # A copy, so that the other rows can be freed.
                archive.keep(place, states[i : i + 1].copy()[0], *way)
    return done


def start(envs: Any, cell_of: Callable[[Array], Array]) -> Archive:
    """An archive with the cell of the first observation of an episode."""
    obs, _ = envs.reset(seed=0)
    archive = Archive()
    place = archive.visit(cell_of(obs)[0].tobytes(), 0, 0)
    archive.keep(place, envs.get_state()[0], 0, 0, -1, np.empty(0, np.uint8))
    return archive


def replayed_points(game: str, actions: Array) -> int:
    """The points of a sequence of actions in an ordinary environment, step by step."""
    env = parl.AtariVectorEnv(game, **RULES, **OBSERVATIONS["memory"], reward_clipping=False)
    env.reset(seed=0)
    return sum(int(env.step(np.array([action]))[1][0]) for action in actions)


def main() -> None:
    quick = bool(os.environ.get("PARL_EXAMPLE_QUICK"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("game", nargs="?", default="montezuma_revenge", choices=sorted(MEMORY))
    parser.add_argument("--minutes", type=float, default=10.0, help="ends the exploration")
    parser.add_argument("--rounds", type=int, default=4 if quick else 10**9, help="ends it after rounds")
    parser.add_argument("--runs", type=int, default=16 if quick else 256, help="cells continued in a round")
    parser.add_argument("--steps", type=int, default=30 if quick else 100, help="steps of each")
    parser.add_argument("--cells", choices=sorted(OBSERVATIONS), default="memory")
    parser.add_argument("--points", type=int, help="write the shortest one to as many (default: the most)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", help="file for the best trajectory (default: GAME-way.npz)")
    options = parser.parse_args()

    envs = parl.AtariVectorEnv(options.game, **RULES, **OBSERVATIONS[options.cells])
    cell_of, rng = cell_function(options.game, options.cells), np.random.default_rng(options.seed)
    archive = start(envs, cell_of)
    begin = printed = time.monotonic()
    total, most = 0, 0
    for number in range(options.rounds):
        total += explore_round(envs, archive, cell_of, rng, options.runs, options.steps)
        now, points = time.monotonic(), int(archive.ways[archive.best(), 0])
        if points > most or now - printed > 20.0 or number == options.rounds - 1:
            screens = ""
            if options.cells == "memory":
                at = list(MEMORY[options.game]).index("screen")
                screens = f"{len({cell[at] for cell in archive.cells}):3} screens, "
            print(
                f"{now - begin:6.1f} s {total:12,} steps {total / (now - begin):8,.0f}/s: "
                f"{len(archive):7,} cells, {screens}{points:6,} points",
                flush=True,
            )
            most, printed = points, now
        if now - begin > 60.0 * options.minutes:
            break
    place = archive.best(options.points)
    actions, points = archive.actions_to(place), int(archive.ways[place, 0])
    replayed = replayed_points(options.game, actions)
    assert replayed == points, f"the replay has {replayed} points, the archive {points}"
    name = options.output or f"{options.game}-way.npz"
    np.savez_compressed(name, game=options.game, actions=actions, points=points)
    print(f"the best trajectory has {len(actions):,} steps and {points:,} points, also replayed: {name}")


if __name__ == "__main__":
    main()
