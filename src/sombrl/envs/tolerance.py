"""The soft indicator from which sparse rewards are built (dm_control's `rewards.tolerance`, Gaussian)."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float


def tolerance(
    x: Float[Array, "*shape"],
    *,
    lower: float,
    upper: float,
    margin: float,
    value_at_margin: float = 0.1,
) -> Float[Array, "*shape"]:
    """1 inside [lower, upper], exp(−½ (s·d/margin)²) at distance d outside.

    s makes it `value_at_margin` at d = margin. A margin of 0 gives the hard indicator, as in dm_control.
    """
    distance = jnp.maximum(jnp.maximum(lower - x, x - upper), 0.0)
    if margin == 0:
        return jnp.where(distance > 0.0, 0.0, 1.0).astype(x.dtype)
    scale = math.sqrt(-2.0 * math.log(value_at_margin)) / margin
    return jnp.exp(-0.5 * jnp.square(scale * distance))
