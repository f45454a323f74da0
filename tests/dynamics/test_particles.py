"""Particles against NumPy and SciPy: their start, their predictions, their noise, and what is drawn from them."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.special
import scipy.stats

from sombrl.dynamics.coordinates import AbstractCoordinates, Differences
from sombrl.dynamics.particles import (
    Network,
    ParticleDynamics,
    Particles,
    Statistics,
    noise_std,
    raw_noise,
)
from tests.dynamics.toy import fast_jit

OBS, ACTION = jnp.array([0.3, -0.7], jnp.float32), jnp.array([0.5], jnp.float32)
UNITS = Statistics(*(jnp.array(v, jnp.float32) for v in ([0.1, -0.2, 0.0], [2.0, 3.0, 1.0], [0.5, -0.5], [0.1, 4.0])))


@fast_jit
def predict(model, obs):
    return model.predict(obs, ACTION)


@fast_jit
def sample(model, obs, keys):
    transitions = jax.vmap(lambda k: model.transition(obs, ACTION, key=k))(keys)
    resampled = transitions
    if isinstance(model, ParticleDynamics):
        resampled = jax.vmap(lambda k: model.resample(obs, ACTION, key=jr.fold_in(k, 1)))(keys)
    return transitions, resampled


def networks(number, inputs=3, hidden=(5, 4), outputs=2, activation="leaky-relu", seed=0):
    make = eqx.filter_vmap(lambda key: Network(inputs, hidden, outputs, activation, key=key))
    return fast_jit(lambda keys: make(keys))(jr.split(jr.key(seed), number))


@functools.cache
def dynamics(number=6):
    posterior = Particles(networks(number), raw_noise(jnp.array([0.3, 0.05], jnp.float32)), UNITS)
    return ParticleDynamics(posterior, Differences(2, 1))


def by_hand(particles):
    """Every particle's physical target at (OBS, ACTION), in NumPy."""
    x = (np.concatenate([OBS, ACTION]) - np.asarray(UNITS.x_mean)) / np.asarray(UNITS.x_std)
    values = []
    for i in range(particles.number):
        h = x
        for weight, bias in zip(particles.networks.weights[:-1], particles.networks.biases[:-1], strict=True):
            h = h @ np.asarray(weight[i]) + np.asarray(bias[i])
            h = np.where(h > 0, h, 0.01 * h)
        values.append(h @ np.asarray(particles.networks.weights[-1][i]) + np.asarray(particles.networks.biases[-1][i]))
    return np.asarray(UNITS.y_mean) + np.asarray(UNITS.y_std) * np.stack(values)


def test_the_start_is_the_published_one():
    start = networks(200, inputs=24, hidden=(30, 20), outputs=5)
    for i, fan_in in enumerate((24, 30)):
        weight, bias = np.asarray(start.weights[i]), np.asarray(start.biases[i])
        assert np.abs(weight).max() <= np.sqrt(6 / fan_in) and np.abs(bias).max() <= 1 / np.sqrt(fan_in)
        np.testing.assert_allclose(weight.var(), 2 / fan_in, rtol=0.02)  # He
        np.testing.assert_allclose(bias.var(), 1 / (3 * fan_in), rtol=0.08)
    last = np.asarray(start.weights[-1])
    np.testing.assert_allclose(last.var(), 1 / 20, rtol=0.03)  # LeCun
    bound = 2 / scipy.stats.truncnorm(-2, 2).std() / np.sqrt(20)
    assert 0.97 * bound < np.abs(last).max() <= bound * 1.0001
    assert not np.any(start.biases[-1])
    assert not np.array_equal(start.weights[0][0], start.weights[0][1])


def test_a_network_without_hidden_layers_is_linear():
    line = Network(3, (), 2, "tanh", key=jr.key(0))
    x = jnp.arange(3, dtype=jnp.float32)
    np.testing.assert_allclose(np.asarray(line(x)), np.asarray(x) @ np.asarray(line.weights[0]), rtol=1e-6)


@pytest.mark.parametrize("name", ["leaky-relu", "silu", "tanh"])
def test_activations(name):
    one = Network(1, (1,), 1, name, key=jr.key(0))
    one = eqx.tree_at(lambda n: (n.weights, n.biases), one, ((jnp.ones((1, 1)),) * 2, (jnp.zeros(1),) * 2))
    truth = {"leaky-relu": [-0.02, 1.5], "silu": [-2 / (1 + np.exp(2)), 1.5 / (1 + np.exp(-1.5))]}
    truth["tanh"] = np.tanh([-2.0, 1.5])
    values = [float(one(jnp.array([x], jnp.float32))[0]) for x in (-2.0, 1.5)]
    np.testing.assert_allclose(values, truth[name], rtol=1e-5)


def test_noise_is_a_softplus_and_has_an_inverse():
    std = jnp.array([1e-3, 0.02, 0.5, 3.0], jnp.float32)
    np.testing.assert_allclose(np.asarray(noise_std(raw_noise(std))), np.asarray(std), rtol=1e-4)
    raw = np.array([-4.0, 0.0, 2.0], np.float32)
    np.testing.assert_allclose(np.asarray(noise_std(jnp.asarray(raw))), np.log1p(np.exp(raw)) + 1e-4, rtol=1e-5)
    assert float(noise_std(jnp.full(1, -100.0))[0]) > 0


