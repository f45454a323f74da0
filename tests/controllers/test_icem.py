"""What is particular to iCEM: elites, best ever, population sizes, and an independent copy of it in numpy."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.controllers import ICEM, PRESETS, ICEMConfig, cem
from sombrl.controllers.noise import coloured_noise
from sombrl.records import SombrlError
from tests.oracles.icem import NumpyICEM
from tests.oracles.toy import linear_quadratic, memoryless

SMALL = ICEMConfig(num_samples=32, num_elites=8, iterations=3, horizon=6, particles=2, keep_fraction=0.5)
A, B = np.array([[1.0, 0.3], [0.0, 0.9]]), np.array([[0.0, 0.2], [0.5, 0.1]])
Q, R = np.diag([1.0, 0.1]), 0.05 * np.eye(2)


@eqx.filter_jit
def act(planner, state, mdp, belief, *, key):
    return planner.act(state, mdp, belief, key=key)


def noises(config, action_dim, key):
    """The noise that one decision draws, iteration by iteration."""
    noise_key, _ = jr.split(key)
    keys = [jr.fold_in(noise_key, i) for i in range(config.iterations)]
    return [
        np.asarray(coloured_noise((size, action_dim, config.horizon), config.noise_exponent, key=k)).transpose(0, 2, 1)
        for size, k in zip(config.sizes, keys, strict=True)
    ]


def scorer(start):
    """The return under A, B, Q, R, in float64."""

    def score(plan):
        state, total = np.asarray(start, np.float64), 0.0
        for action in plan:
            state = A @ state + B @ action
            total -= state @ Q @ state + action @ R @ action
        return total

    return score


@pytest.mark.parametrize(
    "config",
    [
        cem(replace(SMALL, momentum=0.1)).config,
        SMALL,
        replace(SMALL, shift_elites=False, momentum=0.3, noise_exponent=1.5),
        replace(SMALL, population_decay=1.4, execute="mean"),
    ],
    ids=["cem", "icem", "no shift", "decay"],
)
def test_equals_numpy_over_several_decisions(config):
    mdp = linear_quadratic(A, B, Q, R)
    planner, oracle = ICEM(config), NumpyICEM(config, 2)
    state, start = planner.init(mdp, key=jr.key(0)), np.array([1.0, -0.5])
    for key in jr.split(jr.key(1), 4):
        expected, expected_return = oracle.act(scorer(start), noises(config, 2, key))
        action, state = act(planner, state, mdp, jnp.asarray(start, jnp.float32), key=jr.clone(key))
        np.testing.assert_allclose(action, expected, atol=1e-5)
        np.testing.assert_allclose(state.planned_return, expected_return, rtol=1e-5)
        np.testing.assert_allclose(state.plan, oracle.plan, atol=1e-5)
        if config.shift_elites:
            assert state.valid.all()
            np.testing.assert_allclose(state.elites, oracle.elites, atol=1e-5)
        start = A @ start + B @ expected


def test_carried_elites_compete_again():
    """With momentum 1 the iterations are alike, so the elites must be the best of all of them together.

    Reading the initial (zero) elites in every iteration, as the published code does, fails this.
    """
    config = replace(SMALL, momentum=1.0, iterations=4)
    target = np.array([0.3, -0.4])
    mdp = memoryless(target)
    planner, key = ICEM(config), jr.key(2)
    _, state = act(planner, planner.init(mdp, key=jr.key(0)), mdp, jnp.zeros(2, jnp.float32), key=key)
    plans = np.clip(0.5 * np.concatenate(noises(config, 2, jr.clone(key))), -1, 1)
    best = plans[np.argsort(((plans - target) ** 2).sum(axis=(1, 2)))[: config.kept]]
    np.testing.assert_allclose(state.elites[:, :-1], best[:, 1:], atol=1e-6)
    np.testing.assert_array_equal(state.elites[:, -1], state.elites[:, -2])


def test_only_valid_elites_compete_and_they_win_if_better():
    config = replace(SMALL, init_std=0.01)  # sampling alone cannot reach the target
    mdp = memoryless([0.8])
    planner = ICEM(config)
    empty = planner.init(mdp, key=jr.key(0))
    told = eqx.tree_at(lambda s: s.elites, empty, jnp.full_like(empty.elites, 0.8))
    valid = eqx.tree_at(lambda s: s.valid, told, jnp.ones_like(told.valid))

    def first(state):
        return act(planner, state, mdp, jnp.zeros(1, jnp.float32), key=jr.key(3))[0]

    np.testing.assert_allclose(first(valid), 0.8, atol=1e-6)
    np.testing.assert_array_equal(first(told), first(empty))
    assert first(empty) < 0.2
    np.testing.assert_array_equal(first(planner.begin_episode(valid, mdp)), first(empty))


def test_an_invalid_elite_is_not_even_a_zero_candidate():
    """Doing nothing is optimal here; if the empty elites competed, it would be found exactly."""
    mdp = memoryless([0.0])
    planner = ICEM(replace(SMALL, iterations=1))
    empty = planner.init(mdp, key=jr.key(0))
    action, state = act(planner, empty, mdp, jnp.zeros(1, jnp.float32), key=jr.key(4))
    assert action != 0 and state.planned_return < 0 and state.num_nan == 0


def test_planned_return_grows_with_iterations():
    mdp = linear_quadratic(A, B, Q, R)
    returns = []
    for iterations in (1, 2, 6):
        planner = ICEM(replace(SMALL, iterations=iterations, keep_fraction=0.0))
        state = planner.init(mdp, key=jr.key(0))
        # The key of an iteration does not depend on how many there are, so the first ones are the same.
        _, state = act(planner, state, mdp, jnp.array([1.0, -0.5], jnp.float32), key=jr.key(5))
        returns.append(float(state.planned_return))
    assert np.all(np.diff(returns) >= 0) and returns[-1] > returns[0]


def test_progress_is_what_fewer_iterations_would_have_planned():
    mdp, belief = linear_quadratic(A, B, Q, R), jnp.array([1.0, -0.5], jnp.float32)
    planner = ICEM(replace(SMALL, iterations=4))
    progress = planner.progress(planner.init(mdp, key=jr.key(0)), mdp, belief, key=jr.key(5))
    for iterations in (1, 2, 4):
        fewer = ICEM(replace(SMALL, iterations=iterations))
        _, state = act(fewer, fewer.init(mdp, key=jr.key(0)), mdp, belief, key=jr.key(5))
        np.testing.assert_allclose(progress[iterations - 1], state.planned_return, rtol=1e-6)
    decayed = ICEM(replace(SMALL, population_decay=2.0))
    with pytest.raises(SombrlError, match="for constant populations"):
        decayed.progress(decayed.init(mdp, key=jr.key(0)), mdp, belief, key=jr.key(5))


def test_iterations_share_their_random_numbers():
    """Without noise all candidates are one plan: more iterations must not find it a luckier return."""
    mdp = linear_quadratic(A, B, Q, R, noise_std=0.5, stochastic=True)
    returns = []
    for iterations in (1, 6):
        planner = ICEM(replace(SMALL, iterations=iterations, init_std=0.0))
        empty = planner.init(mdp, key=jr.key(0))
        _, state = act(planner, empty, mdp, jnp.array([1.0, -0.5], jnp.float32), key=jr.key(7))
        returns.append(float(state.planned_return))
    np.testing.assert_allclose(returns[0], returns[1], rtol=1e-6)


def test_best_executes_the_best_and_mean_the_mean():
    mdp = memoryless([0.5])
    actions = {}
    for execute in ("best", "mean"):
        planner = ICEM(replace(SMALL, iterations=1, num_elites=32, execute=execute))
        state = planner.init(mdp, key=jr.key(0))
        actions[execute] = act(planner, state, mdp, jnp.zeros(1, jnp.float32), key=jr.key(6))[0]
    (noise,) = noises(replace(SMALL, iterations=1), 1, jr.key(6))
    plans = np.clip(0.5 * noise, -1, 1)
    best = plans[np.argmin(((plans - 0.5) ** 2).sum(axis=(1, 2)))]
    np.testing.assert_allclose(actions["best"], best[0], atol=1e-6)
    np.testing.assert_allclose(actions["mean"], plans.mean(axis=0)[0], atol=1e-6)


def test_population_sizes():
    assert ICEMConfig(num_samples=100, num_elites=10, iterations=4).sizes == (100,) * 4
    decayed = ICEMConfig(num_samples=100, num_elites=10, iterations=5, population_decay=2.0)
    assert decayed.sizes == (100, 50, 25, 20, 20)
    greedy = ICEMConfig(num_samples=10, num_elites=10, iterations=2, population_decay=2.0)
    assert greedy.sizes == (10, 10)  # not 20: twice the elites is a floor, never a rise
    assert ICEMConfig(num_elites=10, keep_fraction=0.3).kept == 3


def test_presets_are_the_published_numbers():
    def numbers(name):
        c = PRESETS[name]
        return c.num_samples, c.num_elites, c.iterations, c.horizon, c.particles

    assert numbers("light") == (200, 20, 4, 20, 5)
    assert numbers("pendulum") == (500, 50, 10, 20, 5)
    assert numbers("mountain-car") == (1000, 100, 5, 50, 5)
    for name in ("pendulum", "mountain-car"):
        c = PRESETS[name]
        assert (c.init_std, c.momentum, c.noise_exponent, c.keep_fraction) == (0.5, 0.0, 0.25, 0.3)
        assert not c.shift_elites and c.population_decay == 1 and c.execute == "best"


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_samples": 10, "num_elites": 11},
        {"num_elites": 0},
        {"horizon": 0},
        {"horizon": 2.5},
        {"iterations": 0},
        {"particles": True},
        {"init_std": -0.1},
        {"init_std": float("nan")},
        {"init_std": float("inf")},
        {"momentum": 1.1},
        {"noise_exponent": float("nan")},
        {"keep_fraction": -0.1},
        {"population_decay": 0.9},
        {"shift_elites": 0.3},
        {"execute": "worst"},
    ],
    ids=str,
)
def test_nonsense_is_refused_in_a_sentence(wrong):
    config = ICEMConfig()
    for name, value in wrong.items():  # past the type checks, which only the tests have
        object.__setattr__(config, name, value)
    flag = "--icem." + next(reversed(wrong)).replace("_", "-")
    with pytest.raises(SombrlError, match=flag) as caught:
        config.__post_init__()
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    with pytest.raises(Exception, match=f"{flag}|{next(reversed(wrong))}"):  # and the constructor does call it
        ICEMConfig(**wrong)
