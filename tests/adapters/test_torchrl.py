"""parl's sampler and buffer in TorchRL, compared with TorchRL's own."""

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ReplayBuffer,
    TensorDictReplayBuffer,
    TensorStorage,
)
from torchrl.data import TensorDictPrioritizedReplayBuffer as Theirs
from torchrl.data.replay_buffers.scheduler import LinearScheduler
from torchrl.envs import Compose, DoubleToFloat

from parl.adapters import torchrl as ours
from parl.adapters.torchrl import PrioritizedSampler, TensorDictPrioritizedReplayBuffer
from parl.errors import NotSampleableError


def rows(first, n):
    i = torch.arange(first, first + n)
    return TensorDict(
        {
            "observation": i.float().reshape(n, 1).expand(n, 3).clone(),
            "action": i.clone(),
            "next": TensorDict(
                {"observation": i.float().reshape(n, 1) + 1, "done": (i % 7 == 6).reshape(n, 1)}, [n]
            ),
        },
        [n],
    )


def make(cls, **settings):
    return cls(**{"alpha": 0.7, "beta": 0.5, "storage": LazyTensorStorage(20), "batch_size": 16, **settings})


def assert_same(a, b, but=(), device=True):
    assert a.batch_size == b.batch_size
    assert a.device == b.device or not device
    one, two = (dict(td.items(include_nested=True, leaves_only=True)) for td in (a, b))
    assert one.keys() == two.keys()
    for key in one:
        assert (one[key].dtype, one[key].shape) == (two[key].dtype, two[key].shape), key
        if key not in but:
            torch.testing.assert_close(one[key], two[key], msg=str(key))


@pytest.mark.parametrize("short", [True, False], ids=["short", "through TorchRL"])
def test_the_same_calls_give_the_same_results(short):
    """All results that are not random equal those of TorchRL's own buffer."""
    buffers = [make(Theirs), make(TensorDictPrioritizedReplayBuffer)]
    buffers[1]._allows_fast_path = short
    taken = []
    for n in (5, 1, 9, 8, 20, 3):
        data = [rows(100 * n, n) for _ in buffers]
        indices = [buffer.extend(td) for buffer, td in zip(buffers, data, strict=True)]
        assert torch.equal(*indices)
        assert_same(*data)
        assert len(buffers[0]) == len(buffers[1])
        assert buffers[0].write_count == buffers[1].write_count
        assert_same(buffers[0][:], buffers[1][:])
        samples = [buffer.sample() for buffer in buffers]
        assert_same(*samples, but=dict(samples[0].items(True, True)))
        taken.append(buffers[1]._fast_path_rows() is not None)
    assert any(taken) == short
    single = [rows(7, 1)[0] for _ in buffers]
    assert len({int(buffer.add(td)) for buffer, td in zip(buffers, single, strict=True)}) == 1
    assert_same(buffers[0][:], buffers[1][:])
    for buffer in buffers:
        sample = buffer.sample()
        assert torch.equal(sample["observation"][:, 0], sample["action"].float())
        assert torch.equal(buffer[sample["index"]]["action"], sample["action"])
    with_info = buffers[1].sample(return_info=True)
    assert with_info[1].keys() == buffers[0].sample(return_info=True)[1].keys()
    for buffer in buffers:
        buffer.empty()
        assert len(buffer) == 0
        with pytest.raises(RuntimeError, match="empty"):
            buffer.sample()


