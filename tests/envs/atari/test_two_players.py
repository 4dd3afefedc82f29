"""`AtariVectorEnv(players=2)`: games that two play at the same time, and their PettingZoo environments."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import ale_py
import numpy as np
import pytest

import parl
from parl.errors import AtariError

GAMES = parl.atari.two_player_games()
RAM: dict[str, Any] = {
    "obs_type": "ram",
    "stack_num": None,
    "reward_clipping": False,
    "full_action_space": True,
}
NOOP, FIRE, UP, RIGHT, LEFT, DOWN = range(6)


ROWS = {row.id: row for row in parl.atari.games()}
# Those that ale-py plays, too, with one player.
OF_ALE = [game for game in GAMES if ROWS[game].players == 1]


def one_player_modes(game: str) -> tuple[int, ...]:
    return ROWS[game].modes


def drawn(envs: Any, steps: int, seed: int = 0) -> np.ndarray:
    """Actions of both players, (steps, N, 2)."""
    count = len(envs.action_codes)
    return np.random.default_rng(seed).integers(0, count, (steps, envs.num_envs, 2))


def played(game: str, actions: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """RAM after each step, (T, 128), and the sum of rewards, (2,), of actions (T, 2) or of a policy.

    A policy gets the RAM of an episode and returns the actions of both.
    """
    envs = parl.AtariVectorEnv(game, 1, players=2, noop_max=0, use_fire_reset=False, **RAM, **options)
    obs, _ = envs.reset(seed=0)
    memory, total = [], np.zeros(2, np.int64)
    for t in range(400 if callable(actions) else len(actions)):
        both = actions(t, obs[0].astype(int)) if callable(actions) else actions[t]
        obs, rewards, terminated, *_ = envs.step(np.array([both]))
        memory.append(obs[0].copy())
        total += rewards[0]
        if terminated[0]:
            break
    return np.array(memory), total


def digits(ram: np.ndarray, *addresses: int) -> int:
    """A decimal number in RAM, of the lowest byte first."""
    return sum(100**i * int(f"{ram[at & 0x7F]:x}") for i, at in enumerate(addresses))


# ---------------------------------------------------------------- equal to ale-py with an idle second player


@pytest.mark.parametrize("game", OF_ALE)
def test_with_an_idle_second_player_it_equals_ale_py(game: str) -> None:
    """In ale-py's default mode; Freeway's is a mode for two players."""
    mode = one_player_modes(game)[0]
    theirs = ale_py.AtariVectorEnv(game, 2, repeat_action_probability=0.25, full_action_space=True)
    ours = parl.AtariVectorEnv(
        game, 2, repeat_action_probability=0.25, full_action_space=True, players=2, mode=mode
    )
    np.testing.assert_array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
    for actions in drawn(ours, 80):
        actions[:, 1] = NOOP
        obs_a, rewards_a, terminated_a, truncated_a, info_a = theirs.step(actions[:, 0])
        obs_b, rewards_b, terminated_b, truncated_b, info_b = ours.step(actions)
        np.testing.assert_array_equal(obs_b, obs_a)
        np.testing.assert_array_equal(rewards_b[:, 0], rewards_a)
        np.testing.assert_array_equal([terminated_b, truncated_b], [terminated_a, truncated_a])
        np.testing.assert_array_equal(info_b["frame_number"], info_a["frame_number"])


@pytest.mark.parametrize("game", GAMES)
def test_with_an_idle_second_player_every_mode_equals_that_of_one_player(game: str) -> None:
    """The states are equal: consoles with all of RAM, generators and counters."""
    for mode in one_player_modes(game):
        one, two = (
            parl.AtariVectorEnv(
                game, 2, repeat_action_probability=0.25, mode=mode, ram_info=True, players=players
            )
            for players in (1, 2)
        )
        np.testing.assert_array_equal(two.reset(seed=5)[0], one.reset(seed=5)[0])
        for actions in drawn(two, 30, mode):
            actions[:, 1] = NOOP
            obs_1, rewards_1, *_, info_1 = one.step(actions[:, 0])
            obs_2, rewards_2, *_, info_2 = two.step(actions)
            np.testing.assert_array_equal(obs_2, obs_1)
            np.testing.assert_array_equal(info_2["ram"], info_1["ram"])
            np.testing.assert_array_equal(rewards_2[:, 0], rewards_1)
        if mode not in GAMES[game]:  # otherwise the second player's points may be a part of the state
            np.testing.assert_array_equal(two.get_state(), one.get_state())


# ---------------------------------------------------------------- the second player's controls


@pytest.mark.parametrize("game", GAMES)
def test_the_second_player_plays_in_modes_for_two_and_not_against_the_console(game: str) -> None:
    for mode in {GAMES[game][0], GAMES[game][-1]}:
        envs = parl.AtariVectorEnv(game, 1, players=2, mode=mode)
        actions = drawn(envs, 120)[:, 0]
        alone = actions * [1, 0]
        changed = (played(game, actions, mode=mode)[0] != played(game, alone, mode=mode)[0]).any(0)
        assert changed.sum() > 3, f"mode {mode}"
    if game in OF_ALE and 0 not in GAMES[game]:
        actions = drawn(envs, 60)[:, 0]
        # The programs of paddle games read and keep both paddles.
        changed = (played(game, actions, mode=0)[0] != played(game, actions * [1, 0], mode=0)[0]).any(0)
        assert changed.sum() <= 4


def test_the_second_player_has_the_sticky_actions_of_the_console() -> None:
    """Console and environment are two implementations of them; Freeway has a mode for one and for two."""
    envs = parl.AtariVectorEnv(
        "freeway", 1, players=2, repeat_action_probability=0.5, noop_max=0, use_fire_reset=False, **RAM
    )
    console = parl.atari.Console("freeway", seed=7, repeat_action_probability=0.5)
    console.reset()
    obs, _ = envs.reset(seed=7)
    for actions in drawn(envs, 300)[:, 0]:
        obs, *_ = envs.step(actions[None])
        for _ in range(4):
            console.act(*(int(action) for action in actions))
        np.testing.assert_array_equal(obs[0], console.ram)


def test_both_paddles_of_pong_move_alike() -> None:
    """The program reads them in turn and smooths them: positions are compared when both have come to rest."""
    turns = np.random.default_rng(0).choice([RIGHT, LEFT], 20)
    moves = np.concatenate([[turn] * 4 + [NOOP] * 30 for turn in turns])
    first, _ = played("pong", np.stack([moves, 0 * moves], 1), frameskip=1)
    second, _ = played("pong", np.stack([0 * moves, moves], 1), frameskip=1)
    np.testing.assert_array_equal(first[33::34, 0x33], second[33::34, 0x32])
    assert len(set(first[33::34, 0x33])) > 4


def follow_the_ball(player: int) -> Any:
    """The policy of a player of Pong whose opponent does nothing."""

    def act(_: int, ram: np.ndarray) -> list[int]:
        ball, paddle = ram[0x36], ram[0x33 - player]
        both = [NOOP, NOOP]
        both[player] = 12 if ball > paddle + 4 else 11 if ball < paddle - 4 else FIRE  # LEFTFIRE, RIGHTFIRE
        return both

    return act


def box(player: int) -> Any:
    """The policy of a player of Boxing that goes to a passive opponent and hits; mirrored for the second."""

    def act(t: int, ram: np.ndarray) -> list[int]:
        dx, dy = (ram[at + 1 - player] - ram[at + player] for at in (0x20, 0x22))
        above = 12 if player == 0 else -12
        both = [NOOP, NOOP]
        if abs(dy - above) > 3:
            both[player] = UP if dy < above else DOWN
        elif abs(dx) > 26:
            both[player] = RIGHT if dx > 0 else LEFT
        else:
            both[player] = FIRE if t % 4 < 2 else NOOP
        return both

    return act


@pytest.mark.parametrize(("game", "policy", "least"), [("pong", follow_the_ball, 8), ("boxing", box, 3)])
def test_mirrored_play_gives_mirrored_scores(game: str, policy: Any, least: int) -> None:
    (won, lost), (given, got) = played(game, policy(0))[1], played(game, policy(1))[1]
    assert won >= least
    assert lost == -won and given == -got
    assert abs(won - got) <= 1  # a serve later in Pong


def test_positions_of_mirrored_boxers_are_mirrored() -> None:
    mirror = np.array([0, 1, 5, 4, 3, 2, 9, 8, 7, 6, 13, 12, 11, 10, 17, 16, 15, 14])
    moves = np.repeat(np.random.default_rng(0).integers(0, 18, 60), 5)
    ram, _ = played("boxing", np.stack([moves, mirror[moves]], 1), frameskip=1)
    x, y = ram[:, [0x20, 0x21]].astype(int), ram[:, [0x22, 0x23]].astype(int)
    # They move in turn, up to two pixels at a time.
    assert np.abs(x.sum(1) - 139).max() <= 2 and np.ptp(x[:, 0]) > 10
    assert np.abs(y.sum(1) - 91).max() <= 2 and np.ptp(y[:, 0]) > 5


def test_in_freeway_each_player_has_points_of_its_own() -> None:
    up = np.full((400, 2), UP)
    up[:, 1] = np.where(np.arange(400) % 2, UP, NOOP)  # half the speed
    ram, total = played("freeway", up)
    assert total.tolist() == [digits(ram[-1], 0xE7), digits(ram[-1], 0xE8)]
    assert total[0] > total[1] > 0


def test_combat_and_joust_have_rules_in_their_modes_for_two_players() -> None:
    """Without modes for two they run without rules, as they do for one player."""
    drive = np.random.default_rng(0).choice([FIRE, 10, 11, 12], (2_200, 1))
    ram, total = played("combat", drive * [1, 0], mode=27)
    assert total.tolist() == [digits(ram[-1], 0xA1), -digits(ram[-1], 0xA1)]
    assert total[0] > 3 and len(ram) < 2_100, "a game takes 2 minutes and 16 seconds"
    flap = np.random.default_rng(1).integers(0, 18, (4_000, 2))
    ram, total = played("joust", flap)
    assert total.tolist() == [digits(ram[-1], 0x87, 0x85, 0x83), digits(ram[-1], 0x88, 0x86, 0x84)]
    assert total.min() > 1_000 and len(ram) < 4_000
    for game in ("combat", "joust"):
        assert played(game, flap[:1_000], mode=0)[1].tolist() == [0, 0]


# ---------------------------------------------------------------- results and states


@pytest.mark.parametrize("autoreset", ["NextStep", "SameStep"])
@pytest.mark.parametrize("game", ["boxing", "freeway"])
def test_rewards_and_returns_are_those_of_both_players(game: str, autoreset: str) -> None:
    envs = parl.AtariVectorEnv(
        game, 3, players=2, autoreset_mode=autoreset, obs_type="ram", max_num_frames_per_episode=1_600
    )
    assert envs.single_action_space.shape == (2,) and envs.action_space.shape == (3, 2)
    envs.reset(seed=0)
    total, ends = np.zeros((3, 2), np.int64), 0
    for t, actions in enumerate(drawn(envs, 500)):
        if game == "freeway":
            actions[:] = [1, 1 if t % 3 else 0]  # UP
        _, rewards, terminated, truncated, info = envs.step(actions)
        assert rewards.shape == info["raw_reward"].shape == (3, 2) and rewards.dtype == np.int32
        np.testing.assert_array_equal(rewards, np.sign(info["raw_reward"]))
        total += info["raw_reward"]
        for i in np.flatnonzero(terminated | truncated):
            assert info["episode_return"][i].tolist() == total[i].tolist()
            assert game == "boxing" or total[i].min() > 0
            total[i], ends = 0, ends + 1
    assert ends >= 3


def test_a_state_continues_both_players_and_the_second_return() -> None:
    options: dict[str, Any] = {"max_num_frames_per_episode": 2_000, "repeat_action_probability": 0.25}
    first, second = (parl.AtariVectorEnv("freeway", 2, players=2, **options) for _ in range(2))
    first.reset(seed=1)
    second.reset(seed=2)
    for t in range(700):
        actions = np.full((2, 2), 1) if t % 5 else np.zeros((2, 2), np.int64)
        a = first.step(actions)
        if t == 300:
            second.set_state(first.get_state())
        if t > 300:
            b = second.step(actions)
            for x, y in zip(a[:4], b[:4], strict=True):
                np.testing.assert_array_equal(x, y)
            if "episode_return" in a[4]:
                np.testing.assert_array_equal(a[4]["episode_return"], b[4]["episode_return"])
                assert a[4]["episode_return"].max() > 3
                return
    raise AssertionError("no episode ended")


@pytest.mark.parametrize("observe", [True, False])
@pytest.mark.parametrize("game", ["boxing", "freeway"])
def test_branches_are_steps_of_both_players(game: str, observe: bool) -> None:
    envs = parl.AtariVectorEnv(game, 2, players=2, ram_info=True, **RAM)
    envs.reset(seed=0)
    for actions in drawn(envs, 40):
        envs.step(actions)
    states = envs.get_state()
    chosen = np.random.default_rng(1).integers(0, 18, (2, 3, 100, 2))
    if game == "freeway":
        chosen[:] = [UP, NOOP]
    result = envs.branch(states, chosen, observe=observe)
    assert result.rewards.shape == result.raw_rewards.shape == (2, 3, 2)
    assert game == "boxing" or result.rewards[..., 0].sum() > result.rewards[..., 1].sum()
    for k in range(3):
        envs.set_state(states)
        total = np.zeros((2, 2), np.int64)
        for actions in chosen[:, k].swapaxes(0, 1):
            *_, info = result_of_step = envs.step(actions)
            total += result_of_step[1]
        np.testing.assert_array_equal(result.rewards[:, k], total)
        np.testing.assert_array_equal(result.ram[:, k], info["ram"])
        np.testing.assert_array_equal(result.states[:, k], envs.get_state())
    with pytest.raises(AtariError, match=r"actions have shape \(2, 3, 100\), expected \(2, K, L, 2\)"):
        envs.branch(states, chosen[..., 0])


def test_asynchronous_steps_equal_synchronous_ones() -> None:
    whole = parl.AtariVectorEnv(["pong", "boxing"], 4, players=2, **RAM)
    part = parl.AtariVectorEnv(["pong", "boxing"], 4, players=2, batch_size=2, ordered=True, **RAM)
    expected, _ = whole.reset(seed=0)
    got = [part.reset(seed=0), part.recv()]
    np.testing.assert_array_equal(np.concatenate([got[0][0], got[1][0]]), expected)
    part._native.set_ready_envs([0, 1, 2, 3])
    for actions in drawn(whole, 30):
        obs, rewards, *_ = whole.step(actions)
        part.send(actions, range(4))
        results = [part.recv(), part.recv()]
        np.testing.assert_array_equal(np.concatenate([result[0] for result in results]), obs)
        np.testing.assert_array_equal(np.concatenate([result[1] for result in results]), rewards)
        part._native.set_ready_envs([0, 1, 2, 3])


def test_continuous_actions_tensors_and_sound() -> None:
    options: dict[str, Any] = {"players": 2, "continuous": True, "sound": True, "output": "torch"}
    envs = parl.AtariVectorEnv("pong", 2, **options)
    assert envs.single_action_space.shape == (2, 3)
    envs.reset(seed=0)
    obs, rewards, *_, info = envs.step(np.tile(np.float32([1.0, 0.0, 1.0]), (2, 2, 1)))
    assert obs.shape == (2, 4, 84, 84) and rewards.shape == (2, 2) and info["audio"].shape == (2, 2048)
    with pytest.raises(ValueError, match=r"actions have shape \[2, 3\], expected \[2, 2, 3\]"):
        envs.step(np.zeros((2, 3), np.float32))


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("game", "options", "message"),
    [
        ("breakout", {}, "breakout has no rules for two players: players=2 is for boxing, combat, .*tennis"),
        ("pong", {"mode": 9}, r"mode 9 is not one of pong's modes \[0, 1, 2, 3\]"),
        ("pong", {"players": 3}, "players is 3, expected 1 to 2"),
        ("pong", {"device": "cuda"}, "players is 2 with device='cuda', expected device=\"cpu\""),
        (["pong", "qbert"], {}, "qbert has no rules"),
    ],
)
def test_wrong_settings_are_refused(game: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(AtariError, match=message):
        parl.AtariVectorEnv(game, 2, **{"players": 2, **options})


def test_runs_and_single_environments_are_for_one_player() -> None:
    with pytest.raises(AtariError, match=r"players is 2, expected 1: use parl\.AtariVectorEnv"):
        parl.envs.AtariEnv("pong", players=2)
    with pytest.raises(parl.errors.ConfigError, match=r"players is 2, expected 1: .*examples/self_play\.py"):
        parl.train("ppo", env="parl/Pong-v0", env_options=["players=2"], total_steps=100, quiet=True)


def test_modes_for_two_are_refused_for_one() -> None:
    with pytest.raises(AtariError, match=r"mode 2 is not one of pong's modes \[0, 1\]"):
        parl.AtariVectorEnv("pong", 2, mode=2)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros(2, np.int64), r"actions have shape \(2,\), expected \(2, 2\)"),
        (np.array([[0, 0], [0, 6]]), r"action 6 of row 1 is outside 0 to 5"),
    ],
)
def test_wrong_actions_are_refused(actions: Any, message: str) -> None:
    envs = parl.AtariVectorEnv("pong", 2, players=2)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        envs.step(actions)


# ---------------------------------------------------------------- PettingZoo


@pytest.fixture(scope="module")
def checks() -> Any:
    """PettingZoo's tests; importing them warns of their own use of an old function, and needs pygame."""
    pytest.importorskip("pygame")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pettingzoo.test
    return pettingzoo.test


