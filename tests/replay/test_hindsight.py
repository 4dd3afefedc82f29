"""Hindsight goals, compared with a model that records which goals each episode achieved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parl

GOAL = ((2,), "float64")
OBS = {"observation": ((), "int64"), "achieved_goal": GOAL, "desired_goal": GOAL}
FIELDS = {
    "obs": OBS,
    "action": ((), "int64"),
    "reward": ((), "float64"),
    "terminated": ((), "bool"),
    "truncated": ((), "bool"),
    "info": {"threshold": ((), "float64")},
}
STEP = st.tuples(st.integers(0, 1), st.sampled_from(["go on"] * 5 + ["terminated", "truncated"]))


def reward_fn(achieved, desired, info):
    """The distance, scaled by the threshold of the row so that mixed-up rows differ."""
    return -np.abs(achieved - desired).sum(axis=1) * info["threshold"]


def observation(numbers) -> dict:
    n = np.asarray(numbers, np.float64)
    return {
        "observation": n.astype(np.int64),
        "achieved_goal": np.stack([n, -n], 1),
        "desired_goal": np.stack([n * 0 + 1000, n * 0 - 1000], 1),
    }


@settings(max_examples=100)
@given(
    steps=st.lists(STEP, max_size=60),
    strategy=st.sampled_from(["future", "final", "episode"]),
    autoreset=st.sampled_from(["next_step", "same_step"]),
    explicit_next=st.booleans(),
    final_with=st.sampled_from([("truncated",), ("truncated", "terminated")]),
    k=st.sampled_from([0.0, 1.0, 4.0]),
    seed=st.integers(0, 5),
)
def test_every_goal_was_achieved_in_the_episode_of_its_row(
    steps, strategy, autoreset, explicit_next, final_with, k, seed
):
    spec = {**FIELDS, **({"next_obs": OBS} if explicit_next else {})}
    hindsight = parl.Hindsight(reward_fn, strategy=strategy, k=k)
    replay = parl.UniformReplay(
        100, spec, gamma=0.5, num_envs=2, autoreset=autoreset, hindsight=hindsight, seed=seed
    )
    # Observation n holds n. The one after step n holds n + 0.25 in next_obs, n + 0.75 in final_obs.
    episodes: dict[int, list[tuple[int, float | None]]] = {}  # Per environment: rows, and what they achieved.
    episode_of: dict[int, list] = {}
    final_next: dict[int, list] = {}
    for number, (env, end) in enumerate(steps):
        open_ = episodes.setdefault(env, [])
        is_final = env in final_next
        if is_final:
            row = final_next.pop(env)
            if not explicit_next:
                row[1] = number
        else:
            if open_ and not explicit_next:
                open_[-1][1] = number
            row = [number, number + 0.25 if explicit_next else None]
            open_.append(row)
            episode_of[number] = open_
        gave_final = autoreset == "same_step" and end in final_with and not explicit_next
        if gave_final:
            row[1] = number + 0.75
        if not is_final and end != "go on":
            episodes[env] = []
            if autoreset == "next_step":
                final_next[env] = row
        extra = {"next_obs": observation([number + 0.25])} if explicit_next else {}
        if autoreset == "same_step" and not explicit_next:
            extra["final_obs"] = observation([number + 0.75]) if gave_final else None
        replay.add(
            obs=observation([number]),
            action=[number],
            reward=[7.0],
            terminated=[end == "terminated"],
            truncated=[end == "truncated"],
            info={"threshold": [number + 1.0]},
            env_id=[env],
            **extra,
        )
    if not replay.sampleable:
        return
    batch = replay.sample(64)
    assert set(batch) >= {"relabelled", "next_obs"} and "hindsight_goal" not in batch
    for j, number in enumerate(batch.action.tolist()):
        episode = episode_of[number]
        at = next(i for i, row in enumerate(episode) if row[0] == number)
        goal = batch.obs.desired_goal[j]
        np.testing.assert_array_equal(batch.next_obs.desired_goal[j] == goal, [True, True])
        if not batch.relabelled[j]:
            assert goal.tolist() == [1000, -1000] and batch.reward[j] == 7
            continue
        there = [row[1] for row in (episode if strategy == "episode" else episode[at:]) if row[1] is not None]
        if strategy == "final":
            there = there[-1:]
        assert goal[0] in there and goal[1] == -goal[0]
        achieved = batch.next_obs.achieved_goal[j]
        assert achieved[0] == episode[at][1], "the reward is that of the row's own step"
        assert batch.reward[j] == pytest.approx(-2 * abs(achieved[0] - goal[0]) * (number + 1))
    if k == 0:
        assert not batch.relabelled.any()


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_both_autoreset_modes_draw_the_same_goals(strategy):
    """Of episodes of 3, 4 and 5 steps; the goal after a termination was never drawn with "same_step"."""
    batches = {}
    for autoreset in ("next_step", "same_step"):
        hindsight = parl.Hindsight(reward_fn, strategy=strategy, k=1e9)
        replay = parl.UniformReplay(50, FIELDS, num_envs=1, autoreset=autoreset, hindsight=hindsight)
        for number in (0, 1, 2, 3, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 25):
            final, same_step = number in (3, 14, 25), autoreset == "same_step"
            if final and same_step:
                continue
            last = observation([number + 1])
            replay.add(
                obs=observation([number]),
                action=[number],
                reward=[7.0],
                terminated=[number in (2, 24)],
                truncated=[number == 13],
                info={"threshold": [1.0]},
                **({"final_obs": last if number in (2, 13, 24) else None} if same_step else {}),
            )
        batches[autoreset] = [replay.sample(12, mode="systematic") for _ in range(20)]
    for next_step, same_step in zip(*batches.values(), strict=True):
        assert next_step.relabelled.all() and same_step.relabelled.all()
        np.testing.assert_array_equal(same_step.action, next_step.action)
        np.testing.assert_array_equal(same_step.obs.desired_goal, next_step.obs.desired_goal)
        np.testing.assert_array_equal(same_step.next_obs.achieved_goal, next_step.next_obs.achieved_goal)
        np.testing.assert_array_equal(same_step.reward, next_step.reward)


def filled(**options) -> parl.UniformReplay:
    replay = parl.UniformReplay(
        100, FIELDS, num_envs=1, hindsight=parl.Hindsight(reward_fn, **options), autoreset="disabled"
    )
    for i in range(51):
        last = {"final_obs": observation([51])} if i == 50 else {}
        replay.add(
            obs=observation([i]),
            action=[i],
            reward=[7.0],
            terminated=[False],
            truncated=[i == 50],
            info={"threshold": [1.0]},
            **last,
        )
    return replay


def test_the_share_of_relabelled_rows_and_the_distribution_of_goals():
    replay = filled(k=4)
    batches = [replay.sample(51, mode="systematic") for _ in range(200)]
    share = np.mean([batch.relabelled for batch in batches])
    assert share == pytest.approx(0.8, abs=0.02)
    # For row 41, the ten goals achieved from its step on are chosen about equally often.
    goals = [
        batch.obs.desired_goal[j, 0]
        for batch in batches
        for j in np.flatnonzero((batch.action == 41) & batch.relabelled)
    ]
    counts = np.bincount(np.array(goals, int), minlength=52)
    assert not counts[:42].any() and (counts[42:] > 0).all()
    expected = len(goals) / 10
    assert (
        (counts[42:] - expected) ** 2 / expected
    ).sum() < 37  # Chi-square, 9 degrees, p = 2e-5; fixed seed.


def test_terminated_follows_the_new_goal():
    def reached(achieved, desired, info):
        return (achieved == desired).all(axis=1)

    replay = filled(k=1e9, strategy="future", terminated_fn=reached)
    batch = replay.sample(51, mode="systematic")
    same = (batch.next_obs.achieved_goal == batch.obs.desired_goal).all(axis=1)
    assert batch.relabelled.all() and same.any() and not same.all()
    np.testing.assert_array_equal(batch.terminated, same)
    np.testing.assert_allclose(batch.discount, np.where(same, 0, 0.99))


def test_the_discount_of_a_row_stays_a_factor_when_goals_decide_what_terminates():
    def reached(achieved, desired, info):
        return (achieved == desired).all(axis=1)

    hindsight = parl.Hindsight(reward_fn, k=1e9, terminated_fn=reached)
    replay = parl.UniformReplay(
        50, {**FIELDS, "discount": ((), "float32")}, gamma=0.5, num_envs=1, hindsight=hindsight
    )
    for i in range(21):
        replay.add(
            obs=observation([i]),
            action=[i],
            reward=[7.0],
            terminated=[i == 19],
            truncated=[False],
            discount=np.float32([i / 20]),
            info={"threshold": [1.0]},
        )
    batch = replay.sample(200)
    assert batch.relabelled.all() and 0 < batch.terminated.sum() < 200
    # The last row's own goal is the only one that "future" leaves to it, so that it always terminates.
    np.testing.assert_array_equal(
        batch.discount, np.where(batch.terminated, 0, batch.action / 40).astype("f4")
    )


def test_hindsight_must_be_passed_to_load_and_attach(tmp_path, name):
    replay = filled()
    replay.save(tmp_path / "replay.bin")
    with pytest.raises(ValueError, match="this replay relabels goals: pass hindsight="):
        parl.UniformReplay.load(tmp_path / "replay.bin")
    with pytest.raises(ValueError, match=r"was made with hindsight \('future', 0.8"):
        parl.UniformReplay.load(tmp_path / "replay.bin", hindsight=parl.Hindsight(reward_fn, k=1))
    hindsight = parl.Hindsight(reward_fn)
    loaded = parl.UniformReplay.load(tmp_path / "replay.bin", hindsight=hindsight, shared=name)
    attached = parl.UniformReplay.attach(name, hindsight=hindsight)
    ours, theirs = replay.sample(32), attached.sample(32)
    np.testing.assert_array_equal(ours.obs.desired_goal, theirs.obs.desired_goal)
    np.testing.assert_array_equal(ours.reward, theirs.reward)
    attached.close()
    loaded.close()


@pytest.mark.parametrize(
    ("options", "more", "text"),
    [
        ({"strategy": "past"}, {}, 'strategy is "past", expected future, final or episode'),
        ({"k": -1}, {}, "k is -1, expected a finite number"),
        ({"desired": "goal"}, {}, "field 'obs/goal' is missing: hindsight needs"),
        ({}, {"n_step": 2}, r"n_step is 2, expected 1 with hindsight"),
    ],
)
def test_bad_hindsight_settings_raise(options, more, text):
    with pytest.raises(ValueError, match=text):
        parl.UniformReplay(100, FIELDS, hindsight=parl.Hindsight(reward_fn, **options), **more)


@pytest.mark.parametrize("desired", [((2,), "int64"), ((3,), "float64"), ((), "float64")])
def test_goals_of_another_shape_or_kind_are_refused(desired):
    """Achieved goals were rounded to integers, or repeated to fill the shape."""
    fields = {**FIELDS, "obs": {**OBS, "desired_goal": desired}}
    with pytest.raises(ValueError, match=r"obs/achieved_goal is <f8 of shape \(2,\) and obs/desired_goal is"):
        parl.UniformReplay(100, fields, hindsight=parl.Hindsight(reward_fn))


def test_the_name_of_the_goals_drawn_is_reserved():
    """A field of this name was missing in batches."""
    fields = {**FIELDS, "hindsight_goal": ((), "float32")}
    assert parl.UniformReplay(100, fields).settings
    with pytest.raises(ValueError, match="'hindsight_goal' has a name that is reserved"):
        parl.UniformReplay(100, fields, hindsight=parl.Hindsight(reward_fn))


def test_rewards_of_the_wrong_shape_raise():
    replay = filled(k=1e9)
    object.__setattr__(replay._hindsight, "reward_fn", lambda achieved, desired, info: achieved)
    with pytest.raises(ValueError, match=r"reward_fn returned shape \(8, 2\), expected \(8,\)"):
        replay.sample(8)
