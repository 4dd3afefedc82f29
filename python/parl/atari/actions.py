"""The 18 actions: positions of joystick and button, by number and by name."""

from __future__ import annotations

from enum import IntEnum

from parl.errors import AtariError


class Action(IntEnum):
    """An action of one player, with the names and numbers of the Arcade Learning Environment.

    A member is an ``int``. With a paddle, RIGHT and LEFT turn the knob, and UP and DOWN have no effect.
    """

    NOOP = 0
    FIRE = 1
    UP = 2
    RIGHT = 3
    LEFT = 4
    DOWN = 5
    UPRIGHT = 6
    UPLEFT = 7
    DOWNRIGHT = 8
    DOWNLEFT = 9
    UPFIRE = 10
    RIGHTFIRE = 11
    LEFTFIRE = 12
    DOWNFIRE = 13
    UPRIGHTFIRE = 14
    UPLEFTFIRE = 15
    DOWNRIGHTFIRE = 16
    DOWNLEFTFIRE = 17


def action_number(action: int | str) -> int:
    """The number of an action given by number or by name, in upper or lower case.

    Raises:
        AtariError: (a ValueError) no action has this name or number.
        TypeError: ``action`` is neither an int nor a string.
    """
    if isinstance(action, str):
        try:
            return Action[action.upper()].value
        except KeyError:
            raise AtariError(
                f"action is {action!r}, expected one of {', '.join(Action.__members__)}"
            ) from None
    try:
        number = action.__index__()
    except AttributeError:
        raise TypeError(f"action is a {type(action).__name__}, expected an int or a name") from None
    if not 0 <= number < len(Action):
        raise AtariError(f"action {number} is outside 0 to {len(Action) - 1}")
    return number
