"""Conversion between named, possibly nested fields and the flat columns of the native replay."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from parl.errors import ReplayFileError
from parl.replay.batch import Batch

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    FieldSpec = tuple[int | Sequence[int], DTypeLike] | Mapping[str, Any] | Any

# Separator of the names of nested fields: {"obs": {"speed": ...}} is the column obs/speed.
SEPARATOR = "/"
BATCH_BITS = 40
# Arguments of `add` that are no fields.
_ARGUMENTS = ("self", "env_id", "priorities")
# Arrays of a batch that are no fields.
_ADDED = ("discount", "indices", "weights", "tickets")
ROW_BYTES_MAX = 2**40


def flatten_specs(fields: Mapping[str, FieldSpec], prefix: str = "") -> dict[str, FieldSpec]:
    """Flattens nested fields.

    Args:
        fields: name -> (shape, dtype), gymnasium space or mapping, nested to any depth.
        prefix: prefix of the column names.

    Returns:
        Column name -> (shape, dtype) or gymnasium space.

    Raises:
        ValueError: a name is not a string, contains the separator, or is another argument of ``add``; or
            ``fields`` is no mapping.
    """
    flat: dict[str, FieldSpec] = {}
    if not isinstance(cast("Any", fields), Mapping):
        raise ValueError(f"fields is {fields!r}, expected a mapping of names to (shape, dtype)")
    for name, spec in fields.items():
        if not isinstance(cast("Any", name), str) or SEPARATOR in name:
            raise ValueError(f"field name is {name!r}, expected a string without {SEPARATOR!r}")
        if not prefix and name in _ARGUMENTS:
            raise ValueError(f"field name is {name!r}, which is an argument of add: choose another name")
        inner = getattr(spec, "spaces", spec)
        if isinstance(inner, Mapping) and set(inner) != {"shape", "dtype"}:
            flat |= flatten_specs(inner, prefix + name + SEPARATOR)
        else:
            flat[prefix + name] = spec
    return flat


def column(name: str, spec: FieldSpec, stack: int) -> tuple[str, str, list[int], int, int]:
    """Describes a column for the native replay.

    Args:
        name: name of the column.
        spec: (shape, dtype), a mapping with both, or a gymnasium space.
        stack: number of frames in a stack.

    Returns:
        Name, dtype, shape, bytes per row and number of frames in a stack.

    Raises:
        ValueError: the dtype has no fixed size or contains objects, a row has more than 2**40 bytes, the
            elements of a space are no arrays, or ``spec`` is none of the above.
    """
    if isinstance(spec, Mapping):
        shape_like, dtype_like = spec["shape"], spec["dtype"]
    elif hasattr(spec, "shape") and hasattr(spec, "dtype"):  # A gymnasium space.
        shape_like, dtype_like = cast("Any", spec).shape, cast("Any", spec).dtype
        if shape_like is None or dtype_like is None:
            raise ValueError(f"field {name!r} is {spec}, expected a space of arrays of one shape")
    else:
        if isinstance(spec, str) or not isinstance(spec, Sequence) or len(spec) != 2:
            raise ValueError(f"field {name!r} is {spec!r}, expected (shape, dtype) or a gymnasium space")
        shape_like, dtype_like = cast("Sequence[Any]", spec)
    if isinstance(shape_like, int):
        shape_like = (shape_like,)
    try:
        shape = [unsigned("shape", n) for n in cast("Sequence[int]", shape_like)]
        dtype = np.dtype(dtype_like)
    except TypeError as error:
        text = f"field {name!r} is {spec!r}, expected (shape, dtype) or a gymnasium space: {error}"
        raise ValueError(text) from None
    if dtype.subdtype is not None:
        dtype, inner = dtype.subdtype
        shape += inner
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"field {name!r} has dtype {dtype}, expected a dtype of fixed size without objects")
    bytes_per_row = dtype.itemsize
    for n in shape:
        bytes_per_row *= n
    if bytes_per_row > ROW_BYTES_MAX:
        raise ValueError(f"field {name!r} has {bytes_per_row} bytes per row, more than 2**40")
    return name, _dtype_text(name, dtype), shape, bytes_per_row, stack


def _dtype_text(name: str, dtype: np.dtype[Any]) -> str:
    text = dtype.str if dtype.names is None else repr(np.lib.format.dtype_to_descr(dtype))
    if dtype_of(text) != dtype:
        raise ValueError(f"field {name!r} has dtype {dtype}, which cannot be restored from its description")
    return text


def check_described(
    path: str, fields: Sequence[tuple[str, str, Sequence[int], int, int]], outputs: Sequence[str]
) -> None:
    """Checks the fields that a file describes.

    Args:
        path: path of the file.
        fields: name, dtype, shape, bytes per row and frames of a stack of each field in the file.
        outputs: names of the arrays in a batch.

    Raises:
        ReplayFileError: a dtype is invalid, contains objects or has another size, or names conflict.
    """
    try:
        for name, text, shape, row_bytes, stack in fields:
            described = column(name, (tuple(shape), dtype_of(text)), stack)
            if described != (name, text, list(shape), row_bytes, stack):
                raise ValueError(f"field {name!r}: {row_bytes} bytes per row do not fit {text} {shape}")
        names = {*outputs, *(name for name, *_ in fields)}
        for name in names:
            if any(other.startswith(name + SEPARATOR) for other in names):
                raise ValueError(f"field {name!r} is both a field and a group of fields")
    except Exception as error:  # numpy raises many types of errors for invalid descriptions.
        raise ReplayFileError(
            f"{path} is not a replay that this version can load: {error or type(error).__name__}"
        ) from error


def dtype_of(text: str) -> np.dtype[Any]:
    """The dtype of a column from its text in :func:`column`."""
    return np.lib.format.descr_to_dtype(ast.literal_eval(text)) if text.startswith("[") else np.dtype(text)


def flatten(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Flattens values that are nested as the fields are.

    Args:
        values: name -> value or nested mapping.
        names: names of the columns.

    Returns:
        Column name -> value; names that are not fields are kept.
    """
    inner = {name.split(SEPARATOR)[0] for name in names if SEPARATOR in name}
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if name in inner:
            flat |= _leaves(name, value)
        else:
            flat[name] = value
    return flat


