"""LaProp against NumPy, against a chain of optax's parts, and in the limits of the clipping."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from sombrl.dreamer.laprop import clip_to, laprop
from sombrl.records import SombrlError

RATE = 1e-2


def f32(values):
    return jnp.asarray(values, jnp.float32)


def run(optimiser, parameters, gradients):
    """The parameters after each of several gradients (stacked on the first axis)."""

    def step(carry, gradient):
        parameters, state = carry
        change, state = optimiser.update(gradient, state, parameters)
        parameters = optax.apply_updates(parameters, change)
        return (parameters, state), parameters

    return jax.jit(lambda p, g: jax.lax.scan(step, (p, optimiser.init(p)), g)[1])(parameters, gradients)


def reference(parameters, gradients, rate, warmup, agc):
    """The definition, tensor by tensor, in float64."""
    p = np.asarray(parameters, np.float64)
    square, direction, path = np.zeros_like(p), np.zeros_like(p), []
    for n, g in enumerate(np.asarray(gradients, np.float64)):
        if agc is not None:
            g = g * min(1.0, agc * max(1e-3, np.linalg.norm(p)) / np.linalg.norm(g))
        square = 0.999 * square + 0.001 * g**2
        unit = g / (np.sqrt(square / (1 - 0.999 ** (n + 1))) + 1e-20)
        direction = 0.9 * direction + 0.1 * unit
        p = p - rate * min(1.0, n / warmup if warmup else 1.0) * direction / (1 - 0.9 ** (n + 1))
        path.append(p)
    return np.array(path)


def uneven_gradients(*shape):
    """Some small, some far above any clip."""
    sizes = np.geomspace(1e-3, 30.0, 12).reshape(12, *[1] * len(shape))
    return f32(sizes * np.random.default_rng(0).normal(size=(12, *shape)))


@pytest.mark.parametrize("agc", [0.3, None])
def test_path_is_that_of_numpy(agc):
    parameters = {"matrix": jr.normal(jr.key(1), (3, 4), jnp.float32), "bias": jnp.zeros(4, jnp.float32)}
    gradients = {"matrix": uneven_gradients(3, 4), "bias": uneven_gradients(4)}
    path = run(laprop(RATE, 5, agc), parameters, gradients)
    for name, start in parameters.items():
        np.testing.assert_allclose(
            path[name], reference(start, gradients[name], RATE, 5, agc), rtol=2e-4, atol=1e-6, err_msg=name
        )


def test_clipping_matters_in_that_path():
    start = jnp.zeros(4, jnp.float32)
    gradients = uneven_gradients(4)
    clipped, free = (reference(start, gradients, RATE, 5, agc)[-1] for agc in (0.3, None))
    assert np.abs(clipped - free).max() > 1e-3


def test_without_clipping_it_is_a_chain_of_optax():
    start = jr.normal(jr.key(2), (5,), jnp.float32)
    gradients = uneven_gradients(5)
    chain = optax.chain(
        optax.scale_by_rms(0.999, eps=1e-20, eps_in_sqrt=False, bias_correction=True),
        optax.ema(0.9, debias=True),
        optax.scale_by_learning_rate(optax.linear_schedule(0.0, RATE, 5)),
    )
    with jax.numpy_dtype_promotion("standard"):
        expected = run(chain, start, gradients)
    np.testing.assert_allclose(run(laprop(RATE, 5, None), start, gradients), expected, rtol=1e-4, atol=1e-6)


def test_a_constant_gradient_moves_by_the_rate_in_its_sign():
    """First nothing, then a linear climb, then the rate itself, however small or large the gradient."""
    gradient = f32([3e-4, -2e-9, 0.05, 0.0])
    path = run(laprop(1e-3, 10), f32([5.0, 5.0, 5.0, 5.0]), jnp.tile(gradient, (30, 1)))
    moves = np.diff(np.concatenate([[[5.0] * 4], np.asarray(path, np.float64)]), axis=0)
    expected = -1e-3 * np.minimum(1.0, np.arange(30) / 10)[:, None] * np.sign(gradient)
    np.testing.assert_allclose(moves, expected, atol=1e-6)


def test_defaults_are_dreamers():
    """4e-5 in full from the thousandth update on: halfway there at the five hundredth."""
    path = run(laprop(), f32([1.0]), jnp.full((1002, 1), 1e-2, jnp.float32))
    whole = 1.0 - 4e-5 * np.minimum(1.0, np.arange(1002) / 1000).sum()
    np.testing.assert_allclose(path[-1, 0], whole, atol=2e-5)
    np.testing.assert_allclose(path[499, 0] - path[509, 0], 10 * 4e-5 * 0.5045, rtol=2e-2)


def test_a_clipped_gradient_keeps_its_direction():
    gradient = f32([[3.0, 4.0], [0.0, 12.0]])
    clipped = clip_to(gradient, f32(0.65))
    np.testing.assert_allclose(clipped, gradient * 0.05, rtol=1e-6)
    np.testing.assert_array_equal(clip_to(gradient, f32(13.5)), gradient)
    np.testing.assert_array_equal(clip_to(jnp.zeros(3, jnp.float32), f32(3e-4)), 0.0)


def test_tensors_that_start_at_zero_can_be_trained():
    """Their gradients are clipped to 0.3 · 1e-3, which the division by its size undoes."""
    optimiser, start = laprop(RATE, 0), jnp.zeros(2, jnp.float32)
    gradient = f32([30.0, -40.0])
    change, state = optimiser.update(gradient, optimiser.init(start), start)
    np.testing.assert_allclose(np.sqrt(state.square / 1e-3), 0.3 * 1e-3 * np.array([0.6, 0.8]), rtol=1e-4)
    np.testing.assert_allclose(change, [-RATE, RATE], rtol=1e-4)


def test_each_tensor_is_clipped_by_its_own_size():
    optimiser = laprop(RATE, 0)
    start = {"large": jnp.full(4, 5.0, jnp.float32), "small": jnp.full(4, 0.05, jnp.float32)}  # norms 10 and 0.1
    gradient = {name: jnp.full(4, 1.0, jnp.float32) for name in start}  # norm 2
    _, state = optimiser.update(gradient, optimiser.init(start), start)
    np.testing.assert_allclose(np.sqrt(state.square["large"] / 1e-3), 1.0, rtol=1e-4)
    np.testing.assert_allclose(np.sqrt(state.square["small"] / 1e-3), 0.3 * 0.1 / 2, rtol=1e-4)


class Net(eqx.Module):
    weight: jax.Array
    name: str


def test_parts_that_are_no_arrays_stay_out_of_it():
    net = Net(f32([1.0, 2.0]), "net")
    parameters = eqx.filter(net, eqx.is_inexact_array)
    assert parameters.name is None
    optimiser = laprop(RATE, 0)
    gradient = eqx.filter_grad(lambda net: jnp.sum(net.weight**2))(net)
    change, _ = optimiser.update(gradient, optimiser.init(parameters), parameters)
    moved = eqx.apply_updates(net, change)
    np.testing.assert_allclose(moved.weight, [1.0 - RATE, 2.0 - RATE], rtol=1e-5)
    assert moved.name == "net"


def test_clipping_without_parameters_is_refused():
    optimiser = laprop()
    with pytest.raises(SombrlError, match="needs the parameters"):
        optimiser.update(f32([1.0]), optimiser.init(f32([1.0])))
