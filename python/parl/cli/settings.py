"""The settings of ``parl train`` as options, the most used ones first, the others in groups."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import textwrap
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, get_type_hints

from parl.cli.arguments import UsageError, parse, parse_known
from parl.errors import ConfigError
from parl.run.config import suggestion

Run = TypeVar("Run")
Algorithm = TypeVar("Algorithm")

# Heading of the help -> settings, in this order. Other settings of the run are added to "runtime", other
# settings of the algorithm to "algorithm".
_GROUPS = {
    "common": """env env_options wrappers total_steps stop_at_return seed device name num_envs actors learners
        learning_rate gamma batch_size rollout_steps n_step""",
    "algorithm": "",
    "network": """torso network hidden activation images image_features shared_layers layer_norm lstm dueling
        dueling_hidden initial_log_std normalize_observations precision channels_last compile cuda_graph""",
    "exploration": """epsilon_first epsilon_last epsilon_steps epsilon_spread noisy noisy_sigma
        entropy_coefficient exploration_noise exploration_spread random_steps temperature learn_temperature
        target_entropy target_entropy_share""",
    "runtime": "",
    "evaluation": """evaluation_episodes evaluation_every evaluation_env_options checkpoint_every
        checkpoint_every_s log_every_s runs logger quiet verbose""",
}
GROUPS = {title: tuple(names.split()) for title, names in _GROUPS.items()}


@dataclasses.dataclass(frozen=True)
class _EnvironmentOptions:
    """The options of the environment, on which the defaults of the other options depend."""

    env: str | None = None
    env_options: tuple[str, ...] | None = None
    wrappers: tuple[str, ...] | None = None
    dataset: str | None = None


def algorithm_in(arguments: Sequence[str], command: str, usage: str) -> str | None:
    """The name of an algorithm, which is the first argument; None after a request for help was answered.

    Args:
        arguments: the arguments of the command.
        command: the command, such as ``parl train``.
        usage: the command's help text, which names ``{algorithms}``.

    Raises:
        UsageError: there is no such algorithm, or the first argument is an option.
    """
    names = importlib.import_module("parl.train").algorithm_names()
    if arguments and arguments[0] in ("-h", "--help"):
        print(usage.format(algorithms=", ".join(names)), end="")
        return None
    if not arguments or arguments[0].startswith("-"):
        raise UsageError(f"{command} takes the name of an algorithm first, one of {', '.join(names)}")
    name = arguments[0]
    if name not in names:
        near = suggestion(name.lower(), names)
        meant = "" if near is None else f" (did you mean {near!r}?)"
        raise UsageError(f"there is no algorithm {name!r}{meant}; there are: {', '.join(names)}")
    return name


def environment_in(arguments: Sequence[str], prog: str) -> _EnvironmentOptions:
    """The options of the environment among ``arguments``; None for those not given."""
    words = [word for word in arguments if word not in ("-h", "--help")]
    return parse_known(_EnvironmentOptions, prog, words)[0]


def parse_settings(
    prog: str, arguments: Sequence[str], run: Run, algorithm: Algorithm, about: str
) -> tuple[Run, Algorithm]:
    """Reads settings of a run and of its algorithm from command-line arguments.

    Args:
        prog: name of the command in the help text.
        arguments: the options.
        run: default settings of the run, a dataclass.
        algorithm: default settings of the algorithm, a dataclass.
        about: the first lines of the help text.

    Returns:
        The settings of the run and of the algorithm.

    Raises:
        UsageError: an option is unknown, or its value is wrong.
    """
    import tyro

    parts: tuple[Any, Any] = (run, algorithm)
    fields = {field.name: part for part in parts for field in dataclasses.fields(part)}
    hints = {name: kind for part in parts for name, kind in get_type_hints(type(part)).items()}
    hints |= dict.fromkeys({"torso", "network"} & fields.keys(), str | None)  # by import path
    texts = {name: text for part in parts for name, text in _help_of(type(part)).items()}
    grouped = {name for names in GROUPS.values() for name in names}
    rest = {
        "runtime": [name for name, part in fields.items() if part is run and name not in grouped],
        "algorithm": [name for name, part in fields.items() if part is algorithm and name not in grouped],
    }
    groups: list[tuple[str, Any, Any]] = []
    for title, names in GROUPS.items():
        present = [name for name in (*names, *rest.get(title, ())) if name in fields]
        if not present:
            continue
        described = [
            (
                name,
                Annotated[hints[name], tyro.conf.arg(help=texts.get(name))],
                dataclasses.field(default=getattr(fields[name], name)),
            )
            for name in present
        ]
        group = dataclasses.make_dataclass(title, described, frozen=True)
        groups.append((title, group, dataclasses.field(default_factory=group)))
    settings = dataclasses.make_dataclass("Settings", groups, frozen=True, namespace={"__doc__": about})
    chosen = parse(settings, prog, arguments)
    values = {
        field.name: getattr(group, field.name)
        for group in vars(chosen).values()
        for field in dataclasses.fields(group)
    }
    try:
        read: Any = tuple(
            dataclasses.replace(
                part, **{field.name: values[field.name] for field in dataclasses.fields(part)}
            )
            for part in parts
        )
    except ConfigError as error:
        raise UsageError(f"{prog}: {error}") from error
    return read


def _help_of(kind: type) -> dict[str, str]:
    """The string below each field of a dataclass and its bases."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, after in zip(body.body, body.body[1:], strict=False):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                found[field.target.id] = " ".join(str(after.value.value).split())
    return found
