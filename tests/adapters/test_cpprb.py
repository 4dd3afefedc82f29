"""The same scripts against cpprb and against parl's class of the same name."""

import cpprb
import numpy as np
import pytest

from parl.adapters import cpprb as ours
from parl.errors import NotSampleableError

FIELDS = {
    "obs": {"shape": (2, 3), "dtype": np.uint8},
    "act": {"dtype": np.int64},
    "rew": {},
    "next_obs": {"shape": (2, 3), "dtype": np.uint8},
    "done": {},
}
WITHOUT_NEXT = {name: spec for name, spec in FIELDS.items() if name != "next_obs"}
N_STEP = {"size": 3, "gamma": 0.5, "rew": "rew", "next": "next_obs"}


def transition(i, done=0.0, fields=FIELDS):
    obs = np.full((2, 3), i % 250, np.uint8)
    row = {"obs": obs, "act": i, "rew": i / 8, "next_obs": obs + 1, "done": done}
    return {name: row[name] for name in ["next_obs", *fields]}


def script(module, buffer):
    """What a training script does, and all that it sees of it."""
    seen = []
    for i in range(60):
        done = i % 11 == 10
        seen.append(buffer.add(**transition(i, float(done))))
        if done:
            buffer.on_episode_end()
        seen.append((buffer.get_stored_size(), buffer.get_next_index(), buffer.get_current_episode_len()))
    seen.append((buffer.get_buffer_size(), buffer.is_Nstep()))
    many = [transition(i) for i in range(5)]
    seen.append(buffer.add(**{name: np.stack([row[name] for row in many]) for name in many[0]}))
    return seen


def assert_same_rows(a, b, but=()):
    assert a.keys() == b.keys()
    for name in a:
        assert (a[name].dtype, a[name].shape) == (b[name].dtype, b[name].shape), name
        if name not in but:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.parametrize("kind", ["ReplayBuffer", "PrioritizedReplayBuffer"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"default_dtype": np.float64},
        {"Nstep": N_STEP},
        {"Nstep": {"size": 2, "rew": ["rew"]}},
        {"next_of": "obs"},
        {"next_of": ("obs",), "stack_compress": "obs"},
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [16, 200])
def test_the_same_script(kind, settings, size):
    fields = WITHOUT_NEXT if "next_of" in settings else FIELDS
    theirs = {**settings}
    theirs.pop("stack_compress", None)
    buffers = [
        getattr(cpprb, kind)(size, fields, **theirs),
        getattr(ours, kind)(size, fields, **settings),
    ]
    seen = [script(module, buffer) for module, buffer in zip((cpprb, ours), buffers, strict=True)]
    assert seen[0] == seen[1]
    rows = [buffer.get_all_transitions() for buffer in buffers]
    # At the end of an episode cpprb leaves any next value beside done = 1, and where just the last of the n
    # steps ended the episode it says done = 0.
    assert_same_rows(*rows, but=["next_obs", "done"] if "Nstep" in settings else [])
    if "Nstep" in settings:
        going_on = rows[1]["done"][:, 0] == 0
        assert rows[0]["done"][going_on].max() == 0.0
        np.testing.assert_array_equal(rows[0]["next_obs"][going_on], rows[1]["next_obs"][going_on])
    drawn = [buffer.sample(64) for buffer in buffers]
    assert_same_rows(drawn[0], drawn[1], but=drawn[0])
    for buffer in buffers:
        buffer.clear()
        assert (buffer.get_stored_size(), buffer.get_next_index()) == (0, 0)


def test_rows_cut_without_done_keep_their_true_next_values():
    buffer = ours.PrioritizedReplayBuffer(16, FIELDS, Nstep=N_STEP)
    for i in range(5):
        buffer.add(**transition(i))
    buffer.on_episode_end()
    rows = buffer.get_all_transitions()
    assert rows["next_obs"][:, 0, 0].tolist() == [3, 4, 5, 5, 5]
    np.testing.assert_allclose(rows["rew"][:, 0] * 8, [1.0, 2.75, 4.5, 5.0, 4.0])


def test_n_steps_that_reach_the_end_say_so():
    buffer = ours.ReplayBuffer(16, FIELDS, Nstep=N_STEP)
    for i in range(5):
        buffer.add(**transition(i, float(i == 4)))
    buffer.on_episode_end()
    assert buffer.get_all_transitions()["done"][:, 0].tolist() == [0, 0, 1, 1, 1]


def test_priorities_and_weights_as_in_cpprb():
    buffers = [module.PrioritizedReplayBuffer(8, FIELDS, alpha=0.6, eps=1e-4) for module in (cpprb, ours)]
    priorities = np.array([5.0, 0.1, 2.0, 3.0, 1.0, 0.5, 4.0, 0.0])
    by_index = []
    for buffer in buffers:
        for i in range(8):
            buffer.add(**transition(i))
        assert buffer.get_max_priority() == 1.0
        buffer.update_priorities(np.arange(8), priorities)
        assert buffer.get_max_priority() == 5.0
        weights = {}
        counts = np.zeros(8)
        for _ in range(300):
            # cpprb's weights and indexes are overwritten by the next draw.
            batch = buffer.sample(64, beta=0.7)
            assert (batch["weights"].dtype, batch["indexes"].dtype) == (np.float32, np.uint64)
            np.testing.assert_array_equal(batch["act"][:, 0], batch["indexes"])
            np.add.at(counts, batch["indexes"].astype(int), 1)
            weights |= dict(zip(batch["indexes"].tolist(), batch["weights"].tolist(), strict=True))
        by_index.append((counts / counts.sum(), weights))
    shares = (priorities + 1e-4) ** 0.6
    shares /= shares.sum()
    for counts, weights in by_index:
        np.testing.assert_allclose(counts, shares, atol=0.01)
        for i, weight in weights.items():
            assert weight == pytest.approx((shares[i] / shares.min()) ** -0.7, rel=2e-3)


