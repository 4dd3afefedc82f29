"""`first_difference.py` finds the frame after which a byte of RAM is changed on one emulator."""

import first_difference
import pytest
from first_difference import Trace


@pytest.mark.parametrize("at", [0, 1, 57, 118, 119])
def test_a_poked_byte_is_found_in_its_frame(at, tmp_path, capsys):
    broken = ["ale", "parl", "pong", "frames=120", "sticky=0.25", "--poke", f"parl:{at}:60:77"]
    assert first_difference.main([*broken, "--out", str(tmp_path)]) == 1
    report = capsys.readouterr().out
    assert report.startswith(f"frame {at}: ale and parl: ")
    assert "RAM $BC: " in report
    assert (tmp_path / "report.txt").read_text() == report
    for name in ("first.png", "second.png", "both.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_equal_sides_have_no_difference(capsys):
    assert first_difference.main(["ale", "parl", "breakout", "frames=150", "reset_every=60"]) == 0
    assert capsys.readouterr().out == "ale and parl: 150 frames, no difference\n"


def test_a_difference_of_pictures_alone_is_found():
    one = Trace(links=[1, 2, 3, 4], screens=[None, 5, 6, 7])
    assert first_difference.first(one, one) is None
    assert first_difference.first(one, one._replace(screens=[9, 5, 8, 7])) == 2
    assert first_difference.first(one, one._replace(screens=[9, None, None, 8])) == 3
    assert first_difference.first(one, one._replace(links=[1, 9, 9, 9], screens=[9, 5, 8, 7])) == 1
