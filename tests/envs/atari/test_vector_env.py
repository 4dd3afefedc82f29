"""`AtariVectorEnv` besides its numbers: threads, batches, states, pickles, arrays, ids, pictures, errors."""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

import parl
from parl.atari import Console
from parl.atari.ale import ALEInterface, ALEState
from parl.atari.recording import Recorder
from parl.envs.atari.registration import env_id
from parl.envs.cartpole import CartPoleVectorEnv
from parl.envs.classic import AcrobotVectorEnv
from parl.envs.snapshot import Snapshot


def trajectory(envs: Any, steps: int, seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    results = []
    for _ in range(steps):
        obs, reward, terminated, truncated, info = envs.step(
            rng.integers(0, envs.single_action_space.n, envs.num_envs)
        )
        results += [obs.copy(), reward, terminated, truncated, info["lives"], info["frame_number"]]
    return results


def assert_same(a: list[np.ndarray], b: list[np.ndarray]) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


# ---------------------------------------------------------------------- schedules


@settings(max_examples=10)
@given(
    threads=st.integers(1, 6),
    batch=st.integers(1, 6),
    ordered=st.booleans(),
    mode=st.sampled_from(["NextStep", "SameStep"]),
    seed=st.integers(0, 1000),
)
def test_results_do_not_depend_on_the_schedule(
    threads: int, batch: int, ordered: bool, mode: str, seed: int
) -> None:
    """Every environment returns the same for any number of threads, batch size and order of completion."""
    envs, steps = 6, 12
    options: dict[str, Any] = {
        "repeat_action_probability": 0.25,
        "max_num_frames_per_episode": 30,
        "autoreset_mode": mode,
        "frameskip": (2, 6),  # Some steps take fewer frames.
    }
    plans = np.random.default_rng(seed).integers(0, 4, (steps, envs))
    expected = []
    sync = parl.AtariVectorEnv("breakout", envs, num_threads=1, **options)
    sync.reset(seed=seed)
    for plan in plans:
        obs, reward, *_ = sync.step(plan)
        expected.append([(obs[i].copy(), reward[i]) for i in range(envs)])
    tested = parl.AtariVectorEnv(
        "breakout", envs, num_threads=threads, batch_size=batch, ordered=ordered, **options
    )
    at = np.full(envs, -1)  # -1: the observation of the reset has not been received.
    obs, info = tested.reset(seed=seed)
    reward = np.zeros(batch)
    while True:
        ids = info["env_id"]
        for row, i in enumerate(ids):
            if at[i] >= 0:
                np.testing.assert_array_equal(obs[row], expected[at[i]][i][0])
                assert reward[row] == expected[at[i]][i][1]
            at[i] += 1
        if (at[ids] >= steps).any():
            break
        obs, reward, _, _, info = tested.step(np.array([plans[at[i], i] for i in ids]))
    tested.close()


def test_batches_alternate_and_a_recv_without_send_raises() -> None:
    envs = parl.AtariVectorEnv("pong", 4, batch_size=2, num_threads=1, noop_max=1)
    assert envs.observation_space.shape == (2, 4, 84, 84)
    _, info = envs.reset(seed=0)
    order = [info["env_id"].tolist()]
    for _ in range(3):
        *_, info = envs.step(np.zeros(2, np.int64))
        order.append(info["env_id"].tolist())
    assert order == [[0, 1], [2, 3], [0, 1], [2, 3]]
    envs.send(np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="no batch to act for"):
        envs.send(np.zeros(2, np.int64))
    envs.recv()
    envs.recv()
    with pytest.raises(ValueError, match="wait for ever"):
        envs.recv()
    _, info = envs.reset(seed=0)
    assert info["frame_number"].tolist() == [1, 1]


def test_a_wrong_out_does_not_use_up_the_step_of_a_batch() -> None:
    envs = parl.AtariVectorEnv("pong", 4, batch_size=2, num_threads=1, noop_max=1)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="out"):
        envs.step(np.zeros(2, np.int64), out=np.zeros(3, np.uint8))
    *_, info = envs.step(np.zeros(2, np.int64))
    assert info["env_id"].tolist() == [2, 3]


