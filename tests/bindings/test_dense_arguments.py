"""Arguments that the networks of the Rust extension refuse."""

import numpy as np
import pytest

from parl._native import Dense


def zeros(*shape):
    return np.zeros(shape, np.float32)


def layer(width, inputs, learns=True):
    arrays = zeros(width, inputs), zeros(width)
    return (*arrays, *(one.copy() if learns else None for one in arrays))


def test_mismatched_arguments_raise():
    with pytest.raises(ValueError, match="a network without hidden layers"):
        Dense([layer(1, 2), layer(0, 1)], [layer(1, 2)])
    with pytest.raises(ValueError, match="a network without inputs"):
        Dense([], [layer(1, 2)])
    with pytest.raises(ValueError, match="a network without heads"):
        Dense([layer(1, 2)], [])
    with pytest.raises(ValueError, match="weight 1 has 6 numbers, expected 8"):
        Dense([layer(4, 3)], [layer(2, 3)])
    with pytest.raises(ValueError, match="weight is not a C-contiguous array of float32, but of float64"):
        Dense([(np.zeros((4, 3)), zeros(4), None, None)], [layer(2, 4)])
    with pytest.raises(ValueError, match="gradient of bias 0 has 3 numbers, expected 4"):
        Dense([(zeros(4, 3), zeros(4), zeros(4, 3), zeros(3))], [layer(2, 4)])
    shared = layer(4, 4)
    with pytest.raises(ValueError, match="share memory"):
        Dense([shared], [shared])
    net = Dense([layer(4, 3)], [layer(2, 4)])
    x, out = zeros(5, 3), zeros(5, 2)
    with pytest.raises(ValueError, match=r"x has shape \[5, 4\], expected \(rows, 3\)"):
        net.forward(zeros(5, 4), [out], True)
    with pytest.raises(ValueError, match="x is not a C-contiguous array of float32"):
        net.forward(zeros(3, 5).T, [out], True)
    with pytest.raises(ValueError, match="output 0 has 8 numbers, expected 10"):
        net.forward(x, [zeros(4, 2)], True)
    with pytest.raises(ValueError, match="2 outputs, expected 1"):
        net.forward(x, [out, zeros(5, 2)], True)
    with pytest.raises(ValueError, match="share memory"):
        net.forward(x, [x], True)
    net.forward(x, [out], True)
    with pytest.raises(ValueError, match="the latest forward pass had 5 rows, the backward pass has 4"):
        net.backward(zeros(4, 3), [zeros(4, 2)])
    with pytest.raises(ValueError, match="share memory"):
        net.backward(x, [x])


def test_a_frozen_network_has_no_backward_pass():
    net = Dense([layer(4, 3, learns=False)], [layer(2, 4, learns=False)])
    x, out = zeros(5, 3), zeros(5, 2)
    net.forward(x, [out], True)
    with pytest.raises(ValueError, match="no memory for gradients"):
        net.backward(x, [out.copy()])


def test_a_batch_may_be_empty():
    one, two = layer(4, 3), layer(2, 4)
    net, x, out = Dense([one], [two]), zeros(0, 3), zeros(0, 2)
    net.forward(x, [out], True)
    net.backward(x, [out.copy()])
    net.backward_to_inputs(0, [out.copy()], zeros(0, 3))
    assert not any(gradient.any() for gradient in (*one[2:], *two[2:]))


def test_weights_are_read_at_each_call():
    one, two = layer(4, 3), layer(2, 4)
    net = Dense([one], [two])
    x, out = np.ones((5, 3), np.float32), zeros(5, 2)
    net.forward(x, [out], False)
    assert not out.any()
    two[1][:] = 7
    net.forward(x, [out], False)
    assert (out == 7).all()