@pytest.mark.parametrize("game", GAMES)
def test_pettingzoos_tests_pass(game: str, checks: Any) -> None:
    parallel = functools.partial(parl.atari.parallel_env, game, repeat_action_probability=0.25)
    aec = functools.partial(parl.atari.aec_env, game, repeat_action_probability=0.25)
    checks.parallel_api_test(parallel(), num_cycles=200)
    checks.api_test(aec(), num_cycles=200)
    checks.parallel_seed_test(parallel, num_cycles=100)
    checks.seed_test(aec, num_cycles=100)
    checks.state_test(aec(), parallel())


def test_pettingzoos_test_of_max_cycles_passes(checks: Any) -> None:
    class Pong:
        parallel_env = staticmethod(functools.partial(parl.atari.parallel_env, "pong"))
        env = staticmethod(functools.partial(parl.atari.aec_env, "pong"))

    checks.max_cycles_test(Pong)


def test_a_parallel_environment_gives_the_infos_that_are_asked_for() -> None:
    options: dict[str, Any] = {"sound": True, "ram_info": True, "reward_clipping": True, "mode": 2}
    env = parl.atari.parallel_env("pong", **options)
    infos = env.reset(seed=0)[1]
    assert infos["first_0"]["audio"].shape == (512,)
    points = []
    for _ in range(600):
        *_, infos = env.step(dict.fromkeys(env.agents, 0))
        for info in infos.values():
            np.testing.assert_array_equal(info["ram"], env.state())
        assert infos["first_0"]["audio"] is not infos["second_0"]["audio"]
        points.append([info["raw_reward"] for info in infos.values()])
    assert np.any(points) and (np.sum(points, axis=1) == 0).all()
    assert set(parl.atari.parallel_env("pong").reset()[1]["first_0"]) == {
        "lives",
        "frame_number",
        "episode_frame_number",
    }


