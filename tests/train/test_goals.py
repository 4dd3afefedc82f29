"""Hindsight experience replay in runs: it learns what is not learned without, and resumes exactly."""

import functools
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import parl
from parl.envs import EnvMaker
from parl.envs.goals import goal_functions
from parl.errors import ConfigError
from parl.run.metrics import read_metrics
from parl.train import resume, train
from saved_learners import weights_of

sys.path.insert(0, str(Path(__file__).parents[1] / "learning"))
from goal_envs import BitFlip, Reach

COMMON = {
    "num_envs": 8,
    "n_step": 1,
    "reward_scale": 1.0,
    "schedule": "deterministic",
    "quiet": True,
    "learning_starts": 200,
}
BITS = COMMON | {
    "env": functools.partial(BitFlip, 8),
    "prioritized": False,
    "hidden": (64,),
    "layer_norm": False,
    "learning_rate": 2e-3,
    "gamma": 0.95,
    "replay_ratio": 16.0,
    "epsilon_steps": 2_000,
    "epsilon_last": 0.1,
}


def success_rates(run):
    name = "evaluation_success_rate"
    return [record[name] for record in read_metrics(run.path) if name in record]


def test_bits_are_flipped_to_the_goal_with_hindsight_only(tmp_path):
    """The mean distance of a goal is 4, so the best mean return is about -3; never reaching it gives -8."""
    options = BITS | {"total_steps": 4_000, "evaluation_episodes": 40, "runs": str(tmp_path)}
    runs = {goals: train("dqn", **options, goals=goals) for goals in ("none", "future")}
    assert runs["future"].evaluation_return > -4.5 and runs["none"].evaluation_return < -6.5
    assert success_rates(runs["future"])[-1] > 0.75 and success_rates(runs["none"])[-1] < 0.5


@pytest.mark.parametrize("name", ["sac", "td3", "ddpg"])
def test_continuous_goals_are_reached(name, tmp_path):
    options = COMMON | {"hidden": (64,), "learning_rate": 2e-3, "gamma": 0.95, "replay_ratio": 32.0}
    options |= {"batch_size": 128, "random_steps": 400, "target_tau": 0.02, "total_steps": 5_000}
    options |= {"temperature": 0.1} if name == "sac" else {}
    run = train(name, Reach, **options, goals="future", evaluation_episodes=20, runs=str(tmp_path))
    assert run.evaluation_return > -5.0  # without hindsight between -20 and -18


def test_a_run_with_goals_resumes_exactly(tmp_path):
    options = BITS | {"goals": "final", "goals_per_transition": 2.0, "evaluation_episodes": 2}
    whole = train("dqn", **options, total_steps=800, name="whole", runs=str(tmp_path))
    half = train("dqn", **options, total_steps=400, name="half", runs=str(tmp_path))
    resume(half.path, total_steps=800)
    assert torch.equal(weights_of(whole.path), weights_of(half.path)) and whole.updates > 50


@pytest.mark.parametrize(
    "options", [{"actors": 2, "learners": 2}, {"actor_kind": "thread", "actors": 1, "learners": 1}]
)
def test_goals_go_with_actors_and_learners_in_processes_and_threads(options, tmp_path):
    options = BITS | {"schedule": "async", "goals": "future", "evaluation_episodes": 0} | options
    run = train("dqn", **options, total_steps=1_000, runs=str(tmp_path))
    assert run.updates > 10
    assert resume(run.path, total_steps=1_200).env_steps >= 1_200


def test_strategy_and_number_of_goals_reach_the_replay():
    from parl.algos.dqn import DQN, Config
    from parl.envs import spec_of
    from parl.runtime.off_policy.pacer import Pacer
    from parl.runtime.off_policy.setup import OffPolicySetup

    maker = EnvMaker(functools.partial(BitFlip, 4))
    spec = spec_of(maker(1))
    for strategy, per_transition, share in (("future", 4.0, 0.8), ("episode", 1.0, 0.5), ("final", 0.0, 0.0)):
        algorithm = DQN(Config(n_step=1, goals=strategy, goals_per_transition=per_transition), spec)
        setup = OffPolicySetup(
            algorithm=algorithm,
            maker=maker,
            spec=spec,
            seed=0,
            num_envs=4,
            learners=1,
            batch_size=8,
            replay_capacity=1_000,
            pacer=Pacer(1.0, 8, 4, 50, 10**9),
        )
        replay = setup.make_replay(None)
        actor = setup.make_actor(0, replay, 0)
        for _ in range(200):
            actor.step(0)
        assert replay.settings["hindsight"][0] == strategy
        batch = replay.sample(800)
        assert abs(batch.relabelled.mean() - share) < 0.06
        reached = (batch.next_obs["achieved_goal"] == batch.next_obs["desired_goal"]).all(axis=1)
        np.testing.assert_array_equal(batch.reward, reached - 1.0)
        np.testing.assert_array_equal(batch.discount, np.where(reached, 0, np.float32(0.99)))