@pytest.mark.parametrize("short", [True, False])
def test_priorities_and_weights_as_in_torchrl(short):
    priorities = torch.tensor([5.0, 0.1, 2.0, 3.0, 1.0, 0.5, 4.0, 0.01])
    shares = (priorities + 1e-8) ** 0.7
    shares /= shares.sum()
    for cls in (Theirs, TensorDictPrioritizedReplayBuffer):
        torch.manual_seed(0)
        np.random.seed(0)
        buffer = make(cls, batch_size=64)
        buffer._allows_fast_path = short
        buffer.extend(rows(0, 8))
        sample = buffer.sample()
        assert sample["priority_weight"].tolist() == [1.0] * 64
        whole = buffer[:].clone()
        whole["td_error"] = priorities
        buffer.update_tensordict_priority(whole)
        counts = torch.zeros(8)
        for _ in range(300):
            sample = buffer.sample()
            counts += torch.bincount(sample["index"], minlength=8)
            want = (shares[sample["index"]] / shares.min()) ** -0.5
            torch.testing.assert_close(sample["priority_weight"], want, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(counts / counts.sum(), shares, rtol=0, atol=0.01)


@pytest.mark.parametrize("cls", [Theirs, TensorDictPrioritizedReplayBuffer])
def test_rows_that_the_storage_has_already_are_drawn(cls):
    buffer = make(cls, storage=TensorStorage(rows(0, 10)), batch_size=200)
    assert set(buffer.sample()["action"].tolist()) == set(range(10))


def test_new_rows_get_the_largest_priority():
    buffer = make(TensorDictPrioritizedReplayBuffer, alpha=1.0)
    buffer.extend(rows(0, 4))
    buffer.update_priority(torch.arange(4), torch.tensor([0.5, 2.0, 0.1, 1.0]))
    buffer.extend(rows(4, 2))
    weights = buffer.sampler._slots.weights(np.arange(7))
    np.testing.assert_allclose(weights, [0.5, 2.0, 0.1, 1.0, 2.0, 2.0, 0.0], rtol=1e-6)
    # Priorities that are added with the rows.
    more = rows(6, 2)
    more["td_error"] = torch.tensor([9.0, 0.3])
    buffer = make(TensorDictPrioritizedReplayBuffer, alpha=1.0)
    for n in (0, 2):
        buffer.extend(more.clone())
        np.testing.assert_allclose(buffer.sampler._slots.weights(np.arange(n, n + 2)), [9.0, 0.3])


@pytest.mark.parametrize("shape", [(16,), (16, 1), (16, 4)])
def test_priorities_of_any_shape(shape):
    priority = torch.rand(shape) * 3
    weights = []
    for cls in (Theirs, TensorDictPrioritizedReplayBuffer):
        buffer = make(cls, alpha=1.0)
        buffer.extend(rows(0, 16))
        data = buffer[:].clone()
        data["td_error"] = priority
        buffer.update_tensordict_priority(data)
        tree = buffer.sampler
        got = tree._sum_tree[torch.arange(16)] if cls is Theirs else tree._slots.weights(np.arange(16))
        weights.append(np.asarray(got))
    np.testing.assert_allclose(*weights, rtol=1e-5)


def test_the_sampler_works_in_other_buffers_with_transforms_and_prefetch():
    sampler = PrioritizedSampler(50, alpha=0.7, beta=0.5)
    buffer = ReplayBuffer(storage=LazyTensorStorage(50), sampler=sampler, batch_size=8, prefetch=2)
    buffer.extend(rows(0, 30))
    for _ in range(4):
        data, info = buffer.sample(return_info=True)
        assert torch.equal(data["action"], info["index"])
        buffer.update_priority(info["index"], torch.rand(8))
    buffer = TensorDictReplayBuffer(
        storage=LazyMemmapStorage(50),
        sampler=PrioritizedSampler(50, alpha=0.7, beta=0.5),
        priority_key="error",
        batch_size=8,
    )
    buffer.extend(rows(0, 30))
    data = buffer.sample()
    data["error"] = torch.full((8,), 3.0)
    buffer.update_tensordict_priority(data)
    assert buffer.sampler.default_priority == 3.0
    buffer = make(
        TensorDictPrioritizedReplayBuffer,
        transform=Compose(DoubleToFloat(in_keys=["x"], out_keys=["x"])),
        prefetch=2,
    )
    wide = rows(0, 12)
    wide["x"] = torch.rand(12, dtype=torch.float64)
    buffer.extend(wide)
    assert buffer.sample()["x"].dtype == torch.float32


def test_storages_of_two_dimensions():
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(40, ndim=2),
        sampler=PrioritizedSampler(40, alpha=1.0, beta=0.5),
        batch_size=16,
        dim_extend=0,
    )
    data = torch.stack([rows(100 * i, 10) for i in range(4)])
    buffer.extend(data)
    sample = buffer.sample()
    index = sample["index"]
    assert index.shape == (16, 2)
    assert torch.equal(sample["action"], index[:, 0] * 100 + index[:, 1])
    sample["td_error"] = sample["action"].float()
    buffer.update_tensordict_priority(sample)
    flat = (index[:, 0] * 10 + index[:, 1]).numpy()
    np.testing.assert_allclose(buffer.sampler._slots.weights(flat), sample["action"].numpy() + 1e-8)


