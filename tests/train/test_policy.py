"""``parl.load``: the policy of a run acts as in the run's own evaluations."""

import json

import gymnasium
import imageio.v2 as imageio
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from trained_policies import IDS, RUN, VARIANTS, Parts, train_small

import parl
from parl import pickles
from parl.errors import ConfigError, NonFiniteError, RunDirectoryError, UntrustedRunError
from parl.run import RunDirectory, read_metrics
from parl.train import record, trainer


@pytest.fixture
def evaluated(monkeypatch):
    """The actions that evaluations within runs take, in order."""
    actions = []
    make = trainer.make_evaluator

    def recording(*args):
        evaluator = make(*args)
        act = evaluator.policy.act_greedily

        def record(observations):
            actions.append(act(observations))
            return actions[-1]

        evaluator.policy.act_greedily = record
        return evaluator

    monkeypatch.setattr(trainer, "make_evaluator", recording)
    return actions


@pytest.mark.parametrize(("name", "own"), VARIANTS, ids=IDS)
def test_predict_gives_the_actions_of_the_runs_own_evaluation(tmp_path, evaluated, name, own):
    run = train_small(tmp_path, name, **own)
    policy = parl.load(run.path)
    score = next(one for one in reversed(read_metrics(run.path)) if "evaluation_seed" in one)
    envs, state, total = policy.env_maker(1), None, 0.0
    obs, _ = envs.reset(seed=score["evaluation_seed"])
    for expected in evaluated:
        action, state = policy.predict(obs, state=state)
        np.testing.assert_array_equal(action, expected)
        assert action.dtype == (np.int64 if policy.spec.num_actions else np.float32)
        obs, reward, terminated, truncated, _ = envs.step(action)
        total += reward[0]
    assert terminated[0] or truncated[0]
    assert total == pytest.approx(score["evaluation_return"])
    envs.close()


def test_stacked_frames_and_settings_of_evaluations_are_those_of_the_run(tmp_path):
    run = parl.train(
        "ppo",
        env="parl/Pong-v0",
        env_options={"obs_type": "ram", "stack_num": 2, "reward_clipping": True},
        evaluation_env_options={"max_num_frames_per_episode": 400},
        frame_deltas=True,
        normalize_observations=True,
        hidden=(8,),
        rollout_steps=8,
        num_envs=4,
        total_steps=64,
        schedule="deterministic",
        runs=str(tmp_path),
        **RUN,
    )
    policy = parl.load(run.path)
    assert policy.spec.observation_shape == (2, 128) and policy.env_maker.options["reward_clipping"] is False
    score = next(one for one in reversed(read_metrics(run.path)) if "evaluation_seed" in one)
    envs, total, over = policy.env_maker(1), 0.0, False
    obs, _ = envs.reset(seed=score["evaluation_seed"])
    while not over:
        obs, reward, terminated, truncated, _ = envs.step(policy.predict(obs)[0])
        total, over = total + reward[0], terminated[0] or truncated[0]
    assert total == score["evaluation_return"]


@pytest.mark.parametrize(("name", "own"), VARIANTS, ids=IDS)
def test_the_network_is_a_module_whose_named_parameters_are_the_policy(tmp_path, name, own):
    policy = parl.load(train_small(tmp_path, name, **own).path)
    obs = np.random.default_rng(0).normal(size=(5, *policy.spec.observation_shape)).astype(np.float32)
    before, state = policy.predict(obs)
    names = {name for name, _ in policy.network.named_parameters()}
    assert names == set(load_file(policy.folder / "policy.safetensors"))
    extra = () if state is None else (torch.zeros(2, 5, 3),)
    with torch.no_grad():
        (action, *_) = policy.acting.greedy(policy.network, torch.from_numpy(obs), *extra)
        np.testing.assert_allclose(action.numpy(), before, rtol=1e-4, atol=1e-5)
        for parameter in policy.network.parameters():
            parameter.zero_()
    assert not policy.acting.weights[: sum(p.numel() for p in policy.network.parameters())].any()
    after = policy.predict(obs)[0]
    assert (after == after[0]).all()


def test_one_observation_or_a_batch(tmp_path):
    policy = parl.load(train_small(tmp_path, "dqn").path, checkpoint="last")
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    action, state = policy.predict(obs)
    assert state is None and isinstance(action, np.int64) and env.action_space.contains(action)
    actions, _ = policy.predict(np.stack([obs, -obs]))
    assert actions.shape == (2,) and actions[0] == action
    assert policy.predict(np.zeros((0, 4), np.float32))[0].shape == (0,)
    with pytest.raises(ConfigError, match=r"observation has shape \(3,\), expected \(4,\) or a batch"):
        policy.predict(np.zeros(3))
    with pytest.raises(ConfigError, match=r"observation has shape \(\), expected \(4,\)"):
        policy.predict(0.0)
    with pytest.raises(NonFiniteError, match=r"observation is nan in row 1 \(index \(2,\)\)"):
        policy.predict(np.stack([obs, [0, 0, np.nan, 0]]))
    continuous = parl.load(train_small(tmp_path, "sac").path)
    env = gymnasium.make("Pendulum-v1")
    action, _ = continuous.predict(env.reset(seed=0)[0])
    assert env.action_space.contains(action)
    env.step(action)


