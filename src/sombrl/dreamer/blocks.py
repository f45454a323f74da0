"""The layers of Dreamer: dense and block-dense, each followed by RMS norm and SiLU.

Every layer maps one vector to one. Parameters are float32; a layer computes in the type of its
parameters, so a copy of a network cast to bfloat16 computes in bfloat16. Norms are taken in float32 all the same.
"""

import itertools
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

NORM_EPS = 1e-4
TRUNCATED_STD = 0.87962566  # of a unit Gaussian cut off at ±2


def scaled_normal(shape: Sequence[int], fan_in: int, *, key: Key[Array, ""]) -> Float[Array, "..."]:
    """Gaussians cut off at two standard deviations, which are such that the result has one of 1/√fan_in."""
    return jr.truncated_normal(key, -2.0, 2.0, tuple(shape), jnp.float32) / (TRUNCATED_STD * math.sqrt(fan_in))


class Linear(eqx.Module):
    """x ↦ x W + b, b = 0 at first. `scale` multiplies the initial W."""

    weight: Float[Array, "input output"]
    bias: Float[Array, " output"]

    def __init__(self, inputs: int, outputs: int, *, scale: float = 1.0, key: Key[Array, ""]):
        self.weight = scale * scaled_normal((inputs, outputs), inputs, key=key)
        self.bias = jnp.zeros(outputs, jnp.float32)

    def __call__(self, x: Float[Array, " input"], *more: Float[Array, " _"]) -> Float[Array, " output"]:
        """The affine map, also of several vectors one after the other.

        Those are not joined first: that copies large batches, and GPUs are slow where the width becomes an odd one.
        """
        if not more:
            return x @ self.weight + self.bias
        rows = jnp.split(self.weight, np.cumsum([len(part) for part in (x, *more)])[:-1].tolist())
        products = [part @ own for part, own in zip((x, *more), rows, strict=True)]
        return sum(products[1:], products[0]) + self.bias


class BlockLinear(eqx.Module):
    """A dense layer whose matrix is block-diagonal: block i of the input makes block i of the output.

    The initial scale is that of a full matrix, 1/√(all inputs).
    """

    weight: Float[Array, "block input output"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, blocks: int, *, key: Key[Array, ""]):
        self.weight = scaled_normal((blocks, inputs // blocks, outputs // blocks), inputs, key=key)
        self.bias = jnp.zeros(outputs, jnp.float32)

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """The affine map."""
        blocks, width, _ = self.weight.shape
        return jnp.reshape(jnp.einsum("bi,bio->bo", jnp.reshape(x, (blocks, width)), self.weight), -1) + self.bias


class RMSNorm(eqx.Module):
    """Root mean square 1 over the last axis, then a learned scale; no shift."""

    scale: Float[Array, " feature"]

    def __init__(self, features: int):
        self.scale = jnp.ones(features, jnp.float32)

    def __call__(self, x: Float[Array, "*axes feature"]) -> Float[Array, "*axes feature"]:
        """x / rms(x) · scale, in float32."""
        wide = x.astype(jnp.float32)
        size = jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + NORM_EPS)
        scale = jnp.broadcast_to(self.scale.astype(jnp.float32), wide.shape)
        return (wide * jnp.broadcast_to(size, wide.shape) * scale).astype(x.dtype)


class Dense(eqx.Module):
    """Linear, norm, SiLU."""

    linear: Linear
    norm: RMSNorm

    def __init__(self, inputs: int, outputs: int, *, key: Key[Array, ""]):
        self.linear = Linear(inputs, outputs, key=key)
        self.norm = RMSNorm(outputs)

    def __call__(self, x: Float[Array, " input"], *more: Float[Array, " _"]) -> Float[Array, " output"]:
        """The layer's value at a vector, or at several one after the other."""
        return jax.nn.silu(self.norm(self.linear(x, *more)))


class MLP(eqx.Module):
    """`layers` of `Dense`, all of the same width."""

    layers: tuple[Dense, ...]

    def __init__(self, inputs: int, width: int, layers: int, *, key: Key[Array, ""]):
        sizes = itertools.pairwise([inputs, *[width] * layers])
        self.layers = tuple(Dense(*size, key=k) for size, k in zip(sizes, jr.split(key, layers), strict=True))

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, " width"]:
        """The last layer's value."""
        for layer in self.layers:
            x = layer(x)
        return x