def test_predictions_by_hand():
    model = dynamics()
    targets = by_hand(model.posterior)
    prediction = predict(model, OBS)
    np.testing.assert_allclose(np.asarray(prediction.mean), np.asarray(OBS) + targets.mean(0), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(prediction.epistemic_std), targets.std(0), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(prediction.aleatoric_std), [0.03, 0.2], rtol=1e-4)
    np.testing.assert_allclose(np.asarray(prediction.scale), [0.1, 4.0], rtol=1e-6)
    means, noise = model.particles(OBS, ACTION)
    np.testing.assert_allclose(np.asarray(means), targets, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(noise), [0.03, 0.2], rtol=1e-4)


def test_the_density_is_that_of_the_mixture():
    posterior, y = dynamics().posterior, np.array([0.55, -1.0], np.float32)
    x = jnp.concatenate([OBS, ACTION])
    each = scipy.stats.norm(by_hand(posterior), [0.03, 0.2]).logpdf(y).sum(1)
    truth = scipy.special.logsumexp(each) - np.log(posterior.number)
    np.testing.assert_allclose(float(posterior.log_density(x, jnp.asarray(y))), truth, rtol=1e-3)


def test_transitions_are_around_the_mean_and_samples_around_particles():
    model = dynamics()
    targets, noise = by_hand(model.posterior), np.array([0.03, 0.2])
    transitions, samples = (
        np.asarray(rows) - np.asarray(OBS) for rows in sample(model, OBS, jr.split(jr.key(1), 20_000))
    )
    np.testing.assert_allclose(transitions.mean(0), targets.mean(0), atol=0.01)
    np.testing.assert_allclose(transitions.std(0), noise, rtol=0.03)
    np.testing.assert_allclose(samples.mean(0), targets.mean(0), atol=0.05 * targets.std(0).max())
    np.testing.assert_allclose(samples.std(0), np.sqrt(targets.var(0) + noise**2), rtol=0.03)


def test_a_drawn_particle_is_one_of_them_and_certain():
    model = dynamics()
    targets = np.asarray(OBS) + by_hand(model.posterior)
    seen = set()
    for seed in range(12):
        drawn = model.draw(key=jr.key(seed))
        prediction = predict(drawn, OBS)
        assert not np.any(prediction.epistemic_std)
        np.testing.assert_allclose(np.asarray(prediction.aleatoric_std), [0.03, 0.2], rtol=1e-4)
        distance = np.abs(targets - np.asarray(prediction.mean)).max(1)
        assert distance.min() < 1e-4
        seen.add(int(distance.argmin()))
    assert len(seen) > 2
    rows = np.asarray(sample(drawn, OBS, jr.split(jr.key(5), 2000))[0])
    np.testing.assert_allclose(rows.std(0), [0.03, 0.2], rtol=0.1)
    np.testing.assert_allclose(rows.mean(0), np.asarray(prediction.mean), atol=0.02)


class Circle(AbstractCoordinates):
    """An angle seen as (cos, sin) whose turn is predicted, and a third number that is known."""

    input_dim: int = eqx.field(static=True, default=3)
    target_dim: int = eqx.field(static=True, default=1)

    def inputs(self, obs, action):
        return jnp.concatenate([obs[:2], action])

    def targets(self, obs, action, next_obs):
        return (jnp.arctan2(next_obs[1], next_obs[0]) - jnp.arctan2(obs[1], obs[0]))[None]

    def next_obs(self, obs, action, target):
        angle = jnp.arctan2(obs[1], obs[0]) + target[0]
        return jnp.stack([jnp.cos(angle), jnp.sin(angle), obs[2]])

    def spread(self, obs, std):
        return jnp.stack([jnp.abs(obs[1]) * std[0], jnp.abs(obs[0]) * std[0], jnp.zeros_like(std[0])])


def test_noise_goes_through_the_coordinates_and_known_numbers_have_no_doubt():
    units = Statistics(jnp.zeros(3), jnp.ones(3), jnp.zeros(1), jnp.full(1, 0.5))
    posterior = Particles(networks(4, outputs=1), raw_noise(jnp.full(1, 0.4)), units)
    model = ParticleDynamics(posterior, Circle())
    obs = jnp.array([0.6, 0.8, 7.0], jnp.float32)
    prediction = predict(model, obs)
    assert float(prediction.epistemic_std[2]) == 0 and float(prediction.scale[2]) == 1
    values = np.asarray(posterior(jnp.concatenate([obs[:2], ACTION])))[:, 0]
    np.testing.assert_allclose(
        np.asarray(prediction.epistemic_std[:2]), values.std() * 0.5 * np.array([0.8, 0.6]), rtol=1e-4
    )
    ratio = np.asarray(prediction.epistemic_std / prediction.scale)
    np.testing.assert_allclose(ratio, [values.std(), values.std(), 0.0], rtol=1e-4)
    for rows in sample(model, obs, jr.split(jr.key(0), 50)):
        np.testing.assert_allclose(np.asarray(rows[:, 0] ** 2 + rows[:, 1] ** 2), 1.0, atol=1e-5)
        assert np.all(np.asarray(rows[:, 2]) == 7.0) and np.asarray(rows[:, 0]).std() > 0.05


def test_one_particle_knows_no_doubt_and_gradients_are_finite():
    model = ParticleDynamics(Particles(networks(1), jnp.zeros(2), UNITS), Differences(2, 1))
    assert not np.any(predict(model, OBS).epistemic_std)
    slope = fast_jit(jax.grad(lambda x: jnp.sum(model.predict(x, ACTION).epistemic_std)))(OBS)
    assert np.all(np.isfinite(slope))
