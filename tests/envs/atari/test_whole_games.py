"""Returns and ends of whole games, where a lost life ends an episode and the game continues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import parl
from parl.envs import EnvMaker, EpisodeTracker, games_over, points, spec_of
from parl.runtime.evaluate import Evaluator

RAM = {"obs_type": "ram", "stack_num": 1}
LIVES = 5
MODES = {"next_step": AutoresetMode.NEXT_STEP, "same_step": AutoresetMode.SAME_STEP}


def steps(envs: Any, count: int) -> Iterator[tuple[Any, ...]]:
    """Alternates NOOP and FIRE: a life of Breakout lasts about 15 steps."""
    for t in range(count):
        yield envs.step(np.full(envs.num_envs, t % 2))


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("life_loss", ["continues", "reports"])
@pytest.mark.parametrize("game", ["breakout", "ms_pacman"])
def test_returns_of_whole_games(game: str, life_loss: str, mode: str) -> None:
    """Sums of rewards equal the returns of the core and the tracker, also after a saved state is loaded."""
    options = {
        "life_loss": life_loss,
        "autoreset_mode": MODES[mode],
        "max_num_frames_per_episode": 6_000,
        **RAM,
    }
    envs = parl.AtariVectorEnv(game, 3, **options)
    envs.reset(seed=1)
    tracker = EpisodeTracker(3, mode)
    sums, found, tracked, lives = np.zeros(3, np.int64), [], [], 0
    rng = np.random.default_rng(4)
    for t in range(900):
        _, reward, terminated, truncated, info = envs.step(rng.integers(0, envs.single_action_space.n, 3))
        ended = terminated | truncated
        over = games_over(terminated, ended, info)
        np.testing.assert_array_equal(over, info["game_over"])
        sums += info["raw_reward"]
        lives += int((ended & ~over).sum())
        for i in np.nonzero(over)[0]:
            assert info["_game_return"][i] and info["game_return"][i] == sums[i]
            found.append(int(sums[i]))
            sums[i] = 0
        tracked += tracker.step(points(reward, info), terminated, truncated, over)[1]
        if t == 400:
            state, episodes = envs.get_state(), tracker.state_dict()
            envs.close()
            envs = parl.AtariVectorEnv(game, 3, **options)
            envs.reset(seed=2)
            envs.set_state(state)
            tracker = EpisodeTracker(3, mode)
            tracker.load_state_dict(episodes)
    assert [value for value, _ in tracked] == found
    assert len(found) >= 3 and lives > len(found) and max(found) > 0


def test_the_return_of_the_next_game_starts_at_zero() -> None:
    """A reset with a seed in mid-game discards the points of the game."""
    envs = parl.AtariVectorEnv("breakout", 1, life_loss="continues", **RAM)
    returns: list[list[int]] = []
    for _ in range(2):
        envs.reset(seed=0)
        rng = np.random.default_rng(0)
        infos = [envs.step(rng.integers(0, 4, 1))[4] for _ in range(400)]
        returns.append([int(info["game_return"][0]) for info in infos if info["game_over"][0]])
    assert returns[0] == returns[1] != []


def test_truncation_ends_the_counted_game() -> None:
    """Otherwise an evaluation of a policy that never ends a game would not end."""
    envs = parl.AtariVectorEnv("pong", 1, life_loss="continues", max_num_frames_per_episode=40, **RAM)
    envs.reset(seed=0)
    ends = [info["game_over"][0] for *_, truncated, info in steps(envs, 25) if truncated[0]]
    assert ends == [True, True]


@pytest.mark.parametrize("limit", ["max_num_steps_per_episode", "max_num_frames_per_episode"])
def test_limits_count_the_whole_game_and_end_it(limit: str) -> None:
    """Firing loses a life in about 20 steps; after the limit a game starts with all lives."""
    at = {"max_num_steps_per_episode": 50, "max_num_frames_per_episode": 200}[limit]
    envs = parl.AtariVectorEnv("breakout", 1, life_loss="continues", **RAM | {limit: at})
    envs.reset(seed=0)
    ends = []
    for _ in range(106):
        *_, terminated, truncated, info = envs.step(np.ones(1, np.int64))
        if terminated[0] or truncated[0]:
            lives, length = info["lives"][0], info["episode_length"][0]
            ends.append((bool(truncated[0]), bool(info["game_over"][0]), int(lives), int(length)))
    lengths = [length for *_, length in ends]
    assert [end[:3] for end in ends] == [(False, False, 4), (False, False, 3), (True, True, 3)] * 2
    assert sum(lengths[:3]) == sum(lengths[3:]) == 50


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        pytest.param({}, False, id="plain"),
        pytest.param({"episodic_life": True}, False, id="ends"),
        pytest.param({"life_loss": "any"}, False, id="any"),
        pytest.param({"life_loss_info": True}, True, id="reports"),
        pytest.param({"life_loss": "continues"}, True, id="continues"),
    ],
)
def test_game_over_is_reported_only_where_games_outlast_episodes(options: dict[str, Any], keys: bool) -> None:
    envs = parl.AtariVectorEnv("breakout", 1, **options, **RAM)
    envs.reset(seed=0)
    assert all(("game_over" in info) == keys for *_, info in steps(envs, 30))
    assert ("game_over" in envs.step(np.zeros(1, np.int64))[4]) == keys


def test_the_single_environment_reports_game_over_too() -> None:
    env = gymnasium.make("parl/Breakout-v0", preset="nature", **RAM)
    env.reset(seed=0)
    total, lives, over, t = 0, 0, False, 0
    while not over:
        _, _, terminated, truncated, info = env.step(t % 2)
        total, t = total + info["raw_reward"], t + 1
        over = info["game_over"]
        assert ("game_return" in info) == over
        if terminated or truncated:
            lives += 1
            env.reset()
    assert (lives, info["game_return"]) == (LIVES, total)
    env = gymnasium.make("parl/Breakout-v0", life_loss_info=True, **RAM)
    env.reset(seed=0)
    # A caller resets at a reported end, which abandons the game: there is no game to report on.
    assert "game_over" not in env.step(0)[4]


class RamPolicy:
    """A policy whose actions depend on the console's RAM alone, so that the seed determines a game."""

    def act_greedily(self, observations: Any) -> Any:
        return np.asarray(observations).reshape(len(observations), -1).sum(axis=1, dtype=np.int64) % 4


