"""Training with a user's own torso or network: every algorithm, resuming, import paths, pickles, errors."""

import sys

import gymnasium
import numpy as np
import own_networks
import pytest
import torch
from own_networks import NETWORKS, Torso, Uneven
from tiny_runs import CONTINUOUS, RUNS, SMALL, SOONER, write_play
from torch import nn

from parl.algos.common.actor_critic import make_network
from parl.cli import main
from parl.envs import EnvMaker, spec_of
from parl.errors import ConfigError, UntrustedRunError
from parl.nets import flatten
from parl.ops.batches import TensorBatch
from parl.run import RunDirectory
from parl.train import ALGORITHMS, evaluate, resume, train
from parl.train.registry import make_algorithm, module_of
from saved_learners import weights_of

SPEC = spec_of(EnvMaker("CartPole-v1")(1))
PPO = {"env": "CartPole-v1", "num_envs": 4, "total_steps": 64, "rollout_steps": 8, "quiet": True}
PPO |= {"schedule": "deterministic", "evaluation_episodes": 0, "epochs": 2}


def options_of(name, folder):
    """Settings of a tiny run with a constant learning rate."""
    topology = ALGORITHMS[name].topology
    found = RUNS[topology] | SMALL.get(topology, SMALL["rollout"]) | SOONER.get(name, {})
    found = {key: value for key, value in found.items() if key != "hidden"}
    fields = vars(module_of(name).Config())
    found |= {key: False for key in ("anneal", "anneal_clip") if key in fields}
    if name == "bc":
        found["data"] = write_play(folder, "CartPole-v1")
    env = "Pendulum-v1" if name in CONTINUOUS else "CartPole-v1"
    run = {"schedule": "deterministic", "evaluation_episodes": 2, "quiet": True}
    return found | run | {"env": env, "runs": str(folder)}


@pytest.mark.parametrize("setting", ["torso", "network"])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_every_algorithm_trains_resumes_exactly_and_is_evaluated(name, setting, tmp_path):
    options = options_of(name, tmp_path) | {setting: Torso if setting == "torso" else NETWORKS[name]}
    steps = options.pop("total_steps")
    whole = train(name, **options, total_steps=2 * steps, name="whole")
    half = train(name, **options, total_steps=steps, name="half")
    before = weights_of(half.path)
    resumed = resume(half.path, total_steps=2 * steps)
    assert (resumed.env_steps, resumed.updates) == (whole.env_steps, whole.updates)
    assert torch.equal(weights_of(half.path), weights_of(whole.path))
    assert not torch.equal(before, weights_of(half.path))
    assert evaluate(half.path, 2).shape == (2,)
    path = RunDirectory.open(half.path).config[name][setting]
    assert path == f"own_networks:{(Torso if setting == 'torso' else NETWORKS[name]).__name__}"


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["sac", "td3"])
def test_the_loss_of_the_actor_does_not_reach_a_users_critics(name, threads):
    spec = spec_of(EnvMaker("Pendulum-v1")(1))
    learner = make_algorithm(name, module_of(name).Config(network=NETWORKS[name]), spec).make_learner(
        0, "cpu"
    )
    learner.use_threads(threads)
    batch, noise = batch_of(spec, 8), learner.draws(8)
    learner._updates = 1  # TD3 changes its actor in every second update
    learner.compute(batch)
    assert all(part.abs().sum() > 0 for part in (learner._actor_gradients, learner._critics_gradients))
    before = learner._critics_gradients.clone()
    given = (batch.obs, batch.action, batch.reward, batch.discount, batch.next_obs, batch.weights)
    learner._compute_actor(*given, noise)
    assert torch.equal(learner._critics_gradients, before)


def batch_of(spec, rows):
    """A batch of random transitions."""
    obs, following = torch.randn(2, rows, *spec.observation_shape)
    action, ones = torch.rand(rows, *spec.action_shape), torch.ones(rows)
    return TensorBatch(obs, action, torch.randn(rows), 0.9 * ones, following, ones, tickets=None)


