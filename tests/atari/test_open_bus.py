"""Programs that run in the TIA's addresses see the byte that a game's rules read last: it stays on the bus.

ale-py's rules read RAM over the bus after each frame. An instruction fetched from the TIA takes six of its
bits from what is left there, so that the order in which a game's rules read RAM changes what such a program
does. No game runs code there; damaged images of games may (``docs/atari.md``).
"""

import pytest
import sides

# The byte that ale-py's rules read last; found by `probe` with every address.
LAST_READ = {"koolaid": 0xD1, "riverraid": 0xC0, "seaquest": 0xBB}
JAM, BRK = 0x02, 0x00


def probe(address):
    """RAM is full of JAM but for a BRK at ``address``; then a frame ends, and $0000 is run.

    The last instruction of the image ends the frame, so that the next one is fetched from the TIA. BRK pushes
    three bytes onto the stack, which is in RAM; JAM leaves RAM as it is.
    """
    fill = [0x78, 0xD8, 0xA2, 0xFF, 0x9A, 0xA9, JAM, 0xA2, 0x80, 0x95, 0x00, 0xE8, 0xD0, 0xFB]
    mark = [0xA9, BRK, 0x85, address]
    frame = [0xA9, 2, 0x85, 0, *[0x85, 2] * 3, 0xA9, 0, 0x4C, 0xFE, 0xFF]
    code = [*fill, *mark, *frame]
    vectors = [0x00, 0xF0, 0x00, 0xF0, 0x85, 0x00]
    return bytes([*code, *[0xEA] * (4096 - 6 - len(code)), *vectors])


def both(tmp_path, game, address):
    """RAM of ale-py and of parl after loading."""
    rom = tmp_path / f"{game}.bin"
    rom.write_bytes(probe(address))
    setup = sides.Setup(rom, game)
    return [side(setup).frame().ram.tobytes() for side in (sides.Ale, sides.Parl)]


@pytest.mark.parametrize("game", LAST_READ)
def test_the_model_leaves_the_last_byte_of_its_rules(tmp_path, game):
    for address in (LAST_READ[game], LAST_READ[game] - 1):
        theirs, _ = both(tmp_path, game, address)
        # The status that BRK pushed.
        assert (theirs[0x7D] != JAM) == (address == LAST_READ[game])


@pytest.mark.parametrize(
    "game",
    [
        "koolaid",
        *[
            pytest.param(
                game, marks=pytest.mark.xfail(strict=True, reason="parl assumes that $FF is read last")
            )
            for game in ("riverraid", "seaquest")
        ],
    ],
)
def test_parl_leaves_the_same(tmp_path, game):
    theirs, ours = both(tmp_path, game, LAST_READ[game])
    assert ours == theirs
