"""Defaults, bounds and presets equal those in `defaults.json`, so that none changes by accident.

``python tests/train/test_defaults.py`` writes the file; its diff shows what changed.
"""

import dataclasses
import json
from pathlib import Path

import pytest

from parl.errors import ConfigError
from parl.train.registry import ALGORITHMS, module_of, presets_of, topology_of
from parl.train.settings import default_settings
from parl.types import EnvSpec

TABLE = Path(__file__).with_name("defaults.json")
PICTURES = EnvSpec((4, 84, 84), "uint8", (), "int64", 6, "next_step")
# One environment of each kind that has defaults of its own.
SPECS = {
    "vectors": EnvSpec((4,), "float32", (), "int64", 2, "next_step"),
    "continuous": EnvSpec((3,), "float32", (1,), "float32", None, "next_step", (-2.0,), (2.0,)),
    "pictures": PICTURES,
    "memory": dataclasses.replace(PICTURES, observation_shape=(256,)),
}
# A dictionary with an image; and numbers in three dimensions, which are no image.
PARTS = (("camera", PICTURES.observation_shape, "uint8"), ("speed", (2,), "float32"))
CAMERA = dataclasses.replace(PICTURES, observation_shape=(), observation_parts=PARTS)
FLOATS = dataclasses.replace(PICTURES, observation_dtype="float32")


def plain(value):
    """Converts a value to types of JSON without loss."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return value if isinstance(value, bool | int | str | None) else repr(value)


def bounds(config):
    """Setting -> its bounds, from the errors for far too small and far too large values."""
    found = {}
    for field in dataclasses.fields(config):
        default = getattr(config, field.name)
        if isinstance(default, bool | str | tuple | None):
            continue
        ends = []
        for value in (-(10**18), 10**18):
            try:
                dataclasses.replace(config, **{field.name: type(default)(value)})
            except ConfigError as error:
                ends.append(str(error).split(" is ", 1)[-1])
            else:
                ends.append("any")
        found[field.name] = " | ".join(ends)
    return found


def settings(name):
    """All defaults of an algorithm and its runs, by kind of environment, with bounds and presets."""
    module = module_of(name)
    found = {
        "algorithm": plain(vars(module.Config())),
        "run": plain(vars(topology_of(name).config())),
        "bounds": bounds(module.Config()),
        "bounds of the run": bounds(topology_of(name).config()),
        "presets": {
            preset: {"run": plain(dict(one.run)), "algorithm": plain(dict(one.algorithm)), "tuned": one.tuned}
            for preset, one in presets_of(name).items()
        },
    }
    for kind, spec in SPECS.items():
        own = plain(vars(module.default_config(spec)))
        found[f"algorithm, {kind}"] = {k: v for k, v in own.items() if v != found["algorithm"][k]}
        found[f"run, {kind}"] = plain(module.default_run(spec)) if hasattr(module, "default_run") else {}
    return found


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_defaults_equal_the_recorded_ones(name):
    assert settings(name) == json.loads(TABLE.read_text())[name]


@pytest.mark.parametrize(("spec", "alike"), [(CAMERA, "pictures"), (FLOATS, "memory")])
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_defaults_for_images_are_those_of_observations_that_pass_convolutions(name, spec, alike):
    assert default_settings(name, spec) == default_settings(name, SPECS[alike])


if __name__ == "__main__":
    table = {name: settings(name) for name in sorted(ALGORITHMS)}
    TABLE.write_text(json.dumps(table, indent=1) + "\n")
