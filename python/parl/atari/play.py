"""Interactive play: keys to actions and the screen in a window or a terminal."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from parl.atari.actions import Action
from parl.atari.console import Console
from parl.atari.recording import Recorder
from parl.atari.terminal import Keys, raw_terminal, screen_of_terminal
from parl.errors import ConfigError

HELP = "arrows move, space fires, p pauses, r resets, q quits"
HELP_TWO = HELP + "; player two: w a s d, f fires"
_PLAYER_ONE = {"up": "UP", "down": "DOWN", "left": "LEFT", "right": "RIGHT", " ": "FIRE"}
_PLAYER_TWO = {"w": "UP", "s": "DOWN", "a": "LEFT", "d": "RIGHT", "f": "FIRE"}
_QUIT = frozenset({"q", "escape", "ctrl+c"})
_WINDOW_HEIGHT = 630
_WINDOW_WIDTH = 840
# Sound starts when this many frames wait to be played, so that a late frame leaves no gap.
_FIRST_FRAMES = 3
# Frames that may wait. The oldest are left out where a game runs faster than in real time.
_MOST_FRAMES = 12


def action_of(held: Iterable[str], keys: dict[str, str]) -> Action:
    """The action of the keys that are held; opposite directions cancel each other.

    Args:
        held: names of the keys.
        keys: name of a key -> UP, DOWN, LEFT, RIGHT or FIRE.
    """
    parts = {keys[key] for key in held if key in keys}
    vertical = parts & {"UP", "DOWN"}
    horizontal = parts & {"LEFT", "RIGHT"}
    name = (vertical.pop() if len(vertical) == 1 else "") + (horizontal.pop() if len(horizontal) == 1 else "")
    return Action[name + ("FIRE" if "FIRE" in parts else "") or "NOOP"]


class Display(Protocol):
    """A display with a keyboard."""

    def poll(self) -> tuple[frozenset[str], list[str]]:
        """The keys that are held, and the keys pressed since the last call."""
        ...

    def show(self, rgb: NDArray[np.uint8], status: str) -> None:
        """Shows an image, (H, W, 3) uint8, and a line of text."""
        ...


class _TerminalDisplay:
    def __init__(self, read: Callable[[], bytes]) -> None:
        self._screen = screen_of_terminal()
        self._keys = Keys()
        self._read = read
        self._waiting: NDArray[np.uint8] | None = None

    def poll(self) -> tuple[frozenset[str], list[str]]:
        self._keys.feed(self._read())
        return self._keys.held(), self._keys.pressed()

    def show(self, rgb: NDArray[np.uint8], status: str) -> None:
        # Draws every second frame, as the maximum of two frames, since many objects appear in alternate
        # frames.
        if self._waiting is None:
            self._waiting = rgb
        else:
            self._screen.draw(np.maximum(self._waiting, rgb), status)
            self._waiting = None


class _Speaker:
    """Plays the sound of frames.

    Args:
        pygame: the module.
        sample_rate: samples per second.

    Raises:
        pygame.error: there is no sound device.
    """

    def __init__(self, pygame: Any, sample_rate: int) -> None:
        self._pygame = pygame
        pygame.mixer.init(sample_rate, 8, 1, allowedchanges=0)
        self._channel = pygame.mixer.Channel(0)
        self._waiting = b""

    def play(self, samples: NDArray[np.uint8]) -> None:
        """Plays the samples of a frame, uint8, after those of earlier frames."""
        self._waiting = (self._waiting + samples.tobytes())[-_MOST_FRAMES * len(samples) :]
        starts = not self._channel.get_busy() and len(self._waiting) < _FIRST_FRAMES * len(samples)
        # A channel plays one piece and holds the next one.
        if not starts and self._channel.get_queue() is None:
            self._channel.queue(self._pygame.mixer.Sound(buffer=self._waiting))
            self._waiting = b""

    def close(self) -> None:
        self._pygame.mixer.quit()


class _WindowDisplay:
    def __init__(self, title: str) -> None:
        # Suppresses pygame's message on standard output.
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        self._pygame: Any = importlib.import_module("pygame")
        self._pygame.display.init()
        self._window = self._pygame.display.set_mode((_WINDOW_WIDTH, _WINDOW_HEIGHT), self._pygame.RESIZABLE)
        self._pygame.display.set_caption(title)
        self._held: set[str] = set()

    def poll(self) -> tuple[frozenset[str], list[str]]:
        pygame = self._pygame
        names = {pygame.K_UP: "up", pygame.K_DOWN: "down", pygame.K_LEFT: "left", pygame.K_RIGHT: "right"}
        names |= {pygame.K_SPACE: " ", pygame.K_ESCAPE: "escape"}
        pressed: list[str] = []
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                pressed.append("q")
            elif event.type in (pygame.KEYDOWN, pygame.KEYUP):
                key: str = names.get(event.key) or pygame.key.name(event.key)
                if event.type == pygame.KEYUP:
                    self._held.discard(key)
                elif key not in self._held:
                    self._held.add(key)
                    pressed.append(key)
        return frozenset(self._held), pressed

    def show(self, rgb: NDArray[np.uint8], status: str) -> None:
        pygame = self._pygame
        picture = pygame.surfarray.make_surface(np.swapaxes(rgb, 0, 1))
        self._window.blit(pygame.transform.scale(picture, self._window.get_size()), (0, 0))
        pygame.display.set_caption(status)
        pygame.display.flip()

    def speaker(self, sample_rate: int) -> _Speaker | None:
        """Plays sound at ``sample_rate``; None if there is no sound device."""
        try:
            return _Speaker(self._pygame, sample_rate)
        except (self._pygame.error, ImportError, NotImplementedError):
            return None

    def close(self) -> None:
        self._pygame.display.quit()


def window_is_possible() -> bool:
    """Whether pygame is installed and there is a display on which to open a window."""
    if importlib.util.find_spec("pygame") is None:
        return False
    if sys.platform.startswith("linux"):
        return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"))
    return True


def loop(
    console: Console,
    display: Display,
    *,
    fps: float,
    max_frames: int = 0,
    recorder: Recorder | None = None,
    listen: Callable[[NDArray[np.uint8]], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Plays in real time until a quit key is pressed.

    Args:
        console: the console.
        display: shows the screen and reads the keys.
        fps: frames per second.
        max_frames: number of frames after which to stop; 0 for no limit.
        recorder: records the actions.
        listen: gets the sound of each frame, (512,) uint8.
        clock: time in seconds.
        sleep: waits for a number of seconds.

    Returns:
        The score of the last episode.
    """
    two = console.players == 2
    score, frames, paused = 0, 0, False
    due = clock()
    while True:
        held, pressed = display.poll()
        if _QUIT.intersection(pressed):
            return score
        if "r" in pressed:
            score = 0
            if recorder is None:
                console.reset()
            else:
                recorder.restart()
        paused ^= "p" in pressed
        if not paused and not console.game_over:
            other = action_of(held, _PLAYER_TWO) if two else Action.NOOP
            action = action_of(held, _PLAYER_ONE)
            score += console.act(action if recorder is None else recorder.action(action), other)
            if listen is not None:
                listen(console.audio)
        state = "paused" if paused else "game over, r starts again" if console.game_over else ""
        parts = [console.name, f"score {score}", f"lives {console.lives}", state, HELP_TWO if two else HELP]
        display.show(console.screen_rgb, "  ".join(part for part in parts if part))
        frames += 1
        if frames == max_frames:
            return score
        due += 1 / fps
        now = clock()
        if due > now:
            sleep(due - now)
        else:
            # Too slow for real time: schedules the next frame from now, instead of catching up in a burst.
            due = now


