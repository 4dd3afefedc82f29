"""`AtariVectorEnv` under interrupts, closing, many environments and threads, and with other states."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parl

# ---------------------------------------------------------------------- signals


@pytest.mark.parametrize("batch_size", [0, 16], ids=["step", "recv"])
def test_an_interrupt_reaches_the_caller(batch_size: int) -> None:
    envs = parl.AtariVectorEnv("pong", 32, num_threads=2, batch_size=batch_size)
    obs, _ = envs.reset(seed=0)
    actions = np.zeros(len(obs), np.int64)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(1_000_000):
            envs.step(actions)
    timer.join()
    # The environments still step, reset and close.
    if not batch_size:
        envs.step(actions)
    obs, _ = envs.reset(seed=0)
    fresh = parl.AtariVectorEnv("pong", 32, num_threads=2)
    expected, _ = fresh.reset(seed=0)
    ids = np.arange(32) if not batch_size else envs.step(actions)[-1]["env_id"]
    assert len(ids) == len(obs)
    if not batch_size:
        np.testing.assert_array_equal(obs, expected)
    envs.close()


WAITING = """
import os, signal, sys, threading
import numpy as np
import parl
envs = parl.AtariVectorEnv("pong", 2, batch_size=1, num_threads=1, frameskip=10_000)
envs.reset(seed=0)
envs.recv()
envs.send(np.zeros(2, np.int64), [0, 1])
seen = 0
try:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    while True:
        *_, info = envs.recv()
        seen += 1
        envs.send(np.zeros(1, np.int64))
except KeyboardInterrupt:
    print("interrupted")
envs.close()
"""


def test_an_interrupt_reaches_a_caller_that_waits_for_results() -> None:
    done = subprocess.run([sys.executable, "-c", WAITING], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "interrupted"), done.stderr


# ---------------------------------------------------------------------- threads


def _cores_of_threads() -> dict[str, str]:
    """Returns the allowed cores of each thread that steps environments, by thread id."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # The thread has just ended.
            if "parl-env" in (task / "comm").read_text():
                lines = (task / "status").read_text().splitlines()
                found[task.name] = next(x.split()[1] for x in lines if x.startswith("Cpus_allowed_list"))
    return found


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not show where threads run")
def test_threads_stay_on_their_cores() -> None:
    cores = sorted(os.sched_getaffinity(0))
    mine = os.sched_getaffinity(threading.get_native_id())
    for options, numbers in (
        ({"num_threads": 4}, (1, 2, 3)),
        ({"num_threads": 3, "batch_size": 4}, (0, 1, 2)),
    ):
        before = _cores_of_threads()
        envs = parl.AtariVectorEnv("pong", 8, thread_affinity_offset=1, **options)
        envs.reset(seed=0)
        assert envs.num_threads == options["num_threads"]
        expected = sorted(str(cores[(1 + i) % len(cores)]) for i in numbers)
        for _ in range(2000):  # A busy machine starts threads late.
            new = sorted(places for thread, places in _cores_of_threads().items() if thread not in before)
            if new == expected:
                break
            time.sleep(0.05)
        assert new == expected
        envs.close()
    # The calling thread's affinity stays as it is.
    assert os.sched_getaffinity(threading.get_native_id()) == mine


@pytest.mark.parametrize("threads", [0, 1, 10_000])
@pytest.mark.parametrize("batch_size", [0, 5])
def test_any_number_of_threads_works(threads: int, batch_size: int) -> None:
    envs = parl.AtariVectorEnv("pong", 8, num_threads=threads, batch_size=batch_size, noop_max=1)
    assert envs.num_threads == min(threads, 8) if threads else 1 <= envs.num_threads <= 8
    envs.reset(seed=0)
    for _ in range(3):
        *_, infos = envs.step(np.zeros(envs.batch_size, np.int64))
        assert len(set(infos["env_id"].tolist())) == envs.batch_size
    envs.close()


def test_a_hundred_thousand_environments_step() -> None:
    count = 100_000
    envs = parl.AtariVectorEnv("pong", count, obs_type="ram", stack_num=1, noop_max=1, frameskip=1)
    obs, infos = envs.reset(seed=0)
    assert obs.shape == (count, 1, 128) and (obs == obs[0]).all()
    *_, infos = envs.step(np.arange(count) % 6)
    assert (infos["frame_number"] == 2).all() and infos["env_id"][-1] == count - 1
    envs.close()