@pytest.mark.parametrize("threads", [1, 2])
def test_several_games_in_one_batch_equal_separate_ones(threads: int) -> None:
    games = ["pong", "air_raid", "pooyan"]
    options: dict[str, Any] = {
        "autoreset_mode": "SameStep",
        "max_num_frames_per_episode": 60,
        "ram_info": True,
    }
    mixed = parl.AtariVectorEnv(games, 6, num_threads=threads, **options)
    assert mixed.single_action_space.n == 18
    mixed.reset(seed=np.array([1, 2, 3, 1, 2, 3]))
    alone = [parl.AtariVectorEnv(game, 1, full_action_space=True, **options) for game in games]
    for i, env in enumerate(alone):
        env.reset(seed=i + 1)
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(40):
        action = int(rng.integers(18))
        obs, reward, *_, info = mixed.step(np.full(6, action))
        for i, env in enumerate(alone):
            one, r, *_, one_info = env.step(np.array([action]))
            for row in (i, i + 3):
                np.testing.assert_array_equal(obs[row], one[0])
                np.testing.assert_array_equal(info["ram"][row], one_info["ram"][0])
                assert (reward[row], info["env_id"][row]) == (r[0], row)
                if "final_obs" in one_info:
                    np.testing.assert_array_equal(info["final_obs"][row], one_info["final_obs"][0])
                    ends += 1
    assert ends == 2 * 2 * 3
    with pytest.raises(ValueError, match="one size for all games"):
        parl.AtariVectorEnv(games, 3, img_height=None, img_width=None)


# ---------------------------------------------------------------------- states


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"repeat_action_probability": 0.5, "episodic_life": True, "autoreset_mode": "SameStep"},
        {"frameskip": 1, "stack_num": 2},
        {"frameskip": (2, 5), "noops": "numpy", "boot": "snapshot"},
        {"obs_type": "ram"},
    ],
    ids=str,
)
@pytest.mark.parametrize("game", ["breakout", "journey_escape", "tic_tac_toe_3d"])
def test_a_loaded_state_repeats_the_same_steps(game: str, options: dict[str, Any]) -> None:
    first = parl.AtariVectorEnv(game, 3, max_num_frames_per_episode=90, **options)
    first.reset(seed=4)
    trajectory(first, 15)
    states = first.get_state()
    assert states.dtype == np.uint8 and states.shape[0] == 3
    expected = trajectory(first, 40)
    first.set_state(states)
    assert_same(trajectory(first, 40), expected)
    other = parl.AtariVectorEnv(game, 3, max_num_frames_per_episode=90, **options)
    other.set_state(states)
    assert_same(trajectory(other, 40), expected)
    assert_same(trajectory(pickle.loads(pickle.dumps(_with_states(first, states))), 40), expected)
    assert_same(trajectory(copy.deepcopy(_with_states(first, states)), 40), expected)


def _with_states(envs: Any, states: np.ndarray) -> Any:
    envs.set_state(states)
    return envs


def test_actions_are_for_the_last_of_several_batches() -> None:
    envs = parl.AtariVectorEnv("pong", 4, batch_size=2)
    envs.reset(seed=0)
    last = envs.recv()[-1]["env_id"]
    envs.send(np.zeros(2, np.int64))
    np.testing.assert_array_equal(np.sort(envs.recv()[-1]["env_id"]), np.sort(last))


class Counting(parl.AtariVectorEnv):
    """Counts steps, before and after the constructor's own attributes exist."""

    def __init__(self) -> None:
        self.steps = 0
        super().__init__("pong", 1)
        self.actions: list[int] = []

    def step(self, actions: Any, **options: Any) -> Any:
        self.steps += 1
        self.actions.append(int(actions[0]))
        return super().step(actions, **options)


def _from_snapshot(envs: Counting) -> Counting:
    other = Counting()
    Snapshot(other).put(Snapshot(envs).take())
    return other


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda envs: pickle.loads(pickle.dumps(envs)), _from_snapshot]
)
def test_copies_keep_the_attributes_of_a_subclass(copied: Callable[[Counting], Counting]) -> None:
    envs = Counting()
    envs.reset(seed=0)
    envs.step(np.array([3]))
    other = copied(envs)
    expected = envs.step(np.array([2]))[0]
    assert (other.steps, other.actions) == (1, [3])
    np.testing.assert_array_equal(other.step(np.array([2]))[0], expected)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda envs: pickle.loads(pickle.dumps(envs))])
@pytest.mark.parametrize("options", [{}, {"obs_type": "ram"}, {"batch_size": 1, "num_threads": 1}], ids=str)
def test_a_copy_before_the_first_reset_takes_the_same_steps(copied: Any, options: dict[str, Any]) -> None:
    envs = parl.AtariVectorEnv("breakout", 2, repeat_action_probability=0.5, **options)
    other = copied(envs)
    with pytest.raises(ValueError, match=r"has not been reset|no batch to act for"):
        other.step(np.zeros(other.batch_size, np.int64))
    for _ in range(2):
        (a, info), (b, other_info) = envs.reset(), other.reset()
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(info["frame_number"], other_info["frame_number"])
    assert_same(
        [envs.step(np.full(envs.batch_size, 1))[0] for _ in range(9)],
        [other.step(np.full(envs.batch_size, 1))[0] for _ in range(9)],
    )


