"""The device replay, its kernels compiled as host C++, gives the CPU's batches byte for byte."""

from __future__ import annotations

import gc
import math
import weakref
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from device_cases import CASES, GOALS, SEQUENCES, Case, assert_same, compare, tensors  # noqa: E402
from host_replay import HostDevice, HostReplay, HostSumTree, in_memory  # noqa: E402

import parl  # noqa: E402
from parl.errors import CudaUnavailableError, InconsistentError, NotSampleableError  # noqa: E402
from parl.replay.cuda import layout  # noqa: E402
from tickets import same_tickets  # noqa: E402


def run(case: Case, seed: int) -> int:
    """Compares the same calls on both replays. Returns the number of batches sampled."""
    cpu, mine = case.pair(seed, "cuda", in_memory)
    mine._cuda.program.backwards = case.backwards
    return compare(cpu, mine, case, seed)


@pytest.mark.parametrize("case", CASES + SEQUENCES + GOALS, ids=str)
def test_batches_equal_those_of_the_cpu(case: Case):
    assert run(case, seed=3) > 15


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 30))
def test_batches_of_many_seeds_equal_those_of_the_cpu(seed: int):
    assert all(run(case, seed) > 15 for case in CASES + SEQUENCES + GOALS)


FIELDS: dict[str, Any] = {
    "obs": ((3,), "float32"),
    "reward": ((), "float32"),
    "terminated": ((), "bool"),
    "truncated": ((), "bool"),
}


def steps(count: int, **others: Any) -> dict[str, Any]:
    return {
        "obs": torch.zeros((count, 3)),
        "reward": torch.zeros(count),
        "terminated": torch.zeros(count, dtype=torch.bool),
        "truncated": torch.zeros(count, dtype=torch.bool),
        **others,
    }


def test_bad_rows_are_skipped_and_reported_by_check():
    replay = HostReplay(20, FIELDS, device="cuda", num_envs=4, autoreset="same_step")
    batch = replay.sample(3)
    assert (batch.weights.tolist(), batch.tickets.tolist(), batch.obs.tolist()) == (
        [0] * 3,
        [0] * 3,
        [[0] * 3] * 3,
    )
    with pytest.raises(NotSampleableError, match="1 calls requested more rows than could be sampled"):
        replay.check()
    tickets = replay.add(**steps(4), env_id=[0, 1, 9, -1])
    with pytest.raises(IndexError, match=r"2 rows were from environments outside 0 to 3"):
        replay.check()
    replay.add(**steps(2, truncated=torch.tensor([True, False])))
    with pytest.raises(ValueError, match="1 truncated rows were added without their final observation"):
        replay.check()
    # The row of environment 1 has a successor; that of environment 0 was cut, since its final row is missing.
    assert replay.sampleable == 1
    assert int(replay.update_priorities(tickets, torch.tensor([1.0, float("nan"), 2.0, 3.0]))) == 0
    with pytest.raises(ValueError, match="1 priorities were not finite"):
        replay.check()
    replay.update_priorities([1 << 20, -1], torch.ones(2))
    with pytest.raises(IndexError, match="2 tickets were not issued by this replay"):
        replay.check()
    replay.check()
    # Errors of several kinds are in one message.
    replay.update_priorities(tickets, torch.tensor([-float("inf"), 1.0, 2.0, 3.0]))
    replay.update_priorities([1 << 20], torch.ones(1))
    replay.add(**steps(1), env_id=[4])
    with pytest.raises(ValueError, match=r"1 priorities were .*; 1 tickets were .*; 1 rows were from"):
        replay.check()
    replay.check()
    replay.verify()
    replay._memory.level(1)[0] += 1
    with pytest.raises(InconsistentError):
        replay.verify()


def test_tickets_of_another_replay_are_ignored_and_reported():
    fields = {"x": ((), "int64")}
    mine, other = (HostReplay(9, fields, alpha=1.0, epsilon=0.0, device="cuda") for _ in range(2))
    for _ in range(20):
        own, theirs = (replay.add(x=torch.arange(4)) for replay in (mine, other))
        both = torch.cat([own, theirs])
        assert int(mine.update_priorities(both, torch.full((8,), 0.5))) == 0
        with pytest.raises(IndexError, match="4 tickets were not issued by this replay"):
            mine.check()
        assert int(other.update_priorities(theirs, torch.ones(4))) == 0
        other.check()
    assert (mine.total_priority, other.total_priority) == (4.5, 9.0)
    assert mine.stale_updates == 0
    # Slot numbers are not tickets either. Ticket 0, which an empty replay returns, is dropped.
    assert int(mine.update_priorities(torch.tensor([0, 1, 1 << 32]), torch.ones(3))) == 1
    with pytest.raises(IndexError, match="2 tickets were not issued by this replay"):
        mine.check()