def points_of_game(env: Any, seed: int) -> int:
    """Returns the points of a game in a single environment, which is reset at each end of an episode."""
    obs, _ = env.reset(seed=seed)
    total = 0
    while True:
        obs, _, terminated, truncated, info = env.step(int(RamPolicy().act_greedily(obs[None])[0]))
        total += info["raw_reward"]
        if info.get("game_over", terminated or truncated):
            return total
        if terminated or truncated:
            obs, _ = env.reset()


@pytest.mark.parametrize("kind", ["vector", "single", "same_step"])
@pytest.mark.parametrize("options", [{"preset": "nature"}, {"life_loss_info": True}, {}], ids=str)
def test_an_evaluation_of_a_callable_plays_whole_games(options: dict[str, Any], kind: str) -> None:
    options = {**options, **RAM}
    single = gymnasium.make("parl/Breakout-v0", **options)
    if kind == "vector" and "life_loss_info" in options:
        # The vector environment reports lives and is not reset: the same game as without the option.
        single = gymnasium.make("parl/Breakout-v0", **RAM)
    expected = [points_of_game(single, seed) for seed in (3, 4)]
    makers: dict[str, Any] = {
        "vector": lambda n: parl.make_vec("breakout", n, **options),
        "single": lambda: single_of(options),
        "same_step": lambda n: SyncVectorEnv(
            [lambda: single_of(options)] * n, autoreset_mode=AutoresetMode.SAME_STEP
        ),
    }
    maker = EnvMaker(makers[kind])
    probe = maker(2)
    evaluator = Evaluator(maker, RamPolicy(), spec_of(probe))
    probe.close()
    assert evaluator.play(2, seed=3).tolist() == expected
    evaluator.close()


def single_of(options: dict[str, Any]) -> gymnasium.Env:
    return gymnasium.make("parl/Breakout-v0", **options)


def test_game_over_of_other_environments_is_ignored() -> None:
    ended = np.array([True, False])
    assert games_over(ended, ended, {"game_over": np.array([False, False])}) is ended
