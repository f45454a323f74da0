"""What every planner must do, and every knob of every planner."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.linalg

from sombrl.controllers import ICEM, MPPI, ICEMConfig, MPPIConfig, cem
from sombrl.controllers.rollout import score_candidates
from sombrl.replay import Replay
from tests.oracles.lqr import cost, optimal_plan, riccati
from tests.oracles.toy import TRACES, imagine, linear_quadratic, memoryless, poisoned

ICEM_SMALL = ICEMConfig(num_samples=64, num_elites=8, iterations=4, horizon=5, particles=3)
MPPI_SMALL = MPPIConfig(num_samples=64, iterations=4, horizon=5, particles=3)
PLANNERS = {"icem": ICEM(ICEM_SMALL), "cem": cem(ICEM_SMALL), "mppi": MPPI(MPPI_SMALL)}
# Enough search to reach the optimum rather than its neighbourhood.
HARD = {"num_samples": 400, "iterations": 40, "horizon": 6, "init_std": 0.5, "noise_exponent": 0.0}
STRONG = {
    "icem": ICEM(ICEMConfig(num_elites=40, **HARD)),
    "cem": cem(ICEMConfig(num_elites=40, **HARD)),
    "mppi": MPPI(MPPIConfig(temperature=0.3, std_update=0.5, **HARD)),
}
A, B = np.array([[1.0, 0.3], [0.0, 1.0]]), np.array([[0.0], [0.3]])
Q, R = np.diag([1.0, 0.1]), np.array([[0.1]])

any_planner = pytest.mark.parametrize("planner", PLANNERS.values(), ids=PLANNERS)
strong_planner = pytest.mark.parametrize("planner", STRONG.values(), ids=STRONG)


@eqx.filter_jit
def later(planner, mdp, start, key, state):
    """One decision after another."""
    return planner.act(state, mdp, start, key=key)


def decide(planner, mdp, start, key):
    """The first decision of an episode."""
    return later(planner, mdp, start, key, planner.init(mdp, key=jr.key(0)))


def zeros(dim):
    return jnp.zeros(dim, jnp.float32)


@strong_planner
def test_solves_a_quadratic(planner):
    target = [0.3, -0.6]
    action, state = decide(planner, memoryless(target), zeros(2), jr.key(0))
    np.testing.assert_allclose(action, target, atol=0.02)
    np.testing.assert_allclose(state.plan, np.tile(target, (6, 1)), atol=0.03)
    assert -0.01 < state.planned_return <= 0


def test_riccati_agrees_with_scipy_and_with_the_step_by_step_cost():
    _, P = riccati(A, B, Q, R, 200)
    np.testing.assert_allclose(P + Q, scipy.linalg.solve_discrete_are(A, B, Q, R), rtol=1e-8)
    start = np.array([0.4, -0.2])
    actions, best = optimal_plan(A, B, Q, R, start, 6)
    np.testing.assert_allclose(cost(A, B, Q, R, start, actions), best)
    assert cost(A, B, Q, R, start, actions + 0.01) > best


@strong_planner
def test_lqr_within_tolerance_of_riccati(planner):
    start = np.array([0.4, -0.1])
    actions, best = optimal_plan(A, B, Q, R, start, 6)
    assert np.abs(actions).max() < 0.9  # no bound is active, or Riccati is not the answer
    action, state = decide(planner, linear_quadratic(A, B, Q, R), jnp.asarray(start, jnp.float32), jr.key(1))
    np.testing.assert_allclose(action, actions[0], atol=0.03)
    found = np.concatenate([[action], state.plan[:-1]])
    assert best <= cost(A, B, Q, R, start, found) < 1.002 * best


@strong_planner
def test_receding_horizon_lqr(planner):
    """Ten decisions, each replanned: as cheap as applying the first Riccati gain ten times."""
    mdp, (gain, *_) = linear_quadratic(A, B, Q, R), riccati(A, B, Q, R, 6)[0]
    ours = theirs = np.array([0.4, -0.1])
    paid, due, state = 0.0, 0.0, planner.init(mdp, key=jr.key(0))
    for key in jr.split(jr.key(2), 10):
        action, state = later(planner, mdp, jnp.asarray(ours, jnp.float32), key, state)
        action, reference = np.asarray(action, np.float64), -gain @ theirs
        ours, theirs = A @ ours + B @ action, A @ theirs + B @ reference
        paid += ours @ Q @ ours + action @ R @ action
        due += theirs @ Q @ theirs + reference @ R @ reference
    np.testing.assert_allclose(paid, due, rtol=0.02)


@any_planner
def test_bounds_are_respected(planner):
    mdp = memoryless([5.0])  # out of reach
    state = planner.init(mdp, key=jr.key(0))
    for key in jr.split(jr.key(3), 6):
        action, state = later(planner, mdp, zeros(1), key, state)
        assert np.abs(action).max() <= 1 and np.abs(state.plan).max() <= 1
    assert action > 0.9


@any_planner
def test_dimensions_come_from_the_mdp(planner):
    """Hallucinated controls: the environment takes one number, the planner optimises two, and uses both."""
    base = memoryless([1.5])
    mdp = imagine(base.dynamics, base.task, action_dim=1, steered=1)
    action, state = decide(planner, mdp, zeros(1), jr.key(4))
    assert action.shape == (2,) and state.plan.shape == (5, 2) and action.dtype == jnp.float32
    assert state.planned_return > -5 * 0.5**2  # the best that one control alone could do


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@any_planner
def test_a_nan_candidate_is_never_elite_and_never_executed(planner, poison):
    """Finite returns are about -5e6 and grow towards the poison: a NaN that counts as 0 would win."""
    mdp = poisoned(0.3, poison)
    state = planner.init(mdp, key=jr.key(0))
    for key in jr.split(jr.key(5), 5):
        action, state = later(planner, mdp, zeros(1), key, state)
        assert action[0] <= 0.3 and np.all(state.plan <= 0.3)
        assert np.isfinite(state.planned_return) and state.planned_return < -4e6
        assert 0 < state.num_nan < 4 * 80
        if hasattr(state, "elites"):
            assert np.all(np.asarray(state.elites)[np.asarray(state.valid)] <= 0.3)


@any_planner
def test_fewer_finite_candidates_than_elites(planner):
    """About one candidate in 32 survives: the others must not fill up the elites."""
    mdp = poisoned(0.0)
    _, state = decide(planner, mdp, zeros(1), jr.key(6))
    assert np.all(state.plan <= 0) and np.isfinite(state.planned_return)


@any_planner
def test_when_everything_is_nan_the_old_plan_goes_on(planner):
    mdp = poisoned(-2.0)
    action, state = decide(planner, mdp, zeros(1), jr.key(7))
    assert action[0] == 0 and np.all(state.plan == 0)
    assert state.num_nan == 4 * 64 and state.planned_return == -np.inf
    warm = eqx.tree_at(lambda s: s.plan, state, jnp.full_like(state.plan, 0.5))
    action, state = later(planner, mdp, zeros(1), jr.key(7), warm)
    assert action[0] == 0.5 and np.all(state.plan == 0.5)


@any_planner
def test_same_key_same_action(planner):
    mdp = memoryless([0.3])
    first = decide(planner, mdp, zeros(1), jr.key(8))
    again = decide(planner, mdp, zeros(1), jr.key(8))
    other = decide(planner, mdp, zeros(1), jr.key(9))
    assert eqx.tree_equal(first, again)
    assert not np.array_equal(first[0], other[0])


@any_planner
def test_vmap_equals_loop(planner):
    mdp = linear_quadratic(A, B, Q, R, noise_std=0.1, stochastic=True)
    starts = jr.normal(jr.key(10), (4, 2), jnp.float32)
    keys = jr.split(jr.key(11), 4)
    batched = jax.vmap(lambda start, key: decide(planner, mdp, start, key))(starts, keys)
    for i in range(4):
        alone = decide(planner, mdp, starts[i], jr.split(jr.key(11), 4)[i])
        jax.tree.map(lambda b, a, i=i: np.testing.assert_allclose(b[i], a, atol=2e-5, rtol=2e-5), batched, alone)


@any_planner
def test_the_second_decision_compiles_nothing(planner):
    def mdp(scale, weight):
        base = linear_quadratic(scale * A, B, Q, R, noise_std=0.1, stochastic=True)
        return eqx.tree_at(lambda m: m.bonus_weight, base, jnp.float32(weight))

    _, state = decide(planner, mdp(1.0, 0.0), zeros(2), jr.key(12))
    before = TRACES[0]
    assert before > 0
    for i in range(3):  # new model, new λ, new state, new key: all of them are arrays
        _, state = later(planner, mdp(0.9, i), zeros(2) + i, jr.key(13 + i), state)
    assert TRACES[0] == before


@any_planner
def test_the_episode_starts_afresh(planner):
    mdp = memoryless([0.3])
    _, used = decide(planner, mdp, zeros(1), jr.key(14))
    fresh = planner.begin_episode(used, mdp)
    first, _ = later(planner, mdp, zeros(1), jr.key(15), fresh)
    expected, _ = decide(planner, mdp, zeros(1), jr.key(15))
    np.testing.assert_array_equal(first, expected)
    kept, metrics = planner.improve(used, mdp, Replay.empty(1, 1, 1), key=jr.key(16))
    assert kept is used and metrics == {}


# Slow to contract, or fresh samples beat every kept elite and keeping them moves nothing.
ICEM_SLOW = dataclasses.replace(ICEM_SMALL, num_samples=24, momentum=0.5)
OTHER = {
    ICEM_SLOW: {
        "num_samples": 20,
        "num_elites": 10,
        "iterations": 3,
        "horizon": 4,
        "particles": 2,
        "init_std": 0.4,
        "momentum": 0.1,
        "noise_exponent": 0.5,
        "keep_fraction": 1.0,
        "shift_elites": False,
        "population_decay": 1.5,
        "execute": "mean",
    },
    MPPI_SMALL: {
        "num_samples": 63,
        "iterations": 3,
        "horizon": 4,
        "particles": 2,
        "init_std": 0.4,
        "noise_exponent": 0.5,
        "temperature": 0.5,
        "std_update": 0.9,
    },
}
KNOBS = [(config, field.name) for config in OTHER for field in dataclasses.fields(config)]


@pytest.mark.thorough
@pytest.mark.parametrize(("config", "name"), KNOBS, ids=[f"{type(c).__name__}-{n}" for c, n in KNOBS])
def test_every_knob_moves_the_actions(config, name):
    """A new field without a row above fails here."""
    mdp = linear_quadratic(A, B, Q, R, noise_std=0.3, stochastic=name == "particles")
    changed = dataclasses.replace(config, **{name: OTHER[config][name]})

    def four_actions(config):
        planner = ICEM(config) if isinstance(config, ICEMConfig) else MPPI(config)
        start, state = np.array([0.2, 0.1]), planner.init(mdp, key=jr.key(0))
        actions = []
        for key in jr.split(jr.key(17), 4):  # the second decision is the first to see shifted elites
            action, state = later(planner, mdp, jnp.asarray(start, jnp.float32), key, state)
            actions.append(np.asarray(action))
            start = A @ start + B @ actions[-1]
        return np.array(actions)

    assert np.abs(four_actions(config) - four_actions(changed)).max() > 1e-4


def test_candidates_share_their_random_numbers():
    mdp = memoryless([0.2], stochastic=True, noise_std=1.0)
    plan = 0.1 * jr.normal(jr.key(18), (1, 5, 1), jnp.float32)
    plans = jnp.concatenate([plan, plan + 0.1, plan])
    scores = score_candidates(mdp, zeros(1), plans, particles=3, key=jr.key(19))
    assert scores[0] == scores[2] != scores[1]
    alone = score_candidates(mdp, zeros(1), plan, particles=3, key=jr.key(19))
    np.testing.assert_allclose(scores[:1], alone, rtol=1e-6)
    other = score_candidates(mdp, zeros(1), plan, particles=3, key=jr.key(20))
    assert other[0] != alone[0]


def test_particles_average_the_noise():
    """E -(u + w - target)² = -(u - target)² - std², per decision."""
    mdp = memoryless([0.2], stochastic=True, noise_std=0.5)
    plan = jnp.full((1, 4, 1), 0.6, jnp.float32)
    score = score_candidates(mdp, zeros(1), plan, particles=20_000, key=jr.key(21))
    np.testing.assert_allclose(score[0], -4 * (0.4**2 + 0.5**2), rtol=0.02)


@pytest.mark.parametrize(("stochastic", "rollouts"), [(False, 1), (True, 7)])
def test_a_deterministic_mdp_is_rolled_out_once(stochastic, rollouts):
    mdp = memoryless([0.2], stochastic=stochastic, noise_std=0.5)
    plans = jnp.zeros((3, 5, 1), jnp.float32)
    lowered = jax.make_jaxpr(lambda k: score_candidates(mdp, zeros(1), plans, particles=7, key=k))(jr.key(0))
    scans = [eqn for eqn in lowered.eqns if eqn.primitive.name == "scan"]
    assert len(scans) == 1
    assert any(v.aval.shape[:2] == (3, rollouts) for v in scans[0].outvars)


def test_discount_and_the_end_of_the_task():
    eye = np.eye(1)
    plan = jnp.ones((1, 4, 1), jnp.float32)

    def score(**options):  # x: 0 → 1 → 2 → 3 → 4, paying x'²
        mdp = linear_quadratic(eye, eye, eye, 0 * eye, **options)
        return float(score_candidates(mdp, zeros(1), plan, particles=1, key=jr.key(22))[0])

    np.testing.assert_allclose(score(), -(1 + 4 + 9 + 16))
    np.testing.assert_allclose(score(discount=0.5), -(1 + 4 / 2 + 9 / 4 + 16 / 8))
    np.testing.assert_allclose(score(limit=1.5), -(1 + 4))  # the decision that ends the task still counts


def test_what_is_imagined_after_the_end_does_not_count_even_if_nan():
    mdp = linear_quadratic([[1e30]], [[1.0]], [[1.0]], [[0.0]], limit=0.5)  # 1, 1e30, inf, ...
    score = score_candidates(mdp, zeros(1), jnp.ones((1, 4, 1), jnp.float32), particles=1, key=jr.key(23))
    np.testing.assert_allclose(score, -1.0)