def test_clones_and_seeded_states_step_alike() -> None:
    envs = parl.AtariVectorEnv("seaquest", 4)
    envs.reset(seed=0)
    trajectory(envs, 10)
    envs.clone(0, [1, 3])
    row = envs.get_state(np.array([True, False, False, False]))
    assert row.shape[0] == 1
    envs.seed_states(row[0], 2, 3)
    obs, *_ = envs.step(np.full(4, 5))
    assert all((obs[i] == obs[0]).all() for i in range(4))


@pytest.mark.parametrize("number", [-1, 4])
def test_numbers_of_environments_that_do_not_exist_are_refused(number: int) -> None:
    envs = parl.AtariVectorEnv("seaquest", 4, batch_size=2)
    envs.reset(seed=0)
    for name, call in (
        ("env_id", lambda: envs.send(np.zeros(2, np.int64), [0, number])),
        ("target", lambda: envs.clone(0, [1, number])),
        ("target", lambda: envs.clone(0, np.int64(number))),
        ("source", lambda: envs.clone(number, 0)),
    ):
        with pytest.raises(ValueError, match=f"{name} is {number}, expected 0 to 3"):
            call()


@pytest.mark.parametrize("options", [{}, {"obs_type": "objects", "stack_num": 2}])
def test_a_reset_continues_from_states(options: dict[str, Any]) -> None:
    source = parl.AtariVectorEnv("breakout", 2, **options)
    source.reset(seed=0)
    trajectory(source, 10)
    seen, *_ = source.step(np.array([1, 2]))
    states = source.get_state()
    envs = parl.AtariVectorEnv("breakout", 4, **options)
    before, _ = envs.reset(seed=5)
    mask = np.array([False, True, False, True])
    obs, info = envs.reset(options={"reset_mask": mask, "states": states})
    np.testing.assert_array_equal(obs[mask], seen)
    np.testing.assert_array_equal(obs[~mask], before[~mask])
    np.testing.assert_array_equal(envs.get_state(mask), states)
    assert info["episode_frame_number"][1] > info["episode_frame_number"][0]
    everywhere, _ = envs.reset(options={"states": np.repeat(states[:1], 4, axis=0)})
    assert (everywhere == seen[0]).all()


def test_a_reset_to_states_seeds_their_generators() -> None:
    envs = parl.AtariVectorEnv("breakout", 6, repeat_action_probability=0.5, obs_type="ram")
    envs.reset(seed=0)
    states = np.repeat(envs.get_state()[:1], 6, axis=0)
    actions = np.random.default_rng(0).integers(4, size=(30, 1)).repeat(6, axis=1)

    def run(seed: Any) -> np.ndarray:
        envs.reset(seed=seed, options={"states": states})
        return np.stack([envs.step(row)[0].copy() for row in actions], 1)

    without, alike = run(None), run([7, 7, 8, -1, -1, 9])
    assert all((one == without[0]).all() for one in without)
    np.testing.assert_array_equal(alike[0], alike[1])
    np.testing.assert_array_equal(alike[3], without[0])  # a negative seed keeps the generators of the state
    assert not (alike[0] == alike[2]).all() and not (alike[2] == alike[5]).all()


def test_states_of_a_reset_are_checked() -> None:
    envs = parl.AtariVectorEnv("breakout", 2)
    envs.reset(seed=0)
    before = envs.get_state()
    mask = np.array([True, False])
    for options, error, match in [
        ({"states": before[:1]}, ValueError, r"states have shape \(1, \d+\), expected \(2, bytes\)"),
        ({"states": before, "reset_mask": mask}, ValueError, r"expected \(1, bytes\)"),
        ({"states": before.astype(np.int64)}, TypeError, "states has dtype int64, expected uint8"),
        ({"states": before + np.uint8(1)}, ValueError, "not a saved state"),
    ]:
        with pytest.raises(error, match=match):
            envs.reset(options=options)
        np.testing.assert_array_equal(envs.get_state(), before)
    half = parl.AtariVectorEnv("breakout", 2, batch_size=1)
    with pytest.raises(ValueError, match="states needs batch_size == num_envs: batch_size is 1, num_envs 2"):
        half.reset(options={"states": before})


