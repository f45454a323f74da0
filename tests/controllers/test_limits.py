"""Planners and shields within a budget, on systems whose reachable cost can be written down."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.controllers import ICEM, MPPI, AbstractController, ICEMConfig, MPPIConfig, cem
from sombrl.controllers.limits import BEYOND, MOST, best_class, beyond, lexicographic
from sombrl.controllers.mppi import softmax_weights
from sombrl.controllers.rollout import return_and_cost, score_candidates
from sombrl.controllers.shield import Shield
from sombrl.dynamics.base import AbstractVectorDynamics
from sombrl.exploration.base import ImaginedMDP, Limit
from sombrl.exploration.bonus import NoBonus
from sombrl.exploration.propagation import Mean
from sombrl.records import AbstractCost, AbstractTask, Prediction, SombrlError
from tests.controllers.worlds import f32

DT = 0.1


class Cart(AbstractVectorDynamics):
    """(x, v): v' = v + u DT, x' = x + v' DT, with the same σ everywhere (of each of two coordinates: ‖σ‖ = √2 σ)."""

    sigma: float = eqx.field(static=True)

    def predict(self, state, action):
        v = state[1] + DT * action[0]
        mean = jnp.stack([state[0] + DT * v, v])
        return Prediction(mean, jnp.full_like(mean, self.sigma), jnp.zeros_like(mean), jnp.ones_like(mean))


class Right(AbstractTask):
    """The further right, the better."""

    def reward(self, state, action, next_state):
        return next_state[0]

    def terminated(self, state, action, next_state):
        return jnp.zeros((), bool)


class Wall(AbstractCost):
    """1 at x >= 1; `slope` more per metre beyond."""

    slope: float = eqx.field(static=True)

    def __call__(self, state, action, next_state):
        return jnp.where(next_state[0] >= 1.0, 1.0 + self.slope * (next_state[0] - 1.0), 0.0)


class Push(AbstractController):
    """Always the same force; `AbstractController` as a user would write a policy."""

    force: float = eqx.field(static=True)

    def init(self, mdp, *, key):
        return jnp.zeros(())

    def begin_episode(self, state, mdp):
        return state

    def improve(self, state, mdp, replay, *, key):
        return state, {}

    def act(self, state, mdp, belief, *, key):
        return jnp.full(1, self.force, jnp.float32), state


def cart(*, budget=0.5, weight=0.0, sigma=0.0, slope=0.0, limited=True):
    limit = Limit(Wall(slope), f32(weight), f32(budget)) if limited else None
    one = f32(1.0)
    return ImaginedMDP(Cart(sigma), Right(), Mean(), NoBonus(), f32(0.0), one, one, 1, 1, False, limit)


def test_the_order_is_lexicographic():
    returns, costs = f32([5.0, -3e6, 7.0, 9.0, 8.0, 9.0]), f32([0.0, 0.5, 0.6, 0.500001, jnp.nan, 1e9])
    scores = lexicographic(returns, costs, f32(0.5))
    np.testing.assert_array_equal(np.argsort(-np.asarray(scores)), [0, 1, 3, 2, 5, 4])
    np.testing.assert_array_equal(scores[:2], returns[:2])  # within the budget: the return itself
    np.testing.assert_array_equal(beyond(scores), [False, False, True, True, True, True])
    assert np.isfinite(np.square(np.float32(BEYOND * (1 + MOST))))
    weights = softmax_weights(best_class(scores), 0.3)
    np.testing.assert_array_equal(np.asarray(weights) > 0, [True, True, False, False, False, False])
    alone = softmax_weights(best_class(scores[2:4]), 0.3)
    assert alone[1] > alone[0] > 0  # none is within: the weights say which is nearer


def test_the_bound_is_the_cost_and_the_weighted_sigmas():
    """Σ c + λc ‖σ‖ of a plan, by hand: constant force for six decisions from x = 0.5, v = 0.5."""
    actions, start = jnp.ones((6, 1), jnp.float32), f32([0.5, 0.5])
    x, v, cost = 0.5, 0.5, 0.0
    for _ in range(6):
        v += DT
        x += DT * v
        cost += (1.0 + 2.0 * (x - 1.0)) * (x >= 1.0)
    assert cost > 0
    mdp = cart(weight=0.3, sigma=0.2, slope=2.0)
    _, bound = return_and_cost(mdp, start, actions, key=jr.key(0))
    np.testing.assert_allclose(bound, cost + 6 * 0.3 * np.sqrt(2) * 0.2, rtol=1e-5)


SMALL = {"num_samples": 80, "iterations": 4, "horizon": 8, "particles": 1}
PLANNERS = {
    "icem": ICEM(ICEMConfig(num_elites=8, **SMALL)),
    "cem": cem(ICEMConfig(num_elites=8, **SMALL)),
    "mppi": MPPI(MPPIConfig(**SMALL)),
}
each_planner = pytest.mark.parametrize("planner", PLANNERS.values(), ids=PLANNERS)


@eqx.filter_jit
def watched(planner, mdp, start, key):
    return planner.act_watched(planner.init(mdp, key=jr.key(0)), mdp, start, key=key)


