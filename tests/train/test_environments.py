"""Runs with environments of all kinds: in worker processes, resumed, evaluated, with wrappers and masks."""

import functools
import json
import sys

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import parl
from parl.errors import ConfigError, UntrustedRunError
from parl.run import RunDirectory, read_metrics
from parl.train import evaluate, load, protocol, record, resume, train
from saved_learners import weights_of


class Doors(gymnasium.Env):
    """Two of six doors are open, as ``info`` says, and one of them, as the observation says, gives 1.

    A closed door ends the episode with -10,000. Ten steps truncate it. The best return is 10; without masks a
    random policy passes one step in three.
    """

    observation_space = Discrete(6, start=1)
    action_space = Discrete(6, start=-2)

    def __init__(self, render_mode=None, masks=True):
        self.render_mode, self._masks = render_mode, masks

    def _show(self):
        self._good, other = self.np_random.choice(6, 2, replace=False)
        self._open = np.zeros(6, np.int8)
        self._open[[self._good, other]] = 1
        return self._good + 1, {"action_mask": self._open} if self._masks else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return self._show()

    def step(self, action):
        door = action + 2
        closed = not self._open[door]
        reward = -1e4 if closed else float(door == self._good)
        self._step += 1
        obs, info = self._show()
        return obs, reward, closed, self._step == 10, info

    def render(self):
        return np.zeros((4, 4, 3), np.uint8)


class Panel(gymnasium.Env):
    """Reward 1/3 for each element of an action that is the observation's; truncated after 10 steps."""

    observation_space = Tuple((Discrete(3), MultiBinary(2)))
    action_space = Tuple((Discrete(3, start=4), MultiDiscrete([2, 2])))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return self._show(), {}

    def _show(self):
        self._seen = (self.np_random.integers(3), self.np_random.integers(0, 2, 2).astype(np.int8))
        return self._seen

    def step(self, action):
        number, switches = self._seen
        right = int(action[0] - 4 == number) + int((action[1] == switches).sum())
        self._step += 1
        return self._show(), right / 3, False, self._step == 10, {}


SMALL = {"hidden": (32,), "evaluation_episodes": 3, "quiet": True, "schedule": "deterministic", "seed": 0}
ON_POLICY = SMALL | {"num_envs": 4, "rollout_steps": 32, "learning_rate": 1e-2}
DQN = SMALL | {"num_envs": 4, "n_step": 1, "learning_starts": 100, "replay_ratio": 32.0, "epsilon_steps": 500}
MASKED = {
    "ppo": (ON_POLICY, 2_000),
    "a2c": (ON_POLICY, 4_000),
    "dqn": (DQN | {"gamma": 0.5, "learning_rate": 1e-2}, 1_500),
    "impala": (ON_POLICY | {"actors": 1}, 600),
    "ga3c": (ON_POLICY | {"actors": 1}, 600),
    "rainbow": (DQN, 300),
}


def lowest(run):
    """The lowest mean return of up to 100 episodes; negative if one of them ended at a closed door."""
    return min(one["episode_return"] for one in read_metrics(run.path) if "episode_return" in one)


@pytest.mark.parametrize("name", MASKED)
def test_masked_runs_never_take_an_invalid_action(name, tmp_path):
    """Neither in collection nor in evaluations; without masks nearly every episode ends at a closed door."""
    options, steps = MASKED[name]
    run = train(name, Doors, **options, total_steps=steps, runs=str(tmp_path))
    assert lowest(run) >= 0
    if steps > 1_000:
        assert run.evaluation_return == 10.0
    without = train(
        name, functools.partial(Doors, masks=False), **options, total_steps=200, runs=str(tmp_path)
    )
    assert lowest(without) < 0


def own_torso(space):
    torso = torch.nn.Sequential(torch.nn.Linear(space.shape[0], 16), torch.nn.ReLU())
    torso.out_features = 16
    return torso


