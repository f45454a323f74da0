"""The posterior of one scalar GP whose cost per prediction does not grow with the data.

The Gram matrix of a smooth kernel has low numerical rank. Pivoted Cholesky finds the m data points ("pivots") that
span it up to a tolerance far below the noise, K ≈ ΦΦᵀ with φ(z) = L⁻¹ k_m(z), and Bayesian linear regression on φ
gives

    μ(z)  = φᵀ A⁻¹ Φᵀy,                    A = ΦᵀΦ + s²I
    σ²(z) = k(z,z) - φᵀφ + s² φᵀA⁻¹φ

which *is* the exact posterior when every point is a pivot, and otherwise errs on the side of uncertainty: what the
pivots do not explain stays in σ² through k - φᵀφ. A prediction costs m kernel values and one m×m product, whatever
n is; conditioning costs O(n m²). (The "projected process" of Rasmussen & Williams, 8.3.4, with pivots from the data.)

Everything here is float64: a Cholesky factor of an RBF Gram matrix in float32 is noise.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

from sombrl.theory.kernels import Kernel
from sombrl.theory.rkhs import shrink


class Pivots(eqx.Module):
    """Which rows of the data span the Gram matrix, in the order they were chosen."""

    index: Int[Array, " rank"]
    number: Int[Array, ""]

    @staticmethod
    def none(rank: int) -> "Pivots":
        """No pivots yet, room for `rank` of them."""
        return Pivots(jnp.zeros(rank, jnp.int32), jnp.zeros((), jnp.int32))

    @property
    def used(self) -> Bool[Array, " rank"]:
        """Which slots hold a pivot."""
        return jnp.arange(self.index.shape[0], dtype=jnp.int32) < self.number


class Posterior(eqx.Module):
    """Bayesian linear regression on φ(z) = whitener @ k(centers, z). Unused slots are zero."""

    centers: Float[Array, "rank input"]  # the pivots, in scaled inputs
    whitener: Float[Array, "rank rank"]  # L⁻¹
    weight_mean: Float[Array, " rank"]  # A⁻¹Φᵀy, or that of fₙ
    weight_factor: Float[Array, "rank rank"]  # F with FFᵀ = s²A⁻¹, the posterior covariance of the weights
    explained: Float[Array, "rank rank"]  # V with VᵀV = I - s²A⁻¹, so that σ² = k - ‖Vφ‖²
    information_gain: Float[Array, ""]  # ½ log det(I + ΦΦᵀ/s²)

    @staticmethod
    def prior(rank: int, input_dim: int) -> "Posterior":
        """Before any data: μ = 0, σ² = k."""
        square = jnp.zeros((rank, rank), jnp.float64)
        return Posterior(
            jnp.zeros((rank, input_dim), jnp.float64),
            square,
            jnp.zeros(rank, jnp.float64),
            square,
            square,
            jnp.zeros((), jnp.float64),
        )


def condition(
    kernel: Kernel,
    inputs: Float[Array, "capacity input"],
    targets: Float[Array, " capacity"],
    mask: Bool[Array, " capacity"],
    noise_std: Float[Array, ""],
    tolerance: float,
    pivots: Pivots,
    norm_bound: Float[Array, ""] | None = None,
) -> tuple[Posterior, Pivots, Float[Array, ""]]:
    """The posterior given the masked rows, keeping `pivots` and adding what new data need.

    With a `norm_bound` B the mean is fₙ, the function of ‖f‖_k <= B nearest to μₙ (theory/rkhs.py): φ is orthonormal
    in the RKHS, so that ‖φᵀw‖_k = ‖w‖ and the problem is diagonal in the eigenvectors we have anyway.

    `tolerance` is the largest unexplained variance left at a data point, as a fraction of the noise variance.
    Returns also the largest one that is in fact left (more than the tolerance only if the rank ran out).
    """
    pivots, features, residual = _choose_pivots(kernel, inputs, mask, tolerance * noise_std**2, pivots)
    used = pivots.used
    factor = jnp.where(used[:, None] & used[None, :], jnp.tril(features[pivots.index]), 0.0)
    identity = jnp.eye(used.shape[0], dtype=inputs.dtype)
    whitener = solve_triangular(factor + jnp.where(used, 0.0, 1.0)[:, None] * identity, identity, lower=True)
    whitener = jnp.where(used[:, None] & used[None, :], whitener, 0.0)

    # ΦᵀΦ = Q Λ Qᵀ gives A⁻¹, its square root and the information gain at once, and cannot fail as Cholesky can.
    eigenvalues, vectors = jnp.linalg.eigh(features.T @ features)
    eigenvalues = jnp.maximum(eigenvalues, 0.0)
    noise_variance = noise_std**2
    moment = vectors.T @ (features.T @ jnp.where(mask, targets, 0.0))
    mean = moment / (eigenvalues + noise_variance)
    if norm_bound is not None:
        mean = shrink(mean, jnp.ones_like(mean), 1.0 + eigenvalues / noise_variance, norm_bound)
    posterior = Posterior(
        centers=jnp.where(used[:, None], inputs[pivots.index], 0.0),
        whitener=whitener,
        weight_mean=vectors @ mean,
        weight_factor=vectors * jnp.sqrt(noise_variance / (eigenvalues + noise_variance))[None, :],
        explained=jnp.sqrt(eigenvalues / (eigenvalues + noise_variance))[:, None] * vectors.T,
        information_gain=0.5 * jnp.sum(jnp.log1p(eigenvalues / noise_variance)),
    )
    return posterior, pivots, jnp.maximum(jnp.max(jnp.where(mask, residual, 0.0)), 0.0)


Growing = tuple[Pivots, Array, Array]
"""The pivots so far, the features Φ, and the variance that they leave unexplained at every row."""


def _choose_pivots(
    kernel: Kernel,
    inputs: Float[Array, "capacity input"],
    mask: Bool[Array, " capacity"],
    threshold: Float[Array, ""],
    pivots: Pivots,
) -> tuple[Pivots, Float[Array, "capacity rank"], Float[Array, " capacity"]]:
    """Continue a pivoted Cholesky factorisation K ≈ ΦΦᵀ: always the row that is explained worst comes next."""
    rank = pivots.index.shape[0]
    kernel_row = jax.vmap(kernel, in_axes=(0, None))

    # The pivots we already have, all at once: Φ = K_nm L⁻ᵀ.
    used = pivots.used
    both = used[:, None] & used[None, :]
    chosen = inputs[pivots.index]
    gram = jax.vmap(kernel_row, in_axes=(None, 0))(chosen, chosen)
    lower = jnp.linalg.cholesky(jnp.where(both, gram, jnp.eye(rank, dtype=inputs.dtype)))
    cross = jax.vmap(kernel_row, in_axes=(None, 0))(chosen, inputs)  # [capacity, rank]
    features = solve_triangular(lower, jnp.where(mask[:, None] & used[None, :], cross, 0.0).T, lower=True).T
    diagonal = jnp.where(mask, jax.vmap(kernel)(inputs, inputs), 0.0)
    residual = diagonal - jnp.sum(features**2, axis=1)

    def unfinished(carry: Growing) -> Array:
        pivots, _, residual = carry
        return (pivots.number < rank) & (jnp.max(residual) > threshold)

    def add_one(carry: Growing) -> Growing:
        pivots, features, residual = carry
        worst = jnp.argmax(residual)
        column = kernel_row(inputs, inputs[worst]) - features @ features[worst]
        column = jnp.where(mask, column / jnp.sqrt(residual[worst]), 0.0)
        features = features.at[:, pivots.number].set(column)
        residual = (residual - column**2).at[worst].set(0.0)
        pivots = Pivots(pivots.index.at[pivots.number].set(worst.astype(jnp.int32)), pivots.number + 1)
        return pivots, features, residual

    return jax.lax.while_loop(unfinished, add_one, (pivots, features, residual))


def log_marginal_likelihood(
    kernel: Kernel,
    inputs: Float[Array, "points input"],
    targets: Float[Array, " points"],
    mask: Bool[Array, " points"],
    noise_std: Float[Array, ""],
) -> Float[Array, ""]:
    """log p(y | X) of the exact GP on the masked rows (Rasmussen & Williams, 5.8)."""
    gram = jax.vmap(lambda x: jax.vmap(lambda y: kernel(x, y))(inputs))(inputs)
    identity = jnp.eye(inputs.shape[0], dtype=inputs.dtype)
    # A masked row becomes a standard normal of its own, with target 0.
    gram = jnp.where(mask[:, None] & mask[None, :], gram + noise_std**2 * identity, identity)
    count = jnp.sum(mask.astype(inputs.dtype))
    return gaussian_log_density(gram, jnp.where(mask, targets, 0.0)) - 0.5 * count * jnp.log(2.0 * jnp.pi)


@jax.custom_jvp
def gaussian_log_density(gram: Float[Array, "points points"], targets: Float[Array, " points"]) -> Float[Array, ""]:
    """-½ yᵀK⁻¹y - ½ log det K, without the constant."""
    lower = jnp.linalg.cholesky(gram)
    residual = solve_triangular(lower, targets, lower=True)
    return -0.5 * jnp.sum(residual**2) - jnp.sum(jnp.log(jnp.diagonal(lower)))


@gaussian_log_density.defjvp
def _gaussian_log_density_jvp(primals: tuple[Array, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    """½ tr((ααᵀ - K⁻¹) dK) - αᵀdy with α = K⁻¹y: cheaper than differentiating through the Cholesky."""
    (gram, targets), (d_gram, d_targets) = primals, tangents
    lower = jnp.linalg.cholesky(gram)
    inverse_factor = solve_triangular(lower, jnp.eye(gram.shape[0], dtype=gram.dtype), lower=True)
    residual = inverse_factor @ targets
    alpha = inverse_factor.T @ residual
    value = -0.5 * jnp.sum(residual**2) - jnp.sum(jnp.log(jnp.diagonal(lower)))
    slope = alpha[:, None] * alpha[None, :] - inverse_factor.T @ inverse_factor
    return value, 0.5 * jnp.sum(slope * d_gram) - jnp.sum(alpha * d_targets)
