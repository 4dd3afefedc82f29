"""``parl eval``: play greedy episodes with a run's policy and print the scores."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from parl.cli.arguments import UsageError, aligned, parse
from parl.cli.errors import message_of
from parl.cli.option_types import Flag, OptionalPath
from parl.cli.runs import SavedPolicies, ask_for_trust, some
from parl.run.directory import is_on_hub


@dataclasses.dataclass(frozen=True)
class EvalOptions:
    """Play greedy episodes on seeds that no training uses, the same in each call, and print the scores."""

    runs: SavedPolicies
    """Run directories, folders of checkpoints, or hf://user/repository on the Hugging Face Hub."""
    episodes: int = 100
    """Number of episodes of each run."""
    seed: int = 1_000_000
    """Seed of the first episode. Seeds from 2**23 on are used within runs: by their evaluations, and by
    training from 2**24 on."""
    checkpoint: Literal["best", "last"] = "best"
    """Checkpoint with the highest evaluation, or the last one."""
    suite: Annotated[
        Literal["atari5", "atari57"] | None, tyro.conf.arg(metavar="{atari5,atari57}", help_behavior_hint="")
    ] = None
    """Also print human-normalized scores of this suite of Atari games over all runs."""
    video: OptionalPath = None
    """Also record one episode in this .mp4, .gif or .png file."""
    verbose: Flag = False
    """Print the protocol of the evaluation as a table."""
    trust: Flag = False
    """Load pickles of the runs without asking. This runs the code in them: open only runs you trust."""


def eval_command(arguments: Sequence[str]) -> int:
    """Plays greedy episodes and prints their scores. Returns the exit status."""
    options: EvalOptions = parse(EvalOptions, "parl eval", arguments)
    runs = some(options.runs, "parl eval")
    if options.episodes < 1:
        raise UsageError(f"parl eval: --episodes is {options.episodes}, expected at least 1")
    if options.seed < 0:
        raise UsageError(f"parl eval: --seed is {options.seed}, expected at least 0")
    if options.video is not None and len(runs) > 1:
        raise UsageError(f"parl eval: --video takes one run, got {len(runs)}")
    played = [(run, *_evaluate(run, options)) for run in runs]
    if options.suite is not None:
        _print_suite(options.suite, [(of_run, mean) for _, of_run, mean in played])
    if options.video is not None:
        record = importlib.import_module("parl.train").record
        run = played[0][0]
        score = record(run, options.video, seed=options.seed, checkpoint=options.checkpoint, trust=True)
        print(f"{options.video}: one episode, return {score:g}")
    return 0


def _evaluate(run: str, options: EvalOptions) -> tuple[Path, float]:
    """Plays the episodes of one run, prints and stores their scores; returns its directory and the mean."""
    from parl.run.scores import Scores

    playing = importlib.import_module("parl.train.playing")
    protocol_line = importlib.import_module("parl.train.evaluation_protocol").protocol_line

    def evaluate(trust: bool) -> Any:
        return playing.evaluate_with_protocol(
            run, options.episodes, options.seed, options.checkpoint, trust=trust
        )

    returns, facts, policy = ask_for_trust(evaluate, options.trust)
    # A folder of a checkpoint stands for itself.
    checkpoint = options.checkpoint if policy.run == Path(run) else policy.folder.name
    protocol = protocol_line(facts)
    scores = Scores.of(returns)
    name = f"{run}: " if len(options.runs) > 1 else ""
    played = f"{len(returns)} greedy episodes, {checkpoint} checkpoint, seed {options.seed}"
    print(f"{name}{played}: {scores}")
    if options.verbose:
        print(aligned(facts))
    else:
        print(f"protocol: {protocol}")
    if is_on_hub(run):  # its folder is a cache
        return policy.run, scores.mean
    record = {
        "protocol": protocol,
        "checkpoint": checkpoint,
        "seed": options.seed,
        **dataclasses.asdict(scores),
        "returns": returns.tolist(),
    }
    try:
        with (policy.run / "evaluations.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    except OSError as error:  # a folder that cannot be written, or a full disk
        print(f"parl eval: the scores are not stored: {message_of(error)}", file=sys.stderr)
    return policy.run, scores.mean


def _print_suite(suite: str, means: Sequence[tuple[Path, float]]) -> None:
    from parl.atari.catalogue import find_id
    from parl.run import RunDirectory
    from parl.run.suites import SuiteScores

    scores: dict[str, list[float]] = {}
    for run, mean in means:
        name = RunDirectory.open(run).config["run"]["env"]
        scores.setdefault(find_id(name) or name, []).append(mean)
    found = SuiteScores.of(suite, scores)
    for game, value in sorted(found.games.items()):
        print(f"{game:<20} {value:8.3f} of human, {len(scores[game])} runs")
    print(
        f"{suite}: interquartile mean {found.iqm:.3f} (95 % {found.low:.3f} to {found.high:.3f}), "
        f"median game {found.median:.3f}, {len(found.games)} games"
    )
    if found.missing:
        print(f"without a run: {', '.join(found.missing)}")
