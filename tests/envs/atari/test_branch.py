"""`AtariVectorEnv.branch`: sequences of actions from saved states equal the same steps of an environment."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import parl
from parl.envs.atari.branches import BranchResult

FLAGS = ("terminated", "truncated")


def played(game: Any, num_envs: int, steps: int, **options: Any) -> Any:
    """Environments after some random steps."""
    envs = parl.AtariVectorEnv(game, num_envs, **options)
    envs.reset(seed=4)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        envs.step(rng.integers(0, envs.single_action_space.n, num_envs))
    return envs


def content(row: np.ndarray) -> bytes:
    """A row of states without its padding."""
    return row.tobytes().rstrip(b"\0")


def assert_equal(a: BranchResult, b: BranchResult) -> None:
    for field in dataclasses.fields(a):
        np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name), field.name)


def steps_of_an_environment(env: Any, state: np.ndarray, actions: np.ndarray) -> tuple[Any, ...]:
    """Loads a state into an environment and steps it until an episode ends: what a branch must return."""
    env.set_state(state[None])
    reward = raw = length = 0
    for action in actions:
        obs, rewards, terminated, truncated, info = env.step(action[None])
        reward, raw, length = reward + rewards[0], raw + info["raw_reward"][0], length + 1
        if terminated[0] or truncated[0]:
            break
    end = (terminated[0], truncated[0], length, info["lives"][0])
    return obs[0].copy(), reward, raw, *end, env.get_state()[0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"repeat_action_probability": 0.5, "life_loss": "reports"},
        {"frameskip": 1, "stack_num": 2},
        {"frameskip": (2, 5), "noops": "numpy", "show_last_frame": True},
        {"obs_type": "ram", "stack_num": None},
        {"obs_type": "index", "stack_num": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("game", ["breakout", "journey_escape", "tic_tac_toe_3d"])
def test_a_branch_equals_the_steps_of_an_environment(game: str, options: dict[str, Any]) -> None:
    options = {"max_num_frames_per_episode": 150, **options}
    envs = played(game, 3, 20, **options)
    one = parl.AtariVectorEnv(game, 1, **options)
    states = envs.get_state()
    rng = np.random.default_rng(1)
    actions = rng.integers(0, envs.single_action_space.n, (3, 4, 30))
    result = envs.branch(states, actions)
    assert result.observations.shape == (3, 4, *envs.single_observation_space.shape)
    lengths = set()
    for n in range(3):
        for k in range(4):
            obs, *figures, state = steps_of_an_environment(one, states[n], actions[n, k])
            np.testing.assert_array_equal(result.observations[n, k], obs)
            names = ("rewards", "raw_rewards", *FLAGS, "lengths", "lives")
            assert [getattr(result, name)[n, k] for name in names] == figures
            assert content(result.states[n, k]) == content(state)
            lengths.add(figures[4])
    assert options.get("frameskip") == 1 or min(lengths) < 30
    # The states continue likewise, whatever the length of the rows.
    first = envs.branch(states, actions[:, :1, :7])
    on = ~(first.terminated | first.truncated)[:, 0]
    assert on.any()
    again = envs.branch(first.states[on, 0], actions[on, 2:3, :5])
    joined = envs.branch(states[on], np.concatenate([actions[:, :1, :7], actions[:, 2:3, :5]], 2)[on])
    np.testing.assert_array_equal(again.observations, joined.observations)
    assert [content(row) for row in again.states[:, 0]] == [content(row) for row in joined.states[:, 0]]


@pytest.mark.parametrize("options", [{}, {"batch_size": 2, "num_threads": 2}], ids=str)
def test_environments_do_not_change(options: dict[str, Any]) -> None:
    envs, twin = (
        parl.AtariVectorEnv("seaquest", 4, repeat_action_probability=0.3, ordered=True, **options)
        for _ in range(2)
    )
    (obs, _), _ = envs.reset(seed=1), twin.reset(seed=1)
    kept = obs.copy()
    states = played("seaquest", 3, 5).get_state()
    actions = np.random.default_rng(0).integers(0, 18, (3, 5, 10))
    rng = np.random.default_rng(2)
    for _ in range(6):
        envs.branch(states, actions)
        np.testing.assert_array_equal(obs, kept)
        chosen = rng.integers(0, 18, envs.batch_size)
        envs.send(chosen)
        envs.branch(states, actions)
        for a, b in zip(envs.recv()[:4], twin.step(chosen)[:4], strict=True):
            np.testing.assert_array_equal(a, b)
    if options:  # Receive the other batches before states are saved.
        envs.recv(), twin.recv()
    np.testing.assert_array_equal(envs.get_state(), twin.get_state())


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    options: dict[str, Any] = {"repeat_action_probability": 0.25, "frameskip": 5}
    states = played("space_invaders", 5, 40, **options).get_state()
    actions = np.random.default_rng(0).integers(0, 6, (5, 7, 19))
    results = [
        parl.AtariVectorEnv("space_invaders", num_envs, num_threads=threads, **options).branch(
            states, actions
        )
        for num_envs, threads in [(1, 1), (1, 2), (5, 3), (2, 7)]
    ]
    assert len(np.unique(results[0].raw_rewards)) > 1
    for other in results[1:]:
        assert_equal(results[0], other)


def test_from_an_ended_episode_no_action_runs() -> None:
    options: dict[str, Any] = {"max_num_steps_per_episode": 8, "obs_type": "ram"}
    envs = played("pong", 2, 8, **options)
    states = envs.get_state()
    result = envs.branch(states, np.zeros((2, 3, 4), np.int64))
    assert result.truncated.all() and not result.terminated.any()
    assert not result.lengths.any() and not result.rewards.any()
    for k in range(3):
        np.testing.assert_array_equal(result.states[:, k], states)
    # The limit is reached within the sequences: after 3 of 5 steps.
    envs = played("pong", 2, 5, **options)
    result = envs.branch(envs.get_state(), np.zeros((2, 1, 5), np.int64))
    assert result.truncated.all() and (result.lengths == 3).all()


def test_seeds_choose_the_sticky_actions() -> None:
    options: dict[str, Any] = {"repeat_action_probability": 0.5, "obs_type": "ram"}
    envs = played("space_invaders", 2, 40, **options)
    states = envs.get_state()
    actions = np.tile(np.random.default_rng(3).integers(0, 6, 12), (2, 6, 1))
    plain = envs.branch(states, actions)
    for k in range(1, 6):
        np.testing.assert_array_equal(plain.observations[:, k], plain.observations[:, 0])
    assert_equal(plain, envs.branch(states, actions, seeds=np.full((2, 6), -1)))
    seeds = np.array([[1, 2, 3, 1, 2, -1]] * 2)
    seeded = envs.branch(states, actions, seeds=seeds)
    for n in range(2):
        rows = [row.tobytes() for row in seeded.observations[n]]
        assert rows[0] == rows[3] and rows[1] == rows[4] and len({*rows}) == 4
        assert rows[5] == plain.observations[n, 0].tobytes()


def test_without_observations_rewards_and_ends_are_the_same() -> None:
    envs = played("breakout", 3, 10, repeat_action_probability=0.25)
    states = envs.get_state()
    actions = np.random.default_rng(0).integers(0, 4, (3, 6, 60))
    seen, unseen = (envs.branch(states, actions, observe=observe) for observe in (True, False))
    assert unseen.observations is None and unseen.states is None
    assert seen.raw_rewards.any() and len(np.unique(seen.lives)) > 1
    for name in ("rewards", "raw_rewards", *FLAGS, "lengths", "lives"):
        np.testing.assert_array_equal(getattr(seen, name), getattr(unseen, name))
    # The memory of a console is a part of the state, so that states without observations are complete.
    envs = played("breakout", 3, 10, obs_type="ram", ram_info=True)
    states = envs.get_state()
    seen, unseen = (envs.branch(states, actions, observe=observe) for observe in (True, False))
    assert unseen.observations is None
    np.testing.assert_array_equal(seen.observations[:, :, -1], unseen.ram)
    assert_equal(dataclasses.replace(seen, observations=None), unseen)


@pytest.mark.parametrize(("dtype", "expected"), [("int8", "int32"), ("float16", "float32")])
def test_sums_of_rewards_do_not_wrap(dtype: str, expected: str) -> None:
    envs = parl.AtariVectorEnv("skiing", 1, obs_type="ram", stack_num=None, reward_dtype=dtype)
    envs.reset(seed=0)
    result = envs.branch(envs.get_state(), np.zeros((1, 1, 300), np.int64), observe=False)
    assert (result.rewards.dtype, result.rewards.tolist()) == (expected, [[-300]])
    assert envs.step(np.zeros(1, np.int64))[1].dtype == dtype


def test_states_of_several_games_in_any_order() -> None:
    games = ["pong", "breakout", "pooyan"]
    envs = played(games, 6, 8)
    states = envs.get_state()
    actions = np.random.default_rng(0).integers(0, 18, (6, 2, 7))
    order = np.array([5, 0, 3, 1, 4, 2])
    result, mixed = envs.branch(states, actions), envs.branch(states[order], actions[order])
    np.testing.assert_array_equal(mixed.observations, result.observations[order])
    alone = parl.AtariVectorEnv("pooyan", 1, full_action_space=True)
    one = alone.branch(states[2:3], actions[2:3])
    np.testing.assert_array_equal(one.observations[0], result.observations[2])
    with pytest.raises(ValueError, match=r"row 1 of states: .* it is of breakout, expected pooyan"):
        alone.branch(states[[2, 1, 0]], actions[:3])


def test_continuous_actions_tensors_and_a_single_image() -> None:
    options: dict[str, Any] = {"continuous": True, "output": "torch", "stack_num": None, "frameskip": 2}
    envs = parl.AtariVectorEnv("breakout", 2, reward_dtype="float32", **options)
    envs.reset(seed=0)
    rng = np.random.default_rng(0)
    actions = rng.uniform([0, -3, 0], [1, 3, 1], (2, 3, 4, 3)).astype(np.float32)
    result = envs.branch(envs.get_state(), actions)
    assert result.observations.shape == (2, 3, 84, 84)
    assert str(result.rewards.dtype) == "torch.float32" and str(result.terminated.dtype) == "torch.bool"
    states = envs.get_state()
    for step in range(4):
        obs = envs.step(actions[:, 1, step])[0]
    assert (result.observations[:, 1] == obs).all()
    with pytest.raises(TypeError, match="dtype float64, expected float32"):
        envs.branch(states, actions.astype(np.float64))
    with pytest.raises(ValueError, match=r"expected \(2, K, L, 3\)"):
        envs.branch(states, actions[..., 0])
    actions[1, 0, 0, 1] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        envs.branch(states, actions)


def checksum(parts: list[bytes]) -> int:
    """Checksum of states: over eight bytes at a time, FNV-1a with a rotation."""
    value = 0xCBF29CE484222325
    for part in parts:
        for i in range(0, len(part), 8):
            value = (value ^ int.from_bytes(part[i : i + 8], "little")) * 0x100000001B3 % 2**64
            value = (value << 23 | value >> 41) % 2**64
    return value


def test_padding_of_states_may_change() -> None:
    envs = played("pong", 2, 3, obs_type="ram", stack_num=1)
    states = envs.get_state()
    expected = envs.branch(states, np.ones((2, 1, 5), np.int64))
    header, body = states[0, :24].tobytes(), states[0, 32:].tobytes()
    assert states[0, 24:32].tobytes() == checksum([header + bytes(8), body]).to_bytes(8, "little")
    wider = np.zeros((2, states.shape[1] + 20), np.uint8)
    wider[:, : states.shape[1]] = states
    assert_equal(envs.branch(wider, np.ones((2, 1, 5), np.int64)), expected)
    wider[1, -3] = 7
    with pytest.raises(ValueError, match=r"row 1 of states: .* padding is 7, expected 0"):
        envs.branch(wider, np.ones((2, 1, 5), np.int64))
    # Up to version 1.0.0 the checksum covered the padding.
    wider[1, -3] = 0
    for row in wider:
        parts = [row[:24].tobytes() + bytes(8), row[32:].tobytes()]
        row[24:32] = np.frombuffer(checksum(parts).to_bytes(8, "little"), np.uint8)
    assert_equal(envs.branch(wider, np.ones((2, 1, 5), np.int64)), expected)


def test_no_states_give_no_results() -> None:
    envs = played("pong", 1, 1)
    result = envs.branch(envs.get_state()[:0], np.zeros((0, 2, 3), np.int64))
    assert result.observations.shape == (0, 2, 4, 84, 84)
    assert result.rewards.shape == (0, 2) and result.states.shape[:2] == (0, 2)


def test_wrong_arguments_are_named() -> None:
    envs = played("pong", 2, 3)
    states = envs.get_state()
    good = np.zeros((2, 3, 4), np.int64)
    before = envs.get_state()
    damaged = states.copy()
    damaged[1, 300] ^= 1
    high = good.copy()
    high[1, 2, 0] = 6
    fresh = parl.AtariVectorEnv("pong", 2)
    for arguments, options, error, match in [
        ((states[0], good), {}, ValueError, r"states have shape \(\d+,\), expected \(N, S\)"),
        ((states.astype(np.int16), good), {}, TypeError, "states has dtype int16, expected uint8"),
        ((damaged, good), {}, ValueError, "row 1 of states: .*checksum"),
        ((states[:, :40], good), {}, ValueError, "row 0 of states"),
        ((fresh.get_state(), good), {}, ValueError, "row 0 of states: .*has not been reset"),
        ((states, good[:1]), {}, ValueError, r"actions have shape \(1, 3, 4\), expected \(2, K, L\)"),
        ((states, good[0]), {}, ValueError, r"actions have shape \(3, 4\)"),
        ((states, good[:, :0]), {}, ValueError, "K and L of at least 1"),
        ((states, good[:, :, :0]), {}, ValueError, "K and L of at least 1"),
        ((states, good.astype(np.float32)), {}, TypeError, "dtype float32, expected integers"),
        ((states, high), {}, ValueError, r"action 6 at \(1, 2, 0\) is outside 0 to 5"),
        ((states, -high), {}, ValueError, r"action -6 at \(1, 2, 0\) is outside 0 to 5"),
        ((states, good), {"seeds": np.zeros((3, 2), int)}, ValueError, r"shape \(3, 2\), expected \(2, 3\)"),
        ((states, good), {"seeds": np.zeros((2, 3))}, TypeError, "seeds have dtype float64"),
        ((states, good), {"seeds": np.full((2, 3), 2**31)}, ValueError, "largest seed is 2147483648"),
    ]:
        with pytest.raises(error, match=match):
            envs.branch(*arguments, **options)
    with pytest.raises(ValueError, match="other settings"):
        parl.AtariVectorEnv("pong", 2, stack_num=3).branch(states, good)
    np.testing.assert_array_equal(envs.get_state(), before)
    envs.close()
    with pytest.raises(ValueError, match="closed"):
        envs.branch(states, good)
