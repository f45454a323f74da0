"""Noise of the worlds: its moments against scipy's, its bounds, and where it enters."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

from sombrl.envs.mountain_car import MountainCar
from sombrl.envs.noise import LAPLACE_CUT, Noise, unit_noise
from sombrl.envs.pendulum import DT, Pendulum
from sombrl.envs.registry import make_envs
from sombrl.records import SombrlError

BOUNDS = {"uniform": np.sqrt(3), "rademacher": 1.0, "laplace": 3.25}


def reference(kind):
    if kind == "laplace":
        plain = scipy.stats.laplace()
        low, high = plain.cdf(-LAPLACE_CUT), plain.cdf(LAPLACE_CUT)
        cut = plain.ppf(low + (high - low) * (np.arange(200_000) + 0.5) / 200_000)
        return scipy.stats.ecdf(cut / cut.std()).cdf.evaluate
    return {"gaussian": scipy.stats.norm, "uniform": scipy.stats.uniform(-np.sqrt(3), 2 * np.sqrt(3))}[kind].cdf


@pytest.mark.parametrize("kind", ["gaussian", "uniform", "laplace", "rademacher"])
def test_unit_noise_has_its_distribution(kind, key):
    draws = np.asarray(unit_noise(kind, (20_000,), key=key), np.float64)
    assert abs(draws.mean()) < 4 / np.sqrt(len(draws)) and abs(draws.var() - 1) < 0.05
    if kind == "rademacher":
        assert set(np.unique(draws)) == {-1.0, 1.0}
    else:
        assert scipy.stats.kstest(draws, reference(kind)).pvalue > 1e-3
    if kind in BOUNDS:
        assert np.abs(draws).max() <= BOUNDS[kind] + 1e-6


def test_heteroscedastic_noise_grows_with_the_action():
    noise = Noise("uniform", 0.5, growth=2.0)
    for seed, size, expected in ((0, 0.0, 0.5), (1, 1.0, 1.5)):
        draws = jax.vmap(lambda k, size=size: noise(jnp.full(1, size, jnp.float32), 2, key=k))(
            jr.split(jr.key(seed), 4000)
        )
        np.testing.assert_allclose(np.asarray(draws).std(0), expected, rtol=0.05)


@pytest.mark.parametrize("world", [Pendulum, MountainCar])
def test_a_frame_is_the_quiet_frame_plus_noise(world):
    quiet, loud = world(), world(noise="rademacher", noise_std=0.1)
    action, state = jnp.array([0.3], jnp.float32), quiet.reset(key=jr.key(1)) + jnp.array([0.2, 0.01], jnp.float32)
    units = np.array([DT, 1.0]) if world is Pendulum else np.array([0.01, 0.001])
    expected = quiet.step(state, action, key=jr.key(2))[0]
    for i in range(5):
        moved = loud.step(state, action, key=jr.key(i))[0]
        np.testing.assert_allclose(np.abs(np.asarray(moved - expected)), 0.1 * units, rtol=2e-3)
    silent = loud.without_noise()
    assert np.array_equal(silent.step(state, action, key=jr.key(3))[0], expected)
    assert loud.optimal_average() is None and quiet.optimal_average() is not None


def test_noise_comes_from_the_command_line_and_differs_between_seeds():
    options = {"noise": "laplace", "noise_std": "0.2", "noise_growth": "1"}
    envs = make_envs("pendulum", [0, 1], env_kwargs=options)
    envs.reset(0)
    step = envs.step(np.zeros((2, 1), np.float32), np.ones(2, bool))
    assert not np.array_equal(step.obs[0], step.obs[1])


@pytest.mark.parametrize(
    "options", [{"noise": "cauchy", "noise_std": 1.0}, {"noise": "gaussian"}, {"noise_std": 1.0}, {"noise_growth": -1}]
)
def test_impossible_noise(options):
    with pytest.raises(SombrlError):
        Pendulum(**options)
