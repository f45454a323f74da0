"""Stein variational gradient descent (Liu & Wang, 2016): particles go downhill in U = -log p and push each other away.

Without the kernel it is N separate optimisations; with it the particles approximate a posterior. `WeightSpace` is
SVGD on the weights of networks, and without the kernel a deep ensemble; fsvgd.py does the same with their values.
"""

import abc
from typing import Literal

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sombrl.dynamics.particles import Network, Statistics, noise_std

RepulsionName = Literal["textbook", "legacy"]

Metrics = dict[str, Float[Array, ""]]


def squared_distances(vectors: Float[Array, "particles dim"]) -> Float[Array, "particles particles"]:
    """Between all pairs; by differences, because particles that nearly agree are the ones that matter."""
    return jnp.sum((vectors[:, None, :] - vectors[None, :, :]) ** 2, axis=-1)


def median_bandwidth(distances: Float[Array, "particles particles"]) -> Float[Array, ""]:
    """h = the median distance of two different particles, from squared distances.

    Liu & Wang divide it by √(2 log(N + 1)). In many dimensions their shorter kernel makes the particles' variance
    collapse (Ba et al., 2021): N particles of a standard normal end up at a squared distance from its mean of
    0.77 (N - 1) with h as here, and of log(N + 1) with theirs.
    """
    number = distances.shape[0]
    if number == 1:
        return jnp.ones((), distances.dtype)
    rows, columns = jnp.triu_indices(number, 1)
    return jnp.maximum(jnp.median(jnp.sqrt(distances[rows, columns])), 1e-6)


def stein_direction(
    vectors: Float[Array, "particles dim"],
    slopes: Float[Array, "particles dim"],
    bandwidth: float | None,
    repulsion: RepulsionName,
) -> Float[Array, "particles dim"]:
    """gᵢ = (1/N) Σⱼ [kᵢⱼ ∇U(fⱼ) + ∇_{fᵢ} kᵢⱼ], to be descended, with kᵢⱼ = exp(-‖fᵢ - fⱼ‖²/2h²).

    `slopes` are ∇U. With `legacy` repulsion the first sum is not divided by N.
    """
    number = vectors.shape[0]
    distances = squared_distances(vectors)
    width = median_bandwidth(distances) if bandwidth is None else jnp.asarray(bandwidth, vectors.dtype)
    kernel = jnp.exp(-0.5 * distances / width**2)
    precision = jax.lax.Precision.HIGHEST
    attraction = jnp.matmul(kernel, slopes, precision=precision)
    # Σⱼ kᵢⱼ (fⱼ - fᵢ)/h², summed as differences: the rows of `laplacian` add up to 0.
    laplacian = kernel - jnp.diag(jnp.sum(kernel, axis=1))
    centred = vectors - jnp.mean(vectors, axis=0)[None, :]
    repelling = jnp.matmul(laplacian, centred, precision=precision) / width**2
    return (attraction if repulsion == "legacy" else attraction / number) + repelling / number


class Batch(eqx.Module):
    """The data of one step."""

    inputs: Float[Array, "batch input"]  # physical
    targets: Float[Array, "batch target"]  # normalised
    points: Float[Array, "points input"]  # measurement points, physical
    count: Float[Array, ""]  # how many rows the batch represents; with 0 its targets are ignored


def likelihood_slopes(
    values: Float[Array, "particles batch target"],
    targets: Float[Array, "batch target"],
    raw: Float[Array, " target"],
    weight: Float[Array, ""],
) -> tuple[Float[Array, "particles batch target"], Float[Array, " target"]]:
    """∂/∂value, and the mean over particles of ∂/∂raw noise, of -weight · mean over the batch of log N(y | f, std²)."""
    std = noise_std(raw)
    error = (values - targets[None]) / std[None, None, :]
    value_slope = weight / targets.shape[0] * error / std[None, None, :]
    std_slope = weight * jnp.mean(1.0 - error**2, axis=(0, 1)) / std
    return value_slope, std_slope * jax.nn.sigmoid(raw)


def evaluate(networks: Network, x: Float[Array, "points input"]) -> Float[Array, "particles points target"]:
    """All networks at normalised inputs."""
    values: Array = jax.vmap(lambda network: jax.vmap(network)(x))(networks)
    return values


class AbstractInference(eqx.Module):
    """The direction in which particles descend."""

    @abc.abstractmethod
    def gradient(
        self, networks: Network, raw: Float[Array, " target"], batch: Batch, *, key: Key[Array, ""]
    ) -> tuple[Network, Float[Array, " target"], Metrics]:
        """The gradients of the networks and of the raw noise, and metrics of the step."""


class WeightSpace(AbstractInference):
    """SVGD on weights, with independent Gaussians as their prior."""

    statistics: Statistics
    bandwidth: float | None = eqx.field(static=True)
    repulsion: RepulsionName = eqx.field(static=True)
    likelihood_exponent: float = eqx.field(static=True)
    weight_prior_std: float = eqx.field(static=True)
    bias_prior_std: float = eqx.field(static=True)
    legacy_scaling: bool = eqx.field(static=True)  # the prior divided by particles and parameters
    together: bool = eqx.field(static=True, default=True)  # otherwise without a kernel: a deep ensemble

    def gradient(
        self, networks: Network, raw: Float[Array, " target"], batch: Batch, *, key: Key[Array, ""]
    ) -> tuple[Network, Float[Array, " target"], Metrics]:
        """∇U through the networks, then the kernel on the flat vectors."""
        x = jax.vmap(self.statistics.inputs)(batch.inputs)
        values, pull = jax.vjp(lambda networks: evaluate(networks, x), networks)
        weight = batch.count * self.likelihood_exponent
        value_slope, noise_slope = likelihood_slopes(values, batch.targets, raw, weight)
        (slopes,) = pull(value_slope)
        vectors, slopes = _flat(networks), _flat(slopes) + self._prior_slope(networks)
        directions = stein_direction(vectors, slopes, self.bandwidth, self.repulsion) if self.together else slopes
        one = jax.tree.map(lambda leaf: leaf[0], networks)
        unravel = jax.flatten_util.ravel_pytree(one)[1]
        disagreement = jnp.sqrt(jnp.mean(jnp.var(values, axis=0)))
        return jax.vmap(unravel)(directions), noise_slope, {"model/epistemic": disagreement}

    def _prior_slope(self, networks: Network) -> Float[Array, "particles dim"]:
        weights = tuple(leaf / self.weight_prior_std**2 for leaf in networks.weights)
        biases = tuple(leaf / self.bias_prior_std**2 for leaf in networks.biases)
        slope = _flat(eqx.tree_at(lambda n: (n.weights, n.biases), networks, (weights, biases)))
        return slope / slope.size if self.legacy_scaling else slope


def _flat(networks: Network) -> Float[Array, "particles dim"]:
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(networks)], axis=1)
