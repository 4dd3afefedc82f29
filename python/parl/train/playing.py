"""Episodes that a run's policy plays after training: scores, how they are measured, and videos."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parl.ops.bounds import integer
from parl.run import RunDirectory
from parl.train.evaluation_protocol import protocol_facts, protocol_of
from parl.train.saved_runs import load

if TYPE_CHECKING:
    from parl.train.policy import Policy


@contextlib.contextmanager
def kept_threads() -> Generator[None]:
    """Context that restores the number of torch's threads, which runs and evaluations change."""
    try:
        import torch
    except ImportError:  # They name the extra that installs it.
        yield
        return
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def evaluate(
    path: str | Path,
    episodes: int = 100,
    seed: int = 1_000_000,
    checkpoint: str = "best",
    *,
    trust: bool = False,
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Plays greedy episodes with a run's policy.

    Args:
        path: the run directory.
        episodes: number of episodes, each in a freshly seeded environment.
        seed: seed of the first episode; episode i uses ``seed + i``. Runs use no seeds below 2**23, neither
            in training nor in their own evaluations.
        checkpoint: ``"last"``; or ``"best"``, the one with the highest score, which is too high on average,
            because the checkpoint was chosen by it.
        trust: load pickles of the run, see :func:`resume`.

    Returns:
        (episodes,) float64, the undiscounted returns.

    Raises:
        ConfigError: ``episodes`` is below 1, or ``seed`` below 0.
        FileNotFoundError: there is no run, or it has no checkpoint.
    """
    return evaluate_with_protocol(path, episodes, seed, checkpoint, trust=trust)[0]


@kept_threads()
def evaluate_with_protocol(
    path: str | Path,
    episodes: int = 100,
    seed: int = 1_000_000,
    checkpoint: str = "best",
    *,
    trust: bool = False,
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], list[tuple[str, str]], Policy]:
    """As :func:`evaluate`; also returns the protocol as :func:`protocol_table` does, and the policy.

    They are those of the weights that played: a run in progress may have replaced its checkpoints since.
    """
    from parl.runtime.evaluate import Evaluator

    episodes, seed = integer("episodes", episodes, 1), integer("seed", seed, 0)
    policy = _load_for_playing(path, checkpoint, trust)
    facts = protocol_facts(RunDirectory.open(policy.run), policy.env_steps, episodes)
    evaluator = Evaluator(policy.env_maker, policy.acting, policy.spec)
    try:
        return evaluator.play(episodes, seed), facts, policy
    finally:
        evaluator.close()


def protocol(path: str | Path, checkpoint: str = "best", episodes: int | None = None) -> str:
    """One line that says how scores of the run at ``path`` are measured, to be reported with them.

    Args:
        path: the run directory.
        checkpoint: ``"best"`` or ``"last"``.
        episodes: number of episodes of the score, to include in the line; None leaves it out.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
    """
    return protocol_of(*_steps_of(path, checkpoint), episodes)


def protocol_table(
    path: str | Path, checkpoint: str = "best", episodes: int | None = None
) -> list[tuple[str, str]]:
    """The line of :func:`protocol` as a table of (name, value)."""
    return protocol_facts(*_steps_of(path, checkpoint), episodes)


def _steps_of(path: str | Path, checkpoint: str) -> tuple[RunDirectory, int]:
    """The run at ``path``, and the number of steps after which a checkpoint was saved."""
    run = RunDirectory.open(path)
    folder = run.checkpoints.verified(checkpoint, only=["counters.json"])
    return run, int(json.loads((folder / "counters.json").read_text(encoding="utf-8"))["env_steps"])


def _load_for_playing(path: str | Path, checkpoint: str, trusted: bool) -> Policy:
    """Returns the policy of a checkpoint; torch uses one thread if it is small."""
    policy = load(path, checkpoint, trust=trusted)
    if not policy.spec.has_images:
        import torch

        torch.set_num_threads(1)  # Several threads make small networks slower.
    return policy


@kept_threads()
def record(
    path: str | Path,
    out: str | Path,
    seed: int = 1_000_000,
    checkpoint: str = "best",
    scale: int | None = None,
    *,
    trust: bool = False,
) -> float:
    """Plays one greedy episode with a run's policy and writes a video of it.

    Args:
        path: the run directory.
        out: file to write, ``.mp4``, ``.gif`` or ``.png``; its folder is created if missing. An ``.mp4`` of
            an Atari game that ran on the CPU has sound.
        seed: seed of the environment.
        checkpoint: ``"best"`` or ``"last"``.
        scale: height of each pixel in the file, in pixels; by default 2 for Atari games, else 1.
        trust: load pickles of the run, see :func:`resume`.

    Returns:
        The return of the episode.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ConfigError: the environment does not render pictures, the type of the file is not supported, or
            ``seed`` or ``scale`` is out of its bounds.
    """
    from parl.atari.pictures import write_frames
    from parl.train.player import Player

    seed = integer("seed", seed, 0)
    scale = None if scale is None else integer("scale", scale, 1)
    policy = _load_for_playing(path, checkpoint, trust)
    player = Player(policy.env_maker, sound=Path(out).suffix.lower() == ".mp4")
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    sounds = player.is_atari and player.env.unwrapped.settings["sound"]
    try:
        write_frames(
            Path(out),
            player.episode(policy, seed),
            fps=player.fps,
            scale=scale or (2 if player.is_atari else 1),
            aspect=2 if player.is_atari else 1,
            alternate=player.is_atari,
            audio=(lambda: player.info["audio"][0]) if sounds else None,
        )
    finally:
        player.close()
    return player.episode_return
