"""Generated cartridges beside ale-py: one of every scheme, and those that once differed."""

import cartridges
import fuzz
import pytest

FRAMES = 20
# Code in the timer's registers; a console reset within a frame after HMOVE; one behind which the first access
# to the TIA comes at the very clock of the first row.
ONCE_DIFFERENT = [("bytes", seed) for seed in (116, 794, 885, 981, 989, 2850)]
# Open frames, looked at now and then: what they have not reached is dimmed once.
# A playfield that stops being alone while both score and priority are on.
SELDOM_SEEN = [("code", 421), ("tia", 1261)]
# Frames left open for several steps, of which some are looked at: their colors are those of their time.
OPEN = [("waits", seed) for seed in range(8)]
EVERY_SCHEME = [("banks", seed) for seed in range(len(cartridges.SCHEMES))]
OTHERS = [(kind, seed) for kind in ("tia", "code") for seed in range(3)]


@pytest.mark.parametrize(("kind", "seed"), ONCE_DIFFERENT + OPEN + EVERY_SCHEME + OTHERS)
def test_a_generated_cartridge_is_equal(kind, seed):
    result = fuzz.play(fuzz.Job(kind, seed, FRAMES))
    assert result.wrong is None and result.frames == FRAMES + 1


@pytest.mark.parametrize(("kind", "seed"), SELDOM_SEEN)
def test_a_cartridge_that_differed_late_is_equal(kind, seed):
    result = fuzz.play(fuzz.Job(kind, seed, 400))
    assert result.wrong is None and result.frames == 401


@pytest.mark.parametrize("seed", range(2 * len(cartridges.SCHEMES)))
def test_every_scheme_is_known_by_its_image(seed):
    names = {"K2": "2K", "K4": "4K", "T3F": "3F", "T3E": "3E"}
    scheme = fuzz.sides._native.Rom(cartridges.banks(seed), "").cartridge
    assert names.get(scheme, scheme) == list(cartridges.SCHEMES)[seed % len(cartridges.SCHEMES)]
