"""Save and restore the state of a Gymnasium environment as plain data, without classes or code.

An environment is a tree of Python objects (wrappers, spaces, games) whose attributes are numbers, text,
arrays, containers and random generators. A snapshot holds these values by their path in the tree. It is
restored into an environment that the same function made: the objects, functions and classes of that
environment are kept, and only their values change. Loading a snapshot from a file therefore cannot run code.

Objects of extension modules have state that Python cannot read. A snapshot of an environment with such
objects raises SnapshotError, unless their class implements :class:`PlainState`.
"""

from __future__ import annotations

import enum
import random
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_IMMEDIATE = (bool, int, float, complex, str, bytes, type(None))
# Types of constant objects, of which a snapshot stores the name only.
_FIXED = (
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.GenericAlias,
    np.dtype,
    np.ufunc,
    property,
)
# Types whose subclasses, such as named tuples, have a value besides their attributes.
_VALUES = (int, float, tuple)
_MISSING: Any = object()


@runtime_checkable
class PlainState(Protocol):
    """A class that provides its state as plain data."""

    def plain_state(self) -> tuple[Any, tuple[str, ...]]:
        """The state as plain data, and the names of attributes that the snapshot stores in addition."""
        ...

    def set_plain_state(self, state: Any) -> None:
        """Restores the data of :meth:`plain_state`; called after the attributes have been restored."""
        ...


class SnapshotError(TypeError):
    """An environment's state is not plain data or does not fit the environment; names the path in it."""


def _kind(value: Any) -> str:
    cls = type(value)
    # Classes that SWIG made, such as those of Box2D, have no module.
    module = getattr(cls, "__module__", None)
    return f"{module}.{cls.__qualname__}" if module else cls.__qualname__


def _is_fixed(value: Any) -> bool:
    if isinstance(value, _FIXED):
        return True
    if isinstance(value, types.FunctionType):
        return value.__closure__ is None
    if isinstance(value, types.GeneratorType):
        return value.gi_frame is None  # at its end, as that with which Gymnasium 1.1 made the environments
    return _kind(value) in ("gymnasium.envs.registration.EnvSpec", "gymnasium.envs.registration.WrapperSpec")


def _owner(value: Any) -> Any:
    """The object to which a method is bound, and whose state it has; ``_MISSING`` without one.

    The generators of the modules ``random`` and ``numpy.random`` belong to no environment.
    """
    if not isinstance(value, types.MethodType | types.BuiltinFunctionType):
        return _MISSING
    owner = getattr(value, "__self__", None)
    shared = (random.random.__self__, np.random.random.__self__)  # type: ignore[attr-defined]
    fixed = owner is None or isinstance(owner, type | types.ModuleType) or any(owner is one for one in shared)
    return _MISSING if fixed else owner


def _name(value: Any) -> str:
    """Name of a constant object or function, which tells it from others of its type; empty if it has none."""
    if isinstance(value, types.GenericAlias | np.dtype):
        return str(value)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or ""
    module = getattr(value, "__module__", None)
    return f"{module}.{name}" if name and module else str(name)


def _code(value: Any) -> Any:
    """What tells functions of one name apart, code and default arguments; None for other objects."""
    function = getattr(value, "__func__", value)
    code = getattr(function, "__code__", None)
    if not isinstance(function, types.FunctionType):
        return code
    named = sorted((function.__kwdefaults__ or {}).items())
    defaults = [*enumerate(function.__defaults__ or ()), *named]
    # Other objects than numbers and text are told apart by identity: they need not be hashable.
    kept = [(name, type(one), one if type(one) in _IMMEDIATE else id(one)) for name, one in defaults]
    return (code, tuple(kept)) if kept else code


def _base(cls: type) -> Any:
    """The type of ``_VALUES`` of which ``cls`` is a subclass, or None."""
    return next((kind for kind in _VALUES if issubclass(cls, kind)), None)


def _value(value: Any) -> Any:
    """The value of an instance of a subclass of ``_VALUES``, as an instance of that type.

    Raises:
        SnapshotError: the instance has attributes too, or cannot be made of its value alone.
    """
    base = _base(type(value))
    plain = tuple(tuple.__iter__(value)) if base is tuple else base.__pos__(value)
    try:
        base.__new__(type(value), plain)
    except TypeError:
        plain = None
    if plain is None or getattr(value, "__dict__", None):
        raise SnapshotError(f"a {_kind(value)} is not plain data")
    return plain


