"""``--record`` of the benchmarks: valid rows, each under a claim of the page.

Made-up figures of about the right size replace the runs.
"""

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHES = ROOT / "benches"
CLAIMS = {claim["key"] for claim in tomllib.loads((BENCHES / "claims.toml").read_text())["claim"]}
CLAIMS |= {"console-games"}
# A machine of prices.toml, without its name and price.
MACHINE = """
vcpus = 2
memory_gib = 4
gpu = ""
region = "all"
date = 2026-09-17
source = "https://example.org"
read_in = ""
"""


class Figures(dict):
    """A run's result that has a number for every key."""

    numbers = iter(range(1, 10**9))

    def __missing__(self, key):
        if key in ("reached",):
            return True
        if key == "parts_us":
            return {"add": 1.0, "draw": 2.0, "give": 3.0}
        if key == "curve":
            return [10.0, 20.0]
        if key == "points":
            return [(100, 1.0, 50.0), (200, 2.0, 60.0)]
        return 100.0 + next(self.numbers) % 7

    def get(self, key, default=None):
        return self[key]


def a_run(*_, **__):
    return Figures()


@pytest.fixture
def record(monkeypatch, tmp_path):
    for folder in (BENCHES, BENCHES / "python", BENCHES / "learning"):
        monkeypatch.syspath_prepend(str(folder))
    module = importlib.import_module("record")
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    return module


def rows_of(record, tmp_path):
    found = [row for path in tmp_path.glob("*.csv") for row in record.read(path)]
    assert found
    assert {row.claim for row in found} <= CLAIMS
    return found


def rows_of_run(record, monkeypatch, tmp_path, name, words, **stubs):
    """Runs ``python benches/learning/name.py words --record``; returns the rows."""
    module = importlib.import_module(name)
    for stub, value in stubs.items():
        monkeypatch.setattr(module, stub, value)
    monkeypatch.setattr(sys, "argv", [str(BENCHES / "learning" / f"{name}.py"), *words, "--record"])
    module.main()
    return rows_of(record, tmp_path)


def test_games_that_the_suite_lacks_are_refused_before_they_are_trained(record, monkeypatch, capsys):
    module = importlib.import_module("games57")
    monkeypatch.setattr(module, "run_in_process", lambda *_: pytest.fail("a run was started"))
    monkeypatch.setattr(sys, "argv", ["games57.py", "--suite", "atari5", "--games", "pong", "qbert"])
    with pytest.raises(SystemExit):
        module.main()
    assert "atari5 does not contain pong, only battle_zone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words", "cases"),
    [
        ("ablation", ["--only", "delay", "--seeds", "2"], 3),
        ("curves", ["--only", "ppo-cartpole", "sac-pendulum", "--seeds", "2", "--peer-seeds", "2"], 2),
        ("games57", ["--games", "pong", "ms_pacman", "--seeds", "2"], 5),
        ("games57", ["--algorithms", "dqn", "pqn", "--suite", "atari5", "--games", "qbert"], 8),
        ("goals", ["--only", "ppo-cartpole", "ppo-lunarlander", "--seeds", "2", "--jobs", "1"], 2),
        ("goals", ["--only", "c51-cartpole", "lstm-positions", "--seeds", "2", "--jobs", "1"], 2),
        ("lengths", ["pqn", "--lengths", "100", "--seeds", "0", "1"], 2),
        ("league", ["--games", "pong", "--seeds", "2"], 1),
        ("memory", ["--rounds", "2"], 2),
        ("objects", ["--games", "Pong", "Boxing", "--seeds", "2"], 6),
        ("offpolicy", ["goals", "--only", "acrobot-dqn", "--only", "lunarlander-dqn", "--seeds", "2"], 2),
        ("offpolicy", ["peers", "--only", "cheetah-sac", "--only", "cartpole-dqn-zoo", "--rounds", "2"], 2),
        ("offpolicy", ["replay", "--only", "dqn/CartPole-v1/uniform/prefetch"], 1),
        ("pong", ["--input", "pictures", "--seeds", "2"], 1),
        ("ppo_peers", ["breakout", "--seeds", "2"], 2),
        ("ppo_peers", ["breakout", "--presets", "atari-small", "atari-cpu"], 3),
        ("ppo_peers", ["breakout", "--presets", "atari-small", "--games", "0"], 2),
        ("recurrent", ["--seeds", "2", "--jobs", "1"], 2),
        ("ppo_peers", ["cheetah", "--seeds", "1"], 1),
        ("atari_dqn", ["--rounds", "2"], 1),
        ("scaling", ["actors", "--rounds", "2"], 1),
        ("scaling", ["learners", "--rounds", "2"], 1),
    ],
)
def test_a_learning_benchmark_records_its_figures(record, monkeypatch, tmp_path, name, words, cases):
    found = rows_of_run(record, monkeypatch, tmp_path, name, words, run_in_process=a_run)
    assert len({row.case for row in found}) == cases
    assert all(row.command.startswith(f"python benches/learning/{name}.py") for row in found)
    assert not any("--record" in row.command for row in found)


