"""The encoder against NumPy and SciPy: the order of its parts and of its layers; and observations it refuses."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.signal import correlate2d

from sombrl.dreamer.convolution import fold
from sombrl.dreamer.decoder import Decoder
from sombrl.dreamer.encoder import Encoder, max_pool
from sombrl.dreamer.rssm import Latent
from sombrl.dreamer.sizes import SIZES
from sombrl.envs.layout import Part
from sombrl.records import SombrlError
from tests.dreamer.reference import norm, silu

TINY = SIZES["tiny"]


def convolve(layer, image, border=(2, 2)):
    weight = np.asarray(layer.weight, np.float64)
    image = np.pad(image, (border, border, (0, 0)))
    maps = [
        sum(correlate2d(image[..., i], weight[..., i, o], mode="valid") for i in range(weight.shape[2]))
        for o in range(weight.shape[3])
    ]
    return np.stack(maps, axis=-1) + np.asarray(layer.bias, np.float64)


def largest_of_four(image):
    return np.maximum.reduce([image[i::2, j::2] for i in (0, 1) for j in (0, 1)])


def test_vectors_by_name_in_symlog_and_one_hot(key):
    parts = (Part("b", (), "discrete", 3), Part("c", (1,), "vector"), Part("a", (2,), "vector"))
    obs = {"c": jnp.array([-99.0]), "b": jnp.array(1, jnp.int32), "a": jnp.array([0.0, 1e4])}
    encoder = Encoder(parts, TINY, key=key)
    expected = np.array([0.0, np.log1p(1e4), 0.0, 1.0, 0.0, -np.log(100.0)])
    for layer in encoder.mlp.layers:
        expected = silu(norm(layer.norm, expected @ np.asarray(layer.linear.weight, np.float64)))
    np.testing.assert_allclose(np.asarray(encoder(obs)), expected, rtol=1e-4, atol=1e-5)
    assert encoder.tokens == 16
    other = Encoder(parts[::-1], TINY, key=jr.clone(key))
    assert np.array_equal(other(obs), encoder(obs))


@pytest.mark.parametrize("cnn", [pytest.param("head", marks=pytest.mark.thorough), "paper"])
def test_images_by_name_through_convolution_norm_and_silu(cnn, key):
    """`head` pools before the norm: after it, or after SiLU, other pixels would win. `paper` strides, but not at first;
    of the three columns that its border lacks, one is on the left."""
    model_key, late_key, early_key = jr.split(key, 3)
    parts = (Part("late", (48, 64, 1), "image"), Part("early", (48, 64, 2), "image"), Part("x", (1,), "vector"))
    encoder = Encoder(parts, TINY, cnn=cnn, key=model_key)
    obs = {
        "late": jr.randint(late_key, (48, 64, 1), 0, 256).astype(jnp.uint8),
        "early": jr.randint(early_key, (48, 64, 2), 0, 256).astype(jnp.uint8),
        "x": jnp.zeros(1),
    }
    image = np.concatenate([np.asarray(obs["early"]), np.asarray(obs["late"])], axis=-1) / 255 - 0.5
    assert len(encoder.stages) == {"head": 4, "paper": 5}[cnn]
    for i, stage in enumerate(encoder.stages):
        if cnn == "head":
            image = largest_of_four(convolve(stage.convolution, image))
        else:
            same, halved = convolve(stage.convolution, image), convolve(stage.convolution, image, (1, 2))[::2, ::2]
            image = same if i == 0 else halved
        image = silu(norm(stage.norm, image))
    assert image.shape == (3, 4, 8)
    tokens = np.asarray(encoder(obs))
    assert tokens.shape == (encoder.tokens,) == (16 + 3 * 4 * 8,)
    np.testing.assert_allclose(tokens[16:], image.ravel(), rtol=1e-3, atol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("cnn", ["head", "paper"])
def test_small_images_are_halved_once_less(cnn, key):
    """They lack the outermost stage of the larger ones, and the decoder's last one."""
    encoder_key, decoder_key = jr.split(key)
    small = (Part("a", (32, 32, 3), "image"),)
    encoder = Encoder(small, TINY, cnn=cnn, key=encoder_key)
    assert [stage.convolution.bias.shape[0] for stage in encoder.stages] == [
        2 * multiplier for multiplier in {"head": (3, 4, 4), "paper": (2, 3, 4, 4)}[cnn]
    ]
    assert encoder({"a": jnp.zeros((32, 32, 3), jnp.uint8)}).shape == (encoder.tokens,) == (4 * 4 * 8,)
    decoder = Decoder(small, TINY, cnn=cnn, key=decoder_key)
    latent = Latent(jnp.zeros(TINY.deter), jnp.zeros((TINY.latents, TINY.classes)))
    assert decoder(latent)["a"].shape == (32, 32, 3)


def test_max_pool_takes_the_largest_of_its_own_square():
    image = jnp.arange(16, dtype=jnp.float32).reshape(4, 4, 1, 1)
    image = jnp.concatenate([image, -image], axis=-1)
    pooled = np.asarray(max_pool(fold(image)))[:, :, 0]
    assert pooled[..., 0].tolist() == [[5.0, 7.0], [13.0, 15.0]]
    assert pooled[..., 1].tolist() == [[0.0, -2.0], [-8.0, -10.0]]


def test_what_it_cannot_encode(key):
    def refused(*parts):
        with pytest.raises(SombrlError) as error:
            Encoder(parts, TINY, key=jr.clone(key))
        return str(error.value)

    assert "Image 'a' is 50 x 64" in refused(Part("a", (50, 64, 3), "image"))
    assert "multiples of 16 from 48 to 256; or 24 or 32" in refused(Part("a", (40, 40, 3), "image"))
    assert "16 x 16" in refused(Part("a", (16, 16, 3), "image"))
    assert "272 x 272" in refused(Part("a", (272, 272, 3), "image"))
    assert "resize them" in refused(Part("a", (64, 64, 3), "image"), Part("b", (48, 48, 3), "image"))
    assert "at least one part" in refused()
