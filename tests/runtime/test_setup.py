"""Sizes, numbers and seeds of replays, actors and learners follow from the settings of a run."""

import dataclasses

import gymnasium
import pytest
from rollout_setup import rollout_setup

from parl.algos.a2c import A2C, Config
from parl.envs import EnvMaker, spec_of
from parl.runtime.distributed.group import Group
from parl.runtime.off_policy import actor as actors
from parl.runtime.off_policy import setup as setups
from parl.runtime.off_policy.actor import env_range, make_actor
from parl.runtime.off_policy.setup import OffPolicySetup
from parl.runtime.on_policy import setup as rollout_setups
from parl.runtime.on_policy.setup import RolloutSetup
from parl.runtime.on_policy.start_states import StartStates
from parl.runtime.seeds import actor_seeds, training_seed


class Made:
    """Replaces a class and keeps the arguments of its constructor."""

    def __init__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs


@pytest.mark.parametrize(
    ("learners", "group", "norm", "seed"),
    [
        (1, None, "batch", 3),
        (2, None, "global", 3),
        (1, Group(0, 2, 0), "global", 3),
        (1, Group(2, 3, 0), "global", 3 + 4_000_058),
    ],
)
def test_a_replay_has_the_columns_and_options_of_the_run(
    make_setup, monkeypatch, learners, group, norm, seed
):
    monkeypatch.setattr(setups, "PrioritizedReplay", Made)
    setup = dataclasses.replace(make_setup(learners=learners, seed=3), group=group)
    replay = setup.make_replay("name", "cuda")
    columns = {
        "obs": ((4,), "float32"),
        "action": ((), "int64"),
        "reward": ((), "float32"),
        "terminated": ((), "bool"),
        "truncated": ((), "bool"),
    }
    assert replay.args == (5_000, columns)
    own = setup.algorithm.replay_options()
    assert own["n_step"] == 3
    assert replay.kwargs == own | {
        "autoreset": "next_step",
        "num_envs": 4,
        "shared": "name",
        "device": "cuda",
        "seed": seed,
        "frame_stack": 1,
        "stack_padding": setup.spec.stack_padding,
        "weight_norm": norm,
        "hindsight": None,
    }
    assert setup.make_replay(None).kwargs["device"] == "cpu"


@pytest.mark.parametrize(("stack", "shape"), [(1, (1, 84, 84)), (2, (84, 84)), (4, (84, 84))])
def test_pictures_of_a_stack_are_stored_once(make_setup, monkeypatch, stack, shape):
    monkeypatch.setattr(setups, "PrioritizedReplay", Made)
    setup = make_setup()
    spec = dataclasses.replace(setup.spec, frame_stack=stack, observation_shape=(stack, 84, 84))
    replay = dataclasses.replace(setup, spec=spec).make_replay(None)
    assert replay.args[1]["obs"][0] == shape and replay.kwargs["frame_stack"] == stack


def test_an_actor_depends_on_the_run_and_on_its_resumes(make_setup, monkeypatch):
    monkeypatch.setattr(setups, "make_actor", Made)
    setup = make_setup(actors=3, num_envs=7, seed=11)
    made = setup.make_actor(2, "replay", 0).args
    assert made == (setup.maker, setup.spec, setup.algorithm, "replay", 2, 3, 7, 11, False)
    changed = dataclasses.replace(setup, group=Group(2, 3, 0), double_buffer=True)
    assert changed.make_actor(1, "replay", 3).args[4:] == (1, 3, 7, 11 + 3_000_009 + 4_000_058, True)


def test_a_learner_has_a_part_of_the_batch(make_setup, monkeypatch):
    monkeypatch.setattr(setups, "LearnerWorker", Made)
    setup = dataclasses.replace(make_setup(learners=3, batch_size=32), prefetch=4, priority_delay=5)
    assert setup.learner_batch_size == 10
    made = setup.make_learner_worker("learner", "replay", "peers", 2).args
    assert made == (setup.algorithm, "learner", "replay", "peers", 10, 2, 3, 4, 5)


def test_optional_features_of_off_policy_runs_are_off_by_default(make_setup):
    fields = {field.name: field.default for field in dataclasses.fields(OffPolicySetup)}
    assert fields["threads"] == 1 and fields["prefetch"] == fields["priority_delay"] == 0
    assert not fields["park_actors"] and not fields["learner_threads"]


def test_environments_are_divided_evenly():
    assert [env_range(index, 3, 8) for index in range(3)] == [(0, 2), (2, 5), (5, 8)]
    assert [env_range(index, 4, 4) for index in range(4)] == [(0, 1), (1, 2), (2, 3), (3, 4)]


class Algorithm:
    """A fake algorithm: a policy is the tuple of arguments that it was made with."""

    actor_priorities = False
    rollout_steps, memory = 5, 3

    def make_policy(self, *args):
        return args


