"""Runs the scripts of `benches/gpu` with few environments, on the fake driver or on a device."""

import contextlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import fake_driver
import pytest
import run_on_fake_driver

import parl.cuda

# Each test compiles kernels for the CPU or runs several sets of them, which takes minutes.
pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[3] / "benches" / "gpu"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The scripts. With the fake driver, the functions of torch.cuda that they use are replaced."""
    monkeypatch.syspath_prepend(str(FOLDER))
    run_on_fake_driver.patch_torch(monkeypatch.setattr)
    import exactness
    import speed

    place = parl.cuda.torch_device(0)
    yield types.SimpleNamespace(exactness=exactness, speed=speed, place=place)
    for name in (
        "common",
        "cores",
        "device",
        "exactness",
        "micro",
        "speed",
        "replay_exactness",
        "replay_speed",
        "record",
        "to_record",
    ):
        sys.modules.pop(name, None)


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    """The lines that the newest run of a script recorded."""
    path = max(folder.glob(f"*-gpu-{name}-quick-*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_exactness(scripts: Any, tmp_path: Path) -> None:
    command = ["--quick", "--games", "pong", "--envs", "2", "--steps", "6", "--out", str(tmp_path)]
    # Without time no work starts, and the exit status is that of unfinished work.
    assert scripts.exactness.main([*command, "--seconds", "-1"]) == 3
    assert lines(tmp_path, "exactness")[-1] == {
        "what": "equal",
        "runs": 10,
        "equal": 0,
        "failed": 0,
        "left": 10,
    }
    assert scripts.exactness.main([*command, "--seconds", "3600"]) == 0
    found = lines(tmp_path, "exactness")
    assert found[0]["what"] == "machine"
    assert {"commit", "device", "CUDA driver", "driver, clock, power"} <= set(found[0])
    assert found[-1] == {"what": "equal", "runs": 10, "equal": 10, "failed": 0, "left": 0}
    assert len(found) == 12
    assert all(line["difference"] is None for line in found[1:-1])
    # Recorded work does not run again; with other settings it does.
    assert scripts.exactness.main([*command, "--seconds", "-1"]) == 0
    assert lines(tmp_path, "exactness")[1:] == found[-1:]
    assert scripts.exactness.main([*command, "--seconds", "-1", "--steps", "7"]) == 3


def test_a_difference_is_found(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from parl.envs.atari.cuda import CudaAtariVectorEnv

    step = CudaAtariVectorEnv.step

    def wrong(self: Any, actions: Any, **options: Any) -> Any:
        results = step(self, actions, **options)
        results[0][1, 3, 70, 5] ^= 1
        return results

    monkeypatch.setattr(CudaAtariVectorEnv, "step", wrong)
    found, steps, _ = scripts.exactness.compare(["pong"], 2, 3, "cuda", float("inf"))
    assert steps == 1
    assert found is not None
    assert "before step 1: observation at (1, 3, 70, 5) is " in found


def test_a_comparison_that_runs_out_of_time_is_left(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scripts.exactness.compare(["pong"], 2, 3, "cuda", 0.0) == (None, 0, 0)
    command = ["--quick", "--mixed", "--games", "pong", "--envs", "2", "--steps", "3", "--out", str(tmp_path)]
    with monkeypatch.context() as patched:
        patched.setattr(scripts.exactness, "compare", lambda *_, **__: (None, 1, 0))
        assert scripts.exactness.main(command) == 3
    cut = lines(tmp_path, "exactness")
    assert [(line["what"], line["steps"]) for line in cut[1:-1]] == [("cut off", 1)]
    assert cut[-1] == {"what": "equal", "runs": 1, "equal": 0, "failed": 0, "left": 1}
    # The next call compares again.
    assert scripts.exactness.main(command) == 0
    found = lines(tmp_path, "exactness")
    assert [(line["what"], line["steps"]) for line in found[1:-1]] == [("exactness", 3)]


def rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The rows of the record after to_record.py has added the lines of the newest run of a script to it."""
    # to_record.py makes the folder above importable.
    import to_record  # isort: skip
    import record  # isort: skip

    path = max(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    monkeypatch.setattr(to_record, "FOLDER", folder)
    monkeypatch.setattr(sys, "argv", ["to_record.py", str(path), "--commit", "1234567"])
    assert to_record.main() == 0
    [table] = folder.glob("*.csv")
    return record.read(table)


def test_lines_become_rows_of_a_record(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["--quick", "--mixed", "--games", "pong", "--envs", "2", "--steps", "2", "--out", str(tmp_path)]
    assert scripts.exactness.main(command) == 0
    rows(tmp_path, monkeypatch)
    assert [
        (row.case, row.median, row.steps, row.commit, row.command) for row in rows(tmp_path, monkeypatch)
    ] == [
        ("1 games mixed, 2 each", "1", "2", "1234567", "python benches/gpu/exactness.py --games pong --mixed")
    ] * 2


def test_comparisons_without_steps_of_their_own_become_rows(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts.exactness, "compare", lambda games, envs, steps, *_, **__: (None, steps, 0))
    monkeypatch.setattr(scripts.exactness, "seeded", lambda *_: None)
    command = ["--quick", "--games", "pong", "--envs", "2", "--steps", "2", "--out", str(tmp_path)]
    assert scripts.exactness.main(command) == 0
    steps = {row.case: row.steps for row in rows(tmp_path, monkeypatch)}
    assert len(steps) == 10
    assert steps["pong, one state of the CPU in 100 consoles"] == "50"


def test_speed(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts.speed, "REPEATS", 2)
    monkeypatch.setattr(scripts.speed, "WARMUP_STEPS", 2)
    options = [
        "--quick",
        "--games",
        "pong",
        "--envs",
        "2",
        "--sizes",
        "2",
        "3",
        "--steps",
        "2",
        "--grid",
        "4",
    ]
    # Compiling again would take a minute with the fake driver, so both runs use the kernel cache.
    monkeypatch.setattr(
        scripts.speed, "patch", types.SimpleNamespace(dict=lambda *_: contextlib.nullcontext())
    )
    assert scripts.speed.main([*options, "--out", str(tmp_path)]) == 0
    found = lines(tmp_path, "speed")
    kinds = [line["what"] for line in found]
    assert kinds.count("compile") == 2
    assert kinds.count("start") == kinds.count("frames, graph") == 2
    # Two sizes of breakout, two games of the grid, and pong.
    assert (kinds.count("frames"), kinds.count("frames, ram")) == (5, 2)
    assert kinds.count("frames, other settings") == 7
    [forms] = [line for line in found if line["what"] == "forms"]
    assert len(forms["rates"]) == 5
    assert forms["best"] in forms["rates"]
    assert {"states", "median of the twenty", "worst game"} <= set(kinds)
    assert all(line["frames_per_second"] > 0 for line in found if "frames_per_second" in line)
    # A second run measures nothing and gives the same summary.
    assert scripts.speed.main([*options, "--seconds", "-1", "--out", str(tmp_path)]) == 0
    again = lines(tmp_path, "speed")
    assert [line["what"] for line in again[1:]] == ["median of the twenty", "worst game", *["bar"] * 9]
    assert again[1:] == found[-11:]
    bars = {line["promise"]: line for line in again if line["what"] == "bar"}
    assert bars["frames per second, breakout, 256 envs"]["meets"] == "not measured"
    state = bars["bytes of state per env beyond observations and the generator, at most"]
    assert (state["found"], state["meets"]) == (1016, "first bar")
    assert bars["seconds to compile, first use, at most"]["found"] > 0


def test_micro(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import micro

    for name, value in {"WARPS": (0, 1), "MINIMA": 8, "OPERATIONS": 100, "GAMES": ("pong",)}.items():
        monkeypatch.setattr(micro, name, value)
    monkeypatch.setattr(scripts.speed, "REPEATS", 2)
    monkeypatch.setattr(scripts.speed, "WARMUP_STEPS", 2)
    command = ["--quick", "--envs", "2", "--out", str(tmp_path)]
    with fake_driver.current_context():
        assert micro.main(command) == 0
    found = lines(tmp_path, "micro")
    kinds = [line["what"] for line in found]
    # Four forms; one warp on the device, and one on each multiprocessor.
    frames = [line for line in found if line["what"] == "frames alone"]
    assert {(line["form"], line["warps_per_multiprocessor"]) for line in frames} == {
        (form, warps) for form in micro.FORMS for warps in (0, 1)
    }
    assert all(line["frames_per_second"] > 0 for line in frames)
    assert kinds.count("minimum over a warp") == kinds.count("straight code") == 4
    [observations] = [line for line in found if line["what"] == "observations"]
    assert set(observations["steps_per_second"]) == {"gray", "ram"}
    together = [line for line in found if line["what"] == "lanes together"]
    assert [line["form"] for line in together] == [form for form in micro.FORMS if form.startswith("grouped")]
    assert all(line["lanes_at_the_start_of_a_frame"] == 32 for line in together)
    assert all(1 < line["lanes_of_a_turn"] < 32 and line["turns_of_a_frame"] > 100 for line in together)
    pieces = ["frames of pong", "lanes of pong", "minima", "code sizes", "observations of pong"]
    assert [line["piece"] for line in found if line["what"] == "piece"] == pieces
    # Recorded pieces are not measured again.
    assert micro.main(command) == 0
    assert [line["what"] for line in lines(tmp_path, "micro")] == ["machine"]


def test_cores(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import cores

    monkeypatch.setattr(cores, "ROUNDS", 2)
    monkeypatch.setattr(cores, "ROWS", 1 << 14)
    command = ["--quick", "--games", "pong", "--envs", "4", "--out", str(tmp_path)]
    assert cores.main(command) == 0
    found = lines(tmp_path, "cores")
    counts = cores.thread_counts()
    for what in ("vector environment", "replay"):
        rates = [line for line in found if line["what"] == what]
        assert [line["threads"] for line in rates] == counts
        assert rates[0]["speedup"] == 1.0 and all(0 < line["low"] <= line["high"] for line in rates)
    cases = [
        f"{what}, {count} threads" for what in ("vector environment, pong", "replay") for count in counts
    ]
    recorded = rows(tmp_path, monkeypatch)
    assert [(row.case, row.unit) for row in recorded[1::2]] == [(case, "x") for case in cases]
    assert {row.metric for row in recorded[::2]} == {"frames per second", "pairs per second"}


def test_choices_and_files_of_replays_are_compared(scripts: Any) -> None:
    import replay_exactness

    replay_exactness.choices("cuda", 200)
    replay_exactness.saved("cuda")
    replay_exactness.graphs("cuda", 4)
    replay_exactness.replays(replay_exactness.SEQUENCES[1:2] + replay_exactness.GOALS[2:3], 1.0, "cuda")
    assert parl.PrioritizedReplay(10, {"x": ((), "int64")}, device="cuda").device == scripts.place


def test_speed_of_replays(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import replay_speed

    small = {
        "BATCH": 8,
        "REPEATS": 2,
        "ROWS": 990,
        "LEAVES": 1024,
        "PIECE": 512,
        "COPIED_BYTES": 1 << 16,
    }
    for name, value in small.items():
        monkeypatch.setattr(replay_speed, name, value)
    micros = replay_speed.micros
    monkeypatch.setattr(replay_speed, "micros", lambda call, device, calls: micros(call, device, 2))
    command = ["--quick", "--out", str(tmp_path)]
    # A piece that fails is recorded, and the others are measured anyway.
    monkeypatch.setattr(replay_speed, "torchrl", lambda *_: 1 / 0)
    assert replay_speed.main(command) == 1
    found = lines(tmp_path, "replay-speed")
    [failed] = [line for line in found if line["what"] == "failed"]
    assert (failed["piece"], failed["error"]) == ("torchrl", "ZeroDivisionError: division by zero")
    assert {"sample", "update", "tree sample", "add", "stacks", "sequences", "goals"} <= {
        line["what"] for line in found
    }
    recorded = {(row.case, row.metric): row for row in rows(tmp_path, monkeypatch)}
    for case in ("sample, 8 rows", "update, 8 rows", "add, 1024 rows", "sequences, 8 rows"):
        for metric in ("time of a call", "time of a graph's launch"):
            assert float(recorded[case, metric].low) <= float(recorded[case, metric].median)
    assert recorded["stacks, 8 rows", "share of the memory's bandwidth"].unit == "1"
    assert recorded["goals, 8 rows", "time of a call"].command == "python benches/gpu/replay_speed.py"
    monkeypatch.setattr(replay_speed, "torchrl", lambda *_: {"torchrl sample": 1e12, "torchrl update": 1e12})
    assert replay_speed.main(command) == 0
    # Recorded pieces are not measured again.
    bars = lines(tmp_path, "replay-speed")[1:]
    assert [line["what"] for line in bars] == ["piece", *["bar"] * 4]
    assert all(line["found"] is not None for line in bars[1:])
    assert bars[-1]["meets"] == "goal"