def test_damaged_and_other_states_are_refused() -> None:
    envs = parl.AtariVectorEnv("pong", 2)
    envs.reset(seed=0)
    states = envs.get_state()
    before = trajectory(envs, 3)
    envs.set_state(states)
    rng = np.random.default_rng(0)
    for place in [*rng.integers(0, states.shape[1], 40), 0, states.shape[1] - 1]:
        damaged = states.copy()
        damaged[1, place] ^= 1 << rng.integers(8)
        with pytest.raises(ValueError, match="not a saved state"):
            envs.set_state(damaged)
    for wrong, match in [
        (states[:, :-1], "not a saved state"),
        (states[:, :10], "less than a header"),
        (states[:1], r"expected uint8 of shape \[2, bytes\]"),
    ]:
        with pytest.raises(ValueError, match=match):
            envs.set_state(np.ascontiguousarray(wrong))
    with pytest.raises(TypeError, match="expected uint8"):
        envs.set_state(states.astype(np.int16))
    with pytest.raises(ValueError, match="it is of pong, expected breakout"):
        parl.AtariVectorEnv("breakout", 2).set_state(states)
    with pytest.raises(ValueError, match="other settings"):
        parl.AtariVectorEnv("pong", 2, stack_num=3).set_state(states)
    assert_same(trajectory(envs, 3), before)


# ---------------------------------------------------------------------- arrays


def test_later_steps_do_not_change_returned_arrays() -> None:
    envs = parl.AtariVectorEnv("breakout", 2)
    kept = [envs.reset(seed=0)[0]]
    copies = [kept[0].copy()]
    for _ in range(12):
        kept.append(envs.step(np.array([1, 3]))[0])
        copies.append(kept[-1].copy())
    assert_same(kept, copies)
    view = kept[-1][0, 3]
    seen = view.copy()
    del kept
    for _ in range(8):
        envs.step(np.array([2, 1]))
    np.testing.assert_array_equal(view, seen)


def test_given_arrays_are_filled_and_tensors_are_returned() -> None:
    torch = pytest.importorskip("torch")
    out = np.zeros((2, 4, 84, 84), np.uint8)
    envs = parl.AtariVectorEnv("breakout", 2)
    obs, _ = envs.reset(seed=0, out=out)
    assert obs is out
    obs, *_ = envs.step(np.array([1, 3]), out=out)
    assert obs is out and out[:, 3].any()
    tensors = parl.AtariVectorEnv("breakout", 2, output="torch")
    tensors.reset(seed=0)
    obs, reward, *_ = tensors.step(torch.tensor([1, 3]))
    assert isinstance(obs, torch.Tensor) and obs.dtype == torch.uint8 and reward.shape == (2,)
    np.testing.assert_array_equal(obs.numpy(), out)
    for bad in (np.zeros((2, 4, 84, 83), np.uint8), np.zeros((2, 4, 84, 84)), [1]):
        with pytest.raises(ValueError, match="out is"):
            envs.step(np.array([1, 3]), out=bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="contiguous"):
        envs.step(np.array([1, 3]), out=np.zeros((2, 4, 84, 168), np.uint8)[..., ::2])


