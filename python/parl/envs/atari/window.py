"""Screens of several environments in a grid, as one array or in a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SCALE = 2


def grid(pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Arranges images in a grid that is as square as possible, row by row, with black in empty cells.

    Args:
        pictures: (H, W, 3) uint8 each, of equal width.

    Returns:
        (grid rows * largest H, grid columns * W, 3) uint8.
    """
    columns = int(np.ceil(np.sqrt(len(pictures))))
    rows = -(-len(pictures) // columns)
    height = max(picture.shape[0] for picture in pictures)
    width = pictures[0].shape[1]
    whole = np.zeros((rows * height, columns * width, 3), np.uint8)
    for i, picture in enumerate(pictures):
        y, x = i // columns * height, i % columns * width
        whole[y : y + picture.shape[0], x : x + width] = picture
    return whole


class Window:
    """A pygame window that shows images; needs ``pip install pygame-ce``.

    Args:
        title: title of the window.
    """

    def __init__(self, title: str) -> None:
        import pygame  # pyright: ignore[reportMissingImports]

        self._pygame = pygame
        self._title = title
        self._screen: Any = None

    def show(self, picture: NDArray[np.uint8]) -> None:
        """Shows an image, (H, W, 3) uint8, at twice its size; the first call opens the window."""
        pygame = self._pygame
        if self._screen is None:
            pygame.display.init()
            self._screen = pygame.display.set_mode((_SCALE * picture.shape[1], _SCALE * picture.shape[0]))
            pygame.display.set_caption(self._title)
        surface = pygame.surfarray.make_surface(np.transpose(picture, (1, 0, 2)))
        self._screen.blit(pygame.transform.scale_by(surface, _SCALE), (0, 0))
        pygame.event.pump()
        pygame.display.flip()

    def close(self) -> None:
        """Closes the window if it is open."""
        if self._screen is not None:
            self._pygame.display.quit()
            self._screen = None
