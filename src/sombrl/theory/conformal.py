"""Conformal quantiles: how wide an interval must be to cover as often as asked, learned from past errors.

If the score of a new case and those of n past cases are exchangeable, the new one is at most the ⌈(n + 1)c⌉-th
smallest of the past ones with probability c or more, whatever their distribution (Vovk et al., 2005).
"""

import math

import numpy as np
from jaxtyping import Float

from sombrl.theory.require import require_fraction

ROUNDING = 1e-9
"""0.9 · 10 is 9 cases, not 10."""


def least_cases(coverage: float) -> int:
    """The fewest past cases from which so much coverage can be had: ⌈c/(1 - c)⌉."""
    require_fraction(coverage=coverage)
    return math.ceil(coverage / (1.0 - coverage) - ROUNDING)


def conformal_quantile(scores: Float[np.ndarray, " cases"], coverage: float) -> float:
    """The ⌈(n + 1)c⌉-th smallest score; infinite where n is too small. NaN counts as the largest."""
    require_fraction(coverage=coverage)
    rank = math.ceil((len(scores) + 1) * coverage - ROUNDING)
    ordered = np.sort(np.where(np.isnan(scores), np.inf, scores))
    return float(ordered[rank - 1]) if rank <= len(scores) else math.inf


def rolling_quantiles(
    scores: Float[np.ndarray, "time cases"], coverage: float, latest: int
) -> Float[np.ndarray, " time"]:
    """For every time the quantile of all cases of the `latest` times before it: what one would have known then."""
    before = [scores[max(0, t - latest) : t].ravel() for t in range(len(scores))]
    return np.array([conformal_quantile(one[~np.isnan(one)], coverage) for one in before])
