"""Small functions of arrays that several rooms need."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def safe_sqrt(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """√x for x >= 0, with derivative 0 instead of infinity at 0: where all members agree, no direction is better."""
    positive = x > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), 0.0)


def join_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of several arrays as one; histories of different lengths are padded with zeros."""
    if parts[0].ndim < 2 or len({part.shape[1:] for part in parts}) == 1:
        return np.concatenate(parts)
    longest = max(part.shape[1] for part in parts)
    widths = [[(0, 0), (0, longest - part.shape[1])] + [(0, 0)] * (part.ndim - 2) for part in parts]
    return np.concatenate([np.pad(part, width) for part, width in zip(parts, widths, strict=True)])
