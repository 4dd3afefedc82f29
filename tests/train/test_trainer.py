"""When a run stops, and the seeds of its evaluations, in every topology."""

import multiprocessing
import os
import signal
import time

import gymnasium
import numpy as np
import pytest
import torch
from scripted_runs import EPISODES, SMALL, TOPOLOGIES, Scripted, scripted

from children import in_child
from parl.run import RunDirectory, read_metrics
from parl.runtime import checkpoint
from parl.runtime.on_policy.sync import SyncRolloutLoop
from parl.runtime.seeds import evaluation_seed, training_seed
from parl.train import TrainingInterrupted, evaluate, resume, topologies, train, trainer

RUN = {"quiet": False, "evaluation_episodes": EPISODES, "evaluation_every": 40}


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_stop_is_confirmed_by_an_evaluation_on_other_seeds(topology, tmp_path, capsys):
    name, options = TOPOLOGIES[topology]
    options = {"total_steps": 100_000, "stop_at_return": 5.0, "runs": str(tmp_path)} | RUN | SMALL | options
    run = train(name, env=scripted(1.0, 9.0, 2.0, 8.0, 6.0), **options)
    assert run.stopped == "stop_at_return"
    assert run.env_steps < options["total_steps"]
    scores = [row["evaluation_return"] for row in read_metrics(run.path) if "evaluation_return" in row]
    assert scores == [1.0, 9.0, 2.0, 8.0, 6.0]
    assert run.evaluation_return == 6.0, "the score of the second evaluation, which no choice depends on"
    assert len(set(Scripted.seeds)) == len(Scripted.seeds) == 5 * EPISODES
    said = capsys.readouterr().err
    assert "not confirmed (2.0 is below 5)" in said
    assert "confirmed: 8.0, then 6.0" in said


DETERMINISTIC = RUN | SMALL | TOPOLOGIES["deterministic"][1] | {"quiet": True}


@pytest.mark.parametrize(
    ("script", "goal_later", "stopped"),
    [
        pytest.param((7.0, 6.0), 5.0, "stop_at_return", id="confirmed"),
        pytest.param((7.0, 6.0), 6.0, "stop_at_return", id="confirmed, for the new goal too"),
        pytest.param((7.0, 6.0), 6.5, "total_steps", id="confirmed, but not for the new goal"),
        pytest.param((7.0, 4.0), 5.0, "total_steps", id="not confirmed"),
        pytest.param((3.0,), 2.0, "total_steps", id="evaluated once"),
    ],
)
def test_a_resumed_run_knows_whether_its_score_was_confirmed(script, goal_later, stopped, tmp_path):
    options = DETERMINISTIC | {"total_steps": 40, "evaluation_every": 0, "runs": str(tmp_path)}
    run = train("dqn", env=scripted(*script), stop_at_return=5.0, **options)
    assert run.stopped == ("stop_at_return" if script == (7.0, 6.0) else "total_steps")
    assert resume(run.path, stop_at_return=goal_later).stopped == stopped


def test_the_best_checkpoint_has_the_confirming_score(tmp_path):
    options = DETERMINISTIC | {"total_steps": 120, "stop_at_return": 5.0, "runs": str(tmp_path)}
    run = train("dqn", env=scripted(4.0, 9.0, 2.0, 3.0), **options)
    rows = [row for row in read_metrics(run.path) if "evaluation_return" in row]
    best = RunDirectory.open(run.path).checkpoints.best()
    assert best.name == f"step-{rows[0]['env_steps']:012d}", "9 was not confirmed"


