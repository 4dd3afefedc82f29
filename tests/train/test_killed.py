"""Runs killed at random moments resume from their last checkpoint; scores record their protocol."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from damage_runs import INDEX, PARTS, SETTINGS, damage_all, make_run

import forked
from parl.errors import CallbackError, ConfigError
from parl.replay import PrioritizedReplay
from parl.run import RunDirectory, read_metrics
from parl.train import record, resume, train
from saved_learners import learner_in

DETERMINISTIC = {
    "num_envs": 4,
    "batch_size": 32,
    "replay_ratio": 4.0,
    "learning_starts": 100,
    "replay_capacity": 2_000,
    "hidden": (16,),
    "n_step": 3,
    "schedule": "deterministic",
    "evaluation_episodes": 2,
    "quiet": True,
}
ATARI = DETERMINISTIC | {
    "env": "parl/Breakout-v0",
    "env_options": ("obs_type=ram",),
    "num_envs": 2,
    "evaluation_env_options": ("max_num_frames_per_episode=80",),
}


def state_of(path):
    folder = RunDirectory.open(path).checkpoints.last()
    replay = PrioritizedReplay.load(folder / "replay.bin")
    # Draws depend on rows, priorities and generator.
    drawn = {name: np.array(part) for name, part in replay.sample(500).items()}
    drawn["tickets"] ^= np.uint64(replay._native.ticket_tag)  # The replay of each run has its own tag.
    return learner_in(folder), drawn


def scores_of(path):
    return [r["evaluation_return"] for r in read_metrics(path) if "evaluation_return" in r]


def assert_alike(one, other):
    (state, rows), (wanted, wanted_rows) = state_of(one), state_of(other)
    assert state["updates"] == wanted["updates"] > 20
    assert torch.equal(state["weights"], wanted["weights"])
    assert torch.equal(state["generator"], wanted["generator"])
    assert rows.keys() == wanted_rows.keys()
    for name, part in rows.items():
        np.testing.assert_array_equal(part, wanted_rows[name])


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("dqn", ATARI),
        ("dqn", ATARI | {"prefetch": 3, "priority_delay": 5}),
        ("dqn", ATARI | {"noisy": True}),
        ("sac", DETERMINISTIC | {"env": "Pendulum-v1"}),
        ("td3", DETERMINISTIC | {"env": "Pendulum-v1"}),
    ],
)
def test_runs_resume_exactly(tmp_path, algorithm, options):
    """A run that was resumed halfway has the weights, rows and generators of an uninterrupted one."""
    whole = train(algorithm, **options, total_steps=800, runs=str(tmp_path), name="whole")
    half = train(algorithm, **options, total_steps=400, runs=str(tmp_path), name="half")
    resume(half.path, total_steps=800)
    assert_alike(half.path, whole.path)


TRAINS = """
    import sys
    from parl.train import resume, train

    if sys.argv[1] == "train":
        train("dqn", **{options}, total_steps={total_steps}, runs={runs!r}, name="killed")
    else:
        resume({runs!r} + "/killed")
