"""``parl train``: train an agent."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Sequence
from typing import Any

from parl.cli.arguments import UsageError, take_option, take_options
from parl.cli.runs import interruptible, summarize
from parl.cli.settings import algorithm_in, environment_in, parse_settings

_USAGE = """\
usage: parl train ALGORITHM [OPTIONS]

algorithms: {algorithms}

parl train ALGORITHM --help lists the options. --config FILE reads them from a TOML file, --preset NAME from a
preset. --presets lists the presets, each tuned or untuned. --callback MODULE:CLASS adds a callback
and can be repeated. --watch shows episodes of the newest policy in the terminal. Options that are not
given have defaults for the environment: parl train ALGORITHM --env ID --help shows them.
"""

_BESIDE = """\
Train an agent. Beside the options below, --config FILE reads them from a TOML file, --preset NAME from a
preset, and --presets lists the presets. --callback MODULE:CLASS adds a callback and can be repeated, --watch
shows episodes of the newest policy in the terminal, and --import MODULE imports a module first.
"""


def train_command(arguments: Sequence[str]) -> int:
    """Trains an agent. Returns the exit status."""
    train = importlib.import_module("parl.train")
    name = algorithm_in(arguments, "parl train", _USAGE)
    if name is None:
        return 0
    path, rest = take_option("--config", arguments[1:])
    preset, rest = take_option("--preset", rest)
    callbacks, rest = take_options("--callback", rest)
    watched, rest = "--watch" in rest, [word for word in rest if word != "--watch"]
    if "--presets" in rest:
        for line in _presets(train.presets_of(name)):
            print(line)
        return 0
    table = None
    if path is not None:
        from parl.run import load_toml

        if preset is not None:
            raise UsageError("--config and --preset exclude each other")
        table = load_toml(path)
    chosen_env = environment_in(rest, f"parl train {name}")
    default = train.settings_for(name, **vars(chosen_env), preset=preset, table=table, where=path or "")
    shown = default[0].env_options
    if preset is not None:
        print(*_presets({preset: train.presets_of(name)[preset]}), sep="\n")
    run_config, algorithm_config = parse_settings(f"parl train {name}", rest, *default, about=_BESIDE)
    if getattr(run_config, "dataset", "") and chosen_env.env is None:
        # Those with which the dataset was recorded, and those given.
        run_config = dataclasses.replace(run_config, env_options=shown)
    command = ["parl", "train", *arguments]
    hooks = [train.load_callback(callback) for callback in callbacks]
    settings = {"algorithm_config": algorithm_config, "command": command}
    with contextlib.ExitStack() as stack:
        if watched:
            hooks.append(
                stack.enter_context(contextlib.closing(importlib.import_module("parl.train.watch").Watch()))
            )
            run_config = dataclasses.replace(run_config, quiet=True)
        run = interruptible(lambda: train.train(name, **settings, run_config=run_config, callbacks=hooks))
    return summarize(run)


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
