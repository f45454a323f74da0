"""Sine, cosine and arctangent to 1e-6 as polynomials: on a CPU XLA's own are several times slower.

In float64 they are XLA's.
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def _polynomial(function: Callable[[Any], Any], degree: int, end: float) -> tuple[float, ...]:
    """Coefficients of a function of [0, end], lowest first."""
    fitted = np.polynomial.Chebyshev.interpolate(function, degree, domain=[0.0, end])
    return tuple(float(c) for c in fitted.convert(kind=np.polynomial.Polynomial).coef)


_SINE = _polynomial(lambda y: np.sinc(np.sqrt(y)), 6, 0.25)  # sin(πt)/πt of t², t <= 1/2
_ARCTANGENT = _polynomial(lambda y: np.arctan(np.sqrt(y)) / np.sqrt(y), 9, 1.0)  # arctan(t)/t of t², t <= 1


def _evaluate(coefficients: tuple[float, ...], y: Float[Array, ""]) -> Float[Array, ""]:
    result = jnp.full_like(y, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = result * y + coefficient
    return result


def sine(x: Float[Array, ""]) -> Float[Array, ""]:
    """sin x."""
    if x.dtype == jnp.float64:
        return jnp.sin(x)
    half_turns = x * (1.0 / math.pi)
    whole = jnp.round(half_turns)
    rest = half_turns - whole
    sign = 1.0 - 2.0 * jnp.abs(whole - 2.0 * jnp.round(0.5 * whole))  # -1 for odd numbers of half turns
    return sign * math.pi * rest * _evaluate(_SINE, rest**2)


def cosine(x: Float[Array, ""]) -> Float[Array, ""]:
    """cos x."""
    return jnp.cos(x) if x.dtype == jnp.float64 else sine(x + 0.5 * math.pi)


def arctangent(x: Float[Array, ""]) -> Float[Array, ""]:
    """arctan x."""
    if x.dtype == jnp.float64:
        return jnp.arctan(x)
    steep = jnp.abs(x) > 1.0
    t = jnp.where(steep, 1.0 / jnp.where(steep, x, 1.0), x)
    angle = t * _evaluate(_ARCTANGENT, t**2)
    return jnp.where(steep, jnp.sign(x) * (0.5 * math.pi) - angle, angle)
