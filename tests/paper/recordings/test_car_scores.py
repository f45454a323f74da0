"""Scores against formulas, scipy, and the simulator that made the data."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sombrl.dynamics.rc_car_prior import CarBodyFrame, CarSimulator
from sombrl.envs.rc_car_dynamics import DEFAULTS, CarParameters
from sombrl.paper.recordings.car_scores import (
    LEVELS,
    AbstractCarModel,
    Mixture,
    calibration_error,
    constant_nll,
    held_out_nll,
    judge,
    observed_mixture,
    open_loop,
)
from sombrl.paper.recordings.rc_car_logs import CarLog, read_recording
from tests.paper.recordings.recordings import drive, save

FRAME = CarBodyFrame(past=3)
STD = np.array([0.004, 0.003, 0.006, 0.05, 0.04, 0.2], np.float32)


class Truth(AbstractCarModel):
    """The simulator that made the data, give or take STD."""

    parameters: CarParameters
    frame: CarBodyFrame = FRAME

    def __call__(self, obs, action):
        simulator = CarSimulator("high", 2, coordinates=self.frame)
        mean = simulator(self.parameters, self.frame.inputs(obs, action))
        return Mixture(mean[None], jnp.asarray(STD)[None])


class Still(AbstractCarModel):
    """Nothing changes: two components that agree."""

    std: jnp.ndarray
    frame: CarBodyFrame = FRAME

    def __call__(self, obs, action):
        return Mixture(jnp.zeros((2, 6), jnp.float32), jnp.stack([self.std, self.std]))


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = save(tmp_path_factory.mktemp("car") / "a.npz", drive(150))
    return read_recording(path).log()


def test_densities_and_probabilities_of_a_mixture():
    random = np.random.default_rng(0)
    mean, std, y = random.normal(size=(3, 2)), random.uniform(0.5, 2.0, (3, 2)), random.normal(size=2)
    mixture = Mixture(*(jnp.asarray(a, jnp.float32) for a in (mean, std)))
    each = np.prod(stats.norm.pdf(y, mean, std), axis=1)
    at = jnp.asarray(y, jnp.float32)
    assert float(mixture.log_density(at)) == pytest.approx(np.log(np.mean(each)), rel=1e-5)
    np.testing.assert_allclose(mixture.below(at), np.mean(stats.norm.cdf(y, mean, std), axis=0), rtol=1e-5)
    np.testing.assert_allclose(mixture.centre, np.mean(mean, axis=0), rtol=1e-6)


def test_scores_of_no_change_are_those_of_the_recorded_differences(log):
    """RMSE and NLL by their definitions; the heading's std is σ/√2 for sine and cosine."""
    scores = judge(Still(jnp.asarray(STD)), log)
    change = (log.next_obs - log.obs)[:, :7].astype(np.float64)
    rmse = np.sqrt(np.mean(change**2, axis=0))
    names = ("x", "y", "sin", "cos", "vx", "vy", "omega")
    np.testing.assert_allclose([scores[f"rmse/{name}"] for name in names], rmse, rtol=1e-4)
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(np.sum(change**2, axis=1))), rel=1e-4)

    c, s = log.obs[:, 3].astype(np.float64), log.obs[:, 2].astype(np.float64)

    def body(v):
        return np.stack([c * v[:, 0] + s * v[:, 1], c * v[:, 1] - s * v[:, 0]], axis=1)

    seen = np.concatenate([body(change[:, :2]), change[:, 2:4], body(change[:, 4:6]), change[:, 6:]], axis=1)
    std = np.array([STD[0], STD[1], STD[2] / np.sqrt(2), STD[2] / np.sqrt(2), *STD[3:]])
    assert scores["nll"] == pytest.approx(-np.mean(np.sum(stats.norm.logpdf(seen, 0, std), axis=1)), rel=1e-3)
    heading = np.arctan2(log.obs[:, 2], log.obs[:, 3]), np.arctan2(log.next_obs[:, 2], log.next_obs[:, 3])
    turn = np.angle(np.exp(1j * (heading[1] - heading[0])))
    six = np.concatenate([seen[:, :2], turn[:, None], seen[:, 4:]], axis=1)
    nll = -np.mean(np.sum(stats.norm.logpdf(six, 0, STD), axis=1))
    assert scores["nll/six"] == pytest.approx(nll, rel=1e-3)
    assert held_out_nll(Still(jnp.asarray(STD)), log) == pytest.approx(nll, rel=1e-3)
    pit = stats.norm.cdf(six, 0, STD)
    assert scores["calibration"] == pytest.approx(np.mean([calibration_error(pit[:, i]) for i in range(6)]), abs=2e-3)


