"""Rewards, pictures and states of `Console(device="cuda")` equal those of `Console()`."""

import copy
import pickle

import fake_driver
import numpy as np
import pytest

from parl.atari import Action, Console


def same(cpu: Console, gpu: Console, what: str) -> None:
    assert gpu.save() == cpu.save(), what
    np.testing.assert_array_equal(gpu.screen, cpu.screen, err_msg=what)
    np.testing.assert_array_equal(gpu.ram, cpu.ram, err_msg=what)
    for name in ("lives", "terminated", "truncated", "game_over", "frame_number", "episode_frame_number"):
        assert getattr(gpu, name) == getattr(cpu, name), (what, name)


@pytest.mark.parametrize("game", ["breakout", "pitfall2", "elevator_action"])
def test_frames_and_states_equal_those_of_the_cpu(game: str) -> None:
    options = {
        "seed": 5,
        "frame_skip": 3,
        "repeat_action_probability": 0.25,
        "max_num_frames_per_episode": 40,
    }
    cpu, gpu = Console(game, **options), Console(game, device="cuda", **options)
    assert (cpu.device, gpu.device) == ("cpu", "cuda:0")
    same(cpu, gpu, "new")
    draws = np.random.default_rng(1)
    for act in range(16):
        a, b = (int(code) for code in draws.integers(0, 18, 2))
        strength = float(draws.uniform())
        assert gpu.act(a, b, strength=strength) == cpu.act(a, b, strength=strength)
        same(cpu, gpu, f"act {act}")
    # The episode has ended; since then only the generator has changed.
    assert cpu.game_over
    cpu.reset()
    gpu.reset()
    same(cpu, gpu, "reset")


def test_states_move_between_cpu_and_device_and_copies_are_independent() -> None:
    cpu, gpu = Console("pong", seed=1), Console("pong", seed=2, device="cuda:0")
    for _ in range(5):
        cpu.act(Action.UP)
        gpu.act("DOWN")
    gpu.load(cpu.save())
    clones = [gpu, gpu.clone(), copy.deepcopy(gpu), pickle.loads(pickle.dumps(gpu))]
    assert [clone.device for clone in clones] == ["cuda:0"] * 4
    cpu.act(3)
    for clone in clones:
        clone.act(3)
        same(cpu, clone, "copy")
    gpu.write_ram(5, 77)
    gpu.act(0)
    cpu.load(gpu.save())
    assert cpu.ram.tolist() == gpu.ram.tolist()


def test_modes_and_difficulties() -> None:
    cpu, gpu = (Console("breakout", seed=1, mode=4, difficulty=1, device=d) for d in ("cpu", "cuda"))
    cpu.act(1)
    gpu.act(1)
    same(cpu, gpu, "mode 4")
    with pytest.raises(ValueError, match="mode 3"):
        gpu.set_mode(3)
    with pytest.raises(ValueError, match='expected "cpu", "cuda"'):
        Console("breakout", device="gpu")


def test_a_device_that_fails_leaves_the_console_as_it_was(needs_fake_driver: None) -> None:
    fake_driver.set_figure("devices", 3)
    console = Console("pong", seed=1, device="cuda:2")
    console.act(2)
    before = console.save()
    fake_driver.set_figure("fail", 700)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        console.act(2)
    assert console.save() == before


def test_a_deleted_console_frees_its_resources(needs_fake_driver: None) -> None:
    names = ("allocations", "modules", "contexts")
    before = [fake_driver.figure(name) for name in names]
    console = Console("pong", seed=1, device="cuda")
    console.act(2)
    assert fake_driver.figure("modules") == before[1] + 1
    del console
    assert [fake_driver.figure(name) for name in names] == before
