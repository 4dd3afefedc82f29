"""Records the operations of an update below autograd once, and translates them to numpy.

For up to a few hundred rows, starting an operation of torch costs several times the arithmetic in it, and its
backward pass as much again. An update runs the same operations every time, so that it can be recorded and
replayed, like a CUDA graph: :func:`record_update` runs ``function(*tensors)`` once, observes every operation,
including those of the backward pass, and writes each as a line of Python on arrays. A pass of a network of
:mod:`parl.nets.fused` is one line.

Each line is evaluated when it is written, and compared with torch's result. If numpy has no equivalent, or
the result differs, the line calls torch's operation. Updates that cannot be replayed raise
:class:`NotReplayableError`: those that read a number into Python, draw random numbers, or change in place
memory that outlives the update, apart from its gradients. Python's own numbers and branches keep the values
of the recorded run.
"""

from __future__ import annotations

import functools
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parl.types import Array

BackwardPass = Callable[[Sequence[Array | None], Sequence[bool]], Sequence[Array | None]]
"""Backward pass of a network. Takes the outputs' gradients, and whether gradients of the weights and of each
input are requested. Returns the gradients of the inputs; those of the weights are added in place."""
ForwardPass = Callable[[Sequence[Array], bool], tuple[Sequence[Array], BackwardPass | None]]
"""Forward pass of a network. Takes inputs, and whether a backward pass follows. Returns outputs and
that backward pass, or None."""

MAX_LINES = 1_500
"""Largest number of operations of a recorded update: compiling more lines takes longer than it saves."""


class NotReplayableError(Exception):
    """An update cannot be replayed; the message gives the reason."""


class Call(NamedTuple):
    """One operation of torch, or one pass of a fused network.

    Attributes:
        name: of the operation; of a pass, ``forward`` or ``backward``.
        target: the operation; or the network; or the number of the forward pass and the requested gradients.
        args: positional arguments.
        kwargs: keyword arguments.
        outputs: tensors, kept alive so that no other object gets their ids.
        values: copies of the outputs, as later operations may change them.
    """

    name: str
    target: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    outputs: Sequence[Tensor | None]
    values: Sequence[Array | None]


def observe(work: Callable[[], Any], each: Callable[[Any, Any, Any], Any]) -> Any:
    """Runs ``work()`` with ``each(operation, args, kwargs)`` in place of each operation of torch.

    Operations are those below autograd, including the backward pass. Only this function uses torch's private
    modules.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return each(func, args, kwargs or {})

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # otherwise torch loads its compiler here, which takes two seconds

    with Mode():
        return work()


class Recorder:
    """The calls of one update, in order."""

    _thread_local = threading.local()

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._paused = False

    @classmethod
    def active(cls) -> Recorder | None:
        """Returns the recorder that records in this thread."""
        return getattr(cls._thread_local, "recorder", None)

    def record(self, work: Callable[[], Any]) -> Any:
        """Runs ``work()``, records its calls, and returns its result.

        Raises:
            NotReplayableError: it reads or draws numbers, or makes too many calls.
        """
        Recorder._thread_local.recorder = self
        try:
            return observe(work, self._each)
        finally:
            Recorder._thread_local.recorder = None

    def _each(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self._paused:
            return func(*args, **kwargs)
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise NotReplayableError(
                f"{func} draws random numbers; draw them before the update and pass them to it"
            )
        if len(self.calls) == MAX_LINES:
            raise NotReplayableError(f"it runs more than {MAX_LINES:,} operations")
        out = func(*args, **kwargs)
        outputs = out if isinstance(out, list | tuple) else [out]
        if not all(isinstance(one, Tensor) for one in outputs):
            raise NotReplayableError(f"{func} does not return tensors, say because Python reads a number")
        self.calls.append(Call(str(func), func, args, kwargs, outputs, [_copy(one) for one in outputs]))
        return out

    def without_recording(self, work: Callable[..., Any], *args: Any) -> Any:
        """Runs ``work(*args)`` without recording its operations; the caller records them as one call."""
        self._paused = True
        try:
            return work(*args)
        finally:
            self._paused = False

    def forward(self, run: ForwardPass, parts: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
        """Records the forward pass of a network; returns its number."""
        self.calls.append(Call("forward", run, parts, {}, outputs, [_copy(one) for one in outputs]))
        return len(self.calls) - 1

    def backward(
        self, number: int, wants: Sequence[bool], gradients: Sequence[Any], of_parts: Sequence[Tensor | None]
    ) -> None:
        """Records the backward pass of forward pass ``number``."""
        values = [None if one is None else _copy(one) for one in of_parts]
        self.calls.append(Call("backward", (number, tuple(wants)), gradients, {}, of_parts, values))


def _copy(tensor: Tensor) -> Array:
    return tensor.detach().clone().numpy()


class Pass(torch.autograd.Function):
    """Forward and backward pass of a network, each one call."""

    @staticmethod
    def forward(ctx: Any, run: ForwardPass, anchor: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        """Returns the outputs; ``anchor`` is a parameter, so that autograd calls :meth:`backward`."""
        ctx.set_materialize_grads(False)
        recorder = Recorder.active()
        if recorder is None:
            outputs, ctx.back = _run_forward(run, parts, True)
            return outputs
        outputs, ctx.back = recorder.without_recording(_run_forward, run, parts, True)
        ctx.number = recorder.forward(run, parts, outputs)
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns the inputs' gradients; those of the weights are added in place."""
        if ctx.back is None:
            raise RuntimeError("a second backward pass through dense layers, whose memory is already reused")
        wants, back, ctx.back = ctx.needs_input_grad[1:], ctx.back, None
        recorder = Recorder.active()
        if recorder is None:
            return None, None, *_run_backward(back, gradients, wants)
        of_parts = recorder.without_recording(_run_backward, back, gradients, wants)
        recorder.backward(ctx.number, wants, gradients, of_parts)
        return None, None, *of_parts


