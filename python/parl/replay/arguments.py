"""Arguments of ``add``: named rows, as the arrays that the native replay takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from parl.replay.fields import (
    SEPARATOR,
    difference,
    flatten,
    is_one_row,
    one_final_row,
    rows_of,
    shape_error,
    sparse_rows,
    split_objects,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    # Name, dtype, shape and number of frames in a stack.
    Field = tuple[str, np.dtype[Any], tuple[int, ...], int]
    # Of the native `add`: columns, number of rows, environments, priorities, which rows have a final
    # observation, final observations.
    Arguments = tuple[list[NDArray[Any]], int, Any, Any, NDArray[np.bool_] | None, list[NDArray[Any]]]


class AddArguments:
    """Converts the arguments of ``add`` to those of the native replay.

    Args:
        fields: the columns of the replay.
        final: the observations that have a final observation.
        autoreset: autoreset mode of the environments.
    """

    def __init__(self, fields: Sequence[Field], final: Sequence[Field], autoreset: str) -> None:
        self._fields, self._final, self._autoreset = fields, final, autoreset
        self._names = frozenset(name for name, *_ in fields)
        self._is_nested = any(SEPARATOR in name for name in self._names)

    def of_rows(
        self, columns: dict[str, Any], env_id: ArrayLike | None, priorities: ArrayLike | None
    ) -> Arguments:
        """The arguments for n rows, or for one row given without the leading dimension.

        Args:
            columns: every field by name, and final observations; changed by this call.
            env_id: environment of each row.
            priorities: priority of each row.

        Raises:
            ValueError: as :meth:`parl.PrioritizedReplay.add`.
        """
        finals: Mapping[str, Any] = {}
        if self._is_nested or columns.keys() != self._names:
            finals = self._pop_finals(columns) if self._final else {}
            if self._is_nested:
                columns = flatten(columns, [name for name, *_ in self._fields])
            if columns.keys() != self._names:
                raise ValueError(difference(columns, self._names))
        rows = -1
        arrays: list[NDArray[Any]] = []
        for name, dtype, shape, stack in self._fields:
            array = columns[name]
            if type(array) is not np.ndarray or array.dtype != dtype or not array.flags.c_contiguous:
                array = rows_of(name, array, dtype)
            if rows < 0:
                rows = len(array) if array.ndim else -1
            if stack > 1 and array.shape == (rows, stack, *shape):
                array = np.ascontiguousarray(array[:, -1])
            if array.shape != (rows, *shape):
                if not is_one_row(columns, self._fields):
                    raise self._shape_error(columns)
                return self._of_one_row(columns, finals, env_id, priorities)
            arrays.append(array)
        mask, final_arrays = self._final_rows(finals, rows) if finals else (None, [])
        return arrays, rows, env_id, priorities, mask, final_arrays

    def _of_one_row(
        self, columns: dict[str, Any], finals: Mapping[str, Any], env_id: Any, priorities: Any
    ) -> Arguments:
        """The arguments for one row given without the leading dimension."""
        arrays: list[NDArray[Any]] = []
        for name, dtype, shape, _ in self._fields:
            array = rows_of(name, columns[name], dtype)
            arrays.append(np.ascontiguousarray(array if array.shape == shape else array[-1])[None])
        finals = {
            name: one_final_row(finals.get(name), shape, stack) for name, _, shape, stack in self._final
        }
        mask, final_arrays = self._final_rows(finals, 1) if finals else (None, [])
        env_id, priorities = (
            np.reshape(value, 1) if value is not None and np.ndim(value) == 0 else value
            for value in (env_id, priorities)
        )
        return arrays, 1, env_id, priorities, mask, final_arrays

    def _shape_error(self, columns: Mapping[str, Any]) -> ValueError:
        """The error for columns that are neither n rows nor one row; names the first that does not fit."""
        shapes = [rows_of(name, columns[name], dtype).shape for name, dtype, *_ in self._fields]
        fields = list(zip(self._fields, shapes, strict=True))
        rows = next((found[0] for (_, _, shape, _), found in fields if len(found) > len(shape)), -1)
        return next(
            shape_error(name, found, shape, rows)
            for (name, _, shape, stack), found in fields
            if found != (rows, *shape) and (stack == 1 or found != (rows, stack, *shape))
        )

    def _pop_finals(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Removes the final observations from the arguments of ``add`` and returns them by column."""
        if not self._is_nested:
            return {name: columns.pop("final_" + name, None) for name, *_ in self._final}
        groups: dict[str, list[str]] = {}
        for name, *_ in self._final:
            groups.setdefault("final_" + name.split(SEPARATOR)[0], []).append("final_" + name)
        flat: dict[str, Any] = {}
        for group, names in groups.items():
            value = columns.pop(group, None)
            flat |= {names[0]: value} if names == [group] else split_objects(group, value, names)
        wanted = {"final_" + name: name for name, *_ in self._final}
        if flat.keys() != wanted.keys():
            raise ValueError(difference(flat, frozenset(wanted)))
        return {wanted[name]: value for name, value in flat.items()}

    def _final_rows(
        self, finals: Mapping[str, Any], rows: int
    ) -> tuple[NDArray[np.bool_] | None, list[NDArray[Any]]]:
        if all(value is None for value in finals.values()):
            return None, []
        mask: NDArray[np.bool_] | None = None
        arrays: list[NDArray[Any]] = []
        for name, dtype, shape, stack in self._final:
            value = finals[name]
            if value is None:
                raise ValueError(f"final_{name} is missing, expected all final observations or none")
            present, array = sparse_rows("final_" + name, value, dtype, shape, stack, rows)
            if self._autoreset == "next_step" and present.any():
                raise ValueError(
                    f'final_{name} is given, but with autoreset "next_step" the next row holds the final '
                    'observation: is the autoreset mode of the environments "same_step" or "disabled"?'
                )
            mask = present if mask is None else mask & present
            arrays.append(array)
        return mask, arrays
