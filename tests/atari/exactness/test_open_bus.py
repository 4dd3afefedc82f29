"""Code in the TIA's addresses depends on the byte that a game's rules read last, which stays on the bus.

ale-py's rules read RAM over the bus after each frame. An instruction fetched from the TIA takes six of its
bits from the last byte on the bus, so the order in which a game's rules read RAM affects such a program. No
game runs code there; damaged images of games may (``docs/atari.md``).
"""

import emulators
import pytest

from parts import one_of

# Address of the byte that ale-py's rules read last, found by trying `probe` with every address. The table
# lacks games in which this address depends on RAM, and games that ale-py does not boot with such a program
# because it waits for a mode to be selected.
LAST_READ = {
    "amidar": 0xD6,
    "assault": 0xE5,
    "asterix": 0xC7,
    "atlantis2": 0xA3,
    "blackjack": 0x86,
    "boxing": 0x91,
    "carnival": 0x83,
    "darkchambers": 0xCA,
    "earthworld": 0xA7,
    "elevator_action": 0x81,
    "enduro": 0xAF,
    "entombed": 0xC7,
    "fishing_derby": 0xBE,
    "journey_escape": 0x96,
    "kaboom": 0xA1,
    "koolaid": 0xD1,
    "krull": 0x80,
    "kung_fu_master": 0x9D,
    "laser_gates": 0x83,
    "miniature_golf": 0xAF,
    "montezuma_revenge": 0xFE,
    "phoenix": 0xCB,
    "pitfall": 0x9E,
    "pitfall2": 0xC7,
    "qbert": 0xD9,
    "riverraid": 0xC0,
    "road_runner": 0xBD,
    "robotank": 0xA8,
    "seaquest": 0xBB,
    "skiing": 0x91,
    "solaris": 0xD9,
    "superman": 0x9F,
    "tetris": 0xF3,
    "time_pilot": 0xA0,
    "trondead": 0xC8,
    "up_n_down": 0x94,
    "venture": 0xBF,
    "wizard_of_wor": 0xD7,
}
JAM, BRK = 0x02, 0x00


def probe(address):
    """Returns a program that fills RAM with JAM, writes BRK at ``address``, ends a frame and goes to $0000.

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
    """Returns RAM of ale-py and of parl after loading."""
    rom = tmp_path / f"{game}.bin"
    rom.write_bytes(probe(address))
    setup = emulators.Setup(rom, game)
    return [emulator(setup).frame().ram.tobytes() for emulator in (emulators.Ale, emulators.Parl)]


@pytest.mark.parametrize("game", one_of(3, LAST_READ))
def test_the_byte_left_on_the_bus_equals_ale_pys(tmp_path, game):
    for address in (LAST_READ[game], LAST_READ[game] - 1):
        theirs, ours = both(tmp_path, game, address)
        # BRK pushes the status, with bits 4 and 5 set.
        assert (theirs[0x7D] & 0x30 == 0x30) == (address == LAST_READ[game])
        assert ours == theirs
