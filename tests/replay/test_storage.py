"""Memory-mapped files, loading with another capacity, and compressed rows."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model import fields
from numbered_rows import SPEC, step

import parl
from tickets import same_tickets


def everything(replay) -> dict[int, tuple]:
    """Contents of each row that can be sampled, by its action, which is its number."""
    if replay.sampleable == 0:
        return {}
    batch = replay.sample(replay.sampleable, mode="systematic")
    names = [name for name in batch if name not in ("indices", "tickets", "weights")]
    rows = zip(*(batch[name].reshape(replay.sampleable, -1).tolist() for name in names), strict=True)
    return dict(zip(batch.action.tolist(), rows, strict=True))


@settings(max_examples=40)
@given(
    old=st.sampled_from([9, 40, 100, 333]),
    new=st.sampled_from([9, 39, 40, 128, 1000]),
    steps=st.integers(0, 130),
    n_step=st.integers(1, 3),
    frame_stack=st.sampled_from([1, 3]),
    compression=st.sampled_from(["none", "lz4"]),
)
def test_loading_with_another_capacity_keeps_the_newest_rows(
    tmp_path_factory, old, new, steps, n_step, frame_stack, compression
):
    path = tmp_path_factory.mktemp("replay") / "replay.bin"
    options = {"n_step": n_step, "num_envs": 4, "frame_stack": frame_stack, "compression": compression}
    first = parl.UniformReplay(old, SPEC, **options)
    # A replay of the new capacity to which the same rows are added.
    model = parl.UniformReplay(new, SPEC, **options)
    tickets = [step(first, number) for number in range(steps)]
    for number in range(steps):
        step(model, number)
    first.save(path)
    loaded = parl.UniformReplay.load(path, capacity=new)
    loaded.verify()
    assert loaded.capacity == new and len(loaded) == min(4 * steps, old, new)
    if not (loaded.sampleable and first.sampleable and model.sampleable):
        assert loaded.sampleable == min(first.sampleable, model.sampleable)
    else:
        ours, small, large = everything(loaded), everything(first), everything(model)
        assert ours == {k: v for k, v in small.items() if k in large}
        assert loaded.sampleable == len(ours)
    if new != old and tickets:
        prioritized = parl.PrioritizedReplay.load(path, capacity=new)
        before = np.concatenate(tickets)
        before = before[before & 0xFFFFFFFF < new]  # Tickets of slots beyond the ring raise an error.
        stale = prioritized.update_priorities(before, np.ones(len(before)))
        assert stale == len(before), "tickets from before loading are stale"
    # Windows and stacks that were incomplete in the file are completed by rows added after loading.
    for number in range(steps, steps + 400):
        step(loaded, number)
        step(model, number)
    loaded.verify()
    assert everything(loaded) == everything(model)


def test_loading_with_another_capacity_keeps_priorities(tmp_path):
    replay = parl.PrioritizedReplay(100, {"x": ((), "int64")}, alpha=1.0, epsilon=0.0)
    replay.add(x=np.arange(100), priorities=np.arange(100) / 2 + 1)
    replay.save(tmp_path / "replay.bin")
    loaded = parl.PrioritizedReplay.load(tmp_path / "replay.bin", capacity=10)
    assert loaded.total_priority == sum(x / 2 + 1 for x in range(90, 100))
    loaded.add(x=[100])
    assert loaded.total_priority == sum(x / 2 + 1 for x in range(91, 100)) + 50.5
    with pytest.raises(ValueError, match=r"capacity is 0, expected 1 to"):
        parl.PrioritizedReplay.load(tmp_path / "replay.bin", capacity=0)


def test_a_uniform_replay_refuses_files_and_memory_with_priorities(tmp_path):
    text, name = "is not a UniformReplay; use PrioritizedReplay", f"parl-test-kind-{os.getpid()}"
    with parl.PrioritizedReplay(20, {"x": ((), "int64")}, shared=name) as replay:
        replay.add(x=np.arange(20), priorities=np.arange(20))
        replay.save(tmp_path / "replay.bin")
        with pytest.raises(ValueError, match=text):
            parl.UniformReplay.load(tmp_path / "replay.bin")
        with pytest.raises(ValueError, match=text):
            parl.UniformReplay.attach(name)
    # The other way round rows have equal priorities, as in the file.
    parl.UniformReplay(20, {"x": ((), "int64")}).save(tmp_path / "uniform.bin")
    assert parl.UniformReplay.load(tmp_path / "uniform.bin").capacity == 20
    assert parl.PrioritizedReplay.load(tmp_path / "uniform.bin").settings["alpha"] == 0.0


def test_a_mapped_file_can_be_opened_again(tmp_path):
    path = tmp_path / "replay.map"
    options = {"n_step": 2, "num_envs": 4, "frame_stack": 2, "seed": 5}
    twin = parl.PrioritizedReplay(60, SPEC, **options)
    for part in range(4):
        with parl.PrioritizedReplay(60, SPEC, path=path, **options) as replay:
            same_tickets(replay, twin)
            assert os.stat(path).st_mode & 0o777 == 0o600 and replay.path == str(path)
            for number in range(13 * part, 13 * part + 13):
                np.testing.assert_array_equal(step(replay, number), step(twin, number))
                ours, theirs = replay.sample(8), twin.sample(8)
                for name in ours:
                    np.testing.assert_array_equal(ours[name], theirs[name], name)
                priorities = np.random.default_rng(number).random(8)
                replay.update_priorities(ours.tickets, priorities)
                twin.update_priorities(ours.tickets, priorities)
            replay.flush()
    with parl.PrioritizedReplay.open(path) as replay:
        assert everything(replay) == everything(twin) and replay.total_priority == twin.total_priority
        second = pickle.loads(pickle.dumps(replay))
        assert everything(second) == everything(twin)
        step(second, 100)
        step(twin, 100)
        assert everything(replay) == everything(twin), "both handles share one memory"
        second.close()
    assert os.listdir(tmp_path) == ["replay.map"]


WRITER = """
    import sys
    import numpy as np
    import parl
    sys.path.insert(0, sys.argv[2])
    from numbered_rows import SPEC, step
    replay = parl.PrioritizedReplay(200, SPEC, path=sys.argv[1], n_step=2, num_envs=4, alpha=1.0)
    for number in range(int(sys.argv[3]), 10**9):
        tickets = step(replay, number)
        replay.update_priorities(tickets, np.full(4, 3.0))
        if number % 10 == 9:
            replay.flush()
            print(number, flush=True)