def test_with_a_constant_std_it_is_a_gaussian_of_the_errors(log):
    early, late = log.split(0.5)
    errors = [(part.next_obs - part.obs)[:, :7].astype(np.float64) for part in (early, late)]
    expected = -np.mean(np.sum(stats.norm.logpdf(errors[1], 0, np.sqrt(np.mean(errors[0] ** 2, axis=0))), axis=1))
    for factor in (1.0, 5.0):  # its own uncertainty is not asked
        assert constant_nll(Still(factor * jnp.asarray(STD)), early, late) == pytest.approx(expected, rel=1e-3)


def test_an_observed_mixture_integrates_over_the_heading_as_said():
    """At θ = 1 and a turn of 0.1 with a truth of 0.12."""
    obs = jnp.array([0.0, 0.0, np.sin(1.0), np.cos(1.0), 0.0, 0.0, 0.0], jnp.float32)
    mean = jnp.zeros((1, 6), jnp.float32).at[0, 2].set(0.1)
    target = jnp.zeros(6, jnp.float32).at[2].set(0.12)
    mixture, truth = observed_mixture(Mixture(mean, jnp.asarray(STD)[None]), target, obs)
    np.testing.assert_allclose(mixture.mean[0, 2:4], [np.sin(1.1), np.cos(1.1)], atol=1e-6)
    np.testing.assert_allclose(truth[2:4], [np.sin(1.12), np.cos(1.12)], atol=1e-6)
    np.testing.assert_allclose(mixture.std[0, 2:4], STD[2] / np.sqrt(2), rtol=1e-6)


def test_calibration_error():
    even = (np.arange(2000) + 0.5) / 2000
    assert calibration_error(even) == pytest.approx(0.0, abs=1e-3)
    assert calibration_error(np.full(10, 0.5)) == pytest.approx(np.mean([1 - p for p in LEVELS]))  # never sure
    assert calibration_error(np.tile([0.0, 1.0], 5)) == pytest.approx(np.mean(LEVELS))  # always too sure
    # Data with twice the predicted std: a share of 2Φ(z/2) - 1 where 2Φ(z) - 1 = p was promised.
    below = stats.norm.cdf(2.0 * stats.norm.ppf((np.arange(20000) + 0.5) / 20000))
    promised = np.array(LEVELS)
    kept = 2 * stats.norm.cdf(stats.norm.ppf(0.5 + promised / 2) / 2) - 1
    assert calibration_error(below) == pytest.approx(np.mean(np.abs(kept - promised)), abs=1e-3)


@pytest.mark.thorough
def test_driving_blind_with_the_true_car_goes_where_it_went(log):
    """The delay is in the stack: the truth stays within the noise of the measured start; a car of other tyres does not.

    Headings are started at ±π, so that an error that is not wrapped would be 2π somewhere.
    """
    assert np.abs(np.arctan2(log.obs[:, 2], log.obs[:, 3])).max() > 3.0
    true = open_loop(Truth(DEFAULTS["high", 2]), log)
    assert true["open_loop/position"] < 0.02 and true["open_loop/heading"] < 0.05
    other = open_loop(Truth(dataclasses.replace(DEFAULTS["high", 2], c_m_1=4.0)), log)
    assert other["open_loop/position"] > 2 * true["open_loop/position"]
    still = open_loop(Still(jnp.asarray(STD)), log)
    windows = log.windows(10)
    moved = (log.next_obs[windows[:, -1]] - log.obs[windows[:, 0]]).astype(np.float64)
    assert still["open_loop/position"] == pytest.approx(np.sqrt(np.mean(np.sum(moved[:, :2] ** 2, axis=1))), rel=1e-4)
    assert still["open_loop/yaw_rate"] == pytest.approx(np.sqrt(np.mean(moved[:, 6] ** 2)), rel=1e-4)
    assert still["open_loop/heading"] < np.pi


class Runaway(AbstractCarModel):
    """Leaves for infinity, and is nowhere then."""

    frame: CarBodyFrame = FRAME

    def __call__(self, obs, action):
        return Mixture(jnp.full((1, 6), 1e30, jnp.float32) * jnp.abs(obs[0]), jnp.ones((1, 6), jnp.float32))


def test_what_runs_away_is_lost_and_not_infinite(log):
    assert set(open_loop(Runaway(), log).values()) == {100.0}


def test_logs_longer_than_a_piece_are_judged_whole(log):
    """Rows repeated thirty times have the same scores as once."""
    often = CarLog(
        *(
            np.tile(getattr(log, f.name), (30,) + (1,) * (getattr(log, f.name).ndim - 1))
            for f in dataclasses.fields(CarLog)
        )
    )
    once, thirty = judge(Still(jnp.asarray(STD)), log), judge(Still(jnp.asarray(STD)), often)
    assert once == pytest.approx(thirty, rel=1e-6)