def play(
    console: Console,
    *,
    where: str = "auto",
    fps: float | None = None,
    max_frames: int = 0,
    recorder: Recorder | None = None,
) -> int:
    """Plays a game in a window or in the terminal.

    Args:
        console: the console, which continues from its state. In a window its sound is played if it makes
            any and there is a sound device.
        where: ``window``, ``terminal``, or ``auto`` for a window if one is possible.
        fps: frames per second; None for 60 or, for PAL games, 50.
        max_frames: number of frames after which to stop; 0 for no limit.
        recorder: records the actions.

    Returns:
        The score of the last episode.

    Raises:
        ConfigError: there is neither a window nor a terminal, or ``fps`` is not positive.
    """
    if fps is not None and not fps > 0:
        raise ConfigError(f"fps is {fps}, expected more than 0")
    fps = fps or console.frames_per_second
    if where == "window" or (where == "auto" and window_is_possible()):
        if importlib.util.find_spec("pygame") is None:
            raise ConfigError("a window needs pygame: pip install pygame-ce, or play with --terminal")
        window = _WindowDisplay(f"parl: {console.name}")
        speaker = window.speaker(console.audio_sample_rate) if console.sound else None
        listen = None if speaker is None else speaker.play
        try:
            return loop(console, window, fps=fps, max_frames=max_frames, recorder=recorder, listen=listen)
        finally:
            if speaker is not None:
                speaker.close()
            window.close()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(
            "there is neither a terminal nor a window (pygame and a display): use `parl record` to write a "
            "file"
        )
    with raw_terminal(sys.stdin.fileno(), sys.stdout) as read:
        display = _TerminalDisplay(read)
        return loop(console, display, fps=fps, max_frames=max_frames, recorder=recorder)