def test_a_parallel_environment_is_the_vector_environment() -> None:
    env = parl.atari.parallel_env("boxing", frameskip=4, max_cycles=50, render_mode="rgb_array")
    raw: dict[str, Any] = {"noop_max": 0, "use_fire_reset": False, "maxpool": False}
    shape: dict[str, Any] = {"img_height": None, "img_width": None, "grayscale": False, "stack_num": None}
    envs = parl.AtariVectorEnv(
        "boxing",
        1,
        players=2,
        full_action_space=True,
        reward_clipping=False,
        ram_info=True,
        render_mode="rgb_array",
        **raw,
        **shape,
    )
    obs, infos = env.reset(seed=4)
    np.testing.assert_array_equal(obs["first_0"], envs.reset(seed=4)[0][0])
    for t, actions in enumerate(drawn(envs, 50)):
        a, b = (int(action) for action in actions[0])
        obs, rewards, terminated, truncated, infos = env.step({"first_0": a, "second_0": b})
        expected, both, *_, info = envs.step(actions)
        np.testing.assert_array_equal(obs["second_0"], expected[0])
        assert list(rewards.values()) == both[0].tolist()
        np.testing.assert_array_equal(env.state(), info["ram"][0])
        assert infos["first_0"]["frame_number"] == info["frame_number"][0]
        assert truncated == dict.fromkeys(env.possible_agents, t == 49) and not any(terminated.values())
    assert env.agents == []
    np.testing.assert_array_equal(env.render(), envs.render()[0])
    with pytest.raises(AtariError, match="the episode has ended, or not begun; call reset"):
        env.step({"first_0": 0, "second_0": 0})