def test_discrete_sac_takes_a_network(tmp_path):
    options = options_of("sac", tmp_path) | {"env": "CartPole-v1", "network": own_networks.ActorAndCritic}
    assert train("sac", **options).updates > 0


class TwoChoices(gymnasium.ActionWrapper):
    """CartPole with one choice of two values and one of three, which has no effect."""

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.action_space = gymnasium.spaces.MultiDiscrete([2, 3])

    def action(self, action):
        return int(action[0])


@pytest.mark.parametrize("name", ["ppo", "a2c", "impala"])
@pytest.mark.parametrize(("setting", "own"), [("torso", Torso), ("network", own_networks.PolicyAndValue)])
def test_several_choices_take_a_torso_or_a_network(name, setting, own, tmp_path):
    options = options_of(name, tmp_path) | {"env": TwoChoices, setting: own}
    run = train(name, **options)
    assert run.updates > 0 and evaluate(run.path, 1, trust=True).shape == (1,)


@pytest.mark.parametrize("name", ["dqn", "ppo", "pqn", "bc"])
def test_fused_passes_of_a_torso_equal_those_of_torch(name):
    made = make_algorithm(name, module_of(name).Config(torso=Torso), SPEC)
    learner = made.make_learner(0, "cpu")
    network = learner.online if name == "dqn" else learner.network
    assert network._dense is not None
    obs = torch.randn(16, 4)

    def outputs():
        found = network(obs)
        return found if isinstance(found, tuple) else (found,)

    def gradients():
        learner.gradients.zero_()
        sum(one.square().sum() for one in outputs()).backward()
        return learner.gradients.clone()

    fused, fused_gradients = outputs(), gradients()
    acted = network.act(obs.numpy())
    network._dense = None
    for one, two in zip(fused, outputs(), strict=True):
        torch.testing.assert_close(one, two)
    torch.testing.assert_close(fused_gradients, gradients(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.from_numpy(acted), fused[0].reshape(acted.shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("setting", ["torso", "network"])
@pytest.mark.parametrize("name", ["dqn", "ppo", "pqn"])
def test_policies_of_the_learners_device_act_with_it(name, setting):
    given = Torso if setting == "torso" else NETWORKS[name]
    made = make_algorithm(name, module_of(name).Config(**{setting: given}), SPEC)
    learner = made.make_learner(0, "cpu")
    policy, obs = made.make_device_policy(learner, 0), torch.randn(5, 4)
    action = policy.act(obs, 0) if name == "dqn" else policy.sample(obs)[0]
    assert action.shape == (5,) and set(action.tolist()) <= {0, 1}


@pytest.mark.parametrize("name", ["dqn", "ppo", "a2c", "pqn"])
def test_updates_of_a_small_torso_are_replayed(name, tmp_path, monkeypatch):
    seen = []
    update = type(make_algorithm(name, module_of(name).Config(), SPEC).make_learner(0, "cpu")._update)
    call = update.__call__
    monkeypatch.setattr(
        update, "__call__", lambda self, *tensors: (seen.append(self), call(self, *tensors))[1]
    )
    for torso in (Torso, Uneven):
        seen.clear()
        train(name, **options_of(name, tmp_path), torso=torso)
        assert seen[-1].replays == (torso is Torso)


def test_layers_other_than_a_chain_are_run_by_torch():
    class Shared(nn.Module):
        out_features = 4

        def __init__(self, space):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return torch.tanh(self.layer(x)) * 2

    for torso in (Uneven, Shared, lambda space: nn.Linear(4, 3)):
        network = make_network(module_of("ppo").Config(torso=torso), SPEC)
        flatten(network)
        assert network._dense is None


def test_shared_layers_make_one_torso():
    sizes = {}
    for shared in (False, True):
        network = make_network(module_of("ppo").Config(torso=Torso, shared_layers=shared), SPEC)
        sizes[shared] = sum(one.numel() for one in network.own.parameters())
    assert sizes[False] == 2 * sizes[True]


class Pictures(gymnasium.Env):
    """Pictures and a vector, as parts of a dictionary."""

    observation_space = gymnasium.spaces.Dict(
        {
            "picture": gymnasium.spaces.Box(0, 255, (3, 8, 8), np.uint8),
            "far": gymnasium.spaces.Dict({"place": gymnasium.spaces.Box(-1, 1, (2,), np.float64)}),
        }
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), float(action), self.steps == 5, False, {}


class Parts(nn.Module):
    """A torso for :class:`Pictures`."""

    out_features = 5

    def __init__(self, space):
        super().__init__()
        assert space["far.place"].dtype == np.float32 and space["picture"].high.max() == 255
        self.picture, self.place = nn.Conv2d(3, 4, 8), nn.Linear(2, 1)

    def forward(self, observations):
        picture = self.picture(observations["picture"].float()).flatten(1)
        return torch.cat([picture, self.place(observations["far.place"])], dim=1)


@pytest.mark.parametrize("name", ["dqn", "ppo", "pqn", "sac"])
def test_torsos_take_pictures_and_parts_of_dictionaries(name, tmp_path):
    options = options_of(name, tmp_path) | {"env": Pictures, "torso": Parts}
    if "epochs" in vars(module_of(name).Config()):
        options |= {"epochs": 1}
    assert train(name, **options).updates > 0


def test_an_lstm_and_normalized_observations_follow_a_torso(tmp_path):
    options = PPO | {"runs": str(tmp_path), "torso": Torso, "normalize_observations": True, "total_steps": 96}
    assert train("ppo", **options).updates > 0
    assert train("ppo", **options, lstm=4).updates > 0
    assert train("ppo", **options | {"torso": None, "network": own_networks.PolicyAndValue}).updates > 0


def test_several_actors_and_learners_in_processes_get_a_closure(tmp_path, monkeypatch):
    width = 5

    def torso(space):
        module = nn.Sequential(nn.Linear(4, width), nn.ReLU())
        module.out_features = width
        return module

    options = {"env": "CartPole-v1", "num_envs": 4, "learning_starts": 50, "batch_size": 16, "quiet": True}
    options |= {"total_steps": 200, "evaluation_episodes": 1, "actors": 2, "learners": 2, "n_step": 2}
    # Workers are started by a forkserver and unpickle their setup.
    monkeypatch.setattr("parl.runtime.workers._torch_works_in_a_fork", lambda threads: False)
    run = train("dqn", **options, torso=torso, runs=str(tmp_path), actor_kind="process")
    assert run.updates > 0 and "torso" not in RunDirectory.open(run.path).config["dqn"]
    assert (run.path / "network.pkl").exists()


def test_functions_of_untrusted_runs_are_not_loaded(tmp_path, monkeypatch):
    run = train("ppo", **PPO, runs=str(tmp_path), torso=lambda space: Torso(space))
    assert resume(run.path, total_steps=128).env_steps >= 128  # written by this process
    monkeypatch.setattr("parl.pickles._written", set())
    for work in (resume, evaluate):
        with pytest.raises(UntrustedRunError, match=r"network\.pkl is a pickle.*--trust"):
            work(run.path)
    assert evaluate(run.path, 1, trust=True).shape == (1,)
    (run.path / "network.pkl").write_bytes(b"other")
    with pytest.raises(ConfigError.__mro__[1], match=r"network\.pkl"):
        evaluate(run.path, trust=True)


def test_a_run_starts_from_the_weights_of_one_with_a_pickled_torso_of_another_process(tmp_path, monkeypatch):
    first = train("ppo", **PPO, runs=str(tmp_path), torso=lambda space: Torso(space))
    monkeypatch.setattr("parl.pickles._written", set())
    options = PPO | {"runs": str(tmp_path), "learning_rate": 0.0, "init_from": first.path}
    second = train("ppo", **options, torso=lambda space: Torso(space))
    assert torch.equal(weights_of(first.path), weights_of(second.path))
    with pytest.raises(ConfigError, match=r"init_from = .* does not fit: its networks have other parameters"):
        train("ppo", **options)


def test_the_command_line_imports_from_the_current_folder_and_asks_before_it_does_so_for_a_run(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    (tmp_path / "mine.py").write_text(
        "from own_networks import Torso\n\ndef torso(space):\n    return Torso(space)\n"
    )
    words = ["--torso", "mine:torso", "--total-steps", "64", "--num-envs", "4", "--evaluation-episodes", "0"]
    assert main(["train", "ppo", *words, "--quiet", "--rollout-steps", "8"]) == 0
    run = "runs/ppo-CartPole-v1-0"
    assert RunDirectory.open(run).config["ppo"]["torso"] == "mine:torso"
    for allowed in (["--trust"], ["--import", "mine"]):
        monkeypatch.delitem(sys.modules, "mine")
        assert main(["eval", run, "--episodes", "1"]) == 1
        said = capsys.readouterr().err
        assert "importing mine runs the code in it" in said and "--import mine" in said and "--trust" in said
        assert main(["eval", run, "--episodes", "1", *allowed]) == 0


def test_a_toml_file_names_a_torso(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        "[run]\ntotal_steps = 64\nnum_envs = 4\nevaluation_episodes = 0\nquiet = true\n[ppo]\n"
        'rollout_steps = 8\ntorso = "own_networks:Torso"\n'
    )
    assert main(["train", "ppo", "--config", str(file), "--runs", str(tmp_path)]) == 0
    assert RunDirectory.open(tmp_path / "ppo-CartPole-v1-0").config["ppo"]["torso"] == "own_networks:Torso"


def made(module):
    """A function of a name of its own that returns ``module``."""
    return lambda *spaces: module


class Sized(nn.Linear):
    def __init__(self, inputs, outputs, out_features):
        super().__init__(inputs, outputs)
        self.out_features = out_features


class Waves(nn.Module):
    """Random Fourier features: a random matrix in a buffer, and dense layers."""

    out_features = 6

    def __init__(self, space):
        super().__init__()
        self.register_buffer("matrix", torch.randn(4, 3))
        self.layer = nn.Linear(3, 6)

    def forward(self, observations):
        return self.layer(torch.sin(observations @ self.matrix))


class Centred(nn.Module):
    """Subtracts a constant, or with ``rate`` a running mean."""

    out_features = 6

    def __init__(self, space, rate=0.0):
        super().__init__()
        self.register_buffer("mean", torch.full((4,), 0.5))
        self.layer, self.rate = nn.Linear(4, 6), rate

    def forward(self, observations):
        if self.rate:
            self.mean.lerp_(observations.mean(0), self.rate)
        return self.layer(observations - self.mean)


class Dropping(Centred):
    """Dropout as a function."""

    def forward(self, observations):
        return nn.functional.dropout(self.layer(observations), 0.5, self.training)


WRONG = [
    ({"torso": made(nn.ReLU())}, r"ppo: torso = .*made.*ReLU\.out_features is None; set it to"),
    (
        {"torso": made(Sized(4, 5, 6))},
        r"returned \(2, 5\) float32 for .*\(2, 4\) float32, expected .*\(2, 6\)",
    ),
    ({"torso": made(nn.Linear(3, 5))}, r"fails on observations \(2, 4\) float32: RuntimeError"),
    ({"torso": made(5)}, r"returned a int, not a torch\.nn\.Module"),
    ({"torso": made(nn.Sequential(nn.Linear(4, 2), nn.Dropout()))}, "Dropout has random numbers"),
    ({"torso": Dropping}, "Dropping.* draws random numbers in its forward pass"),
    ({"torso": Waves}, "Waves.*: buffer 'matrix' is not the same in each module"),
    ({"torso": lambda space: Centred(space, 0.1)}, "lambda.* changes its buffer 'mean' in its forward pass"),
    ({"torso": lambda one, two: Torso(one)}, r"called with 1 argument, observation_space: .*'two'"),
    ({"network": lambda one: Torso(one)}, r"called with 2 arguments, observation_space and action_space"),
    ({"network": made(nn.Linear(4, 2))}, r"returned \(2, 2\) float32 .* logits \(2, 2\), values \(2,\)"),
    ({"torso": [3]}, r"torso = \[3\] is neither a function nor its import path"),
    ({"torso": "own_networks"}, "not of the form module:function"),
    ({"torso": "own_networks:tors"}, "module own_networks has no tors"),
    ({"torso": "own_networks:NETWORKS"}, "is of type dict, not a function"),
    ({"torso": "no_such_module:f"}, "No module named 'no_such_module'; it is searched for in the current"),
    ({"torso": Torso, "network": Torso}, "exclude each other"),
    ({"torso": Torso, "hidden": (3,)}, r"hidden = \(3,\) has no effect with torso = 'own_networks:Torso'"),
    ({"network": own_networks.PolicyAndValue, "lstm": 3}, "lstm = 3 needs parl's layers"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_errors_name_the_function_and_what_is_expected(options, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        train("ppo", **PPO, runs=str(tmp_path), **options)
    assert not list(tmp_path.iterdir())


class Lazy(Torso):
    def __init__(self, space):
        super().__init__(space)
        self.layers = nn.Sequential(nn.LazyLinear(6), nn.ReLU())


@pytest.mark.parametrize("torso", [Centred, Lazy])
def test_constant_buffers_and_lazy_layers_are_allowed(torso, tmp_path):
    assert train("ppo", **PPO, runs=str(tmp_path), torso=torso).updates > 0


def test_a_module_is_made_anew_in_each_call(tmp_path):
    torso = Torso(gymnasium.spaces.Box(-1, 1, (4,)))
    with pytest.raises(ConfigError, match="returned a module a second time; make a new one in each call"):
        train("ppo", **PPO, runs=str(tmp_path), torso=lambda space: torso)


@pytest.mark.parametrize(
    ("name", "network", "message"),
    [
        ("dqn", own_networks.PolicyAndValue, r"dqn: network = .* expected float32 values \(2, 2\)"),
        ("rainbow", own_networks.q_network, r"rainbow: .*\(2, 2\) .*expected float32 values \(2, 2, 51\)"),
        ("sac", own_networks.td3_network, r"sac: .*\.actor returned \(2, 1\).* deviations \(2, 2\)"),
        ("td3", own_networks.ddpg_network, r"td3: .*\.critic returned \(1, 2\).*values \(2, 2\)"),
        ("ddpg", own_networks.q_network, r"ddpg: .*Sequential has no module 'actor'"),
    ],
)
def test_errors_name_the_algorithm_and_its_outputs(name, network, message, tmp_path):
    options = options_of(name, tmp_path)
    with pytest.raises(ConfigError, match=message):
        train(name, **options, network=network)


def test_actor_and_critic_share_no_parameter(tmp_path):
    def network(observation_space, action_space):
        module = own_networks.td3_network(observation_space, action_space)
        module.critic.critics[0].bias = module.actor.bias
        return module

    with pytest.raises(ConfigError, match="actor and critic share 1 parameters"):
        train("td3", **options_of("td3", tmp_path), network=network)


def test_iqn_needs_a_torso(tmp_path):
    options = options_of("dqn", tmp_path) | {"distribution": "iqn"}
    with pytest.raises(ConfigError, match=r"iqn.*set torso in place of network"):
        train("dqn", **options, network=own_networks.q_network)
    assert train("dqn", **options, torso=Torso).updates > 0
