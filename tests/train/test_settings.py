"""Every setting of every algorithm has its effect, or it is refused.

A row has another value of a setting and the first stage of a tiny run on which it has an effect:
``network`` (initial weights), ``acting`` (actions with the initial weights) or ``learning`` (result of the
run). A setting without a row fails its test.
"""

import ast
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import tiny_runs
import torch
from own_networks import NETWORKS

import parl
from parl.errors import ConfigError
from parl.train.registry import ALGORITHMS, make_algorithm, module_of, presets_of, topology_of
from parl.train.settings import refuse_acting, refuse_unused, resolve
from parl.types import EnvSpec


class Row(NamedTuple):
    """A setting's test: with ``context``, ``stage`` is the first stage that ``value`` changes."""

    value: Any
    stage: str
    context: dict[str, Any]


class Refused(NamedTuple):
    """The algorithm refuses the setting with an error that matches ``match``."""

    value: Any
    match: str


class Checked(NamedTuple):
    """A setting with a test of its own, ``check(name)``."""

    check: Any


def network(value, **context):
    return Row(value, "network", context)


def acting(value, **context):
    return Row(value, "acting", context)


def learning(value, **context):
    return Row(value, "learning", context)


def check_goals(name):
    """What the replay is asked to do; `test_goals.py` shows what it does."""
    parts = tuple((part, (2,), "float32") for part in ("achieved_goal", "desired_goal"))
    action = {"action_low": (-1.0,), "action_high": (1.0,)}
    discrete = name in ("dqn", "rainbow")
    spec = EnvSpec(
        (),
        "float32",
        () if discrete else (1,),
        "int64" if discrete else "float32",
        2 if discrete else None,
        "next_step",
        observation_parts=parts,
        **{} if discrete else action,
    )
    for options, goals in (({}, None), ({"goals": "final", "goals_per_transition": 2.0}, ("final", 2.0))):
        config = tiny_runs.config_of(name, n_step=1, **options)
        assert make_algorithm(name, config, spec).goals == goals
        assert ("goals_per_transition" in config.unused(spec)) is (goals is None)


def check_pictures(name):
    """Another network for images has other weights."""
    spec = tiny_runs.PICTURES_BOX if name in tiny_runs.CONTINUOUS else tiny_runs.PICTURES
    choices = ("nature", "mlp") if name in ("es", "ga") else ("nature", "impala", "small")
    assert len({tiny_runs.network(name, {"images": images}, spec) for images in choices}) == len(choices)
    with pytest.raises(ConfigError, match="images = 'lenet' is not one of"):
        tiny_runs.config_of(name, images="lenet")


def check_image_features(name):
    spec = tiny_runs.PICTURES_BOX
    assert len({tiny_runs.network(name, {"image_features": width}, spec) for width in (4, 5)}) == 2


def check_channels_last(name):
    """Inputs of the learner's convolutions have the memory format of the setting."""
    spec = tiny_runs.PICTURES_BOX if name in tiny_runs.CONTINUOUS else tiny_runs.PICTURES
    pictures = torch.zeros(3, *spec.observation_shape, dtype=torch.uint8)
    for wanted in (False, True):
        made = make_algorithm(name, tiny_runs.config_of(name, channels_last=wanted), spec)
        network = tiny_runs.observation_network(made.make_learner(5, "cpu"))
        seen = []
        for part in network.modules():
            if isinstance(part, torch.nn.Conv2d):
                part.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[0]))
        network(pictures)
        assert seen
        assert all(x.is_contiguous(memory_format=torch.channels_last) is wanted for x in seen)


def check_freeze_after(name):
    """The learner learns from embeddings of images, and its convolutions stay as they are."""
    spec = tiny_runs.PICTURES_BOX if name in tiny_runs.CONTINUOUS else tiny_runs.PICTURES
    made = make_algorithm(name, tiny_runs.config_of(name, freeze_after=7), spec)
    assert (made.freeze_after, make_algorithm(name, tiny_runs.config_of(name), spec).freeze_after) == (7, 0)
    learner = made.make_learner(5, "cpu")
    learner.freeze()
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (6, *spec.observation_shape), np.uint8)
    embeddings = torch.from_numpy(learner.embed(images))
    action = torch.rand(6, 2) if name in tiny_runs.CONTINUOUS else torch.arange(6) % 4
    before = {key: value.clone() for key, value in tiny_runs.observation_network(learner).named_parameters()}
    batch = SimpleNamespace(
        obs=embeddings,
        next_obs=embeddings.flip(0),
        action=action,
        reward=torch.ones(6),
        discount=torch.full((6,), 0.9),
        weights=torch.ones(6),
        tickets=None,
    )
    for _ in range(2):  # td3 updates its actor in every second update
        learner.compute(batch)
        learner.step()
    for key, value in tiny_runs.observation_network(learner).named_parameters():
        assert torch.equal(before[key], value) is ("convolutions" in key), key


