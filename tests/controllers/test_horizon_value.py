"""The value beyond the horizon: against sums that are known, and what a planner can do with it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.controllers import ICEM, MPPI, ICEMConfig, MPPIConfig, cem
from sombrl.controllers.horizon_value import HorizonValueConfig, ValueFit, fit
from sombrl.controllers.rollout import better_start, score_candidates
from sombrl.exploration.bonus import EpistemicNorm
from sombrl.records import AbstractTask, Transition
from sombrl.replay import Replay
from sombrl.settings import Discounted, FiniteHorizon, NonEpisodic
from tests.oracles.toy import LinearDynamics, f32, imagine

DISCOUNT = 0.9
STEP = 0.1
CONFIG = HorizonValueConfig(anchors=64, actions=3)


class Far(AbstractTask):
    """`base` everywhere and 1 more beyond `goal`; ends beyond `limit`."""

    base: jax.Array
    goal: jax.Array
    limit: jax.Array

    def reward(self, state, action, next_state):
        return self.base + jnp.where(next_state[0] >= self.goal, 1.0, 0.0)

    def terminated(self, state, action, next_state):
        return next_state[0] > self.limit


def line(base=0.0, goal=1.95, limit=np.inf, dynamics=None):
    """A point that an action moves by at most `STEP`."""
    dynamics = dynamics or LinearDynamics(f32([[1.0]]), f32([[STEP]]), f32(0.0))
    return imagine(dynamics, Far(f32(base), f32(goal), f32(limit)), action_dim=1)


def visited(states, capacity=64, follow=False):
    """A replay of these states; each leads to the next one if `follow`, or to itself."""
    obs = f32(states)[:, None]
    after = jnp.concatenate([obs[1:], obs[-1:]]) if follow else obs
    number = obs.shape[0]
    no = jnp.zeros(number, bool)
    rows = Transition(obs, jnp.ones((number, 1), jnp.float32), jnp.zeros(number, jnp.float32), after, no, no)
    return Replay.empty(capacity, 1, 1).add(rows, ~no)


def fitted(mdp, replay, config=CONFIG, discount=DISCOUNT, limit=None):
    value = ValueFit(config, discount, limit, 20, 1, 1).init()
    return eqx.filter_jit(fit)(config, discount, value, mdp, replay, key=jr.key(0))


def at(value, *states):
    return np.array([float(value(f32([state]), 5)) for state in states])


GRID = np.arange(0.0, 3.0, STEP)


def test_the_value_of_a_constant_reward_is_the_geometric_series():
    value = fitted(line(base=0.5), visited(GRID))
    expected = (0.5 + (GRID >= 1.95)) / (1 - DISCOUNT)
    inside = GRID > 2.5
    np.testing.assert_allclose(at(value, *GRID[inside]), expected[inside], rtol=1e-3)
    nowhere = fitted(line(base=0.5, goal=1e6), visited(GRID))
    np.testing.assert_allclose(at(nowhere, *GRID, -7.0, 9.0), 5.0, rtol=1e-4)


def test_the_value_falls_by_the_discount_for_every_decision_to_the_goal():
    """Full force from x needs ceil((1.95 - x)/0.1) decisions; the last of them is paid already.

    Averages over neighbours flatten the slope a little.
    """
    value = fitted(line(), visited(GRID))
    decisions = np.ceil(np.round((1.95 - GRID[:20]) / STEP, 6)) - 1
    expected = DISCOUNT**decisions / (1 - DISCOUNT)
    np.testing.assert_allclose(at(value, *GRID[:20]), expected, rtol=0.2)
    assert value.act(f32([0.3])) == 1.0


def test_anchors_agree_with_value_iteration_by_brute_force():
    """The same small decision problem, solved by repeating its Bellman equation in NumPy."""
    mdp, replay, number = line(base=-0.1), visited(GRID), len(GRID)
    value = fitted(mdp, replay)
    actions, durations = np.linspace(-1, 1, 3), (1, 2, 4, 8)
    values = np.zeros(number)
    ends = np.array([[x + STEP * u * np.arange(1, 9) for u in actions] for x in GRID])
    paid = -0.1 + (ends >= 1.95 - 1e-6)
    weights = {t: np.stack([[value.weights(f32([x])) for x in row] for row in ends[:, :, t - 1]]) for t in durations}
    for _ in range(300):
        options = [
            paid[:, :, :t] @ DISCOUNT ** np.arange(t) + DISCOUNT**t * weights[t][:, :, :number] @ values
            for t in durations
        ]
        values = np.max(np.concatenate(options, axis=1), axis=1)
    np.testing.assert_allclose(np.asarray(value.values)[:number], values, rtol=2e-3, atol=2e-3)


def test_what_was_really_done_is_an_option():
    """The model believes that nothing moves; the data know the way."""
    stuck = LinearDynamics(f32([[1.0]]), f32([[0.0]]), f32(0.0))
    way = np.arange(0.0, 3.0, 0.5)
    config = dataclasses.replace(CONFIG, anchors=8)
    without = fitted(line(dynamics=stuck), visited(way, capacity=8), config)
    along = fitted(line(dynamics=stuck), visited(way, capacity=8, follow=True), config)
    # From 0 four moves of the data reach 2.0, which pays; after 2.5 the goal pays at every decision.
    np.testing.assert_allclose(along.values[0], DISCOUNT**3 / (1 - DISCOUNT), rtol=0.1)
    assert without.values[0] < 0.5 * along.values[0]
    assert float(along.actions[0, 0]) == 1.0


def test_nothing_is_earned_after_the_end():
    """x' > 2 ends the task, and pays once."""
    value = fitted(line(limit=1.95), visited(GRID))
    assert at(value, 1.9)[0] == pytest.approx(1.0, abs=0.15)
    assert np.max(value.values) < 1.1


