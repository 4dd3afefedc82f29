"""Sizes of levels and rings, and how many blocks a launch has: arithmetic only."""

from __future__ import annotations

from dataclasses import dataclass

from parl.replay.device.structs import LANES, LEVELS_MAX

# Threads of a block where each has its own item.
THREADS = 256
# Pieces that a thread copies.
PIECES = 4
# Draws of one block, a warp each.
DRAWS_PER_BLOCK = 32
SAMPLE_THREADS = DRAWS_PER_BLOCK * LANES
# A launch of single items goes round in at most so many blocks: four to a multiprocessor of a large device.
BLOCKS_MAX = 528
CAPACITY_MAX = 2**31
# Rows of a tile that a launch of the gathering goes over: of stacks of frames, and of anything small.
TILE_ROWS_LARGE, TILE_ROWS_SMALL = 4, 256
LARGE_BYTES = 4096


def rounded(count: int) -> int:
    """``count`` rounded up to whole nodes."""
    return -(-count // LANES) * LANES


def levels(capacity: int) -> list[int]:
    """Entries of each level, leaves first, up to one node; there is always a level above the leaves."""
    if not 1 <= capacity <= CAPACITY_MAX:
        raise ValueError(f'capacity {capacity} is outside 1..={CAPACITY_MAX} (device="cuda")')
    found, count = [rounded(capacity)], capacity
    while len(found) < 2 or count > LANES:
        count = -(-count // LANES)
        found.append(rounded(count))
    assert len(found) <= LEVELS_MAX
    return found


def ring(capacity: int, history: int) -> tuple[int, int]:
    """Slots and rows of a chunk, as ``crates/sumtree/src/replay/layout.rs`` has them."""
    chunk = min(max(capacity // 64, 1), 1024)
    return (-(-(capacity + history) // chunk) + 2) * chunk, chunk


def blocks(items: int) -> int:
    """Blocks of :data:`THREADS` threads for so many items."""
    return min(max(-(-items // THREADS), 1), BLOCKS_MAX)


def piece_bytes(row_bytes: int, *addresses: int) -> int:
    """The widest load that fits rows of so many bytes at these addresses and strides."""
    for width in (16, 4):
        if not any(number % width for number in (row_bytes, *addresses)):
            return width
    return 1


@dataclass
class Tiles:
    """How the blocks of a gathering go over rows and outputs."""

    rows: int
    first_blocks: list[int]
    blocks_per_tile: int
    blocks: int


def tiles(count: int, rows: int, pieces: list[int]) -> Tiles:
    """Tiles of ``rows`` of ``count`` rows; output i has ``pieces[i]`` pieces per row."""
    first, per_tile = [], 0
    for row_pieces in pieces:
        first.append(per_tile)
        per_tile += max(-(-rows * row_pieces // (THREADS * PIECES)), 1)
    return Tiles(rows, first, per_tile, per_tile * -(-count // rows))
