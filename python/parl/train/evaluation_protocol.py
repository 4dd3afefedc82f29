"""Environments of evaluations, and the protocol: a line stored with a score that says how it was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from parl.run import RunDirectory
from parl.train.config import keywords

_OWN = "parl/"
# A score is that of a whole game, in the game's points, even if training clips rewards or ends episodes when
# a life is lost.
_REWARDS: Mapping[str, Any] = {"reward_clipping": False}
_LIVES: Mapping[str, Any] = {"episodic_life": False, "life_loss_info": False, "life_loss": None}


def evaluation_options(env: str, options: Mapping[str, Any], evaluation: Iterable[str]) -> dict[str, Any]:
    """Keyword arguments of the environments in evaluations.

    parl's Atari games then run on the CPU, without reward clipping, and an episode does not end when a life
    is lost, unless ``evaluation`` sets these options.

    Args:
        env: Gymnasium id.
        options: keyword arguments in training.
        evaluation: words such as ``reward_clipping=True``, which take precedence.
    """
    given = keywords(evaluation)
    found = dict(options)
    if env.startswith(_OWN):
        lives = {} if not _LIVES.keys().isdisjoint(given) else _LIVES
        found |= {**_REWARDS, **lives, **({"device": "cpu"} if "device" in found else {})}
    return found | given


def protocol_facts(
    run: RunDirectory, env_steps: int, episodes: int | None = None, evaluation: Iterable[str] | None = None
) -> list[tuple[str, str]]:
    """The protocol of evaluations of ``run`` as (name, value): algorithm, environment, its settings, weights.

    Args:
        run: the run directory.
        env_steps: number of transitions after which the weights were saved.
        episodes: number of episodes of the score; None if unknown.
        evaluation: keyword arguments that replace those of training; None: those from the start of the run,
            which a resumed run can replace.
    """
    config = run.config
    settings = config["run"]
    words = settings.get("evaluation_env_options", ()) if evaluation is None else evaluation
    facts = run.about.get("environment", {})
    options = evaluation_options(settings["env"], facts or keywords(settings.get("env_options", ())), words)
    return [
        ("algorithm", config["algorithm"]),
        ("environment", settings["env"]),
        *((key, str(value)) for key, value in options.items()),
        *(("wrapped in", name) for name in settings.get("wrappers", ())),
        ("actions", "greedy"),
        ("episodes", f"{'' if episodes is None else f'{episodes} '}whole undiscounted episodes"),
        ("seeds", "each from a fresh seed"),
        ("weights", f"after {env_steps:,} steps of training seed {settings['seed']}"),
    ]


def protocol_of(
    run: RunDirectory, env_steps: int, episodes: int | None = None, evaluation: Iterable[str] | None = None
) -> str:
    """The protocol of evaluations of ``run`` as one line; see :func:`protocol_facts`."""
    return protocol_line(protocol_facts(run, env_steps, episodes, evaluation))


def protocol_line(facts: Sequence[tuple[str, str]]) -> str:
    """What :func:`protocol_facts` returned as one line."""
    (_, algorithm), (_, env), *options, (_, actions), (_, played), (_, seeds), (_, weights) = facts
    shown = [f"{key}{' ' if key == 'wrapped in' else '='}{value}" for key, value in options]
    return ", ".join([f"{algorithm} on {env}", *shown, actions, played, seeds, f"weights {weights}"])