class Silent(BitFlip):
    """Has no method that computes rewards."""

    compute_reward = None


class OneGoal(BitFlip):
    """Computes the reward of one goal only."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -1.0 if achieved_goal.ndim == 1 else np.zeros(3)


class Costs(gymnasium.Wrapper):
    """Multiplies rewards, those of other goals too."""

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return observation, 10 * reward, *rest

    def compute_reward(self, achieved_goal, desired_goal, info):
        return 10 * self.env.unwrapped.compute_reward(achieved_goal, desired_goal, info)


class GoalByGoal(Reach):
    """Computes for one goal at a time, like the mazes of gymnasium-robotics."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -float(np.linalg.norm(achieved_goal - desired_goal))

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return bool(np.linalg.norm(achieved_goal - desired_goal) <= 0.5)


def test_methods_for_one_goal_are_called_for_each_goal():
    reward, terminated = goal_functions(EnvMaker(GoalByGoal))
    achieved, desired = np.array([[0, 0], [3, 4], [0, 1]], np.float32), np.zeros((3, 2), np.float32)
    assert reward(achieved, desired, {}).tolist() == [0.0, -5.0, -1.0]
    assert terminated(achieved, desired, {}).tolist() == [True, False, False]
    assert reward(achieved[1:2], desired[:1], {}).tolist() == [-5.0]


def test_environments_without_goals_or_rewards_are_named(tmp_path):
    options = {"goals": "future", "n_step": 1, "total_steps": 100, "quiet": True, "runs": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"dqn: goals = 'future' needs Dict .* have the shape \(4,\)"):
        train("dqn", "CartPole-v1", **options)
    with pytest.raises(ConfigError, match="goals = 'future' needs n_step = 1, not 10"):
        train("dqn", BitFlip, **options | {"n_step": 10})
    with pytest.raises(ConfigError, match="has no method compute_reward"):
        train("dqn", Silent, **options)
    with pytest.raises(ConfigError, match=r"compute_reward of OneGoal returned shape \(3,\) for 1 goals"):
        goal_functions(EnvMaker(OneGoal))
    wrapped = EnvMaker(Reach, wrappers=[functools.partial(gymnasium.wrappers.TimeLimit, max_episode_steps=9)])
    reward, terminated = goal_functions(wrapped)
    goals = np.array([[0.0, 0.0], [1.0, 1.0]], np.float32)
    assert reward(goals, goals[:1], {}).tolist() == [0.0, -1.0]
    assert terminated(goals, goals, {}).tolist() == [False, False]


def test_the_methods_of_the_outermost_wrapper_count(tmp_path):
    limit = functools.partial(gymnasium.wrappers.TimeLimit, max_episode_steps=9)
    reward, terminated = goal_functions(EnvMaker(Reach, wrappers=[Costs, limit]))
    goals = np.array([[0.0, 0.0], [1.0, 1.0]], np.float32)
    assert reward(goals, goals[:1], {}).tolist() == [0.0, -10.0] and terminated is not None


@pytest.mark.parametrize("name", ["TransformReward", "TransformObservation"])
def test_rewards_that_compute_reward_does_not_have_are_refused(name, tmp_path):
    """Sampled transitions had rewards of two kinds."""
    if name == "TransformReward":
        wrapper = functools.partial(gymnasium.wrappers.TransformReward, func=lambda reward: 0.5 * reward)
    else:
        swapped = {
            "achieved_goal": "desired_goal",
            "desired_goal": "observation",
            "observation": "observation",
        }

        def wrapper(env):
            return gymnasium.wrappers.TransformObservation(
                env,
                lambda seen: {part: 2 * seen[source] for part, source in swapped.items()},
                env.observation_space,
            )

    options = COMMON | {"goals": "future", "total_steps": 300, "runs": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"a step has the reward -.*, compute_reward .* for its goals"):
        train("sac", GoalByGoal, wrappers=[wrapper], **options)


def test_success_rates_reach_callbacks_and_loggers(tmp_path):
    class Rates(parl.Callback):
        seen = []  # noqa: RUF012

        def on_evaluation(self, evaluation):
            self.seen.append(evaluation.success_rate)

    options = BITS | {"total_steps": 300, "evaluation_episodes": 8, "env": functools.partial(BitFlip, 2)}
    run = train("dqn", **options, logger="tensorboard", callbacks=[Rates()], runs=str(tmp_path))
    assert len(Rates.seen) >= 1 and Rates.seen == success_rates(run) and Rates.seen[-1] > 0
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    logged = [event.value for event in events.Scalars("evaluation/success_rate")]
    assert logged == pytest.approx(Rates.seen)
