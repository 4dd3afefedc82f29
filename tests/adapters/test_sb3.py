"""parl's buffers in Stable-Baselines3's own algorithms."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from parl.adapters.sb3 import (
    PrioritizedDQN,
    PrioritizedReplayBuffer,
    PrioritizedSAC,
    PrioritizedTD3,
    UniformReplayBuffer,
)

SMALL = {"learning_starts": 30, "buffer_size": 400, "batch_size": 8, "device": "cpu"}


class Counter(gym.Env):
    """Observes [environment, episode, step]; truncated at step ``limit``, or terminated at step ``end``."""

    def __init__(self, number, limit=7, end=5, as_dict=False):
        self.number, self.limit, self.end, self.as_dict = number, limit, end, as_dict
        box = spaces.Box(0, 1000, (3,), np.float32)
        self.observation_space = spaces.Dict({"a": box, "b": spaces.Discrete(50)}) if as_dict else box
        self.action_space = spaces.Discrete(2)
        self.episode = -1

    def _obs(self):
        row = np.array([self.number, self.episode, self.step_count], np.float32)
        return {"a": row, "b": self.step_count} if self.as_dict else row

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        self.step_count = 0
        return self._obs(), {}

    def step(self, action):
        self.step_count += 1
        # Every other episode terminates.
        terminated = self.episode % 2 == 0 and self.step_count == self.end
        return self._obs(), float(self.step_count), terminated, self.step_count == self.limit, {}


def counters(n, **settings):
    return DummyVecEnv([lambda i=i: Counter(i, **settings) for i in range(n)])


def check_transitions(samples, n_steps=1, gamma=0.99, last=5, limit=7):
    """Checks each sampled transition against the rules of the environment. Returns the observations."""
    obs, after = samples.observations.numpy(), samples.next_observations.numpy()
    discounts = np.full(len(obs), gamma) if samples.discounts is None else samples.discounts.numpy()[:, 0]
    for i in range(len(obs)):
        end = last if obs[i, 1] % 2 == 0 else limit
        k = min(n_steps, int(end - obs[i, 2]))
        ends = obs[i, 2] + k == end
        terminated = ends and end == last
        assert samples.dones[i, 0] == terminated
        want = sum(gamma**j * (obs[i, 2] + 1 + j) for j in range(k))
        assert samples.rewards[i, 0] == pytest.approx(want)
        if not terminated:
            # VecNormalize restores final observations up to rounding.
            np.testing.assert_allclose(after[i], [obs[i, 0], obs[i, 1], obs[i, 2] + k], atol=1e-5)
            assert discounts[i] == pytest.approx(gamma**k)
    return obs


@pytest.mark.parametrize(
    ("once", "n_steps", "n_envs"), [(False, 1, 3), (False, 3, 1), (True, 1, 1), (True, 3, 3)]
)
def test_sampled_transitions_are_those_of_the_environment(once, n_steps, n_envs):
    model = PrioritizedDQN(
        "MlpPolicy",
        counters(n_envs),
        seed=1,
        optimize_memory_usage=once,
        replay_buffer_kwargs={"n_steps": n_steps, "gamma": 0.9},
        **{**SMALL, "buffer_size": 120},
    )
    with warnings.catch_warnings():
        # SB3 warns that it cuts the current episode when learning starts again.
        warnings.filterwarnings("ignore", message="The last trajectory in the replay buffer")
        model.learn(130)
        model.learn(131)
    buffer = model.replay_buffer
    assert buffer.size() == buffer.buffer_size
    assert buffer.full
    seen = [check_transitions(buffer.sample(64), n_steps, 0.9 if n_steps > 1 else 0.99) for _ in range(40)]
    obs = np.unique(np.concatenate(seen), axis=0)
    assert set(obs[:, 0]) == set(range(n_envs))
    # All steps of an episode are sampled, including the last ones.
    assert set(obs[obs[:, 1] % 2 == 0][:, 2]) == set(range(5))
    assert set(obs[obs[:, 1] % 2 == 1][:, 2]) == set(range(7))
    buffer.replay.verify()


def test_optimize_memory_usage_halves_the_memory():
    space, actions = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(4)
    sizes = [
        PrioritizedReplayBuffer(2000, space, actions, optimize_memory_usage=once).replay.nbytes
        for once in (False, True)
    ]
    assert sizes[1] < 0.55 * sizes[0]


def test_large_batches_reuse_memory_that_is_not_referenced():
    space, actions = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(4)
    buffer = PrioritizedReplayBuffer(50, space, actions, device="cpu")
    for i in range(50):
        obs = np.full((1, 4, 84, 84), i, np.uint8)
        buffer.add(obs, obs + 1, np.array([i % 4]), np.array([float(i)]), np.zeros(1, bool), [{}])
    held, copies, places = [], [], set()
    for turn in range(12):
        samples = buffer.sample(32)
        places.add(samples.observations.data_ptr())
        assert torch.equal(samples.observations[:, 0, 0, 0].float(), samples.rewards[:, 0])
        assert torch.equal(samples.next_observations[:, 3, 83, 83].float(), samples.rewards[:, 0] + 1)
        if turn % 4 == 0:
            # A reference to one field keeps the batch.
            held.append(samples.next_observations[5:7] if turn else samples.rewards)
            copies.append(held[-1].clone())
    assert len(places) < 8
    for tensor, copy in zip(held, copies, strict=True):
        assert torch.equal(tensor, copy)


def test_the_uniform_buffer_holds_the_same_rows_as_sb3s_own():
    rng = np.random.default_rng(0)
    space, actions = spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float64)
    theirs = ReplayBuffer(12, space, actions, device="cpu", n_envs=2)
    mine = UniformReplayBuffer(12, space, actions, device="cpu", n_envs=2)
    for step in range(9):
        row = (
            rng.standard_normal((2, 3), np.float32),
            rng.standard_normal((2, 3), np.float32),
            rng.uniform(-1, 1, (2, 2)),
            np.arange(2) + step * 10.0,
            np.array([step == 3, step == 5]),
            [{"TimeLimit.truncated": step == 3}, {}],
        )
        theirs.add(*row)
        mine.add(*row)
        assert (mine.pos, mine.full, mine.size()) == (theirs.pos, theirs.full, theirs.size())
    rows = []
    for buffer in (theirs, mine):
        samples = buffer.sample(500)
        fields = [samples.rewards, samples.observations, samples.actions, samples.next_observations]
        assert all(field.dtype == torch.float32 for field in (*fields, samples.dones))
        table = torch.cat([*fields, samples.dones], dim=1).numpy()
        rows.append(np.unique(table, axis=0))
    np.testing.assert_allclose(rows[0], rows[1])
    assert len(rows[0]) == 12


@pytest.mark.parametrize("once", [False, True])
def test_dict_observations(once):
    env = counters(2, as_dict=True)
    model = PrioritizedDQN("MultiInputPolicy", env, seed=0, optimize_memory_usage=once, **SMALL)
    model.learn(200)
    samples = model.replay_buffer.sample(64)
    assert samples.observations["a"].shape == (64, 3)
    steps = samples.observations["a"][:, 2]
    going_on = samples.dones[:, 0] == 0
    assert torch.equal(samples.observations["b"].reshape(-1).float(), steps)
    assert torch.equal(samples.next_observations["a"][:, 2][going_on], steps[going_on] + 1)
    theirs = DictReplayBuffer(8, env.observation_space, env.action_space, device="cpu", n_envs=2)
    obs = {"a": np.zeros((2, 3), np.float32), "b": np.array([3, 4])}
    theirs.add(obs, obs, np.zeros(2, int), np.zeros(2), np.zeros(2, bool), [{}, {}])
    for name, tensor in theirs.sample(2).observations.items():
        assert samples.observations[name].shape[1:] == tensor.shape[1:]
        assert samples.observations[name].dtype == tensor.dtype


def test_samples_are_normalized_as_by_vec_normalize():
    env = VecNormalize(counters(2))
    model = PrioritizedDQN("MlpPolicy", env, seed=0, **SMALL)
    model.learn(200)
    samples = model.replay_buffer.sample(64, env=env)
    raw = model.replay_buffer.sample(64)
    check_transitions(raw)
    assert samples.observations.abs().max() < 10.0
    assert samples.rewards.dtype == torch.float32


@pytest.mark.parametrize(("once", "n_steps"), [(True, 1), (False, 3), (True, 3)])
def test_observations_with_nan_do_not_end_episodes(once, n_steps):
    space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    buffer = UniformReplayBuffer(
        20, space, spaces.Discrete(2), device="cpu", optimize_memory_usage=once, n_steps=n_steps, gamma=1.0
    )
    for step in range(10):
        now, then = (np.array([[step + one, np.nan]], np.float32) for one in (0, 1))
        buffer.add(now, then, np.zeros(1, int), np.ones(1), np.zeros(1, bool), [{}])
    # Without an end all steps but the last, which cannot be sampled yet, have n steps.
    samples = buffer.sample(200)
    assert (samples.rewards == n_steps).all()
    change = samples.next_observations[:, 0] - samples.observations[:, 0]
    assert (change == n_steps).all() and len(samples.observations[:, 0].unique()) == 10 - n_steps + (not once)


def test_normalized_sums_of_n_steps_are_those_of_sb3():
    """SB3 clips the reward of each step, and the sum of n steps is not clipped again."""
    env = VecNormalize(counters(1), clip_reward=10.0)
    env.ret_rms.var = np.array(0.25)
    space, actions = env.observation_space, env.action_space
    mine = UniformReplayBuffer(20, space, actions, device="cpu", n_steps=3, gamma=0.9, seed=0)
    theirs = NStepReplayBuffer(20, space, actions, device="cpu", n_steps=3, gamma=0.9)
    for step in range(8):
        now, then = (np.full((1, 3), step + one, np.float32) for one in (0, 1))
        row = (now, then, np.zeros(1, int), np.full(1, 4.0), np.zeros(1, bool), [{}])
        mine.add(*row)
        theirs.add(*row)
    expected = theirs._get_samples(np.zeros(4, int), env).rewards
    assert expected[0, 0] == pytest.approx(8 * (1 + 0.9 + 0.81), rel=1e-4)
    torch.testing.assert_close(mine.sample(4, env=env).rewards, expected)
    env.ret_rms.var = np.array(1e-4)  # each step is clipped
    expected = theirs._get_samples(np.zeros(4, int), env).rewards
    torch.testing.assert_close(mine.sample(4, env=env).rewards, expected)
    env.norm_reward = False
    assert mine.sample(4, env=env).rewards[0, 0] == pytest.approx(4 * 2.71)


def test_time_limits_are_terminations_without_handle_timeout_termination():
    model = PrioritizedDQN(
        "MlpPolicy",
        counters(1),
        replay_buffer_kwargs={"handle_timeout_termination": False},
        seed=0,
        **SMALL,
    )
    model.learn(200)
    samples = model.replay_buffer.sample(256)
    at_limit = (samples.observations[:, 1] % 2 == 1) & (samples.observations[:, 2] == 6)
    assert at_limit.any()
    assert (samples.dones[:, 0][at_limit] == 1).all()


def test_training_updates_priorities_and_uses_importance_weights():
    model = PrioritizedDQN("MlpPolicy", counters(1), seed=0, replay_buffer_kwargs={"alpha": 1.0}, **SMALL)
    model.learn(60)
    buffer = model.replay_buffer
    drawn = []
    sample = buffer.sample

    def recorded(*args, **kwargs):
        drawn.append(sample(*args, **kwargs))
        return drawn[-1]

    buffer.sample = recorded
    total, updated = buffer.replay.total_priority, buffer.replay.counters["updated"]
    model.train(1, 32)
    assert buffer.replay.counters["updated"] == updated + 32
    assert buffer.replay.total_priority != total
    samples = drawn[0]
    assert samples.weights.min() < 1.0 == samples.weights.max()


def test_a_weighted_update_equals_its_formula():
    model = PrioritizedDQN("MlpPolicy", counters(1), seed=0, **SMALL)
    model.learn(60)
    samples = model.replay_buffer.sample(32)._replace(weights=torch.linspace(0.1, 1, 32).reshape(-1, 1))
    model.replay_buffer.sample = lambda *_, **__: samples
    with torch.no_grad():
        best = model.q_net_target(samples.next_observations).max(1, keepdim=True).values
        target = samples.rewards + (1 - samples.dones) * model.gamma * best
    value = model.q_net(samples.observations).gather(1, samples.actions)
    each = torch.nn.functional.smooth_l1_loss(value, target, reduction="none")
    model.q_net.zero_grad()
    (each * samples.weights).mean().backward()
    torch.nn.utils.clip_grad_norm_(model.policy.parameters(), model.max_grad_norm)
    want = [p.grad.clone() for p in model.q_net.parameters()]
    model.train(1, 32)
    for parameter, gradient in zip(model.q_net.parameters(), want, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    assert model.logger.name_to_value["train/loss"] == pytest.approx((each * samples.weights).mean().item())


@pytest.mark.parametrize("name", ["beta", "final_beta"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_beta_outside_its_bounds_raises(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}, expected a finite number of at least 0"):
        PrioritizedReplayBuffer(8, spaces.Box(0, 1, (2,)), spaces.Discrete(2), **{name: value})


def test_beta_rises_to_final_beta():
    model = PrioritizedDQN(
        "MlpPolicy", counters(1), seed=0, replay_buffer_kwargs={"beta": 0.5, "final_beta": 0.9}, **SMALL
    )
    betas = []
    model.learn(200, callback=lambda *_: betas.append(model.replay_buffer.beta) or True)
    assert betas[0] == 0.5
    assert betas == sorted(betas)
    assert model.replay_buffer.beta == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(("beta", "final_beta"), [(0.4, 1.0), (0.4, 0.0)])
def test_beta_stays_at_final_beta_when_steps_exceed_the_training(beta, final_beta):
    """SB3 trains in whole rounds of ``train_freq``, and the last one goes beyond ``total_timesteps``."""
    kwargs = {"beta": beta, "final_beta": final_beta}
    model = PrioritizedDQN(
        "MlpPolicy", counters(1), seed=0, train_freq=30, replay_buffer_kwargs=kwargs, **SMALL
    )
    model.learn(100)
    assert model.num_timesteps == 120
    assert model.replay_buffer.beta == final_beta


@pytest.mark.parametrize("algorithm", [PrioritizedSAC, PrioritizedTD3])
def test_continuous_actions(algorithm):
    model = algorithm("MlpPolicy", "Pendulum-v1", seed=0, **SMALL)
    model.learn(80)
    assert model.replay_buffer.replay.counters["updated"] == 8 * 50
    values = model.logger.name_to_value
    assert np.isfinite([values["train/critic_loss"], values["train/actor_loss"]]).all()
    obs = model.replay_buffer.sample(4).actions
    assert obs.dtype == torch.float32
    assert obs.abs().max() <= 1.0


def test_a_buffer_warns_if_its_priorities_are_never_updated(monkeypatch):
    monkeypatch.setattr("parl.adapters.sb3._BATCHES_BEFORE_WARNING", 20)
    model = SAC("MlpPolicy", "Pendulum-v1", replay_buffer_class=PrioritizedReplayBuffer, seed=0, **SMALL)
    with pytest.warns(UserWarning, match="update_priorities was never called"):
        model.learn(60)
    DQN("MlpPolicy", counters(1), replay_buffer_class=UniformReplayBuffer, seed=0, **SMALL).learn(100)
    with pytest.raises(TypeError, match="UniformReplayBuffer"):
        PrioritizedDQN("MlpPolicy", counters(1), replay_buffer_class=UniformReplayBuffer, **SMALL)


@pytest.mark.parametrize("model", [PrioritizedDQN, PrioritizedTD3, PrioritizedSAC])
def test_learning_may_start_before_a_transition_is_complete(model):
    env = counters(1) if model is PrioritizedDQN else "Pendulum-v1"
    settings = {**SMALL, "learning_starts": 0, "train_freq": 1}
    model = model("MlpPolicy", env, n_steps=3, seed=0, **settings)
    model.learn(10)
    assert 0 < model._n_updates < 10


def test_n_steps_may_be_an_argument_of_the_algorithm():
    model = PrioritizedDQN("MlpPolicy", counters(1), n_steps=3, gamma=0.9, seed=0, **SMALL)
    model.learn(100)
    check_transitions(model.replay_buffer.sample(64), 3, 0.9)


@pytest.mark.parametrize("cls", [None, PrioritizedReplayBuffer])
def test_n_steps_of_the_buffer_are_discounted_as_the_model_says(cls):
    def buffer(**kwargs):
        settings = {"gamma": 0.9, "replay_buffer_class": cls, "replay_buffer_kwargs": kwargs, **SMALL}
        return PrioritizedDQN("MlpPolicy", counters(1), **settings).replay_buffer

    assert buffer(n_steps=3).gamma == 0.9
    assert buffer(n_steps=3, gamma=0.8).gamma == 0.8


def test_models_may_share_the_arguments_of_their_buffers():
    kwargs = {"alpha": 0.5}
    first = PrioritizedDQN(
        "MlpPolicy", counters(1), n_steps=3, gamma=0.9, replay_buffer_kwargs=kwargs, **SMALL
    )
    second = PrioritizedDQN("MlpPolicy", counters(1), replay_buffer_kwargs=kwargs, **SMALL)
    assert kwargs == {"alpha": 0.5}
    buffers = first.replay_buffer, second.replay_buffer
    assert [(buffer.n_steps, buffer.gamma, buffer.alpha) for buffer in buffers] == [
        (3, 0.9, 0.5),
        (1, 0.99, 0.5),
    ]


def test_saving_and_loading(tmp_path):
    model = PrioritizedDQN("MlpPolicy", counters(2), seed=3, **SMALL)
    model.learn(150)
    model.save(tmp_path / "model.zip")
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    copy = PrioritizedDQN.load(tmp_path / "model.zip", env=counters(2))
    copy.load_replay_buffer(tmp_path / "buffer.pkl")
    first, second = model.replay_buffer.sample(64), copy.replay_buffer.sample(64)
    for name in ("observations", "actions", "rewards", "dones", "weights", "next_observations"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name
    assert copy.replay_buffer.size() == model.replay_buffer.size()
    copy.learn(100, reset_num_timesteps=False)


def test_equal_seeds_give_equal_weights():
    weights = []
    for _ in range(2):
        model = PrioritizedDQN("MlpPolicy", counters(1), seed=5, **SMALL)
        model.learn(100)
        weights.append(torch.cat([p.detach().flatten() for p in model.q_net.parameters()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize(("options", "rows"), [({"n_steps": 3}, 3), ({"optimize_memory_usage": True}, 2)])
def test_buffers_that_hold_no_whole_transition_take_no_rows(options, rows):
    """None could ever be sampled, so that ``learn`` would end without an update."""
    space, actions = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)
    short = {"n_envs": 4, "handle_timeout_termination": False, **options}
    step = [np.zeros((4, 3)), np.zeros((4, 3)), np.zeros((4, 1)), np.zeros(4), np.zeros(4), [{}] * 4]
    buffer = UniformReplayBuffer(4 * rows - 1, space, actions, device="cpu", **short)
    with pytest.raises(ValueError, match=f"holds {rows - 1} rows of each of 4 environments, expected at"):
        buffer.add(*step)
    buffer = UniformReplayBuffer(4 * rows, space, actions, device="cpu", **short)
    for _ in range(rows):
        buffer.add(*step)
    assert buffer.replay.sampleable


def test_a_model_is_loaded_with_a_buffer_of_one_row_to_play(tmp_path):
    """As scripts that only evaluate do."""
    env = DummyVecEnv([lambda: Counter(0)])
    model = PrioritizedDQN("MlpPolicy", env, **SMALL, replay_buffer_kwargs={"n_steps": 3})
    model.save(tmp_path / "model")
    loaded = PrioritizedDQN.load(tmp_path / "model", custom_objects={"buffer_size": 1})
    observation = np.zeros((1, 3), np.float32)
    assert loaded.predict(observation)[0].shape == (1,)
