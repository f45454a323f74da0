"""The world model's parameters, counted against the published sizes, and its arithmetic in bfloat16."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.dreamer.decoder import Decoder
from sombrl.dreamer.encoder import Encoder
from sombrl.dreamer.rssm import RSSM
from sombrl.dreamer.sizes import SIZES, Size
from sombrl.envs.layout import Part
from sombrl.records import SombrlError

RGB = (Part("image", (64, 64, 3), "image"),)
GRAY = (Part("image", (96, 96, 1), "image"),)
WALKER = (Part("height", (1,), "vector"), Part("orientations", (14,), "vector"), Part("velocity", (9,), "vector"))


def world_model(spec, action_dim, discrete, size, *, key, cnn="head"):
    encoder_key, model_key, decoder_key = jr.split(key, 3)
    encoder = Encoder(spec, size, cnn=cnn, key=encoder_key)
    model = RSSM(encoder.tokens, action_dim, discrete, size, key=model_key)
    return encoder, model, Decoder(spec, size, cnn=cnn, key=decoder_key)


def count(spec, action_dim, size, discrete=False, cnn="head"):
    """Parameters of encoder, dynamics and decoder, without allocating any."""
    shapes = eqx.filter_eval_shape(lambda: world_model(spec, action_dim, discrete, size, key=jr.key(0), cnn=cnn))
    return [sum(leaf.size for leaf in jax.tree.leaves(part)) for part in shapes]


def heads(size, action_dim):
    """Parameters of reward, continue, continuous policy and value, from their layers."""
    first = size.features * size.units + 2 * size.units
    further = 2 * (size.units**2 + 2 * size.units)
    bins = 255 * size.units + 255
    policy = first + further + 2 * action_dim * (size.units + 1)
    return first + bins, first + size.units + 1, policy, first + further + bins


@pytest.mark.parametrize(
    ("name", "spec", "actions", "discrete", "expected"),
    [
        ("1m", WALKER, 6, False, [10_112, 364_416, 51_096]),
        ("12m", WALKER, 6, False, [138_752, 5_783_040, 794_136]),
        ("12m", RGB, 6, False, [220_416, 5_979_648, 1_272_003]),
        ("12m", RGB, 2, False, [220_416, 5_978_624, 1_272_003]),
        ("12m", RGB, 1, False, [220_416, 5_978_368, 1_272_003]),
        ("12m", RGB, 18, True, [220_416, 5_982_720, 1_272_003]),
        ("12m", GRAY, 18, True, [218_816, 6_310_400, 2_256_001]),
    ],
)
def test_parameters_of_every_module(name, spec, actions, discrete, expected):
    assert count(spec, actions, SIZES[name], discrete) == expected


def test_the_outside_total_of_walker_proprio():
    """640,867 is what another implementation of the same model reports (pytorch/rl#4133)."""
    assert sum(count(WALKER, 6, SIZES["1m"])) + sum(heads(SIZES["1m"], 6)) == 640_867


def test_totals_of_every_size():
    totals = {
        "1m": 686_846,
        "12m": 10_494_158,
        "25m": 23_489_326,
        "50m": 41_650_062,
        "100m": 93_468_238,
        "200m": 165_948_686,
        "400m": 372_896_398,
    }
    assert {name: sum(count(RGB, 6, SIZES[name])) + sum(heads(SIZES[name], 6)) for name in totals} == totals


def test_the_older_convolutions_add_a_stage_outside():
    """Same tokens; one more 5 x 5 convolution from 3 to 16 channels before, and one to 16 after, at full size."""
    size = SIZES["12m"]
    encoder, dynamics, decoder = count(RGB, 6, size, cnn="paper")
    assert dynamics == 5_979_648
    kernel = 5 * 5
    assert encoder - 220_416 == kernel * (3 * 16 + 16 * 32 - 3 * 32) + 2 * 16
    assert decoder - 1_272_003 == kernel * (32 * 16 + 16 * 3 - 32 * 3) + 2 * 16


def test_sizes_that_do_not_divide_are_refused():
    with pytest.raises(SombrlError, match="deter must be a multiple of its 8 blocks, not 60"):
        Size(deter=60, hidden=16, classes=4, depth=2, units=16)
    with pytest.raises(SombrlError, match="depth x 4 must be a multiple of its 8 blocks, not 12"):
        Size(deter=64, hidden=16, classes=4, depth=3, units=16)
    with pytest.raises(SombrlError, match="classes must be at least 1, not 0"):
        Size(deter=64, hidden=16, classes=0, depth=2, units=16)


@pytest.mark.thorough
def test_bfloat16_is_close_to_float32_and_float32_where_it_counts(key):
    spec = (Part("image", (48, 48, 3), "image"), Part("speed", (2,), "vector"), Part("gear", (), "discrete", 3))
    model_key, image_key, sample_key = jr.split(key, 3)
    obs = {
        "image": jr.randint(image_key, (48, 48, 3), 0, 256).astype(jnp.uint8),
        "speed": jnp.array([-300.0, 0.5], jnp.float32),
        "gear": jnp.array(2, jnp.int32),
    }
    action = jnp.array([0.3, -2.0], jnp.float32)
    full = eqx.filter_jit(world_model)(spec, 2, False, SIZES["tiny"], key=model_key)
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), full)

    @eqx.filter_jit
    def run(parts, key):
        encoder, model, decoder = parts
        tokens = encoder(obs)
        latent, prior, posterior = model.observe(model.initial(), action, tokens, jnp.array(False), key=key)
        predictions = decoder(latent)
        return tokens, latent, prior, posterior, predictions, decoder.losses(predictions, obs)

    exact, rough = run(full, sample_key), run(half, jr.clone(sample_key))
    assert np.array_equal(exact[1].stoch, rough[1].stoch.astype(jnp.float32))  # the same sample, or nothing compares
    for a, b in zip(jax.tree.leaves(exact[:5]), jax.tree.leaves(rough[:5]), strict=True):
        np.testing.assert_allclose(np.asarray(b.astype(jnp.float32)), np.asarray(a), atol=0.06)
    assert rough[0].dtype == rough[1].deter.dtype == rough[1].stoch.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves((exact, rough[2:]))} == {jnp.dtype(jnp.float32)}
    for name, loss in exact[5].items():
        np.testing.assert_allclose(float(rough[5][name]), float(loss), rtol=0.03)
