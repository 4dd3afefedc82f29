"""The same calls on cpprb's classes and on parl's classes of the same names."""

import numpy as np
import pytest

from parl.adapters import cpprb as ours
from parl.errors import NotSampleableError

cpprb = pytest.importorskip("cpprb", reason="cpprb has no wheel for this Python")

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


def make_calls(module, buffer):
    """Makes the calls of a training script and returns all their results."""
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
def test_the_same_calls_give_the_same_results(kind, settings, size):
    fields = WITHOUT_NEXT if "next_of" in settings else FIELDS
    theirs = {**settings}
    theirs.pop("stack_compress", None)
    buffers = [
        getattr(cpprb, kind)(size, fields, **theirs),
        getattr(ours, kind)(size, fields, **settings),
    ]
    seen = [make_calls(module, buffer) for module, buffer in zip((cpprb, ours), buffers, strict=True)]
    assert seen[0] == seen[1]
    rows = [buffer.get_all_transitions() for buffer in buffers]
    # At the end of an episode cpprb stores an arbitrary next value where done = 1, and it stores done = 0 if
    # only the last of the n steps ended the episode.
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


def test_n_step_rows_cut_without_done_keep_their_next_values():
    buffer = ours.PrioritizedReplayBuffer(16, FIELDS, Nstep=N_STEP)
    for i in range(5):
        buffer.add(**transition(i))
    buffer.on_episode_end()
    rows = buffer.get_all_transitions()
    assert rows["next_obs"][:, 0, 0].tolist() == [3, 4, 5, 5, 5]
    np.testing.assert_allclose(rows["rew"][:, 0] * 8, [1.0, 2.75, 4.5, 5.0, 4.0])


def test_n_step_rows_that_reach_the_end_have_done_1():
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


def test_shared_next_values_at_the_end_of_the_ring_and_in_batches():
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


def episodes(module, size=20, episodes=3, **settings):
    """A buffer with episodes of two rows: 0, 1 -> 2; 10, 11 -> 12; ..."""
    buffer = module.ReplayBuffer(size, {"obs": {}, "rew": {}, "done": {}}, **settings)
    for first in range(0, 10 * episodes, 10):
        for i in range(first, first + 2):
            buffer.add(obs=i, rew=1.0, done=0.0, next_obs=i + 1.0)
        buffer.on_episode_end()
    return buffer


@pytest.mark.parametrize("module", [ours, cpprb], ids=["parl", "cpprb"])
@pytest.mark.parametrize("safe", [True, False], ids=["safe", "unsafe"])
@pytest.mark.parametrize("size", [20, 5], ids=["free", "wrapped"])
def test_loaded_rows_keep_the_next_values_of_their_episodes(tmp_path, module, safe, size):
    source = episodes(module, size, next_of="obs")
    held = {name: array.copy() for name, array in source.get_all_transitions().items()}
    source.save_transitions(str(tmp_path / "rows.npz"), safe=safe)
    buffer = ours.ReplayBuffer(20, {"obs": {}, "rew": {}, "done": {}}, next_of="obs")
    buffer.add(obs=100.0, rew=0.0, done=0.0, next_obs=101.0)
    buffer.load_transitions(tmp_path / "rows.npz")
    assert buffer.get_current_episode_len() == 1
    buffer.add(obs=200.0, rew=0.0, done=0.0, next_obs=201.0)
    rows = buffer.get_all_transitions()
    assert rows["obs"][:, 0].tolist() == [100.0, *held["obs"][:, 0], 200.0]
    np.testing.assert_array_equal(rows["next_obs"], rows["obs"] + 1)
    # A buffer with a field for next values reads them from the same file.
    plain = ours.ReplayBuffer(20, {"obs": {}, "next_obs": {}})
    plain.load_transitions(tmp_path / "rows.npz")
    np.testing.assert_array_equal(plain.get_all_transitions()["next_obs"], held["next_obs"])


def test_rows_added_together_keep_the_next_values_of_their_episodes():
    buffer = ours.ReplayBuffer(8, {"obs": {}}, next_of="obs")
    buffer.add(obs=[1, 2, 10, 11], next_obs=[2, 3, 11, 12])
    np.testing.assert_array_equal(buffer.get_all_transitions()["next_obs"][:, 0], [2, 3, 11, 12])


def test_shared_next_values_of_n_step_rows_are_n_steps_later():
    n_step = {"size": 3, "gamma": 0.5, "rew": "rew", "next": "next_obs"}
    buffer = ours.ReplayBuffer(20, {"obs": {}, "rew": {}, "done": {}}, next_of="obs", Nstep=n_step)
    for i in range(5):
        buffer.add(obs=i, rew=0.0, done=0.0, next_obs=i + 1)
    buffer.on_episode_end()
    np.testing.assert_array_equal(buffer.get_all_transitions()["next_obs"][:, 0], [3, 4, 5, 5, 5])


