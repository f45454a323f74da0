"""The score ∇ log p(f) of a prior over functions, at the values f = (f(x₁), …, f(xₙ)) of each particle.

A Gaussian process has it in closed form. For a simulator it is estimated from draws: by a
Gaussian with their moments (SimFSVGD's default), or without assuming a form. Outputs are taken to be independent, so
an estimator is written for one: values [particles, points] and draws [functions, points] in, scores of the values out.
"""

import abc
import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sombrl.dynamics.particles import Statistics
from sombrl.theory.kernels import rbf

EstimatorName = Literal["gp", "ssge", "nu-method", "kde"]

HIGHEST = jax.lax.Precision.HIGHEST  # a covariance in the short floats of a GPU's default is not positive

SSGE_RIDGE = 0.1
SSGE_MASS = 0.98  # of the spectrum that is kept
NU, NU_LAMBDA = 1.0, 1e-4
NU_STEPS = int(1.0 / math.sqrt(NU_LAMBDA)) + 1
NU_WIDTH = 4.0  # times the median distance
MEDIAN_OF = 64  # draws are enough for a median distance


class PriorScore(eqx.Module):
    """∇ log p at the values of each particle, and the prior's own mean and spread there; normalised."""

    score: Float[Array, "particles points target"]
    mean: Float[Array, "points target"]
    std: Float[Array, "points target"]


class AbstractFunctionPrior(eqx.Module):
    """A distribution of functions from physical inputs to normalised targets."""

    @abc.abstractmethod
    def __call__(
        self,
        inputs: Float[Array, "points input"],
        values: Float[Array, "particles points target"],
        *,
        key: Key[Array, ""],
    ) -> PriorScore:
        """The score at these values."""

    @abc.abstractmethod
    def legacy_weight(self, particles: int, points: int) -> float:
        """The factor of this prior in the authors' code."""


class GaussianProcessPrior(AbstractFunctionPrior):
    """A zero-mean GP, squared exponential on normalised inputs, the same for every output."""

    statistics: Statistics
    lengthscale: float = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    resolution: float = eqx.field(static=True)

    def __call__(
        self,
        inputs: Float[Array, "points input"],
        values: Float[Array, "particles points target"],
        *,
        key: Key[Array, ""],
    ) -> PriorScore:
        """-(s²K + ε²I)⁻¹ f; nothing is random."""
        covariance = self.scale**2 * gram(jax.vmap(self.statistics.inputs)(inputs) / self.lengthscale)
        particles, points, targets = values.shape
        columns = jnp.moveaxis(values, 1, 0).reshape(points, -1)
        score = -solve(covariance, columns, self.resolution).reshape(points, particles, targets)
        shape = points, targets
        return PriorScore(
            jnp.moveaxis(score, 0, 1), jnp.zeros(shape, values.dtype), jnp.full(shape, self.scale, values.dtype)
        )

    def legacy_weight(self, particles: int, points: int) -> float:
        """An average over particles and points."""
        return 1.0 / (particles * points)


def gram(x: Float[Array, "points input"]) -> Float[Array, "points points"]:
    """exp(-½‖x - y‖²) of all pairs."""
    return jax.vmap(lambda a: jax.vmap(lambda b: rbf(a, b))(x))(x)


def solve(
    covariance: Float[Array, "points points"], columns: Float[Array, "points column"], resolution: float
) -> Float[Array, "points column"]:
    """(C + ε²I)⁻¹B, by Gauss-Jordan elimination.

    No pivoting is needed where all pivots are at least ε². It is as fast as LAPACK at this size, and batched LAPACK
    inside a loop can hang on a CPU with two cores.
    """
    number = covariance.shape[0]
    matrix = covariance + resolution**2 * jnp.eye(number, dtype=covariance.dtype)

    def eliminate(j: Any, table: Array) -> Array:
        row: Array = jax.lax.dynamic_index_in_dim(table, j, 0, keepdims=False)
        column: Array = jax.lax.dynamic_index_in_dim(table, j, 1, keepdims=False)
        row = row / jnp.maximum(row[j], 0.5 * resolution**2)  # a smaller pivot is only rounding error
        factor = column - (jnp.arange(number, dtype=jnp.int32) == j).astype(column.dtype)
        rest: Array = table - factor[:, None] * row[None, :]
        return rest

    table: Array = jax.lax.fori_loop(0, number, eliminate, jnp.concatenate([matrix, columns], axis=1))
    return table[:, number:]


