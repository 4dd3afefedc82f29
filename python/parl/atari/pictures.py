"""Image and video files: PNG without dependencies, GIF and MP4 with imageio (extra ``video``)."""

from __future__ import annotations

import importlib
import itertools
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parl.errors import ConfigError

SUFFIXES = (".png", ".gif", ".mp4")
_COMPRESSION = 6
# GIF durations are in hundredths of a second, and viewers slow down frames shorter than 2 of them.
_GIF_FRAME_MS = 30
# A sample rate that every player of MP4 files knows. The console's own is resampled to it.
_MP4_SAMPLE_RATE = 48_000
_SILENCE = 128


def png_bytes(rgb: NDArray[np.uint8]) -> bytes:
    """Encodes an image, (H, W, 3) uint8, as a PNG file.

    Source: PNG specification, third edition, sections 5, 7 and 11.
    """
    height, width, _ = rgb.shape

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    # Each row starts with its filter type: 0, none.
    rows = np.zeros((height, 1 + 3 * width), np.uint8)
    rows[:, 1:] = rgb.reshape(height, 3 * width)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows.tobytes(), _COMPRESSION))
        + chunk(b"IEND", b"")
    )


def enlarged(rgb: NDArray[np.uint8], scale: int, aspect: int = 2) -> NDArray[np.uint8]:
    """Enlarges an image.

    Args:
        rgb: (H, W, 3) uint8.
        scale: height of a pixel.
        aspect: width of a pixel divided by its height; 2 as on a television.

    Returns:
        (scale * H, aspect * scale * W, 3) uint8.
    """
    return np.repeat(np.repeat(rgb, scale, axis=0), aspect * scale, axis=1)


def _imageio() -> Any:
    try:
        return importlib.import_module("imageio.v2")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"GIF and MP4 files need imageio ({error}): pip install 'parl-rl[video]', or write a PNG file"
        ) from error


def write_frames(
    path: Path,
    frames: Iterable[NDArray[np.uint8]],
    *,
    fps: float,
    scale: int,
    aspect: int = 2,
    alternate: bool = True,
    audio: Callable[[], NDArray[np.uint8]] | None = None,
) -> int:
    """Writes frames as a video, or the last one as an image.

    Args:
        path: path of the file. ``.mp4`` contains every frame; ``.gif`` one for every two frames; ``.png`` the
            last frame.
        frames: images of equal size, (H, W, 3) uint8.
        fps: frames per second.
        scale: height of a pixel in the file.
        aspect: width of a pixel divided by its height.
        alternate: whether objects may be drawn in alternate frames: a ``.gif`` then has the pixelwise maximum
            of every two frames, in which they stay visible, else the second one.
        audio: returns the sound of the frame that was read last from ``frames``: uint8 samples of one
            channel, the same number for each frame, 0 or 128 for silence. Written to ``.mp4`` files only.

    Returns:
        The number of frames read from ``frames``.

    Raises:
        ConfigError: the suffix is unknown, there are no frames, or imageio is not installed.
        OSError: the file cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(f"{path} ends in {suffix or 'nothing'!r}, expected one of {', '.join(SUFFIXES)}")
    remaining = iter(frames)
    first = next(remaining, None)
    if first is None:
        raise ConfigError(f"frames is empty, expected at least one frame for {path}")
    if suffix == ".png":
        last, count = first, 1
        for frame in remaining:
            last, count = frame, count + 1
        path.write_bytes(png_bytes(enlarged(last, scale, aspect)))
        return count
    options: dict[str, Any]
    if suffix == ".gif":
        options = {"mode": "I", "duration": max(_GIF_FRAME_MS, 2000 / fps), "loop": 0}
    else:
        # The codec needs even sides; with blocks of 2, no screen height needs rescaling.
        options = {"fps": fps, "macro_block_size": 2, "quality": 8}
    if suffix == ".mp4" and audio is not None:
        return _write_with_sound(path, itertools.chain([first], remaining), fps, scale, aspect, audio)
    count = 0
    waiting: NDArray[np.uint8] | None = None
    with _imageio().get_writer(path, **options) as writer:
        for frame in itertools.chain([first], remaining):
            count += 1
            if suffix == ".mp4":
                writer.append_data(enlarged(frame, scale, aspect))
            elif waiting is None:
                waiting = frame
            else:
                shown = np.maximum(waiting, frame) if alternate else frame
                writer.append_data(enlarged(shown, scale, aspect))
                waiting = None
        if waiting is not None:
            writer.append_data(enlarged(waiting, scale, aspect))
    return count


def _write_with_sound(
    path: Path,
    frames: Iterable[NDArray[np.uint8]],
    fps: float,
    scale: int,
    aspect: int,
    audio: Callable[[], NDArray[np.uint8]],
) -> int:
    """Writes an MP4 file with sound: first a file without, to which ffmpeg then adds the samples."""
    samples: list[NDArray[np.uint8]] = []

    def listened() -> Iterable[NDArray[np.uint8]]:
        for frame in frames:
            # Samples of frames that have not run are 0.
            samples.append(np.maximum(audio(), _SILENCE))
            yield frame

    with tempfile.TemporaryDirectory() as folder:
        silent = Path(folder) / "silent.mp4"
        count = write_frames(silent, listened(), fps=fps, scale=scale, aspect=aspect)
        sound = ("-f", "u8", "-ar", str(round(len(samples[0]) * fps)), "-ac", "1", "-i", "pipe:0")
        coded = ("-c:v", "copy", "-c:a", "aac", "-ar", str(_MP4_SAMPLE_RATE))
        ffmpeg = importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
        command = (ffmpeg, "-y", "-loglevel", "error", "-i", str(silent), *sound, *coded, str(path))
        done = subprocess.run(command, input=np.concatenate(samples).tobytes(), capture_output=True)
    if done.returncode != 0:
        raise OSError(f"ffmpeg could not write {path}: {done.stderr.decode(errors='replace').strip()}")
    return count
