"""Games that continue from saved states: which ones, what the actor sees, and what is counted."""

import numpy as np
import pytest

import parl
from parl.algos.a2c import Config
from parl.envs import spec_of
from parl.errors import RunDirectoryError
from parl.runtime.on_policy.rollout import RolloutActor, RolloutBuffer
from parl.runtime.on_policy.start_states import EVERY, KEPT, SavedStates, StartStates
from parl.train.registry import make_algorithm

ENVS, STEPS = 4, 60
# Games of ten steps.
OPTIONS = {"obs_type": "ram", "stack_num": None, "max_num_frames_per_episode": 40, "reward_clipping": False}


class Watched(parl.AtariVectorEnv):
    """Keeps mask and states of each reset to states, and the states that are asked for."""

    def reset(self, *, seed=None, options=None, out=None):
        if options and "states" in options:
            self.resets.append((options["reset_mask"].copy(), options["states"].copy()))
        return super().reset(seed=seed, options=options, out=out)

    def get_state(self, mask=None):
        states = super().get_state(mask)
        self.asked += [(mask.tolist(), state.tobytes()) for state in states]
        return states


def actor_of(mode="NextStep", share=1.0, saved=None, seed=3, **options):
    env = Watched("breakout", ENVS, autoreset_mode=mode, **OPTIONS | options)
    env.resets, env.asked = [], []
    spec = spec_of(env)
    policy = make_algorithm("a2c", Config(hidden=(4,)), spec).make_policy(0, 1, ENVS, seed)
    starts = StartStates(ENVS, share, saved, seed)
    return RolloutActor(env, spec, policy, seed, start_states=starts), RolloutBuffer(spec, STEPS, ENVS)


def saved_states(steps=30, count=3, **options):
    """States of one long game, with other points than a game of the run can have."""
    options = OPTIONS | {"max_num_frames_per_episode": 10_000} | options
    env = parl.AtariVectorEnv("breakout", 1, **options)
    env.reset(seed=9)
    rows = []
    for step in range(steps):
        env.step(np.array([step % 4]))
        rows.append(env.get_state()[0])
    return SavedStates.of(rows[-count:], [100.0] * count, range(steps - count + 1, steps + 1))


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_games_continue_from_states_of_the_first_environment(mode):
    actor, buffer = actor_of(mode)
    for _ in range(2):
        actor.collect(buffer, 0)
    resets, asked = actor._env.resets, actor._env.asked
    assert len(resets) >= 5
    assert all(mask == [True, False, False, False] for mask, _ in asked)
    for mask, states in resets:
        assert not mask[0] and mask.any() and len(states) == mask.sum()
        assert {state.tobytes() for state in states} <= {state for _, state in asked}
    # Environment 0 plays games of ten steps, the others shorter ones.
    lengths = np.diff(np.nonzero(buffer.ended[:, 0])[0])
    assert set(lengths) == {10 if mode == "SameStep" else 11}
    assert buffer.ended[:, 1].sum() > buffer.ended[:, 0].sum()
    actor.close()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("seen", [{}, {"obs_type": "gray", "stack_num": 4}])
def test_observations_are_those_of_the_states(mode, seen):
    saved = saved_states(**seen)
    env = parl.AtariVectorEnv("breakout", 3, **OPTIONS | seen)
    shown, _ = env.reset(options={"states": saved.states})
    actor, buffer = actor_of(mode, saved=saved, max_num_frames_per_episode=160, **seen)
    actor.collect(buffer, 0)
    assert any((buffer.obs[0, 0] == one).all() for one in shown)  # also of the first game
    begins = buffer.ended if mode == "SameStep" else np.roll(buffer.ended, 1, axis=0)
    begins = [(t, n) for t, n in zip(*np.nonzero(begins), strict=True) if t > 0]
    assert len(begins) >= ENVS
    for t, n in begins:
        assert any((buffer.obs[t + 1, n] == one).all() for one in shown)
    actor.close()


def test_the_share_is_that_of_the_games():
    saved = saved_states()
    counts = []
    for share in (0.25, 1.0):
        actor, buffer = actor_of(share=share, saved=saved)
        _, finished, _ = actor.collect(buffer, 0)
        continued = sum(int(mask.sum()) for mask, _ in actor._env.resets)
        # Games from the states after steps 28 to 30 are truncated at once, whole ones after ten steps.
        lengths = {length for _, length in finished}
        assert lengths - {10} == {29, 30, 31} and (10 in lengths) is (share < 1)
        counts.append(continued / (len(finished) + ENVS))
        actor.close()
    assert counts[1] == 1.0 and 0.1 < counts[0] < 0.6


def test_returns_include_those_before_the_state():
    actor, buffer = actor_of(saved=saved_states(), max_num_frames_per_episode=200)
    transitions, finished, rewards = actor.collect(buffer, 0)
    assert finished and all(points >= 100.0 for points, _ in finished)
    assert {length for _, length in finished} == {50}
    # The sum of rewards has the points that games began with, so that its mean is that of whole games.
    began = sum(int(mask.sum()) for mask, _ in actor._env.resets)
    assert rewards == buffer.reward.sum() + 100.0 * began
    assert transitions == buffer.valid.sum()
    actor.close()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_games_go_on_after_a_lost_life(mode):
    """Only new games continue from states, and no state is one between a lost life and the next."""
    actor, buffer = actor_of(mode, life_loss="continues", max_num_frames_per_episode=100_000)
    finished, ended = [], 0
    for _ in range(12):
        finished += actor.collect(buffer, 0).finished
        ended += int(buffer.ended.sum())
    assert len(finished) >= 4 and ended >= 3 * len(finished)
    continued = sum(int(mask.sum()) for mask, _ in actor._env.resets)
    assert 1 <= continued <= len(finished)
    rows = np.stack([np.frombuffer(state, np.uint8) for _, state in actor._env.asked])
    assert (actor._env.branch(rows, np.zeros((len(rows), 1, 1), np.int64)).lengths == 1).all()
    actor.close()


def test_a_saved_actor_goes_on_with_the_same_games():
    actor, buffer = actor_of()
    actor.collect(buffer, 0)
    state = actor.save()
    actor.collect(buffer, 0)
    expected = {name: getattr(buffer, name).copy() for name in buffer.names()}
    actor.close()
    other, buffer = actor_of(seed=8)
    other.load(state)
    other.policy.weights.copy_(actor.policy.weights)
    other.collect(buffer, 0)
    for name, column in expected.items():
        np.testing.assert_array_equal(getattr(buffer, name), column)
    other.close()


def test_only_the_last_states_are_kept():
    env = parl.AtariVectorEnv("breakout", 2, **OPTIONS)
    env.reset(seed=0)
    starts = StartStates(2, 1.0, None, 0)
    assert starts.draw(np.array([True, True])) is None  # there is no state yet
    for step in range(EVERY * (KEPT + 3)):
        starts.keep(env, np.array([step, 0.0]), np.array([step, 0]), playing=True)
    assert starts.state_dict()["lengths"] == [EVERY * (n + 4) - 1 for n in range(KEPT)]
    assert starts.draw(np.array([True, False])) is None  # nor does the first environment continue


def test_a_damaged_file_of_states_is_named():
    saved = saved_states()
    data = saved.to_bytes()
    again = SavedStates.from_bytes(data, "file")
    np.testing.assert_array_equal(again.states, saved.states)
    np.testing.assert_array_equal(again.returns, saved.returns)
    with pytest.raises(RunDirectoryError, match="file is damaged"):
        SavedStates.from_bytes(data[:100], "file")