class BetterInTraining(gymnasium.Env):
    """Episodes of one step with a return of 10 in training, and of 3, 4 or 5 in evaluations."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.score = 10.0 if seed >= 2**24 else 3.0 + seed % 3
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), self.score, True, False, {}


@pytest.mark.parametrize(("every", "last", "others"), [(0, 20, {10}), (300, 20, {20})])
def test_only_evaluations_that_give_no_score_to_a_checkpoint_end_early(every, last, others, tmp_path):
    options = DETERMINISTIC | {"evaluation_episodes": 20, "evaluation_every": every, "runs": str(tmp_path)}
    run = train("dqn", env=BetterInTraining, total_steps=1_200, stop_at_return=9.0, **options)
    rows = [row for row in read_metrics(run.path) if "evaluation_return" in row]
    *earlier, end = (row["evaluation_episodes"] for row in rows)
    assert end == last and set(earlier) == others and len(earlier) > 1


def test_no_seed_is_used_twice_by_evaluations_nor_by_training(tmp_path):
    """Checks evaluations in several rounds, later ones, those of a resumed run, and a call of `evaluate`."""
    options = DETERMINISTIC | {"evaluation_episodes": 300, "runs": str(tmp_path)}
    run = train("dqn", env=scripted(), total_steps=200, **options)
    resume(run.path, total_steps=400, evaluation_episodes=150)
    before = len(Scripted.seeds)
    assert before >= 2 * 300 + 2 * 150
    evaluate(run.path, episodes=300)
    assert len(Scripted.seeds) == before + 300
    assert len(set(Scripted.seeds)) == len(Scripted.seeds)


@pytest.mark.parametrize("draw", [0, 1, 2**24, 2**25 - 1, 2**25, 2**31, 2**32 - 2**21, 2**32 - 1])
def test_training_seeds_are_in_their_own_range(draw):
    first = training_seed(draw)
    assert 2**24 <= first and first + 2**20 <= 2**31


@pytest.mark.parametrize("played", [0, 1, 10**6, 2**22 - 1, 2**40])
@pytest.mark.parametrize("episodes", [1, 100, 2**20])
def test_evaluation_seeds_are_in_their_own_range(played, episodes):
    for seed in (0, 1, 2**31):
        first = evaluation_seed(seed, played, episodes)
        assert 2**23 <= first and first + episodes <= 2**24


@pytest.mark.parametrize(("device", "threads"), [("cpu", 1), ("cuda", 7)])
def test_evaluations_have_all_cores_while_a_device_waits(monkeypatch, device, threads):
    monkeypatch.setattr(trainer, "usable_cores", lambda: 7)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with trainer._evaluation_threads(device):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_an_interrupt_does_not_abort_a_checkpoint_that_takes_longer_to_write(tmp_path, monkeypatch):
    write, written = checkpoint.write, []

    def slow(*parts):
        if not written:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)
        write(*parts)
        written.append(parts)

    monkeypatch.setattr(trainer, "_ANSWER_S", 0.1)
    monkeypatch.setattr(checkpoint, "write", slow)
    options = {"num_envs": 4, "hidden": (4,), "rollout_steps": 8, "checkpoint_every": 100}
    with pytest.raises(TrainingInterrupted):
        train("ppo", "CartPole-v1", total_steps="100M", runs=str(tmp_path), name="run", quiet=True, **options)
    assert RunDirectory.open(tmp_path / "run").checkpoints.verified("last") and written


class Slow(BetterInTraining):
    """Episodes of eight slow steps. The step after 100 others interrupts the run."""

    steps = 0

    def step(self, action):
        Slow.steps += 1
        if Slow.steps == 100:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.002)
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, Slow.steps % 8 == 0, truncated, info


@pytest.mark.parametrize(
    ("name", "options"),
    [("ppo", {"num_envs": 1, "rollout_steps": 24}), ("es", {"num_envs": 4, "schedule": "deterministic"})],
)
def test_an_interrupt_waits_for_an_iteration_as_long_as_earlier_ones(name, options, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "_ANSWER_S", 0.01)
    monkeypatch.setattr(Slow, "steps", 0)
    options = options | {"hidden": (4,), "evaluation_episodes": 0, "runs": str(tmp_path), "name": "run"}
    with pytest.raises(TrainingInterrupted) as interrupted:
        train(name, Slow, total_steps="100M", quiet=True, **options)
    assert interrupted.value.run.env_steps > 48
    assert RunDirectory.open(tmp_path / "run").checkpoints.verified("last")


class StopsAtCheckpoints:
    def on_checkpoint(self, checkpoint):
        return False


@pytest.mark.parametrize(
    "goal",
    [
        pytest.param({"evaluation_every": 350}, id="evaluations"),
        pytest.param({"evaluation_every": 0, "stop_at_return": 9.5}, id="stop_at_return"),
    ],
)
def test_a_run_resumed_again_and_again_is_evaluated_and_ends_where_an_uninterrupted_one_does(goal, tmp_path):
    options = DETERMINISTIC | {"total_steps": 4_000, "num_envs": 2, "checkpoint_every": 100} | goal
    options |= {"env": "CartPole-v1", "runs": str(tmp_path)}
    whole = train("dqn", name="whole", **options)
    part = train("dqn", name="parts", callbacks=[StopsAtCheckpoints()], **options)
    parts = 1
    while part.stopped == "callback":
        part = resume(part.path, callbacks=[StopsAtCheckpoints()])
        parts += 1
    assert parts > 5
    assert (part.env_steps, part.stopped) == (whole.env_steps, whole.stopped)
    assert part.evaluation_return == whole.evaluation_return
    names = ("env_steps", "episode_return", "evaluation_return", "evaluation_seed")
    rows = [
        [tuple(row.get(name) for name in names) for row in read_metrics(run.path) if "resumed" not in row]
        for run in (part, whole)
    ]
    assert rows[0] == rows[1]


class Interrupted(gymnasium.Wrapper):
    """CartPole that interrupts the run, in the training step or the evaluated episode of a number."""

    steps = episodes = 0
    at_step = at_episode = 0
    before_evaluation: int | None = None  # steps of training before the first evaluation

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.trains = seed >= 2**24
        if seed is not None and 2**23 <= seed < 2**24:
            if Interrupted.before_evaluation is None:
                Interrupted.before_evaluation = Interrupted.steps
            Interrupted.episodes += 1
            if Interrupted.episodes == Interrupted.at_episode:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.5)
        return super().reset(seed=seed, options=options)

    def step(self, action):
        if self.trains:
            Interrupted.steps += 1
            if Interrupted.steps == Interrupted.at_step:
                os.kill(os.getpid(), signal.SIGINT)
        return super().step(action)


@pytest.fixture
def interrupts(monkeypatch):
    """Returns a function that resets the counters and sets where the next run is interrupted."""

    def at(step=0, episode=0):
        for name, value in {"steps": 0, "episodes": 0, "at_step": step, "at_episode": episode}.items():
            monkeypatch.setattr(Interrupted, name, value)
        monkeypatch.setattr(Interrupted, "before_evaluation", None)

    return at


PPO = {
    "schedule": "deterministic",
    "num_envs": 2,
    "rollout_steps": 16,
    "hidden": (4,),
    "epochs": 1,
    "quiet": True,
}


def evaluations_of(run):
    rows = [row for row in read_metrics(run.path) if "evaluation_return" in row]
    return [(row["env_steps"], row["evaluation_seed"], row["evaluation_return"]) for row in rows]


def ppo_on_cart_poles(path, name, **options):
    env = lambda: Interrupted(gymnasium.make("CartPole-v1"))  # noqa: E731
    return train("ppo", env, name=name, runs=str(path), evaluation_episodes=EPISODES, **PPO | options)


@pytest.mark.parametrize("back", [0, 7])
def test_ctrl_c_before_an_evaluation_does_not_skip_it(back, tmp_path, interrupts):
    options = {"total_steps": 800, "evaluation_every": 350}
    interrupts()
    whole = ppo_on_cart_poles(tmp_path, "whole", **options)
    interrupts(step=Interrupted.before_evaluation - back)
    with pytest.raises(TrainingInterrupted) as interrupted:
        ppo_on_cart_poles(tmp_path, "part", **options)
    assert interrupted.value.run.env_steps == evaluations_of(whole)[0][0]
    part = resume(interrupted.value.run.path)
    assert evaluations_of(part) == evaluations_of(whole) and len(evaluations_of(whole)) > 2
    logged = [
        [row["env_steps"] for row in read_metrics(run.path) if "episode_return" in row]
        for run in (whole, part)
    ]
    assert [step for step in logged[1] if step != interrupted.value.run.env_steps] == logged[0]


def test_ctrl_c_in_a_slow_evaluation_does_not_skip_it(tmp_path, interrupts, monkeypatch):
    options = {"total_steps": 800, "evaluation_every": 350}
    interrupts()
    whole = ppo_on_cart_poles(tmp_path, "whole", **options)
    monkeypatch.setattr(trainer, "_ANSWER_S", 0.1)
    interrupts(episode=2)
    with pytest.raises(TrainingInterrupted) as interrupted:
        ppo_on_cart_poles(tmp_path, "part", **options)
    assert not evaluations_of(interrupted.value.run)
    assert evaluations_of(resume(interrupted.value.run.path)) == evaluations_of(whole)


def test_ctrl_c_in_a_slow_confirmation_repeats_both_evaluations(tmp_path, interrupts, monkeypatch):
    options = {"total_steps": 800, "stop_at_return": 5.0}
    interrupts()
    whole = ppo_on_cart_poles(tmp_path, "whole", **options)
    assert whole.stopped == "stop_at_return"
    monkeypatch.setattr(trainer, "_ANSWER_S", 0.1)
    interrupts(episode=EPISODES + 2)
    with pytest.raises(TrainingInterrupted) as interrupted:
        ppo_on_cart_poles(tmp_path, "part", **options)
    part = resume(interrupted.value.run.path)
    first, second = evaluations_of(whole)
    assert evaluations_of(part) == [first, first, second]
    assert (part.stopped, part.env_steps) == ("stop_at_return", whole.env_steps)


def test_checkpoints_of_older_versions_do_not_say_whether_a_check_was_made(tmp_path, monkeypatch):
    state = trainer.Trainer._state

    def older(self, loop):
        found = state(self, loop)
        del found["unchecked"]
        return found

    monkeypatch.setattr(trainer.Trainer, "_state", older)
    run = train("ppo", "CartPole-v1", total_steps=64, runs=str(tmp_path), **PPO)
    assert resume(run.path, total_steps=200).env_steps >= 200


def test_a_deterministic_run_is_saved_before_its_last_evaluation(tmp_path):
    """Environments of an evaluation may need more memory than there is, which can kill the process."""
    found = []

    class Looks(BetterInTraining):
        def reset(self, *, seed=None, options=None):
            if seed is not None and seed < 2**24:
                found.append([path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")])
            return super().reset(seed=seed, options=options)

    options = DETERMINISTIC | {"evaluation_every": 0, "runs": str(tmp_path), "name": "run"}
    run = train("dqn", Looks, total_steps=40, **options)
    assert found == [["step-000000000040"]] * EPISODES
    assert resume(run.path).evaluation_return == run.evaluation_return and len(found) == EPISODES


class Starts:
    """A topology whose loop is interrupted while it is made."""

    def __init__(self, monkeypatch, then):
        self._loop, self._then = topologies.SyncTopology.loop, then
        monkeypatch.setattr(topologies.SyncTopology, "loop", self.loop)

    def loop(self, *parts):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(30)
        except KeyboardInterrupt:
            if self._then == "goes on":
                return self._loop(topologies.TOPOLOGIES["rollout"], *parts)
            if self._then == "fails":
                raise EOFError from None
            raise


@pytest.mark.parametrize("then", ["ends", "fails"])
def test_ctrl_c_while_a_run_starts_says_that_nothing_was_lost(then, tmp_path, monkeypatch):
    Starts(monkeypatch, then)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        train("ppo", "CartPole-v1", total_steps=64, runs=str(tmp_path), **PPO)
    assert str(interrupted.value) == "interrupted before the first step: nothing was lost"
    assert isinstance(interrupted.value.__cause__, EOFError if then == "fails" else type(None))


def test_ctrl_c_that_an_environment_suppresses_while_a_run_starts_saves_it(tmp_path, monkeypatch):
    Starts(monkeypatch, "goes on")
    with pytest.raises(TrainingInterrupted) as interrupted:
        train("ppo", "CartPole-v1", total_steps="100M", runs=str(tmp_path), **PPO)
    assert RunDirectory.open(interrupted.value.run.path).checkpoints.verified("last")


def test_ctrl_c_does_not_limit_the_time_in_which_a_complete_run_ends(tmp_path, monkeypatch):
    close = SyncRolloutLoop.close

    def slow(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        close(self)

    monkeypatch.setattr(trainer, "_ANSWER_S", 0.05)
    monkeypatch.setattr(SyncRolloutLoop, "close", slow)
    assert train("ppo", "CartPole-v1", total_steps=64, runs=str(tmp_path), **PPO).stopped == "total_steps"


@pytest.mark.parametrize(("before", "arrives"), [(signal.SIG_DFL, True), (signal.SIG_IGN, False)])
def test_a_run_is_not_interrupted_by_the_end_of_its_terminal_under_nohup(before, arrives):
    arrived = []
    old = signal.signal(signal.SIGHUP, before)
    try:
        with trainer._signals(lambda: arrived.append(1)):
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == before
    finally:
        signal.signal(signal.SIGHUP, old)
    assert bool(arrived) == arrives


def test_a_process_that_is_forked_in_a_run_can_be_terminated(monkeypatch):
    monkeypatch.setattr(trainer, "_ANSWER_S", 0.05)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def work():
        theirs.send("begun")  # Python drops signals that arrive during the fork.
        time.sleep(600)

    with trainer._signals(lambda: None):
        process = context.Process(target=work, daemon=True)
        process.start()
        assert ours.poll(60)
        process.terminate()
        process.join(30)
        status = process.exitcode
        process.kill()
    assert status == -signal.SIGALRM


def test_processes_that_are_forked_in_a_run_ignore_its_signals():
    arrived = []

    def signals():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert not arrived

    with trainer._signals(lambda: arrived.append(os.getpid())):
        assert in_child(signals, seconds=60) == 0
        signal.raise_signal(signal.SIGTERM)
    assert arrived == [os.getpid()]
