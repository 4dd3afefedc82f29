"""Sizes of tree levels, rings and kernel launches."""

from __future__ import annotations

from dataclasses import dataclass

from parl.replay.cuda.structs import LANES, LEVELS_MAX

# Threads per block of kernels in which a thread handles one item.
THREADS = 256
# Pieces that a thread copies.
PIECES = 4
# Draws per block; a warp computes one draw.
DRAWS_PER_BLOCK = 32
SAMPLE_THREADS = DRAWS_PER_BLOCK * LANES
# Largest number of blocks of a launch over items, in which threads then loop: 4 per multiprocessor of an
# H200.
BLOCKS_MAX = 528
CAPACITY_MAX = 2**31
# Rows per tile of the gathering kernel: for rows of at least LARGE_BYTES, and for smaller ones.
TILE_ROWS_LARGE, TILE_ROWS_SMALL = 4, 256
LARGE_BYTES = 4096


def rounded(count: int) -> int:
    """``count`` rounded up to a multiple of the lanes of a node."""
    return -(-count // LANES) * LANES


def levels(capacity: int) -> list[int]:
    """Number of entries of each level, leaves first, up to a level of one node; at least two levels.

    Raises:
        ValueError: the capacity is out of its bounds.
    """
    if not 1 <= capacity <= CAPACITY_MAX:
        raise ValueError(f'capacity is {capacity}, expected 1 to {CAPACITY_MAX} (device="cuda")')
    found, count = [rounded(capacity)], capacity
    while len(found) < 2 or count > LANES:
        count = -(-count // LANES)
        found.append(rounded(count))
    assert len(found) <= LEVELS_MAX
    return found


def ring(capacity: int, history: int) -> tuple[int, int]:
    """Number of slots, and of rows per chunk, as in ``crates/sumtree/src/replay/layout.rs``."""
    chunk = min(max(capacity // 64, 1), 1024)
    return (-(-(capacity + history) // chunk) + 2) * chunk, chunk


def blocks(items: int) -> int:
    """Number of blocks of :data:`THREADS` threads for a number of items."""
    return min(max(-(-items // THREADS), 1), BLOCKS_MAX)


def piece_bytes(row_bytes: int, *addresses: int) -> int:
    """Width in bytes of the widest loads that rows of this size, at these addresses and strides, allow."""
    for width in (16, 4):
        if not any(number % width for number in (row_bytes, *addresses)):
            return width
    return 1


@dataclass
class Tiles:
    """Partition of the blocks of a gathering kernel into tiles of rows and, within a tile, outputs."""

    rows: int
    first_blocks: list[int]
    blocks_per_tile: int
    blocks: int


def tiles(count: int, rows: int, pieces: list[int]) -> Tiles:
    """Partitions ``count`` rows into tiles of ``rows`` rows; output i has ``pieces[i]`` pieces per row."""
    first, per_tile = [], 0
    for row_pieces in pieces:
        first.append(per_tile)
        per_tile += max(-(-rows * row_pieces // (THREADS * PIECES)), 1)
    return Tiles(rows, first, per_tile, per_tile * -(-count // rows))