def _slots(cls: type) -> list[str]:
    found: list[str] = []
    for base in cls.__mro__:
        names = base.__dict__.get("__slots__", ())
        found += [names] if isinstance(names, str) else names
    return [name for name in found if name not in ("__dict__", "__weakref__")]


def _attributes(value: Any) -> dict[str, Any]:
    """All attributes of an object, sorted by name.

    Raises:
        SnapshotError: the object may have state outside its attributes.
    """
    cls = type(value)
    slots = _slots(cls)
    # Besides its slots, a Python object has space for a dictionary and a list of weak references only.
    if cls.__basicsize__ > object.__basicsize__ + 8 * (len(slots) + 2) or (
        not hasattr(value, "__dict__") and not slots and "__slots__" not in cls.__dict__
    ):
        raise SnapshotError(f"a {_kind(value)} is not plain data")
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    found |= getattr(value, "__dict__", {})
    return dict(sorted(found.items()))


class _Found:
    """What an environment refers to, for members of sets and keys, which have no place in another one.

    Attributes:
        classes: of enumerations, and of values besides attributes, by the names of :func:`_kind`.
        constants: by their types and names; without lambdas, which share one, and methods, whose objects have
            places.
    """

    def __init__(self) -> None:
        self.classes: dict[str, Any] = {}
        self.constants: dict[tuple[str, str], Any] = {}


# Path of an object, its type; of constants and functions their name and code.
_Place = tuple[str, str, str, Any]


