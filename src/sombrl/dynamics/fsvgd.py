"""Functional SVGD (Wang et al., 2019): particles are compared, and have their prior, as functions.

A function is known by its values at the batch and at some measurement points. With a Gaussian process as its prior
this is FSVGD; with a simulator (sim_prior.py) it is SimFSVGD (Rothfuss et al., 2024).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sombrl.dynamics.particles import Network, Statistics
from sombrl.dynamics.prior_score import AbstractFunctionPrior
from sombrl.dynamics.svgd import (
    AbstractInference,
    Batch,
    Metrics,
    RepulsionName,
    evaluate,
    likelihood_slopes,
    stein_direction,
)


class FunctionSpace(AbstractInference):
    """SVGD on values, carried to the weights by the chain rule."""

    statistics: Statistics
    prior: AbstractFunctionPrior
    bandwidth: float | None = eqx.field(static=True)
    repulsion: RepulsionName = eqx.field(static=True)
    likelihood_exponent: float = eqx.field(static=True)
    legacy_scaling: bool = eqx.field(static=True)

    def gradient(
        self, networks: Network, raw: Float[Array, " target"], batch: Batch, *, key: Key[Array, ""]
    ) -> tuple[Network, Float[Array, " target"], Metrics]:
        """Σᵢ ⟨fᵢ(θ), gᵢ⟩ differentiated in θ, with gᵢ the Stein direction of the values."""
        inputs = jnp.concatenate([batch.inputs, batch.points])
        x = jax.vmap(self.statistics.inputs)(inputs)
        values, pull = jax.vjp(lambda networks: evaluate(networks, x), networks)
        prior = self.prior(inputs, values, key=key)

        rows, weight = batch.inputs.shape[0], batch.count * self.likelihood_exponent
        data_slope, noise_slope = likelihood_slopes(values[:, :rows], batch.targets, raw, weight)
        prior_slope = -prior.score
        if self.legacy_scaling:
            prior_slope = prior_slope * self.prior.legacy_weight(values.shape[0], values.shape[1])
        slopes = prior_slope.at[:, :rows].add(data_slope)

        flat = (values.shape[0], -1)
        directions = stein_direction(values.reshape(flat), slopes.reshape(flat), self.bandwidth, self.repulsion)
        (gradient,) = pull(directions.reshape(values.shape))

        deviation = values - prior.mean[None]
        metrics = {
            "model/epistemic": _rms(jnp.std(values[:, rows:], axis=0)),
            "model/prior_std": _rms(prior.std[rows:]),
            "model/prior_distance": jnp.sqrt(jnp.maximum(jnp.mean(-deviation * prior.score), 0.0)),
        }
        return gradient, noise_slope, metrics


def _rms(values: Float[Array, "points target"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.mean(values**2))
