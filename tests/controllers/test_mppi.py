"""What is particular to MPPI: its weights."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.special

from sombrl.controllers import MPPI, MPPIConfig
from sombrl.controllers.mppi import softmax_weights
from sombrl.controllers.noise import coloured_noise
from sombrl.records import SombrlError
from tests.oracles.toy import memoryless


def test_weights_are_a_softmax_in_units_of_the_spread():
    scores = np.random.default_rng(0).normal(size=50).astype(np.float32)
    expected = scipy.special.softmax(scores / (0.3 * scores.std()))
    np.testing.assert_allclose(softmax_weights(jnp.asarray(scores), 0.3), expected, rtol=1e-4)
    far = jnp.asarray(1000 * scores - 500)  # other units of reward, same weights
    np.testing.assert_allclose(softmax_weights(far, 0.3), expected, rtol=1e-3)


def test_what_is_not_finite_weighs_nothing():
    scores = jnp.array([-1e9, -jnp.inf, -2e9, -jnp.inf], jnp.float32)
    weights = np.asarray(softmax_weights(scores, 1.0))
    assert weights[1] == weights[3] == 0
    np.testing.assert_allclose(weights[[0, 2]], scipy.special.softmax([2.0, 0.0]), rtol=1e-5)
    np.testing.assert_array_equal(softmax_weights(jnp.full(3, -jnp.inf, jnp.float32), 1.0), np.zeros(3))
    np.testing.assert_allclose(softmax_weights(jnp.full(4, 7.0, jnp.float32), 1.0), 0.25)


def test_one_iteration_is_the_weighted_mean_of_the_samples():
    config = MPPIConfig(num_samples=40, iterations=1, horizon=5, temperature=0.5)
    mdp, planner, key = memoryless([0.5]), MPPI(config), jr.key(0)
    start = planner.init(mdp, key=jr.key(1))
    action, state = planner.act(start, mdp, jnp.zeros(1, jnp.float32), key=key)
    noise_key, _ = jr.split(jr.clone(key))
    noise = coloured_noise((40, 1, 5), config.noise_exponent, key=jr.fold_in(noise_key, 0))
    plans = np.clip(0.5 * np.asarray(noise, np.float64)[:, 0], -1, 1)
    scores = -((plans - 0.5) ** 2).sum(axis=1)
    mean = scipy.special.softmax(scores / (0.5 * scores.std())) @ plans
    np.testing.assert_allclose(action, mean[:1], atol=1e-5)
    np.testing.assert_allclose(state.plan[:, 0], [*mean[1:], mean[-1]], atol=1e-5)
    np.testing.assert_allclose(state.planned_return, scores.max(), rtol=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": 0.0}, {"temperature": float("nan")}, {"std_update": 2.0}, {"num_samples": 0}],
    ids=str,
)
def test_nonsense_is_refused_in_a_sentence(wrong):
    with pytest.raises(SombrlError, match="--mppi." + next(iter(wrong)).replace("_", "-")):
        MPPIConfig(**wrong)
