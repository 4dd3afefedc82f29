"""The command ``parl``. Every option is a field of a dataclass, with its help."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from parl.errors import ParlError, RunDirectoryError, UntrustedRunError

_USAGE = """\
usage: parl COMMAND [OPTIONS]

  train ALGORITHM    train an agent (parl train dqn --env CartPole-v1); algorithms: {algorithms}
  resume RUN         go on with a run from its last checkpoint
  eval RUN           play episodes greedily on fresh seeds and print the scores; --suite atari5 RUN... scores
                     several games as shares of what a person reaches
  plot RUN...        draw learning curves against steps and wall time
  bench atari        frames a second with a policy and with learning, over numbers of environments; figure
  bench tradeoff     updates and experience a second, time to a score over batching strategies; figure
  games [GAME...]    list the Atari games and whether their ROMs are here
  play GAME          play an Atari game in a window or the terminal
  record RUN -o F    play an episode as a run's best checkpoint does into an .mp4, .gif or .png file
  record GAME -o F   play an Atari game at random or from a script into such a file
  doctor             say what this machine has; with --env [preset], how the Atari presets play;
                     --sweep removes shared memory that dead processes left; --compile [device]
                     compiles the CUDA kernels and keeps them

parl COMMAND --help lists a command's options.
"""
# Exit status of a program ended by SIGINT, as shells give it.
_INTERRUPTED = 130


def _parse(kind: Any, prog: str, arguments: Sequence[str], default: Any = None) -> Any:
    """Reads ``arguments`` into the dataclass ``kind``; whole numbers may end in k, M or G."""
    import tyro

    from parl.run import parse_count

    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def count(info: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        if info.type is not int:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=lambda words: parse_count(words[0]),
            is_instance=lambda value: isinstance(value, int),
            str_from_instance=lambda value: [str(value)],
        )

    options = {} if default is None else {"default": default}
    with registry:
        return tyro.cli(tyro.conf.OmitArgPrefixes[kind], prog=prog, args=list(arguments), **options)


def _take_option(name: str, arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The value of ``--name VALUE`` or ``--name=VALUE`` and the arguments without it."""
    rest: list[str] = []
    value: str | None = None
    words = iter(arguments)
    for word in words:
        if word == name:
            value = next(words, None)
            if value is None:
                raise ParlError(f"{name} needs a value")
        elif word.startswith(name + "="):
            value = word[len(name) + 1 :]
        else:
            rest.append(word)
    return value, rest


@dataclasses.dataclass(frozen=True)
class _EnvironmentOptions:
    """The options that name the environment, which the defaults of the others depend on."""

    env: str | None = None
    env_options: tuple[str, ...] | None = None


def _environment_in(arguments: Sequence[str], prog: str) -> _EnvironmentOptions:
    """The options of the environment among ``arguments``; None for those not given."""
    import tyro

    words = [word for word in arguments if word not in ("-h", "--help")]
    return tyro.cli(_EnvironmentOptions, prog=prog, args=words, return_unknown_args=True)[0]


def _train(arguments: Sequence[str]) -> int:
    train = importlib.import_module("parl.train")
    names = sorted(train.ALGORITHMS)
    if not arguments or arguments[0].startswith("-"):
        print(f"usage: parl train ALGORITHM [OPTIONS]\n\nalgorithms: {', '.join(names)}")
        print("parl train ALGORITHM --help lists the options; --config FILE takes them from a TOML file,")
        print("--preset NAME from the algorithm's presets, which --presets lists, each tuned or untuned; the")
        print("others are chosen to suit the environment")
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    name, path, rest = arguments[0], *_take_option("--config", arguments[1:])
    preset, rest = _take_option("--preset", rest)
    if name not in names:
        raise ParlError(f"there is no algorithm {name!r}; there are: {', '.join(names)}")
    if "--presets" in rest:
        for line in _presets(train.presets_of(name)):
            print(line)
        return 0
    table = None
    if path is not None:
        from parl.run import load_toml

        if preset is not None:
            raise ParlError("--config and --preset exclude each other")
        table = load_toml(path)
    chosen_env = _environment_in(rest, f"parl train {name}")
    default = train.settings_for(name, chosen_env.env, chosen_env.env_options, preset, table, path or "")
    kind = dataclasses.make_dataclass(
        "Settings",
        [
            ("run", type(default[0]), dataclasses.field()),
            ("algorithm", type(default[1]), dataclasses.field()),
        ],
        frozen=True,
    )
    if preset is not None:
        print(*_presets({preset: train.presets_of(name)[preset]}), sep="\n")
    chosen = _parse(kind, f"parl train {name}", rest, kind(*default))
    return _summary(
        train.train(
            name, config=chosen.run, algorithm=chosen.algorithm, command=["parl", "train", *arguments]
        )
    )


