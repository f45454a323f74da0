"""The learner of particle models: which rows it trains on and is judged by, its noise, its seeds, its settings."""

import dataclasses
import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.dynamics.coordinates import Differences
from sombrl.dynamics.measurement import Rows
from sombrl.dynamics.particle_config import ParticleConfig
from sombrl.dynamics.particle_learner import ParticleLearner, _Best, _data_statistics, judged
from sombrl.dynamics.particles import Particles, Statistics
from sombrl.replay import Replay
from tests.dynamics.data import replay_of, same, wave
from tests.dynamics.toy import TINY, Curve, Sines, curve, fast_jit

X = np.random.default_rng(0).uniform(-2, 2, 40)
DATA = curve(X, np.sin(2 * X) + 0.2)
TRACES: list[ParticleConfig] = []


def learner(**settings) -> ParticleLearner:
    return ParticleLearner(Curve(), ParticleConfig(**(TINY | settings)), Sines())


@functools.cache
def initial(seed=0):
    return fast_jit(lambda key: learner().init(key=key))(jr.key(seed))


@functools.cache
def compiled(config):
    def fit(state, replay, key):
        TRACES.append(config)
        return ParticleLearner(Curve(), config, Sines()).fit(state, replay, key=key)

    return fast_jit(fit)


def fit(ours, replay, state=None, seed=1):
    return compiled(ours.config)(initial() if state is None else state, replay, jr.key(seed))


# ---------------------------------------------------------------------------------------------------- rows of data


def test_every_fifth_row_is_held_out_and_never_picked():
    rows = Rows.of(DATA, Curve(), 5)
    assert int(rows.training) == 32
    picked = np.asarray(rows.pick(jr.uniform(jr.key(0), (3000,))))
    expected = [i for i in range(40) if i % 5 != 4]
    assert sorted(set(picked.tolist())) == expected
    counts = np.bincount(picked, minlength=40)[expected]
    assert counts.min() > 0.5 * 3000 / 32 and counts.max() < 1.5 * 3000 / 32
    assert np.asarray(rows.held_out).tolist() == list(range(4, 64, 5))
    everything = Rows.of(DATA, Curve(), None)
    assert set(np.asarray(everything.pick(jr.uniform(jr.key(1), (3000,)))).tolist()) == set(range(40))
    edge = rows.pick(jnp.array([0.0, np.nextafter(np.float32(1), np.float32(0))]))
    assert np.asarray(edge).tolist() == [0, 38]


@pytest.mark.thorough
def test_held_out_rows_teach_nothing():
    """Absurd targets there change the judgement and not one weight; elsewhere they do."""
    held = jnp.arange(64) % 5 == 4
    poisoned, elsewhere = (
        dataclasses.replace(DATA, data=eqx.tree_at(lambda d: d.next_obs, DATA.data, 1e3 * mask + DATA.data.next_obs))
        for mask in (held[:, None].astype(jnp.float32), (~held)[:, None].astype(jnp.float32))
    )
    one_look = learner(check_every=4, learn_noise=False)  # with more, they decide which particles are kept
    (plain, good), (same_as_plain, bad), (other, _) = (fit(one_look, rows) for rows in (DATA, poisoned, elsewhere))
    assert same(plain, same_as_plain) and not same(plain.particles, other.particles)
    assert float(bad["model/held_out_nll"]) > 1e3 * abs(float(good["model/held_out_nll"]))
    assert np.array_equal(plain.particles.raw_noise, initial().particles.raw_noise)  # and noise stays as it was


@pytest.mark.slow
def test_of_many_looks_the_best_one_counts():
    """Steps too large to end well: looking only at the end would keep what is worse."""
    often, once = (fit(learner(steps=30, check_every=n, learning_rate=0.5), DATA)[1] for n in (1, 30))
    assert float(often["model/held_out_nll"]) < 0.8 * float(once["model/held_out_nll"])


def particles(shift=0.0, noise=0.0) -> Particles:
    start = initial().particles
    networks = eqx.tree_at(lambda n: n.biases[-1], start.networks, start.networks.biases[-1] + shift)
    return Particles(networks, start.raw_noise + noise, start.statistics)


