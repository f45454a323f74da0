"""Symmetric logarithm: near the identity around 0, logarithmic far from it, so that one network fits any units."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def symlog(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """sign(x) log(1 + |x|)."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """sign(x) (exp|x| - 1), the inverse of `symlog`."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))