def _presets(presets: dict[str, Any]) -> list[str]:
    """A line for each preset."""
    if not presets:
        return ["no presets"]
    width = max(map(len, presets))
    return [
        f"{name:<{width}}  {'tuned' if preset.tuned else 'untuned':<7}  "
        f"{preset.run.get('env', 'any environment')}: {preset.note}"
        for name, preset in presets.items()
    ]


def _summary(run: Any) -> int:
    """Prints how a run ended, draws its learning curve and gives its exit status."""
    if run.stopped == "followed":
        return 0  # the first process of torchrun says it
    score = "" if run.evaluation_return is None else f", evaluation mean {run.evaluation_return:.1f}"
    print(
        f"{run.path}: {run.env_steps:,} transitions, {run.updates:,} updates, "
        f"{run.training_s:.1f} s of training{score}, ended by {run.stopped}"
    )
    if importlib.util.find_spec("matplotlib") is not None:
        from parl.run.plot import plot_runs

        # A run too short for a finished episode has no curve.
        with contextlib.suppress(RunDirectoryError):
            print(f"learning curve: {plot_runs([run.path], _curve(run.path))}")
    return _INTERRUPTED if run.stopped == "interrupted" else 0


def _curve(run: Path) -> Path:
    return run / "plots" / "learning-curve.png"


def _trusting(work: Callable[[bool], Any], trust: bool) -> Any:
    """Does ``work`` with a run that is trusted or not; asks at a terminal where it has to be.

    Raises:
        UntrustedRunError: it has to be, and is not.
    """
    try:
        return work(trust)
    except UntrustedRunError as error:
        if not sys.stdin.isatty():
            raise
        print(f"parl: {error}", file=sys.stderr)
        if input("Load it now? [y/N] ").strip().lower() not in ("y", "yes"):
            raise
        return work(True)


@dataclasses.dataclass(frozen=True)
class _ResumeOptions:
    """Go on with a run from its last checkpoint."""

    run: Path
    """The run directory."""
    total_frames: int | None = None
    """Train up to this many transitions, instead of as many as before."""
    stop_at_return: float | None = None
    """End at this mean return of an evaluation, instead of the one before."""
    trust: bool = False
    """Load pickles of the run without asking: the code in them is run. Open only runs you trust."""


def _resume(arguments: Sequence[str]) -> int:
    import tyro

    options = _parse(tyro.conf.PositionalRequiredArgs[_ResumeOptions], "parl resume", arguments)
    train = importlib.import_module("parl.train")
    names = ("total_frames", "stop_at_return")
    changed = {name: value for name in names if (value := getattr(options, name)) is not None}
    return _summary(_trusting(lambda trust: train.resume(options.run, trust=trust, **changed), options.trust))


@dataclasses.dataclass(frozen=True)
class _EvalOptions:
    """Play episodes greedily on fresh seeds and print the scores."""

    run: Path
    """The run directory."""
    episodes: int = 100
    """How many episodes."""
    seed: int = 1_000_000
    """Seed of the first environment; far from those of training."""
    checkpoint: str = "best"
    """Which checkpoint: best or last."""
    video: Path | None = None
    """Also play one episode of an Atari game into this .mp4, .gif or .png file."""
    trust: bool = False
    """Load pickles of the run without asking: the code in them is run. Open only runs you trust."""


