"""How a score came about, in one line that is kept beside it."""

from __future__ import annotations

import json

from parl.run import RunDirectory


def protocol_of(run: RunDirectory, env_steps: int) -> str:
    """The protocol of evaluations of ``run``: algorithm, environment and its settings, weights, seeds.

    Args:
        run: the directory.
        env_steps: transitions after which the weights were taken.
    """
    config = run.config
    settings = config["run"]
    environment = [*settings.get("env_options", ()), *settings.get("evaluation_env_options", ())]
    facts = json.loads((run.path / "run.json").read_text(encoding="utf-8")).get("environment", {})
    shown = [f"{key}={value}" for key, value in facts.items() if not isinstance(value, dict | list)]
    return ", ".join(
        [
            f"{config['algorithm']} on {settings['env']}",
            *(shown or environment),
            "greedy, whole undiscounted episodes, each from a fresh seed",
            f"weights after {env_steps:,} steps of training seed {settings['seed']}",
        ]
    )