def test_an_environment_may_add_nothing_for_more_than_a_lap_of_the_ring():
    """Its newest row is then overwritten by one of another environment, whose link must not change."""
    case = Case(capacity=9, num_envs=2)
    cpu, mine = case.pair(3, "cuda", in_memory)
    number = 0
    for silence in (1, 10, 11, 12, 13, 20):
        for env in (0, *[1] * silence, 0, 1):
            row: dict[str, Any] = {
                "obs": np.full((1, 12), number, np.int32),
                "pixel": np.zeros((1, 5), np.uint8),
                "action": np.array([number]),
                "reward": np.ones(1, np.float32),
                "terminated": np.zeros(1, bool),
                "truncated": np.zeros(1, bool),
                "env_id": np.array([env]),
            }
            number += 1
            cpu.add(**row)
            mine.add(**tensors(row))
        assert assert_same(cpu, mine, 64, "stratified", True) is not None


def test_stale_priorities_raise_the_initial_priority_as_on_the_cpu():
    fields = {"x": ((), "int64")}
    cpu = parl.PrioritizedReplay(9, fields, fan_out=32)
    mine = HostReplay(9, fields, device="cuda")
    same_tickets(cpu, mine)
    tickets = cpu.add(x=np.arange(4))
    mine.add(x=torch.arange(4))
    for _ in range(4):
        cpu.add(x=np.arange(4))
        mine.add(x=torch.arange(4))
    dropped = cpu.update_priorities(tickets, np.full(4, 50.0))
    assert (int(mine.update_priorities(tickets.view(np.int64), torch.full((4,), 50.0))), dropped) == (4, 4)
    assert mine.max_priority == cpu.max_priority > 1


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_extreme_priorities_have_the_weights_of_the_cpu(alpha: float):
    """Only priority 0 becomes weight 0; too large priorities get the largest weight and are counted."""
    fields, priorities = {"x": ((), "int64")}, np.array([1e-12, 0.0, 1e30, -2.0, 1e-40, 2047.9, 1e300])
    rows = {"x": np.arange(7), "priorities": priorities}
    cpu = parl.PrioritizedReplay(20, fields, alpha=alpha, epsilon=0.0, fan_out=32)
    mine = HostReplay(20, fields, alpha=alpha, epsilon=0.0, device="cuda")
    same_tickets(cpu, mine)
    tickets = cpu.add(**rows)
    mine.add(**rows)
    for _ in range(2):
        assert (mine.total_priority, mine.saturated) == (cpu.total_priority, cpu.saturated)
        np.testing.assert_array_equal(mine.histogram(), cpu.histogram())
        cpu.update_priorities(tickets, priorities[::-1])
        mine.update_priorities(tickets.view(np.int64), priorities[::-1].copy())