def test_twenty_thousand_environments_may_be_pending() -> None:
    count = 20_000
    envs = parl.AtariVectorEnv(
        "pong", count, obs_type="ram", stack_num=1, noop_max=1, frameskip=1, batch_size=count // 2
    )
    envs.reset(seed=0)
    *_, infos = envs.step(np.zeros(count // 2, np.int64))
    assert len(np.unique(infos["env_id"])) == count // 2
    envs.close()


@pytest.mark.slow
def test_observations_of_a_hundred_thousand_environments() -> None:
    """Needs 2 x 0.7 GB for observations."""
    count = 100_000
    envs = parl.AtariVectorEnv("breakout", count, stack_num=1)
    obs, _ = envs.reset(seed=0)
    some = parl.AtariVectorEnv("breakout", 10, stack_num=1)
    expected, _ = some.reset(seed=count - 10)
    np.testing.assert_array_equal(obs[-10:], expected)
    for action in (1, 2):
        obs, *_ = envs.step(np.full(count, action))
        expected, *_ = some.step(np.full(10, action))
        np.testing.assert_array_equal(obs[-10:], expected)
    envs.close()


MEMORY = """
import ctypes
import gc
import numpy as np
import parl

def resident():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss:")) * 1024

found = []
for envs in (500, 3500):
    obs = np.ones((envs, 1, 84, 84), np.uint8)
    env = parl.AtariVectorEnv("breakout", envs, num_threads=1, stack_num=1)
    env.reset(seed=0, out=obs)
    for _ in range(2):
        env.step(np.ones(envs, np.int64), out=obs)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    found.append(resident() - obs.nbytes)
    env.close()
    del env, obs
print((found[1] - found[0]) / 3000 - 84 * 84)
"""


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists() or not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="the system does not report resident memory, or has no malloc_trim",
)
def test_an_environment_needs_at_most_4096_bytes_besides_its_observation() -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    assert 2500 < float(done.stdout) <= 4096


# ---------------------------------------------------------------------- send and recv


def test_send_and_recv_equal_step() -> None:
    whole = parl.AtariVectorEnv("breakout", 4)
    sending = parl.AtariVectorEnv("breakout", 4)
    for envs in (whole, sending):
        envs.reset(seed=0)
    actions = np.array([1, 2, 3, 0])
    with pytest.raises(ValueError, match="recv would wait for ever"):
        sending.recv()
    for order in (None, [0, 1, 2, 3], [3, 1, 0, 2]):
        expected, *_ = whole.step(actions)
        sent = actions if order is None else actions[order]
        sending.send(sent, order)
        sent[:] = 0  # send has copied the actions.
        actions = np.array([1, 2, 3, 0])
        for wrong, *arguments in ((sending.send, actions), (sending.step, actions), (pickle.dumps, sending)):
            with pytest.raises(ValueError, match="call recv"):
                wrong(*arguments)
        out = np.zeros((4, 4, 84, 84), np.uint8)
        obs, *_, infos = sending.recv(out=out)
        assert obs is out and infos["env_id"].tolist() == [0, 1, 2, 3]
        np.testing.assert_array_equal(obs, expected)
    for wrong, match in ((np.array([0, 1, 2, 9]), "action 9 of row 3"), (np.zeros(3, np.int64), "shape")):
        with pytest.raises(ValueError, match=match):
            sending.send(wrong)
    with pytest.raises(ValueError, match=r"expected each of 0 to 3 once"):
        sending.send(actions, [0, 1, 2, 2])
    sending.send(actions)
    for out in (np.zeros((4, 84, 84), np.uint8), np.zeros((4, 4, 84, 84), np.float32)):
        with pytest.raises(ValueError, match="out is"):
            sending.recv(out=out)
    np.testing.assert_array_equal(sending.recv()[0], whole.step(actions)[0])
    sending.send(actions)
    sending.reset(seed=0)  # Discards the step that was sent.
    with pytest.raises(ValueError, match="recv would wait for ever"):
        sending.recv()


def test_copies_are_refused_while_a_batch_is_pending() -> None:
    envs = parl.AtariVectorEnv("breakout", 4, batch_size=2, ordered=True)
    envs.reset(seed=0)
    for call in (lambda: pickle.dumps(envs), envs.get_state, lambda: copy.deepcopy(envs)):
        with pytest.raises(ValueError, match="is still at work: call recv first"):
            call()
    mask = np.array([True, True, False, False])
    assert envs.get_state(mask).shape[0] == 2
    envs.recv()
    other = pickle.loads(pickle.dumps(envs))
    for each in (envs, other):
        each.send(np.array([1, 2, 3, 0]), range(4))
    for _ in range(2):
        (a, *_, first), (b, *_, second) = envs.recv(), other.recv()
        np.testing.assert_array_equal(a, b)
        assert first["env_id"].tolist() == second["env_id"].tolist()


# ---------------------------------------------------------------------- arrays and states


def test_tensors_share_the_memory_of_arrays() -> None:
    torch = pytest.importorskip("torch")
    envs = parl.AtariVectorEnv("breakout", 2, output="torch", autoreset_mode="SameStep")
    out = np.zeros((2, 4, 84, 84), np.uint8)
    obs, _ = envs.reset(seed=0, out=out)
    assert obs.data_ptr() == out.ctypes.data
    obs, rewards, terminated, truncated, _ = envs.step(torch.tensor([1, 0]), out=out)
    assert obs.data_ptr() == out.ctypes.data
    assert (rewards.dtype, terminated.dtype, truncated.dtype) == (torch.int32, torch.bool, torch.bool)
    kept, *_ = envs.step(np.array([1, 0]))
    seen = kept.clone()
    for _ in range(12):
        envs.step(np.array([2, 3]))
    assert torch.equal(kept, seen)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_actions_of_any_integer_type_are_accepted(dtype: Any) -> None:
    envs = parl.AtariVectorEnv("breakout", 2)
    envs.reset(seed=0)
    *_, infos = envs.step(np.array([1, 3], dtype))
    assert infos["env_id"].tolist() == [0, 1]


def test_states_of_another_version_or_game_are_refused() -> None:
    envs = parl.AtariVectorEnv(["pong", "breakout"], 2)
    envs.reset(seed=0)
    states = envs.get_state()
    newer = states.copy()
    newer[0, 8] += 1
    with pytest.raises(ValueError, match="not a saved state of this console: version 5, expected 4"):
        envs.set_state(newer)
    with pytest.raises(ValueError, match="it is of breakout, expected pong"):
        envs.set_state(states[::-1].copy())
    np.testing.assert_array_equal(envs.get_state(), states)


STATES = """
import sys
import numpy as np
import parl
envs = parl.AtariVectorEnv("seaquest", 3, repeat_action_probability=0.25)
envs.set_state(np.load(sys.argv[1]))
for action in range(18):
    obs, *_ = envs.step(np.full(3, action))
np.save(sys.argv[2], obs)
"""


def test_states_can_be_loaded_in_another_process(tmp_path: Path) -> None:
    envs = parl.AtariVectorEnv("seaquest", 3, repeat_action_probability=0.25)
    envs.reset(seed=0)
    for action in range(10):
        envs.step(np.full(3, action))
    np.save(tmp_path / "states.npy", envs.get_state())
    subprocess.run(
        [sys.executable, "-c", STATES, str(tmp_path / "states.npy"), str(tmp_path / "obs.npy")], check=True
    )
    for action in range(18):
        obs, *_ = envs.step(np.full(3, action))
    np.testing.assert_array_equal(np.load(tmp_path / "obs.npy"), obs)


def test_a_game_whose_mode_is_not_reached_raises() -> None:
    """Selecting the mode needs more frames than an episode may have; the library reproduced hangs."""
    with pytest.raises(ValueError, match="mode 0 of double_dunk was not reached"):
        parl.AtariVectorEnv("double_dunk", 1, limit_counts="console", max_num_frames_per_episode=5)


AFTER_A_FAILED_BOOT = """
import parl
try:
    parl.AtariVectorEnv("double_dunk", 1, limit_counts="console", max_num_frames_per_episode=5)
except parl.errors.AtariError:
    parl.AtariVectorEnv("double_dunk", 1)
    print("made")
"""


def test_a_game_can_be_made_after_a_failed_boot() -> None:
    command = [sys.executable, "-c", AFTER_A_FAILED_BOOT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "made\n", done.stderr
