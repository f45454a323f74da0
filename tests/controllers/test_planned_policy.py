"""Short plans from a policy: what they become without a horizon, a search or a bonus, and that they find an optimum."""

from dataclasses import fields, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.linalg

from sombrl.controllers import SAC, SACConfig
from sombrl.controllers.planned_policy import PlanConfig, PlannedPolicy, PolicyEnd
from sombrl.controllers.sac_losses import BonusStatistics, gaussian, squash, twin_q
from sombrl.exploration.propagation import Resampled
from tests.controllers.test_sac_strong import always
from tests.controllers.worlds import f32, uncertain, world
from tests.oracles.toy import linear_quadratic, memoryless, poisoned

TINY = SACConfig(hidden=(4, 4), critic="plain", batch_size=6)
SMALL = PlanConfig(num_samples=24, iterations=2, proposals=4)
OBS = f32([0.3, -0.2, 1.1])
both = pytest.mark.parametrize("search", ["mppi", pytest.param("icem", marks=pytest.mark.thorough)])


@eqx.filter_jit
def act(controller, state, mdp, obs, key):
    """One decision."""
    return controller.act(state, mdp, obs, key=key)[0]


def trained(mdp, config=TINY, obs_dim=3, deterministic=True):
    """A policy, and a state of it whose bonus has statistics and whose λ has moved."""
    sac = SAC(obs_dim, config, deterministic)
    state = sac.init(mdp, key=jr.key(1))
    statistics = BonusStatistics(f32(0.2), f32(0.5), f32(10.0))
    return sac, eqx.tree_at(lambda s: (s.statistics, s.log_bonus_factor), state, (statistics, f32(np.log(3.0))))


def planned(sac, search="mppi", **config):
    """That policy with short plans."""
    return PlannedPolicy(sac, replace(SMALL, **config), search)


@both
@pytest.mark.parametrize("deterministic", [True, False])
def test_horizon_0_is_the_policy(search, deterministic):
    mdp = uncertain()
    sac, state = trained(mdp, deterministic=deterministic)
    np.testing.assert_array_equal(
        act(planned(sac, search, horizon=0), state, mdp, OBS, jr.key(2)), act(sac, state, mdp, OBS, jr.key(2))
    )


def test_without_iterations_and_proposals_it_is_the_policy():
    mdp = uncertain()
    sac, state = trained(mdp)
    alone = planned(sac, iterations=0, proposals=0)
    np.testing.assert_array_equal(act(alone, state, mdp, OBS, jr.key(2)), act(sac, state, mdp, OBS, jr.key(2)))
    exploring = replace(alone, sac=replace(sac, deterministic=False))
    noise = jr.normal(jr.split(jr.key(2))[1], (2,), jnp.float32)
    expected = squash(*gaussian(sac.actor(state), OBS), noise)[0]
    np.testing.assert_allclose(act(exploring, state, mdp, OBS, jr.key(2)), expected, rtol=1e-6)


@both
def test_a_search_without_noise_is_the_policy(search):
    mdp = uncertain()
    sac, state = trained(mdp)
    still = planned(sac, search, init_std=0.0, proposals=0)
    np.testing.assert_allclose(act(still, state, mdp, OBS, jr.key(2)), act(sac, state, mdp, OBS, jr.key(2)), atol=1e-6)


@both
def test_plans_without_bonus_weight_are_greedy(search):
    greedy, without, with_bonus = world(), uncertain(weight=0.0), uncertain(weight=2.0)
    sac, state = trained(greedy)
    actions = [act(planned(sac, search), state, mdp, OBS, jr.key(3)) for mdp in (greedy, without, with_bonus)]
    np.testing.assert_allclose(actions[0], actions[1], rtol=1e-6)
    assert np.abs(actions[0] - actions[2]).max() > 1e-3


class Known(eqx.Module):
    """A critic that knows the value of the next state: -xᵀPx, whatever is done there."""

    P: jax.Array

    def __call__(self, inputs):
        x = inputs[: self.P.shape[0]]
        return -(x @ self.P @ x)[None]


A, B = np.array([[1.0, 0.3], [0.0, 1.0]]), np.array([[0.0], [0.3]])
Q, R, GAMMA = np.diag([1.0, 0.1]), np.array([[0.1]]), 0.9


def discounted_lqr():
    """The gain and the matrix of the value, Σ γᵗ (x'ᵀQx' + uᵀRu) without an end, by SciPy's Riccati equation."""
    W = scipy.linalg.solve_discrete_are(np.sqrt(GAMMA) * A, np.sqrt(GAMMA) * B, Q, GAMMA * R)
    return np.linalg.solve(R + B.T @ W @ B, B.T @ W @ A), (W - Q) / GAMMA


