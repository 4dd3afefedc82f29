"""Compares generated cartridges with ale-py: one of every scheme, and those that once differed."""

import cartridges
import fuzz
import pytest

FRAMES = 20
# Code in the timer's registers; a console reset within a frame after HMOVE; a console reset after which the
# first access to the TIA is exactly at the clock of the first row.
ONCE_DIFFERENT = [("bytes", seed) for seed in (116, 794, 885, 981, 989, 2850)]
# Open frames whose picture is read in some frames: rows that they have not reached are dimmed once.
# A playfield that is joined by other objects while both score and priority are on.
DIFFERED_LATE = [("code", 421), ("tia", 1261)]
# Frames open for several steps, some of which read the picture: pixels keep the colors of their own time.
OPEN_FRAMES = [("waits", seed) for seed in range(8)]
EVERY_SCHEME = [("banks", seed) for seed in range(len(cartridges.SCHEMES))]
OTHERS = [(kind, seed) for kind in ("tia", "code") for seed in range(3)]


@pytest.mark.parametrize(("kind", "seed"), ONCE_DIFFERENT + OPEN_FRAMES + EVERY_SCHEME + OTHERS)
def test_a_generated_cartridge_equals_ale_py(kind, seed):
    result = fuzz.play(fuzz.Job(kind, seed, FRAMES))
    assert result.wrong is None and result.frames == FRAMES + 1


@pytest.mark.parametrize(("kind", "seed"), DIFFERED_LATE)
def test_a_cartridge_that_once_differed_late_equals_ale_py(kind, seed):
    result = fuzz.play(fuzz.Job(kind, seed, 400))
    assert result.wrong is None and result.frames == 401


@pytest.mark.parametrize("seed", range(2 * len(cartridges.SCHEMES)))
def test_every_scheme_is_detected_from_the_image(seed):
    names = {"K2": "2K", "K4": "4K", "T3F": "3F", "T3E": "3E"}
    scheme = fuzz.emulators._native.Rom(cartridges.banks(seed), "").cartridge
    assert names.get(scheme, scheme) == list(cartridges.SCHEMES)[seed % len(cartridges.SCHEMES)]
