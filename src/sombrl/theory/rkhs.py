"""fₙ: the function of bounded RKHS norm nearest to the posterior mean (sub-Gaussian setting).

With f = Σᵢ αᵢ k(xᵢ, ·) and αₙ = (K + σ²I)⁻¹y, equation "Lipschitz function optimization" reads

    min_α (α - αₙ)ᵀ K (I + K/σ²) (α - αₙ)   s.t.   αᵀKα <= B²

one quadratic constraint, so a QCQP and not a QP as the paper says. It is diagonal in the eigenvectors of K: with
K = Q diag(l) Qᵀ, a = Qᵀαₙ, c = 1 + l/σ², the stationary points are a(ν) = a c/(c + ν), and ν >= 0 solves the
monotone equation Σ lᵢ aᵢ(ν)² = B². One eigendecomposition, then O(n) per bisection step. (Derived here; the tests
compare it with SciPy's general solvers.) One output at a time; the caller vmaps.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from sombrl.theory.kernels import Kernel
from sombrl.theory.require import require_positive

BISECTIONS = 100
"""Halvings of the interval for ln ν; after about 60 a float64 no longer changes."""


def rkhs_norm(gram: Float[Array, "points points"], alpha: Float[Array, " points"]) -> Float[Array, ""]:
    """‖f‖_k = √(αᵀKα) of f = Σᵢ αᵢ k(xᵢ, ·)."""
    return jnp.sqrt(jnp.maximum(alpha @ (gram @ alpha), 0.0))


def project(
    gram: Float[Array, "points points"], alpha: Float[Array, " points"], noise_std: ArrayLike, bound: ArrayLike
) -> Float[Array, " points"]:
    """The coefficients of fₙ; `alpha` itself, bit for bit, where ‖μₙ‖_k <= B already.

    `bound` is B, the norm and not its square. The result errs to the side of the constraint: ‖fₙ‖_k <= B up to
    rounding. The paper's theorem holds: ‖fₙ - μₙ‖_{kₙ} <= βₙ whenever ‖f*‖_k <= B and ‖f* - μₙ‖_{kₙ} <= βₙ.
    """
    require_positive(noise_std=noise_std, bound=bound)
    eigenvalues, vectors = jnp.linalg.eigh(gram)
    eigenvalues = jnp.maximum(eigenvalues, 0.0)
    stiffness = 1.0 + eigenvalues / jnp.asarray(noise_std, gram.dtype) ** 2
    weights = vectors.T @ alpha
    shrunk = shrink(weights, eigenvalues, stiffness, bound)
    return jnp.where(rkhs_norm(gram, alpha) <= jnp.asarray(bound, gram.dtype), alpha, vectors @ shrunk)


def shrink(
    weights: Float[Array, " points"],
    lengths: Float[Array, " points"],
    stiffness: Float[Array, " points"],
    bound: ArrayLike,
) -> Float[Array, " points"]:
    """The a nearest to `weights` in Σ lᵢ cᵢ (aᵢ - wᵢ)² with Σ lᵢ aᵢ² <= B²: the diagonal QCQP, solved by bisection.

    l are the squared `lengths` of the basis functions in the RKHS, c the `stiffness` of the posterior along them.
    """
    dtype = weights.dtype
    limit = jnp.asarray(bound, dtype)

    def shrunk(log_multiplier: Array) -> Array:
        return weights * stiffness / (stiffness + jnp.exp(log_multiplier))

    def too_long(log_multiplier: Array) -> Array:
        return jnp.sum(lengths * shrunk(log_multiplier) ** 2) > limit**2

    # Every factor c/(c + ν) lies between those of the smallest and of the largest c, which brackets ν.
    norm = jnp.sqrt(jnp.sum(lengths * weights**2))
    excess = jnp.maximum(norm / limit - 1.0, jnp.finfo(dtype).tiny)
    low, high = jnp.log(jnp.min(stiffness) * excess), jnp.log(jnp.max(stiffness) * excess)

    def halve(_: Any, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        longer = too_long(middle)
        return jnp.where(longer, middle, low), jnp.where(longer, high, middle)

    _, high = jax.lax.fori_loop(0, BISECTIONS, halve, (low, high))
    return jnp.where(norm <= limit, weights, shrunk(high))


class KernelExpansion(eqx.Module):
    """f(z) = Σᵢ αᵢ k(xᵢ, z), a pytree that can be called."""

    centers: Float[Array, "points input"]
    coefficients: Float[Array, " points"]
    kernel: Kernel = eqx.field(static=True)

    def __call__(self, z: Float[Array, " input"]) -> Float[Array, ""]:
        """f at one point."""
        return self.coefficients @ jax.vmap(self.kernel, in_axes=(0, None))(self.centers, z)


def projected_mean(
    kernel: Kernel,
    inputs: Float[Array, "points input"],
    targets: Float[Array, " points"],
    noise_std: ArrayLike,
    bound: ArrayLike,
) -> KernelExpansion:
    """fₙ of one output, given the data, as a function of one query point. An infinite `bound` gives μₙ."""
    require_positive(noise_std=noise_std, bound=bound)
    gram = jax.vmap(lambda x: jax.vmap(lambda y: kernel(x, y))(inputs))(inputs)
    noise_variance = jnp.asarray(noise_std, inputs.dtype) ** 2
    factor = jax.scipy.linalg.cho_factor(gram + noise_variance * jnp.eye(inputs.shape[0], dtype=inputs.dtype))
    alpha = jax.scipy.linalg.cho_solve(factor, targets)
    return KernelExpansion(inputs, project(gram, alpha, noise_std, bound), kernel)