def test_generators_determine_the_samples():
    drawn = []
    for seed in (3, 3, 4):
        buffer = make(TensorDictPrioritizedReplayBuffer, generator=torch.Generator().manual_seed(seed))
        buffer.extend(rows(0, 20))
        drawn.append([buffer.sample()["index"].tolist() for _ in range(3)])
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("short", [True, False])
def test_a_restored_generator_repeats_the_samples(short):
    generator = torch.Generator().manual_seed(3)
    buffer = make(TensorDictPrioritizedReplayBuffer, generator=generator)
    buffer._allows_fast_path = short
    buffer.extend(rows(0, 20))
    buffer.sample()
    state = generator.get_state()
    drawn = [buffer.sample()["index"].tolist() for _ in range(3)]
    generator.set_state(state)
    assert [buffer.sample()["index"].tolist() for _ in range(3)] == drawn
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_exponents_may_be_tensors(name):
    given = torch.tensor(0.5)
    buffers = [make(TensorDictPrioritizedReplayBuffer, **{name: value}) for value in (0.5, given)]
    drawn = []
    for buffer in buffers:
        buffer.sampler._slots.tree.seed(0)
        buffer.extend(rows(0, 20))
        buffer.update_priority(torch.arange(20), torch.arange(1.0, 21.0))
        drawn.append(buffer.sample())
    assert_same(*drawn)
    assert getattr(buffers[1].sampler, name) is given
    # As TorchRL's schedulers set them.
    scheduler = LinearScheduler(buffers[1], name, final_value=1.0, num_steps=2)
    scheduler.step()
    assert float(getattr(buffers[1].sampler, name)) == pytest.approx(0.75)
    buffers[1].sample()
    buffers[0].load_state_dict(buffers[1].state_dict())
    assert float(getattr(buffers[0].sampler, name)) == pytest.approx(0.75)


def test_a_sampler_smaller_than_its_storage_raises():
    sampler = PrioritizedSampler(10, alpha=0.7, beta=0.5)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(16), sampler=sampler, batch_size=4)
    buffer.extend(rows(0, 10))
    buffer.sample()
    text = "row 11 is outside this sampler, whose max_capacity is 10; its storage has max_size 16"
    with pytest.raises(IndexError, match=text):
        buffer.extend(rows(10, 2))
    with pytest.raises(IndexError, match="row 12 is outside this sampler, whose max_capacity is 10"):
        sampler.update_priority(torch.tensor([12]), torch.tensor([1.0]))


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), torch.tensor(float("nan"))])
def test_exponents_outside_their_bounds_raise(name, value):
    text = f"{name} is {float(value)}, expected a finite number of at least 0"
    with pytest.raises(ValueError, match=text):
        PrioritizedSampler(8, **{"alpha": 1.0, "beta": 0.5, name: value})
    sampler = PrioritizedSampler(8, alpha=1.0, beta=0.5)
    with pytest.raises(ValueError, match=text):
        setattr(sampler, name, value)
    assert getattr(sampler, name) == {"alpha": 1.0, "beta": 0.5}[name]
    with pytest.raises(ValueError, match=text):
        sampler.load_state_dict({**sampler.state_dict(), f"_{name}": float(value)})