"""


def test_a_mapped_replay_is_not_saved_over_its_own_file(tmp_path, monkeypatch):
    """The map would keep the file that was replaced, and later rows would be lost with it."""
    monkeypatch.chdir(tmp_path)
    with parl.UniformReplay(20, {"x": ((), "int64")}, path=tmp_path / "replay.map") as replay:
        replay.add(x=np.arange(5))
        for path in ("replay.map", tmp_path / "replay.map"):
            with pytest.raises(
                ValueError, match=r"replay.map is the file of this replay itself: use flush\(\)"
            ):
                replay.save(path)
        replay.add(x=np.arange(5, 8))
        replay.save("other.bin")
    with parl.UniformReplay.open("replay.map") as replay:
        assert len(replay) == len(parl.UniformReplay.load("other.bin")) == 8


def test_a_killed_process_loses_no_flushed_row(tmp_path):
    """A process is killed repeatedly while it adds: every flushed row is in the file, and complete."""
    path = tmp_path / "replay.map"
    first = 0
    for attempt in range(3):
        command = [
            sys.executable,
            "-c",
            textwrap.dedent(WRITER),
            str(path),
            os.path.dirname(__file__),
            str(first),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        flushed = -1
        for _ in range(3 + attempt):
            flushed = int(process.stdout.readline())
        time.sleep(0.003 * attempt)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with parl.PrioritizedReplay.open(path) as replay:
            replay.verify()
            batch = replay.sample(replay.sampleable, mode="without_replacement")
            assert (batch.obs == batch.obs[:, :1, :1]).all(), "no torn row"
            numbers = batch.action // 4
            np.testing.assert_array_equal(batch.obs[:, 0, 0], numbers % 250 + 1)
            # The killed process may have reserved one step of 4 rows without writing it.
            newest = int(numbers.max())
            assert newest >= flushed - 2, "the last steps have incomplete windows"
            held = 4 * (newest + 1) >= 200
            rows = parl.UniformReplay(200, SPEC, n_step=2, num_envs=4)
            for number in range(first, newest + 2):
                step(rows, number)
            there = set(batch.action.tolist())
            # After a row that ends an episode, the first row of the next process is that of a reset.
            begin = first + 1 if attempt else 0
            expected = {a for a in everything(rows) if begin <= a // 4 <= flushed - 2}
            lost = 8 if held else 0
            missing = sorted(expected - there)
            assert len(missing) <= lost and all(a < 4 * (newest - 40) for a in missing)
            first = newest + 10
            step(replay, first)
            first += 1


def _sample_and_close(replay: parl.UniformReplay) -> None:
    replay.sample(4)
    replay.close()


def test_a_fork_that_closes_the_file_leaves_it_open_in_its_parent(tmp_path):
    path = tmp_path / "replay.map"
    with parl.UniformReplay(50, {"x": ((), "int64")}, path=path) as replay:
        replay.add(x=np.arange(30))
        child = multiprocessing.get_context("fork").Process(target=_sample_and_close, args=(replay,))
        child.start()
        child.join(30)
        assert child.exitcode == 0
        # Another process finds that it does not have the file alone, so that it does not seal it on closing.
        code = "import parl, sys; parl.UniformReplay.open(sys.argv[1]).close()"
        subprocess.run([sys.executable, "-c", code, path], check=True)
        replay.add(x=np.arange(30, 40))
        # As a killed process leaves the file.
        shutil.copy(path, tmp_path / "killed.map")
    for name in ("killed.map", "replay.map"):
        with parl.UniformReplay.open(tmp_path / name) as replay:
            replay.verify()
            assert len(replay) == 40


def test_verify_accepts_a_file_that_is_not_full(tmp_path):
    with parl.UniformReplay(600, SPEC, path=tmp_path / "replay.map", num_envs=4) as replay:
        replay.verify()
        step(replay, 0)
        replay.flush()
        replay.verify()
        assert len(replay) == 4 and replay.capacity == 600


def test_files_that_are_no_mapped_replay_are_refused(tmp_path):
    path = tmp_path / "replay.map"
    parl.UniformReplay(60, SPEC, path=path).close()
    with pytest.raises(
        parl.errors.SharedMemoryError, match='exists with other settings: "capacity 60" there'
    ):
        parl.UniformReplay(61, SPEC, path=path)
    whole = path.read_bytes()
    for name, damaged in {
        "empty": b"",
        "short": whole[:100],
        "cut": whole[:-4096],
        "foreign": b"x" * len(whole),
        "settings": whole[:140] + b"?" + whole[141:],
    }.items():
        bad = tmp_path / name
        bad.write_bytes(damaged)
        with pytest.raises(parl.errors.ReplayFileError, match=f"{name} is not a replay"):
            parl.UniformReplay.open(bad)
        assert bad.read_bytes() == damaged, "a refused file is not changed"
    saved = tmp_path / "saved"
    parl.UniformReplay(60, SPEC).save(saved)
    with pytest.raises(parl.errors.ReplayFileError):
        parl.UniformReplay.open(saved)
    with pytest.raises(parl.errors.ReplayFileError):
        parl.UniformReplay.load(path)
    with pytest.raises(FileNotFoundError):
        parl.UniformReplay.open(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        parl.UniformReplay(60, SPEC, path=tmp_path / "none" / "replay.map")
    with pytest.raises(IsADirectoryError):
        parl.UniformReplay.open(tmp_path)
    with pytest.raises(ValueError, match="shared and path are both given"):
        parl.UniformReplay(60, SPEC, path=path, shared="x")
    with pytest.raises(ValueError, match="memory is private, expected a replay in a file"):
        parl.UniformReplay(60, SPEC).flush()


def test_a_file_with_unflushed_rows_is_refused_after_a_reboot(tmp_path):
    path, torn = tmp_path / "replay.map", tmp_path / "torn.map"
    replay = parl.UniformReplay(60, SPEC, num_envs=4, path=path)
    step(replay, 0)

    def as_after_a_restart() -> None:
        shutil.copy(path, torn)
        with open(torn, "r+b") as file:
            file.seek(8 * 6)
            file.write(b"\1" * 8)  # The word with the hash of the boot id.

    as_after_a_restart()
    with pytest.raises(
        parl.errors.ReplayFileError, match="the machine went down while rows were being written"
    ):
        parl.UniformReplay.open(torn)
    replay.flush()
    as_after_a_restart()
    with parl.UniformReplay.open(torn) as again:
        assert len(again) == 4
    step(replay, 1)
    as_after_a_restart()
    with pytest.raises(parl.errors.ReplayFileError, match="the machine went down"):
        parl.UniformReplay.open(torn)
    replay.close()
    shutil.copy(path, torn)
    assert torn.read_bytes()[8 * 6 : 8 * 7] == bytes(8), "a closed file has no boot id"
    parl.UniformReplay.open(torn).close()


def test_a_program_that_ends_closes_what_its_threads_keep(tmp_path, name):
    """A prefetcher's thread, which is a daemon, keeps the replay alive when the process ends."""
    code = (
        "import parl, sys\n"
        "places = {'path': sys.argv[1]}, {'shared': sys.argv[2]}\n"
        "kept = [parl.UniformReplay(50, {'x': ((), 'int64')}, **place) for place in places]\n"
        "batches = [(one.add(x=range(9)), one.prefetch(4)) for one in kept]\n"
        "assert all(len(next(batch)) == 4 for _, batch in batches)"
    )
    path = tmp_path / "replay.map"
    subprocess.run([sys.executable, "-c", code, path, name], check=True)
    assert path.read_bytes()[8 * 6 : 8 * 7] == bytes(8), "a closed file has no boot id"
    assert not os.path.exists(f"/dev/shm/{name}")


