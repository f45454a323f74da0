"""Information gain: how much N observations tell about f, and the most that any N can tell, Γ_N.

Γ_N is "a measure of the complexity for learning f*" (section 4.1); every regret bound of the paper is a power of it.
The maximum over sets is NP-hard, but the gain is monotone and submodular in the set, so the greedy choice reaches
at least (1 - 1/e) of it (Nemhauser, Wolsey & Fisher, 1978; for GPs Srinivas et al., 2012).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from sombrl.records import SombrlError
from sombrl.theory.kernels import KERNELS, Kernel
from sombrl.theory.require import require_positive


def information_gain(gram: Float[Array, "points points"], noise_std: ArrayLike) -> Float[Array, ""]:
    """γ = ½ log det(I + σ⁻²K) of the data whose Gram matrix is K (section 4.1, before the maximum), in nats."""
    require_positive(noise_std=noise_std)
    eigenvalues = jnp.maximum(jnp.linalg.eigvalsh(gram), 0.0)  # rounding makes those of a smooth kernel negative
    return 0.5 * jnp.sum(jnp.log1p(eigenvalues / jnp.asarray(noise_std, gram.dtype) ** 2))


def greedy_information_gain(
    kernel: Kernel, candidates: Float[Array, "points input"], noise_std: ArrayLike, number: int
) -> tuple[Float[Array, " number"], Int[Array, " number"]]:
    """The gain after 1, 2, …, `number` greedily chosen candidates (repeats allowed), and which ones they were.

    One more point z adds ½ ln(1 + σ²(z)/s²), so the greedy choice is where the posterior is least sure. With N the
    number and M the candidates: (1 - 1/e) Γ_N <= gains[N - 1] <= Γ_N, Γ_N being the maximum over these candidates.
    A partial Cholesky factor of K(K + s²)⁻¹K grows by one column per point: O(M N²) in all.
    """
    require_positive(noise_std=noise_std)
    if number < 1 or candidates.shape[0] < 1:
        raise SombrlError(f"{number} points of {candidates.shape[0]} candidates: take at least one of at least one.")
    noise_variance = jnp.asarray(noise_std, candidates.dtype) ** 2
    kernel_row = jax.vmap(kernel, in_axes=(0, None))

    def choose(carry: tuple[Array, Array], step: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        explained, variance = carry  # K - ΦΦᵀ is the posterior covariance, `variance` its diagonal
        chosen = jnp.argmax(variance)
        largest = jnp.maximum(variance[chosen], 0.0)
        covariance = kernel_row(candidates, candidates[chosen]) - explained @ explained[chosen]
        column = covariance / jnp.sqrt(largest + noise_variance)
        return (explained.at[:, step].set(column), variance - column**2), (
            0.5 * jnp.log1p(largest / noise_variance),
            chosen,
        )

    start = jnp.zeros((candidates.shape[0], number), candidates.dtype), jax.vmap(kernel)(candidates, candidates)
    _, (increments, chosen) = jax.lax.scan(choose, start, jnp.arange(number))
    return jnp.cumsum(increments), chosen


def gain_rate(
    kernel_name: str, dimension: int, number: ArrayLike, *, smoothness: float = 2.5
) -> Float[np.ndarray, "..."]:
    """How Γ_N grows with N = `number`, without its constant (the paper's table of maximum information gains).

    linear d log N; rbf log^{d+1} N; Matérn-ν N^{d/(2ν+d)} log^{2ν/(2ν+d)} N, `smoothness` = ν (5/2 for `matern52`).
    d counts the inputs, d_x + d_u; our linear kernel has a bias, which acts as one more input that is always 1.
    """
    require_positive(dimension=dimension, number=number, smoothness=smoothness)
    points = np.asarray(number, np.float64)
    if kernel_name == "linear":
        return np.asarray(dimension * np.log(points))
    if kernel_name == "rbf":
        return np.asarray(np.log(points) ** (dimension + 1))
    if kernel_name == "matern52":
        both = 2.0 * smoothness + dimension
        return np.asarray(points ** (dimension / both) * np.log(points) ** (2.0 * smoothness / both))
    raise SombrlError(f"No rate is known for the kernel {kernel_name!r}: take one of {', '.join(KERNELS)}.")
