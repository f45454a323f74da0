"""How far the truth may be from the model: βₙ(δ), and checks of |f* - μ| <= βσ (definition of a well-calibrated model).

The checks take the predictions of any model at many points; rows are points, columns are coordinates of the state.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import ndtri
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from sombrl.theory.require import require_fraction, require_positive


class Coverage(NamedTuple):
    """The fraction of points at which the truth is inside μ ± βσ."""

    per_dimension: Float[Array, " state"]
    joint: Float[Array, ""]  # every coordinate inside; 1 = well-calibrated on these points


def beta(
    information_gain: Float[Array, "*outputs"],
    *,
    norm_bound: ArrayLike,
    noise_std: ArrayLike,
    delta: ArrayLike,
    state_dim: int,
    model_noise_std: ArrayLike = 1.0,
) -> Float[Array, "*outputs"]:
    """βₙ(δ) = B + (R/s) √(2(γₙ + ln(d_x/δ))): f* is inside μ ± βσ for all n, z, j with probability >= 1 - δ.

    The paper only proves that some βₙ ∝ √Γₙ exists (lemma "Well calibrated confidence intervals for RKHS"); the
    constants are those of Abbasi-Yadkori (2013) and Chowdhury & Gopalan (2017). B = `norm_bound` bounds ‖f*ⱼ‖_k,
    R = `noise_std` is the (sub-)Gaussian size of the true noise, s = `model_noise_std` the σ that stands in the
    model's (K + σ²I)⁻¹ and in γₙ = ½ log det(I + K/s²); ln d_x pays for d_x outputs at once.

    s = 1 is the form usually quoted, B + R √(2(γₙ + ln(d_x/δ))), and is right only for a GP with regulariser 1.
    The paper's GP has s = R = σ, so **pass `model_noise_std=noise_std`** for it: then the factor of the root is 1,
    and leaving σ < 1 in front claims too much (test_confidence.py shows it break).
    """
    require_positive(norm_bound=norm_bound, noise_std=noise_std, model_noise_std=model_noise_std, state_dim=state_dim)
    require_fraction(delta=delta)
    dtype = information_gain.dtype
    bound, noise, model_noise, failure = (
        jnp.asarray(x, dtype) for x in (norm_bound, noise_std, model_noise_std, delta)
    )
    root = jnp.sqrt(2.0 * (information_gain + jnp.log(state_dim / failure)))
    return bound + noise / model_noise * root


def calibration(
    prediction_mean: Float[Array, "batch state"],
    std: Float[Array, "batch state"],
    truth: Float[Array, "batch state"],
    beta: ArrayLike,
) -> Coverage:
    """How often |μⱼ(z) - fⱼ(z)| <= β σⱼ(z) (definition "Well-calibrated statistical model"); `std` is epistemic."""
    inside = _deviations(prediction_mean, std, truth) <= jnp.asarray(beta, std.dtype)
    return Coverage(_frequency(inside, 0, std.dtype), _frequency(jnp.all(inside, axis=1), 0, std.dtype))


def required_beta(
    prediction_mean: Float[Array, "batch state"], std: Float[Array, "batch state"], truth: Float[Array, "batch state"]
) -> Float[Array, ""]:
    """The smallest β with which μ ± βσ covers every point: max |μⱼ - fⱼ|/σⱼ. Infinite where σ = 0 and μ is wrong."""
    return jnp.max(_deviations(prediction_mean, std, truth))


def calibration_curve(
    prediction_mean: Float[Array, "batch state"],
    total_std: Float[Array, "batch state"],
    truth: Float[Array, "batch state"],
    levels: Float[Array, " levels"],
) -> Float[Array, "levels state"]:
    """How often the truth lies in the central interval of each level of N(μ, std²) (Kuleshov et al., 2018).

    A calibrated model returns the levels themselves. Against noisy observations `total_std` is √(σ² + noise²).
    """
    require_fraction(levels=levels)
    width = ndtri(0.5 * (1.0 + levels)).astype(total_std.dtype)
    deviations = _deviations(prediction_mean, total_std, truth)
    return _frequency(deviations[None, :, :] <= width[:, None, None], 1, total_std.dtype)


def _deviations(mean: Array, std: Array, truth: Array) -> Array:
    """|μ - f| in units of σ: 0/0 is certain and right, NaN counts as infinitely wrong."""
    error = jnp.abs(mean - truth)
    ratio = jnp.where(error == 0.0, 0.0, error / std)
    return jnp.where(jnp.isnan(ratio) | (std < 0.0) | jnp.isnan(std), jnp.inf, ratio)


def _frequency(inside: Array, axis: int, dtype: DTypeLike) -> Array:
    return jnp.mean(inside.astype(dtype), axis=axis)