@each_planner
def test_plans_stay_within_the_budget(planner):
    """Without a limit the way leads through the wall; with one, the best plan within it is taken."""
    start = f32([0.8, 0.3])
    for seed in range(5):
        action, new, seen = watched(planner, cart(), start, jr.key(seed))
        plan = jnp.concatenate([action[None], new.plan[:-1]])
        _, bound = return_and_cost(cart(), start, plan, key=jr.key(0))
        assert float(bound) == float(seen.bound) == 0.0 and not bool(seen.intervened)
    _, new, seen = watched(planner, cart(budget=1e9), start, jr.key(0))
    assert float(seen.bound) >= 1.0  # beyond the wall, where nothing forbids it


@each_planner
def test_where_nothing_is_within_the_cheapest_is_taken(planner):
    """From beyond the wall the cost per decision falls with x: all that helps is to push left."""
    action, _, seen = watched(planner, cart(slope=1.0), f32([2.0, 0.0]), jr.key(1))
    assert bool(seen.intervened) and float(seen.bound) > 8.0
    assert float(action[0]) < -0.5


@each_planner
def test_a_budget_that_nothing_reaches_changes_no_score(planner):
    """Bit for bit: the same candidates, the same scores, the same decision."""
    free, large = cart(limited=False, sigma=0.1), cart(budget=1e9, weight=1.0, sigma=0.1)
    candidates = jr.uniform(jr.key(3), (50, 8, 1), jnp.float32, -1.0, 1.0)
    start = f32([0.8, 0.3])
    scores = [
        jax.jit(lambda mdp=mdp: score_candidates(mdp, start, candidates, particles=1, key=jr.key(0)))()
        for mdp in (free, large)
    ]
    np.testing.assert_array_equal(*scores)

    def act(mdp):
        return planner.act(planner.init(mdp, key=jr.key(0)), mdp, start, key=jr.key(5))

    (ours, _), (theirs, _) = (jax.jit(lambda mdp=mdp: act(mdp))() for mdp in (free, large))
    if planner is not PLANNERS["mppi"]:
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def reach(x, v, steps, force=1.0):
    """Where constant force leads: x + k v DT + k (k + 1)/2 force DT²."""
    return x + steps * v * DT + 0.5 * steps * (steps + 1) * force * DT**2


SHIELD = Shield.around(Push(1.0), 10, fallback=Push(-1.0))


@jax.jit
def shielded(mdp, start):
    return SHIELD.act_watched(jnp.zeros(()), mdp, start, key=jr.key(0))


def test_the_shield_takes_over_where_the_reachable_cost_is_beyond_the_budget():
    for x in np.linspace(-1.5, 1.0, 26):
        for v in (-0.5, 0.0, 0.7):
            action, _, seen = shielded(cart(), f32([x, v]))
            end = reach(x, v, np.arange(1, 11))
            if np.min(np.abs(end - 1.0)) < 1e-4:
                continue  # float32 decides
            np.testing.assert_allclose(seen.bound, np.sum(end >= 1.0), rtol=1e-6)
            assert bool(seen.intervened) == (end.max() >= 1.0)
            assert float(action[0]) == (-1.0 if end.max() >= 1.0 else 1.0)


def test_uncertainty_counts_as_cost():
    """10 decisions of λc √2 σ each: beyond a budget of 0.5 from λc σ = 0.05/√2 on."""
    for weight, takes_over in ((0.34, False), (0.36, True)):
        seen = shielded(cart(weight=weight, sigma=0.1), f32([-5.0, 0.0]))[2]
        np.testing.assert_allclose(seen.bound, weight * np.sqrt(2.0), rtol=1e-5)
        assert bool(seen.intervened) == takes_over


def test_a_shield_keeps_a_reckless_policy_safe():
    """It brakes at full force, which takes v²/2 metres: ten decisions are enough to see the wall from below 1 m/s."""
    state, positions = np.array([0.0, 0.0]), []
    for _ in range(60):
        action = float(shielded(cart(), f32(state))[0][0])
        state[1] += DT * action
        state[0] += DT * state[1]
        positions.append(state[0])
    assert max(positions) < 1.0
    assert max(positions) > 0.3  # and it does not simply stand still
    assert reach(0.0, 0.0, 60) > 1.0


def test_without_a_fallback_of_ones_own_a_planner_for_cost_alone_takes_over():
    shield = Shield.around(Push(1.0), 10)
    act = jax.jit(lambda start: shield.act_watched(jnp.zeros(()), cart(slope=1.0), start, key=jr.key(2)))
    action, _, seen = act(f32([0.95, 0.5]))
    assert bool(seen.intervened) and float(action[0]) < -0.5
    action, _, seen = act(f32([-2.0, 0.0]))
    assert not bool(seen.intervened) and float(action[0]) == 1.0


def test_without_a_limit_a_shield_is_the_controller():
    action, _ = SHIELD.act(jnp.zeros(()), cart(limited=False), f32([5.0, 0.0]), key=jr.key(0))
    assert float(action[0]) == 1.0
    with pytest.raises(SombrlError, match="put a Shield around it"):
        Push(1.0).act_watched(jnp.zeros(()), cart(), f32([0.0, 0.0]), key=jr.key(0))


def test_what_is_left_of_a_budget_replaces_it():
    mdp = cart(budget=2.0)
    assert float(mdp.within(f32(0.25)).limit.budget) == 0.25
    free = cart(limited=False)
    assert free.within(f32(0.25)) is free
    assert dataclasses.replace(mdp, limit=None).within(f32(1.0)).limit is None
