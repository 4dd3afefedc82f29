"""Scores of Atari games are the points of whole games, also if rewards are clipped in training."""

import json

import numpy as np
import pytest

from parl.envs import AtariVectorEnv, EnvMaker, points, spec_of
from parl.run import RunDirectory, read_metrics
from parl.runtime.on_policy.rollout import RolloutActor, RolloutBuffer
from parl.train import evaluate, protocol, train
from parl.train.evaluation_protocol import evaluation_options
from parl.train.registry import make_algorithm
from parl.train.settings import default_settings

GAME = {"env": "parl/MsPacman-v0", "env_options": ("obs_type=ram", "max_num_frames_per_episode=600")}


def test_points_are_rewards_before_clipping():
    reward = np.array([1, -1])
    assert points(reward, {}) is reward
    info = {"raw_reward": np.array([400, -3])}
    assert points(reward, info | {"episode_frame_number": np.array([4, 8])}).tolist() == [400, -3]
    assert points(reward, info) is reward  # of another environment


def test_evaluations_play_whole_games_for_points_by_default():
    training = {"episodic_life": True, "stack_num": 2, "device": "cuda:1"}
    found = evaluation_options("parl/Pong-v0", training, ("noop_max=1",))
    assert found == {
        "episodic_life": False,
        "life_loss_info": False,
        "life_loss": None,
        "reward_clipping": False,
        "stack_num": 2,
        "device": "cpu",
        "noop_max": 1,
    }
    found = evaluation_options("parl/Pong-v0", training, ("reward_clipping=True", "life_loss=ends"))
    assert found["reward_clipping"] is True and found["life_loss"] == "ends" and found["episodic_life"]
    assert evaluation_options("CartPole-v1", {"a": 1}, ("b=2",)) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ppo", {"rollout_steps": 50, "minibatch_size": 100}),
        ("dqn", {"learning_starts": 100, "batch_size": 16, "epsilon_last": 1.0}),
    ],
)
def test_training_and_evaluation_count_points(tmp_path, name, options):
    """A pellet is worth ten points, and one if the reward is clipped."""
    run = train(
        name,
        **GAME,
        **options,
        num_envs=2,
        total_steps=700,
        hidden=(8,),
        schedule="deterministic",
        evaluation_episodes=2,
        quiet=True,
        runs=str(tmp_path),
    )
    returns = evaluate(run.path, episodes=3)
    assert (returns % 10 == 0).all()
    last = [r["episode_return"] for r in read_metrics(run.path) if r.get("episode_return") is not None][-1]
    # Random play eats more than five pellets in the 150 steps of an episode, and no more than one a step.
    assert 50 < last <= 1_500 and last % 2.5 == 0
    score = [r for r in read_metrics(run.path) if "protocol" in r][-1]
    assert "reward_clipping=False" in score["protocol"] and "preset=ale" in score["protocol"]
    assert "repeat_action_probability=0.0, " in score["protocol"] and "noop_max=30, " in score["protocol"]
    assert "greedy, 2 whole undiscounted episodes" in score["protocol"]
    assert "greedy, 7 whole undiscounted episodes" in protocol(run.path, episodes=7)
    best = json.loads((RunDirectory.open(run.path).checkpoints.best() / "counters.json").read_text())
    assert best["score"]["protocol"] == score["protocol"]


def test_training_uses_clipped_rewards():
    maker = EnvMaker(GAME["env"], {"obs_type": "ram", "max_num_frames_per_episode": 600})
    env = maker(2)
    spec = spec_of(env)
    policy = make_algorithm("ppo", default_settings("ppo", spec)[1], spec).make_policy(0, 1, 2, 0)
    actor = RolloutActor(env, spec, policy, 0)
    buffer = RolloutBuffer(spec, 200, 2)
    _, finished, reward = actor.collect(buffer, 0)
    assert np.isin(buffer.reward, [-1.0, 0.0, 1.0]).all() and buffer.reward.sum() > 10
    assert reward >= 10 * float((buffer.reward > 0).sum())
    assert reward >= sum(value for value, _ in finished) > 100
    actor.close()


class RecordsGames(AtariVectorEnv):
    """Keeps the environment and the points of each whole game."""

    games: list[tuple[int, int]] = []  # noqa: RUF012 - read by the test that made it

    def step(self, actions, *, out=None):
        result = super().step(actions, out=out)
        for env in np.nonzero(result[4].get("_game_return", ()))[0]:
            RecordsGames.games.append((int(env), int(result[4]["game_return"][env])))
        return result


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ppo", {"rollout_steps": 50, "minibatch_size": 100, "num_envs": 2, "random_starts": 20}),
        ("dqn", {"learning_starts": 500, "batch_size": 16, "num_envs": 2, "actors": 1, "learners": 1}),
        ("es", {"num_envs": 4}),
    ],
)
def test_training_reports_whole_games_where_a_life_is_an_episode(tmp_path, name, options):
    RecordsGames.games = []
    run = train(
        name,
        lambda n: RecordsGames(
            "breakout", n, life_loss="continues", obs_type="ram", max_num_frames_per_episode=800
        ),
        **options,
        total_steps=900,
        hidden=(8,),
        schedule="deterministic",
        evaluation_episodes=0,
        quiet=True,
        runs=str(tmp_path),
    )
    games = [value for _, value in RecordsGames.games]
    if name == "es":  # One game of each member counts; after it the environment is stepped further.
        games = list({env: value for env, value in reversed(RecordsGames.games)}.values())
    last = [r["episode_return"] for r in read_metrics(run.path) if r.get("episode_return") is not None][-1]
    assert len(games) >= 2
    assert last == pytest.approx(np.mean(games))
