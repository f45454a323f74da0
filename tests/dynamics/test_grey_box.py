"""System identification and grey box: known parameters are found, and what no parameters explain is learned."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.dynamics.grey_box import GreyBoxConfig, GreyBoxLearner, GreyBoxState, Residual
from sombrl.dynamics.particle_config import ParticleConfig
from sombrl.dynamics.particles import Statistics
from sombrl.dynamics.sim_prior import AbstractSimulator
from sombrl.records import SombrlError
from sombrl.replay import Replay
from tests.dynamics.toy import TINY, Curve, curve, fast_jit

GRID = jnp.linspace(-2.0, 2.0, 41)[:, None]


class Slope(AbstractSimulator):
    """y = 1000 a x with one unknown a in [0.01, 0.03]; b is fixed at 2 by its range and c is not a number to fit."""

    def draw(self, *, key):
        unit = jr.uniform(key, (), jnp.float32)
        return {"a": 0.01 + 0.02 * unit, "b": jnp.full((), 2.0), "c": jnp.zeros((), jnp.int32)}

    def __call__(self, parameters, inputs):
        return 1000.0 * parameters["a"] * inputs + parameters["b"] - 2.0

    def domain(self, *, key):
        return jr.uniform(key, (1,), jnp.float32, -2.0, 2.0)


X = np.random.default_rng(0).uniform(-2, 2, 200)
NOISE = np.random.default_rng(1).normal(size=200)


def grey_box(residual=True, model=None, **system) -> GreyBoxLearner:
    settings = {"steps": 800, "learning_rate": 1e-2, "residual": residual} | system
    return GreyBoxLearner(
        Curve(),
        Slope(),
        GreyBoxConfig(**settings),
        ParticleConfig(**(TINY | {"additive_scales": None} | (model or {}))),
    )


def fit(ours, data, seed=0):
    return jax.jit(lambda k, d: ours.fit(ours.init(key=k), d, key=jr.fold_in(k, 1)))(jr.key(seed), data)


def predict(ours, state):
    return jax.jit(jax.vmap(lambda o: ours.dynamics(state).predict(o, jnp.zeros(1))))(GRID)


def test_system_identification_finds_the_parameter_and_the_noise():
    """Whatever the units: the slope is a thousand times the parameter."""
    ours = grey_box(residual=False)
    state, metrics = fit(ours, curve(X, 17.0 * X + 1.5 * NOISE, 200))
    exact = np.sum(X * (17.0 * X + 1.5 * NOISE)) / np.sum(X**2)
    assert 1000 * float(state.parameters["a"]) == pytest.approx(exact, rel=0.02)
    assert float(state.parameters["b"]) == 2.0 and int(state.parameters["c"]) == 0
    prediction = predict(ours, state)
    np.testing.assert_allclose(
        np.asarray(prediction.mean), 1000 * float(state.parameters["a"]) * np.asarray(GRID), rtol=1e-4, atol=1e-4
    )
    assert not np.any(prediction.epistemic_std)
    np.testing.assert_allclose(np.asarray(prediction.aleatoric_std), 1.5, rtol=0.15)
    assert np.isfinite(float(metrics["model/system_nll"])) and ours.task(state) is None
    nothing, _ = fit(ours, Replay.empty(200, 1, 1))
    start = ours.simulator.draw(key=jr.split(jr.fold_in(jr.key(0), 1), 3)[0])
    assert float(nothing.parameters["a"]) == pytest.approx(float(start["a"]), rel=1e-6)


@pytest.mark.thorough
def test_a_grey_box_learns_what_the_simulator_cannot():
    """The truth bends; the simulator does not."""
    truth = 17.0 * X + 8.0 * np.sin(3 * X)
    model = {"particles": 5, "hidden": (32, 32), "steps": 1200, "check_every": 400, "batch_size": 32}
    model |= {"bandwidth": None, "resolution": 0.1, "learning_rate": 5e-3, "prior_lengthscale": 0.3}
    data, ours, alone = curve(X, truth + 0.3 * NOISE, 200), grey_box(model=model), grey_box(residual=False)
    state, _ = fit(ours, data)
    grid = np.asarray(GRID)
    bent = 17.0 * grid + 8.0 * np.sin(3 * grid)

    def error(learner, state):
        return float(np.sqrt(np.mean((np.asarray(predict(learner, state).mean) - bent) ** 2)))

    assert error(ours, state) < 1.0 < 4.0 < error(alone, fit(alone, data)[0])


def test_residual_coordinates_take_the_simulator_out_and_put_it_back():
    parameters = {"a": jnp.asarray(0.02), "b": jnp.asarray(2.5), "c": jnp.zeros((), jnp.int32)}
    ours = Residual(Curve(), Slope(), parameters)
    x, y, u = jnp.array([0.7]), jnp.array([16.0]), jnp.zeros(1)
    np.testing.assert_allclose(np.asarray(ours.targets(x, u, y)), [16.0 - 14.5], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(ours.next_obs(x, u, ours.targets(x, u, y))), [16.0], rtol=1e-6)
    assert (ours.input_dim, ours.target_dim) == (1, 1)
    assert float(ours.spread(x, jnp.array([0.3]))[0]) == pytest.approx(0.3)


@pytest.mark.thorough
def test_settings_are_refused_or_matter():
    for setting, value in (("steps", 0), ("batch_size", 0), ("learning_rate", float("inf"))):
        with pytest.raises(SombrlError, match=f"--system.{setting.replace('_', '-')}"):
            GreyBoxConfig(**{setting: value})
    data = curve(X, 17.0 * X, 200)

    def found(**system):
        ours = grey_box(residual=False, **({"steps": 3} | system))
        return float(
            fast_jit(lambda k: ours.fit(ours.init(key=k), data, key=jr.fold_in(k, 1)))(jr.key(0))[0].parameters["a"]
        )

    plain = found()
    assert all(found(**changed) != plain for changed in ({"batch_size": 7}, {"learning_rate": 2e-2}))


def test_a_fresh_fit_draws_new_parameters_and_a_warm_one_goes_on():
    data, far = curve(X, 17.0 * X, 200), {"a": jnp.asarray(0.5), "b": jnp.asarray(2.0), "c": jnp.zeros((), jnp.int32)}
    found = {}
    for fresh in (True, False):
        ours = grey_box(residual=False, model={"fresh": fresh}, steps=2)
        state = GreyBoxState(far, jnp.zeros(1), Statistics.identity(1, 1), None)
        found[fresh] = float(fast_jit(lambda s, k, o=ours: o.fit(s, data, key=k))(state, jr.key(1))[0].parameters["a"])
    assert 0.005 < found[True] < 0.035 and found[False] == pytest.approx(0.5, rel=0.01) and found[False] != 0.5
