"""Kernels on inputs already divided by their lengthscales, and draws from their priors.

Each is written for a pair of points; the sum over input dimensions is unrolled, because a reduction over a minor
axis of length four is what keeps XLA from vectorising the exponential.
"""

import abc
import math
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

KernelName = Literal["rbf", "matern52", "linear"]


def rbf(x: Float[Array, " input"], y: Float[Array, " input"]) -> Float[Array, ""]:
    """exp(-½‖x - y‖²)."""
    return jnp.exp(-0.5 * _squared_distance(x, y))


def matern52(x: Float[Array, " input"], y: Float[Array, " input"]) -> Float[Array, ""]:
    """(1 + √5 r + 5/3 r²) exp(-√5 r), r = ‖x - y‖."""
    # The tiny offset keeps the gradient of the square root finite at r = 0.
    root = jnp.sqrt(5.0 * _squared_distance(x, y) + 1e-12)
    return (1.0 + root + root**2 / 3.0) * jnp.exp(-root)


def linear(x: Float[Array, " input"], y: Float[Array, " input"]) -> Float[Array, ""]:
    """1 + xᵀy: Bayesian linear regression with a bias; lengthscales are inverse weight scales."""
    return sum((x[i] * y[i] for i in range(x.shape[0])), jnp.ones((), x.dtype))


Kernel = Callable[[Float[Array, " input"], Float[Array, " input"]], Float[Array, ""]]

KERNELS: dict[str, Kernel] = {"rbf": rbf, "matern52": matern52, "linear": linear}


def _squared_distance(x: Float[Array, " input"], y: Float[Array, " input"]) -> Float[Array, ""]:
    return sum(((x[i] - y[i]) ** 2 for i in range(x.shape[0])), jnp.zeros((), x.dtype))


class AbstractPriorDraw(eqx.Module):
    """One function drawn from a kernel's prior, on scaled inputs."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, " input"]) -> Float[Array, ""]:
        """The function at one point."""


class FourierDraw(AbstractPriorDraw):
    """√(2/F) Σ wᵢ cos(ωᵢᵀx + bᵢ): random Fourier features (Rahimi & Recht, 2007)."""

    frequencies: Float[Array, "features input"]  # in turns: ω/2π
    phases: Float[Array, " features"]  # in turns
    weights: Float[Array, " features"]

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, ""]:
        """The sum of cosines."""
        precision = jax.lax.Precision.HIGHEST
        turns = jnp.matmul(self.frequencies, x, precision=precision) + self.phases
        return jnp.matmul(self.weights, cosine_of_turns(turns), precision=precision)


def cosine_of_turns(turns: Float[Array, " features"]) -> Float[Array, " features"]:
    """cos(2π·turns) to 1e-6, as a polynomial: XLA's own is far slower on a CPU."""
    y = (turns - jnp.round(turns)) ** 2  # in [0, ¼], where cos(2π√y) is as good as a polynomial
    result = jnp.full_like(y, _COSINE[-1])
    for coefficient in _COSINE[-2::-1]:
        result = result * y + coefficient
    return result


_COSINE = tuple(
    float(c)
    for c in np.polynomial.Chebyshev.interpolate(lambda y: np.cos(2.0 * np.pi * np.sqrt(y)), 7, domain=[0.0, 0.25])
    .convert(kind=np.polynomial.Polynomial)
    .coef
)


class LinearDraw(AbstractPriorDraw):
    """w₀ + wᵀx, exact for the linear kernel."""

    bias: Float[Array, ""]
    weights: Float[Array, " input"]

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, ""]:
        """The line."""
        return self.bias + self.weights @ x


def draw_prior(kernel: str, input_dim: int, num_features: int, *, key: Key[Array, ""]) -> AbstractPriorDraw:
    """One function from the prior of `kernel`; `num_features` cosines for the stationary ones."""
    dtype = jnp.float32
    frequency_key, phase_key, weight_key, tail_key = jr.split(key, 4)
    if kernel == "linear":
        return LinearDraw(jr.normal(phase_key, (), dtype), jr.normal(weight_key, (input_dim,), dtype))
    frequencies = jr.normal(frequency_key, (num_features, input_dim), dtype)
    if kernel == "matern52":  # its spectral density is a multivariate t with 2ν = 5 degrees of freedom
        chi_square = 2.0 * jr.gamma(tail_key, jnp.full((num_features, 1), 2.5, dtype), dtype=dtype)
        frequencies = frequencies * jnp.sqrt(5.0 / chi_square)
    phases = jr.uniform(phase_key, (num_features,), dtype)
    weights = jr.normal(weight_key, (num_features,), dtype) * (2.0 / num_features) ** 0.5
    return FourierDraw(frequencies / (2.0 * math.pi), phases, weights)