@pytest.mark.thorough
def test_the_judgement_by_hand():
    rows = Rows.of(DATA, Curve(), 5)
    ours = particles()
    held = np.arange(4, 40, 5)
    x, y = DATA.data.obs[held], DATA.data.next_obs[held]
    values = np.asarray(jax.vmap(jax.vmap(ours.statistics.physical))(jax.vmap(ours)(x)))  # [rows, particles, 1]
    answer = judged(ours, rows)
    error = values.mean(1) - np.asarray(y)
    np.testing.assert_allclose(float(answer["model/held_out_rmse"]), np.sqrt(np.mean(error**2)), rtol=1e-4)
    std = np.asarray(ours.noise_std * ours.statistics.y_std)
    density = np.exp(-0.5 * ((values - np.asarray(y)[:, None]) / std) ** 2) / std / np.sqrt(2 * np.pi)
    nll = -np.mean(np.log(density[..., 0].mean(1)))
    np.testing.assert_allclose(float(answer["model/held_out_nll"]), nll, rtol=1e-3)
    np.testing.assert_allclose(float(answer["model/noise"]), float(ours.noise_std[0]), rtol=1e-6)


@pytest.mark.thorough
def test_the_better_particles_are_kept_and_what_is_not_finite_loses():
    rows = Rows.of(DATA, Curve(), 5)
    first = _Best.none(particles(9.0)).or_better(particles(), rows)
    assert same(first.particles, particles())
    assert same(first.or_better(particles(5.0), rows), first)  # worse
    assert same(first.or_better(particles(jnp.nan), rows), first)
    assert same(first.or_better(particles(noise=0.5), rows).particles, particles(noise=0.5)) == bool(
        judged(particles(noise=0.5), rows)["model/held_out_nll"] <= first.metrics["model/held_out_nll"]
    )
    nothing_held = Rows.of(DATA, Curve(), None)
    last = _Best.none(particles()).or_better(particles(), nothing_held).or_better(particles(5.0), nothing_held)
    assert same(last.particles, particles(5.0))
    assert same(last.or_better(particles(jnp.nan), nothing_held), last)


# ------------------------------------------------------------------------------------------------------- fits


def test_nothing_is_compiled_again_as_data_grow():
    ours = learner()
    results = [fit(ours, curve(X[:n], np.sin(X[:n]))) for n in (0, 1, 3, 20, 40)]
    assert TRACES.count(ours.config) == 1
    for state, metrics in results:
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((state, metrics)))
    assert not any(same(a[0], b[0]) for a, b in itertools.pairwise(results))
    assert float(results[2][1]["model/held_out_nll"]) == 0.0  # none of three rows is a fifth


def test_a_fresh_fit_forgets_and_a_warm_one_goes_on():
    fresh, warm = learner(), learner(fresh=False)
    ahead, _ = fit(warm, DATA)
    assert same(fit(fresh, DATA, ahead)[0], fit(fresh, DATA)[0])
    assert not same(fit(warm, DATA, ahead)[0], fit(warm, DATA)[0])
    counts = [int(leaf) for leaf in jax.tree.leaves(fit(warm, DATA, ahead)[0].optimiser) if leaf.shape == ()]
    assert counts and set(counts) == {8}  # Adam's own clock


