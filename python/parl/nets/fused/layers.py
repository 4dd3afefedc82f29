"""Dense layers of one or several networks, and heads on them, with their backward pass.

torch records every operation and runs its backward pass; for layers of tens of units that costs many times
the arithmetic. Here all layers and heads are one operation of autograd, the memory of activations is reused,
and gradients are added to the buffer of :func:`parl.nets.flatten`. Modules that have not been flattened, and
those on a device, under autocast or in a compiler, are differentiated by torch itself: their ``forward``
defines what is computed, and tests compare the two.

There are no second derivatives: differentiating a gradient raises torch's own error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from parl.nets.fused.numpy_mlp import NumpyMLP
from parl.nets.fused.record import BackwardPass, run_network
from parl.nets.fused.rust_mlp import Layer as Arrays
from parl.nets.fused.rust_mlp import RustMLP
from parl.types import Array

Activation = Literal["relu", "tanh"]
_EPSILON = 1e-5  # of nn.LayerNorm
# Multiplications of a layer up to which acting uses numpy: it starts an operation in a third of torch's time,
# and below this number its BLAS uses one thread, so that results do not depend on the number of threads.
_NUMPY_MAX_PRODUCTS = 2**17
_relu_backward = torch.ops.aten.threshold_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input
_norm_backward = torch.ops.aten.native_layer_norm_backward.default


def _tanh(h: Tensor) -> Tensor:
    """Applies tanh in place; numpy takes two thirds of torch's time."""
    if h.device.type == "cpu":
        array = h.numpy()
        np.tanh(array, out=array)
        return h
    return torch.tanh_(h)


@dataclass(frozen=True)
class ParameterView:
    """A parameter and its gradient, both as views in the shape that the computation needs."""

    value: Tensor
    grad: Tensor | None

    def select(self, members: slice) -> ParameterView:
        """Returns the part of these members."""
        return ParameterView(self.value[members], None if self.grad is None else self.grad[members])


def view_parameter(parameter: Tensor, view: Callable[[Tensor], Tensor]) -> ParameterView:
    """Applies ``view``, which must return a view, to ``parameter`` and its gradient."""
    grad = parameter.grad
    return ParameterView(view(parameter.detach()), None if grad is None else view(grad))


@dataclass(frozen=True)
class Layer:
    """A layer ``act(norm(x W + b))`` of E networks; without ``norm`` if scale and shift are None.

    Attributes:
        weight: (E, inputs, width).
        bias: (E, 1, width).
        scale: (width,), of the layer normalization, which needs E = 1.
        shift: (width,), likewise.
    """

    weight: ParameterView
    bias: ParameterView
    scale: ParameterView | None = None
    shift: ParameterView | None = None


def layer(linear: nn.Linear, norm: nn.LayerNorm | None = None) -> Layer:
    """Creates the layer of one network from a linear layer and its normalization."""
    weight = view_parameter(linear.weight, lambda w: w.T.unsqueeze(0))
    bias = view_parameter(linear.bias, lambda b: b.view(1, 1, -1))
    if norm is None:
        return Layer(weight, bias)
    return Layer(
        weight, bias, view_parameter(norm.weight, lambda w: w), view_parameter(norm.bias, lambda b: b)
    )


@dataclass(frozen=True)
class Head:
    """A linear layer on the features of one of the networks.

    Attributes:
        member: index of the network.
        weight: (outputs, features); (features,) for a single output of shape (B,) instead of (B, 1).
        bias: (outputs,).
    """

    member: int
    weight: ParameterView
    bias: ParameterView

    def outputs(self, features: Tensor) -> Tensor:
        """Returns (B, outputs), or (B,), for features (B, width)."""
        weight = self.weight.value
        if weight.dim() == 1:
            return torch.addmv(self.bias.value, features, weight)
        return torch.addmm(self.bias.value, features, weight.T)

    def gradients(self, g: Tensor, features: Tensor, back: Tensor, first: bool, wants_weights: bool) -> None:
        """Adds the gradients of weight and bias; sets (``first``) or adds that of features in ``back``."""
        weight, grad = self.weight.value, self.weight.grad
        if wants_weights:
            assert grad is not None and self.bias.grad is not None
            self.bias.grad.add_(g.sum(dim=0))
            if weight.dim() == 1:
                grad.addmv_(features.T, g)
            else:
                grad.addmm_(g.T, features)
        if weight.dim() == 1:
            if first:
                torch.outer(g, weight, out=back)
            else:
                back.addr_(g, weight)
        elif first:
            torch.mm(g, weight, out=back)
        else:
            back.addmm_(g, weight)