def _run_forward(
    run: ForwardPass, parts: Sequence[Tensor], keep: bool
) -> tuple[tuple[Tensor, ...], BackwardPass | None]:
    outputs, back = run([one.detach().numpy() for one in parts], keep)
    return tuple(map(torch.from_numpy, outputs)), back


def _run_backward(
    back: BackwardPass, gradients: Sequence[Tensor | None], wants: Sequence[bool]
) -> list[Tensor | None]:
    found = back([None if g is None else g.numpy() for g in gradients], wants)
    return [None if g is None else torch.from_numpy(g) for g in found]


def run_network(run: ForwardPass, anchor: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
    """Returns a network's outputs, with a backward pass if ``anchor`` or a part requires a gradient."""
    if torch.is_grad_enabled() and (anchor.requires_grad or any(one.requires_grad for one in parts)):
        return Pass.apply(run, anchor, *parts)  # pyright: ignore[reportReturnType]
    recorder = Recorder.active()
    if recorder is None:
        return _run_forward(run, parts, False)[0]
    outputs = recorder.without_recording(_run_forward, run, parts, False)[0]
    recorder.forward(run, parts, outputs)
    return outputs


# ---------------------------------------------------------------- from calls to lines

_SAME = {"aten.detach.default", "aten.alias.default", "aten.lift_fresh.default"}
_RESHAPED = {
    "aten.unsqueeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.squeeze.default",
    "aten.view.default",
    "aten._unsafe_view.default",
}
# {0}, {1}, ... are the arguments, {t0}, {t1}, ... the results of a tuple's earlier expressions; {shape} and
# {inputs} are the shapes of the output and of the first argument, {size} the number of inputs per output;
# k(...) is a constant, and {r0}, {r1}, ... are the arguments without k(...); {axes} is {1} as a tuple.
_ELEMENTWISE: dict[str, str | tuple[str, ...]] = {
    "aten.mul.Tensor": "{0} * {1}",
    "aten.mul.Scalar": "{0} * {1}",
    "aten.add.Tensor": "{0} + {1}",
    "aten.add.Scalar": "{0} + {1}",
    "aten.sub.Tensor": "{0} - {1}",
    "aten.sub.Scalar": "{0} - {1}",
    "aten.rsub.Scalar": "{1} - {0}",
    "aten.div.Tensor": "{0} / {1}",
    "aten.div.Scalar": "{0} / {1}",
    "aten.neg.default": "-{0}",
    "aten.exp.default": "np.exp({0})",
    "aten.log.default": "np.log({0})",
    "aten.tanh.default": "np.tanh({0})",
    "aten.relu.default": "np.maximum({0}, k(0.0))",
    "aten.abs.default": "np.abs({0})",
    "aten.sgn.default": "np.sign({0})",
    "aten.sqrt.default": "np.sqrt({0})",
    "aten.square.default": "{0} * {0}",
    "aten.minimum.default": "np.minimum({0}, {1})",
    "aten.maximum.default": "np.maximum({0}, {1})",
    "aten.clamp.default": ("np.maximum({0}, {1})", "np.minimum({t0}, {2})"),
    "aten.clamp.Tensor": ("np.maximum({0}, {1})", "np.minimum({t0}, {2})"),
    "aten.clamp_min.default": "np.maximum({0}, {1})",
    "aten.clamp_max.default": "np.minimum({0}, {1})",
    "aten.addcmul.default": "{0} + {1} * {2}",
    "aten.logical_and.default": "{0} & {1}",
    "aten.logical_or.default": "{0} | {1}",
    "aten.dot.default": "np.dot({0}, {1})",
    "aten.logical_not.default": "~{0}",
    "aten.bitwise_and.Tensor": "{0} & {1}",
    "aten.where.self": "np.where({0}, {1}, {2})",
    "aten.where.ScalarSelf": "np.where({0}, f({1}), {2})",
    "aten.where.ScalarOther": "np.where({0}, {1}, f({2}))",
    "aten.where.Scalar": "np.where({0}, f({1}), f({2}))",
    "aten.masked_fill.Scalar": "np.where({1}, f({2}), {0})",
    "aten.masked_fill.Tensor": "np.where({1}, {2}, {0})",
    "aten.softplus.default": "np.logaddexp(k(0.0), {0})",
    "aten.softplus_backward.default": "{0} / (k(1.0) + np.exp(-{1}))",
    "aten.tanh_backward.default": "{0} * (k(1.0) - {1} * {1})",
    "aten.threshold_backward.default": "{0} * ({1} > {2})",
    "aten.huber_loss.default": (
        "{0} - {1}",
        "np.maximum({t0}, k(-{r3}))",
        "np.minimum({t1}, {3})",
        "({t0} - k(0.5) * {t2}) * {t2}",
    ),
    "aten.huber_loss_backward.default": (
        "{1} - {2}",
        "np.maximum({t0}, k(-{r4}))",
        "np.minimum({t1}, {4})",
        "{t2} * {0}",
    ),
    **{
        f"aten.{name}.{kind}": f"{{0}} {sign} {{1}}"
        for name, sign in {"lt": "<", "gt": ">", "le": "<=", "ge": ">=", "eq": "==", "ne": "!="}.items()
        for kind in ("Tensor", "Scalar")
    },
}
_OTHERS: dict[str, str | tuple[str, ...]] = {
    "aten.expand.default": "np.broadcast_to({0}, {shape})",
    "aten.t.default": "{0}.T",
    "aten.sum.default": "add({0}, axis=None)",
    "aten.sum.dim_IntList": "add({0}, axis={axes}, keepdims={2})",
    "aten.mean.default": "add({0}, axis=None) / k({size})",
    "aten.mean.dim": "add({0}, axis={axes}, keepdims={2}) / k({size})",
    "aten.amin.default": "np.minimum.reduce({0}, axis={axes}, keepdims={2})",
    "aten.amax.default": "np.maximum.reduce({0}, axis={axes}, keepdims={2})",
    "aten.argmax.default": "{0}.argmax({1}, keepdims={2})",
    "aten.gather.default": ("offsets({inputs})", "{t0} + {2}", "{0}.take({t1})"),
    "aten.scatter_add.default": ("offsets({inputs})", "{t0} + {2}", "scatter({0}, {t1}, {3})"),
    "aten._log_softmax.default": (
        "np.maximum.reduce({0}, axis=1, keepdims=True)",
        "{0} - {t0}",
        "np.exp({t1})",
        "add({t2}, axis=1, keepdims=True)",
        "{t1} - np.log({t3})",
    ),
    "aten._log_softmax_backward_data.default": (
        "np.exp({1})",
        "add({0}, axis=1, keepdims=True)",
        "{0} - {t0} * {t1}",
    ),
    "aten.std.correction": "deviation({0})",
    "aten.linalg_vector_norm.default": "f(math.sqrt(np.dot({0}, {0})))",
    "aten.new_zeros.default": "np.zeros({shape}, f)",
    "aten.zeros.default": "np.zeros({shape}, f)",
    "aten.zeros_like.default": "np.zeros({shape}, f)",
    "aten.zero.default": "np.zeros({shape}, f)",
    "aten.ones_like.default": "np.ones({shape}, f)",
    "aten.full_like.default": "np.full({shape}, {1}, f)",
    "aten.fill.Scalar": "np.full({shape}, {1}, f)",
    "aten.scalar_tensor.default": "f({0})",
    "aten.clone.default": "{0}",
    "aten._to_copy.default": "{0}.astype(f)",
    "aten.stack.default": "np.stack({0}, {1})",
    "aten.cat.default": "np.concatenate({0}, {1})",
    "aten.split.Tensor": "pieces({0}, {1}, {2})",
    "aten.unbind.int": "list({0})",
    "aten.slice.Tensor": "cut({0}, {1}, {2}, {3}, {4})",
    "aten.slice_backward.default": "uncut({0}, {1}, {2}, {3}, {4}, {5})",
    "aten.select.int": "{0}.swapaxes(0, {1})[{2}]",
    "aten.select_backward.default": "put({0}, {1}, {2}, {3})",
}


def _offsets(shape: Sequence[int]) -> Array:
    """Returns the flat index of each row's first element, as a column."""
    return np.arange(0, shape[0] * shape[1], shape[1])[:, None]


def _scatter(x: Array, flat: Array, src: Array) -> Array:
    """Returns a copy of ``x`` with ``src`` added at flat indices, one in each row."""
    out = x.copy()
    out.put(flat, x.take(flat) + src)
    return out


def _placed(shape: Sequence[int], flat: Array, src: Array) -> Array:
    """Returns zeros with ``src`` at flat indices, one in each row."""
    out = np.zeros(shape, np.float32)
    out.put(flat, src)
    return out


def _put(g: Array, shape: Sequence[int], dim: int, index: int) -> Array:
    out = np.zeros(shape, np.float32)
    out.swapaxes(0, dim)[index] = g
    return out


def _cut(x: Array, dim: int, *bounds: int) -> Array:
    return x[(slice(None),) * dim + (slice(*bounds),)]


def _pieces(x: Array, size: int, dim: int) -> list[Array]:
    return [_cut(x, dim, at, at + size) for at in range(0, x.shape[dim], size)]


def _uncut(g: Array, shape: Sequence[int], dim: int, *bounds: int) -> Array:
    out = np.zeros(shape, np.float32)
    _cut(out, dim, *bounds)[...] = g
    return out


def _deviation(x: Array) -> Any:
    centred = x - np.add.reduce(x, axis=None) / np.float32(x.size)
    return np.float32(math.sqrt(np.vdot(centred, centred) / (x.size - 1)))


def _constant(value: float) -> Array:
    """Returns a number in the form that numpy reads fastest."""
    return np.array(value, np.float32)


_SCOPE: dict[str, Any] = {
    "k": _constant,
    "np": np,
    "math": math,
    "inf": math.inf,
    "nan": math.nan,
    "f": np.float32,
    "add": np.add.reduce,
    "offsets": _offsets,
    "scatter": _scatter,
    "placed": _placed,
    "put": _put,
    "deviation": _deviation,
    "cut": _cut,
    "uncut": _uncut,
    "pieces": _pieces,
}
_NAME = re.compile(r"\b[vxchg]\d+(?:_\w+)?\b")
_CONSTANT = re.compile(r"\bk\(((?:[^()]|\([^()]*\))*)\)")
_NUMBER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?(?:e-?\d+)?)")