def test_saving_and_loading(tmp_path):
    buffer = make(TensorDictPrioritizedReplayBuffer)
    buffer.extend(rows(0, 15))
    buffer.update_priority(torch.arange(15), torch.rand(15))
    buffer.dumps(tmp_path / "buffer")
    copies = [make(TensorDictPrioritizedReplayBuffer) for _ in range(2)]
    copies[0].load_state_dict(buffer.state_dict())
    copies[1].loads(tmp_path / "buffer")
    want = [buffer.sample() for _ in range(3)]
    for copy in copies:
        for sample in want:
            # TorchRL restores storages without their device.
            assert_same(sample, copy.sample(), device=False)
        copy.extend(rows(15, 10))
        assert len(copy) == 20
    small = make(TensorDictPrioritizedReplayBuffer, storage=LazyTensorStorage(10))
    with pytest.raises(ValueError, match="row 14"):
        small.sampler.load_state_dict(buffer.sampler.state_dict())


@pytest.mark.parametrize("short", [True, False], ids=["short", "through TorchRL"])
@pytest.mark.parametrize("cls", [Theirs, TensorDictPrioritizedReplayBuffer])
def test_rows_that_were_not_written_are_not_drawn(cls, short):
    buffer = make(cls)
    buffer._allows_fast_path = short
    buffer.extend(rows(0, 15))
    buffer.update_priority(torch.tensor([3, 18]), torch.tensor([2.0, 1000.0]))
    buffer.extend(rows(15, 3))
    late = buffer.sample(16)
    assert late["index"].max() < 18
    buffer.empty()
    buffer.extend(rows(0, 2))
    late["index"] += 2
    late["td_error"] = torch.full((16,), 1000.0)
    buffer.update_tensordict_priority(late)
    assert buffer.sample(16)["index"].max() < 2


@pytest.mark.parametrize("cls", [Theirs, TensorDictPrioritizedReplayBuffer])
def test_columns_that_are_replaced_or_added_are_sampled(cls):
    buffer = make(cls)
    buffer.extend(rows(0, 20))
    buffer.sample()
    # Entries of a full buffer are those of its storage.
    buffer[:]["observation"] = torch.full((20, 3), -5.0)
    buffer[:]["next", "observation"] = torch.full((20, 1), -6.0)
    buffer[:]["added"] = torch.arange(20)
    batch = buffer.sample()
    assert (batch["observation"] == -5.0).all() and (batch["next", "observation"] == -6.0).all()
    assert torch.equal(batch["added"], batch["index"])
    more = rows(20, 5)
    more["added"] = torch.arange(20, 25)
    buffer.extend(more)
    assert torch.equal(buffer[:]["observation"][:5, 0], torch.arange(20.0, 25.0))
    assert torch.equal(buffer[:]["added"][:5], torch.arange(20, 25))


@pytest.mark.parametrize("short", [True, False], ids=["short", "through TorchRL"])
@pytest.mark.parametrize("cls", [Theirs, TensorDictPrioritizedReplayBuffer])
def test_new_rows_keep_priority_1_until_a_larger_one_comes(cls, short):
    buffer = make(cls, alpha=1.0, batch_size=200)
    buffer._allows_fast_path = short
    for first in (0, 5):
        buffer.extend(rows(first, 5))
    buffer.update_priority(torch.arange(10), torch.full((10,), 0.1))
    assert float(buffer.sampler.default_priority) == 1.0
    buffer.extend(rows(10, 10))
    drawn = torch.cat([buffer.sample()["action"] for _ in range(5)])
    assert (drawn >= 10).float().mean() == pytest.approx(10 / 11, abs=0.03)
    buffer.update_priority(torch.arange(2), torch.tensor([3.0, 0.2]))
    assert float(buffer.sampler.default_priority) == 3.0