class Snapshot:
    """Takes and restores the state of an environment.

    The state can be restored into another environment that the same function made.

    Args:
        env: the environment, after its first reset.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._known: frozenset[_Place] | None = None
        self._reason: SnapshotError | None = None
        self._found = _Found()
        try:
            reader = _Reader(env)
            self._known, self._found = frozenset(reader.places), reader.found
        except SnapshotError as error:
            self._reason = error

    def take(self) -> list[Any]:
        """The state as lists, tuples, numbers, text and arrays.

        Raises:
            SnapshotError: the state is not plain data, or contains an object that the environment did not
                have after its first reset.
        """
        if self._known is None:
            assert self._reason is not None
            raise self._reason
        reader = _Reader(self._env)
        for place in reader.places:
            if place not in self._known:
                path, kind, name, _ = place
                if any(known[:2] == place[:2] for known in self._known):
                    raise SnapshotError(f"{path} is another {kind}, {name}, than after its first reset")
                raise SnapshotError(f"{path} is a {kind} that the environment creates after its first reset")
        return reader.nodes

    def put(self, nodes: list[Any]) -> None:
        """Restores a state of :meth:`take`.

        Raises:
            SnapshotError: the state does not fit the environment, which must not be used any more.
        """
        _Writer(nodes, self._found).restore(0, self._env, "env")


def _seeds(bits: Any) -> list[Any] | None:
    """What a bit generator spawns others from; None if it was not seeded by a ``SeedSequence``."""
    sequence = bits.seed_seq
    if type(sequence) is not np.random.SeedSequence:
        return None
    entropy: Any = sequence.entropy
    if entropy is not None and not isinstance(entropy, str):
        entropy = int(entropy) if np.ndim(entropy) == 0 else [int(number) for number in entropy]
    key = [int(number) for number in sequence.spawn_key]
    return [entropy, key, sequence.pool_size, sequence.n_children_spawned]


class _Reader:
    """Traverses an object depth first; ``nodes`` holds its parts in the order of the traversal."""

    def __init__(self, root: Any) -> None:
        self.nodes: list[Any] = []
        self.places: list[_Place] = []
        self.found = _Found()
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []
        self._owners: list[np.ndarray[Any, Any]] = []
        self._ref(root, "env")

    def _ref(self, value: Any, place: str) -> Any:
        """``value`` itself if it is a scalar, else the number of its node in a tuple."""
        if type(value) in _IMMEDIATE or isinstance(value, np.generic):
            return value
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self.nodes)
            self._alive.append(value)
            self.nodes.append(None)
            self.nodes[number] = self._node(value, place)
        return (number,)

    def _node(self, value: Any, place: str) -> list[Any]:
        cls = type(value)
        if cls in (list, tuple, deque):
            items = [self._ref(item, f"{place}[{i}]") for i, item in enumerate(value)]
            return ["deque", items, value.maxlen] if cls is deque else [cls.__name__, items]
        if cls is range or cls is slice:
            parts = (value.start, value.stop, value.step)
            return [cls.__name__, [self._ref(part, f"{place}[{i}]") for i, part in enumerate(parts)]]
        if cls in (set, frozenset):
            return [cls.__name__, [self._ref(item, f"{place}{{}}") for item in sorted(value, key=repr)]]
        if cls in (dict, OrderedDict):
            pairs = [
                [self._ref(key, f"{place} key"), self._ref(item, f"{place}[{key!r}]")]
                for key, item in value.items()
            ]
            return ["dict" if cls is dict else "odict", pairs]
        if cls is np.ndarray:
            return self._array(value, place)
        if "torch" in sys.modules and cls is sys.modules["torch"].Tensor:
            return ["tensor", value]
        if cls is np.random.Generator:
            return ["generator", *self._bit_generator(value.bit_generator)]
        if cls is np.random.RandomState:
            return ["legacy", value.get_state(legacy=False)]
        if cls is random.Random:
            return ["random", value.getstate()]
        is_constant = _is_fixed(value) or isinstance(value, types.FunctionType)
        name, code = (_name(value), _code(value)) if is_constant else ("", None)
        self.places.append((place, _kind(value), name, code))
        if isinstance(value, (enum.Enum, *_VALUES)):
            self.found.classes[_kind(value)] = cls
        if isinstance(value, enum.Flag):
            return ["flag", _kind(value), value.value]
        if isinstance(value, enum.Enum):
            return ["enum", _kind(value), value.name]
        owner = _owner(value)
        if owner is not _MISSING:
            return ["method", _kind(value), name, self._ref(owner, f"{place}.__self__")]
        if _is_fixed(value):
            if name and "<" not in name and not isinstance(value, types.MethodType):
                self.found.constants[_kind(value), name] = value
            return ["fixed", _kind(value), name]
        if isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            return ["closure", [self._ref(item, f"{place}.cell[{i}]") for i, item in enumerate(cells)], name]
        if isinstance(value, PlainState):
            state, names = value.plain_state()
            kept = [[name, self._ref(getattr(value, name), f"{place}.{name}")] for name in names]
            return ["plain", _kind(value), kept, state]
        try:
            if isinstance(value, _VALUES):
                return ["value", _kind(value), self._ref(_value(value), place)]
            attributes = _attributes(value)
        except SnapshotError as error:
            raise SnapshotError(f"{place}: {error}") from None
        return [
            "object",
            _kind(value),
            [[name, self._ref(item, f"{place}.{name}")] for name, item in attributes.items()],
        ]

    def _bit_generator(self, bits: Any) -> tuple[str, Any, Any]:
        name = type(bits).__name__
        if name not in _GENERATORS:
            raise SnapshotError(f"a random generator {_kind(bits)} is not plain data")
        return name, bits.state, _seeds(bits)

    def _array(self, value: np.ndarray[Any, Any], place: str) -> list[Any]:
        if value.dtype.hasobject:
            if value.dtype != np.dtype(object):
                raise SnapshotError(f"{place}: an array of {value.dtype} is not plain data")
            items = [self._ref(item, f"{place}[{i}]") for i, item in enumerate(value.ravel())]
            return ["objects", list(value.shape), items]
        base = value.base
        if type(base) is np.ndarray:
            if not base.flags.c_contiguous or value.dtype.names or base.dtype.hasobject:
                raise SnapshotError(f"{place}: this view of an array is not plain data")
            offset = value.ctypes.data - base.ctypes.data
            view = [value.dtype.str, list(value.shape), offset, list(value.strides)]
            return ["view", self._ref(base, f"{place}.base"), *view]
        return ["array", value]


class _Writer:
    """Rebuilds values from nodes, with the objects of an existing environment at the same paths."""

    def __init__(self, nodes: list[Any], found: _Found) -> None:
        self._nodes, self._found = nodes, found
        self._made: dict[int, Any] = {}
        self._used: set[int] = set()

    def _value(self, ref: Any, live: Any, place: str) -> Any:
        return self.restore(ref[0], live, place) if type(ref) is tuple else ref

    def restore(self, number: int, live: Any, place: str) -> Any:
        if number in self._made:
            return self._made[number]
        try:
            kind, *parts = self._nodes[number]
        except (IndexError, TypeError, ValueError) as error:
            raise SnapshotError(f"{place} is not in the snapshot") from error
        make = getattr(self, f"_make_{kind}", None)
        if make is None:
            raise SnapshotError(f"{place} has the unknown kind {kind!r}")
        made = make(number, live, place, *parts)
        self._made[number] = made
        return made

    def _items(self, items: list[Any], live: Any, place: str) -> list[Any]:
        existing: list[Any] = list(live) if isinstance(live, list | tuple | deque) else []
        existing += [_MISSING] * (len(items) - len(existing))
        return [
            self._value(item, old, f"{place}[{i}]")
            for i, (item, old) in enumerate(zip(items, existing, strict=False))
        ]

    def _make_list(self, number: int, live: Any, place: str, items: list[Any]) -> Any:
        made = self._made[number] = []
        made += self._items(items, live, place)
        return made

    def _make_tuple(self, number: int, live: Any, place: str, items: list[Any]) -> Any:
        return tuple(self._items(items, live, place))

    def _make_deque(self, number: int, live: Any, place: str, items: list[Any], maxlen: int | None) -> Any:
        made = self._made[number] = deque(maxlen=maxlen)
        made.extend(self._items(items, live, place))
        return made

    def _make_set(self, number: int, live: Any, place: str, items: list[Any]) -> Any:
        return set(self._items(items, (), place))

    def _make_frozenset(self, number: int, live: Any, place: str, items: list[Any]) -> Any:
        return frozenset(self._items(items, (), place))

    def _make_dict(
        self, number: int, live: Any, place: str, pairs: list[Any], cls: type[dict[Any, Any]] = dict
    ) -> Any:
        made = self._made[number] = cls()
        old: Mapping[Any, Any] = live if isinstance(live, Mapping) else {}
        # A key that is an object is matched by its position among the keys.
        keys = [*old, *[_MISSING] * len(pairs)]
        for (key_ref, item), existing in zip(pairs, keys, strict=False):
            key = self._value(key_ref, existing, f"{place} key")
            made[key] = self._value(item, old.get(key, _MISSING), f"{place}[{key!r}]")
        return made

    def _make_odict(self, number: int, live: Any, place: str, pairs: list[Any]) -> Any:
        return self._make_dict(number, live, place, pairs, OrderedDict)

    def _make_array(self, number: int, live: Any, place: str, value: Any) -> Any:
        return value

    _make_tensor = _make_array

    def _make_objects(self, number: int, live: Any, place: str, shape: list[int], items: list[Any]) -> Any:
        made = np.empty(len(items), object)
        existing = live.ravel().tolist() if isinstance(live, np.ndarray) else []
        for i, item in enumerate(self._items(items, existing, place)):
            made[i] = item
        return made.reshape(shape)

    def _make_view(
        self,
        number: int,
        live: Any,
        place: str,
        base: Any,
        dtype: str,
        shape: list[int],
        offset: int,
        strides: Any,
    ) -> Any:
        return np.ndarray(shape, dtype, self._value(base, _MISSING, place), offset, strides)

    def _make_generator(
        self, number: int, live: Any, place: str, name: str, state: Any, seeds: Any = None
    ) -> Any:
        if name not in _GENERATORS:
            raise SnapshotError(f"{place} has the unknown kind {name!r}")
        sequence = None
        if seeds is not None:
            entropy, key, pool_size, spawned = seeds
            sequence = np.random.SeedSequence(
                entropy, spawn_key=key, pool_size=pool_size, n_children_spawned=spawned
            )
        bits = getattr(np.random, name)(sequence)
        bits.state = state
        return np.random.Generator(bits)

    def _make_legacy(self, number: int, live: Any, place: str, state: Any) -> Any:
        made = np.random.RandomState()
        made.set_state(state)
        return made

    def _make_random(self, number: int, live: Any, place: str, state: Any) -> Any:
        made = random.Random()
        made.setstate(state)
        return made

    def _same(self, live: Any, place: str, kind: str) -> Any:
        if live is _MISSING or _kind(live) != kind:
            found = "missing" if live is _MISSING else f"a {_kind(live)}"
            raise SnapshotError(f"{place} is {found}, the snapshot has a {kind}")
        return live

    def _class(self, live: Any, place: str, kind: str) -> Any:
        """The class of ``live``, or one of this name that the environment refers to elsewhere."""
        if kind in self._found.classes and (live is _MISSING or _kind(live) != kind):
            return self._found.classes[kind]
        return type(self._same(live, place, kind))

    def _make_enum(self, number: int, live: Any, place: str, kind: str, name: str) -> Any:
        return self._class(live, place, kind)[name]

    def _make_flag(self, number: int, live: Any, place: str, kind: str, value: int) -> Any:
        return self._class(live, place, kind)(value)

    def _make_fixed(self, number: int, live: Any, place: str, kind: str, name: str | None = None) -> Any:
        found = self._found.constants.get((kind, name or ""), _MISSING)
        if found is not _MISSING and (live is _MISSING or (_kind(live), _name(live)) != (kind, name)):
            return found
        return self._named(self._same(live, place, kind), place, name)

    def _make_method(self, number: int, live: Any, place: str, kind: str, name: str, owner: Any) -> Any:
        self._named(self._same(live, place, kind), place, name)
        return getattr(self._value(owner, live.__self__, f"{place}.__self__"), live.__name__)

    def _named(self, live: Any, place: str, name: str | None) -> Any:
        # Snapshots of earlier versions have no names.
        if name is not None and _name(live) != name:
            raise SnapshotError(f"{place} is {_name(live)}, the snapshot has {name}")
        return live

    def _make_value(self, number: int, live: Any, place: str, kind: str, value: Any) -> Any:
        cls = self._class(live, place, kind)
        base = _base(cls)
        if base is None:
            raise SnapshotError(f"{place} is a {kind}, which has no value")
        return base.__new__(cls, self._value(value, live, place))

    def _make_range(self, number: int, live: Any, place: str, items: list[Any]) -> Any:
        return range(*self._items(items, (), place))

    def _make_slice(self, number: int, live: Any, place: str, items: list[Any]) -> Any:
        return slice(*self._items(items, (), place))

    def _make_closure(
        self, number: int, live: Any, place: str, items: list[Any], name: str | None = None
    ) -> Any:
        cells = getattr(live, "__closure__", None) or ()
        if len(cells) != len(items):
            raise SnapshotError(
                f"{place} is a function with {len(cells)} closure cells, the snapshot has {len(items)}"
            )
        self._made[number] = self._named(live, place, name)
        for i, (cell, item) in enumerate(zip(cells, items, strict=True)):
            cell.cell_contents = self._value(item, cell.cell_contents, f"{place}.cell[{i}]")
        return live

    def _object(self, number: int, live: Any, place: str, kind: str) -> None:
        self._same(live, place, kind)
        if id(live) in self._used:
            raise SnapshotError(f"{place} is an object that the snapshot has at another path too")
        self._used.add(id(live))
        self._made[number] = live

    def _make_plain(self, number: int, live: Any, place: str, kind: str, kept: list[Any], state: Any) -> Any:
        self._object(number, live, place, kind)
        for name, ref in kept:
            setattr(live, name, self._value(ref, getattr(live, name, _MISSING), f"{place}.{name}"))
        live.set_plain_state(state)
        return live

    def _make_object(self, number: int, live: Any, place: str, kind: str, kept: list[Any]) -> Any:
        self._object(number, live, place, kind)
        old = _attributes(live)
        new = {name: self._value(ref, old.get(name, _MISSING), f"{place}.{name}") for name, ref in kept}
        slots = set(_slots(type(live)))
        for name in slots & new.keys():
            object.__setattr__(live, name, new[name])
        if hasattr(live, "__dict__"):
            attributes = vars(live)
            attributes.clear()
            attributes.update({name: value for name, value in new.items() if name not in slots})
        return live
