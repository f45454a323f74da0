"""Convolutions, folded or not, against SciPy and JAX's own, with their gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.signal import correlate2d

from sombrl.dreamer.convolution import Conv, fold, unfold

NAMES = ("NHWC", "HWIO", "NHWC")


def plain(layer, image, resolution):
    """By JAX alone, of an image without squares."""
    if resolution == "zeros":
        made = jax.lax.conv_transpose(image[None], layer.weight, (2, 2), "SAME", dimension_numbers=NAMES)[0]
    else:
        if resolution == "repeat":
            image = jnp.repeat(jnp.repeat(image, 2, axis=0), 2, axis=1)
        strides = (2, 2) if resolution == "half" else (1, 1)
        made = jax.lax.conv_general_dilated(image[None], layer.weight, strides, "SAME", dimension_numbers=NAMES)[0]
    return made + jnp.broadcast_to(layer.bias, made.shape)


@pytest.mark.parametrize("kernel", [3, 5, pytest.param(7, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("resolution", "folded"),
    [("same", False), ("same", True), ("half", False), ("half", True), ("repeat", False), ("zeros", False)],
)
def test_folding_changes_nothing(resolution, folded, kernel, key):
    """Borders and all; what comes out folded is folded before it is compared. And the gradients."""
    layer_key, image_key, weight_key = jr.split(key, 3)
    layer = eqx.tree_at(lambda conv: conv.bias, Conv(3, 4, kernel, key=layer_key), jnp.arange(4.0))
    image = jr.normal(image_key, (8, 6, 3))

    def ours(layer, image):
        image = image[:, :, None]
        return unfold(layer(fold(image) if folded else image, resolution))[:, :, 0]

    expected = plain(layer, image, resolution)
    np.testing.assert_allclose(np.asarray(ours(layer, image)), np.asarray(expected), atol=2e-5)
    weights = jr.normal(weight_key, expected.shape)

    def gradient(apply):
        return jax.grad(lambda pair: jnp.sum(weights * apply(*pair)))((layer, image))

    found, wanted = gradient(ours), gradient(lambda layer, image: plain(layer, image, resolution))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-4)


def test_the_plain_one_is_scipys(key):
    layer_key, image_key = jr.split(key)
    layer, image = Conv(2, 1, key=layer_key), jr.normal(image_key, (7, 9, 1, 2))
    pixels, weight = np.asarray(image, np.float64)[:, :, 0], np.asarray(layer.weight, np.float64)
    expected = sum(correlate2d(pixels[..., i], weight[..., i, 0], mode="same") for i in range(2))
    np.testing.assert_allclose(np.asarray(layer(image))[:, :, 0, 0], expected, atol=1e-5)


def test_a_square_has_its_pixels_in_reading_order():
    image = jnp.arange(24.0).reshape(4, 6, 1, 1)
    folded = fold(image)
    assert folded[1, 2, :, 0].tolist() == [16.0, 17.0, 22.0, 23.0]
    assert np.array_equal(unfold(folded), image) and np.array_equal(unfold(image), image)