def test_alpha_can_be_changed():
    sampler = PrioritizedSampler(8, alpha=1.0, beta=0.5, eps=0.0)
    sampler.mark_update(torch.arange(3))
    sampler.update_priority(torch.arange(3), torch.tensor([4.0, 9.0, 1.0]))
    sampler.alpha = 0.5
    np.testing.assert_allclose(sampler._slots.weights(np.arange(4)), [2.0, 3.0, 1.0, 0.0])
    assert sampler.default_priority == 9.0
    sampler.update_priority(1, 0.25)
    assert sampler.default_priority == 9.0
    within = PrioritizedSampler(8, alpha=0.5, beta=0.5, eps=0.0, max_priority_within_buffer=True)
    within.update_priority(torch.arange(2), torch.tensor([4.0, 9.0]))
    within.update_priority(1, 0.25)
    assert within.default_priority == pytest.approx(4.0)


@pytest.mark.parametrize("cls", [Theirs, TensorDictPrioritizedReplayBuffer])
def test_an_update_of_no_row_has_no_effect(cls):
    buffer = make(cls)
    buffer.extend(rows(0, 4))
    buffer.update_priority(torch.arange(4), torch.ones(4))
    buffer.update_priority(torch.arange(0), torch.ones(0))
    assert len(buffer.sample()) == 16


@pytest.mark.parametrize("cls", [Theirs, TensorDictPrioritizedReplayBuffer])
def test_importance_weights_with_a_priority_of_0_are_an_error(cls):
    buffer = make(cls, eps=0.0)
    buffer.extend(rows(0, 4))
    buffer.update_priority(torch.arange(4), torch.tensor([0.0, 1.0, 1.0, 1.0]))
    with pytest.raises(RuntimeError):
        buffer.sample()


def test_bad_input_raises():
    storage = LazyTensorStorage(8)
    sampler = PrioritizedSampler(8, alpha=1.0, beta=0.5)
    with pytest.raises(RuntimeError, match="empty"):
        sampler.sample(storage, 4)
    storage.set(torch.arange(3), rows(0, 3))
    with pytest.raises(NotSampleableError):
        sampler.sample(storage, 4)
    with pytest.raises(IndexError, match="8"):
        sampler.update_priority(torch.tensor([8]), torch.tensor([1.0]))
    with pytest.raises(RuntimeError, match="shape"):
        sampler.update_priority(torch.tensor([1, 2]), torch.rand(3))
    with pytest.raises(ValueError, match="not finite"):
        sampler.update_priority(torch.tensor([1]), torch.tensor([float("nan")]))
    sampler.update_priority(torch.tensor([-1, 2]), torch.tensor([5.0, 3.0]))
    assert sampler._slots.weights(2) == pytest.approx(3.0)
    with pytest.raises(ValueError, match="alpha"):
        PrioritizedSampler(8, alpha=-1.0, beta=0.5)
    with pytest.raises(ValueError, match="cuda"):
        PrioritizedSampler(8, alpha=1.0, beta=0.5, device="cuda")
    assert ours.__all__ == ["PrioritizedSampler", "TensorDictPrioritizedReplayBuffer"]


def test_a_collate_function_that_comes_with_set_storage_is_called():
    """As in TorchRL, without one it is the default."""
    for cls in (Theirs, TensorDictPrioritizedReplayBuffer):
        buffer = make(cls)
        buffer.extend(rows(0, 20))
        buffer.set_storage(buffer._storage, collate_fn=lambda data: data.set("seen", data["action"] + 1))
        assert "seen" in buffer.sample().keys()
        buffer.set_storage(buffer._storage)
        assert "seen" not in buffer.sample().keys()
    assert buffer._fast_path_rows() is not None
