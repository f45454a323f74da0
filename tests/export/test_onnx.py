"""The ONNX graph of a policy does what the policy does, in onnxruntime."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.controllers.sac_losses import gaussian
from sombrl.errors import SombrlError
from sombrl.export import export_policy, policy
from tests.export.agents import NETS, STRONG_NETS, Sights, dreamer, with_data


def session(folder):
    runtime = pytest.importorskip("onnxruntime", reason="needs sombrl[onnx] and onnxruntime")
    return runtime.InferenceSession(folder / "policy.onnx", providers=["CPUExecutionProvider"])


def test_without_the_package_it_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(SombrlError, match=r"pip install 'sombrl\[onnx\]'"):
        export_policy(with_data("sac", "pendulum", sac=NETS), tmp_path / "pilot", onnx=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("nets", [NETS, STRONG_NETS, NETS | {"actor": "bronet"}], ids=["plain", "simba", "bronet"])
def test_a_batch_of_observations(nets, tmp_path):
    pytest.importorskip("onnx", reason="needs sombrl[onnx]")
    agent = with_data("sac", "sombrl-tests/Tiny-v0", sac=nets)
    folder = export_policy(agent, tmp_path / "pilot", onnx=True)
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32) * 3
    (actions,) = session(folder).run(None, {"observation": obs})
    expected, _ = agent.predict(obs)
    np.testing.assert_allclose(actions, expected, atol=2e-6 * 2)  # half the range is 2
    assert actions.dtype == np.float32 and np.ptp(actions, axis=0).min() > 0.1


@pytest.mark.parametrize("nets", [NETS, STRONG_NETS], ids=["plain", "simba"])
def test_jax2onnx_says_the_same(nets, tmp_path):
    """The policy's own function, converted from its JAX program, beside the graph that we write node by node."""
    jax2onnx = pytest.importorskip("jax2onnx", reason="needs jax2onnx: make test-extras")
    agent = with_data("sac", "sombrl-tests/Tiny-v0", sac=nets)
    folder = export_policy(agent, tmp_path / "pilot", onnx=True)
    trainer = agent.trainer
    network = jax.tree.map(lambda leaf: leaf[0], trainer.parts.controller.actor(trainer.state.controller))
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        converted = jax2onnx.to_onnx(
            jax.vmap(lambda obs: jnp.tanh(gaussian(network, obs)[0])), [(50, 4)], model_name="policy"
        )
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "policy.onnx").write_bytes(converted.SerializeToString())
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32) * 3
    theirs = session(tmp_path / "theirs")
    (unit,) = theirs.run(None, {theirs.get_inputs()[0].name: obs})
    (ours,) = session(folder).run(None, {"observation": obs})
    low, high = np.array([-1.0, 0.0]), np.array([3.0, 4.0])
    np.testing.assert_allclose(ours, low + 0.5 * (unit + 1) * (high - low), atol=2e-5)


@pytest.mark.parametrize("env", ["Pendulum-v1", Sights])
def test_dreamer_step_by_step(env, tmp_path):
    pytest.importorskip("onnx", reason="needs sombrl[onnx]")
    folder = export_policy(dreamer(env), tmp_path / "pilot", onnx=True)
    pilot, graph = policy.load(folder), session(folder)
    network, parts = pilot.info["network"], pilot.info["observation"]["parts"]
    shape, rng, state = (network["latents"], network["classes"]), np.random.default_rng(0), None
    carried = {
        "deter": np.zeros(network["deter"], np.float32),
        "stoch": np.zeros(shape, np.float32),
        "last_action": np.zeros(network["action_dim"], np.float32),
    }
    chosen = set()
    for _ in range(10):
        obs = {p["name"]: np.asarray(rng.integers(0, 3, p["shape"]) + p["start"], p["dtype"]) for p in parts}
        noise = rng.gumbel(size=shape).astype(np.float32)
        expected, state = pilot.act(obs, state, noise)
        action, *following = graph.run(None, obs | carried | {"noise": noise})
        carried = dict(zip(carried, following, strict=True))
        if network["discrete"]:
            action = np.array(pilot.info["action"]["choices"])[action]
        np.testing.assert_allclose(action, expected, atol=1e-5)
        np.testing.assert_allclose(carried["deter"], state[0], atol=1e-5)
        np.testing.assert_array_equal(carried["stoch"], state[1])
        chosen.add(np.asarray(action).tobytes())
    assert len(chosen) > 1
