"""The actor in NumPy is the actor in JAX, to 1e-6; its file is whole or not there, and holds no code."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.controllers.sac_losses import gaussian
from sombrl.hardware.files import read_arrays, write_arrays
from sombrl.hardware.policy import Actor
from sombrl.networks.mlp import MLP
from sombrl.networks.normaliser import Normalised, RunningNormaliser
from sombrl.networks.residual import SimBa
from sombrl.records import SombrlError
from tests.hardware.parts import random_actor


@pytest.mark.parametrize("activation", ["relu", "silu", "tanh"])
def test_equal_to_the_network_in_jax(activation, key):
    network = MLP(13, (64, 32), (2, 2), activation=activation, output_gain=1.0, key=key)
    actor = Actor.of(network)
    obs = np.random.default_rng(0).normal(size=(100, 13)).astype(np.float32) * 3
    obs[0] *= 1e4  # saturated, and exp would overflow
    expected = jnp.tanh(jax.vmap(lambda x: gaussian(network, x)[0])(jnp.asarray(obs)))
    found = np.stack([actor(x) for x in obs])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (actor.obs_dim, actor.action_dim) == (13, 2)


def test_equal_to_strong_networks_in_jax(tmp_path, key):
    rows = np.random.default_rng(0).normal(size=(100, 13)).astype(np.float32)
    network = Normalised(
        RunningNormaliser.identity(13).update(jnp.asarray(2.0 + 3.0 * rows)), SimBa(13, (32, 32), (2, 2), key=key)
    )
    Actor.of(network).save(tmp_path / "000.npz")
    actor, _ = Actor.load(tmp_path / "000.npz")
    expected = jnp.tanh(jax.vmap(lambda x: gaussian(network, x)[0])(jnp.asarray(rows)))
    np.testing.assert_allclose(np.stack([actor(x) for x in rows]), expected, atol=2e-6)
    assert (actor.obs_dim, actor.action_dim) == (13, 2)
    steps = [step for step in actor.steps if step.kind != "remember"]
    with pytest.raises(SombrlError, match="adds what was never put aside"):
        Actor(tuple(steps))


def test_files_of_before_policies_had_steps_are_read(tmp_path):
    actor = random_actor(1)
    arrays = {f"weight_{i}": weight for i, weight in enumerate(actor.weights)}
    arrays |= {f"bias_{i}": bias for i, bias in enumerate(actor.biases)}
    write_arrays(tmp_path / "old.npz", arrays, {"kind": "policy", "activation": "relu", "number": 3})
    loaded, meta = Actor.load(tmp_path / "old.npz")
    obs = np.random.default_rng(0).normal(size=13).astype(np.float32)
    assert np.array_equal(loaded(obs), actor(obs)) and meta["number"] == 3


def test_a_policy_is_saved_and_loaded_bit_exactly(tmp_path):
    actor = random_actor(1)
    actor.save(tmp_path / "000.npz", {"number": 3})
    loaded, meta = Actor.load(tmp_path / "000.npz")
    for a, b in zip(actor.weights + actor.biases, loaded.weights + loaded.biases, strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b)
    assert meta["number"] == 3 and [path.name for path in tmp_path.iterdir()] == ["000.npz"]


@pytest.mark.parametrize("damage", ["half", "flipped", "empty", "text", "pickle"])
def test_a_damaged_file_is_named(damage, tmp_path):
    path = tmp_path / "000.npz"
    actor = random_actor(1)
    actor.save(path)
    whole = bytearray(path.read_bytes())
    if damage == "flipped":
        whole[whole.index(actor.weights[0].tobytes()[:16]) + 3] ^= 255
    if damage == "pickle":
        np.savez(path, allow_pickle=True, weight_0=np.array([{"a": 1}], object))
    else:
        contents = {"half": whole[: len(whole) // 2], "flipped": whole, "empty": b"", "text": b"hello"}
        path.write_bytes(bytes(contents[damage]))
    with pytest.raises(SombrlError, match=r"000\.npz is damaged"):
        Actor.load(path)


def test_a_changed_number_is_noticed_even_where_the_archive_is_whole(tmp_path):
    path = tmp_path / "a.npz"
    write_arrays(path, {"a": np.arange(3)}, {"kind": "notes"})
    arrays, meta = read_arrays(path, "notes")
    np.savez(path, a=arrays["a"] + 1, **{"meta.json": np.frombuffer(str(meta).replace("'", '"').encode(), np.uint8)})
    with pytest.raises(SombrlError, match="checksum differs"):
        read_arrays(path, "notes")


def test_unsound_policies_are_refused():
    actor = random_actor(1)
    with pytest.raises(SombrlError, match="not finite"):
        Actor.mlp((np.full((13, 8), np.nan, np.float32), actor.weights[1]), actor.biases)
    with pytest.raises(SombrlError, match="do not fit"):
        Actor.mlp((actor.weights[0], actor.weights[1][:-1]), actor.biases)
    with pytest.raises(SombrlError, match="mean and a log-std"):
        Actor.mlp((np.zeros((13, 3)),), (np.zeros(3),))
    with pytest.raises(SombrlError, match="activation"):
        Actor.mlp(actor.weights, actor.biases, "gelu")
