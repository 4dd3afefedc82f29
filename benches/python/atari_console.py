"""One console beside ale-py: frames per core-second, construction, saved states; each row with its bar.

``make bench-console`` (``RECORD=1`` writes the figures to ``benches/records``, ``GAMES=all`` plays all 104
games). Both play the same actions in one process, alternating after some dozen calls of ``act``. Figures are
processor time of the thread per frame, resets excluded. Each ratio is taken within a round, so that other
load affects both. A game's ratio is the median over its rounds. `through Python` compares
``parl.atari.Console.act`` with ``ALEInterface.act``; `core` compares the Rust console without Python
(``benches/rust/frames.rs``) with the same figures of ale-py. Screens are read after 2 of 4 calls, into an
existing array.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import ale_py
import numpy as np
from ale_py import roms

from parl.atari import Console, games

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from record import Record, add_option, version_of

ROOT = pathlib.Path(__file__).parents[2]
TWENTY = (
    "pong breakout space_invaders seaquest ms_pacman montezuma_revenge qbert freeway pitfall asteroids "
    "enduro beam_rider robotank solaris tutankham riverraid centipede hero battle_zone demon_attack"
).split()
EIGHT = "breakout enduro freeway ms_pacman pong qbert seaquest space_invaders".split()
# Which screens are read -> the bars for the median and the worst game.
SCREENS = {"no screen": (8.0, 4.5), "gray, 2 of 4": (4.5, 2.5), "rgb, 2 of 4": (None, None)}
CORE = {"no screen": "undrawn", "gray, 2 of 4": "gray"}
ACTS = 240
STICKY = 0.8
MIXED = 128
PARTS = ["frames", "mixed", "construction", "calls"]

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def ale(game: str) -> ale_py.ALEInterface:
    """A loaded interface without sticky actions."""
    interface = ale_py.ALEInterface()
    interface.setFloat("repeat_action_probability", 0.0)
    interface.loadROM(roms.get_rom_path(game))
    return interface


def script(actions: list[int], seed: int) -> Callable[[], int]:
    """A function that returns random actions, each repeated for some frames."""
    rng, held = random.Random(seed), [0]

    def following() -> int:
        if rng.random() >= STICKY:
            held[0] = rng.choice(actions)
        return held[0]

    return following


class ParlPlayer:
    """Plays a game on parl's console."""

    def __init__(self, game: str, screen: str) -> None:
        self.console = Console(game, seed=0)
        self.actions = [action.value for action in self.console.minimal_actions]
        height, width = self.console.screen_shape
        self.act = self.console.act
        self.out = np.zeros((height, width, 3) if screen.startswith("rgb") else (height, width), np.uint8)
        self.read = (
            self.console.read_screen_rgb if screen.startswith("rgb") else self.console.read_screen_gray
        )
        self.reads_screen = screen != "no screen"

    def prepare(self) -> int:
        """Starts an episode if the last one is over; returns :meth:`frames`."""
        if self.console.game_over:
            self.console.reset()
        return self.console.frame_number

    def frames(self) -> int:
        """Number of frames run so far."""
        return self.console.frame_number


class AlePyPlayer:
    """Plays a game with ale-py, with the methods of :class:`ParlPlayer`."""

    def __init__(self, game: str, screen: str) -> None:
        self.interface = ale(game)
        self.actions = [action.value for action in self.interface.getMinimalActionSet()]
        height, width = self.interface.getScreenDims()
        self.act = self.interface.act
        self.out = np.zeros((height, width, 3) if screen.startswith("rgb") else (height, width), np.uint8)
        rgb, gray = self.interface.getScreenRGB, self.interface.getScreenGrayscale
        self.read = rgb if screen.startswith("rgb") else gray
        self.reads_screen = screen != "no screen"

    def prepare(self) -> int:
        """As :meth:`ParlPlayer.prepare`."""
        if self.interface.game_over():
            self.interface.reset_game()
        return self.interface.getFrameNumber()

    def frames(self) -> int:
        """As :meth:`ParlPlayer.frames`."""
        return self.interface.getFrameNumber()


def time_per_frame_us(player: ParlPlayer | AlePyPlayer, actions: list[int]) -> float:
    """Microseconds of processor time per frame over some actions."""
    before = player.prepare()
    act, read, out = player.act, player.read, player.out
    if player.reads_screen:
        start = time.thread_time_ns()
        for number, action in enumerate(actions):
            act(action)
            if number & 2:
                read(out)
        spent = time.thread_time_ns() - start
    else:
        start = time.thread_time_ns()
        for action in actions:
            act(action)
        spent = time.thread_time_ns() - start
    return spent / 1e3 / max(1, player.frames() - before)