def check_compile(name):
    """Losses are compiled by ``torch.compile`` if the setting is True, else not."""
    with pytest.MonkeyPatch.context() as patch:
        taken = []
        patch.setattr(torch, "compile", lambda function, **_: taken.append(function) or function)
        for wanted in (False, True):
            taken.clear()
            made = make_algorithm(
                name, tiny_runs.config_of(name, compile=wanted), tiny_runs.spec_for(env_of(name))
            )
            made.make_learner(5, "cpu")
            assert bool(taken) is wanted


def env_of(name):
    return tiny_runs.env_of(name, {})


ROLLOUT = {
    "rollout_steps": learning(5),
    "gamma": learning(0.5),
    "reward_scale": learning(0.1),
    "learning_rate": learning(0.01),
    "anneal": learning(False),
    "optimizer": learning("rmsprop"),
    "optimizer_epsilon": learning(0.1),
    "max_gradient_norm": learning(1e-3),
    "normalize_observations": network(True),
    "normalize_rewards": learning(True),
    "frame_deltas": acting(True, environment="stacked"),
    "hidden": network((3,)),
    "precision": learning("bfloat16"),
    "channels_last": Checked(check_channels_last),
    "cuda_graph": Refused(True, "cuda_graph = True"),
}
ACTOR_CRITIC = ROLLOUT | {
    "gae_lambda": learning(0.5),
    "value_coefficient": learning(0.1),
    "entropy_coefficient": learning(0.2),
    "normalize_advantages": learning(False),
    "shared_layers": network(True),
    "activation": acting("relu"),
    "initial_log_std": network(-1.0, environment="Pendulum-v1"),
    "images": Checked(check_pictures),
    "lstm": network(3),
}
A2C = ACTOR_CRITIC | {
    "advantage": learning("vtrace"),
    "window": learning(16),
    "env_groups": learning(2, window=16),
    "rho_max": learning(0.5, advantage="vtrace"),
    "c_max": learning(0.5, advantage="vtrace"),
}
NO_WINDOWS = {
    "window": Refused(16, "window = 16 needs consecutive rollouts of one actor"),
    "env_groups": Refused(2, "env_groups = 2 needs consecutive rollouts of one actor"),
    "normalize_rewards": Refused(True, "normalize_rewards = True needs consecutive rollouts of one actor"),
    "cuda_graph": Refused(True, "cuda_graph = True needs environments on a CUDA device"),
    "normalize_advantages": learning(True),
}
UNUSED_BY_BC = {
    "gamma": 0.5,
    "reward_scale": 0.1,
    "normalize_rewards": True,
    "gae_lambda": 0.5,
    "value_coefficient": 0.1,
    "entropy_coefficient": 0.1,
    "normalize_advantages": False,
    "cuda_graph": True,
}
REPLAYED = {
    "n_step": learning(3),
    "gamma": learning(0.5),
    "reward_scale": learning(0.5),
    "prioritized": learning(True),
    "alpha": learning(0.9, prioritized=True),
    "beta": learning(0.9, prioritized=True),
    "beta_steps": learning(100, prioritized=True),
    "priority_epsilon": learning(1.0, prioritized=True),
    "initial_priority": learning("td", prioritized=True),
    "goals": Checked(check_goals),
    "goals_per_transition": Checked(check_goals),
    "freeze_after": Checked(check_freeze_after),
    "precision": learning("bfloat16"),
    "channels_last": Checked(check_channels_last),
    "compile": Checked(check_compile),
    "cuda_graph": Refused(True, "cuda_graph = True"),
}
DQN_ROWS = REPLAYED | {
    "prioritized": learning(False),
    "double": learning(False),
    "dueling": network(True),
    "dueling_hidden": network(2, dueling=True),
    "distribution": network("c51"),
    "atoms": network(11, distribution="c51"),
    "value_min": network(-1.0, distribution="c51"),
    "value_max": network(1.0, distribution="c51"),
    "atom_spacing": learning("sqrt", distribution="c51"),
    "quantiles": network(5, distribution="qr"),
    "policy_quantiles": learning(1, distribution="iqn", hidden=(16,)),
    "cosines": network(7, distribution="iqn"),
    "noisy": network(True),
    "noisy_sigma": network(2.0, noisy=True),
    "munchausen": learning(0.9),
    "munchausen_temperature": learning(1.0, munchausen=0.9),
    "munchausen_clip": learning(-0.01, munchausen=0.9),
    "cql_alpha": learning(1.0),
    "huber_delta": learning(0.01),
    "hidden": network((3,)),
    "images": Checked(check_pictures),
    "frame_deltas": acting(True, environment="stacked", hidden=(16,)),
    "layer_norm": network(False),
    "learning_rate": learning(0.01),
    "adam_epsilon": learning(0.1),
    "max_gradient_norm": learning(1e-3),
    "target_period": learning(2),
    "target_tau": learning(0.1),
    "epsilon_first": acting(0.5),
    "epsilon_last": acting(0.9),
    "epsilon_steps": acting(60),
    "epsilon_spread": acting(7.0, epsilon_last=0.5, epsilon_steps=1),
}
CRITICS = REPLAYED | {
    "hidden": network((3,)),
    "images": Checked(check_pictures),
    "image_features": Checked(check_image_features),
    "layer_norm": learning(True),
    "learning_rate": learning(0.01),
    "critic_learning_rate": learning(0.01),
    "adam_epsilon": learning(0.1),
    "target_tau": learning(0.5),
    "random_steps": acting(30),
    "noise_correlation": acting(0.9),
}
TD3 = CRITICS | {
    "exploration_noise": acting(0.5),
    "exploration_spread": acting(1.0),
    "critics": network(3),
    "policy_delay": learning(3),
    "preactivation_penalty": learning(0.5, policy_delay=1),
    "target_noise": learning(0.5),
    "target_noise_clip": learning(0.1, target_noise=0.5),
}
POPULATION = {"hidden": network((3,)), "images": Checked(check_pictures), "sigma": learning(0.3)}
TABLE = {
    "ppo": ACTOR_CRITIC
    | {
        "epochs": learning(2),
        "minibatch_size": learning(8),
        "clip": learning(0.01),
        "anneal_clip": learning(True),
        "value_clip": learning(0.01),
        "target_kl": learning(1e-4),
    },
    "a2c": A2C,
    "a3c": A2C
    | NO_WINDOWS
    | {
        "optimizer": learning("adam"),
        "normalize_observations": Refused(True, "normalize_observations = True needs statistics"),
    },
    "ga3c": A2C | NO_WINDOWS | {"lstm": Refused(3, "lstm = 3 needs actors with networks of their own")},
    "impala": A2C | NO_WINDOWS | {"advantage": learning("gae")},
    "bc": ACTOR_CRITIC
    | {name: Refused(value, f"{name} = .* has no use") for name, value in UNUSED_BY_BC.items()}
    | {"minibatch_size": learning(8), "lstm": Refused(3, "lstm = 3 needs steps in a row")},
    "pqn": ROLLOUT
    | {
        "td_lambda": learning(0.5),
        "epochs": learning(2),
        "minibatch_size": learning(8),
        "layer_norm": network(False),
        "epsilon_first": acting(0.5),
        "epsilon_last": acting(0.9),
        "epsilon_steps": acting(60),
        "images": Checked(check_pictures),
        "frame_deltas": acting(True, environment="stacked", hidden=(16,)),
    },
    "dqn": DQN_ROWS,
    "rainbow": DQN_ROWS
    | {
        "dueling": network(False, dueling_hidden=0),
        "dueling_hidden": network(2),
        "distribution": network("qr"),
        "atom_spacing": acting("sqrt"),
        "noisy": network(False),
        "policy_quantiles": acting(1, distribution="iqn", hidden=(8,)),
        "n_step": learning(1),
        "huber_delta": learning(0.01, distribution="qr"),
        "munchausen": learning(0.9, distribution="qr"),
        "munchausen_temperature": learning(1.0, distribution="qr", munchausen=0.9),
        "munchausen_clip": learning(-0.01, distribution="qr", munchausen=0.9),
    },
    "sac": CRITICS
    | {
        "critics": network(3),
        "target_critics": learning(1),
        "temperature": network(0.5),
        "learn_temperature": learning(False),
        "target_entropy": learning(1.0),
        "target_entropy_share": learning(0.9, environment="CartPole-v1"),
    },
    "td3": TD3,
    "ddpg": TD3,
    "es": POPULATION
    | {"learning_rate": learning(0.01), "weight_decay": learning(0.1), "adam_epsilon": learning(0.1)},
    "ga": POPULATION | {"parents": learning(3), "elites": learning(0)},
}
for _name, _network in NETWORKS.items():
    TABLE[_name] = TABLE[_name] | {
        "torso": network("own_networks:Torso"),
        "network": network(f"own_networks:{_network.__name__}"),
    }
