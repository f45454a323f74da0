"""The decoder: which block paints what, pixels in their range, vectors against NumPy, losses by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.signal import correlate2d

from sombrl.dreamer.decoder import Decoder, InnermostMap
from sombrl.dreamer.rssm import Latent
from sombrl.dreamer.sizes import SIZES
from sombrl.envs.layout import Part
from tests.dreamer.reference import norm, silu

TINY = SIZES["tiny"]
PARTS = (
    Part("view", (48, 48, 2), "image"),
    Part("speed", (3,), "vector"),
    Part("gear", (), "discrete", 3),
    Part("depth", (48, 48, 1), "image"),
)


def linear(layer, x):
    return x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64)


def convolve(layer, image):
    weight = np.asarray(layer.weight, np.float64)
    maps = [
        sum(correlate2d(image[..., i], weight[..., i, o], mode="same") for i in range(weight.shape[2]))
        for o in range(weight.shape[3])
    ]
    return np.stack(maps, axis=-1) + np.asarray(layer.bias, np.float64)


def some_latent(key):
    deter_key, stoch_key = jr.split(key)
    stoch = jax.nn.one_hot(jr.randint(stoch_key, (TINY.latents,), 0, TINY.classes), TINY.classes, dtype=jnp.float32)
    return Latent(jnp.tanh(jr.normal(deter_key, (TINY.deter,))), stoch)


def test_a_block_of_the_memory_paints_its_own_channels_everywhere(key):
    """Two channels per block. The latents are zero, and so is what the network makes of them."""
    canvas = InnermostMap(3, 3, 16, TINY, key=key)
    deter = jnp.zeros(64).at[8 * 5 : 8 * 6].set(1.0)
    image = np.asarray(canvas(Latent(deter, jnp.zeros((4, 4)))))
    expected = np.zeros((3, 3, 16))
    # Inside a block: height, then width, then its channels.
    expected[..., 10:12] = np.asarray(canvas.blocks.weight[5], np.float64).sum(0).reshape(3, 3, 2)
    np.testing.assert_allclose(image, silu(norm(canvas.norm, expected)), rtol=1e-4, atol=1e-5)
    assert np.all(image[..., 10:12] != 0) and np.count_nonzero(image) == 3 * 3 * 2


@pytest.mark.parametrize("cnn", [pytest.param("head", marks=pytest.mark.thorough), "paper"])
def test_everything_against_numpy(cnn, key):
    model_key, latent_key = jr.split(key)
    decoder = Decoder(PARTS, TINY, cnn=cnn, key=model_key)
    latent = some_latent(latent_key)
    predictions = eqx.filter_jit(decoder)(latent)
    deter, stoch = np.asarray(latent.deter, np.float64), np.asarray(latent.stoch, np.float64).ravel()

    x = np.concatenate([stoch, deter])
    for layer in decoder.mlp.layers:
        x = silu(norm(layer.norm, linear(layer.linear, x)))
    for head, name in zip(decoder.heads, ("gear", "speed"), strict=True):
        np.testing.assert_allclose(np.asarray(predictions[name]), linear(head, x), rtol=1e-4, atol=1e-5)

    painter = decoder.painter
    image = np.asarray(painter.canvas(latent), np.float64)
    for i, convolution in enumerate(painter.convolutions):
        square = np.ones((2, 2, 1)) if cnn == "head" else np.array([[0.0, 0.0], [0.0, 1.0]])[..., None]
        larger = np.kron(image, square)
        image = convolve(convolution, image if cnn == "paper" and i == 4 else larger)
        if i < len(painter.convolutions) - 1:
            image = silu(norm(painter.norms[i], image))
    image = 1.0 / (1.0 + np.exp(-image))
    np.testing.assert_allclose(np.asarray(predictions["depth"]), image[..., :1], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(np.asarray(predictions["view"]), image[..., 1:], rtol=1e-3, atol=1e-4)


@pytest.mark.thorough
def test_pixels_stay_between_0_and_1(key):
    """Also when the network wants to go far beyond."""
    model_key, latent_key = jr.split(key)
    decoder = Decoder(PARTS[:1], TINY, key=model_key)
    last = decoder.painter.convolutions[-1]
    decoder = eqx.tree_at(lambda d: d.painter.convolutions[-1].weight, decoder, 1e3 * last.weight)
    image = np.asarray(decoder(some_latent(latent_key))["view"])
    assert image.min() == 0.0 and image.max() == 1.0


def test_losses_by_hand(key):
    decoder = Decoder(PARTS, TINY, key=key)
    predictions = {
        "view": jnp.full((48, 48, 2), 0.5).at[0, 0, 0].set(0.2),
        "depth": jnp.zeros((48, 48, 1)),
        "speed": jnp.array([0.0, 1.0, -1.0]),
        "gear": jnp.array([0.0, 0.0, np.log(2.0)], jnp.float32),
    }
    obs = {
        "view": jnp.full((48, 48, 2), 255, jnp.uint8).at[0, 0, 0].set(51),
        "depth": jnp.zeros((48, 48, 1), jnp.uint8).at[3, 3, 0].set(255),
        "speed": jnp.array([np.e - 1, 0.0, 1 - np.e**3], jnp.float32),  # symlog: 1, 0, -3
        "gear": jnp.array(1, jnp.int32),
    }
    losses = decoder.losses(predictions, obs)
    expected = {"view": 0.25 * (48 * 48 * 2 - 1), "depth": 1.0, "speed": 1.0 + 1.0 + 4.0, "gear": np.log(4.0)}
    assert losses.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(float(losses[name]), value, rtol=1e-5)