def head(member: int, linear: nn.Linear, scalar: bool = False) -> Head:
    """Creates a head from ``linear`` on network ``member``; ``scalar``: its one output is (B,)."""
    weight = view_parameter(linear.weight, (lambda w: w[0]) if scalar else (lambda w: w))
    return Head(member, weight, view_parameter(linear.bias, lambda b: b))


class Pool:
    """Memory of activations for reuse: newly allocated memory costs more than the arithmetic on it."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, ...], list[Tensor]] = {}

    def acquire(self, like: Tensor, *shape: int) -> Tensor:
        """Returns an uninitialized tensor of ``shape`` on the device of ``like``."""
        free = self._free.get(shape)
        return free.pop() if free else torch.empty(shape, device=like.device)

    def release(self, *tensors: Tensor) -> None:
        """Returns tensors from :meth:`acquire` to the pool."""
        for tensor in tensors:
            self._free.setdefault(tuple(tensor.shape), []).append(tensor)

    def __deepcopy__(self, memo: Any) -> Pool:
        return Pool()


@dataclass
class _Saved:
    """Saved for the backward pass: input of each layer, and input and moments of each normalization."""

    inputs: list[Tensor]
    norms: list[tuple[Tensor, Tensor, Tensor] | None]


class Stack:
    """Hidden layers of E networks.

    Args:
        layers: at least one.
        activation: after each layer.
        pool: memory for activations.
    """

    def __init__(self, layers: Sequence[Layer], activation: Activation, pool: Pool | None = None) -> None:
        self.layers = list(layers)
        self.activation: Activation = activation
        self.pool = pool or Pool()
        self.learns = all(one.weight.grad is not None for one in self.layers)
        self._members: dict[int, Stack] = {}
        self._arrays: list[tuple[Array, ...]] = []
        # Multiplications of the largest layer, for one row.
        self.products = max(one.weight.value[0].numel() for one in self.layers)

    def member(self, number: int) -> Stack:
        """Returns the layers of one network."""
        if len(self.layers[0].weight.value) == 1:
            return self
        found = self._members.get(number)
        if found is None:
            part = slice(number, number + 1)
            layers = [Layer(one.weight.select(part), one.bias.select(part)) for one in self.layers]
            found = self._members[number] = Stack(layers, self.activation, self.pool)
        return found

    def forward(self, x: Tensor) -> _Saved:
        """Runs the networks on x (B, inputs). The last of ``inputs``, (E, B, width), is from the pool."""
        pool = self.pool
        h = x.expand(len(self.layers[0].weight.value), *x.shape)
        saved = _Saved([h], [])
        for one in self.layers:
            weight = one.weight.value
            out = pool.acquire(x, len(weight), len(x), weight.shape[2])
            h = torch.bmm(h, weight, out=out).add_(one.bias.value)
            if one.scale is not None and one.shift is not None:
                norm = torch.native_layer_norm(h, h.shape[2:], one.scale.value, one.shift.value, _EPSILON)
                saved.norms.append((h, norm[1], norm[2]))
                h = norm[0]
            else:
                saved.norms.append(None)
            h = torch.relu_(h) if self.activation == "relu" else _tanh(h)
            saved.inputs.append(h)
        return saved

    def backward(self, saved: _Saved, g: Tensor, wants_x: bool, wants_weights: bool = True) -> Tensor | None:
        """Adds the gradients of the weights; returns that of x (B, inputs) if requested.

        Args:
            saved: result of :meth:`forward`; must not be used again.
            g: gradient of the features, (E, B, width), from the pool; must not be used again.
            wants_x: whether to return the gradient of x.
            wants_weights: whether to add the gradients of the weights.
        """
        pool = self.pool
        for number in reversed(range(len(self.layers))):
            one, h, norm = self.layers[number], saved.inputs[number + 1], saved.norms[number]
            if self.activation == "relu":
                _relu_backward(g, h, 0, grad_input=g)
            else:
                _tanh_backward(g, h, grad_input=g)
            if norm is None:
                pool.release(h)
            else:
                assert one.scale is not None and one.shift is not None
                z, mean, inverse_std = norm
                mask = [True, wants_weights, wants_weights]
                moments = (mean, inverse_std, one.scale.value, one.shift.value)
                new, scale, shift = _norm_backward(g, z, z.shape[2:], *moments, mask)
                pool.release(z, g)
                g = new
                if wants_weights:
                    assert one.scale.grad is not None and one.shift.grad is not None
                    one.scale.grad.add_(scale)
                    one.shift.grad.add_(shift)
            if wants_weights:
                _add_product(one.weight.grad, saved.inputs[number], g)
                assert one.bias.grad is not None
                one.bias.grad.add_(g.sum(dim=1, keepdim=True))
            if number == 0 and not wants_x:
                break
            weight = one.weight.value
            back = torch.bmm(g, weight.mT, out=pool.acquire(g, *g.shape[:2], weight.shape[1]))
            if norm is None:
                pool.release(g)
            g = back
        else:
            result = g.sum(dim=0)
            pool.release(g)
            return result
        if saved.norms[0] is None:
            pool.release(g)
        return None

    def act(self, x: Array) -> Array:
        """Returns features (B, width) of one network for x (B, inputs) float32; for few rows, no gradient."""
        if not self._arrays:
            for one in self.layers:
                norm = () if one.scale is None or one.shift is None else (one.scale.value, one.shift.value)
                views = (one.weight.value[0], one.bias.value[0], *norm)
                self._arrays.append(tuple(view.numpy() for view in views))
        for weight, bias, *norm in self._arrays:
            x = x @ weight
            x += bias
            if norm:
                x -= np.add.reduce(x, axis=1, keepdims=True) / x.shape[1]
                variance = np.add.reduce(x * x, axis=1, keepdims=True) / x.shape[1]
                x *= 1 / np.sqrt(variance + np.float32(_EPSILON))
                x *= norm[0]
                x += norm[1]
            x = np.maximum(x, 0, out=x) if self.activation == "relu" else np.tanh(x, out=x)
        return x

    def release(self, saved: _Saved) -> None:
        """Returns the memory of a pass without a backward pass to the pool."""
        for h, norm in zip(saved.inputs[1:], saved.norms, strict=True):
            self.pool.release(h if norm is None else norm[0])


def _add_product(grad: Tensor | None, inputs: Tensor, g: Tensor) -> None:
    """Computes ``grad += inputs^T g``, (E, inputs, width), where grad may be a transposed view."""
    assert grad is not None
    if grad.stride(2) == 1:
        grad.baddbmm_(inputs.mT, g)
    else:
        grad.mT.baddbmm_(g.mT, inputs)


class MLPWithHeads:
    """Hidden layers and heads, on the CPU, as one operation of autograd.

    The Rust extension computes a pass if it supports the network, else numpy for few rows, else torch.

    Args:
        stack: hidden layers.
        heads: on the features of ``stack``; without heads, the output is the features of one network.
        anchor: a parameter of the network, so that autograd calls the backward pass.
    """

    def __init__(self, stack: Stack, heads: Sequence[Head], anchor: Tensor) -> None:
        self.stack = stack
        self.heads = list(heads)
        self.anchor = anchor
        self._arrays: dict[int, tuple[Array, Array]] = {}
        # Shapes of the heads' outputs for one row.
        self._inner = [() if one.weight.value.dim() == 1 else (len(one.bias.value),) for one in self.heads]
        on_cpu = stack.layers[0].weight.value.device.type == "cpu"
        self.rust = _make_rust_mlp(self) if on_cpu and suits_rust(self) else None
        self.numpy = NumpyMLP(self) if on_cpu and self.rust is None and NumpyMLP.suits(self) else None

    def __reduce__(self) -> tuple[Any, ...]:
        # A copied network has other weights: its attribute is None until they are flattened.
        return type(None), ()

    def accepts(self, x: Tensor) -> bool:
        """Returns whether a pass on ``x`` (B, inputs) can be computed here; if not, torch has to."""
        return (
            x.dim() == 2
            and x.dtype == torch.float32
            and x.device.type == "cpu"
            and not torch.is_autocast_enabled("cpu")
            and not torch.compiler.is_compiling()
        )

    def outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """Returns the output of each head, (B, outputs) or (B,) float32."""
        return run_network(self.run, self.anchor, x)

    def run(self, parts: Sequence[Array], keep: bool) -> tuple[Sequence[Array], BackwardPass | None]:
        """See :data:`parl.nets.fused.record.ForwardPass`."""
        x = parts[0]
        if self.rust is not None and self.rust.accepts(len(x)):
            return self._run_by_rust(self.rust, np.ascontiguousarray(x), keep)
        if self.numpy is not None and (cuts := self.numpy.num_parts(len(x))):
            return self.numpy.run(x, cuts)
        with torch.no_grad():
            saved = self.stack.forward(torch.from_numpy(x))
            outputs = [one.numpy() for one in self.apply_heads(saved.inputs[-1])]
        if not keep:
            self.stack.release(saved)
            return outputs, None

        def backward(gradients: Sequence[Array | None], wants: Sequence[bool]) -> Sequence[Array | None]:
            with torch.no_grad():
                given = [None if g is None else torch.from_numpy(g) for g in gradients]
                g = self.head_gradients(saved.inputs[-1], given, wants[0])
                of_x = self.stack.backward(saved, g, wants[1], wants[0])
            return [None if of_x is None else of_x.numpy()]

        return outputs, backward

    def _run_by_rust(
        self, rust: RustMLP, x: Array, keep: bool
    ) -> tuple[Sequence[Array], BackwardPass | None]:
        rows = (len(x),)
        outputs = [np.empty(rows + one, np.float32) for one in self._inner]
        if not keep:
            rust.forward(x, [outputs])
            return outputs, None
        record = rust.record(x, [outputs])

        def backward(gradients: Sequence[Array | None], wants: Sequence[bool]) -> Sequence[Array | None]:
            of_outputs = [
                np.zeros_like(out) if g is None else np.ascontiguousarray(g)
                for out, g in zip(outputs, gradients, strict=True)
            ]
            if wants[0]:
                record.to_weights([of_outputs])
            return [record.to_inputs(0, [of_outputs]) if wants[1] else None]

        return outputs, backward

    def output(self, x: Tensor, number: int) -> Tensor:
        """Returns the output of one head; no gradient."""
        one = self.heads[number]
        stack = self.stack.member(one.member)
        saved = stack.forward(x)
        found = one.outputs(saved.inputs[-1][0])
        stack.release(saved)
        return found

    def act(self, x: Array, number: int) -> Array | None:
        """As :meth:`output`, for numpy arrays; None if the batch is so large that torch is faster."""
        found = self.act_all(x, (number,))
        return None if found is None else found[0]

    def act_all(self, x: Array, numbers: Sequence[int]) -> Sequence[Array] | None:
        """As :meth:`act`, for several heads of one network."""
        if self.rust is not None:
            if not self.rust.accepts(len(x)):
                return None
            outputs = self._run_by_rust(self.rust, np.ascontiguousarray(x), False)[0]
            return [outputs[number] for number in numbers]
        stack = self.stack.member(self.heads[numbers[0]].member)
        if len(x) * stack.products > _NUMPY_MAX_PRODUCTS:
            return None
        features = stack.act(x)
        found: list[Array] = []
        for number in numbers:
            if number not in self._arrays:
                one = self.heads[number]
                self._arrays[number] = (one.weight.value.numpy(), one.bias.value.numpy())
            weight, bias = self._arrays[number]
            output = features @ weight.T
            output += bias
            found.append(output)
        return found

    def apply_heads(self, features: Tensor) -> tuple[Tensor, ...]:
        """Returns the output of each head for features (E, B, width)."""
        if not self.heads:
            return (features[0].clone(),)
        parts = features.unbind(0)
        return tuple(one.outputs(parts[one.member]) for one in self.heads)

    def head_gradients(
        self, features: Tensor, gradients: Sequence[Tensor | None], wants_weights: bool
    ) -> Tensor:
        """Adds the gradients of the heads' weights; returns that of the features, from the pool."""
        back = self.stack.pool.acquire(features, *features.shape)
        if not self.heads:
            (g,) = gradients
            return back.zero_() if g is None else back.copy_(g.unsqueeze(0))
        parts, seen, written = back.unbind(0), features.unbind(0), [False] * len(back)
        for one, g in zip(self.heads, gradients, strict=True):
            if g is not None:
                one.gradients(g, seen[one.member], parts[one.member], not written[one.member], wants_weights)
                written[one.member] = True
        for part, has in zip(parts, written, strict=True):
            if not has:
                part.zero_()
        return back


def suits_rust(net: MLPWithHeads) -> bool:
    """Returns whether ``net`` is one network with heads and ReLU, without normalization."""
    layers = net.stack.layers
    return (
        bool(net.heads)
        and net.stack.activation == "relu"
        and all(one.scale is None and len(one.weight.value) == 1 for one in layers)
        and all(one.weight.value[0].T.is_contiguous() for one in layers)
    )


def _make_rust_mlp(net: MLPWithHeads) -> RustMLP:
    def arrays(weight: ParameterView, bias: ParameterView, transposed: bool) -> Arrays:
        width = bias.value.numel()

        def matrix(view: Tensor) -> Array:
            return view[0].T.numpy() if transposed else view.view(width, -1).numpy()

        return (
            matrix(weight.value),
            bias.value.view(width).numpy(),
            None if weight.grad is None else matrix(weight.grad),
            None if bias.grad is None else bias.grad.view(width).numpy(),
        )

    hidden = [arrays(one.weight, one.bias, transposed=True) for one in net.stack.layers]
    heads = [arrays(one.weight, one.bias, transposed=False) for one in net.heads]
    return RustMLP([(hidden, heads)], transposed=False)