def test_flags_that_are_tensors_are_a_reset_mask() -> None:
    pytest.importorskip("torch")
    limit = {"autoreset_mode": "Disabled", "max_num_frames_per_episode": 4}
    envs = parl.AtariVectorEnv("breakout", 2, output="torch", **limit)
    first, _ = envs.reset(seed=0)
    _, _, terminated, truncated, _ = envs.step(np.array([1, 3]))
    obs, _ = envs.reset(seed=0, options={"reset_mask": terminated | truncated})
    np.testing.assert_array_equal(obs, first)
    envs.step(np.array([1, 3]))


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"obs_type": "rgb"}, (4, 84, 84, 3)),
        ({"obs_type": "rgb", "channel_order": "first"}, (12, 84, 84)),
        ({"obs_type": "index"}, (4, 210, 160)),
        ({"obs_type": "ram", "stack_num": 1}, (1, 128)),
        ({"img_height": None, "img_width": None}, (4, 210, 160)),
        ({"stack_num": None}, (84, 84)),
        ({"obs_type": "rgb", "stack_num": None}, (84, 84, 3)),
        ({"obs_type": "rgb", "channel_order": "first", "stack_num": None}, (3, 84, 84)),
        ({"obs_type": "ram", "stack_num": None}, (128,)),
    ],
    ids=str,
)
def test_shapes_of_observation_types(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    envs = parl.AtariVectorEnv("breakout", 2, ram_info=True, **options)
    envs.reset(seed=0)
    obs, _, _, _, info = envs.step(np.array([1, 3]))
    assert obs.shape == (2, *shape) and obs in envs.observation_space
    if options.get("obs_type") == "ram":
        np.testing.assert_array_equal(obs.reshape(2, 128), info["ram"])


def test_channels_first_is_channels_last_transposed() -> None:
    last = parl.AtariVectorEnv("seaquest", 1, obs_type="rgb")
    first = parl.AtariVectorEnv("seaquest", 1, obs_type="rgb", channel_order="first")
    a, _ = last.reset(seed=2)
    b, _ = first.reset(seed=2)
    np.testing.assert_array_equal(np.moveaxis(a[0], -1, 1).reshape(12, 84, 84), b[0])


# ---------------------------------------------------------------------- episodes


def test_infos_at_the_end_of_episodes() -> None:
    envs = parl.AtariVectorEnv("breakout", 2, autoreset_mode="SameStep", max_num_frames_per_episode=40)
    envs.reset(seed=0)
    total = np.zeros(2)
    for t in range(1, 11):
        _, _, _, truncated, info = envs.step(np.array([1, 3]))
        total += info["raw_reward"]
        assert ("final_obs" in info) == (t == 10)
    assert truncated.all() and info["episode_length"].tolist() == [10, 10]
    np.testing.assert_array_equal(info["episode_return"], total)
    assert info["_final_info"].all()
    assert (info["final_info"]["episode_frame_number"] > info["episode_frame_number"]).all()
    for key in ("lives", "frame_number", "env_id", "raw_reward", "episode_return"):
        assert info[f"_{key}"].dtype == np.bool_


def test_final_observations_of_rows_without_an_end_are_zeros() -> None:
    """Also with ``batch_size``, where the buffers of earlier results are used again."""
    options: dict[str, Any] = {"autoreset_mode": "SameStep", "life_loss": "any", "num_threads": 1}
    envs = parl.AtariVectorEnv("breakout", 4, batch_size=2, frameskip=10, **options)
    envs.reset(seed=0)
    envs.send(np.zeros(2, np.int64))
    mixed = 0
    for t in range(400):
        _, _, _, _, info = envs.recv()
        if "final_obs" in info:
            ended = info["_final_obs"]
            assert info["final_obs"][ended].any() and not info["final_obs"][~ended].any()
            mixed += not ended.all()
        envs.send(np.full(2, 1 + t % 3), info["env_id"])
    assert mixed > 2


def test_disabled_autoreset() -> None:
    envs = parl.AtariVectorEnv("pong", 3, autoreset_mode="Disabled", max_num_frames_per_episode=12)
    assert envs.metadata["autoreset_mode"] is envs.autoreset_mode is AutoresetMode.DISABLED
    envs.reset(seed=0)
    for _ in range(3):
        *_, truncated, _ = envs.step(np.zeros(3, np.int64))
    assert truncated.all()
    with pytest.raises(ValueError, match="environment 0 has ended"):
        envs.step(np.zeros(3, np.int64))
    obs, _ = envs.reset(options={"reset_mask": truncated})
    assert obs.shape[0] == 3
    envs.step(np.zeros(3, np.int64))


# ---------------------------------------------------------------------- Gymnasium


def test_gymnasium_ids_make_vector_and_single_environments() -> None:
    envs = gymnasium.make_vec("parl:parl/Breakout-v0", num_envs=3)
    assert isinstance(envs.unwrapped, parl.AtariVectorEnv) and envs.num_envs == 3
    assert envs.spec.kwargs["game"] == "breakout"
    obs, _ = envs.reset(seed=1)
    single = gymnasium.make("parl:parl/Breakout-v0", render_mode="rgb_array")
    one, info = single.reset(seed=1)
    np.testing.assert_array_equal(one, obs[0])
    assert info["lives"] == 5
    assert single.render().shape == (210, 160, 3)
    single.close()
    assert env_id("ms_pacman") == "parl/MsPacman-v0"
    assert sum(name.startswith("parl/") for name in gymnasium.registry) == 2 * 104


def test_gymnasium_vector_wrappers() -> None:
    from gymnasium.wrappers.vector import RecordEpisodeStatistics

    envs = RecordEpisodeStatistics(parl.AtariVectorEnv("breakout", 2, max_num_frames_per_episode=20))
    envs.reset(seed=0)
    for _ in range(5):
        *_, info = envs.step(envs.action_space.sample())
    assert info["episode"]["l"].tolist() == [5, 5]


def test_torchrls_wrapper_takes_a_vector_environment() -> None:
    torchrl = pytest.importorskip("torchrl.envs")
    env = torchrl.GymWrapper(parl.AtariVectorEnv("pong", 2, num_threads=1, autoreset_mode="SameStep"))
    rollout = env.rollout(3, break_when_any_done=False)
    assert rollout["next", "observation"].shape == (2, 3, 4, 84, 84)


def test_render_returns_a_picture_of_each_environment() -> None:
    envs = parl.AtariVectorEnv(["breakout", "air_raid"], 2, render_mode="rgb_array")
    with pytest.raises(ValueError, match="has not been reset"):
        envs.render()
    envs.reset(seed=0)
    pictures = envs.render()
    assert pictures is not None
    assert [picture.shape for picture in pictures] == [(210, 160, 3), (250, 160, 3)]
    native = parl.AtariVectorEnv(
        "seaquest", 1, obs_type="rgb", img_height=None, img_width=None, maxpool=False, render_mode="rgb_array"
    )
    native.reset(seed=0)
    for _ in range(30):
        obs, *_ = native.step(np.array([5]))
        np.testing.assert_array_equal(native.render()[0], obs[0, 3])
    with pytest.raises(ValueError, match="render_mode"):
        parl.AtariVectorEnv("pong").render()


# ---------------------------------------------------------------------- errors and limits


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"num_envs": 0}, ValueError, "num_envs is 0"),
        ({"num_envs": -1}, ValueError, "num_envs is -1"),
        ({"num_envs": 1.5}, TypeError, "expected an int"),
        ({"num_envs": 2, "batch_size": 3}, ValueError, "batch_size is 3, expected 0 to 2"),
        ({"num_threads": -1}, ValueError, "num_threads is -1"),
        ({"stack_num": 0}, ValueError, "stack_num is 0"),
        ({"img_height": 0}, ValueError, "img_height is 0"),
        ({"img_width": None}, ValueError, "give both or neither"),
        ({"frameskip": 0}, ValueError, "frameskip is 0"),
        ({"frameskip": (3, 2)}, ValueError, r"frameskip is \(3, 2\)"),
        ({"frameskip": (2,)}, ValueError, "expected an int or"),
        ({"frameskip": True}, TypeError, "frameskip is True"),
        ({"num_envs": 2**30}, MemoryError, "num_envs is 1073741824: the environments need .* bytes"),
        ({"num_envs": 2**28, "obs_type": "ram", "stack_num": 1}, MemoryError, "num_envs is 268435456"),
        ({"stack_num": 1024, "img_height": 4096, "img_width": 4096, "num_envs": 99}, MemoryError, "num_envs"),
        ({"num_envs": 2**31}, ValueError, "num_envs is 2147483648, expected 1 to 2147483647"),
        ({"num_threads": 2**40}, ValueError, "num_threads is 1099511627776"),
        ({"batch_size": 2**70}, ValueError, "batch_size is 1180591620717411303424"),
        ({"img_width": 2**40}, ValueError, "img_width is 1099511627776, expected 1 to 4096"),
        ({"stack_num": 2**40}, ValueError, "stack_num is 1099511627776, expected 1 to 1024"),
        ({"frameskip": 2**40}, ValueError, "frameskip is 1099511627776, expected 1 to 10000"),
        ({"noop_max": 2**40}, ValueError, "noop_max is 1099511627776"),
        ({"max_num_frames_per_episode": 2**40}, ValueError, "max_num_frames_per_episode is 1099511627776"),
        ({"max_num_steps_per_episode": 2**40}, ValueError, "max_num_steps_per_episode is 1099511627776"),
        ({"sliding_buffer_planes": 2**40}, ValueError, "sliding_buffer_planes is 1099511627776"),
        ({"mode": 2**40}, ValueError, "mode is 1099511627776"),
        ({"difficulty": -1}, ValueError, "difficulty is -1"),
        ({"max_num_frames_per_episode": 0}, ValueError, "max_num_frames_per_episode is 0"),
        ({"repeat_action_probability": 1.5}, ValueError, "repeat_action_probability is 1.5"),
        ({"continuous_action_threshold": float("nan")}, ValueError, "continuous_action_threshold is nan"),
        ({"continuous_action_threshold": float("inf")}, ValueError, "threshold is inf, expected a finite"),
        ({"autoreset_mode": "Later"}, ValueError, "autoreset_mode is 'Later'"),
        ({"obs_type": "audio"}, ValueError, 'obs_type is "audio"'),
        ({"padding": "last"}, ValueError, 'padding is "last"'),
        ({"mode": 77}, ValueError, "mode 77 is not one of breakout's modes"),
        ({"difficulty": 9}, ValueError, "difficulty 9"),
        ({"device": "tpu"}, ValueError, "device is 'tpu'"),
        ({"thread_affinity_offset": 2**31}, ValueError, "thread_affinity_offset is 2147483648"),
        ({"game": "brekout"}, ValueError, "brekout"),
        ({"game": []}, ValueError, "at least one game"),
        ({"episodic_life": "false"}, TypeError, "episodic_life is 'false', expected True or False"),
        ({"full_action_space": "no"}, TypeError, "full_action_space is 'no'"),
        ({"sound": None}, TypeError, "sound is None"),
        ({"maxpool": 2}, TypeError, "maxpool is 2"),
        ({"life_loss": True}, TypeError, "life_loss is True, expected text or None"),
    ],
    ids=str,
)
def test_bad_arguments_are_named(options: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        parl.AtariVectorEnv(**{"game": "breakout", **options})


_UNDER_A_LIMIT = """
import resource
import numpy as np
import parl

# An observation has 640,000 bytes.
options = {"num_threads": 1, "img_height": 400, "img_width": 400, **OPTIONS}
parl.AtariVectorEnv("pong", 2, **options).reset(seed=0)
now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 2**26, now + 2**26))
for count in (10, 35, 50, 90, 2_000):
    try:
        envs = parl.AtariVectorEnv("pong", count, **options)
        envs.reset(seed=0)
        envs.step(np.zeros(envs.batch_size, np.int64))
        if not envs.is_async:
            envs.get_state()
        print("enough")
    except MemoryError as error:
        print("MemoryError", error)
    envs = None
"""


@pytest.mark.parametrize("options", [{}, {"batch_size": 1}], ids=str)
def test_a_memory_limit_raises_and_does_not_abort(options: dict[str, Any]) -> None:
    code = _UNDER_A_LIMIT.replace("OPTIONS", repr(options))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == "enough" and said[-1].startswith("MemoryError")
    assert "bytes of memory cannot be allocated" in said[-1]


@pytest.mark.parametrize("wrong", [0, (3, 2), (1, 2, 3), 2.5, "4", None, True], ids=repr)
def test_a_wrong_frameskip_raises_gymnasiums_error_too(wrong: Any) -> None:
    for make in (parl.AtariVectorEnv, parl.envs.AtariEnv):
        with pytest.raises(gymnasium.error.Error, match="frameskip is"):
            make("pong", frameskip=wrong)


@pytest.mark.parametrize(
    "make",
    [
        lambda: parl.AtariVectorEnv(),  # type: ignore[call-arg]
        lambda: parl.AtariVectorEnv("brekout"),
        lambda: parl.AtariVectorEnv("pong", num_envs="many"),  # type: ignore[arg-type]
        lambda: parl.AtariVectorEnv("pong", speed=1),  # type: ignore[call-arg]
        lambda: parl.make_vec("pong", preset="none"),
        lambda: parl.envs.AtariEnv(),  # type: ignore[call-arg]
        lambda: parl.envs.AtariEnv("pong", batch_size=2),
        lambda: CartPoleVectorEnv(num_envs="many"),
        lambda: CartPoleVectorEnv(speed=1),
        lambda: AcrobotVectorEnv("many"),
        lambda: AcrobotVectorEnv(),
        lambda: Console(),
        lambda: Console("brekout"),
        lambda: Console("pong", frame_skip="many"),
        lambda: ALEInterface(1),
        lambda: ALEState(b"none"),
        lambda: Recorder(),
    ],
)
def test_a_failed_constructor_causes_no_unraisable_error(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    # Searching all objects of the process for garbage takes 0.5 s; those made from here on are enough.
    gc.freeze()
    try:
        with pytest.raises(Exception, match=r".") as caught:
            make()
        caught.value.__traceback__ = None
        del caught
        gc.collect()
    finally:
        gc.unfreeze()
    assert not unraisable, unraisable[0].exc_value


def test_bad_actions_seeds_and_masks_are_named() -> None:
    envs = parl.AtariVectorEnv("breakout", 2)
    with pytest.raises(ValueError, match="environment 0 has not been reset"):
        envs.step(np.zeros(2, np.int64))
    envs.reset(seed=0)
    states = envs.get_state()
    for actions, error, match in [
        (np.array([0, 4]), ValueError, "action 4 of row 1 is outside 0 to 3"),
        (np.array([-1, 0]), ValueError, "action -1 of row 0"),
        (np.zeros(2), TypeError, "float64"),
        (np.zeros(3, np.int64), ValueError, r"shape \(3,\), expected \(2,\)"),
        (np.zeros((2, 1), np.int64), ValueError, "shape"),
    ]:
        with pytest.raises(error, match=match):
            envs.step(actions)
    for seed, error in [
        (1.5, TypeError),
        ("1", TypeError),
        (np.zeros(2), TypeError),
        ([1, 2, 3], ValueError),
        (2**31, ValueError),
    ]:
        with pytest.raises(error, match="seed"):
            envs.reset(seed=seed)
    for mask, error in [
        ([True, False], TypeError),
        (np.zeros(2), TypeError),
        (np.zeros(3, bool), ValueError),
    ]:
        with pytest.raises(error, match="reset_mask"):
            envs.reset(options={"reset_mask": mask})
    with pytest.raises(ValueError, match=r"options has the key 'reset_masks': did you mean 'reset_mask'\?"):
        envs.reset(options={"reset_masks": np.ones(2, bool)})
    for mask in ([True, False, True], np.zeros(2), np.zeros((2, 1), bool)):
        for call in (envs.get_state, lambda mask: envs.set_state(states, mask)):
            with pytest.raises(ValueError, match="mask is"):
                call(mask)  # type: ignore[arg-type]
    np.testing.assert_array_equal(envs.get_state(), states)
    continuous = parl.AtariVectorEnv("breakout", 1, continuous=True)
    continuous.reset(seed=0)
    with pytest.raises(ValueError, match="not finite"):
        continuous.step(np.array([[np.nan, 0, 0]], np.float32))


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "bool", "complex64", "object", "U3"])
def test_rewards_have_a_dtype_with_a_sign(dtype: str) -> None:
    """A lost point of Pong would be 255, true or text."""
    with pytest.raises(ValueError, match=f"reward_dtype is '{dtype}', expected a signed integer or a float"):
        parl.AtariVectorEnv("pong", 1, reward_dtype=dtype)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_unclipped_rewards_fit_their_dtype(dtype: str) -> None:
    with pytest.raises(ValueError, match=f"reward_dtype is '{dtype}' without clipping, expected at least 32"):
        parl.AtariVectorEnv("pong", 1, reward_dtype=dtype, reward_clipping=False)
    envs = parl.AtariVectorEnv("pong", 1, reward_dtype=dtype, obs_type="ram", num_threads=1)
    envs.reset(seed=0)
    rewards = [envs.step([0])[1] for _ in range(80)]
    assert rewards[0].dtype == dtype and np.sum(rewards) == -1


