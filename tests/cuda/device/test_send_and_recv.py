"""`send` and `recv` on a device, continuous actions, pictures, masks and arrays of other libraries."""

import pickle
from typing import Any

import fake_driver
import numpy as np
import pytest
import torch
from env_pairs import pair, plain, same

import parl


def test_groups_step_while_others_wait() -> None:
    """Six environments, stepped two at a time, give the results of six that are stepped together."""
    options: dict[str, Any] = {"repeat_action_probability": 0.25, "max_num_frames_per_episode": 24}
    cpu = pair(["breakout", "pong"], 6, **options)[0]
    gpu = parl.AtariVectorEnv(["breakout", "pong"], 6, batch_size=2, device="cuda", ram_info=True, **options)
    assert gpu.is_async
    assert gpu.reset(seed=3)[0].shape == (2, 4, 84, 84)
    whole = [cpu.reset(seed=3)[0]]
    draws = np.random.default_rng(0)
    actions = draws.integers(0, 18, (8, 6))
    expected = [cpu.step(row) for row in actions]
    # The first group makes two steps before the others. Groups are received in the order of `send`.
    batches = [gpu.recv() for _ in range(2)]
    assert [plain(batch[-1]["env_id"]).tolist() for batch in batches] == [[2, 3], [4, 5]]
    np.testing.assert_array_equal(plain(batches[1][0]), whole[0][4:])
    done = {0: 0, 2: 0, 4: 0}

    def send(first: int, reverse: bool = False) -> None:
        envs = [first + 1, first] if reverse else [first, first + 1]
        gpu.send(torch.as_tensor(actions[done[first]][envs]), envs)
        done[first] += 1

    def receive(first: int) -> None:
        obs, reward, terminated, truncated, info = map(plain, gpu.recv())
        left = expected[done[first] - 1]
        envs = [first, first + 1]
        assert info["env_id"].tolist() == envs
        for name, a, b in zip("orta", (obs, reward, terminated, truncated), left, strict=False):
            np.testing.assert_array_equal(a, b[envs], err_msg=name)
        np.testing.assert_array_equal(info["lives"], left[-1]["lives"][envs])

    for first in (0, 0, 4):
        send(first, reverse=True)
        receive(first)
    send(2)
    send(0)
    with pytest.raises(ValueError, match="environment 0 is still at work: call recv before the next send"):
        send(0)
    with pytest.raises(ValueError, match="environment 2 is still at work: call recv first"):
        gpu.get_state()
    receive(2)
    receive(0)
    with pytest.raises(ValueError, match="recv would wait for ever"):
        gpu.recv()
    # Without env_id, `send` is for the group of the last batch; `step` is `send` and `recv`.
    gpu.send(actions[done[0]][:2])
    done[0] += 1
    receive(0)
    out = torch.zeros((2, 4, 84, 84), dtype=torch.uint8, device=gpu.device)
    assert gpu.step(actions[done[0]][:2], out=out)[0] is out
    done[0] += 1
    np.testing.assert_array_equal(plain(out), expected[done[0] - 1][0][:2])
    # States of all groups, one row per environment; a pickled copy has the same.
    copy = pickle.loads(pickle.dumps(gpu))
    rows = gpu.get_state()
    np.testing.assert_array_equal(copy.get_state(), rows)
    same(tuple(map(plain, gpu.step(actions[0][:2]))), copy.step(actions[0][:2]))
    gpu.set_state(rows)
    np.testing.assert_array_equal(gpu.get_state(), rows)
    fresh = pair(["breakout", "pong"], 6, **options)[0]
    fresh.reset(seed=0)
    fresh.set_state(rows)
    np.testing.assert_array_equal(fresh.get_state(), rows)
    gpu.check()
    for envs in (cpu, gpu, copy, fresh):
        envs.close()


def test_invalid_groups_are_refused() -> None:
    with pytest.raises(ValueError, match=r"batch_size is 2 and num_envs 3: .* must divide num_envs"):
        parl.AtariVectorEnv("pong", 3, batch_size=2, device="cuda")
    envs = parl.AtariVectorEnv("pong", 4, batch_size=2, device="cuda")
    with pytest.raises(ValueError, match="no batch to act for"):
        envs.send(np.zeros(2, np.int64))
    envs.reset()
    with pytest.raises(ValueError, match=r"env_id is \[1, 2\], .* groups are 0 to 1, 2 to 3"):
        envs.send(np.zeros(2, np.int64), [1, 2])
    with pytest.raises(ValueError, match="reset_mask needs batch_size == num_envs"):
        envs.reset(options={"reset_mask": np.ones(4, np.bool_)})
    envs.recv()
    envs.step(np.array([9, 0]))
    with pytest.raises(ValueError, match=r"at environment 2: an action of environment 0 was outside 0 to 5"):
        envs.check()
    envs.close()