class Line(NamedTuple):
    """``left = right``; or, with an empty ``left``, an expression that changes memory."""

    left: str
    right: str


class Lines:
    """Translates recorded calls to lines.

    Args:
        calls: of one update.
        given: arguments of the update, named ``x0``, ``x1``, ...
        gradients: memory that the update may change.

    Raises:
        NotReplayableError: an operation would not give the same result again.

    Attributes:
        lines: in order.
        scope: objects by the names that the lines use, besides their own results.
    """

    def __init__(self, calls: Sequence[Call], given: Sequence[Tensor], gradients: Tensor) -> None:
        self.lines: list[Line] = []
        self.scope: dict[str, Any] = dict(_SCOPE)
        self._names = {id(one): f"x{number}" for number, one in enumerate(given)}
        self._values: dict[str, Any] = {f"x{n}": one.detach().numpy() for n, one in enumerate(given)}
        self._gradients = gradients.untyped_storage().data_ptr()
        # By memory address: whether only one output of this update uses the memory.
        self._is_unaliased: dict[int, bool] = {}
        # Names of reshaped and of broadcast arrays, with the names of the originals.
        self._reshaped_from: dict[str, str] = {}
        self._broadcast_from: dict[str, str] = {}
        backs = {call.target[0] for call in calls if call.name == "backward"}
        for number, call in enumerate(calls):
            if call.name == "forward":
                self._forward(number, call, number in backs)
            elif call.name == "backward":
                self._backward(number, call)
            else:
                self._operation(number, call)

    def text(self, value: Any) -> str:
        """Returns an argument as a Python expression."""
        if isinstance(value, Tensor):
            name = self._names.get(id(value))
            if name is None:
                name = self._names[id(value)] = f"c{len(self._names)}"
                self.scope[name] = self._values[name] = value.detach().numpy()
            return name
        if isinstance(value, list | tuple):
            return "[" + "".join(f"{self.text(one)}, " for one in value) + "]"
        if value is None or isinstance(value, bool | int | float):
            return repr(value)
        name = f"p{len(self.scope)}"
        self.scope[name] = value
        return name

    def _name(self, tensor: Tensor, name: str, value: Any, alone: bool = True) -> None:
        self._names[id(tensor)], self._values[name] = name, value
        self._is_unaliased.setdefault(_address(tensor), alone)

    def _forward(self, number: int, call: Call, keep: bool) -> None:
        self.scope[f"n{number}"] = call.target
        self.lines.append(Line(f"h{number}", f"n{number}({self.text(call.args)}, {keep})"))
        for at, (one, value) in enumerate(zip(call.outputs, call.values, strict=True)):
            assert one is not None
            self._name(one, f"v{number}_{at}", value, False)
            self.lines.append(Line(f"v{number}_{at}", f"h{number}[0][{at}]"))

    def _backward(self, number: int, call: Call) -> None:
        of, wants = call.target
        self.lines.append(Line(f"g{number}", f"h{of}[1]({self.text(call.args)}, {wants})"))
        for at, (one, value) in enumerate(zip(call.outputs, call.values, strict=True)):
            if one is not None:
                self._name(one, f"v{number}_{at}", value, False)
                self.lines.append(Line(f"v{number}_{at}", f"g{number}[{at}]"))

    def _operation(self, number: int, call: Call) -> None:
        func, out = call.target, call.outputs[0]
        assert out is not None
        args = [*call.args, *_defaults(func, len(call.args))]
        texts = [self.text(one) for one in args]
        shared = {_address(one) for one in _tensors(args)}
        if not func._schema.is_mutable:
            self._is_unaliased |= {
                _address(one): False for one in _tensors(call.outputs) if _address(one) in shared
            }
        if call.name in _SAME:
            self._names[id(out)] = texts[0]
            return
        if func._schema.is_mutable:
            if self._changes_gradients(call, args, texts):
                return
            if not self._is_unaliased.get(_address(out), False):
                raise NotReplayableError(f"{func} changes memory in place that something else uses too")
        many = _returns_several(call)
        names = [f"v{number}_{at}" if many else f"v{number}" for at in range(len(call.outputs))]
        right, base = self._right(number, call, args, texts)
        if many:
            self.lines.append(Line(f"h{number}", right))
            self.lines.extend(Line(name, f"h{number}[{at}]") for at, name in enumerate(names))
        elif right != base:
            self.lines.append(Line(names[0], right))
        for name, one, value in zip(names, call.outputs, call.values, strict=True):
            assert one is not None
            self._name(one, name, value)
        if base is not None:
            if right == base:
                self._names[id(out)] = base
            else:
                self._reshaped_from[names[0]] = base
        if call.name == "aten.expand.default":
            self._broadcast_from[names[0]] = texts[0]

    def _changes_gradients(self, call: Call, args: Sequence[Any], texts: Sequence[str]) -> bool:
        if _address(args[0]) != self._gradients:
            return False
        if call.name == "aten.zero_.default":
            self.lines.append(Line("", f"{texts[0]}.fill(0)"))
        elif call.name == "aten.add_.Tensor" and call.kwargs.get("alpha", 1) == 1:
            self.lines.append(Line("", f"np.add({texts[0]}, {texts[1]}, {texts[0]})"))
        else:
            raise NotReplayableError(f"{call.target} changes gradients, which may only be zeroed or added to")
        return True

    def _right(
        self, number: int, call: Call, args: Sequence[Any], texts: Sequence[str]
    ) -> tuple[str, str | None]:
        """Returns the first expression that reproduces torch's result, and the name it reshapes or None."""
        shape = list(call.values[0].shape) if call.values[0] is not None else []
        name = call.name.replace("_.", ".") if call.target._schema.is_mutable else call.name
        if name in _RESHAPED:
            base = self._reshaped_from.get(texts[0], texts[0])
            right = base if self._values[base].shape == tuple(shape) else f"{base}.reshape({shape})"
            if self._agrees([right], number, call):
                return right, base
        template = _ELEMENTWISE.get(name) or _OTHERS.get(name) or ""
        if name == "aten.pow.Tensor_Scalar":
            template = {1: "{0}", 2: "{0} * {0}"}.get(args[1], "{0} ** {1}")
        if name == "aten.scatter_add.default" and self._is_zero(texts[0]):
            template = ("offsets({inputs})", "{t0} + {2}", "placed({shape}, {t1}, {3})")
        templates = (template,) if isinstance(template, str) else template
        if name == "aten.clamp.default":
            templates = [one for one, bound in zip(templates, texts[1:], strict=False) if bound != "None"]
            templates = [one.replace("{t0}", "{0}") if len(templates) == 1 else one for one in templates]
        scale = call.kwargs.get("alpha", call.kwargs.get("value", 1))
        first = args[0] if args and isinstance(args[0], Tensor) else None
        words = {f"t{at}": f"v{number}_t{at}" for at in range(len(templates))}
        words |= {"shape": str(shape), "inputs": str([] if first is None else list(first.shape))}
        words |= {"size": str(0 if first is None else first.numel() // max(1, math.prod(shape)))}
        words |= {"axes": texts[1].replace("[", "(").replace("]", ")") if len(texts) > 1 else ""}
        words |= {f"r{at}": one for at, one in enumerate(texts)}
        given = list(texts)
        if name in _ELEMENTWISE and all(one.dtype == torch.float32 for one in _tensors(args)):
            given = [
                f"k({one})" if _is_number(value) else one for one, value in zip(texts, args, strict=True)
            ]
        for tried in ([self._broadcast_from.get(one, one) for one in given], given):
            if scale != 1:
                tried[-1] = f"(k({scale}) * {tried[-1]})"
            rights = [one.format(*tried, **words) for one in templates]
            if rights[-1] and (tried is given or name in _ELEMENTWISE) and self._agrees(rights, number, call):
                self.lines.extend(Line(words[f"t{at}"], one) for at, one in enumerate(rights[:-1]))
                return rights[-1], None
        if call.target._schema.is_mutable:
            raise NotReplayableError(f"{call.target} has no equivalent in numpy")
        self.scope[f"o{number}"] = _call_torch(call.target, call.kwargs)
        right = f"o{number}({', '.join(texts)})"
        if not self._agrees([right], number, call):
            raise NotReplayableError(f"{call.target} gives another result when it is repeated")
        return right, None

    def _is_zero(self, name: str) -> bool:
        return any(line.left == name and line.right.startswith("np.zeros(") for line in self.lines)

    def _agrees(self, rights: Sequence[str], number: int, call: Call) -> bool:
        """Returns whether expressions reproduce torch's result from its earlier results."""
        values, found = self._values, None
        try:
            with np.errstate(all="ignore"):
                for at, right in enumerate(rights):
                    found = values[f"v{number}_t{at}"] = eval(right, self.scope, values)
        except Exception:
            return False
        many: Any = found if _returns_several(call) else [found]
        if len(many) != len(call.values):
            return False
        pairs = [(np.asarray(one), value) for one, value in zip(many, call.values, strict=True)]
        if all(value is not None and _equal(one, value) for one, value in pairs):
            return True  # as most are; what follows takes several times as long
        inputs = [values[name] for right in rights for name in _NAME.findall(right)]
        largest = max((_largest(one) for one in inputs if isinstance(one, np.ndarray)), default=0.0)
        return all(value is not None and same(one, value, 1e-5, 1e-5 * largest) for one, value in pairs)


def _returns_several(call: Call) -> bool:
    """Whether the operation returns a tuple or a list, which may have one element."""
    return len(call.outputs) > 1 or call.target._schema.returns[0].type.kind() == "ListType"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _largest(value: Array) -> float:
    """Returns the largest finite absolute value; 0 unless float32."""
    value = np.asarray(value)
    if value.dtype != np.float32 or not value.size:
        return 0.0
    found = np.abs(value)
    return float(found.max(where=np.isfinite(found), initial=0.0))


def _equal(found: Array, expected: Array) -> bool:
    alike = found.dtype == expected.dtype and found.shape == expected.shape
    return alike and bool((found == expected).all())


def same(found: Array, expected: Array, relative: float, absolute: float) -> bool:
    """Returns whether arrays have equal dtype and shape, and equal values, for float32 within the bounds."""
    if _equal(found, expected):
        return True
    if found.dtype != expected.dtype or found.shape != expected.shape or expected.dtype != np.float32:
        return False
    bound = absolute + relative * _largest(expected)
    return bool(np.allclose(found, expected, rtol=0.0, atol=bound, equal_nan=True))


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for one in values:
        if isinstance(one, list | tuple):
            yield from _tensors(one)
        elif isinstance(one, Tensor):
            yield one


@functools.cache
def _defaults(func: Any, given: int) -> list[Any]:
    """Returns the default values of the positional arguments after the first ``given``."""
    return [one.default_value for one in func._schema.arguments if not one.kwarg_only][given:]


def _call_torch(func: Any, kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """Wraps an operation of torch for arrays; it is slower than numpy."""

    def tensors(value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic):
            return torch.from_numpy(np.array(value))  # a copy: some are not writable
        return [tensors(one) for one in value] if isinstance(value, list) else value

    named = {name: value.detach() if isinstance(value, Tensor) else value for name, value in kwargs.items()}

    def call(*args: Any) -> Any:
        out = func(*map(tensors, args), **named)
        return [one.numpy() for one in out] if isinstance(out, list | tuple) else out.numpy()

    return call


# ---------------------------------------------------------------- from lines to a program


def record_update(
    function: Callable[..., Mapping[str, Tensor]], given: Sequence[Tensor], gradients: Tensor
) -> Program:
    """Records ``function(*given)`` and returns a program that replays it, if possible for any number of rows.

    Args:
        function: writes ``gradients``, and returns metrics by name.
        given: arguments of ``function``.
        gradients: flat, zeroed by ``function``.

    Raises:
        NotReplayableError: the update cannot be replayed.
    """
    lines, results = _record_lines(function, given, gradients)
    rows = len(given[0])
    general = None
    if rows > 1 and all(one.dim() == 0 or len(one) == rows for one in given):
        fewer, _ = _record_lines(function, [one[:-1] if one.dim() else one for one in given], gradients)
        general = _generalize_rows(lines.lines, fewer.lines, rows)
    return Program(general or lines.lines, lines.scope, results, len(given), general is not None)


def _record_lines(
    function: Callable[..., Mapping[str, Tensor]], given: Sequence[Tensor], gradients: Tensor
) -> tuple[Lines, dict[str, str]]:
    recorder = Recorder()
    given = [one.detach() for one in given]
    with torch.enable_grad():
        found = recorder.record(lambda: function(*given))
    if not any(call.name == "forward" for call in recorder.calls):
        raise NotReplayableError("")  # without passes of networks there is too little to save
    lines = Lines(recorder.calls, given, gradients)
    return lines, {name: lines.text(one) for name, one in found.items()}


def _generalize_rows(lines: Sequence[Line], fewer: Sequence[Line], rows: int) -> list[Line] | None:
    """Returns lines for any number of rows from those for ``rows`` and one less; None if impossible."""
    if len(lines) != len(fewer):
        return None
    merged = []
    for line, other in zip(lines, fewer, strict=True):
        now, then = _NUMBER.split(line.right), _NUMBER.split(other.right)
        if len(now) != len(then) or line.left != other.left:
            return None
        for at, (one, two) in enumerate(zip(now, then, strict=True)):
            if one == two:
                continue
            if at % 2 == 0 or float(one) * (rows - 1) != float(two) * rows or float(one) % rows:
                return None
            now[at] = f"({int(one) // rows} * rows)" if int(one) != rows else "rows"
        merged.append(Line(line.left, "".join(now)))
    return merged


class Program:
    """Lines compiled to a function of arrays.

    Attributes:
        general: whether it works for any number of rows.
        source: Python code that is compiled.
    """

    def __init__(
        self,
        lines: Sequence[Line],
        scope: Mapping[str, Any],
        results: Mapping[str, str],
        count: int,
        general: bool,
    ) -> None:
        self.general = general
        fixed, varying, results = _simplify(lines, results)
        constants = {found for line in varying for found in _CONSTANT.findall(line.right)}
        names = {value: f"k{number}" for number, value in enumerate(sorted(constants))}
        fixed += [Line(name, f"k({value})") for value, name in names.items()]
        varying = [Line(one.left, _CONSTANT.sub(lambda k: names[k[1]], one.right)) for one in varying]
        given = ", ".join(f"x{number}" for number in range(count))
        found = ", ".join(f"{name!r}: {value}" for name, value in results.items())
        self.source = "\n".join(
            [
                "def bind(rows):",
                *(f"    {_assignment(line)}" for line in fixed),
                f"    def program({given}):",
                *(f"        {_assignment(line)}" for line in varying),
                f"        return {{{found}}}",
                "    return program",
            ]
        )
        scope = dict(scope)
        exec(compile(self.source, "<recorded update>", "exec"), scope)
        self.bind: Callable[[int], Callable[..., dict[str, Array]]] = scope["bind"]


def _assignment(line: Line) -> str:
    return f"{line.left} = {line.right}" if line.left else line.right


def _simplify(
    lines: Sequence[Line], results: Mapping[str, str]
) -> tuple[list[Line], list[Line], dict[str, str]]:
    """Returns the lines that depend on the number of rows alone, and the others, without unneeded ones."""
    renamed: dict[str, str] = {}
    seen: dict[str, str] = {}
    varying: set[str] = set()
    kept: list[tuple[Line, list[str]]] = []

    def rename(text: str) -> str:
        return _NAME.sub(lambda found: renamed.get(found[0], found[0]), text)

    for line in lines:
        right = rename(line.right)
        uses = _NAME.findall(right)
        changes = any(one[0] == "c" for one in uses)  # memory that lines change
        if _NAME.fullmatch(right) and not changes:
            renamed[line.left] = right
            continue
        if line.left[:1] == "v" and right in seen and not changes:
            renamed[line.left] = seen[right]
            continue
        if line.left[:1] != "v" or any(one[0] != "v" or one in varying for one in uses):
            varying.add(line.left)
        seen[right] = line.left
        kept.append((Line(line.left, right), uses))
    results = {name: rename(value) for name, value in results.items()}
    needed = {use for value in results.values() for use in _NAME.findall(value)}
    fixed, rest = [], []
    for line, uses in reversed(kept):
        if line.left in needed or line.left[:1] in ("", "g"):
            needed.update(uses)
            (rest if line.left in varying else fixed).append(line)
    return fixed[::-1], rest[::-1], results
