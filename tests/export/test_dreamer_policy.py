"""Dreamer's exported policy: encoder, memory and actor in NumPy follow the agent, latent for latent."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.dreamer.loop import _key as keyed
from sombrl.export import export_policy, policy
from sombrl.training.base import EVALUATION_EPISODES
from tests.export.agents import Sights, dreamer
from tests.export.numpy_alone import same_with_numpy_alone


def observations(number):
    obs = np.random.default_rng(0).normal(size=(number, 3)).astype(np.float32)
    return obs * np.logspace(-2, 2, number, dtype=np.float32)[:, None]


def follow(agent, pilot, sequence):
    """`predict` and the exported policy along a sequence, with the noise that JAX draws; the largest difference."""
    remembered = state = None
    shape, worst, seen = (pilot.info["network"]["latents"], pilot.info["network"]["classes"]), 0.0, set()
    for t, obs in enumerate(sequence):
        expected, remembered = agent.predict(obs, remembered)
        key = jr.split(keyed(agent.seeds[0], EVALUATION_EPISODES + t, "evaluate"), 1)[0]
        noise = np.asarray(jr.gumbel(jr.split(key)[0], shape))
        action, state = pilot.act(obs, state, noise)
        np.testing.assert_array_equal(state[1], np.asarray(remembered.memory.latent.stoch)[0])
        np.testing.assert_allclose(state[0], np.asarray(remembered.memory.latent.deter)[0], atol=1e-5)
        worst = max(worst, float(np.max(np.abs(action - expected))))
        seen.add(action.tobytes())
    assert len(seen) > 1
    return worst


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    agent = dreamer("Pendulum-v1")
    return agent, export_policy(agent, tmp_path_factory.mktemp("dreamer") / "pilot")


@pytest.mark.thorough
def test_it_follows_a_sequence_as_the_agent_does(vectors):
    agent, folder = vectors
    pilot = policy.load(folder)
    assert follow(agent, pilot, observations(40)) < 1e-4  # of actions up to 2, after 40 recurrent steps


@pytest.mark.thorough
@pytest.mark.parametrize("cnn", ["head", "paper"])
def test_from_pictures_vectors_and_discrete_values(cnn, tmp_path):
    agent = dreamer(lambda: Sights(), cnn=cnn)
    pilot = policy.load(export_policy(agent, tmp_path / "pilot"))
    assert pilot.info["action"] == {"kind": "discrete", "choices": [5, 6, 7]}
    env = Sights()
    sequence = [env.reset(seed=0)[0], *(env.step(action)[0] for action in [5, 6, 7] * 5)]
    assert follow(agent, pilot, sequence) == 0
    with pytest.raises(ValueError, match="has the parts"):
        pilot.act({"walk": np.zeros(2)})


def test_drawn_latents_have_dreamers_chances(vectors):
    """Without given noise NumPy draws: the frequencies are the softmax, mixed with 1 % of the uniform distribution."""
    agent, folder = vectors
    pilot, obs = policy.load(folder, seed=1), np.array([0.5, -1.0, 2.0], np.float32)
    drawn = np.mean([pilot.act(obs)[1][1] for _ in range(1000)], axis=0)
    networks = jax.tree.map(lambda leaf: leaf[0], agent.state.learned.networks)

    @jax.jit
    def chances():
        deter = networks.rssm.core(networks.rssm.initial(), jnp.zeros(1, jnp.float32))
        logits = networks.rssm.posterior(deter, networks.encoder({"obs": jnp.asarray(obs)}))
        return 0.99 * jax.nn.softmax(logits) + 0.01 / 4

    np.testing.assert_allclose(drawn, chances(), atol=4 * 0.5 / np.sqrt(1000))
    again = [policy.load(folder, seed=1).act(obs)[1][1] for _ in range(2)]
    np.testing.assert_array_equal(*again)


def test_it_loads_where_there_is_only_numpy(vectors):
    same_with_numpy_alone(vectors[1], observations(10))
