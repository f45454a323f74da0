"""The layers that all of Dreamer is made of: dense, block-dense and convolution, each followed by RMS norm and SiLU.

Every layer maps one vector, or one image, to one. Parameters are float32; a layer computes in the type of its
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

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, " output"]:
        """The affine map."""
        return x @ self.weight + self.bias


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

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, " output"]:
        """The layer's value."""
        return jax.nn.silu(self.norm(self.linear(x)))


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


class Conv(eqx.Module):
    """A convolution of one image, stride 1, as large as its input."""

    weight: Float[Array, "kernel kernel input output"]
    bias: Float[Array, " output"]

    def __init__(self, inputs: int, outputs: int, kernel: int = 5, *, key: Key[Array, ""]):
        self.weight = scaled_normal((kernel, kernel, inputs, outputs), kernel * kernel * inputs, key=key)
        self.bias = jnp.zeros(outputs, jnp.float32)

    def __call__(self, image: Float[Array, "height width input"]) -> Float[Array, "height width output"]:
        """The convolution, zeros beyond the border."""
        image = _convolve(image, self.weight)
        return image + jnp.broadcast_to(self.bias, image.shape)

    def enlarging(self, image: Float[Array, "height width input"]) -> Float[Array, "height2 width2 output"]:
        """The convolution of the image with every pixel four times, in a square.

        A kernel meets few different pixels of such an image: it is a smaller one on the image itself, another for each
        place in the square. That takes a third of the arithmetic.
        """
        meets = jnp.asarray(_meets(self.weight.shape[0]), self.weight.dtype)
        kernels = jnp.einsum("aik,bjl,kluv->ijuabv", meets, meets, self.weight)
        squares = _convolve(image, jnp.reshape(kernels, (*kernels.shape[:3], -1)))
        height, width, _ = image.shape
        squares = jnp.reshape(squares, (height, width, 2, 2, -1))
        large = jnp.reshape(jnp.transpose(squares, (0, 2, 1, 3, 4)), (2 * height, 2 * width, -1))
        return large + jnp.broadcast_to(self.bias, large.shape)


def _convolve(
    image: Float[Array, "height width input"], weight: Float[Array, "kernel kernel input output"]
) -> Float[Array, "height width output"]:
    return jax.lax.conv_general_dilated(
        image[None], weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )[0]


def _meets(kernel: int) -> np.ndarray:
    """[place, pixel, tap]: whether, around the left or the right one of a doubled pixel, a tap meets that neighbour."""
    reach = kernel // 2
    neighbour = np.stack([(place + np.arange(kernel) - reach) // 2 for place in (0, 1)])
    pixels = np.arange(neighbour.min(), neighbour.max() + 1)
    return neighbour[:, None, :] == pixels[None, :, None]
