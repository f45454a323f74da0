"""Cumulative regret R_N in the three settings, and the slope of log R_N against log N.

These read finished runs, so they are NumPy in float64. J(π*) is not known in general: say where yours comes from
(an analytic optimum, planning on the true system), because a reference that is too low makes regret negative and one
that is too high makes it linear.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float, Num

from sombrl.records import SombrlError
from sombrl.theory.require import require_fraction


class Slope(NamedTuple):
    """A log-log slope and its bootstrap interval."""

    value: float
    low: float
    high: float
    dropped: int  # resamples whose mean regret was not positive, so that it had no logarithm


def episodic_regret(returns: Num[ArrayLike, "*seeds iterations"], optimal: Num[ArrayLike, "..."]) -> np.ndarray:
    """R_N = Σ_{n<=N} J(π*) - J(πₙ) for N = 1, 2, … along the last axis (section 2).

    `optimal` is J(π*): one number, or anything that broadcasts (other start states, other optima).
    """
    return np.cumsum(np.asarray(optimal, np.float64) - np.asarray(returns, np.float64), axis=-1)


def nonepisodic_regret(
    rewards: Num[ArrayLike, "*seeds time"], optimal_average: Num[ArrayLike, "..."]
) -> Float[np.ndarray, "*seeds time"]:
    """R_N = Σ_{n<=N} J_avg(π*) - r(xₙ, uₙ), N counting steps of the one trajectory (average-reward theorem)."""
    return np.cumsum(np.asarray(optimal_average, np.float64) - np.asarray(rewards, np.float64), axis=-1)


def discounted_regret(
    rewards: Num[ArrayLike, "*seeds iterations time"],
    lengths: Num[ArrayLike, "*seeds iterations"],
    optimal: Num[ArrayLike, "..."],
    discount: float,
) -> Float[np.ndarray, "*seeds iterations"]:
    """R_N = Σ_{n<=N} J_γ(π*) - Σ_{t<T(n)} γᵗ r_t (discounted theorem).

    Row n holds T(n) = `lengths[n]` rewards; what follows is padding and ignored, NaN included. The tail of J_γ(πₙ)
    beyond T(n) is not observed and counts as 0: with rewards in [0, R_max] that overstates R_N by at most
    Σₙ γ^{T(n)} R_max/(1 - γ), which is O(log N) when γ^{T(n)} <= 1/n.
    """
    require_fraction(discount=discount)
    rows = np.asarray(rewards, np.float64)
    time = np.arange(rows.shape[-1])
    observed = time < np.asarray(lengths)[..., None]
    returns = np.sum(np.where(observed, rows * discount**time, 0.0), axis=-1)
    return episodic_regret(returns, optimal)


def loglog_slope(
    curves: Num[ArrayLike, "seeds iterations"],
    *,
    start: float = 0.5,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Slope:
    """The slope of log R_N against log N of the mean regret, over N from `start` (a fraction) to the end.

    R_N ∝ N^a has slope a; below 1 is sublinear. Least squares; the interval is a percentile bootstrap over seeds.
    """
    require_fraction(start=start, confidence=confidence)
    values = np.asarray(curves, np.float64)
    seeds, iterations = values.shape
    first = int(start * iterations)
    if seeds < 2 or iterations - first < 2:
        raise SombrlError(f"{seeds} seeds of {iterations} iterations: a slope needs two seeds and four iterations.")
    late = values[:, first:]
    if not np.all(late.mean(axis=0) > 0.0):
        raise SombrlError("The mean regret is not positive everywhere: check the reference J(π*), or start later.")
    log_n = np.log(np.arange(first + 1, iterations + 1))
    log_n -= log_n.mean()
    weights = log_n / (log_n @ log_n)

    shares = np.random.default_rng(seed).multinomial(seeds, np.full(seeds, 1.0 / seeds), resamples) / seeds
    means = shares @ late
    usable = np.all(means > 0.0, axis=1)
    slopes = np.log(means[usable]) @ weights
    tail = 0.5 * (1.0 - confidence)
    low, high = np.quantile(slopes, [tail, 1.0 - tail]) if usable.any() else (np.nan, np.nan)
    return Slope(float(np.log(late.mean(axis=0)) @ weights), float(low), float(high), int(np.sum(~usable)))