def test_observations_and_starts_that_do_not_fit_are_named(tmp_path):
    class Lake(gymnasium.Env):
        observation_space, action_space = Discrete(3), Discrete(2, start=1)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return 1, {"action_mask": np.ones(2, np.int8)}

        def step(self, action):
            assert action in self.action_space
            return 1, 1.0, True, False, {"action_mask": np.ones(2, np.int8)}

    masked = parl.load(train_small(tmp_path, "ppo", env=Lake).path)
    with pytest.raises(ConfigError, match=r"observation = 1 is not a dictionary of .*env_maker\(n\)"):
        masked.predict(1)
    envs = masked.env_maker(1)
    envs.step(masked.predict(envs.reset()[0])[0])
    policy = parl.load(train_small(tmp_path, "ppo", lstm=3).path)
    with pytest.raises(ConfigError, match=r"observation = 'x' is not \(4,\)"):
        policy.predict("x")
    with pytest.raises(ConfigError, match=r"episode_start has shape \(2,\), expected \(\) or \(1,\)"):
        policy.predict(np.zeros(4), episode_start=[True, False])


def test_actions_that_are_not_deterministic_explore(tmp_path):
    policy = parl.load(train_small(tmp_path, "ppo").path)
    actions = [int(policy.predict(np.zeros(4), deterministic=False)[0]) for _ in range(64)]
    assert set(actions) == {0, 1}
    assert len({int(policy.predict(np.zeros(4))[0]) for _ in range(8)}) == 1
    noisy = parl.load(train_small(tmp_path, "dqn", noisy=True).path)
    noisy.predict(np.zeros(4), deterministic=False)
    obs = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    values = noisy.network(obs).detach().numpy()
    noisy.predict(obs.numpy())
    np.testing.assert_allclose(values[:, :, 0], noisy.acting.network.act(obs.numpy()), rtol=1e-5)


def test_a_recording_is_the_episode_of_an_evaluation_also_with_an_lstm(tmp_path):
    run = train_small(tmp_path, "ppo", lstm=3)
    for option, wrong in (("scale", 0), ("scale", 1.5), ("seed", -1)):
        with pytest.raises(ConfigError, match=f"{option} = {wrong} is not an integer of at least"):
            record(run.path, tmp_path / "one.png", **{option: wrong})
    for seed in np.arange(5):
        (played,) = parl.evaluate(run.path, episodes=1, seed=seed)
        assert record(run.path, tmp_path / "one.png", seed=seed) == played


