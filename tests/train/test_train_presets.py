"""Every preset has settings that its algorithm accepts, and says whether it was tuned."""

import pytest

from parl.cli import main
from parl.train.presets import PRESETS
from parl.train.registry import ALGORITHMS, make_algorithm, presets_of
from parl.train.settings import default_settings
from parl.types import EnvSpec

IMAGES = EnvSpec((4, 84, 84), "uint8", (), "int64", 6, "next_step")
MEMORY = EnvSpec((2, 128), "uint8", (), "int64", 6, "next_step")
POLE = EnvSpec((4,), "float32", (), "int64", 2, "next_step")
LANDER = EnvSpec((8,), "float32", (), "int64", 4, "next_step")
CHEETAH = EnvSpec((17,), "float32", (6,), "float32", None, "next_step", (-1.0,) * 6, (1.0,) * 6)
SPECS = {"atari-cpu": IMAGES, "atari-gpu": IMAGES, "classic": POLE, "mujoco": CHEETAH}
ALL = [(name, preset) for name in sorted(PRESETS) for preset in PRESETS[name]]


def test_all_algorithms_but_bc_have_presets():
    assert set(PRESETS) == set(ALGORITHMS) - {"bc"}
    for name, presets in PRESETS.items():
        assert set(presets) <= set(SPECS) and len(presets) >= 1, name


@pytest.mark.parametrize(("name", "preset"), ALL)
def test_the_algorithm_accepts_its_presets(name, preset):
    chosen = presets_of(name)[preset]
    spec = MEMORY if "obs_type=ram" in chosen.run.get("env_options", ()) else SPECS[preset]
    run, own = default_settings(name, spec, preset)
    assert run.env == {"classic": "CartPole-v1", "mujoco": "HalfCheetah-v5"}.get(preset, "parl/Pong-v0")
    assert (run.device == "cuda") == preset.endswith("gpu")
    assert make_algorithm(name, own, spec).make_policy(0, 1, 2, 0).weights.numel() > 100
    assert chosen.note and not chosen.tuned


@pytest.mark.parametrize("name", ["a2c", "dqn", "ppo", "pqn"])
def test_the_algorithm_accepts_the_preset_for_lunarlander(name):
    chosen = presets_of(name)["lunarlander"]
    run, own = default_settings(name, LANDER, "lunarlander")
    assert (run.env, run.num_envs) == ("LunarLander-v3", chosen.run["num_envs"]) and chosen.note
    for key, value in chosen.algorithm.items():
        assert getattr(own, key) == value
    assert make_algorithm(name, own, LANDER).make_policy(0, 1, 16, 0).weights.numel() > 5_000


def test_the_command_lists_the_presets(capsys):
    assert main(["train", "ppo", "--presets"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    own = {"acrobot", "atari-ram", "atari-small", "cartpole", "lunarlander", "pendulum"}
    assert set(lines) == {"atari-cpu", "atari-gpu", "classic", "mujoco"} | own
    assert lines["atari-ram"].startswith("tuned") and lines["mujoco"].startswith("untuned  HalfCheetah-v5: ")
    assert main(["train", "bc", "--presets"]) == 0
    assert capsys.readouterr().out == "no presets\n"


def test_a_run_prints_its_preset(tmp_path, capsys):
    words = ["--preset", "classic", "--total-steps", "300", "--evaluation-episodes", "1", "--quiet"]
    assert main(["train", "a2c", *words, "--runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("classic  untuned  CartPole-v1: ")
