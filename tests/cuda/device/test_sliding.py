"""Sliding observations equal those of the CPU, and only their newest plane is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import parl
from parl.envs.atari.sliding import Sliding
from parl.errors import AtariError

# Each test compiles kernels for the CPU or runs several sets of them, which takes minutes.
pytestmark = pytest.mark.slow

ENVS = 3


def pair(sliding: int, **options: Any) -> tuple[Any, Any]:
    cpu = parl.AtariVectorEnv("breakout", ENVS, boot="snapshot", **options)
    return cpu, parl.AtariVectorEnv("breakout", ENVS, device="cuda", sliding_buffer_planes=sliding, **options)


def same(ours: Any, theirs: Any, what: str) -> None:
    assert np.array_equal(ours.numpy(force=True), theirs), what


@pytest.mark.parametrize(
    ("sliding", "options"),
    [
        (5, {"max_num_frames_per_episode": 31}),
        (9, {"max_num_frames_per_episode": 31, "autoreset_mode": "SameStep"}),
        (
            7,
            {"grayscale": False, "channel_order": "first", "stack_num": 2, "img_height": 42, "img_width": 40},
        ),
        (6, {"obs_type": "ram", "stack_num": 3}),
    ],
)
def test_sliding_observations_equal_those_of_the_cpu(sliding: int, options: dict[str, Any]) -> None:
    cpu, gpu = pair(sliding, **options)
    same(gpu.reset(seed=3)[0], cpu.reset(seed=3)[0], "reset")
    draws = np.random.default_rng(0)
    starts = set()
    for step in range(14):
        actions = draws.integers(0, cpu.single_action_space.n, ENVS)
        obs, *_, infos = gpu.step(torch.from_numpy(actions))
        theirs = cpu.step(actions)
        same(obs, theirs[0], f"step {step}")
        starts.add(obs.storage_offset())
        if "final_obs" in theirs[4]:
            ended = theirs[4]["_final_obs"]
            for env in np.flatnonzero(ended):
                assert np.array_equal(infos["final_obs"][env].numpy(force=True), theirs[4]["final_obs"][env])
    assert len(starts) > 1
    gpu.close()


def test_all_planes_are_written_after_resets_loaded_states_and_out() -> None:
    cpu, gpu = pair(12)
    gpu.reset(seed=1)
    cpu.reset(seed=1)
    noop = np.zeros(ENVS, np.int64)

    def step(what: str, out: Any = None) -> Any:
        obs = gpu.step(torch.from_numpy(noop), out=out)[0]
        same(obs, cpu.step(noop)[0], what)
        return obs

    step("first")
    own = torch.empty((ENVS, 4, 84, 84), dtype=torch.uint8, device=gpu.device)
    assert step("into the caller's own", own) is own
    step("behind the caller's own")
    mask = np.array([True, False, True])
    options = {"reset_mask": mask}
    same(gpu.reset(seed=9, options=options)[0], cpu.reset(seed=9, options=options)[0], "some reset")
    step("behind the reset of some")
    states = cpu.get_state()
    for _ in range(2):
        step("before the states")
    gpu.set_state(states)
    cpu.set_state(states)
    step("behind the states")
    gpu.seed_states(states[1])
    cpu.seed_states(states[1])
    step("behind one state for all")
    gpu.close()


def test_only_the_newest_plane_is_written() -> None:
    _, gpu = pair(16)
    gpu.reset(seed=0)
    actions = torch.zeros(ENVS, dtype=torch.int64, device=gpu.device)
    obs = gpu.step(actions)[0]
    # A wrong value in an older plane stays: the step does not write that plane.
    obs[:, 2] = 77
    after = gpu.step(actions)[0]
    assert bool((after[:, 1] == 77).all())
    assert not bool((after[:, 3] == 77).all())
    gpu.close()


def test_each_group_has_its_own_sliding_buffer() -> None:
    cpu = parl.AtariVectorEnv("breakout", 4, boot="snapshot")
    gpu = parl.AtariVectorEnv("breakout", 4, batch_size=2, device="cuda", sliding_buffer_planes=6)
    first = gpu.reset(seed=0)[0]
    theirs = cpu.reset(seed=0)[0]
    same(first, theirs[:2], "reset")
    actions = torch.zeros(2, dtype=torch.int64, device=gpu.device)
    gpu.send(actions)
    same(gpu.recv()[0], theirs[2:], "reset of the others")
    theirs = cpu.step(np.zeros(4, np.int64))[0]
    gpu.send(actions)
    same(gpu.recv()[0], theirs[:2], "step")
    gpu.close()


def test_positions_in_the_buffer_are_consecutive() -> None:
    sliding = Sliding((2, 4, 3, 5), 4, 7, torch.device("cpu"))
    places = [sliding.next(whole=i == 0) for i in range(7)]
    assert [view.storage_offset() // 15 for view, _ in places] == [0, 1, 2, 3, 0, 1, 2]
    assert [slides for _, slides in places] == [False, True, True, True, False, True, True]
    sliding.forget()
    assert not sliding.next(whole=False)[1]
    assert sliding.stride == 7 * 15
    assert places[0][0].shape == (2, 4, 3, 5)


@pytest.mark.parametrize(
    ("device", "sliding", "stack", "message"),
    [
        ("cpu", 8, 4, "need a CUDA device"),
        ("cuda", 4, 4, "expected stack_num >= 2"),
        ("cuda", 8, 1, "expected stack_num >= 2"),
        ("cuda", -1, 4, "sliding_buffer_planes is -1"),
    ],
)
def test_invalid_sliding_settings_are_refused(device: str, sliding: int, stack: int, message: str) -> None:
    with pytest.raises(AtariError, match=message):
        parl.AtariVectorEnv("breakout", 2, device=device, sliding_buffer_planes=sliding, stack_num=stack)
