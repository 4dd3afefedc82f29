"""`parl bench` with small settings: tables, plots, how the numbers are computed, and refused options."""

import itertools
import re
import time
import types
from pathlib import Path

import numpy as np
import pytest

from parl.bench import atari, loops, tradeoff
from parl.cli import main
from parl.errors import ParlError
from parl.nets.actor_critic import ActorCritic

pytestmark = pytest.mark.usefixtures("one_thread")


def cells(line):
    return [cell.strip() for cell in line.strip("|\n ").split("|")]


def test_atari_prints_a_row_for_each_number_and_writes_a_plot(tmp_path, capsys, monkeypatch):
    rates, inferred = [], []
    forward, frames = ActorCritic.policy_of, atari._frames

    def policy_of(self, observations):
        inferred.append(len(observations))
        return forward(self, observations)

    def measured(env, act, seconds):
        before = len(inferred)
        rates.append((frames(env, act, seconds), set(inferred[before:])))
        return rates[-1][0]

    monkeypatch.setattr(ActorCritic, "policy_of", policy_of)
    monkeypatch.setattr(atari, "_frames", measured)
    out = tmp_path / "plots" / "rates.png"
    words = ["--num-envs", "2", "3", "--seconds", "0.05", "--threads", "1", "--algorithms", "a2c"]
    assert main(["bench", "atari", *words, "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    columns = cells(lines[1])
    assert columns == [
        "environments", "random actions", "inference", "training a2c", "updates/s a2c", "GPU utilization",
    ]  # fmt: skip
    rows = [dict(zip(columns, cells(line), strict=True)) for line in lines[3:5]]
    assert [row["environments"] for row in rows] == ["2", "3"]
    # Which of the two is faster depends on the machine. Only inference calls the network.
    assert [batches for _, batches in rates] == [set(), {2}, set(), {3}]
    for row, number in zip(rows, (2, 3), strict=True):
        printed = [float(row[name].replace(",", "")) for name in columns[1:3]]
        expected = [rate * number for rate, _ in rates[2 * (number - 2) : 2 * (number - 1)]]
        assert printed == pytest.approx(expected, abs=0.5, rel=0.06) and min(printed) > 0
        assert float(row["training a2c"].replace(",", "")) > 0
    assert out.read_bytes()[:4] == b"\x89PNG"


def test_measurements_begin_when_environments_differ():
    """After a reset all are at the same frame; after random steps they are not, as in training."""

    class Envs:
        def __init__(self):
            self.calls, self.action_space = [], types.SimpleNamespace(seed=int, sample=lambda: "random")

        def reset(self, seed):
            return np.zeros(1), {}

        def step(self, action):
            self.calls.append(action)
            return np.zeros(1), 0, False, False, {}

    envs = Envs()
    assert atari._frames(envs, lambda obs: "chosen", 0.01) > 0
    assert envs.calls[: atari._WARM_UP_STEPS] == ["random"] * atari._WARM_UP_STEPS
    assert set(envs.calls[atari._WARM_UP_STEPS :]) == {"chosen"}


def test_training_counts_frames_of_the_console():
    options = atari.AtariOptions(num_envs=(2,), seconds=0.05, threads=1, algorithms=("a2c",))
    report = atari._training(options, "a2c", 2)
    # An update is a rollout of 128 steps of both environments, of 4 frames each.
    row = {"frames": report["env_steps_per_s"] * 4, "updates": report["updates_per_s"]}
    assert row["frames"] / row["updates"] == pytest.approx(2 * 128 * 4, rel=0.05)


def test_strategies_trade_updates_for_experience(tmp_path, capsys, monkeypatch):
    # A clock that does not depend on the machine: each call, one per unit of work, advances it by 0.03 s.
    ticks = itertools.count(1_000)
    monkeypatch.setattr(tradeoff, "time", types.SimpleNamespace(monotonic=lambda: 0.03 * next(ticks)))
    words = ["--seconds", "1.5", "--num-envs", "8", "--goal", "12", "--strategies", "20/20/1", "1/20/4"]
    assert main(["bench", "tradeoff", *words, "--out", str(tmp_path / "t.png")]) == 0
    lines = capsys.readouterr().out.splitlines()
    columns = cells(lines[1])
    few, many = (dict(zip(columns, cells(line), strict=True)) for line in lines[3:5])
    steps, updates = (
        [float(row[name].replace(",", "")) for row in (few, many)] for name in ("steps/s", "updates/s")
    )
    # One update per 20 x 8 steps, and one per 8 steps once the window of 20 is full.
    assert steps[0] / updates[0] == pytest.approx(160, rel=0.1)
    assert 7 < steps[1] / updates[1] < 20
    score_s, score_steps = float(few["seconds to score"]), int(few["steps to score"].replace(",", ""))
    # One call of the clock per rollout of up to 160 steps, and one when the score is reached.
    assert score_steps > 160 and score_s == pytest.approx(0.03 * (score_steps / 155 + 1), abs=0.06)
    assert (tmp_path / "t.png").stat().st_size > 5_000


def test_without_matplotlib_there_is_no_figure_and_no_error(monkeypatch):
    assert loops.figure_line(lambda: "rates.png") == "figure: rates.png"
    monkeypatch.setattr(loops.importlib.util, "find_spec", lambda name: None)
    assert "pip install 'parl-rl[plot]'" in loops.figure_line(lambda: 1 / 0)


@pytest.mark.parametrize("text", ["5/5", "5/x/1", "0/5/1"])
def test_an_invalid_strategy_is_named(text):
    with pytest.raises(ParlError, match=re.escape(repr(text))):
        tradeoff.Strategy.parse(text)


@pytest.mark.parametrize(
    ("benchmark", "options"),
    [
        (atari.AtariOptions, {"device": "tpu"}),
        (atari.AtariOptions, {"num_envs": (0,)}),
        (atari.AtariOptions, {"seconds": 0.0}),
        (atari.AtariOptions, {"seconds": float("inf")}),
        (atari.AtariOptions, {"threads": -1}),
        (atari.AtariOptions, {"algorithms": ("ppo", "dqn")}),
        (atari.AtariOptions, {"out": Path("rates.txt")}),
        (tradeoff.TradeoffOptions, {"seconds": -1.0}),
        (tradeoff.TradeoffOptions, {"goal": float("nan")}),
        (tradeoff.TradeoffOptions, {"out": Path("tradeoff.txt")}),
    ],
)
def test_options_out_of_bounds_are_named(benchmark, options):
    name = next(iter(options))
    with pytest.raises(ParlError, match=name):
        benchmark(**options)


@pytest.mark.parametrize("name", ["impala", "a3c", "ga3c"])
def test_algorithms_without_torch_threads_are_measured(name):
    options = atari.AtariOptions(num_envs=(2,), seconds=0.05, threads=1, algorithms=(name,))
    assert atari._training(options, name, 2)["env_steps_per_s"] >= 0


def test_an_unknown_benchmark_is_refused(capsys):
    assert main(["bench", "pacman"]) == 2
    assert "atari or tradeoff" in capsys.readouterr().err


def test_gpu_utilization_is_the_mean_that_nvidia_smi_prints(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 40\necho 90\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(loops, "_SAMPLE_S", 0.01)
    with loops.GpuUtilization() as busy:
        while not busy._samples:
            time.sleep(0.01)
    assert busy.mean == pytest.approx(0.4)
    monkeypatch.setenv("PATH", "")
    with loops.GpuUtilization() as busy:
        pass
    assert busy.mean is None