SETTINGS = [
    pytest.param(name, field.name, id=f"{name}-{field.name}")
    for name in sorted(ALGORITHMS)
    for field in dataclasses.fields(module_of(name).Config)
]


@pytest.fixture(scope="module")
def stage_of(tmp_path_factory):
    """``tiny_runs.stage_of`` with a cache for settings with the same context; torch uses one thread."""
    folder, threads, found = tmp_path_factory.mktemp("play"), torch.get_num_threads(), {}
    torch.set_num_threads(1)

    def cached(stage, name, env, own):
        key = (stage, name, env, *sorted(own.items()))
        if key not in found:
            data = tiny_runs.write_play(folder, env) if name == "bc" else ()
            found[key] = tiny_runs.digest_of_stage(stage, name, own, env, data)
        return found[key]

    yield cached
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_runs_with_the_same_settings_are_the_same(name, stage_of, tmp_path):
    env = env_of(name)
    data = tiny_runs.write_play(tmp_path, env) if name == "bc" else ()
    for stage in tiny_runs.STAGES:
        assert stage_of(stage, name, env, {}) == tiny_runs.digest_of_stage(stage, name, {}, env, data)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_rows_are_of_settings_that_exist(name):
    fields = {field.name for field in dataclasses.fields(module_of(name).Config)}
    assert not TABLE[name].keys() - fields


