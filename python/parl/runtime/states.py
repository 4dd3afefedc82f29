"""Actor states as bytes: numbers, text and arrays in numpy's zip format, which runs no code when loaded.

An environment that a user's function makes may not be plain data. Its state is a pickle instead, recognized
by the first byte; :mod:`parl.pickles` decides whether it may be loaded.
"""

from __future__ import annotations

import io
import json
import pickle
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch

from parl.envs.snapshot import Snapshot
from parl.errors import RunDirectoryError

_TREE = "tree"
_PICKLE = b"\x80"
# numpy parses headers with `ast`, which in CPython 3.11 fails if two threads parse and one collects garbage.
_READING = threading.Lock()


def to_bytes(tree: Any) -> bytes:
    """Serializes a tree of None, numbers, text, bytes, lists, tuples, deques, mappings, arrays and tensors.

    Raises:
        TypeError: ``tree`` contains another type.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}

    def put(array: Any) -> str:
        name = f"a{len(arrays)}"
        arrays[name] = array
        return name

    def encode(value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is list:
            return [encode(item) for item in cast("list[Any]", value)]
        if type(value) is tuple:
            return {"tuple": [encode(item) for item in cast("tuple[Any, ...]", value)]}
        if type(value) is deque:
            return {"deque": [encode(item) for item in value], "maxlen": value.maxlen}
        if isinstance(value, Mapping):
            return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
        if type(value) is bytes:
            return {"bytes": put(np.frombuffer(value, np.uint8))}
        if isinstance(value, np.generic):
            return {"scalar": put(np.asarray(value))}
        if isinstance(value, np.ndarray):
            if value.dtype == object:
                return {"objects": [encode(item) for item in value.ravel()], "shape": list(value.shape)}
            if value.dtype.hasobject:
                raise TypeError(f"an array of {value.dtype} is not plain data")
            return {"array": put(value)}
        if isinstance(value, torch.Tensor):
            return {"tensor": put(value.detach().cpu().numpy())}
        raise TypeError(f"a {type(value).__qualname__} is not plain data")

    text = json.dumps(encode(tree)).encode()
    file = io.BytesIO()
    arrays[_TREE] = np.frombuffer(text, np.uint8)
    savez: Any = np.savez
    savez(file, **arrays)
    return file.getvalue()


def from_bytes(data: bytes) -> Any:
    """Inverse of :func:`to_bytes`; mappings become dictionaries, tensors are on the CPU.

    Raises:
        RunDirectoryError: the bytes are damaged.
    """
    try:
        with _READING, np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return _decode(json.loads(arrays.pop(_TREE).tobytes()), arrays)
    except Exception as error:  # any error of zip, numpy or JSON
        raise RunDirectoryError(f"the state of an actor is damaged: {error}") from error


def _decode(value: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, list):
        return [_decode(item, arrays) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    kind, content = next(iter(value.items()))
    match kind:
        case "tuple":
            return tuple(_decode(item, arrays) for item in content)
        case "deque":
            return deque((_decode(item, arrays) for item in content), value["maxlen"])
        case "dict":
            return {_decode(key, arrays): _decode(item, arrays) for key, item in content}
        case "bytes":
            return arrays[content].tobytes()
        case "scalar":
            return arrays[content][()]
        case "objects":
            made = np.empty(len(content), object)
            for i, item in enumerate(content):
                made[i] = _decode(item, arrays)
            return made.reshape(value["shape"])
        case "array":
            return arrays[content]
        case "tensor":
            return torch.from_numpy(arrays[content])
        case _:
            raise ValueError(f"unknown kind {kind!r}")


def is_pickle(data: bytes) -> bool:
    """Whether a state is a pickle, which is loaded only from a trusted run."""
    return data[:1] == _PICKLE


def save(env: Any, snapshot: Snapshot, rest: Mapping[str, Any], pickles: bool) -> bytes:
    """Serializes an actor's environment and its other state.

    Args:
        env: the actor's environment.
        snapshot: snapshot of ``env``.
        rest: the actor's other state, plain data.
        pickles: whether an environment that is not plain data may be pickled.

    Raises:
        TypeError, pickle.PicklingError: the environment is neither plain data nor picklable.
    """
    try:
        return to_bytes({"env": snapshot.take(), **rest})
    except TypeError:
        if not pickles or _pickles_to_new(env):
            raise
    import cloudpickle

    return cloudpickle.dumps({"env": env, **rest})


def load(state: bytes, env: Any, snapshot: Snapshot) -> tuple[Any, dict[str, Any]]:
    """Returns the environment in its saved state, and the other state that was passed to :func:`save`.

    Args:
        state: from :func:`save`; if it is a pickle, the caller has checked that it is trusted.
        env: a newly made environment; closed if an unpickled one replaces it.
        snapshot: snapshot of ``env``.

    Raises:
        RunDirectoryError: the state is damaged or of another environment.
    """
    if is_pickle(state):
        saved: dict[str, Any] = pickle.loads(state)
        env.close()
        return saved.pop("env"), saved
    saved = from_bytes(state)
    try:
        snapshot.put(saved.pop("env"))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise RunDirectoryError(f"the state of an actor does not fit its environment: {error}") from error
    return env, saved


def _pickles_to_new(env: Any) -> bool:
    """Whether unpickling makes these environments anew, without state, as Gymnasium's ``EzPickle`` does."""
    from gymnasium.utils import EzPickle

    return any(isinstance(one.unwrapped, EzPickle) for one in [env, *getattr(env.unwrapped, "envs", [])])