"""


def killed_until_done(tmp_path, options, total_steps, kills, generator):
    """Starts a run, kills it ``kills`` times at random moments while it trains, and lets it end."""
    script = tmp_path / "trains.py"
    script.write_text(
        textwrap.dedent(TRAINS).format(options=options, total_steps=total_steps, runs=str(tmp_path))
    )
    path, what, dead = tmp_path / "killed", "train", 0
    while True:
        process = subprocess.Popen([sys.executable, str(script), what], start_new_session=True)
        lines = len(read_metrics(path)) if (path / "metrics.jsonl").exists() else 0
        while dead < kills and process.poll() is None:
            if (path / "metrics.jsonl").exists() and len(read_metrics(path)) > lines:
                # It trains and saves all the time: kill it at a random moment of the next second.
                time.sleep(generator.random())
                os.killpg(process.pid, signal.SIGKILL)
                dead += 1
        code = process.wait(timeout=200)
        if code == 0:
            return path, dead
        assert code == -signal.SIGKILL
        what = "resume"
        try:
            last = RunDirectory.open(path).checkpoints.last()
        except FileNotFoundError:
            continue  # killed before its first checkpoint: it starts over
        assert (last / "counters.json").exists() and (last / "replay.bin").exists()


def test_runs_killed_at_file_operations_and_at_random_moments_are_not_lost():
    """Six kills by ``kill_runs.py``, in a process of its own."""
    folder = Path(__file__).parent
    done = forked.run(["kill_runs.py", "--kills", "6", "--seed", str(os.getpid())], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 kills (" in done.stdout and "forced 3" in done.stdout and "0 lost runs" in done.stdout


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return make_run(folder, 1), make_run(folder, 2)


@pytest.mark.parametrize("name", [*SETTINGS, *INDEX, *PARTS])
def test_no_damage_of_a_file_is_accepted(two_runs, name):
    """Thirty damages of each file by ``damage_runs.py``."""
    found, unverified = damage_all(*two_runs, name, 30)
    assert found == {"refused": 30}
    assert set(unverified) <= {"refused", "accepted"}


@pytest.mark.parametrize("goal", [None, 1.0])
def test_a_run_killed_after_its_last_checkpoint_is_complete(tmp_path, goal):
    options = DETERMINISTIC | {"env": "CartPole-v1", "evaluation_every": 400, "stop_at_return": goal}
    run = train("dqn", **options, total_steps=800, runs=str(tmp_path))
    scores = scores_of(run.path)
    again = resume(run.path)
    assert (again.stopped, again.env_steps, again.updates) == (run.stopped, run.env_steps, run.updates)
    assert again.evaluation_return == run.evaluation_return
    assert scores_of(run.path) == scores
    # With a larger limit it continues.
    more = resume(run.path, total_steps=run.env_steps + 400, stop_at_return=None)
    assert more.env_steps >= run.env_steps + 400
    assert len(scores_of(run.path)) > len(scores)


class FailsAtStart:
    def on_start(self, run):
        raise RuntimeError("no more")


@pytest.mark.filterwarnings("ignore:.* has no checkpoint yet")
@pytest.mark.parametrize("begun", [True, False])
def test_new_limits_hold_after_a_resume_that_ends_before_its_first_checkpoint(begun, tmp_path):
    options = DETERMINISTIC | {"env": "CartPole-v1", "stop_at_return": 1.0, "runs": str(tmp_path)}
    with contextlib.nullcontext() if begun else pytest.raises(CallbackError):
        train("dqn", **options, total_steps=400, name="run", callbacks=[FailsAtStart()] * (not begun))
    with pytest.raises(CallbackError):
        resume(tmp_path / "run", total_steps=800, stop_at_return=None, callbacks=[FailsAtStart()])
    run = resume(tmp_path / "run")
    assert run.env_steps >= 800 and run.stopped == "total_steps"


def segments():
    return {name for name in os.listdir("/dev/shm") if name.startswith("parl-")}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_async_run_killed_ten_times_resumes_from_its_checkpoints(tmp_path):
    options = DETERMINISTIC | {"env": "CartPole-v1", "schedule": "async", "actors": 2, "learners": 2}
    options |= {"checkpoint_every": 400}
    before = segments()
    path, dead = killed_until_done(tmp_path, options, 60_000, 10, random.Random(os.getpid()))
    steps = [r["env_steps"] for r in read_metrics(path)]
    assert steps == sorted(steps) and steps[-1] >= 60_000 and dead >= 1
    assert not segments() - before


def test_scores_record_their_protocol(tmp_path):
    options = DETERMINISTIC | {"env": "CartPole-v1", "evaluation_every": 200}
    run = train("dqn", **options, total_steps=600, runs=str(tmp_path))
    scored = [r for r in read_metrics(run.path) if "evaluation_return" in r]
    assert len(scored) == 3
    for one in scored:
        assert one["protocol"].startswith("dqn on CartPole-v1, greedy, 2 whole undiscounted episodes")
        assert f"weights after {one['env_steps']:,} steps" in one["protocol"]
        assert one["evaluation_episodes"] == 2
    assert len({one["evaluation_seed"] for one in scored}) == 3, "fresh seeds each time"
    checkpoints = RunDirectory.open(run.path).checkpoints
    best = json.loads((checkpoints.best() / "counters.json").read_text())["score"]
    assert best["evaluation_return"] == max(one["evaluation_return"] for one in scored)
    assert best["protocol"] in {one["protocol"] for one in scored}


def test_the_protocol_of_a_resumed_run_has_its_changed_environment(tmp_path):
    run = train("dqn", **DETERMINISTIC | {"env": "CartPole-v1"}, total_steps=200, runs=str(tmp_path))
    changed = resume(run.path, total_steps=400, evaluation_env_options={"max_episode_steps": 5})
    assert changed.evaluation_return == 5.0
    before, after = (r["protocol"] for r in read_metrics(run.path) if "protocol" in r)
    assert "max_episode_steps" not in before and "max_episode_steps=5, greedy" in after


def test_recording_needs_a_render_mode(tmp_path):
    options = DETERMINISTIC | {"total_steps": 80, "runs": str(tmp_path)}
    cart = train("dqn", **options, env=lambda: gymnasium.make("CartPole-v1"))
    with pytest.raises(ConfigError, match="render_mode"):
        record(cart.path, tmp_path / "cart.png")
    seen = train("dqn", **options, env=lambda: gymnasium.make("CartPole-v1", render_mode="rgb_array"))
    assert record(seen.path, tmp_path / "cart.png") > 0
    assert (tmp_path / "cart.png").read_bytes().startswith(b"\x89PNG")