@dataclasses.dataclass(frozen=True)
class _SuiteOptions:
    """Score runs of several Atari games together, as shares of what a person reaches."""

    runs: tuple[Path, ...]
    """Run directories, one or more for each game."""
    suite: str = "atari5"
    """Games that count: atari5 or atari57."""
    episodes: int = 100
    """How many episodes of each run."""
    seed: int = 1_000_000
    """Seed of the first environment; far from those of training."""
    checkpoint: str = "best"
    """Which checkpoint: best or last."""
    trust: bool = False
    """Load pickles of the runs without asking: the code in them is run. Open only runs you trust."""


def _suite(arguments: Sequence[str]) -> int:
    import tyro

    from parl.atari.catalogue import find_id
    from parl.run import RunDirectory
    from parl.run.suites import SuiteScores

    options = _parse(tyro.conf.PositionalRequiredArgs[_SuiteOptions], "parl eval", arguments)
    train = importlib.import_module("parl.train")
    scores: dict[str, list[float]] = {}
    for run in options.runs:
        name = RunDirectory.open(run).config["run"]["env"]
        game = find_id(name) or name
        returns = train.evaluate(run, options.episodes, options.seed, options.checkpoint, trust=options.trust)
        scores.setdefault(game, []).append(float(returns.mean()))
        protocol = train.protocol(run, options.checkpoint, options.episodes)
        print(f"{run}: mean {returns.mean():.2f} of {len(returns)} episodes, {protocol}")
    found = SuiteScores.of(options.suite, scores)
    for game, value in sorted(found.games.items()):
        print(f"{game:<20} {value:8.3f} of human, {len(scores[game])} runs")
    print(
        f"{options.suite}: interquartile mean {found.iqm:.3f} (95 % {found.low:.3f} to {found.high:.3f}), "
        f"median game {found.median:.3f}, {len(found.games)} games"
    )
    if found.missing:
        print(f"without a run: {', '.join(found.missing)}")
    return 0