def test_send_and_recv_of_all() -> None:
    cpu, gpu = pair("pong", 3)
    same(cpu.reset(seed=1), gpu.reset(seed=1))
    for envs in (cpu, gpu):
        with pytest.raises(ValueError, match="recv would wait for ever"):
            envs.recv()
        envs.send(np.array([1, 2, 3]), [2, 0, 1])
        with pytest.raises(ValueError, match="environment 0 is still at work"):
            envs.send(np.array([1, 2, 3]))
        with pytest.raises(ValueError, match="call recv first"):
            envs.step(np.array([1, 2, 3]))
    same(cpu.recv(), gpu.recv())
    cpu.close()
    gpu.close()


@pytest.mark.parametrize("game", ["breakout", "seaquest"])
def test_continuous_actions_equal_those_of_the_cpu(game: str) -> None:
    cpu, gpu = pair(game, 4, continuous=True, continuous_action_threshold=0.4)
    assert gpu.action_space == cpu.action_space
    same(cpu.reset(seed=1), gpu.reset(seed=1))
    draws = np.random.default_rng(5)
    for _ in range(6):
        actions = np.stack(
            [draws.uniform(0, 1, 4), draws.uniform(-np.pi, np.pi, 4), draws.uniform(0, 1, 4)], 1
        ).astype(np.float32)
        same(cpu.step(actions), gpu.step(torch.from_numpy(actions)))
    np.testing.assert_array_equal(cpu.get_state(), gpu.get_state())
    with pytest.raises(TypeError, match=r"actions have dtype torch\.int64, expected float32"):
        gpu.step(np.zeros((4, 3), np.int64))
    with pytest.raises(ValueError, match=r"actions have shape \(4,\), expected \(4, 3\)"):
        gpu.step(np.zeros(4, np.float32))
    for wrong in (np.inf, np.nan):
        actions[2, 1] = wrong
        gpu.step(actions)
        with pytest.raises(ValueError, match="environment 2 had an action that is not finite"):
            gpu.check()
    cpu.close()
    gpu.close()


@pytest.mark.parametrize("mode", ["rgb_array", "rgb_grid"])
def test_rendered_frames_equal_those_of_the_cpu(mode: str) -> None:
    cpu, gpu = pair(["pong", "breakout"], 3, render_mode=mode)
    with pytest.raises(ValueError, match="environment 0 has not been reset"):
        gpu.render()
    actions = np.array([2, 3, 4])
    for envs in (cpu, gpu):
        envs.reset(seed=2)
        for _ in range(3):
            envs.step(actions)
    np.testing.assert_array_equal(np.array(cpu.render()), np.array(gpu.render()))
    np.testing.assert_array_equal(cpu.get_state(), gpu.get_state())
    cpu.close()
    gpu.close()


def test_masks_stay_on_the_device() -> None:
    cpu, gpu = pair("breakout", 3, autoreset_mode="Disabled", max_num_frames_per_episode=8)
    same(cpu.reset(seed=1), gpu.reset(seed=1))
    for seed in (None, 7):
        for _ in range(2):
            left, right = cpu.step(np.zeros(3, np.int64)), gpu.step(np.zeros(3, np.int64))
            same(left, right)
        mask = right[2] | right[3]
        assert plain(mask).all()
        mask[1] = seed is None
        expected = {"reset_mask": plain(mask)}
        same(cpu.reset(seed=seed, options=expected), gpu.reset(seed=seed, options={"reset_mask": mask}))
        if seed is not None:
            break
    np.testing.assert_array_equal(cpu.get_state(), gpu.get_state())
    with pytest.raises(ValueError, match=r"reset_mask is torch\.int64 of shape \(3,\), expected bool"):
        gpu.reset(options={"reset_mask": torch.zeros(3, dtype=torch.int64)})
    cpu.close()
    gpu.close()


