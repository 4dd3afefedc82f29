"""One NaN in a reward, an observation or a loss ends a run of any algorithm; its checkpoints stay finite."""

import importlib.util
import math
from pathlib import Path

import gymnasium
import pytest

from parl.cli import main
from parl.errors import NonFiniteError
from parl.run import RunDirectory
from parl.train import ALGORITHMS, resume, train

FILE = Path(__file__).parents[2] / "benches" / "learning" / "faults.py"
spec = importlib.util.spec_from_file_location("faults", FILE)
faults = importlib.util.module_from_spec(spec)
spec.loader.exec_module(faults)

LOSSES = (
    r"(loss is (nan|inf)|gradient has norm (nan|NaN)|weights holds \d+ of \d+ numbers that are not finite)"
)
MESSAGES = {
    "reward": r"environment \d returned reward nan at step \d+$",
    "observation": r"(environment \d returned|holds) observation nan \(index \(1,\)\) (at step|in row) \d+$",
    "loss": LOSSES,
}
CASES = [
    (name, fault) for name in sorted(ALGORITHMS) for fault in MESSAGES if (name, fault) != ("bc", "reward")
]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setitem(faults.SMALL, "evaluation_episodes", 0)


def train_until_fault(name, fault, folder, schedule):
    """Trains ``name`` with ``fault`` until it fails; checks its checkpoints; returns the message."""
    with pytest.raises(NonFiniteError, match=MESSAGES[fault]) as found:
        train(name, **faults.settings(name, fault, math.nan, folder, schedule))
    assert False not in faults.checkpoints(folder).values()
    return str(found.value)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, for numbers that are not finite
@pytest.mark.parametrize(("name", "fault"), CASES)
def test_one_number_that_is_not_finite_ends_a_run(tmp_path, name, fault):
    train_until_fault(name, fault, tmp_path, "deterministic")
    if fault != "loss" and name != "bc":
        assert list(faults.checkpoints(tmp_path).values()) == [True]
        assert faults.evaluate_last(tmp_path) == "yes"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["a2c", "dqn", "ppo", "pqn", "rainbow"])
def test_losses_are_checked_without_a_limit_of_gradients(tmp_path, monkeypatch, name):
    monkeypatch.setitem(faults.OWN, name, faults.OWN[name] | {"max_gradient_norm": 0.0})
    train_until_fault(name, "loss", tmp_path, "deterministic")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["dqn", "td3"])
def test_initial_priorities_are_checked(tmp_path, name):
    settings = faults.settings(name, "loss", math.nan, tmp_path, "deterministic")
    with pytest.raises(NonFiniteError, match=r"initial priority is not finite: rewards of \d\S*e\+38"):
        train(name, **settings, prioritized=True, initial_priority="td")


@pytest.mark.parametrize(
    ("name", "worker"),
    [("a3c", "worker"), ("dqn", "actor"), ("es", "actor"), ("ga3c", "actor"), ("impala", "actor")],
)
def test_the_message_of_a_worker_process_reaches_the_run(tmp_path, name, worker):
    message = train_until_fault(name, "reward", tmp_path, "async")
    assert message.startswith((f"{worker} 0: environment", f"{worker} 1: environment")), message
    assert "Traceback" not in message


@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_a_run_resumes_from_before_the_fault(tmp_path, name):
    message = train_until_fault(name, "reward", tmp_path, "deterministic")
    (path,) = tmp_path.glob("*/config.toml")
    before = RunDirectory.open(path.parent).checkpoints.last()
    with pytest.raises(NonFiniteError) as again:  # the environment gives the same NaN once more
        resume(path.parent)
    assert str(again.value) == message
    assert RunDirectory.open(path.parent).checkpoints.last() == before


@pytest.mark.parametrize("fault", ["reward", "observation"])
def test_the_command_ends_with_status_1(tmp_path, capsys, fault):
    gymnasium.register("Faulty-v0", vector_entry_point=lambda num_envs: faults.Faulty(num_envs, fault))
    try:
        command = "train ppo --env Faulty-v0 --num-envs 4 --total-steps 1000 --quiet --runs"
        assert main([*command.split(), str(tmp_path)]) == 1
    finally:
        del gymnasium.registry["Faulty-v0"]
    error = capsys.readouterr().err
    assert error.startswith(f"parl: environment 3 returned {fault} nan"), error


@pytest.mark.parametrize("name", ["dqn", "ppo"])
@pytest.mark.parametrize(
    ("fault", "what"),
    [("reward", "reward"), ("observation", "observation"), ("final", "final observation")],
)
def test_faults_of_environments_with_same_step_autoreset(tmp_path, name, fault, what):
    def same_step(num_envs):
        return faults.Faulty(num_envs, fault, autoreset="same_step")

    settings = faults.settings(name, "none", math.nan, tmp_path, "deterministic") | {"env": same_step}
    with pytest.raises(
        NonFiniteError, match=rf"^environment 3 returned {what} nan( \(index \(1,\)\))? at step"
    ):
        train(name, **settings)
