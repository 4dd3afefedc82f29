"""Exported policies choose the actions of ``predict``."""

import sys

import numpy as np
import pytest
import torch
from onnxruntime import InferenceSession
from tiny_runs import PICTURES, config_of
from trained_policies import IDS, VARIANTS, Parts, train_small

import parl
from parl.errors import ConfigError
from parl.train.policy import Policy, PolicyConfig
from parl.train.registry import make_algorithm
from parl.types import EnvSpec

# Those whose policies are made of the same parts as another one's: writing ONNX takes seconds.
ALIKE = ("a3c", "a2c", "bc", "ddpg", "dqn", "ga", "ga3c", "impala", "ppo", "es", "td3", "pqn", "ppo 3")
SLOW = pytest.mark.slow(minutes=1)
ONNX = [
    pytest.param(name, own, id=one, marks=[SLOW] if one in ALIKE else [])
    for (name, own), one in zip(VARIANTS, IDS, strict=True)
]


def batches(spec, rng):
    """Batches of five and of one observation."""
    parts = spec.observation_parts or (("observation", spec.observation_shape, spec.observation_dtype),)
    for count in (5, 1):
        yield {
            name: (rng.normal(size=(count, *shape)) * (50 if dtype == "uint8" else 1)).astype(dtype)
            for name, shape, dtype in parts
        }


def onnx_actions(path):
    session = InferenceSession(path)
    return lambda given, state: run_onnx(session, given, state)


def run_onnx(session, given, state):
    names = [one.name for one in session.get_inputs()]
    assert set(names) == {*given} | ({"state"} if state is not None else set())
    assert {one.shape[1 if one.name == "state" else 0] for one in session.get_inputs()} == {"batch"}
    return session.run(None, given | ({"state": state} if state is not None else {}))


def pt2_actions(path):
    module = torch.export.load(path).module()
    return lambda given, state: run_pt2(module, given, state)


def run_pt2(module, given, state):
    tensors = {name: torch.from_numpy(part) for name, part in given.items()}
    args = [tensors.get("observation", tensors), *([] if state is None else [torch.from_numpy(state)])]
    return [one.numpy() for one in module(*args)]


def assert_same_actions(policy, path, actions_of):
    policy.export(path)
    act = actions_of(path)
    rng = np.random.default_rng(0)
    for given in batches(policy.spec, rng):
        expected, following = policy.predict(given.get("observation", nested(given)))
        state = None
        if following is not None:
            state = rng.normal(size=following.shape).astype(np.float32)
            expected, following = policy.predict(given["observation"], state=state)
        found = act(given, state)
        np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)
        assert found[0].dtype == expected.dtype and found[0].shape == expected.shape
        if state is not None:
            np.testing.assert_allclose(found[1], following, rtol=1e-4, atol=1e-5)


def nested(parts):
    return {"a": parts["a"], "b": {"c": parts["b.c"]}} if "b.c" in parts else parts


def fresh(name, spec, **own):
    """A policy with random weights for ``spec``."""
    config = config_of(name, **own)
    acting = make_algorithm(name, config, spec).make_policy(0, 1, 1, 0)
    with torch.no_grad():
        acting.weights.copy_(
            torch.randn(len(acting.weights), generator=torch.Generator().manual_seed(0)) * 0.1
        )
    where = {"run": None, "folder": None, "env_maker": None}
    return Policy(acting, name, spec=spec, config=PolicyConfig(None, config), env_steps=0, **where)


@pytest.mark.parametrize(("name", "own"), ONNX)
def test_an_onnx_file_gives_the_actions_of_the_policy(tmp_path, name, own):
    assert_same_actions(
        parl.load(train_small(tmp_path, name, **own).path), tmp_path / "policy.onnx", onnx_actions
    )


@pytest.mark.parametrize(("name", "own"), VARIANTS, ids=IDS)
def test_a_pt2_file_gives_the_actions_of_the_policy(tmp_path, name, own):
    assert_same_actions(
        parl.load(train_small(tmp_path, name, **own).path), tmp_path / "policy.pt2", pt2_actions
    )


@pytest.mark.parametrize(
    ("name", "suffix", "actions_of"),
    [("ppo", "onnx", onnx_actions), ("dqn", "pt2", pt2_actions), ("es", "pt2", pt2_actions)],
)
def test_exported_policies_take_images(tmp_path, name, suffix, actions_of):
    assert_same_actions(fresh(name, PICTURES), tmp_path / f"policy.{suffix}", actions_of)


@pytest.mark.parametrize(
    ("name", "suffix", "actions_of"), [("ppo", "onnx", onnx_actions), ("dqn", "pt2", pt2_actions)]
)
def test_exported_policies_take_dictionaries(tmp_path, name, suffix, actions_of):
    assert_same_actions(
        parl.load(train_small(tmp_path, name, env=Parts).path), tmp_path / f"policy.{suffix}", actions_of
    )


@pytest.mark.parametrize(("suffix", "actions_of"), [("onnx", onnx_actions), ("pt2", pt2_actions)])
def test_exported_policies_normalize_images(tmp_path, suffix, actions_of):
    policy = fresh("ppo", PICTURES, images="small", normalize_observations=True)
    assert_same_actions(policy, tmp_path / f"policy.{suffix}", actions_of)


@pytest.mark.parametrize(("name", "options"), [("ppo", {"normalize_observations": True}), ("rainbow", {})])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_exported_policies_compute_differences_of_stacked_frames(tmp_path, dtype, name, options):
    spec = EnvSpec((2, 6), dtype, (), "int64", 4, "next_step")
    assert_same_actions(
        fresh(name, spec, frame_deltas=True, **options), tmp_path / "policy.onnx", onnx_actions
    )


def test_a_file_of_another_kind_or_without_packages_is_refused(tmp_path, monkeypatch):
    policy = fresh("ppo", PICTURES)
    with pytest.raises(ConfigError, match=r"policy\.txt ends in '\.txt', expected one of \.onnx, \.pt2"):
        policy.export(tmp_path / "policy.txt")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ConfigError, match=r"pip install 'parl-rl\[export\]'"):
        policy.export(tmp_path / "policy.onnx")
    assert not [*tmp_path.iterdir()]