def gaussian_score(
    values: Float[Array, "particles points"],
    mean: Float[Array, " points"],
    covariance: Float[Array, "points points"],
    resolution: float,
) -> Float[Array, "particles points"]:
    """-(C + ε²I)⁻¹ (f - m)."""
    return -solve(covariance, (values - mean[None, :]).T, resolution).T


def moments(draws: Float[Array, "functions points"]) -> tuple[Float[Array, " points"], Float[Array, "points points"]]:
    """Mean and covariance (divided by the number of draws)."""
    mean = jnp.mean(draws, axis=0)
    centred = draws - mean[None, :]
    return mean, jnp.matmul(centred.T, centred, precision=HIGHEST) / draws.shape[0]


def kde_score(
    values: Float[Array, "particles points"], draws: Float[Array, "functions points"]
) -> Float[Array, "particles points"]:
    """Of a Gaussian around every draw, Scott's width per coordinate. In many dimensions: the nearest draw's."""
    number, points = draws.shape
    width = (jnp.std(draws, axis=0) + 1e-3) * number ** (-1.0 / (points + 4))
    steps = (draws[None, :, :] - values[:, None, :]) / width[None, None, :]
    share = jax.nn.softmax(-0.5 * jnp.sum(steps**2, axis=-1), axis=-1)
    mean: Array = jnp.einsum("pf,pfn->pn", share, steps, precision=HIGHEST)
    score: Array = mean / width[None, :]
    return score


def ssge_score(
    values: Float[Array, "particles points"], draws: Float[Array, "functions points"]
) -> Float[Array, "particles points"]:
    """The spectral Stein gradient estimator (Shi et al., 2018) with k = (1 + r²/w²)^-½, w the median distance.

    The score as a sum of the kernel's eigenfunctions under p, whose coefficients Stein's identity gives. With
    eigenpairs (λⱼ, uⱼ) of the Gram matrix the number of draws cancels: Σⱼ λⱼ⁻² (uⱼᵀk(X, f)) (uⱼᵀT), where
    Tₗ = -Σₘ ∇k(xₘ, xₗ).
    """
    width = median_distance(draws)
    kernel = _inverse_multiquadric(draws, draws, width)
    eigenvalues, vectors = _eigh(kernel + SSGE_RIDGE * jnp.eye(draws.shape[0], dtype=draws.dtype))
    eigenvalues, vectors = jnp.maximum(eigenvalues[::-1], 0.0), vectors[:, ::-1]  # largest first
    before = jnp.cumsum(eigenvalues) - eigenvalues
    used = before < SSGE_MASS * jnp.sum(eigenvalues)
    cubed = kernel**3
    pulls = jnp.matmul(cubed, draws, precision=HIGHEST) - jnp.sum(cubed, axis=1)[:, None] * draws
    coefficients = jnp.matmul(vectors.T, pulls, precision=HIGHEST) / width**2
    features = jnp.matmul(_inverse_multiquadric(values, draws, width), vectors, precision=HIGHEST)
    features = jnp.where(used[None, :], features / (eigenvalues**2 + 1e-6)[None, :], 0.0)
    return jnp.matmul(features, coefficients, precision=HIGHEST)


Pair = tuple[Array, Array]


def nu_method_score(
    values: Float[Array, "particles points"], draws: Float[Array, "functions points"]
) -> Float[Array, "particles points"]:
    """The ν-method (Zhou et al., 2020) with the curl-free kernel of k = (1 + r²/w²)^-½.

    Landweber iteration, accelerated, of L s = -ζ: L the kernel's integral operator, ζ its mean divergence at the
    draws. The kernel is scaled to 1 on its diagonal, which keeps ‖L‖ <= 1 whatever the units, as the method needs.
    The estimate is s = -a ζ + Σₘ K(·, xₘ) cₘ.
    """
    width = NU_WIDTH * median_distance(draws)
    number = draws.shape[0]
    at_draws = _CurlFree(draws, draws, width)
    divergence = at_draws.divergence()

    def step(carry: tuple[Pair, Pair], t: Array) -> tuple[tuple[Pair, Pair], None]:
        (a, c), (a_before, c_before) = carry
        u = (
            (t - 1)
            * (2 * t - 3)
            * (2 * t + 2 * NU - 1)
            / ((t + 2 * NU - 1) * (2 * t + 4 * NU - 1) * (2 * t + 2 * NU - 3))
        )
        w = 4 * (2 * t + 2 * NU - 1) * (t + NU - 1) / ((t + 2 * NU - 1) * (2 * t + 4 * NU - 1))
        score = at_draws.apply(c) - a * divergence
        a_next = (1 + u) * a - u * a_before + w
        c_next = (1 + u) * c - u * c_before - w / number * score
        return ((a_next, c_next), (a, c)), None

    nothing = jnp.zeros((), draws.dtype), jnp.zeros_like(draws)
    times = jnp.arange(1, NU_STEPS + 1, dtype=draws.dtype)
    ((a, c), _), _ = jax.lax.scan(step, (nothing, nothing), times)
    at_values = _CurlFree(values, draws, width)
    return at_values.apply(c) - a * at_values.divergence()


