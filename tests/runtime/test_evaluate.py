"""Greedy evaluation plays each of its episodes once."""

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from parl.algos.dqn import DQN, Config
from parl.envs import AtariVectorEnv, EnvMaker, spec_of
from parl.errors import NonFiniteError
from parl.runtime import evaluate
from parl.runtime.evaluate import Evaluator


def play_one(policy, seed):
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(
            int(policy.act_greedily(obs[None].astype(np.float32))[0])
        )
        total, over = total + float(reward), terminated or truncated
    return total


def test_returns_equal_those_of_single_environments():
    maker = EnvMaker(lambda: gymnasium.make("CartPole-v1"))
    spec = spec_of(maker(1))
    algorithm = DQN(Config(hidden=(16,)), spec)
    policy = algorithm.make_policy(0, 1, 1, 0)
    policy.weights.copy_(algorithm.make_learner(5, "cpu").weights)
    evaluator = Evaluator(maker, policy, spec)
    # Nine rounds, each with 16 environments.
    returns = evaluator.play(130, seed=40)
    assert returns.shape == (130,)
    for index in (0, 1, 77, 128, 129):
        assert returns[index] == play_one(policy, 40 + index)
    assert len(set(returns.tolist())) > 3
    np.testing.assert_array_equal(evaluator.play(130, seed=40), returns)
    evaluator.close()


class Counted(gymnasium.Wrapper):
    """Counts the steps of all environments made."""

    steps = 0

    def step(self, action):
        Counted.steps += 1
        return super().step(action)


def test_environments_are_not_stepped_after_their_episode():
    maker = EnvMaker(lambda: Counted(gymnasium.make("CartPole-v1")))
    spec = spec_of(maker(1))
    policy = DQN(Config(hidden=(16,)), spec).make_policy(0, 1, 1, 0)
    evaluator = Evaluator(maker, policy, spec)
    for seed in (40, 90):  # the return in CartPole is the number of steps
        Counted.steps = 0
        returns = evaluator.play(20, seed)
        assert Counted.steps == returns.sum() < 20 * returns.max()
    evaluator.close()


@pytest.mark.parametrize("autoreset", ["NEXT_STEP", "SAME_STEP"])
def test_the_success_rate_counts_the_last_step_of_each_episode(autoreset):
    class Sometimes(gymnasium.Wrapper):
        """Succeeds in the last step of episodes that start left of the middle, and in some step before."""

        def reset(self, **options):
            obs, info = super().reset(**options)
            self._succeeds, self._steps = bool(obs[0] < 0), 0
            return obs, info

        def step(self, action):
            obs, reward, terminated, truncated, info = super().step(action)
            self._steps += 1
            succeeded = self._succeeds if terminated or truncated else self._steps == 2
            return obs, reward, terminated, truncated, info | {"is_success": succeeded}

    def make(num_envs):
        envs = [lambda: Sometimes(gymnasium.make("CartPole-v1"))] * num_envs
        return gymnasium.vector.SyncVectorEnv(envs, autoreset_mode=AutoresetMode[autoreset])

    maker = EnvMaker(make)
    spec = spec_of(maker(1))
    evaluator = Evaluator(maker, DQN(Config(hidden=(16,)), spec).make_policy(0, 1, 1, 0), spec)
    assert evaluator.success_rate is None
    evaluator.play(20, 40)
    starts = [gymnasium.make("CartPole-v1").reset(seed=40 + index)[0][0] for index in range(20)]
    assert evaluator.success_rate == np.mean(np.array(starts) < 0) and 0 < evaluator.success_rate < 1
    evaluator.close()


def test_zero_episodes_give_an_empty_array():
    maker = EnvMaker("CartPole-v1")
    spec = spec_of(maker(1))
    assert Evaluator(maker, DQN(Config(), spec).make_policy(0, 1, 1, 0), spec).play(0, 0).shape == (0,)


