"""A simulator as a prior: its draws, its units, its score, and what particles make of it before there are data."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.dynamics.coordinates import Differences
from sombrl.dynamics.measurement import BOX_WIDTH, Rows, Sampler
from sombrl.dynamics.particle_config import ParticleConfig
from sombrl.dynamics.particle_learner import ParticleLearner
from sombrl.dynamics.particles import Statistics
from sombrl.dynamics.sim_prior import (
    AbstractSimulator,
    AdditiveGP,
    SimulatorPrior,
    draw_domain,
    draw_functions,
    simulator_statistics,
)
from sombrl.replay import Replay
from tests.dynamics.data import replay_of, wave
from tests.dynamics.toy import Curve, Sines, fast_jit

POINTS = jnp.array([[-1.5], [-0.4], [0.1], [0.9], [1.7]], jnp.float32)


class Lines(AbstractSimulator):
    """Two outputs with Gaussian parameters: y = (a x, 3 + b), so that the prior is a Gaussian with known moments."""

    def draw(self, *, key):
        return jr.normal(key, (2,), jnp.float32)

    def __call__(self, parameters, inputs):
        a, b = parameters
        return jnp.stack([a * inputs[0], 3.0 + 0.5 * b])

    def domain(self, *, key):
        return jr.uniform(key, (1,), jnp.float32, 1.0, 4.0)


def test_functions_are_those_of_their_parameters():
    simulator = Sines()
    values = draw_functions(simulator, POINTS, 4, key=jr.key(3))
    for i, key in enumerate(jr.split(jr.key(3), 4)):
        p = simulator.draw(key=key)
        truth = float(p["a"]) * np.sin(2 * np.asarray(POINTS)) + float(p["c"])
        np.testing.assert_allclose(np.asarray(values[i]), truth, rtol=1e-5, atol=1e-6)


def test_units_are_numpys_of_the_domain_and_its_functions():
    domain_key, function_key = jr.split(jr.key(7))
    inputs = draw_domain(Lines(), 1000, key=domain_key)
    values = np.asarray(draw_functions(Lines(), inputs, 10, key=function_key))
    units = simulator_statistics(Lines(), key=jr.key(7))
    np.testing.assert_allclose(np.asarray(units.x_mean), np.asarray(inputs).mean(0), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(units.x_std), np.asarray(inputs).std(0), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(units.y_mean), values.reshape(-1, 2).mean(0), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(np.asarray(units.y_std), 1.5 * values.reshape(-1, 2).std(0), rtol=1e-4)
    assert float(units.x_std[0]) == pytest.approx(3 / np.sqrt(12), rel=0.05)  # uniform of width 3


def test_the_additive_gp_has_the_stated_covariance():
    gp = AdditiveGP(jnp.array([0.5, 2.0], jnp.float32), 1.3)
    x = np.asarray(POINTS)[:, 0]
    kernel = np.exp(-0.5 * ((x[:, None] - x[None]) / 1.3) ** 2)
    np.testing.assert_allclose(np.asarray(gp.gram(POINTS)), kernel, atol=1e-6)
    draws = np.asarray(jax.jit(lambda k: gp.draw(POINTS, 20_000, key=k))(jr.key(0)))
    assert np.abs(draws.mean(0)).max() < 0.06
    for j, scale in enumerate((0.5, 2.0)):
        np.testing.assert_allclose(np.cov(draws[:, :, j].T, bias=True) / scale**2, kernel, atol=0.04)
    between = np.mean(draws[:, :, 0] * draws[:, :, 1], axis=0)
    assert np.abs(between).max() < 0.03  # outputs are independent


UNITS = Statistics(*(jnp.array(v, jnp.float32) for v in ([2.0], [1.0], [0.5, 2.0], [2.0, 0.8])))


def prior(estimator="gp", functions=4000, draw_additive=False, additive=True):
    gp = AdditiveGP(jnp.array([0.6, 0.4], jnp.float32), 0.9) if additive else None
    return SimulatorPrior(Lines(), gp, UNITS, functions, estimator, 0.1, draw_additive)


@functools.cache
def truth():
    """Mean and covariance of both outputs, normalised, and the score at some values."""
    x = np.asarray(POINTS, np.float64)[:, 0]
    kernel = np.exp(-0.5 * ((x[:, None] - x[None]) / 0.9) ** 2)
    values = np.random.default_rng(0).normal(size=(4, 5, 2))
    means, covariances, scores = [], [], []
    for j, (mean, covariance, scale) in enumerate(
        ((np.zeros(5), np.outer(x, x), 0.6), (np.full(5, 3.0), np.full((5, 5), 0.25), 0.4))
    ):
        mean = (mean - float(UNITS.y_mean[j])) / float(UNITS.y_std[j])
        covariance = (covariance + scale**2 * kernel) / float(UNITS.y_std[j]) ** 2
        scores.append(-np.linalg.solve(covariance + 0.01 * np.eye(5), (values[:, :, j] - mean).T).T)
        means.append(mean)
        covariances.append(covariance)
    return values, np.stack(means, 1), covariances, np.stack(scores, 2)


@pytest.mark.parametrize(("draw_additive", "tolerance"), [(False, 0.1), (True, 0.15)])
def test_the_score_is_that_of_simulator_plus_gp(draw_additive, tolerance):
    """With its covariance added, or drawn with every function: the same Gaussian, estimated from 4000 functions."""
    values, means, covariances, scores = truth()
    answer = prior(draw_additive=draw_additive)(POINTS, jnp.asarray(values, jnp.float32), key=jr.key(0))
    np.testing.assert_allclose(np.asarray(answer.mean), means, atol=0.06)
    np.testing.assert_allclose(np.asarray(answer.std) ** 2, np.stack([np.diag(c) for c in covariances], 1), rtol=0.15)
    error = np.sqrt(np.sum((np.asarray(answer.score) - scores) ** 2) / np.sum(scores**2))
    assert error < tolerance


def test_without_additive_gp_the_simulator_is_all():
    values, *_ = truth()
    with_gp, without = (
        prior(additive=flag)(POINTS, jnp.asarray(values, jnp.float32), key=jr.key(0)) for flag in (1, 0)
    )
    assert np.all(np.asarray(without.std) < np.asarray(with_gp.std))
    np.testing.assert_allclose(np.asarray(without.std[:, 1]), 0.5 / 0.8, rtol=0.05)


@pytest.mark.parametrize("estimator", ["ssge", "nu-method", "kde"])
def test_other_estimators_see_each_output_alone(estimator):
    """And point towards the prior's mean: the score's component that way is positive for every particle far off."""
    values = np.asarray(truth()[1])[None] + np.array([[[4.0, 0.0]], [[0.0, -4.0]]])
    ours, values = prior(estimator, functions=100), jnp.asarray(values, jnp.float32)
    compiled = fast_jit(lambda v, k: ours(POINTS, v, key=k))
    answer = compiled(values, jr.key(0))
    score = np.asarray(answer.score).sum(1)  # [particles, target]
    assert score[0, 0] < 0 < score[1, 1]
    other = compiled(values.at[:, :, 1].add(1.0), jr.key(0))
    np.testing.assert_allclose(np.asarray(other.score[:, :, 0]), np.asarray(answer.score[:, :, 0]), rtol=1e-4)
    assert prior(estimator).legacy_weight(10, 48) == (1.0 if estimator == "kde" else pytest.approx(1 / 48))


def test_two_seeds_side_by_side_are_each_alone():
    """Also where a covariance is factorised to draw from it."""
    ours, values = prior(functions=50, draw_additive=True), jnp.asarray(truth()[0], jnp.float32)
    together = fast_jit(jax.vmap(lambda k: ours(POINTS, values, key=k).score))(jr.split(jr.key(0), 2))
    alone = fast_jit(lambda k: ours(POINTS, values, key=k).score)
    for i in range(2):
        ours_alone = alone(jr.split(jr.key(0), 2)[i])
        np.testing.assert_allclose(np.asarray(together[i]), np.asarray(ours_alone), rtol=1e-3, atol=1e-3)


# ------------------------------------------------------------------------------------------- measurement points

DATA = replay_of(wave(30))
BOX = Statistics(*(jnp.array(v, jnp.float32) for v in ([5.0, 0.0, 0.0], [1.0, 2.0, 0.1], [0.0, 0.0], [1.0, 1.0])))


def sampler(neighbours, visited, elsewhere, width=0.0):
    return Sampler(Differences(2, 1), None, BOX, 4, neighbours, visited, elsewhere, width)


@fast_jit
def batches(ours, rows, keys):
    return jax.vmap(lambda k: ours(rows, key=k))(keys)


def test_measurement_points_are_of_three_kinds():
    rows = Rows.of(DATA, Differences(2, 1), 5)
    training = np.asarray(rows.inputs)[[i for i in range(30) if i % 5 != 4]]
    batch = batches(sampler(3, 2, 5), rows, jr.split(jr.key(0), 200))
    points = np.asarray(batch.points)
    assert points.shape == (200, 10, 3)

    def known(inputs, columns):
        return (np.abs(inputs[..., None, columns] - training[:, columns]).max(-1) < 1e-6).any(-1)

    assert known(np.asarray(batch.inputs), [0, 1, 2]).all()
    assert known(points[:, :3], [0, 1, 2]).all()  # neighbours, at no distance
    assert known(points[:, 3:5], [0, 1]).all() and not known(points[:, 3:5], [2]).any()  # new actions
    actions = points[:, 3:5, 2]
    assert np.abs(actions).max() <= 1 and actions.std() == pytest.approx(1 / np.sqrt(3), rel=0.1)
    elsewhere = (points[:, 5:] - np.asarray(BOX.x_mean)) / np.asarray(BOX.x_std)
    assert np.abs(elsewhere).max() <= BOX_WIDTH
    np.testing.assert_allclose(elsewhere.std((0, 1)), BOX_WIDTH / np.sqrt(3), rtol=0.05)
    assert np.all(np.asarray(batch.count) == 24)
    targets = {tuple(row) for row in np.asarray(rows.targets).round(5).tolist()}
    assert {tuple(row) for row in np.asarray(batch.targets[0]).round(5).tolist()} <= targets


def test_neighbours_are_displaced_in_normalised_units():
    one = eqx.tree_at(lambda r: r.count, Rows.of(DATA, Differences(2, 1), None), jnp.ones((), jnp.int32))
    points = np.asarray(batches(sampler(3, 0, 0, width=0.2), one, jr.split(jr.key(0), 500)).points)
    offset = (points - np.asarray(one.inputs[0])) / np.asarray(BOX.x_std)
    np.testing.assert_allclose(offset.std((0, 1)), 0.2, rtol=0.1)


def test_without_data_all_is_domain():
    empty = Rows.of(Replay.empty(16, 2, 1), Differences(2, 1), 5)
    batch = batches(sampler(3, 2, 5), empty, jr.split(jr.key(0), 200))
    for inputs in (batch.inputs, batch.points):
        unit = (np.asarray(inputs) - np.asarray(BOX.x_mean)) / np.asarray(BOX.x_std)
        assert np.abs(unit).max() <= BOX_WIDTH
        np.testing.assert_allclose(unit.std((0, 1)), BOX_WIDTH / np.sqrt(3), rtol=0.05)
    assert not np.any(batch.count)


# ----------------------------------------------------------------------------------------------- the prior alone


@pytest.mark.thorough
def test_without_data_particles_become_the_prior():
    """Their mean is the simulator's and their spread too, where their kernel does not vanish."""
    settings = {"hidden": (32, 32), "functions": 64, "learning_rate": 3e-3, "bandwidth": None, "resolution": 0.1}
    ours = ParticleLearner(Curve(), ParticleConfig(steps=2500, **settings), Sines())
    start = ours.init(key=jr.key(0))
    state, metrics = jax.jit(lambda s, k: ours.fit(s, Replay.empty(32, 1, 1), key=k))(start, jr.key(1))
    grid = jnp.linspace(-2, 2, 41)[:, None]
    prediction = jax.jit(jax.vmap(lambda o: ours.dynamics(state).predict(o, jnp.zeros(1))))(grid)
    mean, std = np.asarray(Sines.mean(grid)), np.asarray(Sines.std(grid))
    assert np.sqrt(np.mean((np.asarray(prediction.mean) - mean) ** 2)) < 0.3 * std.mean()
    ratio = np.asarray(prediction.epistemic_std) / std
    assert ratio.min() > 0.6 and ratio.max() < 1.3
    np.testing.assert_allclose(np.asarray(state.particles.raw_noise), np.asarray(start.particles.raw_noise), rtol=1e-6)
    assert float(metrics["model/epistemic"]) == pytest.approx(float(metrics["model/prior_std"]), rel=0.5)
    assert float(metrics["model/prior_distance"]) < 1 and float(metrics["model/held_out_nll"]) == 0