def test_the_last_observation_of_a_parallel_environment_is_its_last_frame() -> None:
    env = parl.atari.parallel_env("boxing", max_num_frames_per_episode=20, render_mode="rgb_array")
    env.reset(seed=0)
    while env.agents:
        obs, *_ = env.step(dict.fromkeys(env.agents, 2))
        np.testing.assert_array_equal(obs["first_0"], env.render())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 2}, "num_envs is 2, expected no num_envs: this is one environment"),
        ({"max_cycles": 0}, "max_cycles is 0, expected 1 to"),
        ({"render_mode": "rgb_grid"}, "render_mode is 'rgb_grid', expected one of"),
    ],
)
def test_options_of_several_environments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AtariError, match=message):
        parl.atari.parallel_env("pong", **options)
    with pytest.raises(TypeError, match="nonsense"):
        parl.atari.aec_env("pong", nonsense=1)


def test_actions_of_other_agents_are_refused() -> None:
    env = parl.atari.parallel_env("pong")
    env.reset(seed=0)
    with pytest.raises(
        AtariError, match=r"actions are of \['first_0'\], expected of \['first_0', 'second_0'\]"
    ):
        env.step({"first_0": 0})


def test_a_missing_pettingzoo_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "parl.envs.atari.two_players", raising=False)
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"parallel_env needs pettingzoo: pip install 'parl-rl\[pettingzoo\]'"
    ):
        parl.atari.parallel_env("pong")