def _parl_threads() -> set[str]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # The thread has just ended.
            if "parl-env" in (task / "comm").read_text():
                found.add(task.name)
    return found


def _soon(condition: Callable[[], bool]) -> bool:
    """Waits up to 20 s for the condition: a busy machine starts and ends threads late."""
    return any(condition() or threading.Event().wait(0.05) for _ in range(400))


def test_deleted_environments_end_their_threads() -> None:
    gc.collect()
    before = _parl_threads()
    envs = parl.AtariVectorEnv("pong", 8, num_threads=4)
    small_batches = parl.AtariVectorEnv("pong", 8, num_threads=4, batch_size=2)
    envs.reset(seed=0)
    small_batches.reset(seed=0)
    assert _soon(lambda: len(_parl_threads() - before) == 3 + 4)
    del envs, small_batches
    gc.collect()
    assert _soon(lambda: not _parl_threads() - before)


@pytest.mark.parametrize(("batch_size", "players"), [(0, 3), (2, 1)])
def test_close_ends_steps_of_other_threads(batch_size: int, players: int) -> None:
    envs = parl.AtariVectorEnv("pong", 8, num_threads=2, batch_size=batch_size)
    envs.reset(seed=0)
    errors: list[str] = []
    playing = threading.Event()

    def play() -> None:
        try:
            while True:
                envs.step(np.zeros(envs.batch_size, np.int64))
                playing.set()
        except ValueError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=play) for _ in range(players)]
    for thread in threads:
        thread.start()
    assert playing.wait(120)
    envs.close()
    envs.close()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert len(errors) == players and all("closed" in error for error in errors)
    actions = np.zeros(envs.batch_size, np.int64)
    for call in (
        envs.reset, envs.get_state, envs.recv, envs.render, lambda: envs.send(actions),
        lambda: envs.step(actions), lambda: pickle.dumps(envs),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="closed"):
            call()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("options", [{}, {"batch_size": 2}], ids=str)
def test_a_step_in_a_forked_process_raises(options: dict[str, int]) -> None:
    envs = parl.AtariVectorEnv("pong", 4, num_threads=2, **options)
    envs.reset(seed=0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            envs.step(np.zeros(envs.batch_size, np.int64))
        except ValueError as error:
            code = 0 if "lives there" in str(error) or "threads live" in str(error) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    if not options:
        envs.step(np.zeros(4, np.int64))


@pytest.mark.parametrize(
    "order",
    [
        "import parl, gymnasium",
        "import gymnasium, parl",
        "import gymnasium",
        "import parl.envs.atari.vector, gymnasium",
    ],
)
def test_ids_are_registered_in_any_order_of_imports(order: str) -> None:
    code = f"{order}\nassert gymnasium.make('parl:parl/MsPacman-v0').spec.kwargs['game'] == 'ms_pacman'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
