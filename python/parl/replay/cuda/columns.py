"""Arguments of the kernels that copy rows into columns and columns into batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from parl.replay.cuda import layout, structs
from parl.replay.cuda.structs import OUTPUTS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor


class Rows(NamedTuple):
    """Rows to add, for one column; ``is_final`` is 1 for final observations."""

    column: int
    row_bytes: int
    tensor: Tensor
    is_final: int


def writes(columns: Sequence[Rows], rows: int) -> Iterator[tuple[structs.ReplayWrite, int]]:
    """Yields the arguments and the number of blocks of each launch that copies rows to their slots."""
    columns = [one for one in columns if one.row_bytes > 0]
    for start in range(0, len(columns), OUTPUTS_MAX):
        call, blocks = structs.ReplayWrite(count=rows), 0
        some = columns[start : start + OUTPUTS_MAX]
        call.sources_count = len(some)
        for source, (column, row_bytes, tensor, is_final) in zip(call.sources, some, strict=False):
            # Rows need not be contiguous.
            stride = tensor.stride(0) * tensor.element_size() if rows > 1 else row_bytes
            source.column, source.rows, source.stride = column, tensor.data_ptr(), stride
            source.row_bytes, source.is_final, source.first_block = row_bytes, is_final, blocks
            source.piece_bytes = layout.piece_bytes(row_bytes, tensor.data_ptr(), stride)
            source.pieces = row_bytes // source.piece_bytes
            blocks += -(-rows * source.pieces // (layout.THREADS * layout.PIECES))
        yield call, blocks


class Output(NamedTuple):
    """One output of a batch: source column, bytes per row, destination, row of the slot table, frames."""

    column: int
    row_bytes: int
    out: int
    table_row: int
    frames: int


def gathers(outputs: Sequence[Output], table: int, count: int) -> Iterator[tuple[structs.ReplayGather, int]]:
    """Yields the arguments and the number of blocks of each launch that copies a batch.

    Large rows come first, in tiles of fewer rows.
    """
    is_large = [one.row_bytes * one.frames >= layout.LARGE_BYTES for one in outputs]
    for large, rows in ((True, layout.TILE_ROWS_LARGE), (False, layout.TILE_ROWS_SMALL)):
        chosen = [one for one, size in zip(outputs, is_large, strict=True) if size == large]
        for start in range(0, len(chosen), OUTPUTS_MAX):
            yield _gather(chosen[start : start + OUTPUTS_MAX], table, count, rows)


def _gather(outputs: Sequence[Output], table: int, count: int, rows: int) -> tuple[structs.ReplayGather, int]:
    call = structs.ReplayGather(table=table, count=count, outputs_count=len(outputs))
    pieces: list[int] = []
    for output, (column, row_bytes, out, table_row, frames) in zip(call.outputs, outputs, strict=False):
        output.column, output.out, output.row_bytes = column, out, row_bytes
        output.piece_bytes = layout.piece_bytes(row_bytes, out)
        output.pieces = row_bytes // output.piece_bytes
        output.table_row, output.frames = table_row, frames
        pieces.append(output.pieces * frames)
    tiles = layout.tiles(count, rows, pieces)
    call.tile_rows, call.tile_blocks = tiles.rows, tiles.blocks_per_tile
    for output, first in zip(call.outputs, tiles.first_blocks, strict=False):
        output.first_block = first
    return call, tiles.blocks
