"""Convolutions of one image: at its resolution, to half of it, or to twice of it.

GPUs are slow where an image is large and has few channels. So an image may be folded: every square of 2 x 2 pixels is
one pixel then, with the four side by side. A convolution from or to folded images is a convolution again, with a
smaller kernel, because several taps meet the same folded pixel; the weights are those of the plain one.

An image is [height, width, square, channel], where a square is 4 pixels if it is folded and 1 if not.
"""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sombrl.dreamer.blocks import scaled_normal

Resolution = Literal["same", "half", "repeat", "zeros"]
"""What a convolution makes of an image: as large; half as large, by a stride; or twice as large, whose new pixels are
the old ones again before the convolution, or zeros (a transposed convolution). What becomes larger comes out folded."""


class Conv(eqx.Module):
    """A convolution of one image, zeros beyond its border."""

    weight: Float[Array, "kernel kernel input output"]
    bias: Float[Array, " output"]

    def __init__(self, inputs: int, outputs: int, kernel: int = 5, *, key: Key[Array, ""]):
        self.weight = scaled_normal((kernel, kernel, inputs, outputs), kernel * kernel * inputs, key=key)
        self.bias = jnp.zeros(outputs, jnp.float32)

    def __call__(
        self, image: Float[Array, "height width square input"], resolution: Resolution = "same"
    ) -> Float[Array, "height2 width2 square2 output"]:
        """The convolution. Sides that are halved must be even."""
        folded = image.shape[2] == 4
        if folded or resolution in ("repeat", "zeros"):
            kernel, stride = self._folded(folded, resolution), 1
        else:
            kernel, stride = self.weight, 2 if resolution == "half" else 1
        pixels = jnp.reshape(image, (*image.shape[:2], -1))
        made = jax.lax.conv_general_dilated(
            pixels[None], kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )[0]
        made = jnp.reshape(made, (*made.shape[:2], -1, self.bias.shape[0]))
        return made + jnp.broadcast_to(self.bias, made.shape)

    def _folded(self, folded: bool, resolution: Resolution) -> Float[Array, "small small inputs outputs"]:
        """The kernel between images of which one is folded, or both."""
        meets = jnp.asarray(_meets(self.weight.shape[0], folded, resolution), self.weight.dtype)
        kernel = jnp.einsum("aipk,bjql,kluv->ijpquabv", meets, meets, self.weight)
        small = kernel.shape[0]
        return jnp.reshape(kernel, (small, small, math.prod(kernel.shape[2:5]), -1))


def _meets(kernel: int, folded: bool, resolution: Resolution) -> np.ndarray:
    """[place, neighbour, place in it, tap]: whether that tap, at that place of the outcome's pixel, meets this.

    Along one side of an image; a pixel has two places if it is folded and one if not.
    """
    reach = kernel // 2
    place, tap = np.arange(1 if resolution == "half" else 2)[:, None], np.arange(kernel)
    neighbour = np.arange(-((reach + 1) // 2), (reach + 1) // 2 + 1)[:, None, None]
    within = np.arange(2 if folded else 1)[:, None]
    match resolution:
        case "same":
            where = place + tap - reach  # in pixels of the unfolded image, from the first one of this square on
        case "half":
            where = place + tap - (kernel - 2) // 2  # the padding is odd, and one smaller at the beginning
        case "repeat":
            where = (place + tap - reach) // 2
        case "zeros":
            where = place + tap - reach - 1  # a pixel has the second place, a zero the first
    met: np.ndarray = where[:, None, None] == (neighbour if resolution == "repeat" else 2 * neighbour + within)
    return met


def fold(image: Float[Array, "height width 1 channel"]) -> Float[Array, "height2 width2 4 channel"]:
    """Squares of 2 x 2 pixels as one pixel each."""
    height, width, _, channels = image.shape
    squares = jnp.reshape(image, (height // 2, 2, width // 2, 2, channels))
    return jnp.reshape(jnp.transpose(squares, (0, 2, 1, 3, 4)), (height // 2, width // 2, 4, channels))


def unfold(image: Float[Array, "height width square channel"]) -> Float[Array, "height2 width2 1 channel"]:
    """Every pixel on its own, whether the image is folded or not."""
    height, width, square, channels = image.shape
    side = math.isqrt(square)
    squares = jnp.reshape(image, (height, width, side, side, channels))
    return jnp.reshape(jnp.transpose(squares, (0, 2, 1, 3, 4)), (height * side, width * side, 1, channels))