def test_it_counts_what_the_rest_of_an_episode_can_earn():
    """1 per decision: after a plan of 5 decisions there are 40 - t - 5 left, and as many rewards."""
    fitter = HorizonValueConfig(anchors=64, actions=3).build(FiniteHorizon(40), 1, 1)
    assert fitter.limit == 40
    mdp = line(base=1.0, goal=1e6)
    value = fitted(mdp, visited(GRID), discount=fitter.discount, limit=fitter.limit)
    plan = jnp.zeros((1, 5, 1), jnp.float32)
    for decision in range(42):
        worth = at(value, 0.5)[0]
        score = score_candidates(mdp, f32([0.5]), plan, particles=1, value=value, key=jr.key(0))[0]
        if decision < 40:
            assert worth == pytest.approx(max(0, 35 - decision), abs=0.05)
            assert float(score) == pytest.approx(max(5, 40 - decision), abs=0.05)
        else:  # the agent goes on, so nothing has ended
            assert worth == pytest.approx(40.0, abs=0.05)
        value = value.after_decision()
    assert at(value.begin_episode(), 0.5)[0] == pytest.approx(35.0, abs=0.05)


@pytest.mark.parametrize("setting", [Discounted(0.95, longest=60), NonEpisodic(update_every=10)])
def test_only_episodes_of_fixed_length_have_an_end_that_counts(setting):
    assert HorizonValueConfig().build(setting, 1, 1).limit is None


@pytest.mark.parametrize(
    ("setting", "given", "expected"),
    [
        (FiniteHorizon(40), None, 0.975),
        (FiniteHorizon(3), None, 0.9),
        (FiniteHorizon(1000), None, 0.99),
        (FiniteHorizon(40), 0.5, 0.5),
        (Discounted(0.95, longest=60), None, 0.95),
        (NonEpisodic(update_every=10), None, 0.99),
    ],
)
def test_its_discount_is_the_settings(setting, given, expected):
    fitter = HorizonValueConfig(discount=given).build(setting, 1, 1)
    assert fitter.discount == pytest.approx(expected)
    value = fitted(line(base=1.0, goal=1e6), visited(GRID), discount=fitter.discount)
    np.testing.assert_allclose(at(value, 0.0, 1.0), 1 / (1 - expected), rtol=2e-3)


def test_the_bonus_is_part_of_what_is_planned_for():
    """σ = 1 everywhere here: λ more at every decision."""

    class Unsure(LinearDynamics):
        def predict(self, state, action):
            sure = super().predict(state, action)
            return dataclasses.replace(sure, epistemic_std=jnp.ones_like(sure.mean))

    dynamics = Unsure(f32([[1.0]]), f32([[STEP]]), f32(0.0))
    mdp = line(base=1.0, goal=1e6, dynamics=dynamics)
    curious = dataclasses.replace(mdp, bonus=EpistemicNorm(), bonus_weight=f32(3.0))
    np.testing.assert_allclose(at(fitted(mdp, visited(GRID)), 0.5), 10.0, rtol=1e-3)
    np.testing.assert_allclose(at(fitted(curious, visited(GRID)), 0.5), 40.0, rtol=1e-3)


