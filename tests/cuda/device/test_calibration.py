"""Calibration: the fastest form of a game is measured on the device, saved on disk, and loaded again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import parl
from parl.errors import AtariError

# Each test compiles kernels for the CPU or runs several sets of them, which takes minutes.
pytestmark = pytest.mark.slow

FORMS = {("grouped", window) for window in (0, 2, 4, 9)} | {("plain", 0)}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary cache folder with links to the kernels that were compiled before."""
    import os

    kept = Path(os.environ.get("PARL_CACHE_DIR", Path.home() / ".cache" / "parl")) / "kernels"
    (tmp_path / "kernels").mkdir()
    for kernel in kept.glob("*.kernel"):
        (tmp_path / "kernels" / kernel.name).symlink_to(kernel)
    monkeypatch.setenv("PARL_CACHE_DIR", str(tmp_path))
    return tmp_path / "kernels"


def made(**options: Any) -> Any:
    return parl.AtariVectorEnv("breakout", 2, device="cuda", **options)


def test_the_choice_is_saved_loaded_and_measured_again_if_damaged(cache: Path) -> None:
    envs = made()
    assert not envs.calibrated
    found = envs.calibrate()
    assert {(form, window) for form, window, _ in found} == FORMS
    assert all(0 < seconds < 600 for _, _, seconds in found)
    [file] = cache.glob("*.choice")
    best = min(found, key=lambda row: row[2])
    # The fastest choice is on the first line, after the magic bytes and the hash.
    first = file.read_bytes()[24:].decode().splitlines()[0].split(" ")
    assert (first[0], int(first[1])) == best[:2]
    # The measurement does not change the results of the environments.
    reference = parl.AtariVectorEnv("breakout", 2, boot="snapshot")
    ours, theirs = envs.reset(seed=4)[0], reference.reset(seed=4)[0]
    assert (ours.numpy(force=True) == theirs).all()
    envs.close()
    again = made()
    assert again.calibrated
    again.close()
    # Another game has its own file; a damaged file is ignored.
    other = parl.AtariVectorEnv("pong", 1, device="cuda")
    assert not other.calibrated
    other.close()
    file.write_bytes(file.read_bytes()[:-1])
    damaged = made()
    assert not damaged.calibrated
    damaged.close()


def test_calibrating_several_games_at_once_is_refused() -> None:
    envs = parl.AtariVectorEnv(["breakout", "pong"], 2, device="cuda")
    with pytest.raises(AtariError, match="play 2 games"):
        envs.calibrate()
    envs.close()
