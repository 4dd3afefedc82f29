"""``parl train``: train an agent."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from parl.cli.arguments import take_option
from parl.cli.runs import summarize
from parl.cli.settings import environment_in, parse_settings
from parl.errors import ConfigError, ParlError


def train_command(arguments: Sequence[str]) -> int:
    """Trains an agent. Returns the exit status."""
    train = importlib.import_module("parl.train")
    names = sorted(train.ALGORITHMS)
    if not arguments or arguments[0].startswith("-"):
        print(f"usage: parl train ALGORITHM [OPTIONS]\n\nalgorithms: {', '.join(names)}")
        print("parl train ALGORITHM --help lists the options. --config FILE reads them from a TOML file,")
        print("--preset NAME from a preset. --presets lists the algorithm's presets, each tuned or untuned.")
        print("Options that are not given have defaults for the environment.")
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    name, path, rest = arguments[0], *take_option("--config", arguments[1:])
    preset, rest = take_option("--preset", rest)
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
    chosen_env = environment_in(rest, f"parl train {name}")
    default = train.settings_for(name, **vars(chosen_env), preset=preset, table=table, where=path or "")
    if preset is not None:
        print(*_presets({preset: train.presets_of(name)[preset]}), sep="\n")
    try:
        run_config, algorithm_config = parse_settings(f"parl train {name}", rest, *default)
    except ConfigError as error:
        print(f"parl train {name}: {error}", file=sys.stderr)
        return 2
    command = ["parl", "train", *arguments]
    return summarize(
        train.train(name, run_config=run_config, algorithm_config=algorithm_config, command=command)
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
