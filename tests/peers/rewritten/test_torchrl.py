"""The documented behavior of TorchRL's prioritized sampler and buffer, on TorchRL's classes and on parl's.

Our own tests: TorchRL's packages contain only a benchmark of these classes, which ``run.py`` runs unchanged.
"""

import numpy as np
import pytest
import torch
import torchrl.data as theirs
from tensordict import TensorDict
from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    ReplayBuffer,
    TensorDictReplayBuffer,
)
from torchrl.data.replay_buffers.scheduler import (
    LambdaScheduler,
    LinearScheduler,
    SchedulerList,
    StepScheduler,
)

from parl.adapters import torchrl as ours

LIBRARIES = pytest.mark.parametrize("library", [theirs, ours], ids=["torchrl", "parl"])


def rows(n, first=0):
    values = torch.arange(first, first + n)
    return TensorDict({"a": values, "b": values.float().reshape(n, 1).expand(n, 3).clone()}, [n])


def buffer(library, size=16, storage=LazyTensorStorage, **settings):
    settings = {"alpha": 0.7, "beta": 0.9, "batch_size": 8, **settings}
    return library.TensorDictPrioritizedReplayBuffer(storage=storage(size), **settings)


@LIBRARIES
@pytest.mark.parametrize("storage", [LazyTensorStorage, LazyMemmapStorage, ListStorage])
def test_extend_and_sample(library, storage):
    made = buffer(library, storage=storage)
    made.extend(rows(10))
    assert len(made) == 10
    sample = made.sample()
    assert sample.batch_size == torch.Size([8])
    assert {"index", "priority_weight"} <= set(sample.keys())
    torch.testing.assert_close(sample["a"], sample["index"])
    made.extend(rows(10, 10))
    assert len(made) == 16
    assert made.sample()["a"].min() >= 4


@LIBRARIES
@pytest.mark.parametrize("max_priority_within_buffer", [False, True])
def test_new_rows_and_the_largest_priority(library, max_priority_within_buffer):
    sampler = library.PrioritizedSampler(
        4, 1.0, 1.0, eps=0.0, max_priority_within_buffer=max_priority_within_buffer
    )
    made = TensorDictReplayBuffer(storage=LazyTensorStorage(4), sampler=sampler, batch_size=64)
    made.extend(rows(4))
    made.update_priority(torch.arange(4), torch.tensor([1.0, 2.0, 3.0, 10.0]))
    assert float(sampler.default_priority) == 10.0
    made.update_priority(3, torch.tensor(1.0))
    assert float(sampler.default_priority) == (3.0 if max_priority_within_buffer else 10.0)


@LIBRARIES
def test_draws_and_weights_follow_the_priorities(library):
    np.random.seed(0)
    made = buffer(library, alpha=1.0, beta=1.0, batch_size=500)
    made.extend(rows(4))
    made.update_priority(torch.arange(4), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    sample = torch.cat([made.sample() for _ in range(20)])
    shares = torch.bincount(sample["index"], minlength=4) / len(sample)
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.2, 0.3, 0.4]), rtol=0, atol=0.02)
    torch.testing.assert_close(sample["priority_weight"], 1.0 / (sample["index"] + 1.0), rtol=1e-4, atol=1e-6)


@LIBRARIES
@pytest.mark.parametrize("shape", [(), (1,), (6,), (6, 1)])
def test_priorities_of_several_shapes(library, shape):
    made = buffer(library)
    made.extend(rows(6))
    made.update_priority(torch.arange(6) if shape[:1] == (6,) else torch.tensor(2), torch.rand(shape) + 1)
    assert made.sample()["index"].shape == (8,)


@LIBRARIES
@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_linear_schedule(library, name, as_tensor):
    value = torch.tensor(0.4) if as_tensor else 0.4
    made = buffer(library, **{name: value})
    made.extend(rows(8))
    scheduler = LinearScheduler(made, name, final_value=1.0, num_steps=10)
    for step in range(1, 15):
        scheduler.step()
        assert float(getattr(made.sampler, name)) == pytest.approx(min(0.4 + 0.06 * step, 1.0), abs=1e-6)
        made.sample()


