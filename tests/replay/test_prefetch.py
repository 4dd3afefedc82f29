"""Prefetched batches equal those of a loop that samples ahead without a thread."""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from itertools import islice

import numpy as np
import pytest
from model import fields

import parl
from tickets import same_tickets


def filled(seed: int = 3) -> parl.PrioritizedReplay:
    replay = parl.PrioritizedReplay(300, fields(), n_step=2, num_envs=4, seed=seed)
    for step in range(40):
        add(replay, step)
    return replay


def add(replay, step: int) -> None:
    rng = np.random.default_rng(step)
    replay.add(
        obs=rng.random(4, np.float32),
        action=rng.integers(0, 9, 4),
        reward=rng.random(4, np.float32),
        terminated=rng.random(4) < 0.1,
        truncated=rng.random(4) < 0.1,
    )


def sampled_ahead(replay, depth: int, **options):
    """Samples as prefetch does, without a thread: ``depth`` batches ahead, one more for each one taken."""
    ahead = deque(replay.sample(16, **options) for _ in range(depth))
    while True:
        batch = ahead.popleft()
        ahead.append(replay.sample(16, **options))
        yield batch


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("reuse", [False, True])
def test_ordered_prefetch_equals_a_loop_without_a_thread(depth, reuse):
    ours, theirs = filled(), filled()
    same_tickets(ours, theirs)
    with ours.prefetch(16, depth=depth, reuse=reuse, beta=0.5) as sampler:
        plain = sampled_ahead(theirs, depth, beta=0.5)
        for step in range(120):
            batch, expected = next(sampler), next(plain)
            for name in expected:
                np.testing.assert_array_equal(batch[name], expected[name], name)
            if step % 3 == 0:
                time.sleep(0.0005)  # The thread is sometimes late and sometimes early.
            for replay in (ours, theirs):
                replay.update_priorities(expected.tickets, np.random.default_rng(step).random(16))
                if step % 2:
                    add(replay, 1000 + step)
                if step % 17 == 0:
                    replay.end_episodes([step % 4])
    assert ours.total_priority == theirs.total_priority


def saved_generator(replay, path):
    replay.save(path)
    return parl.PrioritizedReplay.load(path).rng_state


@pytest.mark.parametrize("call", ["evict", "sample", "save", "rng_state", "set rng_state", "close"])
def test_a_batch_has_its_place_before_every_later_call(call, tmp_path):
    calls = {
        "evict": lambda replay, _: replay.evict(30),
        "sample": lambda replay, _: replay.sample(8).obs.tolist(),
        "save": lambda replay, _: saved_generator(replay, tmp_path / "replay.bin"),
        "rng_state": lambda replay, _: replay.rng_state,
        "set rng_state": lambda replay, _: setattr(replay, "rng_state", (5, 0)),
        "close": lambda replay, sampler: (sampler.close(), replay.rng_state)[1],
    }

    def results(delay: float) -> list:
        replay, sample = filled(), parl.PrioritizedReplay.sample
        rows = replay.sample(100)
        replay.update_priorities(rows.tickets, np.arange(100) + 1.0)

        def late_sample(*arguments, **options):
            if threading.current_thread().name == "parl-prefetch":
                time.sleep(delay)
            return sample(replay, *arguments, **options)

        replay.sample = late_sample
        with replay.prefetch(16, depth=2) as sampler:
            found = [next(sampler).obs.tolist()]
            time.sleep(0.05 - delay)  # The thread is early without its own delay.
            found.append(calls[call](replay, sampler))
            return [*found, *(batch.obs.tolist() for batch in islice(sampler, 2))]

    assert results(0.0) == results(0.05)


@pytest.mark.parametrize("late", [0, 1])
def test_two_ordered_iterators_take_turns(late):
    ours, theirs = filled(), filled()
    sample = ours.sample

    def late_sample(size, **options):
        # The iterators are told apart by the size of their batches.
        time.sleep(0.01 if threading.current_thread().name == "parl-prefetch" and size == 8 + late else 0.0)
        return sample(size, **options)

    ours.sample = late_sample
    with ours.prefetch(8, depth=1) as one, ours.prefetch(9, depth=1) as other:
        ahead = {8: theirs.sample(8), 9: theirs.sample(9)}
        for size in (8, 9, 9, 8, 8, 9):
            batch = next(one if size == 8 else other)
            np.testing.assert_array_equal(batch.obs, ahead[size].obs)
            ahead[size] = theirs.sample(size)