@pytest.mark.optimised
def test_seeds_side_by_side_are_seeds_alone():
    """The path of an accelerator: everything vmapped."""
    ours = learner()
    states = [initial(0), initial(1)]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    both = fast_jit(jax.vmap(lambda s, k: ours.fit(s, DATA, key=k)))(together, jr.split(jr.key(3), 2))
    for i, state in enumerate(states):
        alone = compiled(ours.config)(state, DATA, jr.split(jr.key(3), 2)[i])
        for a, b in zip(jax.tree.leaves(both), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(np.asarray(a)[i], np.asarray(b), rtol=1e-3, atol=1e-3)


@pytest.mark.thorough
def test_noise_is_found_and_doubt_grows_away_from_data():
    rng = np.random.default_rng(1)
    x = rng.uniform(-2.0, -0.2, 500)
    y = 1.3 * np.sin(2 * x) + 0.5 + 0.2 * rng.normal(size=500)
    config = ParticleConfig(
        hidden=(32, 32), steps=2500, check_every=500, functions=64, bandwidth=None, resolution=0.1, learning_rate=3e-3
    )
    ours = ParticleLearner(Curve(), config, Sines(), noise_std=jnp.full(1, 0.8))
    state, metrics = jax.jit(lambda k: ours.fit(ours.init(key=k), curve(x, y, 512), key=jr.fold_in(k, 1)))(jr.key(0))
    grid = jnp.linspace(-2.0, 2.0, 41)[:, None]
    prediction = jax.jit(jax.vmap(lambda o: ours.dynamics(state).predict(o, jnp.zeros(1))))(grid)
    np.testing.assert_allclose(np.asarray(prediction.aleatoric_std), 0.2, rtol=0.15)
    np.testing.assert_allclose(
        np.asarray(prediction.mean[:18, 0]), np.asarray(1.3 * jnp.sin(2 * grid[:18, 0]) + 0.5), atol=0.12
    )
    epistemic = np.asarray(prediction.epistemic_std[:, 0])
    assert epistemic[25:].mean() > 2 * epistemic[:18].mean()
    assert epistemic[25:].mean() < float(jnp.mean(Sines.std(grid)))  # the data told which curve it is
    assert float(metrics["model/held_out_rmse"]) < 0.25


def test_noise_starts_as_given():
    ours = ParticleLearner(Curve(), ParticleConfig(**TINY), Sines(), noise_std=jnp.full(1, 0.3))
    start = fast_jit(lambda k: ours.init(key=k))(jr.key(0))
    np.testing.assert_allclose(np.asarray(start.particles.noise_std * start.particles.statistics.y_std), 0.3, rtol=1e-4)
    assert ours.task(start) is None
    learned, _ = fit(learner(), DATA)
    assert not np.array_equal(learned.particles.raw_noise, initial().particles.raw_noise)


@pytest.mark.parametrize(("rate", "decay"), [(1e-2, 0.1), (1e-3, 0.0)])
def test_networks_decay_and_noise_does_not(rate, decay):
    """The first step of AdamW: -rate (sign of the gradient + decay · weight)."""
    optimiser = learner(learning_rate=rate, weight_decay=decay).optimiser
    values = jnp.array([2.0, -3.0], jnp.float32), jnp.array([5.0], jnp.float32)
    slopes = jnp.array([0.5, -0.1], jnp.float32), jnp.array([1.0], jnp.float32)
    with jax.numpy_dtype_promotion("standard"):
        (networks, noise), _ = optimiser.update(slopes, optimiser.init(values), values)
    np.testing.assert_allclose(np.asarray(networks), [-rate * (1 + 2 * decay), -rate * (-1 - 3 * decay)], rtol=1e-4)
    np.testing.assert_allclose(np.asarray(noise), [-rate], rtol=1e-4)


@pytest.mark.thorough
def test_without_a_simulator_the_units_are_those_of_the_data():
    data, coordinates = replay_of(wave(30)), Differences(2, 1)
    rows = Rows.of(data, coordinates, 5)
    units = _data_statistics(rows, data.mask)
    x = np.concatenate([data.data.obs, data.data.action], axis=1)[:30]
    y = np.asarray(data.data.next_obs - data.data.obs)[:30]
    for ours, truth in zip(jax.tree.leaves(units), (x.mean(0), x.std(0), y.mean(0), y.std(0)), strict=True):
        np.testing.assert_allclose(np.asarray(ours), truth, rtol=1e-4, atol=1e-5)
    empty = Replay.empty(16, 2, 1)
    assert same(_data_statistics(Rows.of(empty, coordinates, 5), empty.mask), Statistics.identity(3, 2))
    still = replay_of(jax.tree.map(jnp.zeros_like, wave(2)))
    assert np.all(np.asarray(_data_statistics(Rows.of(still, coordinates, 5), still.mask).y_std) == np.float32(1e-3))