@pytest.mark.parametrize("double_buffer", [False, True])
def test_an_actor_has_its_own_environments_and_seeds(monkeypatch, double_buffer):
    monkeypatch.setattr(actors, "Actor", Made)
    monkeypatch.setattr("parl.runtime.off_policy.double_buffer.DoubleBufferedActor", Made)
    maker = EnvMaker("CartPole-v1")
    spec = spec_of(maker(1))
    policy_seed, env_seed = actor_seeds(9, 1)
    made = make_actor(maker, spec, Algorithm(), "replay", 1, 2, 9, 9, double_buffer)
    parts = made.args if double_buffer else (made,)
    starts = (4, 6) if double_buffer else (4,)
    for part, start, count in zip(parts, starts, (2, 3) if double_buffer else (5,), strict=True):
        env, *rest = part.args
        assert env.num_envs == count
        policy = (1, 2, 5, policy_seed)
        assert rest == [spec, policy, "replay", start, env_seed + start - 4, None]
        assert part.kwargs == {"pickles": False, "relabels_goals": False}
    made = make_actor(
        EnvMaker(lambda: gymnasium.make("CartPole-v1")), spec, Algorithm(), "replay", 0, 1, 2, 9
    )
    assert made.kwargs["pickles"], "an environment made by a function of the user may have to be pickled"


def fake_setup(**options):
    made = rollout_setup(lambda *_: Algorithm(), None, seed=7, num_envs=8, actors=3, processes=False)
    return dataclasses.replace(made, **options)


@pytest.mark.parametrize(("group", "before", "more"), [(None, 0, 0), (Group(2, 3, 0), 16, 4_000_058)])
def test_a_rollout_actor_has_its_own_environments_and_seeds(monkeypatch, group, before, more):
    monkeypatch.setattr(rollout_setups, "RolloutActor", Made)
    setup = fake_setup(group=group, random_steps=6)
    assert [setup.num_envs_of(index) for index in range(3)] == [2, 3, 3]
    policy_seed, env_seed = actor_seeds(7 + 2_000_006 + more, 1)
    env, *rest = setup.make_actor(1, 2).args
    assert env.num_envs == 3
    assert rest == [setup.spec, (1, 3, 3, policy_seed), env_seed, 6, 2 + before, False, None]
    assert setup.make_actor(1, 0, "other").args[2] == "other"
    setup = dataclasses.replace(setup, maker=EnvMaker(lambda: gymnasium.make("CartPole-v1")))
    assert setup.make_actor(2, 0).args[-2] is True
    starts = dataclasses.replace(setup, start_share=0.5).make_actor(2, 0).args[-1]
    assert isinstance(starts, StartStates)


def test_a_buffer_is_as_wide_as_its_actor(monkeypatch):
    monkeypatch.setattr(rollout_setups, "RolloutBuffer", Made)
    setup = fake_setup()
    assert setup.make_buffer(0).args == (setup.spec, 5, 2, None, 3)
    assert setup.make_buffer(2, "context").args == (setup.spec, 5, 3, "context", 3)


def test_optional_features_of_rollouts_are_off_by_default():
    fields = {field.name: field.default for field in dataclasses.fields(RolloutSetup)}
    names = (
        "actors",
        "processes",
        "max_lag",
        "predictors",
        "trainers",
        "rollouts_per_update",
        "random_steps",
    )
    assert [fields[name] for name in names] == [1, False, 0, 1, 1, 1, 0]


def test_seeds_of_a_population_change_with_the_generation():
    import numpy as np

    from parl.runtime.population import PopulationSetup

    maker = EnvMaker("CartPole-v1")
    setup = PopulationSetup(
        algorithm=None,
        maker=maker,
        spec=spec_of(maker(1)),
        seed=4,
        num_envs=10,
        total_steps=10**6,
        actors=1,
        processes=False,
        member_batches=3,
    )
    word = int(np.random.SeedSequence([4, 6]).generate_state(1)[0])
    assert setup.env_seed(6) == training_seed(word) != setup.env_seed(7)
    assert [(part.start, part.stop) for part in setup.batch_slices()] == [(0, 3), (3, 6), (6, 10)]


def test_policies_of_evaluations_are_made_for_one_environment(make_setup):
    policy = dataclasses.replace(make_setup(), algorithm=Algorithm()).make_policy()
    assert policy == fake_setup().make_policy() == (0, 1, 1, 0)
    a2c = A2C(Config(hidden=(4,)), spec_of(EnvMaker("CartPole-v1")(1)))
    learners = [fake_setup(algorithm=a2c, seed=seed).make_learner() for seed in (3, 3, 4)]
    assert (learners[0].weights == learners[1].weights).all()
    assert (learners[0].weights != learners[2].weights).any()