SCORES = {"ssge": ssge_score, "nu-method": nu_method_score, "kde": kde_score}


def median_distance(draws: Float[Array, "functions points"]) -> Float[Array, ""]:
    """Of pairs of the first draws."""
    some = draws[:MEDIAN_OF]
    rows, columns = jnp.triu_indices(some.shape[0], 1)
    distances = jnp.sqrt(jnp.sum((some[rows] - some[columns]) ** 2, axis=1))
    return jnp.maximum(jnp.median(distances), 1e-6)


class _CurlFree(eqx.Module):
    """K(x, y) = (1 + q)^-3/2 I - 3 (1 + q)^-5/2 rrᵀ/w² with r = x - y and q = ‖r‖²/w², never formed."""

    x: Float[Array, "rows points"]
    y: Float[Array, "functions points"]
    width: Float[Array, ""]
    q: Float[Array, "rows functions"]

    def __init__(self, x: Float[Array, "rows points"], y: Float[Array, "functions points"], width: Float[Array, ""]):
        self.x, self.y, self.width = x, y, width
        self.q = _scaled_distances(x, y, width)

    def apply(self, c: Float[Array, "functions points"]) -> Float[Array, "rows points"]:
        """Σₘ K(x, yₘ) cₘ."""
        along = jnp.matmul(self.x, c.T, precision=HIGHEST) - jnp.sum(self.y * c, axis=1)[None, :]  # r · c
        along = 3.0 * (1.0 + self.q) ** -2.5 * along / self.width**2
        straight = jnp.matmul((1.0 + self.q) ** -1.5, c, precision=HIGHEST)
        return straight - self._differences(along)

    def divergence(self) -> Float[Array, "rows points"]:
        """The mean over y of div_y K(x, y) = 3 r/w² [(n + 2)(1 + q)^-5/2 - 5 q (1 + q)^-7/2]."""
        weight = (self.x.shape[1] + 2) * (1.0 + self.q) ** -2.5 - 5.0 * self.q * (1.0 + self.q) ** -3.5
        return self._differences(3.0 * weight / self.width**2) / self.y.shape[0]

    def _differences(self, weight: Float[Array, "rows functions"]) -> Float[Array, "rows points"]:
        """Σₘ weightₘ (x - yₘ)."""
        return jnp.sum(weight, axis=1)[:, None] * self.x - jnp.matmul(weight, self.y, precision=HIGHEST)


def _inverse_multiquadric(
    x: Float[Array, "rows points"], y: Float[Array, "functions points"], width: Float[Array, ""]
) -> Float[Array, "rows functions"]:
    return jax.lax.rsqrt(1.0 + _scaled_distances(x, y, width))


def _scaled_distances(
    x: Float[Array, "rows points"], y: Float[Array, "functions points"], width: Float[Array, ""]
) -> Float[Array, "rows functions"]:
    """‖x - y‖²/w², by the binomial formula around a common centre."""
    centre = jnp.mean(y, axis=0)[None, :]
    x, y = (x - centre) / width, (y - centre) / width
    squares = jnp.sum(x**2, axis=1)[:, None] + jnp.sum(y**2, axis=1)[None, :]
    return jnp.maximum(squares - 2.0 * jnp.matmul(x, y.T, precision=HIGHEST), 0.0)


@jax.custom_batching.sequential_vmap  # type: ignore[untyped-decorator]
def _eigh(matrix: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """One after the other under vmap: batched LAPACK can hang on a CPU."""
    eigenvalues, vectors = jnp.linalg.eigh(matrix)
    return eigenvalues, vectors
