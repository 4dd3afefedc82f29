"""Precision, compilation and CUDA graphs do not change the results of updates, except for rounding."""

import contextlib
import dataclasses
import functools
import types

import numpy as np
import pytest
import torch
from batches import BOX, CAMERA, FOUR, make_batch, observations

from parl.algos import dqn, sac, td3
from parl.algos.common import off_policy_learner
from parl.errors import ConfigError
from parl.ops import adam, execution
from parl.train.registry import make_algorithm, module_of

KINDS = [
    pytest.param(dqn.DQN, dqn.Config(hidden=(32,)), FOUR, id="dqn"),
    pytest.param(dqn.DQN, dqn.Config(hidden=(32,), distribution="c51", dueling=True), FOUR, id="c51"),
    pytest.param(dqn.DQN, dqn.Config(hidden=(32,), distribution="iqn"), FOUR, id="iqn"),
    pytest.param(sac.SAC, sac.Config(hidden=(32, 32)), BOX, id="sac"),
    pytest.param(td3.TD3, td3.Config(hidden=(32, 32), policy_delay=1), BOX, id="td3"),
]


def results(kind, config, spec, updates=3):
    """Priorities of the first update, gradients of the last, and the learner."""
    learner = kind(config, spec).make_learner(0, "cpu")
    rng = np.random.default_rng(0)
    found = []
    for _ in range(updates):
        if spec.observation_parts:
            obs, following = (observations(spec.observation_parts, 16, rng) for _ in range(2))
        else:
            obs, following = (rng.normal(size=(16, 5)).astype(np.float32) for _ in range(2))
        found.append(learner.compute(make_batch(spec, obs, following)))
        gradients = learner.gradients.clone()
        learner.step()
    return found[0], gradients, learner