def _eval(arguments: Sequence[str]) -> int:
    import numpy as np
    import tyro

    from parl.run.scores import Scores

    if any(word == "--suite" or word.startswith("--suite=") for word in arguments):
        return _suite(arguments)

    options = _parse(tyro.conf.PositionalRequiredArgs[_EvalOptions], "parl eval", arguments)
    train = importlib.import_module("parl.train")

    def evaluate(trust: bool) -> Any:
        return train.evaluate(options.run, options.episodes, options.seed, options.checkpoint, trust=trust)

    returns = np.asarray(_trusting(evaluate, options.trust))
    protocol = train.protocol(options.run, options.checkpoint, options.episodes)
    scores = Scores.of(returns)
    print(f"{len(returns)} greedy episodes, {options.checkpoint} checkpoint, seed {options.seed}: {scores}")
    print(f"protocol: {protocol}")
    record = {
        "protocol": protocol,
        "checkpoint": options.checkpoint,
        "seed": options.seed,
        **dataclasses.asdict(scores),
        "returns": returns.tolist(),
    }
    with (options.run / "evaluations.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    if options.video is not None:
        record = importlib.import_module("parl.train").record
        score = record(
            options.run, options.video, seed=options.seed, checkpoint=options.checkpoint, trust=True
        )
        print(f"{options.video}: one episode, return {score:g}")
    return 0


@dataclasses.dataclass(frozen=True)
class _PlotOptions:
    """Draw learning curves of one or more runs against steps and wall time."""

    runs: tuple[Path, ...]
    """Run directories."""
    out: Path | None = None
    """PNG to write; by default plots/learning-curve.png in the first run."""
    y: str = "episode_return"
    """Key of the metrics to draw."""
    bands: bool = True
    """Draw runs that differ in their seed alone as their median in a band from lowest to highest."""


def _plot(arguments: Sequence[str]) -> int:
    import tyro

    from parl.run.plot import plot_runs

    options = _parse(tyro.conf.PositionalRequiredArgs[_PlotOptions], "parl plot", arguments)
    if not options.runs:
        raise ParlError("parl plot needs at least one run directory")
    out = options.out or _curve(options.runs[0])
    print(plot_runs(options.runs, out, y=options.y, bands=options.bands))
    return 0


def _bench(arguments: Sequence[str]) -> int:
    from parl.bench import atari, tradeoff

    kinds: dict[str, tuple[type[Any], Callable[[Any], Iterator[str]]]] = {
        "atari": (atari.AtariOptions, atari.bench),
        "tradeoff": (tradeoff.TradeoffOptions, tradeoff.bench),
    }
    if not arguments or arguments[0] not in kinds:
        raise ParlError(f"parl bench takes one of {', '.join(kinds)}, got {' '.join(arguments)!r}")
    options, work = kinds[arguments[0]]
    for line in work(_parse(options, f"parl bench {arguments[0]}", arguments[1:])):
        print(line, flush=True)
    return 0


def _doctor(arguments: Sequence[str]) -> int:
    from parl.run import doctor

    match list(arguments):
        case []:
            lines = doctor.report()
        case ["--sweep"]:
            gone = doctor.sweep()
            lines = [(f"removed {place}",) for place in gone] or [("no stale segments",)]
        case ["--env"]:
            lines = doctor.presets()
        case ["--env", preset]:
            lines = doctor.preset(preset)
        case ["--compile"]:
            lines = doctor.compiled("cuda")
        case ["--compile", device]:
            lines = doctor.compiled(device)
        case _:
            raise ParlError(
                "parl doctor takes --env [preset], --compile [device], --sweep or nothing, got "
                f"{' '.join(arguments)!r}"
            )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
    return 0


def _record(arguments: Sequence[str]) -> int:
    if not any((Path(word) / "config.toml").is_file() for word in arguments):
        return _atari("record", arguments)
    import argparse

    parser = argparse.ArgumentParser(
        prog="parl record", description="Play one greedy episode as a run's checkpoint does, into a file."
    )
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("-o", "--out", type=Path, required=True, help="file: .mp4, .gif or .png")
    parser.add_argument("--checkpoint", default="best", help="best or last (default best)")
    parser.add_argument("--seed", type=int, default=1_000_000, help="seed of the environment")
    parser.add_argument("--scale", type=int, help="height of a pixel (default 2 for Atari games, else 1)")
    parser.add_argument(
        "--trust", action="store_true", help="load pickles of the run without asking: the code in them is run"
    )
    options = parser.parse_args(list(arguments))
    record = importlib.import_module("parl.train").record

    def play(trust: bool) -> float:
        return record(options.run, options.out, options.seed, options.checkpoint, options.scale, trust=trust)

    score = _trusting(play, options.trust)
    print(f"{options.out}: one episode, return {score:g}")
    return 0


def _atari(command: str, arguments: Sequence[str]) -> int:
    from parl.atari import commands

    return commands.run(command, arguments)


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "train": _train,
    "resume": _resume,
    "eval": _eval,
    "plot": _plot,
    "bench": _bench,
    "doctor": _doctor,
    "games": functools.partial(_atari, "games"),
    "play": functools.partial(_atari, "play"),
    "record": _record,
}


def _usage() -> str:
    algorithms = importlib.import_module("parl.train").ALGORITHMS
    return _USAGE.format(algorithms=", ".join(sorted(algorithms)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns 0, 1 after an error, 2 for wrong usage, 130 after Ctrl-C (run saved)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    command = arguments[0] if arguments else "--help"
    if command in ("-h", "--help", "help"):
        print(_usage(), end="")
        return 0 if arguments else 2
    if command == "--version":
        import parl

        print(f"parl {parl.__version__}")
        return 0
    if command not in _COMMANDS:
        print(f"parl: there is no command {command!r}\n\n{_usage()}", end="", file=sys.stderr)
        return 2
    try:
        return _COMMANDS[command](arguments[1:])
    except (ParlError, FileNotFoundError) as error:
        print(f"parl: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
