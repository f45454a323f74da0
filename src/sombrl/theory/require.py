"""Refusing impossible numbers before they turn into NaN."""

import jax
import numpy as np
from jax.typing import ArrayLike

from sombrl.records import SombrlError


def require_positive(**values: ArrayLike) -> None:
    """Each must be above zero (NaN is not). A traced value cannot be looked at and passes."""
    for name, value in values.items():
        if not isinstance(value, jax.core.Tracer) and not np.all(np.asarray(value) > 0):
            raise SombrlError(f"{name} must be positive, not {value}: give a number above zero.")


def require_nonnegative(**values: ArrayLike) -> None:
    """Each must be zero or more (NaN is not)."""
    for name, value in values.items():
        if not isinstance(value, jax.core.Tracer) and not np.all(np.asarray(value) >= 0):
            raise SombrlError(f"{name} is {value}: give zero or more.")


def require_fraction(**values: ArrayLike) -> None:
    """Each must lie strictly between 0 and 1."""
    for name, value in values.items():
        if isinstance(value, jax.core.Tracer):
            continue
        numbers = np.asarray(value)
        if not np.all((numbers > 0) & (numbers < 1)):
            raise SombrlError(f"{name} must lie between 0 and 1, not {value}: give a number strictly inside.")
