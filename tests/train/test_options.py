"""``parl.train`` has a keyword for every setting: ``python tests/train/test_options.py`` generates them."""

import ast
import dataclasses
import inspect
import types
import typing
from pathlib import Path

import parl
from parl.train import ALGORITHMS, options
from parl.train.registry import module_of, topology_of

FILE = Path(options.__file__)
HEAD = '''"""The keywords of :func:`parl.train`: each setting of a run and of an algorithm, with its type.

Generated from the settings' dataclasses by ``python tests/train/test_options.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from gymnasium import Space
    from torch import device as Device
    from torch.nn import Module

'''
# Keywords that accept more types than their setting.
TYPES = {name: "Mapping[str, object] | tuple[str, ...]" for name in ("env_options", "evaluation_env_options")}
TYPES["logger"] = "Sequence[str]"
TYPES |= {"seed": "int | None", "device": "str | Device", "runs": "str | PathLike[str]"}
TYPES |= dict.fromkeys(("init_from", "start_states"), "str | PathLike[str] | None")
TYPES |= {
    "torso": "str | Callable[[Space[Any]], Module] | None",
    "network": "str | Callable[[Space[Any], Space[Any]], Module] | None",
}


def text_of(kind):
    """A type as source text, its parts in a fixed order."""
    if kind is type(None):
        return "None"
    if typing.get_origin(kind) is typing.Literal:
        return "Literal[" + ", ".join(f'"{one}"' for one in typing.get_args(kind)) + "]"
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " | ".join(text_of(one) for one in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return f"tuple[{text_of(typing.get_args(kind)[0])}, ...]"
    return kind.__name__


def settings_of(find):
    """Setting -> the types that it has in the dataclasses ``find(algorithm)``."""
    found = {}
    for name in ALGORITHMS:
        config = find(name)
        hints = typing.get_type_hints(config)
        for field in dataclasses.fields(config):
            if field.name in ("env", "wrappers"):  # Parameters of `train` itself.
                continue
            text = TYPES.get(field.name) or text_of(hints[field.name])
            known = found.setdefault(field.name, [])
            known += [text] if text not in known else []
    return {name: " | ".join(texts) for name, texts in found.items()}


def written():
    """The generated text of the file."""
    lines = [HEAD]
    sections = [("RunOptions", "of a run", run_config)]
    sections += [("Options", "of a run or an algorithm", own_config)]
    for name, what, find in sections:
        base = "TypedDict" if name == "RunOptions" else "RunOptions"
        lines += ["", f"class {name}({base}, total=False):", f'    """Settings {what}."""', ""]
        lines += [f"    {key}: {kind}" for key, kind in settings_of(find).items()]
        lines += [""]
    return "\n".join(lines)


def run_config(name):
    """The dataclass of a run's settings."""
    return topology_of(name).config


def own_config(name):
    """The dataclass of the algorithm's settings."""
    return module_of(name).Config


def keys_of(function):
    """Names of a function's parameters that can be given by keyword."""
    parameters = inspect.signature(function).parameters.values()
    assert not any(one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in parameters)
    return {one.name for one in parameters if one.kind != one.POSITIONAL_ONLY}


def test_train_names_every_setting():
    settings = set(settings_of(run_config)) | set(settings_of(own_config))
    others = {"env", "wrappers", "preset", "run_config", "algorithm_config", "command", "callbacks"}
    assert keys_of(parl.train) == settings | others
    assert ast.dump(ast.parse(FILE.read_text())) == ast.dump(ast.parse(written()))


def test_public_constructors_name_their_parameters():
    init = parl.PrioritizedReplay.__init__
    assert keys_of(parl.PrioritizedReplay) == set(inspect.signature(init).parameters) - {"self"}
    for kind in (parl.UniformReplay, parl.SequenceReplay, parl.AtariVectorEnv, parl.SumTree):
        assert "capacity" in keys_of(kind) or "game" in keys_of(kind)


def test_make_vec_names_the_parameters_of_the_environment():
    options = inspect.signature(parl.AtariVectorEnv).parameters
    assert keys_of(parl.make_vec) == set(options) | {"preset"}
    shown = inspect.signature(parl.make_vec).parameters
    assert {name: shown[name].annotation for name in options} == {
        name: one.annotation for name, one in options.items()
    }


if __name__ == "__main__":
    FILE.write_text(written(), encoding="utf-8")
