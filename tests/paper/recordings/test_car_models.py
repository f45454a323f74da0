"""Models of a recorded car against the dynamics they wrap, and when a fit stops."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.dynamics.base import AbstractLearner
from sombrl.dynamics.ensemble import EnsembleConfig, EnsembleLearner
from sombrl.dynamics.particle_config import ParticleConfig
from sombrl.dynamics.particle_learner import ParticleLearner
from sombrl.dynamics.rc_car_prior import CarBodyFrame, CarSimulator
from sombrl.envs.rc_car import OBSERVATION_NOISE
from sombrl.paper.recordings.car_models import (
    EnsembleCar,
    ParticleCar,
    StandingCar,
    ensemble_rows,
    fit_until_worse,
    regression,
    seen_by_ensemble,
    simulated_car,
    statistics_of,
)
from sombrl.paper.recordings.rc_car_logs import read_recording
from tests.paper.recordings.recordings import drive, save

FRAME = CarBodyFrame(past=3)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return read_recording(save(tmp_path_factory.mktemp("car") / "a.npz", drive(90))).log()


@pytest.mark.thorough
def test_particles_have_the_density_of_their_learner(log, key):
    learner = ParticleLearner(FRAME, ParticleConfig(particles=3, hidden=(8,)), statistics=statistics_of(FRAME, log))
    state = learner.init(key=key)
    model = ParticleCar(FRAME, learner.dynamics(state))
    x, y = (jnp.asarray(array[0], jnp.float32) for array in regression(FRAME, log))
    mixture = model(jnp.asarray(log.obs[0]), jnp.asarray(log.action[0]))
    expected = float(state.particles.log_density(x, y))
    assert float(mixture.log_density(y)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.thorough
def test_the_simulator_that_made_the_data_is_off_by_their_noise(log):
    """Both ends of a step are measured: between one and √2 of the published noise, and a little of the others'."""
    wrong = {d: simulated_car(log, CarSimulator("high", 2, coordinates=FRAME, delay=d), FRAME).std for d in (0, 3)}
    noise = np.array(OBSERVATION_NOISE)
    assert np.all(wrong[3] > 0.9 * noise) and np.all(wrong[3] < 2.0 * noise)
    assert np.all(wrong[0][3:] > wrong[3][3:])  # with another delay it is not the same car


def test_statistics_are_those_of_the_rows(log):
    inputs, targets = regression(FRAME, log)
    units = statistics_of(FRAME, log)
    np.testing.assert_allclose(units.x_std, np.maximum(np.std(inputs, axis=0), 1e-3), rtol=1e-5)
    np.testing.assert_allclose(units.y_mean, np.mean(targets, axis=0), rtol=1e-4, atol=1e-7)


@pytest.mark.thorough
def test_an_ensemble_learns_the_change_seen_from_the_car(log, key):
    rows = ensemble_rows(FRAME, log.transitions())
    np.testing.assert_allclose(rows.next_obs - rows.obs, regression(FRAME, log)[1], atol=1e-6)
    np.testing.assert_array_equal(rows.action[:, :6], log.obs[:, 7:])
    np.testing.assert_array_equal(rows.action[:, 6:], log.action)

    learner = EnsembleLearner(6, 8, False, EnsembleConfig(members=3, hidden=(8,), learn_std=True))
    dynamics = learner.dynamics(learner.init(key=key))
    obs, action = jnp.asarray(log.obs[5]), jnp.asarray(log.action[5])
    mixture = EnsembleCar(FRAME, dynamics)(obs, action)
    state, commands = seen_by_ensemble(FRAME, obs, action)
    predicted = dynamics.predict(state, commands)
    np.testing.assert_allclose(mixture.centre, predicted.mean - state, atol=1e-6)
    np.testing.assert_allclose(jnp.std(mixture.mean, axis=0), predicted.epistemic_std, atol=1e-6)
    np.testing.assert_allclose(jnp.sqrt(jnp.mean(mixture.std**2, axis=0)), predicted.aleatoric_std, rtol=1e-5)


class Counting(AbstractLearner):
    """Knows how often it was fitted, and to how many rows."""

    double_precision: ClassVar[bool] = False

    def init(self, *, key):
        return jnp.zeros(2, jnp.float32)

    def fit(self, state, replay, *, key):
        return jnp.stack([state[0] + 1.0, replay.count.astype(jnp.float32)]), {}

    def dynamics(self, state):
        return state

    def task(self, state):
        return None


@pytest.mark.thorough
def test_the_best_of_all_calls_is_kept_and_patience_ends_the_search(log, key):
    """The std falls by half with every call; the likelihood is best where it is that of the data."""
    data_std = np.sqrt(np.mean(regression(FRAME, log.split(0.2)[1])[1] ** 2, axis=0))
    calls = []

    def wrap(state):
        calls.append(float(state[0]))
        return StandingCar(FRAME, jnp.asarray(8.0 * data_std, jnp.float32) * 0.5 ** state[0])

    model, at = fit_until_worse(Counting(), wrap, log, capacity=100, rounds=20, patience=2, key=key)
    assert at == 3 and calls == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    np.testing.assert_allclose(model.std, data_std, rtol=1e-5)
    _, at = fit_until_worse(Counting(), wrap, log, capacity=100, rounds=2, patience=2, key=jr.key(1))
    assert at == 2


def test_held_out_rows_are_not_trained_on(log, key):
    seen = []

    def wrap(state):
        seen.append(float(state[1]))
        return StandingCar(FRAME, jnp.ones(6, jnp.float32))

    fit_until_worse(Counting(), wrap, log, capacity=100, rounds=1, patience=1, key=key)
    assert seen[-1] == len(log) - np.ceil(0.2 * len(log))


@pytest.mark.thorough
def test_an_ensemble_of_the_recorded_car_learns(log):
    """After 300 to 900 steps the change is predicted better than by its mean: RMSE per output well below its std."""
    sizes = {"members": 2, "hidden": (16,), "batch_size": 32, "steps_per_fit": 300, "learning_rate": 1e-2}
    config = EnsembleConfig(learn_std=True, **sizes)
    learner = EnsembleLearner(6, 8, False, config)
    model, _ = fit_until_worse(
        *(learner, lambda d: EnsembleCar(FRAME, d), log),
        rows=lambda rows: ensemble_rows(FRAME, rows),
        capacity=60,
        rounds=3,
        patience=3,
        key=jr.key(1),
    )
    early, _ = log.split(0.2)
    found = jax.vmap(lambda o, a: model(o, a).centre)(early.obs, early.action)
    targets = regression(FRAME, early)[1]
    share = np.std(found - targets, axis=0) / np.std(targets, axis=0)
    assert share[0] < 0.5 and share[3] < 0.9
