"""The noise of sampling planners: coloured along time, and candidate plans made from it."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key


def coloured_noise(
    shape: tuple[int, ...], exponent: float | Float[Array, ""], *, key: Key[Array, ""]
) -> Float[Array, "..."]:
    """Gaussian sequences along the last axis with power spectrum f^-exponent; other axes are independent.

    Timmer & König (1995): draw the Fourier coefficients, scale them by f^(-exponent/2), transform back. 0 is
    white; larger values give smoother sequences, which move a slow system further than white noise does.

    Every element has variance exactly 1, at any length. The `colorednoise` package, and the planners built on
    it, divide by a std that forgets the constant term and half of the Nyquist one: their noise is larger (4%
    for white noise of length 20) and undefined for length 1.
    """
    *batch, horizon = shape
    # The constant has frequency 0; as in the reference it gets the lowest other one, so that it stays finite.
    frequency = jnp.maximum(jnp.fft.rfftfreq(horizon, dtype=jnp.float32), 1.0 / horizon)
    amplitude = frequency ** (-exponent / 2)
    bins = amplitude.shape[0]
    # The constant, and at even lengths the Nyquist term, are real: one coefficient does the work of two.
    real = (jnp.arange(bins) == 0) | ((jnp.arange(bins) == bins - 1) & (horizon % 2 == 0))
    # Parseval: a real term adds 2 (amplitude/H)² to the variance of each element, a complex one twice that.
    std = jnp.sqrt(jnp.sum(jnp.where(real, 2.0, 4.0) * amplitude**2)) / horizon
    real_scale = jnp.where(real, math.sqrt(2.0), 1.0) * amplitude / std
    imag_scale = jnp.where(real, 0.0, 1.0) * amplitude / std

    def sequence(normal: Array) -> Array:
        return jnp.fft.irfft(jax.lax.complex(normal[0] * real_scale, normal[1] * imag_scale), n=horizon)

    # Drawn flat: threefry in three dimensions gives the same numbers, but on a CPU (jax 0.10) it takes five
    # times as long to compile and three times as long to run, and this draw is most of a planner's own cost.
    num = math.prod(batch)
    normal = jr.normal(key, (num * 2 * bins,), jnp.float32).reshape(num, 2, bins)
    return jax.vmap(sequence)(normal).reshape(shape)


def sample_plans(
    mean: Float[Array, "horizon plan"],
    std: Float[Array, "horizon plan"],
    num: int,
    exponent: float | Float[Array, ""],
    *,
    key: Key[Array, ""],
) -> Float[Array, "num horizon plan"]:
    """clip(mean + std · noise, -1, 1), `num` times.

    The noise is coloured along time only. One sequence over the flattened plan would tie the controls of one
    decision to each other, hallucinated ones included.
    """
    horizon, action_dim = mean.shape
    noise = coloured_noise((num, action_dim, horizon), exponent, key=key)
    return jax.vmap(lambda sequence: jnp.clip(mean + std * sequence.T, -1.0, 1.0))(noise)
