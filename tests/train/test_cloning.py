"""Behavioral cloning: play is recorded, read back exactly, and learned from."""

import numpy as np
import pytest
import torch

from parl.atari import Console
from parl.atari.actions import Action
from parl.atari.play import loop
from parl.atari.recording import Recorder
from parl.envs import EnvMaker, spec_of
from parl.envs.atari.registration import env_id
from parl.envs.recorded import read_play
from parl.errors import ConfigError, NonFiniteError
from parl.train import evaluate, resume, train
from saved_learners import weights_of

OPTIONS = ("obs_type=ram", "stack_num=1", "reward_clipping=False")


class Keys:
    """Presses keys at random, and r for a new episode in the middle."""

    def __init__(self, seed, restart):
        self._rng = np.random.default_rng(seed)
        self._restart = restart
        self.frame = 0
        self.held = frozenset()

    def poll(self):
        if self.frame % 7 == 0:
            self.held = frozenset(key for key in ("up", "left", "right", " ") if self._rng.random() < 0.4)
        self.frame += 1
        return self.held, ["r"] if self.frame == self._restart else []

    def show(self, rgb, status):
        pass


def record(path, game="pong", frames=201):
    """Records random play and returns the RAM of the console before each step."""
    console = Console(game)
    recorder = Recorder(console)
    memories = []
    action = recorder.action

    def watched(wanted):
        if recorder._left == 0:
            memories.append(np.array(console.ram))
        return action(wanted)

    recorder.action = watched
    loop(console, Keys(3, 110), fps=1e6, max_frames=frames, recorder=recorder, sleep=lambda _: None)
    recorder.write(path)
    return np.stack(memories)


def test_recorded_play_has_the_observations_of_the_player(tmp_path):
    memories = record(tmp_path / "play.npz")
    maker = EnvMaker("parl/Pong-v0", {"obs_type": "ram", "stack_num": 1})
    obs, action = read_play([tmp_path / "play.npz"], maker, spec_of(maker(1)))
    assert len(action) == len(memories) == 28 + 23 and len(set(action.tolist())) > 2
    np.testing.assert_array_equal(obs.reshape(len(obs), -1), memories)
    with pytest.raises(ConfigError, match="is a recording of pong, but parl/Breakout-v0 plays breakout"):
        other = EnvMaker("parl/Breakout-v0", {"obs_type": "ram", "stack_num": 1})
        read_play([tmp_path / "play.npz"], other, spec_of(other(1)))


@pytest.mark.parametrize("game", ["assault", "backgammon", "berzerk", "boxing", "haunted_house"])
def test_episodes_of_recorded_play_start_as_those_of_environments(tmp_path, game):
    """A console keeps its memory at a reset, so that in these games the next episode starts differently."""
    memories = record(tmp_path / "play.npz", game)
    maker = EnvMaker(env_id(game), {"obs_type": "ram", "stack_num": 1})
    obs, _ = read_play([tmp_path / "play.npz"], maker, spec_of(maker(1)))
    np.testing.assert_array_equal(obs.reshape(len(obs), -1), memories)


@pytest.mark.parametrize(
    "options",
    [
        {"life_loss": "ends"},
        {"life_loss": "continues"},
        {"episodic_life": True},
        {"max_num_steps_per_episode": 5},
        {"max_num_frames_per_episode": 20, "limit_counts": "console"},
        {"preset": "envpool"},
        {"preset": "nature"},
        {"preset": "gymnasium"},
        {"preset": "machado"},
        {"full_action_space": True},
    ],
)
def test_recorded_play_is_read_whatever_the_environment_does_with_episodes_and_actions(tmp_path, options):
    memories = record(tmp_path / "play.npz", "breakout", frames=1500)
    maker = EnvMaker("parl/Breakout-v0", {"obs_type": "ram", "stack_num": 1, **options})
    obs, action = read_play([tmp_path / "play.npz"], maker, spec_of(maker(1)))
    np.testing.assert_array_equal(obs.reshape(len(obs), -1), memories)
    with np.load(tmp_path / "play.npz") as file:
        played = np.array(Console("breakout").minimal_actions)[file["actions"]]
    assert np.array(maker(1).unwrapped.action_codes)[action].tolist() == played.tolist()