def test_a_closed_file_is_sealed_and_an_open_one_is_not(tmp_path):
    path = tmp_path / "replay.map"
    unsealed = b"not clos"[::-1]

    def seal() -> bytes:
        return path.read_bytes()[8 * 9 : 8 * 10]

    first = parl.UniformReplay(60, SPEC, num_envs=4, path=path)
    second = parl.UniformReplay.open(path)
    for number in range(40):
        step(second, number)
    first.flush()
    assert seal() == unsealed
    first.close()
    assert seal() == unsealed, "the other handle is still open"
    second.close()
    assert seal() not in (unsealed, bytes(8)), "closing the last handle seals the file"
    whole = bytearray(path.read_bytes())
    rows = len(whole) - 12_000  # Frames are the first field and take most of the file.
    for at, reason in {
        8: "its header is damaged",
        8 * 9: "its checksum is wrong",
        2000: "its checksum is wrong",
        rows: r"the rows in slots \d+\.\.\d+ differ from their checksum",
    }.items():
        damaged = bytearray(whole)
        damaged[at] ^= 16
        path.write_bytes(damaged)
        with (
            pytest.raises(parl.errors.ReplayFileError, match=reason),
            parl.UniformReplay.open(path) as replay,
        ):
            replay.verify()
    path.write_bytes(whole)
    with parl.UniformReplay.open(path) as replay:
        assert seal() == unsealed
        replay.verify()
        assert len(replay) == 60