def test_scores_of_learners_are_recorded(record, monkeypatch, tmp_path):
    def curve(*_):
        return [1.0, 2.0, 3.0]

    found = rows_of_run(
        record, monkeypatch, tmp_path, "scaling", ["curve", "--rounds", "2"], run_in_process=curve
    )
    assert {row.claim for row in found} == {"learners-score"}


@pytest.mark.parametrize("what", ["rates", "scaling", "profile"])
def test_figures_of_topologies_are_recorded(record, monkeypatch, tmp_path, what):
    found = rows_of_run(record, monkeypatch, tmp_path, "topologies", [what], measure=a_run)
    claim = {"rates": "topologies", "scaling": "populations", "profile": "loop-profile"}[what]
    assert {row.claim for row in found} == {claim}


def test_two_libraries_of_one_case_have_separate_rows(record, monkeypatch, tmp_path):
    found = rows_of_run(
        record,
        monkeypatch,
        tmp_path,
        "offpolicy",
        ["peers", "--only", "cheetah-td3", "--rounds", "2"],
        run_in_process=a_run,
    )
    speeds = {row.library for row in found if row.metric == "steps per second"}
    assert speeds == {"parl", "Stable-Baselines3"}
    (ratio,) = (row for row in found if row.metric == "speed ratio")
    assert (ratio.peer, ratio.seeds, ratio.steps) == ("Stable-Baselines3", "2", "2000")


def test_sections_of_the_replay_benchmark_are_recorded(record, monkeypatch, tmp_path):
    bench = importlib.import_module("replay_bench")
    monkeypatch.setattr(sys, "argv", [str(BENCHES / "python" / "replay_bench.py"), "--only", "tree"])
    kept = record.Record("replay")
    alone = bench.Row("tree append", "ns/item", lambda: 1.0, ours_times=[1.0, 2.0, 3.0])
    pair = bench.Row("tree sample", "ns/item", lambda: 1.0, bar=0.125, ours_times=[1.0, 2.0, 3.0])
    pair.peers = pair.peer_times = {"torchrl float32": [10.0, 20.0, 30.0], "tianshou": [20.0, 40.0, 60.0]}
    threads = bench.Row("2 threads, wall clock: replay", "ns/item", lambda: 1.0, bar=1 / 1.6, note="speed-up")
    threads.ours_times, threads.peer_times = [1.0, 1.0, 1.0], {"one thread": [2.0, 2.0, 2.0]}
    for section, row in (("tree", alone), ("tree", pair), ("threads", threads)):
        bench.add_to_record(kept, section, row, 3, "load average 1")
    kept.write()
    found = {(row.case, row.metric, row.peer, row.threads): row for row in rows_of(record, tmp_path)}
    ratio = found["tree sample", "time ratio", "TorchRL float32", "1"]
    assert (ratio.median, ratio.bar) == ("0.1", "<= 0.125")
    speed = found["replay", "wall-clock speed ratio", "parl with 1 thread", "2"]
    assert (speed.median, speed.bar) == ("2", ">= 1.6")


def test_an_area_is_the_mean_over_time_of_the_scaled_return(record):
    area = importlib.import_module("curves").area
    curve = [(1, 2.0, 900.0), (2, 4.0, 247.5), (3, 5.0, -50.0)]  # goal 475, random actions 20
    for seconds, expected in ((1.0, 0.25), (4.0, 0.625), (5.0, 0.55), (10.0, 0.275)):
        assert area(curve, seconds, "CartPole-v1") == pytest.approx(expected)


def test_layouts_are_recorded(record, monkeypatch, tmp_path):
    bench = importlib.import_module("layouts")
    monkeypatch.setattr(bench, "program", lambda: "layouts")
    monkeypatch.setattr(bench, "nanoseconds", lambda _, layout, *__: 20.0 if layout == "binary" else 10.0)
    monkeypatch.setattr(bench, "misses", lambda *words: [4 * words[4], words[4]])
    words = ["layouts.py", "--sizes", "16", "--rounds", "2", "--count", "100", "--record"]
    monkeypatch.setattr(sys, "argv", words)
    bench.main()
    found = rows_of(record, tmp_path)
    assert {row.metric for row in found} == {"time", "first-level misses", "last-level misses", "time ratio"}
    assert {row.median for row in found if row.metric == "first-level misses"} == {"4"}
    assert [row.median for row in found if row.peer == "binary tree"] == ["0.5", "0.5"]