def test_predictions_that_are_not_finite_lead_nowhere():
    broken = LinearDynamics(f32([[np.inf]]), f32([[STEP]]), f32(0.0))
    value = fitted(line(base=0.5, dynamics=broken), visited(GRID))
    assert np.all(np.isfinite(value.values)) and np.all(np.isfinite(value.actions))


@pytest.mark.thorough
def test_it_is_fitted_again_when_there_is_a_tenth_more_data():
    fitter = ValueFit(CONFIG, DISCOUNT, None, 20, 1, 1)
    improve = eqx.filter_jit(fitter.improve)
    first = improve(fitter.init(), line(), visited(GRID), key=jr.key(0))
    same = improve(first, line(base=5.0), visited(np.append(GRID, 3.0)), key=jr.key(1))
    np.testing.assert_array_equal(same.values, first.values)
    more = improve(first, line(base=5.0), visited(np.append(GRID, [3.0, 3.1, 3.2, 3.3])), key=jr.key(1))
    assert np.min(more.values[:30]) > 40 and int(more.fitted_on) == 34


def test_without_data_there_is_no_value():
    value = fitted(line(base=1.0), Replay.empty(64, 1, 1))
    assert at(value, 0.0, 5.0).tolist() == [0.0, 0.0]


def test_its_plan_goes_to_the_goal():
    value = fitted(line(), visited(GRID))
    np.testing.assert_array_equal(value.propose(line(), f32([0.0]), 12)[0], np.ones((12, 1)))


@pytest.mark.thorough
def test_the_search_starts_with_the_better_plan():
    mdp, value = line(), fitted(line(), visited(GRID))
    for warm in (jnp.zeros((5, 1), jnp.float32), jnp.ones((5, 1), jnp.float32)):
        plan, score = better_start(mdp, f32([1.6]), warm, value, particles=1, key=jr.key(0))
        every = jnp.concatenate([warm[None], value.propose(mdp, f32([1.6]), 5)])
        scores = score_candidates(mdp, f32([1.6]), every, particles=1, value=value, key=jr.key(0))
        assert float(score) == float(jnp.max(scores))
        np.testing.assert_array_equal(plan, jnp.ones((5, 1)))


SIZE = {"num_samples": 32, "iterations": 2, "horizon": 5}
FIT = ValueFit(CONFIG, DISCOUNT, None, 20, 1, 1)
WITH = {
    "icem": ICEM(ICEMConfig(num_elites=4, **SIZE), FIT),
    "cem": cem(ICEMConfig(num_elites=4, **SIZE), FIT),
    "mppi": MPPI(MPPIConfig(**SIZE), FIT),
}
WITHOUT = {
    "icem": ICEM(ICEMConfig(num_elites=4, **SIZE)),
    "cem": cem(ICEMConfig(num_elites=4, **SIZE)),
    "mppi": MPPI(MPPIConfig(**SIZE)),
}


def walk(planner, decisions=24):
    """Where a planner with a horizon of five decisions is after as many as the goal takes, and a few more."""
    mdp, state = line(), planner.init(line(), key=jr.key(0))
    state, _ = planner.improve(state, mdp, visited(GRID), key=jr.key(0))
    act = eqx.filter_jit(planner.act)
    x = f32([0.0])
    for t in range(decisions):
        action, state = act(state, mdp, x, key=jr.key(t))
        x = x + STEP * action
    return float(x[0])


@pytest.mark.parametrize("name", WITH)
def test_a_planner_reaches_what_lies_beyond_its_horizon(name):
    assert walk(WITH[name]) > 1.9
    assert abs(walk(WITHOUT[name])) < 1.0


@pytest.mark.parametrize("name", WITH)
def test_the_value_is_kept_from_episode_to_episode(name):
    planner, mdp = WITH[name], line()
    assert planner.learns_from_data and not WITHOUT[name].learns_from_data and not planner.learns
    state, _ = planner.improve(planner.init(mdp, key=jr.key(0)), mdp, visited(GRID), key=jr.key(0))
    _, after = eqx.filter_jit(planner.act)(state, mdp, f32([0.0]), key=jr.key(1))
    again = planner.begin_episode(after, mdp)
    assert int(after.value.decision) == 1 and int(again.value.decision) == 0
    np.testing.assert_array_equal(again.value.values, state.value.values)
    np.testing.assert_array_equal(again.plan, np.zeros((5, 1)))