@pytest.mark.parametrize(("kind", "config", "spec"), KINDS)
def test_bfloat16_is_close_to_float32_but_not_equal(kind, config, spec):
    for one in (spec, dataclasses.replace(spec, observation_shape=(), observation_parts=CAMERA)):
        exact, gradients, _ = results(kind, config, one, updates=1)
        near, rough, learner = results(
            kind, dataclasses.replace(config, precision="bfloat16"), one, updates=1
        )
        # bfloat16 has a mantissa of 8 bits: products are off by some parts in a thousand.
        np.testing.assert_allclose(near, exact, rtol=0.1, atol=0.05)
        assert not np.array_equal(near, exact), "at least one operation must use bfloat16"
        cosine = torch.cosine_similarity(gradients, rough, dim=0).item()
        assert cosine > 0.98
        assert learner.weights.dtype == learner.gradients.dtype == torch.float32


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "config", "spec"), KINDS)
def test_compiled_losses_give_the_same_numbers(kind, config, spec):
    exact, gradients, _ = results(kind, config, spec)
    near, again, _ = results(kind, dataclasses.replace(config, compile=True), spec)
    np.testing.assert_allclose(near, exact, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(again, gradients, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("kind", "config", "spec"), KINDS)
def test_torch_only_gives_the_same_numbers(kind, config, spec):
    """Uses torch's operations, as compilation and CUDA graphs do, instead of hand-written derivatives."""
    exact, gradients, _ = results(kind, config, spec)
    learner = kind(config, spec).make_learner(0, "cpu")
    for module in (getattr(learner, "online", None), getattr(learner, "networks", None)):
        for part in module.modules() if module is not None else ():
            part.torch_only = True
    rng = np.random.default_rng(0)
    for _ in range(3):
        obs, following = (rng.normal(size=(16, 5)).astype(np.float32) for _ in range(2))
        learner.compute(make_batch(spec, obs, following))
        last = learner.gradients.clone()
        learner.step()
    torch.testing.assert_close(last, gradients, rtol=1e-3, atol=1e-5)
    assert np.isfinite(exact).all()


@pytest.mark.parametrize(("kind", "config", "spec"), KINDS)
def test_cuda_graph_without_a_gpu_raises(kind, config, spec):
    with pytest.raises(ConfigError, match=r"cuda_graph = True .* needs device = 'cuda', not cpu"):
        kind(dataclasses.replace(config, cuda_graph=True), spec).make_learner(0, "cpu")


def updated_learner(kind, config, spec, device, single_learner=False):
    """A learner after eight updates."""
    learner = kind(config, spec).make_learner(0, device)
    learner.may_record_graph = single_learner
    rng = np.random.default_rng(0)
    for _ in range(8):
        obs, following = (rng.normal(size=(16, 5)).astype(np.float32) for _ in range(2))
        assert np.isfinite(learner.compute(make_batch(spec, obs, following))).all()
        learner.step()
    return learner


@pytest.mark.parametrize("single_learner", [True, False])
@pytest.mark.parametrize(
    ("kind", "config", "spec"),
    [*KINDS, pytest.param(td3.TD3, td3.Config(hidden=(32, 32), policy_delay=2), BOX, id="delayed")],
)
def test_a_recorded_update_gives_the_same_numbers(
    monkeypatch, fake_cuda_graph, kind, config, spec, single_learner
):
    """With a single learner, the graph also contains the optimizer's step."""
    monkeypatch.setattr(off_policy_learner, "prepare", prepare_as_on_gpu)
    # torch's step, as on a GPU, which does not read the norm.
    monkeypatch.setattr(adam, "_RUST_MAX_SIZE", -1)
    monkeypatch.setattr(adam, "limit_norm", functools.partial(adam.limit_norm, check=False))
    by_calls, by_graph = (
        updated_learner(kind, dataclasses.replace(config, cuda_graph=graph), spec, "cpu", single_learner)
        for graph in (False, True)
    )
    recorded = by_graph._graphed_update._graphed_calls
    assert len(recorded) == (2 if getattr(config, "policy_delay", 1) == 2 else 1)
    assert all(work._graph is not None for work, _ in recorded.values())
    torch.testing.assert_close(by_calls.weights, by_graph.weights, rtol=1e-3, atol=1e-4)


def prepare_as_on_gpu(config, device, *modules):
    """Prepares modules as on a GPU, but on the CPU."""
    for module in modules:
        for part in module.modules():
            if isinstance(part, execution.ExecutionModule):
                part.torch_only = True


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("single_learner", [True, False])
@pytest.mark.parametrize(("kind", "config", "spec"), KINDS)
def test_a_recorded_update_gives_the_same_numbers_on_a_device(kind, config, spec, single_learner):
    by_calls, by_graph = (
        updated_learner(kind, dataclasses.replace(config, cuda_graph=graph), spec, "cuda", single_learner)
        for graph in (False, True)
    )
    torch.testing.assert_close(by_calls.weights, by_graph.weights, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["dqn", "rainbow", "ppo", "a2c", "pqn"])
@pytest.mark.parametrize("graphs", [False, True])
def test_cuda_graph_sets_records_updates(name, graphs):
    module = module_of(name)
    algorithm = make_algorithm(name, dataclasses.replace(module.Config(), cuda_graph=graphs), FOUR)
    assert algorithm.records_updates is graphs


class FakeStream:
    def __init__(self, device=None):
        self.device = device

    def wait_stream(self, other):
        assert other.device == self.device


def test_graphs_are_recorded_on_the_device_of_their_work(monkeypatch):
    """torch's own stream for recording is on the device that is the current one when it is first used."""
    current, recorded, made = [None], [], []

    @contextlib.contextmanager
    def stream(one):
        current.append(one.device)
        yield
        current.pop()

    @contextlib.contextmanager
    def graph(_, stream=None):
        current.append(stream.device if stream is not None else None)
        yield
        recorded.append(current.pop())

    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "current_stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: types.SimpleNamespace(replay=lambda: None))
    places = [torch.device("cuda", number) for number in (1, 0)]
    for place in places:
        generator = types.SimpleNamespace(device=place)
        call = execution.GraphedCall(lambda: made.append(current[-1]), [generator], True)
        for _ in range(execution.WARM_UP + 2):
            call()
    assert recorded == places
    assert made == [place for place in places for _ in range(execution.WARM_UP + 1)]