@pytest.mark.parametrize("field", ["reward", "observation"])
def test_non_finite_rewards_and_observations_are_errors(field):
    class Broken(gymnasium.Wrapper):
        def step(self, action):
            obs, reward, *rest = super().step(action)
            if field == "reward":
                return obs, float("nan"), *rest
            return np.full_like(obs, np.inf), reward, *rest

    maker = EnvMaker(lambda: Broken(gymnasium.make("CartPole-v1")))
    spec = spec_of(maker(1))
    evaluator = Evaluator(maker, DQN(Config(hidden=(16,)), spec).make_policy(0, 1, 1, 0), spec)
    with pytest.raises(NonFiniteError, match=f"environment 0 returned {field} (nan|inf).* in an evaluation"):
        evaluator.play(2, 0)
    evaluator.close()


class ActionOfObservation:
    """A policy whose actions depend on the observation alone."""

    def act_greedily(self, observations):
        return observations.reshape(len(observations), -1).sum(1).astype(np.int64) % 4


class OtherAtariVectorEnv(AtariVectorEnv):
    """Environments of a class that the evaluator does not know."""


@pytest.mark.parametrize("options", [{}, {"life_loss": "reports"}, {"autoreset_mode": "SameStep"}])
def test_games_that_go_on_in_fewer_environments_have_the_same_returns(options, monkeypatch):
    options = {
        "obs_type": "ram",
        "repeat_action_probability": 0.25,
        "max_num_frames_per_episode": 9_000,
        **options,
    }
    step, steps = AtariVectorEnv.step, []

    def count(self, actions, **keywords):
        steps.append(self.num_envs)
        return step(self, actions, **keywords)

    monkeypatch.setattr(AtariVectorEnv, "step", count)

    def play(kind):
        maker = EnvMaker(lambda num_envs: kind("breakout", num_envs, **options))
        evaluator = Evaluator(maker, ActionOfObservation(), spec_of(maker(1)))
        steps.clear()
        returns = evaluator.play(20, seed=3)
        taken = sum(steps)
        np.testing.assert_array_equal(evaluator.play(20, seed=3), returns)
        evaluator.close()
        return returns, taken

    (expected, most), (returns, taken) = play(OtherAtariVectorEnv), play(AtariVectorEnv)
    np.testing.assert_array_equal(returns, expected)
    assert len(set(returns.tolist())) > 3
    assert taken < 0.8 * most


