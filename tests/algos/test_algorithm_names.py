"""Error messages begin with the name of the algorithm in use, also if it shares its code with others."""

import dataclasses

import pytest

from parl.algos import ddpg, rainbow, td3
from parl.errors import ConfigError
from parl.train.registry import ALGORITHMS, make_algorithm, module_of
from parl.types import EnvSpec

DISCRETE = EnvSpec((3,), "float32", (), "int64", 2, "next_step")
SEVERAL = dataclasses.replace(DISCRETE, num_actions=None, action_shape=(2,), action_branches=(2, 3))
NAMES = sorted(ALGORITHMS)


@pytest.mark.parametrize("name", NAMES)
def test_settings_have_the_name_of_their_algorithm(name):
    kind = module_of(name).Config
    assert kind.algorithm_name == name
    with pytest.raises(ConfigError, match=rf"^{name}: hidden = \(\) needs one or more widths"):
        kind(hidden=())
    with pytest.raises(ConfigError, match=f"^{name}: images = 'lenet' is not one of nature"):
        kind(images="lenet")


@pytest.mark.parametrize("name", ["dqn", "rainbow", "sac", "td3", "ddpg"])
def test_errors_of_settings_that_algorithms_share_name_the_one_in_use(name):
    kind = module_of(name).Config
    with pytest.raises(ConfigError, match=f"^{name}: goals = 'future' needs n_step = 1, not 3"):
        kind(goals="future", n_step=3)
    with pytest.raises(ConfigError, match=f"^{name}: freeze_after = 9 changes the shape"):
        kind(freeze_after=9, compile=True)
    with pytest.raises(ConfigError, match=f"^{name}: gamma = 2 is outside 0 to 1"):
        kind(gamma=2)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"atoms": 1}, "atoms = 1 is outside 2 to 1024"),
        ({"huber_delta": 0}, "huber_delta = 0 is not above 0"),
        ({"value_min": 11}, "value_min = 11 must be below"),
        ({"munchausen": 1}, "munchausen = 1 does not work with"),
        ({"dueling": False}, "dueling_hidden = 64 needs dueling = True"),
    ],
)
def test_errors_of_rainbow_do_not_name_dqn(setting, message):
    with pytest.raises(ConfigError, match=f"^rainbow: {message}"):
        rainbow.Config(**setting)


@pytest.mark.parametrize("name", NAMES)
def test_errors_of_environments_name_the_algorithm_in_use(name):
    spec = dataclasses.replace(DISCRETE, observation_dtype="complex64")
    with pytest.raises(ConfigError, match=rf"^{name}: observation \(3,\) has dtype complex64"):
        make_algorithm(name, module_of(name).Config(), spec)


def test_errors_of_actions_name_the_algorithm_in_use():
    with pytest.raises(ConfigError, match=r"^rainbow needs a discrete action space"):
        rainbow.Rainbow(rainbow.Config(), SEVERAL)
    with pytest.raises(ConfigError, match=r"^ddpg needs a continuous action space"):
        td3.DeterministicPolicy(ddpg.Config(), DISCRETE, 0.1, 1, 0)
    with pytest.raises(ConfigError, match=r"^ddpg needs a continuous action space"):
        td3.TD3Learner(ddpg.Config(), DISCRETE, 0, "cpu")