def test_a_batch_is_not_changed_by_the_next_draw():
    buffer = ours.PrioritizedReplayBuffer(64, FIELDS)
    for i in range(64):
        buffer.add(**transition(i), priorities=i + 1.0)
    batch = buffer.sample(32)
    held = {name: array.copy() for name, array in batch.items()}
    for _ in range(5):
        buffer.sample(32)
    assert_same_rows(batch, held)


def test_given_priorities_and_new_rows():
    buffer = ours.PrioritizedReplayBuffer(8, FIELDS, alpha=1.0, eps=0.0)
    assert buffer.add(**transition(0), priorities=7.0) == 0
    assert buffer.get_max_priority() == 7.0
    assert buffer.add(**transition(1)) == 1
    weights = buffer.sample(64, beta=1.0)["weights"]
    assert set(weights.tolist()) == {1.0}


def test_late_priorities_are_dropped():
    buffer = ours.PrioritizedReplayBuffer(4, FIELDS, alpha=1.0, eps=0.0, check_for_update=True)
    for i in range(4):
        buffer.add(**transition(i), priorities=1.0)
    indexes = buffer.sample(16)["indexes"]
    for i in range(4, 8):
        buffer.add(**transition(i), priorities=1.0)
    buffer.update_priorities(indexes, np.full(16, 50.0))
    assert buffer.get_max_priority() == 1.0
    assert buffer.stale_updates == 16


def test_files_are_read_by_the_same_class_and_from_cpprb(tmp_path):
    for settings in ({}, {"next_of": "obs"}):
        fields = WITHOUT_NEXT if settings else FIELDS
        for module in (ours, cpprb):
            source = module.ReplayBuffer(16, fields, **settings)
            for i in range(10):
                source.add(**transition(i))
            path = str(tmp_path / f"{module.__name__}.npz")
            source.save_transitions(path)
            if module is ours or not settings:
                copy = ours.PrioritizedReplayBuffer(16, fields, **settings)
                copy.load_transitions(path)
                assert_same_rows(source.get_all_transitions(), copy.get_all_transitions())
                assert copy.sample(4)["weights"].tolist() == [1.0] * 4
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="no transitions"):
        ours.ReplayBuffer(4, FIELDS).load_transitions(tmp_path / "other.npz")


def test_shared_next_values_at_the_ring_border_and_in_batches():
    for size in (3, 4, 5, 8):
        theirs, mine = (module.ReplayBuffer(size, WITHOUT_NEXT, next_of="obs") for module in (cpprb, ours))
        rng = np.random.default_rng(size)
        i = 0
        for _ in range(30):
            n = int(rng.integers(1, 3))
            rows = [transition(i + j) for j in range(n)]
            columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
            for buffer in (theirs, mine):
                buffer.add(**columns)
            i += n
            if rng.random() < 0.3:
                theirs.on_episode_end()
                mine.on_episode_end()
                i += 100
            rows = mine.get_all_transitions()
            np.testing.assert_array_equal(rows["next_obs"], rows["obs"] + 1)


def test_mapped_files(tmp_path):
    buffer = ours.ReplayBuffer(8, FIELDS, mmap_prefix=str(tmp_path / "rb_"))
    buffer.add(**transition(7))
    assert (tmp_path / "rb_obs.dat").stat().st_size == 8 * 6
    assert buffer.sample(2)["act"].tolist() == [[7], [7]]


def test_bad_input():
    buffer = ours.PrioritizedReplayBuffer(4, FIELDS)
    with pytest.raises(NotSampleableError, match="empty"):
        buffer.sample(2)
    with pytest.raises(KeyError, match="done"):
        buffer.add(**{k: v for k, v in transition(0).items() if k != "done"})
    with pytest.raises(KeyError, match="extra"):
        buffer.add(**transition(0), extra=1)
    with pytest.raises(ValueError, match="obs has shape"):
        buffer.add(**{**transition(0), "obs": np.zeros(5)})
    with pytest.raises(ValueError, match="nan"):
        buffer.add(**transition(0), priorities=np.nan)
    assert buffer.get_stored_size() == 0
    buffer.add(**transition(0))
    with pytest.raises(TypeError, match="None"):
        buffer.update_priorities([0], None)
    with pytest.raises(IndexError, match="4"):
        buffer.update_priorities([4], [1.0])
    with pytest.raises(ValueError, match="length 1"):
        buffer.update_priorities([0, 0], [1.0])
    with pytest.raises(KeyError, match="nothing"):
        ours.ReplayBuffer(4, FIELDS, next_of="nothing")