class BySeed(gymnasium.Env):
    """Episodes of one step; the return is the last digit of the seed, but 3 for seeds of 40 to 54."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._score = 3.0 if 40 <= seed < 55 else float(seed % 10)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), self._score, True, False, {}


# The mean of 0 to 9 is 4.5. Three standard errors of ten episodes are 2.87, of twenty 1.98, of forty 1.38.
@pytest.mark.parametrize(
    ("seed", "episodes", "goal", "played"),
    [
        pytest.param(20, 100, None, 100, id="no goal"),
        pytest.param(20, 100, -100.0, 100, id="above the goal"),
        pytest.param(20, 100, 5.0, 100, id="below the goal by less than three standard errors"),
        pytest.param(60, 100, 7.4, 10, id="by more after 10 episodes"),
        pytest.param(60, 100, 7.3, 20, id="by more after 20"),
        pytest.param(60, 100, 6.4, 40, id="by more after 40"),
        pytest.param(60, 12, 7.3, 12, id="few episodes"),
        pytest.param(40, 15, 7.4, 15, id="equal returns"),
        pytest.param(60, 300, 4.9, 300, id="more episodes than environments"),
    ],
)
def test_an_evaluation_ends_early_if_its_goal_is_out_of_reach(seed, episodes, goal, played):
    maker = EnvMaker(BySeed)
    evaluator = Evaluator(maker, ActionOfObservation(), spec_of(maker(1)))
    returns = evaluator.play(episodes, seed, goal)
    np.testing.assert_array_equal(returns, evaluator.play(episodes, seed)[:played])
    evaluator.close()


def test_environments_computed_together_play_all_episodes_whatever_the_goal():
    maker = EnvMaker("CartPole-v1")
    evaluator = Evaluator(maker, ActionOfObservation(), spec_of(maker(1)))
    assert len(evaluator.play(20, 0, goal=475.0)) == 20
    evaluator.close()


class Existing(BySeed):
    """Counts the environments that exist at the same time; the return also depends on ``kind``."""

    now = most = 0

    def __init__(self, kind=0):
        Existing.now += 1
        Existing.most = max(Existing.most, Existing.now)
        self._kind = kind

    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, reward + 10.0 * self._kind, *rest

    def close(self):
        Existing.now -= 1


@pytest.mark.parametrize(
    ("functions", "numbers", "most"),
    [
        pytest.param(1, (100, 37, 16, 100), 16, id="one function"),
        pytest.param(3, (100, 37, 16, 100), 16, id="three functions in turn"),
        pytest.param(100, (100,), 100, id="a function for each environment"),
    ],
)
def test_few_environments_exist_at_a_time_if_each_is_an_object(functions, numbers, most, monkeypatch):
    monkeypatch.setattr(Existing, "now", 0)
    monkeypatch.setattr(Existing, "most", 0)
    makers = [functools.partial(Existing, kind) for kind in range(functions)]

    def make(num_envs):
        return gymnasium.vector.SyncVectorEnv([makers[i % functions] for i in range(num_envs)])

    maker = EnvMaker(Existing if functions == 1 else make)
    probe = maker(1)
    evaluator = Evaluator(maker, ActionOfObservation(), spec_of(probe))
    probe.close()
    for episodes in numbers:
        scores = [3.0 if 40 <= seed < 55 else float(seed % 10) for seed in range(episodes)]
        expected = [score + 10.0 * (seed % functions) for seed, score in enumerate(scores)]
        assert evaluator.play(episodes, 0).tolist() == expected
        assert Existing.most == most
    evaluator.close()
    assert Existing.now == 0


def test_few_environments_exist_at_a_time_with_a_goal(monkeypatch):
    monkeypatch.setattr(Existing, "now", 0)
    monkeypatch.setattr(Existing, "most", 0)
    maker = EnvMaker(Existing)
    evaluator = Evaluator(maker, ActionOfObservation(), spec_of(maker(1)))
    for goal, played in ((-100.0, 100), (7.3, 20), (None, 100), (-100.0, 100)):
        returns = evaluator.play(100, 60, goal)
        assert returns.tolist() == [float(seed % 10) for seed in range(60, 60 + played)]
    evaluator.close()
    assert Existing.most <= 1 + 16


@pytest.mark.parametrize(("cores", "size"), [(2, 2), (3, 3), (5, 4)])
def test_processes_play_in_rounds_too_of_as_many_as_there_are_cores(cores, size, monkeypatch):
    monkeypatch.setattr(evaluate, "_SEPARATE_ENVS_MAX", 2)
    monkeypatch.setattr(evaluate, "usable_cores", lambda: cores)

    def make(num_envs):
        return gymnasium.vector.AsyncVectorEnv([make_cart_pole] * num_envs)

    maker = EnvMaker(make)
    spec = spec_of(EnvMaker("CartPole-v1")(1))
    policy = DQN(Config(hidden=(16,)), spec).make_policy(0, 1, 1, 0)
    evaluator = Evaluator(maker, policy, spec)
    assert evaluator.play(4, 40).tolist() == [play_one(policy, 40 + index) for index in range(4)]
    assert [*evaluator._envs] == [size]
    evaluator.close()


def test_environments_of_an_id_are_recognized_whose_function_gymnasium_has_used_up():
    """Gymnasium 1.1 and 1.2 pass it by a generator."""
    env = gymnasium.vector.SyncVectorEnv(one for one in [make_cart_pole] * 20)
    assert evaluate._number_of_makers(env) is None
    env.spec = gymnasium.spec("CartPole-v1")
    assert evaluate._number_of_makers(env) == 1
    env.close()


def make_cart_pole():
    return gymnasium.make("CartPole-v1")
