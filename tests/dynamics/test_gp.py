"""GP dynamics against scikit-learn, the textbook, and the ways in which data can be unpleasant."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern

from sombrl.dynamics.gp import GPConfig
from sombrl.dynamics.gp_posterior import Pivots, condition, log_marginal_likelihood
from sombrl.records import SombrlError, Transition
from sombrl.replay import Replay
from sombrl.theory import projected_mean
from sombrl.theory.kernels import KERNELS, cosine_of_turns, draw_prior, matern52, rbf
from tests.dynamics.data import exact, fit, learner, normalised, predict, replay_of, wave

TRAIN, TEST = wave(60), wave(40, seed=1)


@pytest.mark.parametrize(("kernel", "oracle"), [(rbf, RBF(1.0)), (matern52, Matern(1.0, nu=2.5))])
def test_posterior_equals_scikit_learn(kernel, oracle, x64):
    rng = np.random.default_rng(0)
    x, y, q = rng.normal(size=(50, 3)), rng.normal(size=50), rng.normal(size=(20, 3))
    noise_std = 0.1
    sklearn = GaussianProcessRegressor(oracle, alpha=noise_std**2, optimizer=None).fit(x, y)
    mean, std = sklearn.predict(q, return_std=True)

    mask = jnp.arange(64) < 50
    padded_x, padded_y = np.zeros((64, 3)), np.full(64, 1e6)  # what is masked must not matter
    padded_x[:50], padded_y[:50] = x, y
    posterior, pivots, _ = condition(
        kernel, jnp.asarray(padded_x), jnp.asarray(padded_y), mask, jnp.asarray(noise_std), 1e-9, Pivots.none(60)
    )
    rows = jax.vmap(lambda a: jax.vmap(lambda b: kernel(a, b))(posterior.centers))(jnp.asarray(q))
    features = np.asarray(rows) @ np.asarray(posterior.whitener).T
    np.testing.assert_allclose(features @ np.asarray(posterior.weight_mean), mean, atol=1e-6)
    variance = 1.0 - np.sum((features @ np.asarray(posterior.explained).T) ** 2, axis=1)
    np.testing.assert_allclose(np.sqrt(variance), std, atol=1e-6)

    theirs = sklearn.log_marginal_likelihood(sklearn.kernel_.theta)
    ours = log_marginal_likelihood(kernel, jnp.asarray(padded_x), jnp.asarray(padded_y), mask, jnp.asarray(noise_std))
    np.testing.assert_allclose(float(ours), theirs, rtol=1e-6)
    gain = 0.5 * np.linalg.slogdet(np.eye(50) + oracle(x) / noise_std**2)[1]
    np.testing.assert_allclose(float(posterior.information_gain), gain, rtol=1e-5)
    assert int(pivots.number) == 50


def test_likelihood_gradient_equals_finite_differences(x64):
    rng = np.random.default_rng(0)
    x, y = jnp.asarray(rng.normal(size=(30, 3))), jnp.asarray(rng.normal(size=30))
    mask = jnp.arange(30) < 25

    def likelihood(parameters):
        return log_marginal_likelihood(rbf, x * parameters[None, :3], y, mask, parameters[3])

    at = jnp.array([0.9, 1.1, 0.7, 0.2])
    gradient = jax.grad(likelihood)(at)
    for i in range(4):
        step = jnp.zeros(4).at[i].set(1e-5)
        slope = (likelihood(at + step) - likelihood(at - step)) / 2e-5
        np.testing.assert_allclose(float(gradient[i]), float(slope), rtol=1e-4)


def test_dynamics_equal_the_textbook_posterior():
    state, _ = fit(learner(), replay_of(TRAIN))
    mean, std = normalised(state, predict(learner().dynamics(state), TEST.obs, TEST.action), TEST)
    exact_mean, exact_std = exact(state, TRAIN, TEST)
    np.testing.assert_allclose(mean, exact_mean, atol=5e-3)
    np.testing.assert_allclose(std, exact_std, atol=5e-3)


def test_linear_kernel_is_bayesian_linear_regression():
    state, _ = fit(learner(kernel="linear", fit_steps=0), replay_of(TRAIN))
    mean, std = normalised(state, predict(learner(kernel="linear").dynamics(state), TEST.obs, TEST.action), TEST)

    # Weight space: φ(x) = (1, x), w ~ N(0, I), noise 0.03.
    def features(rows):
        x = np.concatenate([rows.obs, rows.action], 1).astype(np.float64)
        x = (x - np.asarray(state.inputs.mean)) / np.asarray(state.inputs.std)
        return np.concatenate([np.ones((len(x), 1)), x], 1)

    change = np.asarray(TRAIN.next_obs, np.float64) - np.asarray(TRAIN.obs, np.float64)
    y = (change - np.asarray(state.outputs.mean)) / np.asarray(state.outputs.std)
    a, q = features(TRAIN), features(TEST)
    precision = a.T @ a / 0.03**2 + np.eye(4)
    np.testing.assert_allclose(mean, q @ np.linalg.solve(precision, a.T @ y) / 0.03**2, atol=1e-3)
    variance = np.sum(q * np.linalg.solve(precision, q.T).T, axis=1)
    np.testing.assert_allclose(std, np.sqrt(variance)[:, None].repeat(2, 1), atol=2e-3)


@pytest.mark.parametrize("number", [100, 400, 1000])
def test_bounded_rank_stays_near_the_exact_posterior(number):
    """With room for the pivots, σ is within √tolerance · noise of the exact one, and never much below it."""
    rows = wave(number)
    gp = learner(capacity=1024, rank=128, fit_steps=0, lengthscale=2.0)
    state, metrics = fit(gp, replay_of(rows, 1024))
    assert float(metrics["model/pivots"]) < 128
    mean, std = normalised(state, predict(gp.dynamics(state), TEST.obs, TEST.action), TEST)
    exact_mean, exact_std = exact(state, rows, TEST)
    bound = np.sqrt(0.1) * 0.03
    assert np.max(np.abs(std - exact_std)) < 1.5 * bound
    assert np.min(std - exact_std) > -3e-3
    assert np.max(np.abs(mean - exact_mean)) < 2 * bound


def test_too_small_a_rank_errs_towards_uncertainty():
    rows = wave(500)
    gp = learner(capacity=512, rank=16, fit_steps=0)
    state, metrics = fit(gp, replay_of(rows, 512))
    _, std = normalised(state, predict(gp.dynamics(state), TEST.obs, TEST.action), TEST)
    _, exact_std = exact(state, rows, TEST)
    assert np.min(std - exact_std) > -5e-3
    assert float(metrics["model/unexplained"]) > 0.1


@pytest.mark.thorough
def test_a_norm_bound_plans_with_the_projected_mean():
    """fₙ in the features of the pivots against the QCQP in the coefficients of all data (theory.projected_mean)."""
    gp = learner(fit_steps=0, noise_std=0.3, tolerance=1e-8, norm_bound=1.5)
    state, _ = fit(gp, replay_of(TRAIN))
    mean, std = normalised(state, predict(gp.dynamics(state), TEST.obs, TEST.action), TEST)
    free, _ = fit(learner(fit_steps=0, noise_std=0.3, tolerance=1e-8), replay_of(TRAIN))
    _, free_std = normalised(free, predict(gp.dynamics(free), TEST.obs, TEST.action), TEST)
    np.testing.assert_allclose(std, free_std, atol=1e-5)  # only the mean moves
    with jax.enable_x64(True):

        def inputs(rows):
            x = jnp.concatenate([rows.obs, rows.action], 1).astype(jnp.float64)
            return (x - state.inputs.mean[None]) / state.inputs.std[None]

        change = TRAIN.next_obs.astype(jnp.float64) - TRAIN.obs.astype(jnp.float64)
        y = (change - state.outputs.mean[None]) / state.outputs.std[None]
        for j in range(2):
            expected = projected_mean(KERNELS["rbf"], inputs(TRAIN), y[:, j], 0.3, 1.5)
            np.testing.assert_allclose(mean[:, j], np.asarray(jax.vmap(expected)(inputs(TEST))), atol=2e-4)
            unbounded = projected_mean(KERNELS["rbf"], inputs(TRAIN), y[:, j], 0.3, jnp.inf)
            gap = np.abs(np.asarray(jax.vmap(unbounded)(inputs(TEST))) - mean[:, j]).max()
            assert gap > 0.1  # the bound was felt


def test_without_normalisation_the_kernel_is_physical():
    gp = learner(fit_steps=0, normalise=False, lengthscale=1.3, noise_std=0.05, tolerance=1e-8)
    state, _ = fit(gp, replay_of(TRAIN))
    prediction = predict(gp.dynamics(state), TEST.obs, TEST.action)
    oracle = GaussianProcessRegressor(RBF(1.3), alpha=0.05**2, optimizer=None)
    rows, queries = (np.concatenate([r.obs, r.action], 1).astype(np.float64) for r in (TRAIN, TEST))
    oracle.fit(rows, np.asarray(TRAIN.next_obs - TRAIN.obs, np.float64))
    mean, std = oracle.predict(queries, return_std=True)
    np.testing.assert_allclose(np.asarray(prediction.mean - TEST.obs), mean, atol=2e-4)
    np.testing.assert_allclose(np.asarray(prediction.epistemic_std), std, atol=2e-3)
    assert np.array_equal(prediction.scale, np.ones_like(prediction.scale))


def test_std_never_rises_when_a_point_is_added():
    gp = learner(refit_every=1000)  # hyperparameters and normaliser stay
    state, _ = fit(gp, replay_of(TRAIN))
    before = predict(gp.dynamics(state), TEST.obs, TEST.action).epistemic_std
    more, _ = fit(gp, replay_of(TRAIN).add(TEST, jnp.arange(40) < 1), state)
    after = predict(gp.dynamics(more), TEST.obs, TEST.action).epistemic_std
    scale = np.asarray(gp.dynamics(state).function.output_std)
    assert np.max((np.asarray(after) - np.asarray(before)) / scale) < 2e-3
    assert np.max(np.asarray(after)[0] / scale) < 0.03  # at the point itself: below the noise


def test_appending_equals_conditioning_from_scratch():
    gp = learner(refit_every=1000, tolerance=1e-4)
    state, _ = fit(gp, replay_of(TRAIN))
    grown = replay_of(TRAIN).add(TEST, jnp.ones(40, bool))
    appended, _ = fit(gp, grown, state)
    with jax.enable_x64(True):
        fresh = type(state)(
            state.hyperparameters,
            state.inputs,
            state.outputs,
            jax.tree.map(jnp.zeros_like, state.pivots),
            state.function,
            jnp.ones((), jnp.int32),
        )
    scratch, _ = fit(gp, grown, fresh)
    queries = wave(50, seed=3)
    a, b = (predict(gp.dynamics(s), queries.obs, queries.action) for s in (appended, scratch))
    np.testing.assert_allclose(np.asarray(a.mean), np.asarray(b.mean), atol=1e-4)
    np.testing.assert_allclose(np.asarray(a.epistemic_std), np.asarray(b.epistemic_std), atol=1e-3)


@pytest.mark.thorough
def test_fit_lowers_held_out_loss_and_std_is_larger_far_away():
    def held_out(steps):
        gp = learner(fit_steps=steps, lengthscale=0.3)
        state, _ = fit(gp, replay_of(TRAIN))
        mean, std = normalised(state, predict(gp.dynamics(state), TEST.obs, TEST.action), TEST)
        change = np.asarray(TEST.next_obs - TEST.obs, np.float64)
        target = (change - np.asarray(state.outputs.mean)) / np.asarray(state.outputs.std)
        variance = std**2 + 0.03**2
        return np.mean(0.5 * (target - mean) ** 2 / variance + 0.5 * np.log(variance))

    assert held_out(100) < held_out(0) - 0.5
    gp = learner()
    state, _ = fit(gp, replay_of(TRAIN))
    dynamics = gp.dynamics(state)
    near = predict(dynamics, TRAIN.obs, TRAIN.action).epistemic_std
    far = predict(dynamics, TRAIN.obs + 30.0, TRAIN.action).epistemic_std
    assert float(jnp.min(far)) > 5 * float(jnp.median(near))


@pytest.mark.thorough
def test_learned_noise_finds_the_noise():
    rows = wave(120, noise=0.05)
    gp = learner(learn_noise=True, fit_steps=200, noise_std=0.2)
    state, _ = fit(gp, replay_of(rows))
    aleatoric = np.asarray(predict(gp.dynamics(state), TEST.obs, TEST.action).aleatoric_std[0])
    np.testing.assert_allclose(aleatoric, 0.05, rtol=0.4)


def test_learned_task_predicts_reward_and_termination():
    rows = wave(120)
    gp = learner(learn_task=True, fit_steps=100)
    state, _ = fit(gp, replay_of(rows))
    task = gp.task(state)
    rewards = jax.vmap(task.reward)(TEST.obs, TEST.action, TEST.next_obs)
    np.testing.assert_allclose(np.asarray(rewards), np.asarray(TEST.reward), atol=0.6)
    assert float(jnp.corrcoef(rewards, TEST.reward)[0, 1]) > 0.99
    ended = jax.vmap(task.terminated)(TEST.obs, TEST.action, TEST.next_obs)
    assert float(jnp.mean(ended == TEST.terminated)) > 0.9
    assert learner().task(state) is None


def _same_point(number):
    rows = wave(1)
    return jax.tree.map(lambda x: jnp.repeat(x, number, axis=0), rows)


def _constant_outputs(number):
    rows = wave(number)
    return Transition(rows.obs, rows.action, rows.reward, rows.obs, rows.terminated, rows.truncated)


def _huge(number):
    rows = wave(number)
    scale = jnp.array([1e6, 1e-6], jnp.float32)[None, :]
    return Transition(
        rows.obs * scale, rows.action, rows.reward, rows.next_obs * scale, rows.terminated, rows.truncated
    )


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize(
    ("name", "rows", "capacity"),
    [
        ("no data", None, 16),
        ("one point", wave(1), 16),
        ("the same point", _same_point(12), 16),
        ("constant outputs", _constant_outputs(12), 16),
        ("a full buffer", wave(16), 16),
        ("an overwritten buffer", wave(40), 16),
        ("units a million apart", _huge(12), 16),
    ],
)
def test_unpleasant_data_give_finite_predictions(kernel, name, rows, capacity):
    gp = learner(learn_task=True, kernel=kernel, capacity=capacity, rank=16, fit_steps=5)
    replay = Replay.empty(capacity, 2, 1) if rows is None else replay_of(rows, capacity)
    state, metrics = fit(gp, replay)
    assert all(np.isfinite(float(value)) for value in metrics.values())
    prediction = predict(gp.dynamics(state), TEST.obs, TEST.action)
    for value in jax.tree.leaves(prediction):
        assert np.all(np.isfinite(np.asarray(value)))
    assert np.all(np.asarray(prediction.epistemic_std) >= 0)
    assert np.all(np.asarray(prediction.aleatoric_std) > 0)
    drawn = gp.dynamics(state).draw(key=jr.key(3))
    assert np.all(np.isfinite(np.asarray(predict(drawn, TEST.obs, TEST.action).mean)))


@pytest.mark.slow
def test_draws_have_the_posterior_moments():
    """10,000 numbers from consistent functions against μ and σ of the same posterior."""
    gp = learner(rank=64)
    state, _ = fit(gp, replay_of(wave(25)))
    dynamics = gp.dynamics(state)
    queries = wave(15, seed=5)
    draws = jax.jit(jax.vmap(lambda k: jax.vmap(dynamics.draw(key=k).predict)(queries.obs, queries.action).mean))(
        jr.split(jr.key(0), 2000)
    )
    prediction = predict(dynamics, queries.obs, queries.action)
    scale = np.asarray(prediction.scale)
    error = (np.asarray(draws.mean(axis=0)) - np.asarray(prediction.mean)) / scale
    np.testing.assert_allclose(error, 0.0, atol=0.06)
    std = np.asarray(draws.std(axis=0)) / scale
    np.testing.assert_allclose(std, np.asarray(prediction.epistemic_std) / scale, atol=0.06)


def test_a_draw_is_one_function():
    gp = learner()
    state, _ = fit(gp, replay_of(TRAIN))
    drawn, other = gp.dynamics(state).draw(key=jr.key(0)), gp.dynamics(state).draw(key=jr.key(1))
    far = TEST.obs + 20.0
    assert np.array_equal(predict(drawn, far, TEST.action).mean, predict(drawn, far, TEST.action).mean)
    assert not np.allclose(predict(drawn, far, TEST.action).mean, predict(other, far, TEST.action).mean)
    assert float(jnp.max(predict(drawn, far, TEST.action).epistemic_std)) == 0.0
    # Smooth, not noise: near points have near values even where the posterior knows nothing.
    step = predict(drawn, far + 1e-3, TEST.action).mean - 1e-3 - predict(drawn, far, TEST.action).mean
    assert float(jnp.max(jnp.abs(step))) < 0.01


def test_the_polynomial_cosine_is_a_cosine():
    turns = np.linspace(-30.0, 30.0, 100_001, dtype=np.float32)
    exact = np.cos(2 * np.pi * turns.astype(np.float64))
    np.testing.assert_allclose(np.asarray(cosine_of_turns(jnp.asarray(turns))), exact, atol=2e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_prior_draws_have_the_kernel_as_covariance(kernel):
    points = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2)), jnp.float32)
    draws = jax.vmap(lambda k: jax.vmap(draw_prior(kernel, 2, 64, key=k))(points))(jr.split(jr.key(0), 8000))
    covariance = np.cov(np.asarray(draws).T)
    expected = jax.vmap(lambda a: jax.vmap(lambda b: KERNELS[kernel](a, b))(points))(points)
    np.testing.assert_allclose(covariance, np.asarray(expected), atol=0.12)


def test_nothing_recompiles_as_data_grow():
    gp = learner(capacity=64, rank=16, fit_steps=2)
    traces = []

    def step(state, replay, key):
        traces.append(1)
        return gp.fit(state, replay, key=key)

    with jax.enable_x64(True):
        compiled = jax.jit(step)
        state, replay = gp.init(key=jr.key(0)), Replay.empty(64, 2, 1)
        for n in range(4):
            state, _ = compiled(state, replay, jr.key(n))
            replay = replay.add(wave(20, seed=n), jnp.ones(20, bool))
    assert len(traces) == 1


def test_vmap_equals_a_loop():
    gp = learner()
    state, _ = fit(gp, replay_of(TRAIN))
    dynamics = gp.dynamics(state)
    together = predict(dynamics, TEST.obs, TEST.action)
    for i in range(5):
        alone = dynamics.predict(TEST.obs[i], TEST.action[i])
        np.testing.assert_allclose(np.asarray(together.mean[i]), np.asarray(alone.mean), atol=1e-5)
        np.testing.assert_allclose(
            np.asarray(together.epistemic_std[i]), np.asarray(alone.epistemic_std), rtol=2e-2, atol=1e-4
        )


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("capacity", 0),
        ("rank", 0),
        ("fit_points", 0),
        ("fit_steps", -1),
        ("refit_every", 0),
        ("draw_features", 0),
        ("tolerance", 0.0),
        ("noise_std", float("nan")),
        ("lengthscale", -1.0),
        ("fit_learning_rate", 0.0),
        ("norm_bound", 0.0),
        ("norm_bound", -1.0),
    ],
)
def test_impossible_settings_are_refused_in_a_sentence(setting, value):
    with pytest.raises(SombrlError, match=setting.replace("_", "-")):
        GPConfig(**{setting: value})


def program(**settings) -> str:
    """A fit, a prediction and a draw as one program: traced, neither compiled nor run."""
    gp = learner(**({"capacity": 48, "rank": 24, "fit_steps": 5, "fit_points": 32, "draw_features": 64} | settings))
    data, obs, action = replay_of(wave(40, noise=0.02), gp.config.capacity), TEST.obs[0], TEST.action[0]

    def everything(key):
        fit_key, draw_key = jr.split(key)
        state, _ = gp.fit(gp.init(key=jr.key(0)), data, key=fit_key)
        dynamics = gp.dynamics(state)
        return dynamics.predict(obs, action), dynamics.draw(key=draw_key).predict(obs, action)

    with jax.enable_x64(True):
        return jax.jit(everything).lower(jr.key(1)).as_text()


@functools.cache
def plain_program() -> str:
    return program()


CHANGED = {
    "kernel": "matern52",
    "capacity": 20,
    "rank": 6,
    "tolerance": 10.0,
    "noise_std": 0.2,
    "learn_noise": True,
    "lengthscale": 0.4,
    "lengthscale_prior_std": 0.05,
    "fit_points": 8,
    "fit_steps": 50,
    "fit_learning_rate": 0.01,
    "refit_every": 2,
    "draw_features": 32,
    "norm_bound": 0.1,
    "normalise": False,
    "least_action": 1.0,  # more than uniform actions vary
}


def test_every_setting_is_listed():
    assert set(CHANGED) == set(GPConfig.__dataclass_fields__)


def test_the_same_settings_give_the_same_program():
    assert program() == plain_program()


@pytest.mark.thorough
@pytest.mark.parametrize("setting", list(CHANGED))
def test_every_setting_changes_the_program(setting):
    assert program(**{setting: CHANGED[setting]}) != plain_program()