class Frames:
    """The Rust program ``frames``, which plays a game per line of its input."""

    def __init__(self) -> None:
        subprocess.run(
            [
                os.environ.get("CARGO", "cargo"),
                "build",
                "--quiet",
                "--release",
                "-p",
                "parl-benches",
                "--bin",
                "frames",
            ],
            cwd=ROOT,
            check=True,
        )
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        folder = pathlib.Path(roms.get_rom_path("pong")).parent
        self.process = subprocess.Popen(
            [str(target / "release/frames"), "serve", "2000"],
            env=os.environ | {"ALE_ROMS_DIR": str(folder)},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def us(self, game: str, what: str) -> float:
        """Microseconds of processor time per act."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{game} {what}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def with_spread(values: list[float], unit: str = "x", digits: int = 2) -> str:
    low, middle, high = quartiles(values)
    return f"{middle:.{digits}f}{unit} ({low:.{digits}f}..{high:.{digits}f})"


class Table:
    """A printed table of rows with bars, whose figures are also added to the record."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.lines = ["| what | parl | ale-py | ratio (quartiles) | bar | met |", "|---|---|---|---|---|---|"]
        self.missed: list[str] = []
        print("\n".join(self.lines), flush=True)

    def add_to_record(
        self,
        claim: str,
        what: str,
        unit: str,
        sides: tuple[float | None, float | None],
        ratios: list[float],
        bar: float | None,
        rounds: int,
    ) -> None:
        """Adds a row to the record: the figures of parl and ale-py (or None), and the ratios."""
        metric = "frames per core-second" if unit == "frames/s" else "time"
        same: dict[str, object] = {"rounds": rounds, "threads": 1}
        version = version_of("ale-py")
        for library, value in zip(("parl", "ale-py"), sides, strict=True):
            if value is not None:
                who = {"library": library, "version": "" if library == "parl" else version} | same
                self.record.add(claim, what, metric, unit, value, **who)
        peer = {"peer": "ale-py", "version": version, "bar": "" if bar is None else f">= {bar:g}"} | same
        self.record.add(claim, what, "speed ratio", "x", ratios, spread="quartiles", **peer)

    def add(self, what: str, parl: str, other: str, ratio: str, value: float, bar: float | None) -> None:
        """Prints a row; ``value`` must reach ``bar``."""
        met = "" if bar is None else "yes" if value >= bar else "NO"
        if met == "NO":
            self.missed.append(what)
        self.lines.append(
            f"| {what} | {parl} | {other} | {ratio} | {'' if bar is None else f'>= {bar:g}x'} | {met} |"
        )
        print(self.lines[-1], flush=True)


def one_game(
    game: str, screen: str, rounds: int, core: Frames
) -> tuple[list[float], list[float], list[float]]:
    """Microseconds per frame of a game in each round: parl, ale-py, parl's core."""
    ours, theirs = ParlPlayer(game, screen), AlePyPlayer(game, screen)
    following = script(ours.actions, 5)
    times: tuple[list[float], list[float], list[float]] = ([], [], [])
    for number in range(rounds + 1):
        actions = [following() for _ in range(ACTS)]
        measured = (
            time_per_frame_us(ours, actions),
            time_per_frame_us(theirs, actions),
            core.us(game, CORE[screen]) if screen in CORE else float("nan"),
        )
        # The first round fills caches.
        if number:
            for values, value in zip(times, measured, strict=True):
                values.append(value)
    return times


def frame_rows(table: Table, chosen: list[str], rounds: int, core: Frames) -> list[str]:
    """Rows of frames per core-second, and a line for each game."""
    details: dict[str, list[str]] = {game: [game] for game in chosen}
    for screen, (bar_median, bar_worst) in SCREENS.items():
        ratios, core_ratios, ours_us, theirs_us = {}, {}, {}, {}
        for game in chosen:
            ours, theirs, native = one_game(game, screen, rounds, core)
            each = [b / a for a, b in zip(ours, theirs, strict=True)]
            ratios[game] = statistics.median(each)
            core_ratios[game] = statistics.median(b / a for a, b in zip(native, theirs, strict=True))
            ours_us[game], theirs_us[game] = statistics.median(ours), statistics.median(theirs)
            about = {"rounds": rounds, "threads": 1, "conditions": screen, "spread": "quartiles"}
            peer = {"version": version_of("ale-py")} | about
            table.record.add("console-games", game, "time per frame", "us", ours, **about)
            table.record.add("console-games", game, "time per frame", "us", theirs, library="ale-py", **peer)
            table.record.add("console-games", game, "speed ratio", "x", each, peer="ale-py", **peer)
            if screen in CORE:
                value = core_ratios[game]
                table.record.add("console-games", game, "core speed ratio", "x", value, peer="ale-py", **peer)
            details[game] += [f"{ours_us[game]:.1f}", f"{theirs_us[game]:.1f}", with_spread(each)]
            if screen in CORE:
                details[game].append(f"{core_ratios[game]:.2f}x")
        for name, found in (("through Python", ratios), ("core", core_ratios)):
            if name == "core" and screen not in CORE:
                continue
            worst = min(found, key=found.__getitem__)
            values = list(found.values())
            rate = [1e6 / statistics.median(us.values()) for us in (ours_us, theirs_us)]
            label = f"{screen}, {name}: median of {len(found)} games"
            middle = statistics.median(values)
            spread = with_spread(values) if len(values) > 1 else f"{middle:.2f}x"
            parl = f"{rate[0]:,.0f}/s" if name != "core" else ""
            table.add(label, parl, f"{rate[1]:,.0f}/s", spread, middle, bar_median)
            sides = (rate[0] if name != "core" else None, rate[1])
            table.add_to_record("console", label, "frames/s", sides, values, bar_median, rounds)
            slowest = f"{screen}, {name}: worst of {len(found)} ({worst})"
            table.add_to_record(
                "console", slowest, "frames/s", (None, None), [found[worst]], bar_worst, rounds
            )
            table.add(
                slowest,
                "",
                "",
                f"{found[worst]:.2f}x",
                found[worst],
                bar_worst,
            )
    head = ["game"]
    for screen in SCREENS:
        head += [f"{screen}: parl us", "ale-py us", "ratio", *(["core"] if screen in CORE else [])]
    return [
        "| " + " | ".join(head) + " |",
        "|---" * len(head) + "|",
        *("| " + " | ".join(cells) + " |" for cells in details.values()),
    ]


def mixed_rows(table: Table, rounds: int) -> None:
    """Many consoles of eight games in turn, so that caches and branch predictors stay cold."""

    def sweep(players: list[ParlPlayer] | list[AlePyPlayer], scripts: list[Callable[[], int]]) -> float:
        before = sum(player.prepare() for player in players)
        calls = [(player.act, following()) for player, following in zip(players, scripts, strict=True)]
        start = time.thread_time_ns()
        for act, action in calls:
            act(action)
        spent = time.thread_time_ns() - start
        return spent / 1e3 / max(1, sum(player.frames() for player in players) - before)

    many = [EIGHT[i % len(EIGHT)] for i in range(MIXED)]
    ours = [ParlPlayer(game, "no screen") for game in many]
    for count in (len(EIGHT), MIXED):
        theirs = [AlePyPlayer(game, "no screen") for game in many[:count]]
        our_scripts = [script(player.actions, i) for i, player in enumerate(ours)]
        their_scripts = [script(player.actions, i) for i, player in enumerate(theirs)]
        pairs = []
        for number in range(rounds + 1):
            mine = sweep(ours, our_scripts)
            other = statistics.mean(sweep(theirs, their_scripts) for _ in range(MIXED // count // 4 or 1))
            if number:
                pairs.append((mine, other))
        ratios = [other / mine for mine, other in pairs]
        us = [statistics.median(pair[i] for pair in pairs) for i in (0, 1)]
        what = f"8 games mixed, {MIXED} consoles in turn; ale-py {count}"
        bar = 4.5 if count == len(EIGHT) else None
        table.add_to_record("console", what, "frames/s", (1e6 / us[0], 1e6 / us[1]), ratios, bar, rounds)
        table.add(
            what,
            f"{1e6 / us[0]:,.0f}/s",
            f"{1e6 / us[1]:,.0f}/s",
            with_spread(ratios),
            statistics.median(ratios),
            bar,
        )


def timed(work: Callable[[], object], repeats: int = 1) -> float:
    """Microseconds of processor time of a call."""
    start = time.thread_time_ns()
    for _ in range(repeats):
        work()
    return (time.thread_time_ns() - start) / 1e3 / repeats


COLD = """
import sys, time
from parl.atari import Console
start = time.thread_time_ns()
Console(sys.argv[1], seed=0)
print((time.thread_time_ns() - start) / 1e3)
"""


def construction_rows(table: Table, chosen: list[str]) -> None:
    """Construction and reset of a console, beside construction of an interface and loading of its ROM."""
    rows: dict[str, tuple[list[float], list[float]]] = {}
    for game in chosen:
        cold = subprocess.run([sys.executable, "-c", COLD, game], capture_output=True, text=True, check=True)
        Console(game, seed=0)
        theirs = min(timed(lambda game=game: ale(game)) for _ in range(2))
        warm = min(timed(lambda game=game: Console(game, seed=0)) for _ in range(5))
        reset = min(timed(lambda game=game: Console(game, seed=0).reset()) for _ in range(5))
        for name, value in (
            ("a process's first console with a ROM", float(cold.stdout)),
            ("a further console", warm),
            ("a further console, and one more reset", reset),
        ):
            ours, others = rows.setdefault(name, ([], []))
            ours.append(value)
            others.append(theirs)
    for name, (ours, others) in rows.items():
        ratios = [b / a for a, b in zip(ours, others, strict=True)]
        what = f"construct and reset: {name}, median of {len(ratios)} games"
        # The first console with a ROM decodes it and runs the frames of its boot.
        bar = None if "first" in name else 100.0
        middle = (statistics.median(ours), statistics.median(others))
        table.add_to_record("console-calls", what, "us", middle, ratios, bar, 5)
        table.add_to_record(
            "console-calls", f"{what}, worst game", "us", (None, None), [min(ratios)], None, 5
        )
        table.add(
            what,
            f"{statistics.median(ours):,.0f} us",
            f"{statistics.median(others):,.0f} us",
            with_spread(ratios, digits=0) + f", worst {min(ratios):.0f}x",
            statistics.median(ratios),
            bar,
        )


def call_rows(table: Table, rounds: int, core: Frames) -> None:
    """Times of a call in which no frame runs, and of saving and loading states."""
    ours = Console("breakout", seed=0, max_num_frames_per_episode=1)
    theirs = ale_py.ALEInterface()
    theirs.setInt("max_num_frames_per_episode", 1)
    theirs.loadROM(roms.get_rom_path("breakout"))
    ours.act(0), theirs.act(0)
    assert ours.game_over and theirs.game_over()
    playing = Console("breakout", seed=0)
    state, other = playing.save(), theirs.cloneState(include_rng=True)
    for name, mine, peer in (
        ("a call of act in which no frame runs", lambda: ours.act(0), lambda: theirs.act(0)),
        ("save, from Python", playing.save, lambda: theirs.cloneState(include_rng=True)),
        ("load, from Python", lambda: playing.load(state), lambda: theirs.restoreState(other)),
    ):
        a, b = zip(*((timed(mine, 300), timed(peer, 300)) for _ in range(rounds)), strict=True)
        ratios = [y / x for x, y in zip(a, b, strict=True)]
        middle = (statistics.median(a), statistics.median(b))
        table.add_to_record("console-calls", name, "us", middle, ratios, None, rounds)
        table.add(
            name,
            f"{statistics.median(a):.2f} us",
            f"{statistics.median(b):.2f} us",
            with_spread(ratios),
            statistics.median(ratios),
            None,
        )
    for what in ("save", "load"):
        us = [core.us("breakout", what) for _ in range(rounds)]
        middle = statistics.median(us)
        about = {"spread": "quartiles", "rounds": rounds, "threads": 1, "bar": "<= 1"}
        table.record.add("console-calls", f"{what}, in Rust", "time", "us", us, **about)
        table.add(
            f"{what}, in Rust", with_spread(us, " us"), "bar: 1 us", f"{1 / middle:.1f}x", 1 / middle, 1.0
        )


def main() -> int:
    """Prints the table; returns 1 if a bar was missed and ``--strict`` is given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", default="twenty", help="names, or `twenty`, or `all`")
    parser.add_argument("--rounds", type=int, default=15, help="rounds per game")
    parser.add_argument("--only", action="append", choices=PARTS, help="parts of the table (default: all)")
    add_option(parser, "console")
    parser.add_argument("--strict", action="store_true", help="fail if a bar is missed")
    options = parser.parse_args()
    playable = [game.id for game in games() if game.players == 1 and game.found]
    chosen = {"twenty": TWENTY, "all": playable}.get(options.games, options.games.split(","))
    if unknown := [game for game in chosen if game not in playable]:
        parser.error(f"no ROM, or no game for one player: {', '.join(unknown)}")
    core = Frames()
    record = Record(options.record, f"One Atari console beside ale-py, {len(chosen)} games")
    table = Table(record)
    parts = options.only or PARTS
    details = frame_rows(table, chosen, options.rounds, core) if "frames" in parts else []
    if "mixed" in parts:
        mixed_rows(table, options.rounds)
    if "construction" in parts:
        construction_rows(table, chosen[:20])
    if "calls" in parts:
        call_rows(table, options.rounds, core)
    if options.record:
        print(f"recorded in {record.write()}")
    else:
        print("\n".join(["", *details]))
    if table.missed:
        print("missed: " + "; ".join(table.missed))
    return int(options.strict and bool(table.missed))


if __name__ == "__main__":
    sys.exit(main())