@LIBRARIES
@pytest.mark.parametrize("mode", ["additive", "multiplicative"])
def test_step_schedule(library, mode):
    made = buffer(library, beta=torch.tensor(0.1))
    made.extend(rows(8))
    gamma = {"additive": 0.1, "multiplicative": 2.0}[mode]
    scheduler = StepScheduler(made, "beta", gamma=gamma, n_steps=2, mode=mode, max_value=0.5)
    found = []
    for _ in range(12):
        scheduler.step()
        found.append(float(made.sampler.beta))
        made.sample()
    assert found == sorted(found)
    assert found[-1] == pytest.approx(0.5)


@LIBRARIES
def test_lists_of_schedules(library):
    made = buffer(library)
    made.extend(rows(8))
    schedules = SchedulerList(
        [
            LambdaScheduler(made, "alpha", lambda step: 0.5**step),
            LinearScheduler(made, "beta", final_value=1.0, num_steps=4),
        ]
    )
    for _ in range(4):
        schedules.step()
        made.sample()
    assert float(made.sampler.beta) == pytest.approx(1.0)
    assert float(made.sampler.alpha) < 0.1


@LIBRARIES
def test_a_restored_generator_repeats_the_samples(library):
    generator = torch.Generator().manual_seed(0)
    made = ReplayBuffer(
        storage=LazyTensorStorage(16),
        sampler=library.PrioritizedSampler(16, 0.7, 0.9),
        batch_size=8,
        generator=generator,
    )
    made.extend(torch.arange(16))
    state = generator.get_state()
    first = [made.sample().tolist() for _ in range(2)]
    generator.set_state(state)
    assert [made.sample().tolist() for _ in range(2)] == first


@LIBRARIES
def test_states_and_files(library, tmp_path):
    made, other, third = (buffer(library) for _ in range(3))
    made.extend(rows(12))
    made.update_priority(torch.arange(12), torch.arange(1.0, 13.0))
    other.extend(rows(1))
    other.load_state_dict(made.state_dict())
    made.dumps(tmp_path / "buffer")
    third.extend(rows(1))
    third.loads(tmp_path / "buffer")
    for copy in (other, third):
        assert len(copy) == 12
        torch.testing.assert_close(copy[:]["a"], made[:]["a"])
        sample = copy.sample(64)
        order = sample["priority_weight"][sample["index"].argsort()]
        assert bool((order.diff() <= 1e-6).all())


@LIBRARIES
def test_storages_of_two_dimensions(library):
    made = TensorDictReplayBuffer(
        storage=LazyTensorStorage(24, ndim=2),
        sampler=library.PrioritizedSampler(24, 0.7, 0.9),
        batch_size=10,
        priority_key="td_error",
    )
    made.extend(TensorDict({"a": torch.arange(12).reshape(3, 4)}, [3, 4]))
    sample = made.sample()
    sample["td_error"] = torch.rand(10)
    made.update_tensordict_priority(sample)
    assert made.sample().batch_size == torch.Size([10])


@LIBRARIES
@pytest.mark.parametrize("settings", [{"alpha": -1.0}, {"beta": -1.0}], ids=str)
def test_bad_settings_are_refused(library, settings):
    with pytest.raises(ValueError):
        library.PrioritizedSampler(8, **{"alpha": 0.5, "beta": 0.5, **settings})


@LIBRARIES
def test_sampling_an_empty_buffer_raises(library):
    made = buffer(library)
    with pytest.raises(RuntimeError, match="empty"):
        made.sample()
    made.extend(rows(3))
    made.empty()
    assert len(made) == 0
    with pytest.raises(RuntimeError, match="empty"):
        made.sample()
