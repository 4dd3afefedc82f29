"""Initial priorities by actors: against explicit sums, with both autoreset modes, and in real runs."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from parl.algos import dqn, sac, td3
from parl.envs import EnvMaker, spec_of
from parl.runtime.off_policy.actor import Actor
from parl.runtime.off_policy.initial_priorities import InitialPriorities
from parl.train import train
from saved_learners import weights_of


class Steps(gymnasium.Env):
    """Observation 100 * episode + step, rewards 1, 2, ...; terminated after 3 or truncated after 5 steps."""

    observation_space = Box(0, 1e6, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, truncates):
        self._truncates, self._episode = truncates, 0

    def _show(self):
        return np.array([100 * self._episode + self._step], np.float32)

    def reset(self, *, seed=None, options=None):
        self._episode, self._step = self._episode + 1, 0
        return self._show(), {}

    def step(self, action):
        self._step += 1
        over = self._step == (5 if self._truncates else 3)
        return self._show(), float(self._step), over and not self._truncates, over and self._truncates, {}


class Critic:
    """A policy whose action values are functions of the observation."""

    weights = torch.zeros(1)

    def act(self, observations, env_steps):
        x = observations[:, 0]
        self.action_values = 0.01 * x, 0.02 * x + 1
        return np.zeros(len(x), np.int64)

    def initial_priorities(self, reward, discount, chosen, following):
        return np.abs(reward + discount * following - chosen)


class Rows:
    """A fake replay that keeps rows and the priorities they get, by ticket."""

    def __init__(self):
        self.shown, self.priorities = [], {}

    def add(self, obs, **columns):
        first = len(self.shown)
        self.shown += obs[:, 0].tolist()
        return np.arange(first, len(self.shown))

    def update_priorities(self, tickets, priorities):
        for ticket, priority in zip(tickets.tolist(), priorities.tolist(), strict=True):
            assert ticket not in self.priorities, "each row gets one priority"
            self.priorities[ticket] = priority

    def end_episodes(self, env_id):
        pass


def expected(shown, n, gamma, truncates):
    """The TD error of the row with observation ``shown``, from the rules of the environment."""
    length = 5 if truncates else 3
    episode, step = divmod(int(shown), 100)
    k = min(n, length - step)
    total = sum(gamma**i * (step + 1 + i) for i in range(k))
    ends = step + k == length and not truncates
    following = 0.0 if ends else gamma**k * (0.02 * (100 * episode + step + k) + 1)
    return abs(total + following - 0.01 * shown)


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_priorities_are_the_td_errors(n, mode):
    env = SyncVectorEnv([lambda: Steps(False), lambda: Steps(True)], autoreset_mode=mode)
    spec = spec_of(env)
    rows, critic = Rows(), Critic()
    next_step = mode == AutoresetMode.NEXT_STEP
    estimates = InitialPriorities(critic, rows, 2, n, 0.9, next_step)
    actor = Actor(env, spec, critic, rows, 0, 0, estimates)
    for _ in range(30):
        actor.step(0)
    found = {}
    for ticket, priority in rows.priorities.items():
        shown, truncates = rows.shown[ticket], ticket % 2 == 1
        step = int(shown) % 100
        assert step < (5 if truncates else 3), "rows that only reset belong to no episode"
        assert priority == pytest.approx(expected(shown, n, 0.9, truncates), rel=1e-5), (shown, truncates)
        found.setdefault(truncates, set()).add(step)
    assert found[False] == {0, 1, 2}
    # With same-step autoreset no action is chosen for the final observation: rows before it get none.
    assert found[True] == set(range(5 if next_step else 5 - n))


def test_rows_before_keep_priorities_keep_theirs():
    critic, rows = Critic(), Rows()
    env = SyncVectorEnv([lambda: Steps(False)])
    priorities = InitialPriorities(critic, rows, 1, 2, 0.9, True)
    actor = Actor(env, spec_of(env), critic, rows, 0, 0, priorities)
    actor.step(0)
    actor.step(0)
    actor.keep_priorities()
    actor.step(0)
    actor.step(0)
    assert not rows.priorities, "neither of the two earlier rows gets one"
    actor.step(0)
    assert list(rows.priorities) == [2]


@pytest.mark.parametrize(
    ("name", "env", "module"),
    [("dqn", "CartPole-v1", dqn), ("sac", "Pendulum-v1", sac), ("td3", "Pendulum-v1", td3)],
)
def test_actors_compute_the_priorities_of_the_learner(tmp_path, name, env, module):
    """With the learner's weights, an actor's values equal those of the learner's online networks."""
    maker = EnvMaker(env)
    spec = spec_of(maker(1))
    config = module.Config(hidden=(8,), prioritized=True, initial_priority="td")
    algorithm = {"dqn": dqn.DQN, "sac": sac.SAC, "td3": td3.TD3}[name](config, spec)
    assert algorithm.actor_priorities
    learner, policy = algorithm.make_learner(3, "cpu"), algorithm.make_policy(0, 1, 6, 0)
    assert len(policy.weights) == len(learner.weights)
    policy.weights.copy_(learner.weights)
    obs = np.random.default_rng(0).normal(size=(6, *spec.observation_shape)).astype(np.float32)
    action = policy.act(obs, 10**6)
    chosen, best = policy.action_values
    seen = torch.from_numpy(obs)
    with torch.no_grad():
        if name == "dqn":
            q = learner.online.mean(learner.online(seen)).numpy()
            np.testing.assert_allclose(chosen, q[np.arange(6), action], rtol=1e-6)
            np.testing.assert_allclose(best, q.max(1), rtol=1e-6)
        else:
            unit = torch.from_numpy(action / 2.0)  # Pendulum's torque is in -2..2
            q = learner.networks.critics(seen, unit).squeeze(2).amin(0)
            np.testing.assert_allclose(chosen, q.numpy(), rtol=1e-5, atol=1e-6)
            np.testing.assert_array_less(-np.inf, best)
    wanted = np.abs(config.reward_scale * 2.0 + 0.5 * best - chosen) + config.priority_epsilon
    np.testing.assert_allclose(
        policy.initial_priorities(np.full(6, 2.0), np.full(6, 0.5), chosen, best), wanted, 1e-5
    )


def test_a_run_with_td_errors_as_initial_priorities_differs_and_repeats(tmp_path):
    options = {
        "env": "CartPole-v1",
        "num_envs": 4,
        "actors": 2,
        "batch_size": 32,
        "replay_ratio": 4.0,
        "learning_starts": 100,
        "replay_capacity": 500,
        "hidden": (16,),
        "schedule": "deterministic",
        "evaluation_episodes": 2,
        "total_steps": 900,
        "runs": str(tmp_path),
        "quiet": True,
    }
    weights = [
        weights_of(train("dqn", **options, initial_priority=kind, double_buffer=double_buffer).path)
        for kind, double_buffer in (("td", False), ("td", False), ("max", False), ("td", True))
    ]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert torch.isfinite(weights[3]).all()


def test_uniform_replay_needs_no_initial_priorities():
    algorithm = SimpleNamespace(
        actor_priorities=dqn.Config(prioritized=False, initial_priority="td").actor_priorities
    )
    assert InitialPriorities.for_algorithm(algorithm, None, None, 2, None) is None
