"""Argument structures and constants of the kernels, as in ``crates/sumtree/kernels``."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_float, c_uint32, c_uint64
from enum import IntEnum

LEVELS_MAX = 7
OUTPUTS_MAX = 24
MAX_WEIGHT = 2**27 - 1
SIZES = 33
LANES = 32


class Word(IntEnum):
    """Indices of the 64-bit words stored with a tree."""

    CALLS = 1
    GENERATOR = 2
    LARGEST_EVER = 6
    SATURATED = 7
    BAD_PRIORITY = 10
    BAD_INDEX = 11
    EMPTY = 12
    HISTOGRAM = 16
    RESERVED = 51
    HORIZON = 52
    NEWEST_LAP = 53
    ADDED = 55
    UPDATED = 56
    STALE = 57
    SAMPLED = 58
    REDRAWN = 59
    READY = 60
    BAD_ENV = 61
    NO_FINAL = 62
    BAD_DISCOUNT = 63
    FIRST_SEQUENCE = 68
    BAD_REWARD = 69


WORDS = 76


class Mode(IntEnum):
    """Joint distribution of the draws of a batch."""

    INDEPENDENT = 0
    STRATIFIED = 1
    SYSTEMATIC = 2


class Kind(IntEnum):
    """Sampling modes other than by priority alone."""

    DISTINCT = 0
    LARGEST_FIRST = 1
    EVICTION = 2
    UNIFORM = 3
    MIXTURE = 4


class Strategy(IntEnum):
    """Strategies of hindsight relabeling."""

    NONE = 0
    FUTURE = 1
    FINAL = 2
    EPISODE = 3


class Tree(ctypes.Structure):
    """Addresses and sizes of a tree."""

    _fields_ = (
        ("levels", c_uint64 * LEVELS_MAX),
        ("words", c_uint64),
        ("stamps", c_uint64),
        ("units", c_double),
        ("depth", c_uint32),
        ("capacity", c_uint32),
        ("is_chained", c_uint32),
        ("unused", c_uint32),
    )


class Reals(ctypes.Structure):
    """An array of float32 or float64, or one number for all elements."""

    _fields_ = (("address", c_uint64), ("is_double", c_uint32), ("is_scalar", c_uint32))


class TreeUpdate(ctypes.Structure):
    """Arguments of an update of priorities of a tree."""

    _fields_ = (("indices", c_uint64), ("priorities", Reals), ("count", c_uint32))


class Draws(ctypes.Structure):
    """Mode and number of draws."""

    _fields_ = (("mode", c_uint32), ("count", c_uint32), ("rank", c_uint32), ("learners", c_uint32))


class TreeSample(ctypes.Structure):
    """Arguments of sampling from a tree."""

    _fields_ = (("draws", Draws), ("indices", c_uint64), ("priorities", c_uint64))


class TreeFind(ctypes.Structure):
    """Arguments of a search for prefix sums in a tree."""

    _fields_ = (("prefixes", c_uint64), ("indices", c_uint64), ("total", c_double), ("count", c_uint32))


class Replay(ctypes.Structure):
    """Addresses, sizes and settings of a replay."""

    _fields_ = (
        ("tree", Tree),
        *((name, c_uint64) for name in ("states", "tails", "listed", "final_of")),
        *((name, c_uint64) for name in ("reward", "terminated", "truncated", "discount")),
        ("gamma", c_double),
        ("share", c_double),
        ("alpha", c_float),
        ("epsilon", c_float),
        *((name, c_uint32) for name in ("reward_is_double", "discount_is_double")),
        *((name, c_uint32) for name in ("slots", "capacity", "chunk", "n_step", "window_rows", "frames")),
        *((name, c_uint32) for name in ("num_envs", "resets_next_step", "rebuilds", "steps", "independent")),
        *((name, c_uint32) for name in ("pads_first", "is_global", "period", "burn_in")),
        *((name, c_uint32) for name in ("strategy", "goal_in_next", "tag")),
    )


class ReplayDraw(ctypes.Structure):
    """Arguments of sampling from a replay, without the columns of the batch."""

    _fields_ = (
        ("draws", Draws),
        *((name, c_uint64) for name in ("table", "drawn", "indices", "tickets", "weights", "discounts")),
        *((name, c_uint64) for name in ("rewards", "terminated", "truncated", "beta_at")),
        ("beta", c_double),
    )


class Output(ctypes.Structure):
    """One output of :class:`ReplayGather`."""

    _fields_ = (
        ("column", c_uint64),
        ("out", c_uint64),
        *((name, c_uint32) for name in ("row_bytes", "piece_bytes", "pieces")),
        *((name, c_uint32) for name in ("table_row", "frames", "first_block")),
    )


class ReplayGather(ctypes.Structure):
    """Arguments of the kernel that copies the columns of a batch."""

    _fields_ = (
        ("outputs", Output * OUTPUTS_MAX),
        ("table", c_uint64),
        *((name, c_uint32) for name in ("count", "outputs_count", "tile_rows", "tile_blocks")),
    )


class ReplayUpdate(ctypes.Structure):
    """Arguments of an update of priorities of a replay."""

    _fields_ = (("tickets", c_uint64), ("priorities", Reals), ("stale", c_uint64), ("count", c_uint32))


class ReplayAdd(ctypes.Structure):
    """Arguments of adding rows, without their columns."""

    _fields_ = (
        ("envs", c_uint64),
        ("order", c_uint64),
        ("priorities", Reals),
        *((name, c_uint64) for name in ("terminated", "truncated", "finals")),
        ("discounts", Reals),
        ("rewards", Reals),
        ("tickets", c_uint64),
        ("count", c_uint32),
    )


class Source(ctypes.Structure):
    """One column of :class:`ReplayWrite`."""

    _fields_ = (
        *((name, c_uint64) for name in ("column", "rows", "stride")),
        *((name, c_uint32) for name in ("row_bytes", "piece_bytes", "pieces")),
        *((name, c_uint32) for name in ("is_final", "first_block", "unused")),
    )


class ReplayWrite(ctypes.Structure):
    """Arguments of the kernel that copies rows into columns."""

    _fields_ = (("sources", Source * OUTPUTS_MAX), ("count", c_uint32), ("sources_count", c_uint32))


class ReplayCut(ctypes.Structure):
    """Arguments of ending episodes."""

    _fields_ = (("envs", c_uint64), ("count", c_uint32))


class ReplayKeys(ctypes.Structure):
    """Arguments of computing the keys of all rows, of which the largest are selected."""

    _fields_ = (("keys", c_uint64), ("kind", c_uint32))


class ReplayEvict(ctypes.Structure):
    """Arguments of removing rows from sampling."""

    _fields_ = (*((name, c_uint64) for name in ("chosen", "keys", "closed")), ("count", c_uint32))


class ReplaySelect(ctypes.Structure):
    """Arguments of sampling in one of the modes of :class:`Kind`."""

    _fields_ = (
        ("draw", ReplayDraw),
        ("chosen", c_uint64),
        ("keys", c_uint64),
        ("uniform", c_double),
        ("newest", c_double),
        ("newest_rows", c_uint32),
        ("kind", c_uint32),
    )


class ReplaySteps(ctypes.Structure):
    """Arguments of computing discounts and masks of sequences."""

    _fields_ = (*((name, c_uint64) for name in ("table", "discounts", "mask")), ("count", c_uint32))


class ReplayGoals(ctypes.Structure):
    """Arguments of choosing goals for relabeling."""

    _fields_ = (*((name, c_uint64) for name in ("table", "drawn", "relabelled")), ("count", c_uint32))