def test_the_robust_phase_is_recorded(record, monkeypatch, tmp_path):
    def a_seed(*_):
        points = [0.0, 100.0, 400.0, 400.0]
        seconds = {"explore_s": 60.0, "train_s": 200.0}
        return {"way": 284, "way_points": 400, "points": points, "replayed": [0.0, 100.0], **seconds}

    words = ["--seeds", "2", "--finished", "file"]
    found = rows_of_run(record, monkeypatch, tmp_path, "robust", words, run_in_process=a_seed)
    assert {row.command for row in found} == {"python benches/learning/robust.py --seeds 2"}
    values = {row.metric: row.median for row in found}
    assert (values["mean points"], values["episodes with at least 400 points"]) == ("225", "0.5")
    assert values["episodes with at least 100 points"] == "0.75"
    assert values["replays of the way's actions with at least 100 points"] == "0.5"


def test_interquartile_means_of_modes_are_recorded_with_their_intervals(record, monkeypatch, tmp_path):
    def a_seed(_, case, seed, __):
        return {"training": [10.0 + seed] * 4, "test": [0.0, 0.0, 8.0, 8.0], "cpu_s": 1.0}

    words = ["--games", "freeway", "--seeds", "2"]
    found = rows_of_run(record, monkeypatch, tmp_path, "modes", words, run_in_process=a_seed)
    means = {row.case: (row.median, row.low, row.high) for row in found if row.unit == "points"}
    assert means == {
        "freeway, 4 training modes": ("10.5", "10", "11"),
        "freeway, 4 test modes": ("4", "4", "4"),
    }


def test_finished_runs_are_taken_from_the_file(record, monkeypatch, tmp_path):
    import processes

    script, finished = tmp_path / "script.py", tmp_path / "finished"
    script.write_text("import os, sys\nprint(os.getpid())\n")
    first = [processes.run_in_process(script, {"steps": 1}, seed, finished) for seed in (0, 1)]
    assert [processes.run_in_process(script, {"steps": 1}, seed, finished) for seed in (0, 1)] == first
    assert processes.run_in_process(script, {"steps": 2}, 0, finished) not in first
    assert len(finished.read_text().splitlines()) == 3


def test_finished_runs_of_another_commit_are_reported(record, monkeypatch, tmp_path, capsys):
    """The record names the commit that writes it, which would be wrong for them."""
    import processes

    script, finished = tmp_path / "script.py", tmp_path / "finished"
    script.write_text("print(1)\n")
    monkeypatch.setattr(processes, "commit", lambda: "older")
    processes.run_in_process(script, {"steps": 1}, 0, finished)
    processes.run_in_process(script, {"steps": 1}, 0, finished)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(processes, "commit", lambda: "newer")
    assert processes.run_in_process(script, {"steps": 1}, 0, finished) == 1
    assert "seed 0 is of older, not newer" in capsys.readouterr().err


def test_runs_beside_rllib_are_recorded(record, monkeypatch, tmp_path):
    def a_run(_, case, seed, __):
        rows = [
            {
                "seconds": 10.0,
                "cpu_s": 20.0 + seed,
                "steps": 1_000,
                "reached": True,
                "fresh": 200.0,
                "load": 1.0,
            },
            {"seconds": 50.0, "cpu_s": 80.0, "steps": 9_000, "reached": False, "fresh": 300.0, "load": 1.0},
        ]
        return rows if case[0] == "RLlib" else rows[0] | {"cpu_s": 2.0}

    words = ["goals", "--only", "dqn-cartpole", "--splits", "2+1", "--seeds", "2"]
    found = rows_of_run(record, monkeypatch, tmp_path, "rllib", words, run_in_process=a_run)
    case = "DQN, CartPole-v1 to 475, 2 actors, 1 learner"
    assert {row.case for row in found} == {case, "DQN, CartPole-v1 to 195, 2 actors, 1 learner"}
    ratios = {row.case: row for row in found if row.unit == "x"}
    assert (ratios[case].median, ratios[case].peer) == ("40", "RLlib")
    assert "at least" in ratios[case].conditions
    reached = [row.median for row in found if row.unit == "seeds" and row.case == case]
    assert reached == ["2", "0"]


def test_times_to_a_score_are_recorded(record, monkeypatch, tmp_path):
    def a_run(_, case, seed, __):
        row = {"seconds": 20.0, "cpu_s": 10.0 + seed, "steps": 5_000, "fresh": -150.0, "reached": True}
        if len(case) == 1:
            return row | {"reached": seed == 0}
        return row | {"seconds": 2.0 * case[1], "reached": case[0] == "sac-pendulum" or seed == 0}

    words = ["--only", "sac-pendulum", "td3-pendulum", "--seeds", "2"]
    found = rows_of_run(record, monkeypatch, tmp_path, "time_to_score", words, run_in_process=a_run)
    ratios = {(row.case, row.conditions): row for row in found if row.metric == "speed ratio"}
    # Runs of TD3 that did not reach the goal have no ratio.
    label = "SAC, Pendulum-v1 to -200"
    assert {key: row.median for key, row in ratios.items()} == {
        (label, "1 actor, 1 learner, at least"): "10",
        (label, "2 actors, 2 learners, at least"): "5",
    }
    reached = {row.library: row.median for row in found if row.unit == "seeds" and row.case == label}
    assert reached == {"parl": "2", "Stable-Baselines3": "1"}


