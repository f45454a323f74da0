"""Chains move as their equations say, and the best plan is that of a convex solver or of a grid, and has its bound."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

from sombrl.controllers.rollout import imagined_return
from sombrl.exploration.strategies import hucrl, optimistic
from sombrl.exploration.weight import Constant
from sombrl.paper.planning import SYSTEMS, Masses, Pendulums, ascend, imagined, linear_bound
from sombrl.paper.planning.systems import ACTION_COST, FRICTION, SLOPE, STEP, STIFFNESS
from sombrl.records import SombrlError

STRATEGIES = {"optimistic": lambda: optimistic(Constant(10.0)), "hucrl": lambda: hucrl(2.0)}


def best(chain, method, horizon, *, starts=4, steps=600):
    mdp = imagined(chain, STRATEGIES[method]())
    return mdp, ascend(mdp, chain.start, horizon, starts=starts, steps=steps, key=jr.key(0))


def test_masses_follow_newton():
    """Springs to both neighbours and to both walls; the force is constant within a decision."""
    chain, action = Masses(6, 2, seed=1), np.array([0.7, -0.4])
    start = np.asarray(chain.start, np.float64) + np.array([0, 0, 0, 0.3, -0.2, 0.5])

    def newton(_, state):
        x, v = state[:3], state[3:]
        padded = np.concatenate([[0.0], x, [0.0]])
        pull = STIFFNESS * (padded[2:] - x) + STIFFNESS * (padded[:-2] - x)
        return np.concatenate([v, pull - FRICTION * v + np.array([*action, 0.0])])

    end = solve_ivp(newton, (0.0, STEP), start, rtol=1e-10, atol=1e-12).y[:, -1]
    found = chain.predict(jnp.asarray(start, jnp.float32), jnp.asarray(action, jnp.float32))
    np.testing.assert_allclose(found.mean, end, atol=1e-5)
    sure = 0.1 * (1.0 + SLOPE * np.array([0.7, -0.4, 0.0, 0.7, -0.4, 0.0]))
    np.testing.assert_allclose(found.epistemic_std, sure, rtol=1e-5)


def test_pendulums_keep_their_energy_without_friction(monkeypatch):
    """A symplectic step of 1 ms: kinetic energy + g cos θ + twists stays what it was, and links twist each other."""
    from sombrl.paper.planning import systems

    monkeypatch.setattr(systems, "DAMPING", 0.0)
    monkeypatch.setattr(systems, "TICK", 1e-3)
    chain = Pendulums(6, 1, seed=0)

    def energy(state):
        angle, speed = np.split(np.asarray(state, np.float64), 2)
        return 0.5 * np.sum(speed**2) + 5.0 * np.sum(np.cos(angle)) - np.sum(np.cos(np.diff(angle)))

    def step(state, _):
        state = chain.predict(state, jnp.zeros(1, jnp.float32)).mean
        return state, state

    start = jnp.array([0.5, 2.0, 3.5, 1.0, 0.0, -1.0], jnp.float32)
    _, states = jax.lax.scan(step, start, length=500)
    energies = [energy(state) for state in states]
    assert np.ptp(energies) < 0.02 < np.ptp([0.5 * np.sum(np.asarray(state)[3:] ** 2) for state in states])


def test_a_pendulum_is_least_uncertain_where_there_were_data():
    chain = Pendulums(4, 2, seed=0)
    action = jnp.zeros(2, jnp.float32)
    np.testing.assert_allclose(chain.predict(chain.start, action).epistemic_std, 0.02, rtol=1e-5)
    away = chain.predict(chain.start.at[1].add(5.0), action).epistemic_std
    np.testing.assert_allclose(away, [0.02, 0.1, 0.02, 0.1], rtol=1e-4)


def linear_oracle(chain, method, horizon, plan):
    """The return in numpy, float64; for H-UCRL the second half of the plan are the moves w themselves."""
    A, B = np.asarray(chain.A, np.float64), np.asarray(chain.B, np.float64)
    driven, state, total = np.asarray(chain.driven), np.asarray(chain.start, np.float64), 0.0
    actions = plan[: horizon * chain.motors].reshape(horizon, -1)
    moves = plan[horizon * chain.motors :].reshape(horizon, -1)
    for t, action in enumerate(actions):
        sigma = 0.1 * (1.0 + SLOPE * driven @ action)
        state = A @ state + B @ action + (moves[t] if method == "hucrl" else 0.0)
        total += -(state @ state) - ACTION_COST * action @ action
        total += 10.0 * np.sqrt(sigma @ sigma) if method == "optimistic" else 0.0
    return total


@pytest.mark.parametrize("method", STRATEGIES)
def test_the_best_plan_for_masses_is_that_of_a_convex_solver(method):
    horizon, chain = 4, Masses(4, 2, seed=2)
    _, optimum = best(chain, method, horizon)
    driven, sizes = np.asarray(chain.driven), horizon * chain.motors
    box = [(-1.0, 1.0)] * sizes
    limits = []
    if method == "hucrl":
        box += [(None, None)] * (horizon * chain.state_dim)

        def room(plan, sign):
            sigma = 0.1 * (1.0 + SLOPE * plan[:sizes].reshape(horizon, -1) @ driven.T)
            return (2.0 * sigma + sign * plan[sizes:].reshape(horizon, -1)).ravel()

        limits = [{"type": "ineq", "fun": room, "args": (sign,)} for sign in (-1.0, 1.0)]
    solved = minimize(
        lambda plan: -linear_oracle(chain, method, horizon, plan),
        np.zeros(len(box)),
        method="SLSQP",
        bounds=box,
        constraints=limits,
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert optimum.value == pytest.approx(-solved.fun, abs=1e-4)
    assert optimum.idle == pytest.approx(linear_oracle(chain, method, horizon, np.zeros(len(box))), abs=1e-5)
    assert optimum.agreeing == 1.0  # nothing but the one optimum


@pytest.mark.parametrize("method", STRATEGIES)
def test_the_bound_holds_for_bad_plans_and_closes_for_the_best(method):
    chain = Masses(4, 1, seed=0)
    mdp, optimum = best(chain, method, 6)
    gain = optimum.value - optimum.idle
    idle = jnp.zeros_like(optimum.plan, jnp.float32)
    assert gain <= linear_bound(chain, mdp, chain.start, idle)
    assert 0 <= linear_bound(chain, mdp, chain.start, optimum.plan) < 1e-3 * gain


@pytest.mark.thorough
def test_the_objective_of_sombrl_is_concave_where_that_is_claimed():
    chain = Masses(2, 1, seed=0)  # the least norm of σ, so the least concave of them all
    mdp = imagined(chain, STRATEGIES["optimistic"]())
    for seed in range(5):
        plan = jr.uniform(jr.key(seed), (3, 1), jnp.float32, -1.0, 1.0)
        hessian = jax.hessian(lambda plan: imagined_return(mdp, chain.start, plan, key=jr.key(0)))(plan)
        assert np.linalg.eigvalsh(hessian.reshape(3, 3)).max() < 0


@pytest.mark.parametrize("method", STRATEGIES)
def test_the_best_plan_for_a_pendulum_is_that_of_a_grid(method):
    chain = Pendulums(2, 1, seed=0)
    horizon = 2 if method == "optimistic" else 1
    mdp, optimum = best(chain, method, horizon)
    axis = np.linspace(-1.0, 1.0, 41)
    plans = np.stack(np.meshgrid(*[axis] * (horizon * mdp.action_dim)), axis=-1).reshape(-1, horizon, mdp.action_dim)
    score = jax.vmap(lambda plan: imagined_return(mdp, chain.start, plan, key=jr.key(0)))
    values = np.asarray(score(jnp.asarray(plans, jnp.float32)))
    assert values.max() - 1e-4 <= optimum.value <= values.max() + 0.02 * (values.max() - values.min())
    assert optimum.quality(optimum.value) == 1.0 and optimum.quality(optimum.idle) == 0.0


def test_refuses():
    with pytest.raises(SombrlError, match="even number of coordinates"):
        Masses(3, 1, seed=0)
    with pytest.raises(SombrlError, match="at most a motor per link"):
        Pendulums(4, 3, seed=0)
    chain = SYSTEMS["pendulums"](2, 1, seed=0)
    mdp = imagined(chain, STRATEGIES["optimistic"]())
    with pytest.raises(SombrlError, match="only the objectives of masses"):
        linear_bound(chain, mdp, chain.start, jnp.zeros((2, 1), jnp.float32))
