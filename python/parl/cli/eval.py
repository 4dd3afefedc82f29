"""``parl eval``: play greedy episodes with a run's policy and print the scores."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parl.cli.arguments import parse
from parl.cli.runs import ask_for_trust


@dataclasses.dataclass(frozen=True)
class EvalOptions:
    """Play greedy episodes on new seeds and print the scores."""

    run: Path
    """The run directory."""
    episodes: int = 100
    """Number of episodes."""
    seed: int = 1_000_000
    """Seed of the first episode. Training uses no seeds below 2**23."""
    checkpoint: str = "best"
    """Checkpoint: best or last."""
    video: Path | None = None
    """Also record one episode in this .mp4, .gif or .png file."""
    trust: bool = False
    """Load pickles of the run without asking. This runs the code in them: open only runs you trust."""


@dataclasses.dataclass(frozen=True)
class SuiteOptions:
    """Print human-normalized scores of runs of several Atari games."""

    runs: tuple[Path, ...]
    """Run directories, one or more per game."""
    suite: str = "atari5"
    """Suite of games: atari5 or atari57."""
    episodes: int = 100
    """Number of episodes of each run."""
    seed: int = 1_000_000
    """Seed of the first episode. Training uses no seeds below 2**23."""
    checkpoint: str = "best"
    """Checkpoint: best or last."""
    trust: bool = False
    """Load pickles of the runs without asking. This runs the code in them: open only runs you trust."""


def _suite(arguments: Sequence[str]) -> int:
    import tyro

    from parl.atari.catalogue import find_id
    from parl.run import RunDirectory
    from parl.run.suites import SuiteScores

    options = parse(tyro.conf.PositionalRequiredArgs[SuiteOptions], "parl eval", arguments)
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


def eval_command(arguments: Sequence[str]) -> int:
    """Plays greedy episodes and prints their scores. Returns the exit status."""
    import numpy as np
    import tyro

    from parl.run.scores import Scores

    if any(word == "--suite" or word.startswith("--suite=") for word in arguments):
        return _suite(arguments)

    options = parse(tyro.conf.PositionalRequiredArgs[EvalOptions], "parl eval", arguments)
    train = importlib.import_module("parl.train")

    def evaluate(trust: bool) -> Any:
        return train.evaluate(options.run, options.episodes, options.seed, options.checkpoint, trust=trust)

    returns = np.asarray(ask_for_trust(evaluate, options.trust))
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
