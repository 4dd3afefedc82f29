"""``policy.safetensors``: what is written, and what is refused."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from parl.errors import ConfigError, RunDirectoryError
from parl.nets import flatten
from parl.runtime import policy_file
from parl.runtime.setup import SavedLearner
from parl.types import EnvSpec

BOUNDED = EnvSpec((3,), "float32", (2,), "float32", None, "same_step", (-1.0, -torch.inf), (1.0, torch.inf))
PARTS = EnvSpec(
    (),
    "float32",
    (),
    "int64",
    3,
    "next_step",
    observation_parts=(("a.b", (2,), "uint8"), ("c", (), "float32")),
)


def holder():
    network = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    return SimpleNamespace(network=network, weights=flatten(network, gradients=False).weights)


@pytest.mark.parametrize("spec", [BOUNDED, PARTS])
def test_a_written_file_is_read_back(tmp_path, spec):
    one, two = holder(), holder()
    policy_file.write(tmp_path, one, "sac", spec, 10)
    path = tmp_path / "policy.safetensors"
    names = {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert set(load_file(path)) == names and path.stat().st_size < 1_500
    found = policy_file.read(path)
    assert (found.algorithm, found.spec, found.env_steps) == ("sac", spec, 10)
    policy_file.load_into(two, found.tensors)
    assert torch.equal(one.weights, two.weights)


def test_a_holder_without_a_network_has_one_tensor(tmp_path):
    one, two = (SimpleNamespace(weights=torch.randn(5)) for _ in range(2))
    policy_file.write(tmp_path, one, "mine", PARTS, 0)
    found = policy_file.read(tmp_path / "policy.safetensors")
    assert set(found.tensors) == {"weights"}
    policy_file.load_into(two, found.tensors)
    assert torch.equal(one.weights, two.weights)
    with pytest.raises(ConfigError, match="SimpleNamespace has no method start_from"):
        SavedLearner(None, {}).start(one)


def test_tensors_that_do_not_fit_are_refused():
    one = holder()
    before, tensors = one.weights.clone(), {name: p.clone() for name, p in one.network.named_parameters()}
    for change, said in (
        ({"1.weight": torch.ones(3, 2)}, r"parameter 1\.weight is of shape \(3, 2\), expected .* \(1, 2\)"),
        ({"more": torch.ones(1)}, r"parameter more is of shape \(1,\), expected to be missing"),
    ):
        with pytest.raises(ConfigError, match=said):
            policy_file.load_into(one, tensors | change)
    del tensors["0.bias"]
    with pytest.raises(ConfigError, match=r"parameter 0\.bias is missing, expected to be of shape \(2,\)"):
        policy_file.load_into(one, tensors)
    assert torch.equal(one.weights, before)


def test_files_that_are_not_policies_are_named(tmp_path):
    path = tmp_path / "policy.safetensors"
    with pytest.raises(RunDirectoryError, match=r"policy\.safetensors is missing.*older version"):
        policy_file.read(path)
    path.write_bytes(b"not tensors")
    with pytest.raises(RunDirectoryError, match="is damaged or not a policy"):
        policy_file.read(path)
    for about in (None, {"spec": "[]"}, {"spec": '{"more": 1}', "algorithm": "dqn", "env_steps": "1"}):
        save_file({"a": torch.ones(1)}, path, about)
        with pytest.raises(RunDirectoryError, match="is damaged or not a policy"):
            policy_file.read(path)
