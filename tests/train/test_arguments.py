"""Values that ``parl.train`` gets: equivalents of a type are taken, others are refused by name."""

import functools
import math

import gymnasium
import numpy as np
import pytest
import torch

import parl
from parl.algos import dqn, ppo
from parl.errors import ConfigError
from parl.run import RunDirectory
from parl.train import RunConfig

TINY = {"total_steps": 16, "num_envs": 2, "rollout_steps": 8, "evaluation_episodes": 0, "quiet": True}


def train(runs, **options):
    defaults = {"env": "CartPole-v1", "hidden": (2,), **TINY}
    return parl.train("ppo", runs=runs, **{**defaults, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": True}, "seed = True: True is not a whole number"),
        ({"total_steps": [1]}, r"total_steps = \[1\]: \[1\] is not a whole number"),
        ({"threads": None}, "threads = None: None is not a whole number"),
        ({"learning_rate": True}, "learning_rate = True: not a number"),
        ({"learning_rate": math.inf}, "learning_rate = inf is not finite"),
        ({"entropy_coefficient": "inf"}, "entropy_coefficient = inf is not finite"),
        ({"reward_scale": math.nan}, "reward_scale = nan is outside"),
        ({"hidden": (4.0,)}, r"hidden = \(4\.0,\) needs one or more widths, integers"),
        ({"hidden": "4"}, r"hidden = \('4',\) needs one or more widths, integers"),
        ({"hidden": (True,)}, r"hidden = \(True,\) needs"),
        ({"device": None}, "device = 'None' is not a torch device"),
        ({"runs": 3}, "runs = 3: not text"),
        ({"run_config": RunConfig()}, r"run_config is a .*\.RunConfig, ppo takes a .*SyncRunConfig"),
        (
            {"algorithm_config": dqn.Config()},
            r"is a parl\.algos\.dqn\.Config, ppo takes a parl\.algos\.ppo\.Config",
        ),
        ({"env_options": 3}, "env_options = 3 is neither a dictionary nor words"),
        ({"env_options": [1]}, "env_options: 1 is not of the form name=value"),
        ({"env_options": {"x": math.inf}}, "x = inf is no Python literal"),
        ({"env_options": {"x": np.zeros(2)}}, r"x = array\(\[0., 0.\]\) is no Python literal"),
        ({"wrappers": 3}, r"wrappers = 3 is no list, expected \[3\]"),
        ({"env": gymnasium.Env}, r"Env\(\) returned .* lacks observation_space, action_space of an Env"),
        ({"env": lambda: None}, r"<lambda>\(\) returned None, which lacks reset, step"),
    ],
)
def test_values_of_another_type_are_refused(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        train(**{"runs": tmp_path, **options})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["clip", "value_clip", "target_kl", "max_gradient_norm"])
def test_limits_can_be_infinite(tmp_path, name):
    assert train(tmp_path, **{name: math.inf}).stopped == "total_steps"


def test_runs_with_numbers_of_numpy_can_be_loaded_and_resumed(tmp_path):
    numbers = {"hidden": np.array([2, 3]), "learning_rate": np.float32(0.5), "seed": np.int64(3)}
    run = train(tmp_path, **numbers, quiet=np.True_, device=torch.device("cpu"))
    assert parl.load(run.path, "last").config.algorithm.hidden == (2, 3)
    assert parl.resume(run.path, total_steps=32).env_steps >= 32
    config = ppo.Config(hidden=(np.int64(2),), rollout_steps=8)
    run = parl.train("ppo", algorithm_config=config, runs=tmp_path, total_steps=16, num_envs=2, quiet=True)
    assert parl.load(run.path, "last").config.algorithm.hidden == (2,)


def test_no_seed_is_a_random_one_that_the_run_keeps(tmp_path):
    seeds = {RunDirectory.open(train(tmp_path, seed=None).path).config["run"]["seed"] for _ in range(2)}
    assert len(seeds) == 2


def test_wrappers_can_be_any_iterable(tmp_path):
    limit = functools.partial(gymnasium.wrappers.TimeLimit, max_episode_steps=3)
    run = train(tmp_path, wrappers=(one for one in [limit]))
    envs = parl.load(run.path, "last").env_maker(1)
    envs.reset(seed=0)
    assert [envs.step(np.zeros(1, int))[3][0] for _ in range(3)] == [False, False, True]


class Optional(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)

    def __init__(self, **options):
        self.options = options

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, True, False, {}


def test_options_of_environments_keep_their_types(tmp_path):
    options = {
        "a": "3",
        "b": "None",
        "c": " 1",
        "d": "a=b",
        "e": (1, [2]),
        "f": {"a": "1"},
        "g": None,
        "h": True,
    }
    numbers = {"i": np.float32(0.5), "j": np.int64(2), "k": tmp_path}
    run = train(tmp_path, env=Optional, env_options={**options, **numbers})
    envs = parl.load(run.path, "last").env_maker(1)
    assert envs.get_attr("options")[0] == {**options, "i": 0.5, "j": 2, "k": str(tmp_path)}