def own_network(observations, actions):
    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.both = torch.nn.Linear(observations.shape[0], actions.n + 1)

        def forward(self, seen):
            found = self.both(seen)
            return found[:, :-1], found[:, -1]

    return Network()


@pytest.mark.parametrize(
    ("name", "own"), [("ppo", {"torso": own_torso}), ("ppo", {"network": own_network}), ("dqn", {})]
)
def test_loaded_and_exported_policies_take_valid_actions_only(name, own, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    options = {key: value for key, value in MASKED[name][0].items() if not own or key != "hidden"}
    run = train(name, Doors, **options, **own, total_steps=200, runs=str(tmp_path))
    policy = load(run.path)
    policy.export(tmp_path / "policy.onnx")
    exported = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    envs = policy.env_maker(3)
    obs, _ = envs.reset(seed=3)
    for _ in range(10):
        actions, _ = policy.predict(obs)
        np.testing.assert_array_equal(exported.run(None, dict(obs))[0], actions)
        obs, rewards, *_ = envs.step(actions)
        assert (rewards >= 0).all()


@pytest.mark.parametrize("options", [{"lstm": 8}, {"env": lambda n: same_step_doors(n)}])
def test_masks_go_with_lstms_and_same_step_autoreset(options, tmp_path):
    options = {"env": Doors} | options
    assert lowest(train("ppo", **options, **ON_POLICY, total_steps=400, runs=str(tmp_path))) >= 0


def same_step_doors(num_envs):
    return SyncVectorEnv([Doors] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def test_random_starts_are_refused_with_masks(tmp_path):
    with pytest.raises(ConfigError, match="random_starts = 5: random actions ignore action masks"):
        train("ppo", Doors, **ON_POLICY, random_starts=5, total_steps=200, runs=str(tmp_path))


@pytest.mark.parametrize("name", ["ppo", "a2c", "impala"])
def test_several_choices_at_once_are_learned(name, tmp_path):
    run = train(
        name, Panel, **ON_POLICY | {"rollout_steps": 8, "gamma": 0.0}, total_steps=6_000, runs=str(tmp_path)
    )
    assert run.evaluation_return > 9.0


def test_algorithms_refuse_several_choices_by_name(tmp_path):
    for name in ("dqn", "rainbow", "pqn", "sac", "td3", "ddpg", "es", "ga", "bc"):
        with pytest.raises(
            ConfigError, match=r"MultiDiscrete\(\[3, 2, 2\]\): use a2c, a3c, ga3c, impala or ppo"
        ):
            train(name, Panel, total_steps=10, quiet=True, runs=str(tmp_path))


KINDS = {
    "class": Doors,
    "partial": functools.partial(Doors, masks=True),
    "lambda": lambda: Doors(),
    "instance": Doors(),
    "vector": SyncVectorEnv([Doors] * 4),
    "module": f"{__name__.rpartition('.')[2]}:Doors",
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_environment_trains_resumes_and_is_evaluated(kind, tmp_path):
    """The resumed run has the numbers of an uninterrupted one."""
    options = DQN | {"env": KINDS[kind], "runs": str(tmp_path)}
    whole = train("dqn", **options, total_steps=240, name="whole")
    half = train("dqn", **options, total_steps=140, name="half")
    resume(half.path, total_steps=240)
    assert torch.equal(weights_of(whole.path), weights_of(half.path)) and whole.updates > 50
    assert len(evaluate(half.path, 2)) == 2
    assert (half.path / "env.pkl").exists() is (kind != "module")


def test_actors_in_processes_get_their_own_copies(tmp_path):
    options = DQN | {"schedule": "async", "actors": 2, "learners": 1, "total_steps": 400}
    run = train("dqn", Doors(), **options, runs=str(tmp_path))
    assert run.env_steps >= 400 and lowest(run) >= 0


def test_a_vector_environment_gives_the_number_of_environments(tmp_path):
    options = SMALL | {"rollout_steps": 8, "runs": str(tmp_path), "total_steps": 50}
    run = train("ppo", SyncVectorEnv([Doors] * 3), **options)
    assert RunDirectory.open(run.path).config["run"]["num_envs"] == 3
    run = train("ppo", SyncVectorEnv([Doors] * 3), **options, num_envs=2)
    assert RunDirectory.open(run.path).config["run"]["num_envs"] == 2


def test_functions_as_wrappers_are_kept_with_the_run(tmp_path, monkeypatch):
    """In evaluations and resumed runs too; another process asks for trust before it loads them."""
    short = functools.partial(gymnasium.wrappers.TimeLimit, max_episode_steps=4)
    run = train("ppo", "CartPole-v1", wrappers=[short], **ON_POLICY, total_steps=300, runs=str(tmp_path))
    assert run.evaluation_return == 4.0 and evaluate(run.path, 2).tolist() == [4.0, 4.0]
    assert RunDirectory.open(run.path).config["run"]["wrappers"] == ["TimeLimit"]
    assert resume(run.path, total_steps=400).evaluation_return == 4.0
    monkeypatch.setattr("parl.pickles._written", set())
    with pytest.raises(UntrustedRunError):
        evaluate(run.path, 2)


def test_wrappers_as_text_are_settings(tmp_path):
    text = "gymnasium.wrappers:TimeLimit(max_episode_steps=4)"
    run = train("ppo", "CartPole-v1", wrappers=[text], **ON_POLICY, total_steps=300, runs=str(tmp_path))
    assert RunDirectory.open(run.path).config["run"]["wrappers"] == [text]
    assert not (run.path / "env.pkl").exists() and evaluate(run.path, 1).tolist() == [4.0]
    assert f"ppo on CartPole-v1, wrapped in {text}, greedy" in protocol(run.path)
    assert resume(run.path, total_steps=400).evaluation_return == 4.0


def test_a_class_is_recorded_as_a_video(tmp_path):
    run = train("ppo", Doors, **ON_POLICY, total_steps=200, runs=str(tmp_path))
    record(run.path, tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 0
    run = train("ppo", Panel, **ON_POLICY, total_steps=200, runs=str(tmp_path))  # takes no render_mode
    with pytest.raises(ConfigError, match="gives no pictures"):
        record(run.path, tmp_path / "two.png")


def test_the_command_line_takes_modules_and_wrappers(tmp_path, monkeypatch, capsys):
    from parl.cli import main

    source = "import gymnasium\nclass Short(gymnasium.wrappers.TimeLimit):\n    def __init__(self, env):\n"
    (tmp_path / "own_wrapper.py").write_text(source + "        super().__init__(env, 3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    quick = "--total-steps 100 --num-envs 2 --rollout-steps 8 --hidden 8 --evaluation-episodes 2".split()
    wrappers = ["--wrappers", "own_wrapper:Short", "gymnasium.wrappers:FlattenObservation"]
    assert (
        main(["train", "ppo", "--env", "gymnasium.envs.classic_control:CartPoleEnv", *wrappers, *quick]) == 0
    )
    path = next((tmp_path / "runs").iterdir())
    assert main(["eval", str(path), "--episodes", "2"]) == 0
    assert json.loads((path / "evaluations.jsonl").read_text())["returns"] == [3.0, 3.0]
    sys.modules.pop("own_wrapper")


@pytest.mark.parametrize(
    ("env", "wrappers", "module"),
    [
        ("gymnasium.envs.classic_control:CartPoleEnv", [], "gymnasium.envs.classic_control"),
        ("CartPole-v1", ["gymnasium.wrappers:TimeLimit(max_episode_steps=4)"], "gymnasium.wrappers"),
    ],
)
def test_code_that_a_run_of_another_process_names_needs_trust(env, wrappers, module, tmp_path, monkeypatch):
    """A run could name ``subprocess:Popen`` with arguments."""
    options = SMALL | {"evaluation_episodes": 0, "runs": str(tmp_path), "rollout_steps": 8, "num_envs": 2}
    run = train("ppo", env, wrappers=[*wrappers, f"{__name__}:Slow"], **options, total_steps=20)
    monkeypatch.setattr("parl.functions._NAMED", set())
    for use in (load, resume):
        with pytest.raises(UntrustedRunError, match=r"names .*--import"):
            use(run.path)
    assert load(run.path, trust=True).spec.num_actions == 2
    monkeypatch.setattr("parl.functions._NAMED", {__name__, module})
    assert load(run.path).spec.num_actions == 2


class Slow(gymnasium.Wrapper):
    """A wrapper of a user."""


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("CartPole-v1", ("sutton_bartto_reward=True", "size=3"), "size"),
        (lambda: gymnasium.make("CartPole-v1"), ("size=3",), "set them there"),
        (Doors, ("sise=3",), "sise"),
        ("parl/Pong-v0", ("obs_type=ram", "stack_num=2"), "128"),
    ],
)
def test_wrong_options_of_evaluations_are_refused_before_the_run(env, options, message, tmp_path):
    runs = {"total_steps": 16, "runs": str(tmp_path), "quiet": True}
    with pytest.raises(ConfigError, match=f"evaluation_env_options = .*{message}"):
        train("ppo", env, evaluation_env_options=options, **runs)
    assert not list(tmp_path.iterdir())


def test_a_function_in_place_of_the_runs_environment_takes_no_options_of_evaluations(tmp_path):
    options = {"evaluation_env_options": ("sutton_barto_reward=True",), "evaluation_episodes": 0}
    run = train("ppo", "CartPole-v1", **options, total_steps=16, runs=str(tmp_path), quiet=True)
    with pytest.raises(ConfigError, match="evaluation_env_options = 'sise=3'"):
        resume(run.path, total_steps=32, evaluation_env_options=("sise=3",))
    assert load(run.path, env=lambda: gymnasium.make("CartPole-v1")).env_maker(1).num_envs == 1


def test_a_loaded_policy_keeps_wrappers_that_are_text_or_says_which_it_cannot_apply(tmp_path):
    options = {"total_steps": 16, "runs": str(tmp_path), "quiet": True, "evaluation_episodes": 0}
    limit = "gymnasium.wrappers:TimeLimit(max_episode_steps=3)"
    run = train("ppo", Doors, wrappers=[limit], **options)
    envs = load(run.path, env=lambda: Doors(masks=True)).env_maker(1)
    assert "TimeLimit" in str(envs.unwrapped.envs[0])
    run = train("ppo", "CartPole-v1", wrappers=[lambda env: env], **options)
    with pytest.raises(ConfigError, match=r"wrappers <lambda> are functions .* or trust=True without env"):
        load(run.path, env="CartPole-v1")
    assert load(run.path, env=lambda: gymnasium.make("CartPole-v1")).env_maker(1).num_envs == 1


class FarBounds(gymnasium.Env):
    """Its actions are in 100..200."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(100, 200, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), float(action[0]), bool(self.np_random.random() < 0.2), False, {}


class NearBounds(FarBounds):
    """Its actions are in -1..1."""

    action_space = gymnasium.spaces.Box(-1, 1, (1,))


@pytest.mark.parametrize("name", ["a2c", "es"])
def test_bounds_that_the_first_policy_does_not_reach_are_warned_of(name, tmp_path):
    """All actions would be clipped to one bound, so that nothing can be learned. Once, where a run begins."""
    options = {"total_steps": 64, "hidden": (8,), "num_envs": 2, "schedule": "deterministic", "quiet": True}
    options |= {"evaluation_episodes": 0, "runs": str(tmp_path)}
    with pytest.warns(
        UserWarning, match=f"{name}: actions are in 100..200, but those of the first"
    ) as warned:
        run = train(name, FarBounds, **options)
    assert [one.filename for one in warned] == [__file__]
    # Here a warning would be an error.
    parl.load(run.path, "last", env=FarBounds)
    train(name, FarBounds, **options, init_from=str(run.path))
    train(name, NearBounds, **options)
    if name == "a2c":
        train(name, FarBounds, initial_log_std=4.0, **options)
