"""A simulator as a prior over functions: parameters drawn from their ranges give one function each (SimFSVGD).

What no parameters of the simulator explain is left to a Gaussian process that is added to every function.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from sombrl.dynamics.particles import Statistics
from sombrl.dynamics.prior_score import (
    SCORES,
    AbstractFunctionPrior,
    EstimatorName,
    PriorScore,
    gaussian_score,
    gram,
    moments,
)

DRAW_JITTER = 1e-5  # on the unit kernel, so that it can be factorised in float32
STATISTICS_POINTS, STATISTICS_FUNCTIONS = 1000, 10
TARGET_WIDENING = 1.5  # of the targets' std: the real system may vary more than the simulator
X_FLOOR, Y_FLOOR = 1e-3, 1e-6


class AbstractSimulator(eqx.Module):
    """A family of functions from a model's inputs to its targets, in the physical units of its coordinates."""

    @abc.abstractmethod
    def draw(self, *, key: Key[Array, ""]) -> PyTree:
        """Parameters of one function."""

    @abc.abstractmethod
    def __call__(self, parameters: PyTree, inputs: Float[Array, " input"]) -> Float[Array, " target"]:
        """That function's value at one input."""

    @abc.abstractmethod
    def domain(self, *, key: Key[Array, ""]) -> Float[Array, " input"]:
        """An input at which the prior is to hold, drawn from the simulator's domain."""


def draw_functions(
    simulator: AbstractSimulator, inputs: Float[Array, "points input"], number: int, *, key: Key[Array, ""]
) -> Float[Array, "functions points target"]:
    """`number` functions at the same inputs, physical units."""
    parameters = jax.vmap(lambda k: simulator.draw(key=k))(jr.split(key, number))
    return jax.vmap(lambda p: jax.vmap(lambda x: simulator(p, x))(inputs))(parameters)


def draw_domain(simulator: AbstractSimulator, number: int, *, key: Key[Array, ""]) -> Float[Array, "points input"]:
    """`number` inputs."""
    return jax.vmap(lambda k: simulator.domain(key=k))(jr.split(key, number))


def simulator_statistics(simulator: AbstractSimulator, *, key: Key[Array, ""]) -> Statistics:
    """The units of a simulator: mean and std of its domain, and of its functions there (the std half as much again)."""
    domain_key, function_key = jr.split(key)
    inputs = draw_domain(simulator, STATISTICS_POINTS, key=domain_key)
    values = draw_functions(simulator, inputs, STATISTICS_FUNCTIONS, key=function_key)
    return Statistics(
        x_mean=jnp.mean(inputs, axis=0),
        x_std=jnp.maximum(jnp.std(inputs, axis=0), X_FLOOR),
        y_mean=jnp.mean(values, axis=(0, 1)),
        y_std=jnp.maximum(TARGET_WIDENING * jnp.std(values, axis=(0, 1)), Y_FLOOR),
    )


class AdditiveGP(eqx.Module):
    """What the simulator lacks: zero mean, squared exponential on physical inputs, a scale for each output."""

    scales: Float[Array, " target"]  # standard deviations, physical
    lengthscale: float = eqx.field(static=True)

    def gram(self, inputs: Float[Array, "points input"]) -> Float[Array, "points points"]:
        """The covariance of an output whose scale is 1."""
        return gram(inputs / self.lengthscale)

    def draw(
        self, inputs: Float[Array, "points input"], number: int, *, key: Key[Array, ""]
    ) -> Float[Array, "functions points target"]:
        """`number` functions, all outputs independent."""
        kernel = self.gram(inputs) + DRAW_JITTER * jnp.eye(inputs.shape[0], dtype=inputs.dtype)
        normals = jr.normal(key, (number, self.scales.shape[0], inputs.shape[0]), inputs.dtype)
        values = jnp.matmul(normals, _cholesky(kernel).T, precision=jax.lax.Precision.HIGHEST)
        return jnp.moveaxis(values, 1, 2) * self.scales[None, None, :]


class SimulatorPrior(AbstractFunctionPrior):
    """The score of simulator + additive GP, estimated from new draws at every step."""

    simulator: AbstractSimulator
    additive: AdditiveGP | None
    statistics: Statistics
    functions: int = eqx.field(static=True)
    estimator: EstimatorName = eqx.field(static=True)
    resolution: float = eqx.field(static=True)  # of the Gaussian score
    draw_additive: bool = eqx.field(static=True)

    def __call__(
        self,
        inputs: Float[Array, "points input"],
        values: Float[Array, "particles points target"],
        *,
        key: Key[Array, ""],
    ) -> PriorScore:
        """One output after the other."""
        function_key, additive_key = jr.split(key)
        draws = draw_functions(self.simulator, inputs, self.functions, key=function_key)
        exact = self.additive is not None and self.estimator == "gp" and not self.draw_additive
        if self.additive is not None and not exact:
            draws = draws + self.additive.draw(inputs, self.functions, key=additive_key)
        draws = (draws - self.statistics.y_mean[None, None, :]) / self.statistics.y_std[None, None, :]
        if self.estimator == "gp":
            mean, covariance = jax.vmap(moments, in_axes=2, out_axes=(1, 0))(draws)
            if self.additive is not None and exact:
                scales = self.additive.scales / self.statistics.y_std
                covariance = covariance + scales[:, None, None] ** 2 * self.additive.gram(inputs)[None]
            over_outputs = jax.vmap(gaussian_score, in_axes=(2, 1, 0, None), out_axes=2)
            score = over_outputs(values, mean, covariance, self.resolution)
            std = jnp.sqrt(jax.vmap(jnp.diagonal, out_axes=1)(covariance))
            return PriorScore(score, mean, std)
        estimate = SCORES[self.estimator]
        columns = jnp.moveaxis(values, 2, 0), jnp.moveaxis(draws, 2, 0)
        # One output after the other: the draws' Gram matrix is large.
        score = jax.lax.map(lambda column: estimate(*column), columns)
        return PriorScore(jnp.moveaxis(score, 0, 2), jnp.mean(draws, axis=0), jnp.std(draws, axis=0))

    def legacy_weight(self, particles: int, points: int) -> float:
        """Full for Gaussian and density; an average over points for the estimators of Stein's kind."""
        return 1.0 / points if self.estimator in ("ssge", "nu-method") else 1.0


@jax.custom_batching.sequential_vmap  # type: ignore[untyped-decorator]
def _one_cholesky(matrix: Float[Array, "points points"]) -> Float[Array, "points points"]:
    factor: Array = jnp.linalg.cholesky(matrix)
    return factor


def _cholesky(matrix: Float[Array, "points points"]) -> Float[Array, "points points"]:
    """On a CPU one after the other under vmap: batched LAPACK inside a loop can hang there."""
    factor: Array = _one_cholesky(matrix) if jax.default_backend() == "cpu" else jnp.linalg.cholesky(matrix)
    return factor
