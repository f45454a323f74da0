"""Ridge regression on all products of two inputs: the closed form that a learned model has to beat."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sombrl.records import SombrlError


class QuadraticRidge(eqx.Module):
    """y = wᵀφ(x) with φ(x) = (1, x, all xᵢxⱼ), and one standard deviation of what is left per output."""

    weights: Float[Array, "feature target"]
    noise_std: Float[Array, " target"]

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, " target"]:
        """The mean at one input."""
        i, j = jnp.triu_indices(x.shape[0])
        return jnp.concatenate([jnp.ones(1, x.dtype), x, x[i] * x[j]]) @ self.weights


def fit_ridge(
    x: Float[np.ndarray, "rows input"], y: Float[np.ndarray, "rows target"], strength: float
) -> QuadraticRidge:
    """The least ‖y - Φw‖² + strength ‖w‖², the constant free.

    The noise is √(residual²/(rows - df)) with df the trace of the hat matrix Φ(ΦᵀΦ + strength)⁻¹Φᵀ: where there are
    more features than rows the residuals themselves say little.
    """
    if not strength > 0:
        raise SombrlError(f"the strength of a ridge must be positive, not {strength}.")
    features = quadratic(np.asarray(x, np.float64))
    penalty = strength * np.eye(features.shape[1])
    penalty[0, 0] = 0.0
    matrix = features.T @ features + penalty
    solved = np.linalg.solve(matrix, features.T)
    weights = solved @ y
    residual = np.sum((y - features @ weights) ** 2, axis=0)
    free = len(x) - float(np.sum(solved.T * features))
    noise = np.sqrt(residual / max(free, 1.0))
    return QuadraticRidge(jnp.asarray(weights, jnp.float32), jnp.asarray(noise, jnp.float32))


def quadratic(x: Float[np.ndarray, "rows input"]) -> Float[np.ndarray, "rows feature"]:
    """(1, x, all xᵢxⱼ with i <= j) of every row."""
    i, j = np.triu_indices(x.shape[1])
    return np.concatenate([np.ones((len(x), 1)), x, x[:, i] * x[:, j]], axis=1)