def test_rates_beside_rllib_are_recorded(record, monkeypatch, tmp_path):
    rllib = importlib.import_module("rllib")
    found = rows_of_run(
        record, monkeypatch, tmp_path, "rllib", ["rates", "--rounds", "2"], run_in_process=a_run
    )
    assert len({row.case for row in found}) == sum(len(modes) for *_, modes in rllib.WORKLOADS)
    assert {row.library for row in found} == {"parl", "RLlib"}


def test_rates_exclude_the_first_two_processor_seconds_of_learning(record):
    rllib = importlib.import_module("rllib")
    # Time, processor time, transitions, updates.
    marks = [(0.0, 5.0, 0, 0), (1.0, 6.0, 900, 900), (10.0, 7.0, 1_000, 1_000), (20.0, 12.0, 1_100, 1_050)]
    assert not rllib.measured(marks[:3], 5.0)
    assert rllib.measured(marks, 5.0)
    assert not rllib.measured(marks, 5.1)
    found = rllib.between(marks, 256)
    assert (found["steps"], found["rows"], found["ratio"]) == (10.0, 1_280.0, 128.0)
    assert (found["steps_cpu"], found["rows_cpu"]) == (20.0, 2_560.0)


def test_frames_for_a_dollar_are_recorded(record, monkeypatch, tmp_path):
    money = importlib.import_module("money")
    prices = tmp_path / "prices.toml"
    prices.write_text(f"[[machine]]\nname = 'small'\ndollars = 0.5\n{MACHINE}")
    monkeypatch.setattr(money.machines, "__defaults__", (prices,))
    monkeypatch.setattr(sys, "argv", [str(BENCHES / "money.py"), "--record"])
    money.main()
    found = {(row.case, row.library): row for row in rows_of(record, tmp_path)}
    pong = found["pong, 8 environments, small", "parl"]
    # 173,900 frames/s of the record for an hour, for half of the price of two processors.
    assert (pong.median, pong.unit, pong.spread) == ("2504", "million frames/$", "quartiles")
    score = found["Pong from memory to 18, small", "parl"]
    assert float(score.median) == pytest.approx(68.57 / 3600 * 0.5, rel=1e-3)
    assert float(score.low) < float(score.median) < float(score.high)


@pytest.mark.parametrize(
    ("dollars", "message"), [("dollars = 0", "dollars = 0 is not above 0"), ("", "dollars")]
)
def test_a_machine_without_a_price_is_refused(record, tmp_path, dollars, message):
    prices = tmp_path / "prices.toml"
    prices.write_text(f"[[machine]]\nname = 'small'\n{dollars}\n{MACHINE}")
    with pytest.raises(ValueError, match=message):
        importlib.import_module("money").machines(prices)


def test_prices_have_a_date_and_a_source(record):
    machines = importlib.import_module("money").machines()
    assert machines
    for machine in machines:
        assert machine["date"].year >= 2026, machine["name"]
        assert machine["source"].startswith("https://"), machine["name"]


def test_a_run_that_is_measured_for_some_time_ends(record):
    """It ended by an interrupt, which raises since `parl.train` says where an interrupted run is saved."""
    import processes

    options = {"env": "CartPole-v1", "learning_starts": 200, "hidden": (16,), "actors": 1, "learners": 1}
    assert processes.train_for("dqn", 0.3, skip=0, **options)["updates_per_s"] > 0


def test_the_share_of_the_replay_is_measured_in_a_learner(record, monkeypatch):
    import offpolicy

    monkeypatch.setattr(offpolicy, "TURNS", 1)
    found = offpolicy.share("dqn/CartPole-v1/prioritized", 0, None)
    assert all(found["parts_us"][part] > 0 for part in ("add", "draw", "give"))


def test_one_lock_is_held_by_the_samples_of_a_learner(record, monkeypatch):
    """Batches that a learner fills again and again went around the locked method."""
    import ablation

    import parl
    from parl.runtime.off_policy.learner_worker import BatchSampler

    replay = ablation.locked(parl.PrioritizedReplay)(100, {"obs": ((4,), "float32")})
    replay.add(obs=[[0.0] * 4] * 8)
    calls, sample = [], replay.sample
    monkeypatch.setattr(replay, "sample", lambda size, **given: calls.append(size) or sample(size, **given))
    BatchSampler(replay, 4, 2, 0, 1).draw(0.4)
    assert calls == [4]