class OnDevice(torch.Tensor):
    """A tensor that NumPy cannot convert, as tensors of a CUDA device."""

    def __array__(self, *_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def cpu(self) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.as_subclass(torch.Tensor)


def test_states_of_an_environment_are_chosen_by_a_tensor() -> None:
    envs = parl.AtariVectorEnv("pong", 3, device="cuda")
    ended = envs.reset(seed=1)[1]["_lives"].clone()
    ended[1] = False
    mask = ended.as_subclass(OnDevice)
    rows = envs.get_state(mask)
    np.testing.assert_array_equal(rows, envs.get_state()[[0, 2]])
    envs.step(np.zeros(3, np.int64))
    envs.set_state(torch.from_numpy(rows).as_subclass(OnDevice), mask)
    np.testing.assert_array_equal(envs.get_state()[[0, 2]], rows)
    envs.close()


class Array:
    """An array of another library, which supports only DLPack."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


def test_arrays_of_other_libraries() -> None:
    cpu, gpu = pair("pong", 2)
    same(cpu.reset(seed=1), gpu.reset(seed=1))
    actions = torch.tensor([2, 3], device=gpu.device)
    out = torch.zeros((2, 4, 84, 84), dtype=torch.uint8, device=gpu.device)
    target = Array(out)
    results = gpu.step(Array(actions), out=target)
    assert results[0] is target
    expected = cpu.step(np.array([2, 3]))
    np.testing.assert_array_equal(plain(out), expected[0])
    # The results can be used through DLPack without a copy.
    assert torch.from_dlpack(gpu.step(actions)[0]).device == gpu.device
    cpu.step(np.array([2, 3]))
    frozen = np.array([2, 3])
    frozen.flags.writeable = False
    same(cpu.step(frozen), gpu.step(frozen))
    cpu.close()
    gpu.close()


def test_send_and_recv_do_not_synchronize(needs_fake_driver: None) -> None:
    envs = parl.AtariVectorEnv("pong", 4, batch_size=2, device="cuda")
    before = fake_driver.figure("synchronizations"), fake_driver.figure("copies")
    envs.reset(seed=0)
    envs.recv()
    for _ in range(3):
        envs.step(np.zeros(2, np.int64))
    assert (fake_driver.figure("synchronizations"), fake_driver.figure("copies")) == before
    envs.close()


def test_sent_actions_may_be_overwritten_before_the_step_runs(needs_fake_driver: None) -> None:
    """A lazy stream does no work until it is synchronized, as a group's stream that waits for the others."""
    envs, others = (parl.AtariVectorEnv("pong", 4, batch_size=2, device="cuda") for _ in range(2))
    actions = torch.full((2,), 3, dtype=torch.int64, device=envs.device)
    for one in (envs, others):
        one.reset(seed=0)
    fake_driver.set_figure("lazy", 1)
    envs.send(actions)
    actions.fill_(2)
    envs.check()
    fake_driver.set_figure("lazy", 0)
    others.send(torch.full((2,), 3, dtype=torch.int64, device=envs.device))
    for one in (envs, others):
        one.recv()
        one.recv()
    np.testing.assert_array_equal(envs.get_state(), others.get_state())
    envs.close()
    others.close()


class Calibrated:
    """The kernels of a group, with a measurement that takes no time."""

    def __init__(self, core: Any) -> None:
        self.core = core

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)

    def calibrate(self, stream: int) -> list[tuple[str, int, float]]:
        self.core.choose([("plain", 0)], stream)
        return [("plain", 0, 1.0), ("grouped", 4, 2.0)]


def test_all_groups_use_the_form_that_is_fastest() -> None:
    envs: Any = parl.AtariVectorEnv("pong", 4, batch_size=2, device="cuda")
    for group in envs._native.all:
        group.core = Calibrated(group.core)
    envs.choose("grouped:4")
    envs.calibrate()
    assert [group.core.choices() for group in envs._native.all] == [[("pong", "plain", 0)]] * 2
    envs.close()


def test_a_damaged_row_changes_no_group() -> None:
    envs: Any = parl.AtariVectorEnv("pong", 4, batch_size=2, device="cuda")
    envs.reset(seed=0)
    envs.recv()
    rows = envs.get_state()
    envs.send(np.full(2, 2), [0, 1])
    envs.recv()
    before = envs.get_state()
    assert (before != rows).any(1).tolist() == [True, True, False, False]
    rows[3, 100] ^= 1
    with pytest.raises(ValueError, match="in the group that starts at environment 2: not a saved state"):
        envs.set_state(rows)
    np.testing.assert_array_equal(envs.get_state(), before)
    rows[3, 100] ^= 1
    envs.set_state(rows)
    np.testing.assert_array_equal(envs.get_state(), rows)
    envs.close()