def test_recorded_play_is_not_read_for_a_modified_game(tmp_path):
    record(tmp_path / "play.npz", "breakout", frames=20)
    for options in ({"modifications": "one_life"}, {"hold": {0x39: 5}}):
        maker = EnvMaker("parl/Breakout-v0", {"obs_type": "ram", "stack_num": 1, **options})
        with pytest.raises(ConfigError, match="without changes, but parl/Breakout-v0 has"):
            read_play([tmp_path / "play.npz"], maker, spec_of(maker(1)))


def test_actions_without_effect_are_not_recorded():
    recorder = Recorder(Console("breakout"))  # NOOP FIRE RIGHT LEFT
    assert recorder._nearest(Action.UPFIRE) == Action.FIRE
    assert recorder._nearest(Action.LEFTFIRE) == Action.LEFT
    assert recorder._nearest(Action.DOWN) == Action.NOOP
    assert [recorder.action(a) for a in (Action.LEFT, Action.RIGHT, Action.RIGHT, Action.NOOP)] == [
        Action.LEFT
    ] * 4
    assert recorder.action(Action.RIGHT) == Action.RIGHT and len(recorder) == 2


def test_a_teacher_is_cloned(tmp_path):
    """The teacher balances the pole by its angle and angular velocity."""
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (4_000, 4)).astype(np.float32) * np.array([2.4, 2, 0.2, 2], np.float32)
    action = (obs[:, 2] + 0.3 * obs[:, 3] > 0).astype(np.int64)
    np.savez(tmp_path / "teacher.npz", observations=obs, actions=action)
    options = {
        "env": "CartPole-v1",
        "data": (str(tmp_path / "teacher.npz"),),
        "schedule": "deterministic",
        "hidden": (32,),
        "learning_rate": 5e-3,
        "anneal": False,
        "evaluation_episodes": 10,
        "quiet": True,
        "runs": str(tmp_path),
    }
    run = train("bc", total_steps=40_000, name="whole", **options)
    assert evaluate(run.path, episodes=10).mean() > 150
    half = train("bc", total_steps=20_000, name="half", **options)
    resume(half.path, total_steps=40_000)
    assert torch.equal(weights_of(run.path), weights_of(half.path))


def test_wrong_files_are_refused(tmp_path):
    maker = EnvMaker("CartPole-v1")
    spec = spec_of(maker(1))
    path = tmp_path / "wrong.npz"
    np.savez(path, states=np.zeros(3))
    with pytest.raises(ConfigError, match=r"wrong.npz holds \['states'\]"):
        read_play([path], maker, spec)
    np.savez(path, observations=np.zeros((3, 4)), actions=np.array([0, 1, 2]))
    with pytest.raises(ConfigError, match=r"actions 0 to 2, .* has 0 to 1"):
        read_play([path], maker, spec)
    np.savez(path, observations=np.zeros((3, 5)), actions=np.array([0, 1, 1]))
    with pytest.raises(ConfigError, match=r"observations of shape \(5,\)"):
        read_play([path], maker, spec)
    np.savez(path, observations=np.zeros((3, 4)), actions=np.array([0.0, 0.9, 1.0]))
    with pytest.raises(ConfigError, match=r"holds the action 0.9 in row 1, which is no int64"):
        read_play([path], maker, spec)
    np.savez(path, observations=np.zeros((3, 4)), actions=np.array([0.0, 1.0, 1.0]))
    assert read_play([path], maker, spec)[1].tolist() == [0, 1, 1]
    images = EnvMaker("parl/Pong-v0", {"obs_type": "ram", "stack_num": None})
    for value in (0.5, 300, -1):
        np.savez(path, observations=np.full((2, 128), value), actions=np.array([0, 1]))
        with pytest.raises(
            ConfigError, match=rf"holds the observation {value}.* in row 0, which is no uint8"
        ):
            read_play([path], images, spec_of(images(1)))
    np.savez(path, observations=np.zeros((2, 4)), actions=np.array([0.0, np.nan]))
    with pytest.raises(NonFiniteError, match="holds action nan in row 1"):
        read_play([path], maker, spec)
    with pytest.raises(ConfigError, match="data is empty"):
        read_play([], maker, spec)
