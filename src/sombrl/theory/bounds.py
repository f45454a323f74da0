"""The two bounds on how much an episode's data raise log det V_n (corollaries "Lower/Upper bound on the posterior log
determinant").

    log det V_n >= log det V_{n-1} + ln(1 + σ⁻² Σ_k ‖σ_{n-1}(z_k)‖²)
    log det V_n <= log det V_{n-1} + Σ_k Σ_j ln(1 + σ⁻² σ²_{n-1,j}(z_k))

σ_{n-1} is the posterior before the episode. The discounted theorem needs the first, the nonepisodic rule the second.
V_n has to be read as the operator of all d_x outputs together, so that its log det is the sum over outputs of
log det(I + K_j/σ²), twice the information gain: with V_n of a single scalar kernel, as the text defines it, the lower
bound fails for d_x > 1 already at one point.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from sombrl.records import SombrlError
from sombrl.theory.information_gain import information_gain
from sombrl.theory.require import require_positive


class Sides(NamedTuple):
    """The two sides of an inequality about log det V_n."""

    exact: Float[Array, ""]  # log det V_n
    bound: Float[Array, ""]


def log_det_lower(grams: Float[Array, "state points points"], earlier: int, noise_std: ArrayLike) -> Sides:
    """log det V_n >= log det V_{n-1} + ln(1 + σ⁻² Σ_k ‖σ_{n-1}(z_k)‖²). Equal for one new point and one output.

    `grams` are the Gram matrices of all points, one per output; the first `earlier` points are what V_{n-1} knows.
    """
    before, after, ratios = _parts(grams, earlier, noise_std)
    return Sides(after, before + jnp.log1p(jnp.sum(ratios)))


def log_det_upper(grams: Float[Array, "state points points"], earlier: int, noise_std: ArrayLike) -> Sides:
    """log det V_n <= log det V_{n-1} + Σ_k Σ_j ln(1 + σ⁻² σ²_{n-1,j}(z_k)) (Hadamard). Equal for one new point."""
    before, after, ratios = _parts(grams, earlier, noise_std)
    return Sides(after, before + jnp.sum(jnp.log1p(ratios)))


def _parts(
    grams: Float[Array, "state points points"], earlier: int, noise_std: ArrayLike
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, "state new"]]:
    """log det V_{n-1}, log det V_n, and σ²_{n-1,j}(z_k)/σ² at the new points."""
    require_positive(noise_std=noise_std)
    if not 0 <= earlier < grams.shape[1]:
        raise SombrlError(f"{earlier} earlier points of {grams.shape[1]}: leave at least one new point.")
    noise_variance = jnp.asarray(noise_std, grams.dtype) ** 2

    def one_output(gram: Array) -> tuple[Array, Array, Array]:
        old, cross, new = gram[:earlier, :earlier], gram[:earlier, earlier:], gram[earlier:, earlier:]
        before, after = (2.0 * information_gain(part, noise_std) for part in (old, gram))
        noisy = old + noise_variance * jnp.eye(earlier, dtype=gram.dtype)
        explained = jnp.sum(cross * jnp.linalg.solve(noisy, cross), axis=0)
        return before, after, jnp.maximum(jnp.diagonal(new) - explained, 0.0) / noise_variance

    before, after, ratios = jax.vmap(one_output)(grams)
    return jnp.sum(before), jnp.sum(after), ratios
