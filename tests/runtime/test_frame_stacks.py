"""The replay stores each picture of stacked observations once and returns the stacks the actors saw."""

import dataclasses

import numpy as np
import pytest

import parl
from parl.envs import spec_of
from parl.runtime.off_policy.actor import Actor
from tickets import same_tickets

OPTIONS = {"img_height": 36, "img_width": 36, "num_threads": 1, "max_num_steps_per_episode": 25}


def make(**options):
    return lambda count: parl.AtariVectorEnv("breakout", count, **{**OPTIONS, **options})


class Both:
    """Adds rows to two replays."""

    def __init__(self, *replays):
        self.replays = replays

    def add(self, **columns):
        first, second = (replay.add(**columns) for replay in self.replays)
        np.testing.assert_array_equal(first, second)
        return first


class Random:
    def __init__(self):
        self._rng = np.random.default_rng(0)

    def act(self, observations, env_steps):
        return self._rng.integers(4, size=len(observations))


@pytest.mark.parametrize("autoreset", ["NextStep", "SameStep"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"life_loss": "ends", "padding": "reset", "repeat_action_probability": 0.25},
        {"life_loss": "any", "stack_num": 3},
    ],
    ids=["plain", "ends", "any"],
)
def test_batches_equal_those_of_a_replay_of_whole_stacks(make_setup, options, autoreset):
    setup = make_setup(make(autoreset_mode=autoreset, **options), num_envs=4, prioritized=False)
    assert setup.spec.frame_stack == options.get("stack_num", 4)
    whole = dataclasses.replace(setup, spec=dataclasses.replace(setup.spec, frame_stack=1))
    single, stacks = setup.make_replay(None), whole.make_replay(None)
    same_tickets(single, stacks)
    actor = Actor(setup.maker(4), setup.spec, Random(), Both(single, stacks), 0, seed=5)
    ends = sum(len(actor.step(0)[1]) for _ in range(400))
    actor.close()
    assert ends >= 16
    assert single.sampleable == stacks.sampleable > 1_000
    truncated = 0
    for _ in range(8):
        found, expected = single.sample(256), stacks.sample(256)
        for name in ("obs", "action", "reward", "discount", "indices"):
            np.testing.assert_array_equal(found[name], expected[name])
        # Observations after a termination are not used, and an end within a step may show no new picture.
        goes_on = expected["discount"] > 0
        np.testing.assert_array_equal(found["next_obs"][goes_on], expected["next_obs"][goes_on])
        truncated += expected["truncated"].sum()
    assert truncated > 0
    # Rows hold 1 picture of 1,296 bytes instead of 4 (3); the other columns have some tens of bytes.
    assert stacks.nbytes - single.nbytes > (setup.spec.frame_stack - 1) * 1_296 * setup.replay_capacity


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, (4, "zero")),
        ({"padding": "reset", "stack_num": 2}, (2, "first")),
        ({"obs_type": "ram"}, (4, "zero")),
        ({"grayscale": False}, (4, "zero")),
        ({"grayscale": False, "channel_order": "first"}, (1, "zero")),
        ({"life_loss": "continues"}, (1, "zero")),
        ({"life_loss_info": True}, (1, "zero")),
        ({"life_loss_info": True, "episodic_life": True}, (4, "zero")),
    ],
    ids=str,
)
def test_only_stacks_within_one_episode_are_rebuilt(options, kept):
    env = make(**options)(1)
    spec = spec_of(env)
    assert (spec.frame_stack, spec.stack_padding) == kept
    env.close()


def test_stacks_of_a_wrapped_environment_are_stored_whole():
    from gymnasium.wrappers.vector import TransformObservation

    env = TransformObservation(make()(1), lambda seen: seen[:, ::-1])
    assert spec_of(env).frame_stack == 1
    env.close()
