"""Costs of our worlds: 0 well inside a limit, 1 at it (a violation), in between and beyond it a straight line."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from sombrl.envs.guards import check_cost
from sombrl.records import SombrlError


def hinge(value: Float[Array, ""], limit: float, margin: float) -> Float[Array, ""]:
    """max(0, 1 + (value - limit)/margin); without a margin 1 from the limit on."""
    if margin == 0.0:
        return (value >= limit).astype(value.dtype)
    return jnp.maximum(0.0, 1.0 + (value - limit) / margin)


def check_limit(value: float | int | None, name: str, *, least: float = 0.0) -> float | None:
    """A limit above `least`, or None for none."""
    if value is None:
        return None
    limit = check_cost(value, name)
    if limit <= least:
        raise SombrlError(f"{name} must be above {least:g}, not {value!r}.")
    return limit