def test_compressed_rows_of_unsafe_files_are_decompressed(tmp_path):
    fields = {"obs": {"shape": 3}}
    source = cpprb.ReplayBuffer(10, fields, stack_compress="obs")
    rows = np.arange(3) + np.arange(6)[:, None]
    source.add(obs=rows[:4])
    source.on_episode_end()
    source.add(obs=rows + 50)
    source.save_transitions(str(tmp_path / "rows.npz"), safe=False)
    buffer = ours.ReplayBuffer(10, fields)
    buffer.load_transitions(tmp_path / "rows.npz")
    np.testing.assert_array_equal(buffer.get_all_transitions()["obs"], [*rows[:4], *(rows + 50)])


TWO_STEPS = {"size": 2, "gamma": 0.5, "rew": "rew", "next": "next_obs"}


@pytest.mark.parametrize(
    ("module", "saved", "loaded", "text"),
    [
        (ours, TWO_STEPS, None, "size 2, gamma 0.5; this buffer has Nstep size 1"),
        (ours, None, TWO_STEPS, "size 1, gamma 1.0; this buffer has Nstep size 2"),
        (ours, TWO_STEPS, {**TWO_STEPS, "size": 3}, "size 2, gamma 0.5; this buffer has Nstep size 3"),
        (ours, TWO_STEPS, {**TWO_STEPS, "gamma": 0.9}, "size 2, gamma 0.5; .* size 2, gamma 0.9"),
        (cpprb, TWO_STEPS, None, "n-step rows; this buffer has Nstep size 1"),
        (cpprb, None, TWO_STEPS, "1-step rows; this buffer has Nstep size 2"),
    ],
)
def test_files_with_another_number_of_steps_are_refused(tmp_path, module, saved, loaded, text):
    source = module.ReplayBuffer(16, FIELDS, **({"Nstep": saved} if saved else {}))
    for i in range(6):
        source.add(**transition(i))
    source.save_transitions(str(tmp_path / "rows.npz"))
    buffer = ours.ReplayBuffer(16, FIELDS, Nstep=loaded)
    with pytest.raises(ValueError, match=text):
        buffer.load_transitions(tmp_path / "rows.npz")
    assert buffer.get_stored_size() == 0


def test_unsafe_files_are_smaller_and_a_missing_field_raises(tmp_path):
    source = ours.ReplayBuffer(200, {"obs": {"shape": 100}}, next_of="obs")
    values = np.random.default_rng(0).random((101, 100))
    source.add(obs=values[:-1], next_obs=values[1:])
    sizes = []
    for safe in (True, False):
        source.save_transitions(tmp_path / "rows.npz", safe=safe)
        sizes.append((tmp_path / "rows.npz").stat().st_size)
    assert sizes[1] < 0.6 * sizes[0]
    with pytest.raises(KeyError, match=r"rows.npz has no act; it has obs, next_obs"):
        ours.ReplayBuffer(8, {"obs": {"shape": 100}, "act": {}}).load_transitions(tmp_path / "rows.npz")


def test_mapped_files_have_the_names_and_sizes_of_cpprbs(tmp_path):
    sizes = []
    for module in (cpprb, ours):
        folder = tmp_path / module.__name__
        folder.mkdir()
        buffer = module.ReplayBuffer(8, FIELDS, mmap_prefix=str(folder / "rb"))
        buffer.add(**transition(7))
        assert buffer.sample(2)["act"].tolist() == [[7], [7]]
        sizes.append({path.name: path.stat().st_size for path in folder.iterdir()})
    assert sizes[0] == sizes[1]
    assert sizes[1]["rb_obs.dat"] == 8 * 6


def test_bad_input_raises():
    with pytest.raises(TypeError, match="Nstep needs rewards that are floats, the field 'rew' is int32"):
        ours.ReplayBuffer(4, FIELDS | {"rew": {"dtype": np.int32}}, Nstep={"size": 2, "rew": "rew"})
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
    for beta in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"beta is {beta}, expected a finite number of at least 0"):
            buffer.sample(2, beta=beta)
    with pytest.raises(KeyError, match="nothing"):
        ours.ReplayBuffer(4, FIELDS, next_of="nothing")


def test_rows_that_were_never_written_are_not_drawn():
    for module in (cpprb, ours):
        buffer = module.PrioritizedReplayBuffer(10, FIELDS)
        for i in range(4):
            buffer.add(**transition(i))
        buffer.update_priorities([7], [100.0])
        assert set(buffer.sample(200)["indexes"]) == {0, 1, 2, 3}
        late = buffer.sample(20)["indexes"]
        buffer.clear()
        buffer.add(**transition(5))
        buffer.update_priorities(late[late > 0], np.full((late > 0).sum(), 3.0))
        assert set(buffer.sample(200)["indexes"]) == {0}
