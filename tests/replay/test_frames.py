"""Frame stacks, compared with a model that keeps whole episodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model import NaiveReplay
from threads import run_threads

import parl

STEP = st.tuples(
    st.integers(0, 2),  # environment
    st.sampled_from(["go on", "go on", "go on", "go on", "terminated", "truncated", "both"]),
)
FRAME = (2, 3)


def frame_fields(dtype: str = "uint16") -> dict:
    return {
        "obs": (FRAME, dtype),
        "action": ((), "int64"),
        "reward": ((), "float32"),
        "terminated": ((), "bool"),
        "truncated": ((), "bool"),
    }


def frame(number: float) -> np.ndarray:
    """A frame whose pixels are all ``number + 1``."""
    return np.full(FRAME, int(number) + 1, np.uint16)


def stack_of(frames: list[np.ndarray], k: int, padding: str) -> np.ndarray:
    """The newest ``k`` of the frames of one episode."""
    first = np.zeros_like(frames[0]) if padding == "zero" else frames[0]
    return np.stack([first] * max(k - len(frames), 0) + frames[-k:])


class FrameModel:
    """Finds the frames of an episode up to a given row."""

    def __init__(self, naive: NaiveReplay) -> None:
        self.naive = naive

    def history(self, number: int) -> list:
        """The rows of the episode up to row ``number``."""
        for rows in self.naive.envs.values():
            episode: list = []
            for row in rows:
                episode.append(row)
                if row.number == number:
                    return episode
                done = row.terminated or row.truncated
                goes_on = self.naive.autoreset == "next_step" and not row.is_final
                if row.is_final or (done and not goes_on):
                    episode = []
        raise AssertionError(f"row {number} is not in the model")

    def next_frames(self, number: int) -> list[np.ndarray] | None:
        """Frames up to the observation after the window, None where it is not defined."""
        for rows in self.naive.envs.values():
            for i, row in enumerate(rows):
                if row.number != number:
                    continue
                steps = [f.obs for f in self.history(number)]
                for k in range(self.naive.n_step):
                    row = rows[i + k]
                    if row.terminated or row.truncated or k == self.naive.n_step - 1:
                        break
                    steps.append(rows[i + k + 1].obs)
                if row.truncated and not row.terminated and self.naive.autoreset != "next_step":
                    return [frame(obs) for obs in [*steps, row.final_obs]]
                after = rows[i + k + 1] if i + k + 1 < len(rows) else None
                if row.terminated and (after is None or not after.is_final):
                    return None
                return [frame(obs) for obs in [*steps, after.obs]]
        raise AssertionError(f"row {number} is not in the model")


@settings(max_examples=120)
@given(
    steps=st.lists(STEP, max_size=70),
    capacity=st.integers(6, 70),
    n_step=st.integers(1, 3),
    frame_stack=st.integers(2, 5),
    autoreset=st.sampled_from(["next_step", "same_step", "disabled"]),
    padding=st.sampled_from(["zero", "first"]),
    compression=st.sampled_from(["none", "lz4"]),
    per_call=st.integers(1, 5),
)
def test_stacks_equal_those_of_the_model(
    steps, capacity, n_step, frame_stack, autoreset, padding, compression, per_call
):
    buffer = parl.UniformReplay(
        capacity,
        frame_fields(),
        n_step=n_step,
        gamma=0.5,
        num_envs=3,
        autoreset=autoreset,
        frame_stack=frame_stack,
        stack_padding=padding,
        compression=compression,
    )
    naive = NaiveReplay(capacity, n_step, 0.5, autoreset, explicit_next=False)
    model = FrameModel(naive)
    numbers: dict[int, int] = {}
    slots, slot_of = 0, {}
    for start in range(0, len(steps), per_call):
        rows = steps[start : start + per_call]
        first = naive.slots_taken
        added = [
            naive.add(env, 10 * (first + i), 0.0, end in ("terminated", "both"), end in ("truncated", "both"),
                      final=10 * (first + i) + 7)
            for i, (env, end) in enumerate(rows)
        ]  # fmt: skip
        extra = {}
        if autoreset != "next_step":
            extra["final_obs"] = [None if row.final_obs is None else frame(row.final_obs) for row in added]
        tickets = buffer.add(
            obs=np.stack([frame(row.obs) for row in added]),
            action=[row.number for row in added],
            reward=[0.0 for _ in added],
            terminated=[row.terminated for row in added],
            truncated=[row.truncated for row in added],
            env_id=[env for env, _ in rows],
            **extra,
        )
        piece = max(capacity // 2, 1)
        for k in range(0, len(added), piece):
            for row in added[k : k + piece]:
                slot_of[row.number] = slots
                slots += 1
            slots += sum(row.final_obs is not None for row in added[k : k + piece])
        numbers |= {int(ticket): row.number for ticket, row in zip(tickets, added, strict=True)}
    oldest = [number for number, slot in slot_of.items() if slot >= slots - capacity]
    expected = naive.transitions(min(oldest, default=0))
    # Rows whose earlier frames are among the rows kept for stacks must be sampleable; other rows may be, if
    # their stack is complete.
    kept = slots - capacity - min((frame_stack - 1) * 3, capacity)
    needed = {
        number for number in expected if slot_of[model.history(number)[-frame_stack:][0].number] >= kept
    }
    if not buffer.sampleable:
        assert not needed
        return
    try:
        batch = buffer.sample(buffer.sampleable, mode="systematic")
    except parl.errors.NotSampleableError:
        assert not needed
        return
    drawn = [numbers[int(ticket)] for ticket in batch.tickets]
    assert needed <= set(drawn) <= set(expected)
    for j, number in enumerate(drawn):
        frames = [frame(row.obs) for row in model.history(number)]
        np.testing.assert_array_equal(batch.obs[j], stack_of(frames, frame_stack, padding))
        after = model.next_frames(number)
        if after is not None:
            np.testing.assert_array_equal(batch.next_obs[j], stack_of(after, frame_stack, padding))
    buffer.verify()


@pytest.mark.parametrize("num_envs", [1, 4, 7])
@pytest.mark.parametrize("frame_stack", [2, 4])
def test_exactly_the_newest_rows_can_be_sampled_when_environments_step_together(num_envs, frame_stack):
    """Rows beyond the capacity are kept, so that the oldest rows have their earlier frames."""
    capacity = 20 * num_envs
    buffer = parl.UniformReplay(
        capacity, frame_fields(), num_envs=num_envs, frame_stack=frame_stack, autoreset="disabled"
    )
    for step in range(75):
        buffer.add(
            obs=np.full((num_envs, *FRAME), step, np.uint16),
            action=step * num_envs + np.arange(num_envs),
            reward=np.zeros(num_envs),
            terminated=np.zeros(num_envs, bool),
            truncated=np.zeros(num_envs, bool),
        )
        expected = np.arange(max(step * num_envs - capacity + num_envs, 0), step * num_envs)
        assert buffer.sampleable == len(expected)
        if step == 0:
            continue
        batch = buffer.sample(len(expected), mode="systematic")
        assert sorted(batch.action) == expected.tolist(), "each row once"
        assert buffer.counters["redrawn"] == 0
        clock = batch.action // num_envs
        for k in range(frame_stack):
            ago = frame_stack - 1 - k
            np.testing.assert_array_equal(batch.obs[:, k, 0, 0], np.maximum(clock - ago, 0))
            np.testing.assert_array_equal(batch.next_obs[:, k, 0, 0], np.maximum(clock + 1 - ago, 0))


def test_only_the_newest_frame_of_an_added_stack_is_stored():
    buffer = parl.UniformReplay(10, frame_fields(), num_envs=1, frame_stack=3, autoreset="same_step")
    for i in range(4):
        buffer.add(
            obs=np.stack([frame(max(i - ago, 0)) for ago in (2, 1, 0)])[None],
            action=[i],
            reward=[0],
            terminated=[False],
            truncated=[i == 3],
            final_obs=[np.stack([frame(2), frame(3), frame(9)])] if i == 3 else None,
        )
    batch = buffer.sample(4, mode="systematic")
    last = int(np.argmax(batch.action))
    np.testing.assert_array_equal(batch.next_obs[last], np.stack([frame(2), frame(3), frame(9)]))
    assert buffer.sample(1).obs.shape == (1, 3, *FRAME)


def test_stacks_start_anew_after_end_episodes():
    buffer = parl.UniformReplay(10, frame_fields(), num_envs=1, frame_stack=3)
    row = {"action": [0], "reward": [0], "terminated": [False], "truncated": [False]}
    for number in range(3):
        buffer.add(obs=frame(number)[None], **row)
    buffer.end_episodes([0])
    for number in range(10, 12):
        buffer.add(obs=frame(number)[None], **row)
    batch = buffer.sample(3, mode="systematic")
    stacks = {tuple(stack[:, 0, 0].tolist()) for stack in batch.obs}
    assert stacks == {(0, 0, 1), (0, 1, 2), (0, 0, 11)}


def test_frame_stack_can_be_set_per_field():
    spec = {**frame_fields(), "obs_speed": ((2,), "float32")}
    buffer = parl.UniformReplay(10, spec, num_envs=1, frame_stack={"obs": 4})
    batch = buffer.empty_batch(5)
    assert batch.obs.shape == batch.next_obs.shape == (5, 4, *FRAME)
    assert batch.obs_speed.shape == (5, 2)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"frame_stack": 0}, r"frame_stack is 0, expected 1 to 64"),
        ({"frame_stack": 65}, r"frame_stack is 65, expected 1 to 64"),
        ({"frame_stack": {"image": 2}}, "frame_stack names image, which is not a field"),
        ({"frame_stack": {"action": 2}}, '"action" has frame_stack, but is not an observation'),
        ({"frame_stack": 2, "stack_padding": "last"}, 'stack_padding is "last", expected zero or first'),
        ({"compression": "gzip"}, 'compression is "gzip", expected none or lz4'),
    ],
)
def test_bad_frame_stack_settings_raise(options, text):
    with pytest.raises(ValueError, match=text):
        parl.UniformReplay(10, frame_fields(), **options)


def test_frame_stack_needs_terminated_and_an_observation_without_a_next_field():
    with pytest.raises(ValueError, match='"terminated" is missing, and frame_stack needs it'):
        parl.UniformReplay(10, {"obs": (FRAME, "uint8")}, frame_stack=2)
    with pytest.raises(
        ValueError, match='"obs" has frame_stack, but is not an observation without a next_ field'
    ):
        parl.UniformReplay(10, {**frame_fields(), "next_obs": (FRAME, "uint16")}, frame_stack=2)
    with pytest.raises(ValueError, match="frame_stack is 2, but there is no observation"):
        parl.UniformReplay(10, {"x": ((), "f4")}, frame_stack=2)


def test_a_million_atari_transitions_fit_into_7_2_gigabytes():
    """The memory is reserved for the whole capacity but not touched, so creating the replay is cheap."""
    spec = {
        "obs": ((84, 84), "uint8"),
        "action": ((), "int64"),
        "reward": ((), "float32"),
        "terminated": ((), "bool"),
        "truncated": ((), "bool"),
    }
    buffer = parl.PrioritizedReplay(1_000_000, spec, num_envs=1024, frame_stack=4, n_step=3)
    assert 7.05e9 < buffer.nbytes <= 7.2e9
    # Storing whole stacks would take eight times as much.
    few = parl.PrioritizedReplay(10_000, spec, num_envs=8, frame_stack=4)
    assert few.nbytes / 10_000 <= 1.05 * (84 * 84 + 8 + 4 + 1 + 1 + 20)


def test_stacks_are_complete_while_threads_overwrite_the_ring():
    """Two writers overwrite a small ring continuously; each frame encodes its environment and clock."""
    num_envs, frame_stack = 2, 3
    buffer = parl.UniformReplay(
        40, frame_fields("int64"), num_envs=num_envs, frame_stack=frame_stack, autoreset="disabled"
    )

    def actor(env: int):
        clock = iter(range(1, 10**12))

        def work() -> None:
            now = next(clock)
            buffer.add(
                obs=np.full((1, *FRAME), 2 * now + env),
                action=[env],
                reward=[0.0],
                terminated=[now % 7 == 0],
                truncated=[False],
                env_id=[env],
            )

        return work

    def learner() -> None:
        try:
            batch = buffer.sample(16)
        except parl.errors.NotSampleableError:
            return
        newest = batch.obs[:, -1, 0, 0]
        assert (newest % 2 == batch.action).all()
        clock = newest // 2
        for stacks, at in (
            (batch.obs, clock),
            (batch.next_obs[~batch.terminated], clock[~batch.terminated] + 1),
        ):
            for k in range(frame_stack):
                ago = frame_stack - 1 - k
                first = (at - 1) // 7 * 7 + 1  # The clock at the start of the episode.
                numbers = np.where(at - ago >= first, 2 * (at - ago) + newest[0] * 0, 0)
                shown = stacks[:, k]
                assert (shown == shown[:, :1, :1]).all(), "a torn frame"
                np.testing.assert_array_equal(shown[:, 0, 0] // 2 * 2, numbers)

    run_threads([*[actor(env) for env in range(num_envs)], learner, learner], seconds=3)
    buffer.verify()
    assert buffer.counters["added"] > 400 and buffer.counters["sampled"] > 400


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_stacks_equal_those_of_the_atari_environments(autoreset):
    """Sampled stacks are byte for byte the environment's observations, across episode ends too."""
    envs = parl.AtariVectorEnv(
        "pong",
        num_envs=3,
        stack_num=4,
        max_num_frames_per_episode=160,
        autoreset_mode="NextStep" if autoreset == "next_step" else "SameStep",
    )
    replay = parl.UniformReplay(
        1000, {**frame_fields(), "obs": ((84, 84), "uint8")}, num_envs=3, frame_stack=4, autoreset=autoreset,
        compression="lz4",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    obs, _ = envs.reset(seed=1)
    shown: dict[int, tuple] = {}
    tickets: dict[int, int] = {}
    ended = np.zeros(3, bool)
    for step in range(150):
        action = rng.integers(0, envs.single_action_space.n, 3)
        after, reward, terminated, truncated, info = envs.step(action)
        extra = {}
        last = after
        if autoreset == "same_step":
            last = after.copy()
            if "final_obs" in info:
                for env in np.flatnonzero(terminated | truncated):
                    last[env] = info["final_obs"][env]
            extra["final_obs"] = last
        numbers = 3 * step + np.arange(3)
        for env in np.flatnonzero(~ended):
            shown[int(numbers[env])] = (obs[env].copy(), last[env].copy())
        added = replay.add(
            obs=obs, action=numbers, reward=reward, terminated=terminated, truncated=truncated, **extra
        )
        tickets |= dict(zip(added.tolist(), numbers.tolist(), strict=True))
        ended = (terminated | truncated) & ~ended if autoreset == "next_step" else np.zeros(3, bool)
        obs = after
    envs.close()
    batch = replay.sample(replay.sampleable, mode="systematic")
    assert len(batch.obs) > 350 and batch.truncated.sum() >= 3
    for j, number in enumerate(batch.action.tolist()):
        before, after = shown[number]
        np.testing.assert_array_equal(batch.obs[j], before)
        np.testing.assert_array_equal(batch.next_obs[j], after)
    assert replay.nbytes / 1000 < 1000, "a million transitions of Pong in less than a gigabyte"