@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_a_setting_has_its_effect(name, setting, stage_of):
    row = TABLE[name].get(setting)
    assert row is not None, f"setting {setting} of {name} has no row in the table"
    if isinstance(row, Checked):
        row.check(name)
        return
    if isinstance(row, Refused):
        with pytest.raises(ConfigError, match=row.match):
            tiny_runs.learning(name, {setting: row.value}, env_of(name))
        return
    own = {key: value for key, value in row.context.items() if key != "environment"}
    env = tiny_runs.env_of(name, row.context)
    base = dataclasses.asdict(tiny_runs.config_of(name, **own))
    assert base[setting] != row.value, f"{row.value} is the value that the run has already"
    differs = [
        stage_of(stage, name, env, own) != stage_of(stage, name, env, own | {setting: row.value})
        for stage in tiny_runs.STAGES
    ]
    assert any(differs), f"{setting} = {row.value} of {name} changes nothing"
    assert differs[-1], f"{setting} = {row.value} of {name} does not change the result of a run"
    assert tiny_runs.STAGES[differs.index(True)] == row.stage


def test_every_field_of_every_dataclass_is_read():
    """Compares names: an attribute with the name of the field is read somewhere in the package."""
    fields, read = [], set()
    for path in Path(parl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
            if isinstance(node, ast.ClassDef) and any(
                "dataclass" in ast.unparse(decorator) for decorator in node.decorator_list
            ):
                fields += [
                    (node.name, item.target.id)
                    for item in node.body
                    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
                ]
    assert len(fields) > 300
    unread = {f"{kind}.{name}" for kind, name in fields if name not in read}
    for_users = {
        "SavedCheckpoint.is_best",
        "BranchResult.raw_rewards",
        "Modification.description",
    }
    assert unread == for_users, "only users read these"


CONDITIONAL = [
    pytest.param(name, setting, id=f"{name}-{setting}")
    for name, rows in sorted(TABLE.items())
    for setting, row in rows.items()
    if isinstance(row, Row) and row.context
]


@pytest.mark.parametrize(("name", "setting"), CONDITIONAL)
def test_a_setting_without_its_context_is_refused_if_it_has_no_effect(name, setting, stage_of):
    row, env = TABLE[name][setting], env_of(name)
    spec = tiny_runs.spec_for(env)
    refuse_unused(name, tiny_runs.config_of(name), spec)
    try:
        config = tiny_runs.config_of(name, **{setting: row.value})
        differs = stage_of("learning", name, env, {}) != stage_of("learning", name, env, {setting: row.value})
    except ConfigError:
        return  # refused already
    if differs:
        refuse_unused(name, config, spec)
    else:
        with pytest.raises(ConfigError, match=f"{name}: {setting} = .* has no effect with "):
            refuse_unused(name, config, spec)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_settings_of_images_are_refused_for_vectors(name):
    spec = tiny_runs.spec_for(env_of(name))
    values = {
        "images": "mlp" if name in ("es", "ga") else "impala",
        "image_features": 7,
        "channels_last": True,
    }
    for setting in values.keys() & {field.name for field in dataclasses.fields(module_of(name).Config)}:
        with pytest.raises(ConfigError, match=f"{setting} = .* has no effect with observations"):
            refuse_unused(name, tiny_runs.config_of(name, **{setting: values[setting]}), spec)


@pytest.mark.parametrize(
    ("name", "setting", "value", "more"),
    [
        ("ppo", "activation", "relu", {}),
        ("a2c", "activation", "relu", {"lstm": 4}),
        ("ppo", "shared_layers", True, {}),
        ("dqn", "hidden", (100,), {"dueling": True, "dueling_hidden": 8}),
    ],
)
def test_settings_without_effect_on_networks_for_images_are_refused(name, setting, value, more):
    spec, config = tiny_runs.PICTURES, module_of(name).Config(**more)
    networks = [
        [*make_algorithm(name, one, spec).make_learner(0, "cpu").network.parameters()]
        for one in (config, dataclasses.replace(config, **{setting: value}))
    ]
    assert all(map(torch.equal, *networks))
    with pytest.raises(ConfigError, match=f"{setting} = .* has no effect with"):
        refuse_unused(name, dataclasses.replace(config, **{setting: value}), spec)


@pytest.mark.parametrize("name", ["sac", "td3", "ddpg"])
@pytest.mark.parametrize(("setting", "value"), [("random_steps", 77), ("noise_correlation", 0.5)])
def test_exploration_is_refused_with_a_dataset(name, setting, value):
    run = topology_of(name).config(dataset="data")
    spec = tiny_runs.spec_for("Pendulum-v1")
    refuse_acting(name, run, module_of(name).Config(), spec)
    with pytest.raises(ConfigError, match=f"{setting} = {value} has no effect with dataset = 'data'"):
        refuse_acting(name, run, module_of(name).Config(**{setting: value}), spec)


@pytest.mark.parametrize("name", ["ppo", "a2c", "pqn"])
def test_the_scale_of_rewards_is_refused_if_they_are_normalized(name):
    """Rewards are divided by their own deviation, which has the same scale."""
    spec = tiny_runs.spec_for(env_of(name))
    config = tiny_runs.config_of(name, normalize_rewards=True, reward_scale=0.05)
    with pytest.raises(
        ConfigError, match=r"reward_scale = 0\.05 has no effect with normalize_rewards = True"
    ):
        refuse_unused(name, config, spec)
    refuse_unused(name, dataclasses.replace(config, normalize_rewards=False), spec)
    refuse_unused(name, dataclasses.replace(config, reward_scale=1.0), spec)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_defaults_and_presets_have_no_setting_without_effect(name):
    pictures = tiny_runs.PICTURES_BOX if name in tiny_runs.CONTINUOUS else tiny_runs.PICTURES
    for spec in (tiny_runs.spec_for(env_of(name)), pictures):
        assert refuse_unused(name, resolve(name, spec)[1], spec) is None
    for preset in presets_of(name).values():
        own = dataclasses.replace(module_of(name).Config(), **preset.algorithm)
        images = {"channels_last", "images"} & set(preset.algorithm)
        spec = pictures if images else tiny_runs.spec_for(env_of(name))
        assert refuse_unused(name, own, spec) is None
