"""Runs whose games continue from saved states, of the run itself or of the policy of another one."""

import numpy as np
import pytest
import torch

import parl
from parl.envs import EnvMaker
from parl.errors import ConfigError, RunDirectoryError, UntrustedRunError
from parl.run import RunDirectory
from parl.runtime.distributed import group
from parl.runtime.evaluate import Evaluator
from parl.runtime.on_policy.start_states import SavedStates
from parl.train import start_states
from parl.train.config import SyncRunConfig
from saved_learners import weights_of

OPTIONS = {"obs_type": "ram", "stack_num": None, "max_num_frames_per_episode": 80}
SMALL = {
    "env": "parl/Breakout-v0",
    "env_options": OPTIONS,
    "num_envs": 4,
    "total_steps": 256,
    "schedule": "deterministic",
    "evaluation_episodes": 0,
    "quiet": True,
    "hidden": (4,),
    "rollout_steps": 16,
}


def run_of(folder, name="ppo", **options):
    return parl.train(name, runs=str(folder), **SMALL | options)


class Stops(parl.Callback):
    """Ends a run at its first checkpoint."""

    def on_checkpoint(self, checkpoint):
        return False


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A run whose policy plays games of which states are saved."""
    return run_of(tmp_path_factory.mktemp("other")).path


@pytest.mark.parametrize("source", ["self", "run"])
def test_an_interrupted_run_goes_on_with_the_same_games(tmp_path, other, source):
    source = other if source == "run" else source
    whole = run_of(tmp_path, start_states=source)
    half = run_of(tmp_path, start_states=source, checkpoint_every=100, callbacks=[Stops()])
    assert half.stopped == "callback"
    assert torch.equal(weights_of(parl.resume(half.path).path), weights_of(whole.path))
    assert not torch.equal(weights_of(run_of(tmp_path).path), weights_of(whole.path))
    assert RunDirectory.open(whole.path).config["run"]["start_states"] == str(source)


def test_states_of_a_run_are_those_of_games_of_its_policy(tmp_path, other):
    run = run_of(tmp_path, start_states=other)
    path = run.path / start_states.FILE
    saved = SavedStates.from_bytes(path.read_bytes(), path)
    assert 20 < len(saved) <= 256 and saved.lengths[0] == 0 and saved.lengths.max() == 19
    envs = parl.AtariVectorEnv("breakout", len(saved), **OPTIONS)
    shown, _ = envs.reset(options={"states": saved.states})
    assert len(np.unique(shown, axis=0)) > len(saved) // 2


class OfBytes(torch.nn.Linear):
    def forward(self, input):
        return super().forward(input.float())


def test_a_pickled_torso_of_another_process_is_loaded_before_its_policy_plays(tmp_path, monkeypatch):
    source = str(run_of(tmp_path, torso=lambda _: OfBytes(128, 4), hidden=(64, 64)).path)
    monkeypatch.setattr("parl.pickles._written", set())
    with pytest.raises(UntrustedRunError, match=r"call parl\.load\('.*', trust=True\) before parl\.train"):
        run_of(tmp_path, start_states=source)
    parl.load(source, trust=True)
    assert run_of(tmp_path, start_states=source).env_steps >= 256


def test_no_state_is_one_between_a_lost_life_and_the_next(tmp_path):
    options = {"env_options": OPTIONS | {"life_loss": "continues", "max_num_frames_per_episode": 800}}
    path = run_of(tmp_path, **options).path
    file = run_of(tmp_path, start_states=path, **options).path / start_states.FILE
    saved = SavedStates.from_bytes(file.read_bytes(), file)
    envs = parl.AtariVectorEnv("breakout", 1, **options["env_options"])
    after = envs.branch(saved.states, np.zeros((len(saved), 1, 1), np.int64))
    assert (after.lengths == 1).all() and len(np.unique(after.lives)) > 1


def test_games_that_are_played_are_thinned_out(other, monkeypatch):
    monkeypatch.setattr(start_states, "_STATES", 12)
    policy = parl.load(other)
    config = policy.config.run
    saved = start_states.play(policy, policy.env_maker, policy.spec, config)
    assert len(saved) == 12 and len(np.unique(saved.lengths)) >= 4
    again = start_states.play(parl.load(other), policy.env_maker, policy.spec, config)
    np.testing.assert_array_equal(saved.states, again.states)


def test_all_games_that_are_played_have_their_share_of_the_states(other, monkeypatch):
    monkeypatch.setattr(start_states, "_STATES", 40)
    policy = parl.load(other)
    game_of = {}  # The number of the game that a state is of.
    get_state = parl.AtariVectorEnv.get_state

    def watched(envs, mask):
        rows = get_state(envs, mask)
        game_of.update(zip(map(bytes, rows), np.flatnonzero(mask).tolist(), strict=True))
        return rows

    monkeypatch.setattr(parl.AtariVectorEnv, "get_state", watched)
    saved = start_states.play(policy, policy.env_maker, policy.spec, policy.config.run)
    games = np.array([game_of[bytes(row)] for row in saved.states])
    assert len(games) == 40 and np.bincount(games, minlength=8).tolist() == [5] * 8
    for game in range(8):
        distances = np.diff(saved.lengths[games == game])
        assert distances.min() >= 2 and distances.max() <= 6


def test_a_damaged_file_is_named(tmp_path, other):
    run = run_of(tmp_path, start_states=other, total_steps=128)
    path = run.path / start_states.FILE
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(RunDirectoryError, match=r"start_states\.npz"):
        parl.resume(run.path, total_steps=256)
    path.unlink()
    with pytest.raises(RunDirectoryError, match=r"start_states\.npz"):
        parl.resume(run.path, total_steps=256)
    without = run_of(tmp_path, total_steps=128).path
    (without / start_states.FILE).write_bytes(data)
    with pytest.raises(RunDirectoryError, match=r"start_states\.npz was added after the start of the run"):
        parl.resume(without, total_steps=256)


def test_evaluations_play_whole_games(tmp_path, monkeypatch):
    """No environment of an evaluation is reset to states."""
    evaluating, resets = [False], {True: 0, False: 0}
    play, reset = Evaluator.play, parl.AtariVectorEnv.reset

    def watched_play(self, *arguments):
        evaluating[0] = True
        returns = play(self, *arguments)
        evaluating[0] = False
        return returns

    def watched_reset(self, *, seed=None, options=None, out=None):
        resets[evaluating[0]] += bool(options and "states" in options)
        return reset(self, seed=seed, options=options, out=out)

    monkeypatch.setattr(Evaluator, "play", watched_play)
    monkeypatch.setattr(parl.AtariVectorEnv, "reset", watched_reset)
    options = {"evaluation_episodes": 3, "evaluation_every": 100}
    run_of(tmp_path, start_states="self", start_states_share=1.0, **options)
    assert resets[False] > 0 and resets[True] == 0


@pytest.mark.parametrize("name", ["a3c", "impala", "ga3c"])
def test_actors_of_other_processes_continue_from_states(tmp_path, other, name):
    for source in ("self", other):
        options = {"schedule": "async", "actors": 2, "start_states": source, "total_steps": 200}
        run = run_of(tmp_path, name, rollout_steps=8, **{k: v for k, v in options.items()})
        assert run.env_steps >= 200


def test_each_process_of_torchrun_needs_two_environments(monkeypatch):
    config = SyncRunConfig(num_envs=8, start_states="self")
    maker = EnvMaker("parl/Breakout-v0", OPTIONS)
    for size in (4, 8):
        for name in group._VARIABLES:
            monkeypatch.setenv(name, str(size) if name == "WORLD_SIZE" else "0")
        if size == 8:
            with pytest.raises(ConfigError, match="num_envs = 8 with actors = 8 gives an actor only one"):
                start_states.check(config, maker)
        else:
            start_states.check(config, maker)


def test_what_cannot_continue_from_states_is_refused(tmp_path, other):
    needs = "start_states = 'self' needs parl's Atari environments on the CPU without wrappers"
    single = r"gives an actor only one|num_envs = 1"
    pong = {"env": "parl/Pong-v0"}
    pictures = {"env_options": {"max_num_frames_per_episode": 40}}
    for options, match in [
        ({"start_states": "self", "env": "CartPole-v1", "env_options": {}}, needs),
        ({"start_states": "self", "wrappers": ["gymnasium.wrappers:FlattenObservation"]}, needs),
        ({"start_states": "self", "num_envs": 1}, single),
        ({"start_states": "self", "env_options": OPTIONS | {"mode": [0, 4]}}, r"mode = \[0, 4\] differs"),
        ({"start_states": "self", "start_states_share": 0.0}, "start_states_share = 0.0 is not above 0"),
        ({"start_states": "self", "start_states_share": 1.5}, "start_states_share = 1.5 is not above 0"),
        ({"start_states_share": 1.0}, "start_states_share = 1.0 has no effect with start_states = None"),
        ({"start_states": ""}, "start_states = '': expected 'self' or a run"),
        ({"start_states": other, **pong}, "is of a policy for .*parl/Breakout-v0"),
        ({"start_states": other, **pictures}, r"is of a policy for .*\(128,\).* not for .*\(4, 84, 84\)"),
    ]:
        with pytest.raises(ConfigError, match=match):
            run_of(tmp_path, **options)
    with pytest.raises(ConfigError, match=single):
        run_of(tmp_path, "a3c", start_states="self", schedule="async", num_envs=2, actors=2)
    with pytest.raises(FileNotFoundError, match="no run directory at"):
        run_of(tmp_path, start_states=str(tmp_path / "none"))
    assert not list(tmp_path.iterdir())  # no run has begun