@both
@pytest.mark.parametrize("horizon", [1, 3])
def test_with_the_true_value_at_its_end_a_short_plan_is_optimal(search, horizon):
    """From a policy that does nothing."""
    gain, P = discounted_lqr()
    mdp, start = linear_quadratic(A, B, Q, R), np.array([0.4, -0.1])
    sac, state = trained(mdp, replace(TINY, discount=GAMMA, critics="one"), obs_dim=2)
    idle = eqx.tree_at(lambda n: (n.layers[-1].weight, n.layers[-1].bias), state.actor, replace_fn=jnp.zeros_like)
    plans = planned(sac, search, horizon=horizon, num_samples=300, iterations=20, init_std=0.5)
    state = eqx.tree_at(lambda s: s.actor, state, idle)
    optimal, found = -gain @ start, []
    assert np.abs(optimal).max() < 0.9  # no bound is active
    for matrix in (P, np.zeros_like(P)):
        informed = eqx.tree_at(lambda s: s.critic, state, Known(f32(matrix)[None]))
        found.append(act(plans, informed, mdp, f32(start), jr.key(4)))
    np.testing.assert_allclose(found[0], optimal, atol=0.02)
    assert np.abs(found[1] - optimal).max() > 0.1  # so short a plan alone is far from it


def test_the_value_at_the_end_is_the_critics_and_the_bonus_is_theirs():
    """λσ with λ = 2 · 3, σ = e^u₀ less 0.2 over 0.5; in Q already where the bonus is part of the reward."""
    mdp = uncertain(weight=2.0)
    sac, state = trained(mdp)
    state = eqx.tree_at(lambda s: s.actor, state, always([0.1, 0.4]))
    end = PolicyEnd(sac, state, sac.objective(state, mdp), jnp.zeros((0, 3, 2), jnp.float32))
    q = float(jnp.min(twin_q(state.critic, OBS[None], f32([[0.1, 0.4]]))))
    bonus = 6.0 * (np.exp(0.1) - 0.2) / 0.5
    np.testing.assert_allclose(end(OBS, 3), q + bonus, rtol=1e-5)
    in_reward = replace(sac, config=replace(TINY, bonus_enters="reward"))
    np.testing.assert_allclose(replace(end, sac=in_reward)(OBS, 3), q, rtol=1e-5)
    action, next_obs = f32([0.2, 0.5]), f32([0.0, 0.0, 0.0])
    expected = -(0.3**2) + 6.0 * (np.exp(0.2) - 0.2) / 0.5  # -|u - ½|² + λσ
    np.testing.assert_allclose(sac.objective(state, mdp).reward(OBS, action, next_obs), expected, rtol=1e-5)
    assert float(sac.objective(state, mdp).discount) == pytest.approx(TINY.discount)
    assert float(sac.objective(state, world(discount=0.8)).discount) == pytest.approx(0.8)


def test_the_best_proposal_is_taken():
    """x' = u: of the policy's samples, the one that the critics and the task like best."""
    mdp = memoryless([0.5])
    sac, state = trained(mdp, replace(TINY, discount=0.0), obs_dim=1)
    state = eqx.tree_at(lambda s: s.actor.layers[-1].bias, state, f32([0.0, 0.0]))  # a wide policy
    several = planned(sac, iterations=0, proposals=64, horizon=1)
    alone, best = (act(one, state, mdp, f32([0.0]), jr.key(5)) for one in (sac, several))
    assert abs(float(best[0]) - 0.5) < 0.1 < abs(float(alone[0]) - 0.5)


@both
def test_where_every_plan_is_nan_the_policy_acts(search):
    mdp = poisoned(-2.0)
    sac, state = trained(mdp, obs_dim=1)
    obs = f32([0.1])
    np.testing.assert_allclose(
        act(planned(sac, search), state, mdp, obs, jr.key(6)), act(sac, state, mdp, obs, jr.key(6)), atol=1e-6
    )


def test_bounds_are_respected_exploring_too():
    mdp = memoryless([5.0])
    sac, state = trained(mdp, obs_dim=1, deterministic=False)
    for key in jr.split(jr.key(7), 5):
        assert np.abs(act(planned(sac), state, mdp, f32([0.2]), key)).max() <= 1.0


OTHER = {
    "horizon": 2,
    "num_samples": 20,
    "iterations": 3,
    "proposals": 2,
    "init_std": 0.5,
    "temperature": 0.5,
    "particles": 2,
}


@pytest.mark.parametrize("name", [field.name for field in fields(PlanConfig)])
def test_every_knob_changes_the_program(name):
    """A new field without a row above fails here. Traced, neither compiled nor run."""
    mdp = replace(world(), propagation=Resampled(), stochastic=True)
    sac, state = trained(mdp)

    def program(config):
        controller = PlannedPolicy(sac, config, "mppi")
        return jax.jit(lambda key: controller.act(state, mdp, OBS, key=key)[0]).lower(jr.key(0)).as_text()

    assert program(SMALL) == program(replace(SMALL)) != program(replace(SMALL, **{name: OTHER[name]}))