class Column(gymnasium.Env):
    """Shows a black column on white ground, which moves at each step."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space, action_space = Box(-1, 1, (1,)), Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), 1.0, self.steps == 9, False, {}

    def render(self):
        picture = np.full((16, 40, 3), 255, np.uint8)
        picture[:, 4 * self.steps : 4 * self.steps + 4] = 0
        return picture


def test_a_gif_has_pictures_of_the_environment(tmp_path):
    record(train_small(tmp_path, "ppo", env=Column).path, tmp_path / "one.gif")
    pictures = imageio.mimread(tmp_path / "one.gif")
    assert [np.flatnonzero(picture[0, ..., 0] < 99)[0] for picture in pictures] == [4, 12, 20, 28, 36]


def test_the_state_of_an_lstm_is_that_of_the_caller(tmp_path):
    policy = parl.load(train_small(tmp_path, "ppo", env="Pendulum-v1", lstm=3).path)
    obs = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    first, one = policy.predict(obs)
    second, two = policy.predict(obs, state=one)
    assert one.shape == (2, 2, 3) and not np.array_equal(one, two) and not np.array_equal(first, second)
    np.testing.assert_array_equal(policy.predict(obs)[0], first)
    np.testing.assert_array_equal(policy.predict(obs, state=one)[0], second)
    mixed, _ = policy.predict(obs, state=one, episode_start=[True, False])
    np.testing.assert_array_equal(mixed, [first[0], second[1]])
    single, state = policy.predict(obs[0])
    assert state.shape == (2, 1, 3)
    np.testing.assert_allclose(single, first[0], rtol=1e-5)
    with pytest.raises(ConfigError, match=r"state has shape \(2, 2, 3\), expected \(2, 1, 3\)"):
        policy.predict(obs[0], state=one)


@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_dictionaries_one_or_a_batch(tmp_path, name):
    policy = parl.load(train_small(tmp_path, name, env=Parts).path)
    obs, _ = Parts().reset(seed=0)
    action, _ = policy.predict(obs)
    batch = {"a": obs["a"][None], "b": {"c": obs["b"]["c"][None]}}
    actions, _ = policy.predict(batch)
    assert isinstance(action, np.int64) and actions.tolist() == [action]
    with pytest.raises(ConfigError, match="parts of the observation are batches of different sizes"):
        policy.predict(batch | {"a": obs["a"]})
    with pytest.raises(ConfigError, match=r"b\.c has shape \(4,\), expected \(3,\)"):
        policy.predict({"a": obs["a"], "b": {"c": np.zeros(4, np.uint8)}})
    with pytest.raises(NonFiniteError, match=r"observation 'a' is inf in row 0 \(index \(1,\)\)"):
        policy.predict(obs | {"a": [0, np.inf]})


def test_sources_that_can_be_loaded(tmp_path):
    run = train_small(tmp_path, "a2c")
    path, policy = run.path, parl.load(run.path)
    assert policy.algorithm == "a2c" and policy.run == path and policy.env_steps == run.env_steps
    assert policy.config.run.seed == 3 and policy.config.algorithm.hidden == (2,)
    assert policy.spec.num_actions == 2 and policy.env_maker.name == "CartPole-v1"
    shown = repr(policy)
    assert f"a2c for CartPole-v1 after {run.env_steps} steps" in shown and str(path) in shown
    same = parl.load(policy.folder)
    assert same.run == path.resolve() and torch.equal(same.acting.weights, policy.acting.weights)
    with pytest.raises(ConfigError, match="checkpoint = 'first' is not one of best, last"):
        parl.load(path, "first")
    with pytest.raises(FileNotFoundError):
        parl.load(tmp_path / "none")
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        parl.load(tmp_path)


def test_a_pickled_environment_needs_trust_or_another(tmp_path, monkeypatch):
    path = train_small(tmp_path, "dqn", env=lambda: gymnasium.make("CartPole-v1")).path
    parl.load(path)  # This process wrote the pickle.
    monkeypatch.setattr(pickles, "_written", set())
    with pytest.raises(UntrustedRunError, match=r"env\.pkl is a pickle"):
        parl.load(path)
    assert parl.load(path, trust=True).env_maker(2).num_envs == 2
    monkeypatch.setattr("cloudpickle.loads", lambda _: pytest.fail("a pickle was loaded"))
    assert parl.load(path, env="CartPole-v1").env_maker(2).num_envs == 2


def test_an_environment_in_place_of_the_runs_has_its_spaces(tmp_path):
    path = train_small(tmp_path, "a2c").path
    with pytest.raises(ConfigError) as caught:
        parl.load(path, env="Pendulum-v1")
    for spaces in (
        "float32 (3,) and actions Box(1,) from [-2.0] to [2.0]",
        "float32 (4,) and actions Discrete(2)",
    ):
        assert spaces in str(caught.value)


def test_the_file_can_be_used_without_parl(tmp_path):
    path = train_small(tmp_path, "ppo", env="Pendulum-v1", normalize_observations=True).path
    folder = RunDirectory.open(path).checkpoints.best()
    with safe_open(folder / "policy.safetensors", "pt") as file:
        about = file.metadata()
    assert about["algorithm"] == "ppo" and about["parl"] == parl.__version__
    assert json.loads(about["spec"])["observation_shape"] == [3]
    tensors = load_file(folder / "policy.safetensors")
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))
    # The first half of the first layer is the policy's tower, the second half the value's.
    net[0].load_state_dict({"weight": tensors["towers.first"][:2], "bias": tensors["towers.first_bias"][:2]})
    net[2].load_state_dict({name: tensors[f"policy.{name}"] for name in ("weight", "bias")})
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    x = (torch.from_numpy(obs) - tensors["flattener.normalizer.mean"]) * tensors[
        "flattener.normalizer.inverse_std"
    ]
    assert not torch.equal(x, torch.from_numpy(obs))
    expected = net(x.clamp(-5, 5)).detach().numpy()
    np.testing.assert_allclose(parl.load(path).predict(obs)[0], expected, rtol=1e-4)


def test_a_damaged_or_missing_file_is_named(tmp_path):
    path = train_small(tmp_path, "dqn").path
    file = RunDirectory.open(path).checkpoints.best() / "policy.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    for source in (path, file.parent):
        with pytest.raises(RunDirectoryError, match=r"policy\.safetensors is damaged"):
            parl.load(source)
    file.unlink()
    with pytest.raises(RunDirectoryError, match=r"policy\.safetensors is missing"):
        parl.load(path)
