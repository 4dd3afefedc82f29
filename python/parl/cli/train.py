"""``parl train``: train an agent."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from parl.cli.arguments import UsageError, take_option
from parl.cli.runs import interruptible, summarize
from parl.cli.settings import environment_in, parse_settings
from parl.run.config import suggestion

_USAGE = """\
usage: parl train ALGORITHM [OPTIONS]

algorithms: {algorithms}

parl train ALGORITHM --help lists the options. --config FILE reads them from a TOML file, --preset NAME from a
preset. --presets lists the algorithm's presets, each tuned or untuned. Options that are not given have
defaults for the environment: parl train ALGORITHM --env ID --help shows them.
"""


def train_command(arguments: Sequence[str]) -> int:
    """Trains an agent. Returns the exit status."""
    train = importlib.import_module("parl.train")
    names = sorted(train.ALGORITHMS)
    if arguments and arguments[0] in ("-h", "--help"):
        print(_USAGE.format(algorithms=", ".join(names)), end="")
        return 0
    if not arguments or arguments[0].startswith("-"):
        raise UsageError(f"parl train takes the name of an algorithm first, one of {', '.join(names)}")
    name, path, rest = arguments[0], *take_option("--config", arguments[1:])
    preset, rest = take_option("--preset", rest)
    if name not in names:
        near = suggestion(name.lower(), names)
        meant = "" if near is None else f" (did you mean {near!r}?)"
        raise UsageError(f"there is no algorithm {name!r}{meant}; there are: {', '.join(names)}")
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
    default = train.settings_for(name, chosen_env.env, chosen_env.env_options, preset, table, path or "")
    if preset is not None:
        print(*_presets({preset: train.presets_of(name)[preset]}), sep="\n")
    run_config, algorithm_config = parse_settings(f"parl train {name}", rest, *default)
    command = ["parl", "train", *arguments]
    settings = {"run_config": run_config, "algorithm_config": algorithm_config}
    return summarize(interruptible(lambda: train.train(name, **settings, command=command)))


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