def test_discounts_outside_0_to_1_are_counted():
    replay = HostReplay(20, {**FIELDS, "discount": ((), "float32")}, device="cuda", num_envs=4)
    replay.add(**steps(2, discount=torch.tensor([0.5, 1.5])))
    with pytest.raises(ValueError, match=r"1 discounts were outside 0 to 1"):
        replay.check()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rewards_that_are_not_finite_are_counted(dtype):
    fields = {**FIELDS, "reward": ((), str(dtype).removeprefix("torch."))}
    replay = HostReplay(20, fields, device="cuda", num_envs=4)
    for bad in (math.nan, math.inf, -math.inf):
        replay.add(**steps(4, reward=torch.tensor([0.0, bad, 1e30, bad], dtype=dtype)))
        with pytest.raises(parl.errors.NonFiniteError, match="2 rewards were not finite"):
            replay.check()
    replay.add(**steps(4, reward=torch.ones(4, dtype=dtype)))
    replay.check()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"compression": "lz4"}, "compression is 'lz4'"),
        ({"shared": "name"}, "shared is 'name'"),
        ({"path": "file"}, "path is 'file'"),
        ({"capacity": 0}, "capacity is 0, expected"),
        ({"n_step": 30}, "capacity is 20, expected"),
        ({"alpha": -1.0}, "alpha is -1, expected"),
        (
            {"fields": {"x": ((), "complex64")}},
            "field 'x' has dtype complex64, expected one of",
        ),
    ],
)
def test_unsupported_settings_raise(options: dict[str, Any], text: str):
    with pytest.raises(ValueError, match=text):
        HostReplay(**{"capacity": 20, "fields": FIELDS, "device": "cuda", **options})


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda r: r.add(**steps(5)), IndexError, "5 rows without env_id, expected at most num_envs, 4"),
        (lambda r: r.add(**steps(2), x=1), ValueError, "fields do not match: unknown x"),
        (
            lambda r: r.add(**steps(2, obs=torch.zeros((2, 4)))),
            ValueError,
            r"obs has shape \(2, 4\), expected",
        ),
        (
            lambda r: r.add(**steps(2, terminated=torch.ones(2))),
            ValueError,
            "terminated has dtype torch.float32",
        ),
        (lambda r: r.add(**steps(2), env_id=[1]), ValueError, "env_id has 1 rows, expected 2"),
        (lambda r: r.sample(2, mode="smallest"), ValueError, "mode is 'smallest', expected one of"),
        (lambda r: r.sample(2, beta=torch.tensor(0.4)), ValueError, "beta is torch.float32"),
        *(
            (
                lambda r, beta=beta: r.sample(2, beta=beta),
                ValueError,
                f"beta is {beta}, expected a finite number of at least 0",
            )
            for beta in (-1.0, float("nan"), float("inf"))
        ),
        (
            lambda r: r.sample(2, out={"obs": torch.zeros(2)}),
            ValueError,
            r"out\['obs'\] is float32 of shape \(2,\)",
        ),
        (lambda r: r.sample(2, out={"observation": torch.zeros(2)}), ValueError, "out has 'observation'"),
        (lambda r: r.evict(23), ValueError, "23 distinct rows were requested, the replay has 22"),
        (lambda r: r.flush(), ValueError, "the replay has no mapped file"),
        (lambda r: r.attach("name"), ValueError, "attach needs a replay in shared memory"),
        (lambda r: r.open("file"), ValueError, "open needs a mapped file"),
    ],
)
def test_bad_arguments_raise_at_once(call: Any, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        call(HostReplay(20, FIELDS, device="cuda", num_envs=4))


def test_a_single_row_may_come_without_its_leading_axis():
    replay = HostReplay(20, FIELDS, device="cuda", num_envs=1, autoreset="same_step")
    row = {"obs": torch.ones(3), "reward": 0.5, "terminated": False, "truncated": True}
    assert replay.add(**row, final_obs=torch.full((3,), 9.0), priorities=2.0).shape == (1,)
    batch = replay.sample(1)
    assert (batch.obs.tolist(), batch.next_obs.tolist()) == ([[1.0] * 3], [[9.0] * 3])


def test_out_of_memory_errors_state_the_bytes(monkeypatch: pytest.MonkeyPatch):
    def none_left(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(HostDevice, "memory", lambda self: (1000, 5000))
    monkeypatch.setattr(torch, "zeros", none_left)
    text = r"out of memory on cpu: \d{4,} bytes were asked for, 1000 of 5000 are free"
    for make in (lambda: HostReplay(200, FIELDS, device="cuda"), lambda: HostSumTree(200)):
        with pytest.raises(CudaUnavailableError, match=text):
            make()
    monkeypatch.undo()
    assert HostReplay(200, FIELDS, device="cuda").capacity == 200


def test_out_tensors_are_filled_and_beta_may_be_a_tensor():
    replay = HostReplay(100, FIELDS, device="cuda", num_envs=4, seed=1)
    for _ in range(10):
        replay.add(**steps(4), priorities=torch.rand(4))
    state, beta = replay.rng_state, torch.tensor(0.4, dtype=torch.float64)
    out = replay.empty_batch(8)
    batch = replay.sample(8, beta=beta, out=out)
    assert all(batch[name] is out[name] for name in out)
    first = batch.weights.clone()
    beta.fill_(1.0)
    replay.rng_state = state
    replay.sample(8, beta=beta, out=out)
    np.testing.assert_allclose(out.weights.numpy(), first.numpy() ** 2.5, rtol=1e-5)


def test_only_the_newest_frame_of_an_added_stack_is_stored():
    fields = {**FIELDS, "obs": ((2, 2), "uint8")}
    replay = HostReplay(50, fields, device="cuda", num_envs=1, frame_stack=3)
    whole = torch.arange(12, dtype=torch.uint8).reshape(1, 3, 2, 2)
    for _ in range(3):
        replay.add(**steps(1, obs=whole))
    assert replay.sample(1).next_obs[0, -1].tolist() == [[8, 9], [10, 11]]


def test_fields_may_be_nested_and_empty():
    fields = {**FIELDS, "obs": {"image": ((2,), "uint8"), "nothing": ((0,), "float32")}}
    replay = HostReplay(50, fields, device="cuda", num_envs=2)
    for i in range(3):
        obs = {"image": torch.full((2, 2), i, dtype=torch.uint8), "nothing": torch.zeros((2, 0))}
        replay.add(**steps(2, obs=obs))
    batch = replay.sample(5)
    assert (batch.next_obs.image - batch.obs.image == 1).all()
    assert tuple(batch.obs.nothing.shape) == (5, 0)


@pytest.mark.parametrize("capacity", [1, 31, 32, 33, 1024, 1025, 2**20, 2**20 + 1, 2**31])
def test_levels_cover_the_capacity(capacity: int):
    found = layout.levels(capacity)
    assert 2 <= len(found) <= 7
    assert found[0] >= capacity
    assert found[-1] == 32
    for below, above in pairwise(found):
        assert above * 32 >= below
    assert all(entries % 32 == 0 for entries in found)


@pytest.mark.parametrize("capacity", [1, 9, 64, 100, 150, 1000, 65_536, 10**6])
def test_rings_have_two_to_three_spare_chunks(capacity: int):
    """A ring has two to three chunks more than the capacity, and whole chunks."""
    slots, chunk = layout.ring(capacity, 0)
    assert slots % chunk == 0
    assert capacity + 2 * chunk <= slots < capacity + 3 * chunk
    assert layout.ring(capacity, 3 * chunk)[0] == slots + 3 * chunk


@pytest.mark.parametrize("count", [1, 4, 5, 256, 257, 4096])
@pytest.mark.parametrize("rows", [4, 256])
@pytest.mark.parametrize("pieces", [[1], [1764, 1764], [4, 441, 1]])
def test_tiles_cover_every_piece_once(count: int, rows: int, pieces: list[int]):
    tiles = layout.tiles(count, rows, pieces)
    # Each tile holds all pieces of its rows, and no block is left over.
    assert tiles.blocks == tiles.blocks_per_tile * -(-count // rows)
    ends = [*tiles.first_blocks[1:], tiles.blocks_per_tile]
    for first, end, row_pieces in zip(tiles.first_blocks, ends, pieces, strict=True):
        copied = (end - first) * layout.THREADS * layout.PIECES
        assert copied >= rows * row_pieces
        assert copied - rows * row_pieces < layout.THREADS * layout.PIECES


def test_pieces_are_as_wide_as_rows_and_addresses_allow():
    assert layout.piece_bytes(7056, 512, 7056) == 16
    assert layout.piece_bytes(7056, 516) == 4
    assert (layout.piece_bytes(5), layout.piece_bytes(8, 2), layout.piece_bytes(12)) == (1, 1, 4)


def test_numbers_of_the_host_are_stored_as_on_the_cpu():
    fields = {"x": ((2,), "int8"), "y": ((), "float64")}
    cpu = parl.PrioritizedReplay(9, fields, fan_out=32)
    mine = HostReplay(9, fields, device="cuda")
    for bad in ([[300, 1]], np.array([[300, 1]]), [-129, 1]):
        for replay in (cpu, mine):
            with pytest.raises(ValueError, match=r"x holds a .* that int8 cannot represent"):
                replay.add(x=bad, y=0.1 if np.ndim(bad) == 1 else [0.1])
    for replay in (cpu, mine):
        replay.add(x=[[-128, 127]], y=[0.1])
        replay.add(x=[5, 6], y=1e300)
        replay.add(x=np.array([7, 8]), y=np.float64(0.3))
        assert len(replay) == 3
        batch = replay.sample(3, mode="largest")
        assert sorted(batch.y.tolist()) == [0.1, 0.3, 1e300]
        assert sorted(batch.x.tolist()) == [[-128, 127], [5, 6], [7, 8]]


def test_priorities_of_the_host_are_not_rounded():
    cpu, mine = parl.SumTree(40, scale=2.0**26, fan_out=32), HostSumTree(40, 2.0**26)
    for tree in (cpu, mine):
        tree.update([1, 2], [0.3, 0.7])
        tree[3] = 0.3
    assert [mine[i] for i in range(4)] == [cpu[i] for i in range(4)]
    asked = [0.29999999, 0.3, 0.99999999, 1.0]
    assert mine.find(asked).tolist() == cpu.find(asked).tolist()


def test_close_releases_the_memory():
    replay = HostReplay(20, FIELDS, device="cuda", num_envs=4)
    tickets = replay.add(**steps(4))
    memory = weakref.ref(replay._memory.arena._memory)
    with replay:
        pass
    replay.close()
    gc.collect()
    assert memory() is None
    calls: list[Any] = [
        lambda: replay.add(**steps(4)),
        lambda: replay.sample(2),
        lambda: replay.sample(2, mode="largest"),
        lambda: replay.update_priorities(tickets, torch.ones(4)),
        lambda: replay.end_episodes([0]),
        lambda: replay.evict(1),
        lambda: replay.counters,
        replay.check,
    ]
    for call in calls:
        with pytest.raises(parl.errors.ReplayClosedError, match="this replay is closed"):
            call()
    assert repr(replay).startswith("HostReplay(0/20 rows")