def flatten_out(out: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Flattens the ``out`` of ``sample``, a batch with arrays to fill.

    Args:
        out: name -> array or nested mapping.
        names: names of the columns of a batch.

    Raises:
        ValueError: a batch has no such array.
    """
    flat = flatten(out, names)
    for name in flat:
        if name not in names and name not in _ADDED:
            path = name.replace(SEPARATOR, ".")
            raise ValueError(f"out has {path!r}, expected only arrays that a batch of this replay has")
    return flat


def _leaves(path: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {k: leaf for name, one in items for k, leaf in _leaves(path + SEPARATOR + name, one).items()}
    return {path: value}


def nester(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Batch]:
    """A function that converts columns by name to a :class:`Batch` nested as the fields are."""
    paths = [(name, name.split(SEPARATOR)) for name in names]

    def nested(flat: Mapping[str, Any]) -> Batch:
        batch = Batch()
        for name, (*outer, last) in paths:
            at = batch
            for step in outer:
                at = at.setdefault(step, Batch())
            at[last] = flat[name]
        return batch

    return nested


def split_objects(name: str, value: Any, names: Sequence[str]) -> dict[str, Any]:
    """Flattens the final observations of nested fields.

    Args:
        name: name of the group, such as ``"final_obs"``.
        value: a mapping of arrays, a sequence with one mapping or None per row, or None.
        names: names of the columns.

    Returns:
        Column name -> array, sequence with None in rows without one, or None.

    Raises:
        ValueError: a row has other fields.
    """
    if isinstance(value, Mapping) or value is None:
        return _leaves(name, value) if value is not None else dict.fromkeys(names)
    rows = list(cast("Sequence[Mapping[str, Any] | None]", value))
    flat: dict[str, list[Any]] = {column: [None] * len(rows) for column in names}
    for i, row in enumerate(rows):
        if row is None:
            continue
        leaves = _leaves(name, row)
        if leaves.keys() != flat.keys():
            raise ValueError(f"{name}[{i}]: {difference(leaves, frozenset(names))}")
        for column_name, leaf in leaves.items():
            flat[column_name][i] = leaf
    return dict(flat)


def unsigned(name: str, value: int, bits: int = 63) -> int:
    """``value`` as an int.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is not in ``0..2**bits``.
    """
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, expected an integer")
    if number < 0 or number >> bits:
        raise ValueError(f"{name} is {number}, expected 0 to 2**{bits} - 1")
    return number


def exponent(name: str, value: Any) -> float:
    """Converts an exponent to a float and checks that it is finite and not negative.

    Args:
        name: name of the setting, for the message.
        value: a number, or a tensor with one element.

    Raises:
        ValueError: it is negative or not finite.
    """
    number = float(value)
    if not 0.0 <= number < math.inf:
        raise ValueError(f"{name} is {number}, expected a finite number of at least 0")
    return number


def difference(columns: Mapping[str, Any], names: frozenset[str]) -> str:
    """Message about names that are missing or are not fields."""
    missing, unknown = sorted(names - columns.keys()), sorted(columns.keys() - names)
    parts = [f"missing {', '.join(missing)}"] if missing else []
    parts += [f"unknown {', '.join(unknown)}"] if unknown else []
    return f"fields do not match: {'; '.join(parts)}"


def refuse_masked(name: str, value: Any) -> None:
    """Raises ValueError if ``value`` is a masked array with masked entries: their values have no meaning."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(f"{name} has masked entries, expected an array without a mask")


def array_of(tensor: Any) -> NDArray[Any]:
    """The values of a torch tensor on any device; of bfloat16, which numpy does not have, as float32."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


def rows_of(name: str, value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Converts ``value`` to a C-contiguous array of ``dtype``.

    Casts only within a kind of dtype, never from floating point to integer, and no integers or texts that the
    dtype cannot represent. Python numbers are converted to any dtype that can represent them.

    Raises:
        ValueError: the dtype or a value does not fit, or entries are masked.
    """
    refuse_masked(name, value)
    if not isinstance(value, np.ndarray):
        if hasattr(value, "detach"):
            value = array_of(value)
        elif not hasattr(value, "dtype"):
            # Python numbers are converted to the field's dtype if it can represent them.
            try:
                given = np.asarray(value)
                kinds = "biu" if dtype.kind in "biu" else "biufc"
                if given.size and given.dtype.kind in kinds and dtype.kind in "biufc":
                    array = np.asarray(value, dtype, order="C")
                    if dtype.kind in "biu" and not np.array_equal(array, given):
                        raise ValueError(f"{name} holds a number that {dtype} cannot represent")
                    return array
            except OverflowError as error:
                raise ValueError(f"{name} holds a number that {dtype} cannot represent: {error}") from None
            value = given.astype(dtype) if given.size == 0 else given
        else:
            value = np.asarray(value)
    array = cast("NDArray[Any]", value)
    if array.dtype != dtype:
        same = array.dtype.kind == "b" and dtype.kind in "biu" and dtype.itemsize == 1
        casts = np.can_cast(array.dtype, dtype, "same_kind") and _has_same_names(array.dtype, dtype)
        if not (same or casts):
            raise ValueError(f"{name} has dtype {array.dtype}, which cannot be cast to {dtype}")
        cast_rows = np.ascontiguousarray(array, dtype).reshape(array.shape)
        # Numbers would wrap around, and texts would be cut off.
        if dtype.kind in "iuSU" and not np.can_cast(array.dtype, dtype, "safe"):
            stored = cast_rows if dtype.kind in "iu" else cast_rows.astype(array.dtype)
            if (stored != array).any():
                raise ValueError(f"{name} holds a value that {dtype} cannot represent")
        return cast_rows
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _has_same_names(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Whether structured dtypes have the same names in the same order: NumPy casts by position."""
    if one.base.names is None or one.base.names != other.base.names:
        return one.base.names == other.base.names
    return all(_has_same_names(one.base[name], other.base[name]) for name in one.base.names)


def is_one_row(given: Mapping[str, Any], fields: Sequence[tuple[str, Any, tuple[int, ...], int]]) -> bool:
    """Whether the values are a single row without the leading dimension.

    Each value then has the shape of its field, or of a stack of it. A single stack of frames has the shape of
    rows of single frames; the field ``terminated``, which is a scalar only in a single row, decides between
    them.

    Args:
        given: column name -> value.
        fields: name, dtype, shape and frames of a stack of each column.
    """
    for name, _, shape, stack in fields:
        value = given[name]
        found = tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
        if found != shape and (stack == 1 or found != (stack, *shape)):
            return False
    return True


def one_final_row(value: Any, shape: tuple[int, ...], stack: int) -> Any:
    """Adds the leading dimension to the final observation of a single row; None stays None."""
    if value is None:
        return None
    array = value if hasattr(value, "shape") else np.asarray(value)
    is_bare = tuple(array.shape) == shape or (stack > 1 and tuple(array.shape) == (stack, *shape))
    return array[None] if is_bare else value


def shape_error(name: str, found: tuple[int, ...], shape: tuple[int, ...], rows: int) -> ValueError:
    """The error for a column whose shape is not ``(rows, *shape)``; ``rows`` is -1 if it is unknown."""
    expected = ", ".join(str(n) for n in ("n" if rows < 0 else rows, *shape)) + ("" if shape else ",")
    text = f"{name} has shape {found}, expected ({expected})"
    if found == shape:
        text += ": the leading dimension, one entry per row, is missing"
    return ValueError(text)


def sparse_rows(
    name: str, value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], stack: int, rows: int
) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Converts final observations, given as an array or as a sequence with None in rows without one.

    Args:
        name: name of the column, for messages.
        value: (rows, *shape) array, or a sequence of ``rows`` arrays and None; stacks of frames are allowed.
        dtype: dtype of the column.
        shape: shape of one row.
        stack: number of frames in a stack, of which the last one is used.
        rows: number of rows.

    Returns:
        (rows,) bool, which rows have a final observation, and (rows, *shape) the observations.

    Raises:
        ValueError: a shape or dtype does not fit.
    """
    is_object = isinstance(value, np.ndarray) and value.dtype.hasobject
    if is_object or isinstance(value, (list, tuple)):
        values = cast("Sequence[Any]", value)
        if len(values) != rows:
            raise ValueError(f"{name} has {len(values)} rows, expected {rows}")
        mask = np.array([one is not None for one in values], np.bool_)
        array = np.zeros((rows, *shape), dtype)
        for i in np.flatnonzero(mask).tolist():
            row = rows_of(name, values[i], dtype)
            if stack > 1 and row.shape == (stack, *shape):
                row = row[-1]
            if row.shape != shape:
                raise ValueError(f"{name}[{i}] has shape {row.shape}, expected {shape}")
            array[i] = row
        return mask, array
    array = rows_of(name, value, dtype)
    if stack > 1 and array.shape == (rows, stack, *shape):
        array = np.ascontiguousarray(array[:, -1])
    if array.shape != (rows, *shape):
        raise ValueError(f"{name} has shape {array.shape}, expected {(rows, *shape)}")
    return np.ones(rows, np.bool_), array