def frames(count: int) -> np.ndarray:
    """Frames like those of games: a still background, a few moving boxes and one noisy corner."""
    rng = np.random.default_rng(0)
    made = np.empty((count, 84, 84), np.uint8)
    made[:] = (np.arange(84) // 12 * 20)[:, None]
    for i, one in enumerate(made):
        for speed in (1, 2, 3):
            at = i * speed % 70
            one[at : at + 9, 70 - at : 75 - at] = 40 * speed
        one[:4, :4] = rng.integers(0, 255, (4, 4))
    return made


def test_compression_does_not_change_samples(tmp_path):
    made = frames(1500)
    replays = {}
    for kind in ("none", "lz4"):
        spec = {**fields(), "obs": ((84, 84), "uint8")}
        replay = parl.PrioritizedReplay(700, spec, num_envs=1, frame_stack=4, compression=kind, seed=1)
        replays[kind] = replay
        same_tickets(replays["none"], replay)
        for i, one in enumerate(made):
            replay.add(obs=one[None], action=[i], reward=[0], terminated=[i % 90 == 89], truncated=[False])
        replay.save(tmp_path / kind)
    for replay in (replays["lz4"], parl.PrioritizedReplay.load(tmp_path / "lz4")):
        plain = parl.PrioritizedReplay.load(tmp_path / "none")
        for _ in range(20):
            ours, theirs = replay.sample(32), plain.sample(32)
            for name in theirs:
                np.testing.assert_array_equal(ours[name], theirs[name], name)
    assert replays["lz4"].nbytes < replays["none"].nbytes / 8
    assert os.path.getsize(tmp_path / "lz4") < os.path.getsize(tmp_path / "none") / 8
    held = replays["lz4"].nbytes
    for i, one in enumerate(made):  # The memory of overwritten rows is freed.
        replays["lz4"].add(obs=one[None], action=[i], reward=[0], terminated=[False], truncated=[False])
    assert replays["lz4"].nbytes < 1.05 * held


def test_damage_in_compressed_files_is_detected(tmp_path):
    replay = parl.UniformReplay(20, {"x": ((300,), "uint8")}, compression="lz4")
    replay.add(x=np.tile(np.arange(30, dtype=np.uint8), (20, 10)))
    replay.save(tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        (tmp_path / "bad").write_bytes(damaged)
        with pytest.raises(parl.errors.ReplayFileError):
            parl.UniformReplay.load(tmp_path / "bad")


def test_compression_needs_private_memory(tmp_path, name):
    for where in ({"shared": name}, {"path": tmp_path / "replay.map"}):
        with pytest.raises(
            ValueError, match=r"compression is lz4, expected none in shared memory and mapped files"
        ):
            parl.UniformReplay(20, {"x": ((300,), "uint8")}, compression="lz4", **where)
    assert not os.listdir(tmp_path)


def test_threads_read_and_overwrite_compressed_rows():
    import threading

    replay = parl.UniformReplay(64, {"x": ((2000,), "uint8")}, compression="lz4")
    rows = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 2000, 1)
    replay.add(x=rows[:64])
    errors = []

    def write() -> None:
        for i in range(2_000):
            replay.add(x=rows[i % 250 : i % 250 + 5])

    def read() -> None:
        for _ in range(1_000):
            x = replay.sample(16).x
            if (x != x[:, :1]).any():
                errors.append("torn")

    threads = [threading.Thread(target=work) for work in (write, write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors and replay.counters["added"] == 64 + 2 * 2_000 * 5
