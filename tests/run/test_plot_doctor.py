"""Learning curves and the machine report."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import parl
from parl.errors import ConfigError, RunDirectoryError
from parl.run import MetricsLog, RunDirectory, doctor
from parl.run.plot import band, groups, learning_curves, plot_runs


def _run(root, name, values, key="episode_return"):
    run = RunDirectory.create(root, name, {})
    with MetricsLog(run) as log:
        for number, value in enumerate(values):
            log.write({"env_steps": number * 10, "wall_time_s": number * 0.5, key: value})
    return run.path


def test_curves_of_two_runs_become_one_picture(tmp_path):
    runs = [_run(tmp_path, name, range(20)) for name in ("one", "two")]
    picture = plot_runs(runs, tmp_path / "plots" / "both.png")
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG")
    # Lines make the file larger: a picture of the same size without them compresses to far less.
    alone = plot_runs([_run(tmp_path, "dot", [1.0])], tmp_path / "dot.png").read_bytes()
    assert len(data) > len(alone)


def test_a_band_is_median_and_extremes_in_the_range_of_all_curves():
    places, middle, lowest, highest = band(
        [([0, 10], [0.0, 10.0]), ([2, 12], [5.0, 5.0]), ([0, 8], [1.0, 1.0])], points=4
    )
    np.testing.assert_allclose(places, [2, 4, 6, 8])
    np.testing.assert_allclose(lowest, [1, 1, 1, 1])
    np.testing.assert_allclose(middle, [2, 4, 5, 5])
    np.testing.assert_allclose(highest, [5, 5, 6, 8])


def test_runs_that_differ_only_in_their_seed_are_one_band(tmp_path):
    paths = []
    for rate in (1, 2):
        for seed in (0, 1, 2):
            run = RunDirectory.create(tmp_path, f"r{rate}-{seed}", {"run": {"seed": seed, "rate": rate}})
            with MetricsLog(run) as log:
                for step in range(9):
                    log.write(
                        {"env_steps": step, "wall_time_s": step / 2, "episode_return": step * rate + seed}
                    )
            paths.append(run.path)
    assert {name: len(members) for name, members in groups(paths).items()} == {"r1": 3, "r2": 3}
    together = plot_runs(paths, tmp_path / "bands.png", bands=True).read_bytes()
    assert together.startswith(b"\x89PNG")
    assert together != plot_runs(paths, tmp_path / "lines.png").read_bytes()


def test_seeds_without_a_common_range_are_drawn_one_by_one(tmp_path):
    paths = []
    for seed, steps in enumerate(([100], [120, 130])):
        run = RunDirectory.create(tmp_path, f"one-{seed}", {"run": {"seed": seed}})
        with MetricsLog(run) as log:
            for step in steps:
                log.write({"env_steps": step, "wall_time_s": step, "evaluation_return": 5.0})
        paths.append(run.path)
    for axis in learning_curves(paths, "evaluation_return", bands=True).axes:
        assert [line.get_xdata().tolist() for line in axis.get_lines()] == [[100], [120, 130]]
        assert [line.get_marker() for line in axis.get_lines()] == ["o", ""]
        assert len({line.get_color() for line in axis.get_lines()}) == 1


@pytest.mark.parametrize(("name", "start"), [("a.pdf", b"%PDF"), ("a.SVG", b"<?xml"), ("a", b"\x89PNG")])
def test_the_ending_of_a_plot_names_its_type(tmp_path, name, start):
    run = _run(tmp_path, "one", range(3))
    assert plot_runs([run], tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(ConfigError, match=r"a\.xyz: Format 'xyz' is not supported"):
        plot_runs([run], tmp_path / "a.xyz")


def _drawn(run, y):
    """Values and legend of the left axes of a figure."""
    axis = learning_curves([run], y, bands=False).axes[0]
    legend = [text.get_text() for text in axis.get_legend().get_texts()]
    return [line.get_ydata().tolist() for line in axis.get_lines()], legend


def test_evaluations_are_drawn_only_with_returns_and_named_in_the_legend(tmp_path):
    run = RunDirectory.create(tmp_path, "one", {})
    with MetricsLog(run) as log:
        for step in range(3):
            log.write(
                {"env_steps": step, "wall_time_s": step, "episode_return": 20 + step, "loss": step / 10}
            )
        log.write({"env_steps": 3, "wall_time_s": 3, "evaluation_return": 500.0})
    returns = [20.0, 21.0, 22.0]
    assert _drawn(run.path, "episode_return") == ([returns, [500.0]], ["one", "one, evaluations"])
    assert _drawn(run.path, "loss") == ([[0.0, 0.1, 0.2]], ["one"])
    assert _drawn(run.path, "evaluation_return") == ([[500.0]], ["one"])


def test_plot_names_what_is_missing(tmp_path):
    with pytest.raises(ConfigError, match="runs is empty"):
        plot_runs([], tmp_path / "none.png")
    with pytest.raises(FileNotFoundError):
        plot_runs([tmp_path / "missing"], tmp_path / "none.png")
    run = RunDirectory.create(tmp_path, "run", {})
    with MetricsLog(run) as log:
        log.write({"env_steps": 1, "wall_time_s": 1, "loss": 1.0, "episode_return": None, "protocol": "text"})
    for y in ("episode_return", "protocol"):
        with pytest.raises(RunDirectoryError, match=f"for {y!r}, expected one of loss$"):
            plot_runs([run.path], tmp_path / "none.png", y)
    assert not (tmp_path / "none.png").exists()


def test_doctor_reports_each_part_once():
    lines = doctor.report()
    names = [name for name, _ in lines]
    assert len(set(names)) == len(names)
    assert {"parl", "processor", "numpy", "torch", "ROM files", "shared memory"} <= set(names)
    assert {"CUDA driver", "NVRTC", "kernel cache"} <= set(names)
    assert all(text for _, text in lines)


def test_doctor_prefers_parl_roms_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("ALE_ROMS_DIR", "/elsewhere")
    monkeypatch.setenv("PARL_ROMS_DIR", str(tmp_path))
    assert doctor.rom_folder() == (tmp_path, "PARL_ROMS_DIR")


def test_stale_segments_are_those_that_no_process_maps(tmp_path):
    (tmp_path / "parl-left-over").write_bytes(b"x")
    (tmp_path / "somebody-else").write_bytes(b"x")
    assert doctor.stale_segments(tmp_path) == [tmp_path / "parl-left-over"]


def test_a_segment_of_any_name_that_a_killed_process_left_is_listed():
    name = f"whatever-{os.getpid()}"
    code = f"""
import os, signal, parl
replay = parl.PrioritizedReplay(10, {{"x": ((), "int64")}}, shared={name!r})
os.kill(os.getpid(), signal.SIGKILL)
"""
    place = Path("/dev/shm") / name
    with parl.PrioritizedReplay(10, {"x": ((), "int64")}, shared=name + "-alive"):
        subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
        try:
            stale = doctor.stale_segments()
            assert place in stale and Path(f"{place}-alive") not in stale
            assert oct(place.stat().st_mode & 0o777) == "0o600"
            assert f"{place}" in dict(doctor.report())["shared memory"]
        finally:
            place.unlink()


def test_sweep_removes_only_stale_segments(tmp_path):
    left = tmp_path / "left"
    left.write_bytes((0x7061726C_00000001).to_bytes(8, "little") + bytes(100))
    (tmp_path / "other").write_bytes(bytes(100))
    (tmp_path / "link").symlink_to(left)
    assert doctor.remove_stale_segments(tmp_path) == [left]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "other"]