def test_prefetch_equals_sample_while_the_replay_does_not_change():
    ours, theirs = filled(), filled()
    with ours.prefetch(16, depth=3) as sampler:
        for _ in range(50):
            np.testing.assert_array_equal(next(sampler).obs, theirs.sample(16).obs)


def test_new_options_apply_to_batches_not_yet_sampled():
    replay = filled()
    batch = replay.sample(64)
    replay.update_priorities(batch.tickets, np.arange(64) + 1.0)
    with replay.prefetch(16, depth=2, beta=1.0) as sampler:
        replay.update_priorities(next(sampler).tickets, np.arange(16) + 1.0)
        sampler.set(beta=0.0)
        before, after = [next(sampler) for _ in range(2)], [next(sampler) for _ in range(2)]
        assert all(b.weights.min() < 1 for b in before)
        assert all((b.weights == 1).all() for b in after)


def test_sampling_errors_are_raised_by_next_and_do_not_persist():
    replay = parl.PrioritizedReplay(50, {"x": ((), "int64")})
    with replay.prefetch(4) as sampler:
        for _ in range(2):
            with pytest.raises(parl.errors.NotSampleableError):
                next(sampler)
        replay.add(x=np.arange(10))
        assert next(sampler).x.shape == (4,)
    assert len(list(sampler)) <= 2, "the batches already sampled, then the end"
    with (
        replay.prefetch(100, mode="without_replacement") as sampler,
        pytest.raises(parl.errors.NotSampleableError, match="100 distinct leaves"),
    ):
        next(sampler)
    with pytest.raises(ValueError, match="depth is 0, expected 1 to 1024"):
        replay.prefetch(4, depth=0)
    with pytest.raises(ValueError, match="prefetch does not take out"):
        replay.prefetch(4, out={})
    sampler = replay.prefetch(4)
    replay.close()
    with pytest.raises(parl.errors.ReplayClosedError):
        for _ in range(4):
            next(sampler)
    sampler.close()


def test_reused_arrays_are_not_overwritten_while_in_use():
    replay = filled()
    with replay.prefetch(16, depth=2, reuse=True) as sampler:
        seen = set()
        for _ in range(20):
            batch = next(sampler)
            seen.add(batch.obs.ctypes.data)
            copy = batch.obs.copy()
            time.sleep(0.001)
            np.testing.assert_array_equal(batch.obs, copy)
        assert len(seen) == 3


def test_unordered_prefetch_works_in_several_threads_at_once():
    replay = filled()
    errors: list[BaseException] = []

    def learner() -> None:
        try:
            with replay.prefetch(16, ordered=False) as sampler:
                for _ in range(200):
                    replay.update_priorities(next(sampler).tickets, np.ones(16))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=learner) for _ in range(3)]
    for thread in threads:
        thread.start()
    for step in range(100):
        add(replay, step)
    for thread in threads:
        thread.join(60)
    assert not errors and not any(thread.is_alive() for thread in threads)
    replay.verify()


def test_deleting_a_sampler_ends_its_thread():
    replay = filled()
    before = threading.active_count()
    sampler = replay.prefetch(16)
    next(sampler)
    thread = sampler._thread
    del sampler
    gc.collect()
    thread.join(10)
    assert not thread.is_alive() and threading.active_count() == before
    add(replay, 0)  # Must not block.


def test_torch_batches_are_filled_in_place():
    torch = pytest.importorskip("torch")
    replay = filled()
    with replay.prefetch(16, reuse=True, as_torch=True) as sampler:
        tensors = {next(sampler).obs.data_ptr() for _ in range(9)}
        assert len(tensors) == 3 and isinstance(next(sampler).obs, torch.Tensor)
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError):
            replay.empty_batch(4, pin_memory=True)
    else:
        assert replay.sample(4, out=replay.empty_batch(4, pin_memory=True), as_torch=True).obs.is_pinned()
