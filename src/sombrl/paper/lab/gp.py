"""The exact GP on a grid, with known hyperparameters: Bayesian linear regression on the grid's own features.

A GP that is only ever asked at the M points of a grid is a Gaussian vector with covariance K = ΦΦᵀ, so that
f = Φw with w ~ N(0, I), and n observations at grid points give the posterior of w:

    A = I + σ⁻² Σ φφᵀ,    μ = ΦA⁻¹ σ⁻² Σ φy,    σₙ² = diag ΦA⁻¹Φᵀ,    ½ log det(I + σ⁻²K_n) = ½ log det A

Nothing grows with n, so nothing recompiles, and a draw of f is a draw of w. Φ comes from the eigenvectors of K;
directions of less than `TOLERANCE` of the variance are dropped and what they leave unexplained stays in σₙ.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float, Int, Key

from sombrl.theory.kernels import rbf

TOLERANCE = 1e-10
"""Eigenvalues of K below this fraction of the largest carry nothing a float64 could use."""


def gram(left: Float[Array, "left input"], right: Float[Array, "right input"]) -> Float[Array, "left right"]:
    """The rbf kernel at all pairs of scaled inputs."""
    return jax.vmap(lambda x: jax.vmap(lambda y: rbf(x, y))(right))(left)


def features(inputs: Float[Array, "inputs input"]) -> Float[Array, "inputs features"]:
    """Φ with ΦΦᵀ = K at these scaled inputs. Its width is the numerical rank of K, so compute it outside of any jit."""
    eigenvalues, vectors = np.linalg.eigh(np.asarray(gram(inputs, inputs)))
    kept = eigenvalues > TOLERANCE * eigenvalues[-1]
    return jnp.asarray(vectors[:, kept] * np.sqrt(eigenvalues[kept]))


class Evidence(eqx.Module):
    """What n observations say: the precision A of the weights and σ⁻² Σ φy. Outputs share A."""

    precision: Float[Array, "features features"]
    moment: Float[Array, "features state"]

    @staticmethod
    def none(num_features: int, state_dim: int) -> "Evidence":
        """Before any data."""
        return Evidence(jnp.eye(num_features, dtype=jnp.float64), jnp.zeros((num_features, state_dim), jnp.float64))

    def add(
        self,
        basis: Float[Array, "inputs features"],
        places: Int[Array, " time"],
        targets: Float[Array, "time state"],
        mask: Bool[Array, " time"],
        noise_std: float,
    ) -> "Evidence":
        """The masked observations y = f(z) + w at grid points z."""
        seen = jnp.where(mask[:, None], basis[places], 0.0) / noise_std
        return Evidence(self.precision + seen.T @ seen, self.moment + seen.T @ (targets / noise_std))


class GridPosterior(eqx.Module):
    """μₙ and σₙ at every input of the grid. σₙ is the same for all outputs: they share kernel and inputs."""

    mean: Float[Array, "inputs state"]
    std: Float[Array, " inputs"]
    information_gain: Float[Array, ""]  # of one output
    factor: Float[Array, "features features"]  # the Cholesky factor of A

    def draw(self, basis: Float[Array, "inputs features"], *, key: Key[Array, ""]) -> Float[Array, "inputs state"]:
        """One function from the posterior, at every input, for Thompson sampling."""
        normal = jr.normal(key, (self.factor.shape[0], self.mean.shape[1]), jnp.float64)
        return self.mean + basis @ solve_triangular(self.factor, normal, lower=True, trans=1)


def posterior(basis: Float[Array, "inputs features"], evidence: Evidence) -> GridPosterior:
    """The posterior given the evidence."""
    factor = jnp.linalg.cholesky(evidence.precision)
    whitened = solve_triangular(factor, basis.T, lower=True)
    unexplained = jnp.maximum(1.0 - jnp.sum(basis**2, axis=1), 0.0)
    return GridPosterior(
        mean=basis @ cho_solve((factor, True), evidence.moment),
        std=jnp.sqrt(jnp.sum(whitened**2, axis=0) + unexplained),
        information_gain=jnp.sum(jnp.log(jnp.diagonal(factor))),
        factor=factor,
    )
