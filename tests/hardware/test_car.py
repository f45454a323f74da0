"""The car in plain numbers against independent trajectories, and against the world in JAX."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.envs.rc_car import RCCar
from sombrl.envs.rc_car_dynamics import DEFAULTS
from sombrl.envs.rc_car_dynamics import advance as jax_advance
from sombrl.hardware.backend import Observation, wrap
from sombrl.hardware.encoding import ActionStack, encode, reward
from sombrl.hardware.sim_backend import CAR_2, advance

DT = 1.0 / 30.0


def world(moving):
    """(x, y, θ, vx, vy, ω) with θ wrapped and velocities in the frame of the world."""
    x, y, theta, vx, vy, omega = moving
    s, c = math.sin(theta), math.cos(theta)
    return np.array([x, y, wrap(theta), c * vx - s * vy, s * vx + c * vy, omega])


def test_trajectory_of_another_implementation():
    """Steer 0.6 sin 0.3t, throttle 0.5 + 0.4 cos 0.2t from the start pose: states after 1, 10 and 30 steps."""
    truth = {
        1: (1.4175, -1.0400, -3.1416, -0.1468, 0.0, 0.0),
        10: (1.2307, -1.0740, -3.0052, -0.9302, -0.2106, 0.6395),
        30: (0.5662, -1.1269, -3.0173, -1.3794, -0.2921, 0.9544),
    }
    moving = (1.42, -1.04, math.pi, 0.0, 0.0, 0.0)
    for t in range(30):
        moving = advance(CAR_2, moving, 0.6 * math.sin(0.3 * t), 0.5 + 0.4 * math.cos(0.2 * t), DT)
        if t + 1 in truth:
            difference = world(moving) - np.array(truth[t + 1])
            difference[2] = wrap(difference[2])
            assert np.abs(difference).max() < 1e-3


def test_the_same_car_as_the_world_in_jax():
    """The same numbers, and the same steps from states that cover driving, sliding and reversing."""
    theirs = DEFAULTS["high", 2]
    assert theirs.angle_offset == theirs.c_d == 0.0 and theirs.use_blend == 1.0
    for name in CAR_2.__dataclass_fields__:
        assert getattr(CAR_2, name) == getattr(theirs, name)
    rng = np.random.default_rng(0)
    moving = rng.uniform(-1, 1, (100, 6)) * np.array([2, 2, 3, 3, 1, 3])
    actions = rng.uniform(-1.2, 1.2, (100, 2))  # beyond the bounds, which both clip
    states = jnp.asarray(np.array([world(m) for m in moving]), jnp.float32)
    step = jax.jit(jax.vmap(lambda state, action: jax_advance(theirs, state, action)))
    ours = [world(advance(CAR_2, tuple(m), *a, DT)) for m, a in zip(moving.tolist(), actions.tolist(), strict=True)]
    np.testing.assert_allclose(ours, step(states, jnp.asarray(actions, jnp.float32)), atol=3e-5)


def test_a_piece_of_time_may_be_cut_anywhere():
    """Two pieces of a period give what one gives, up to the integrator's error."""
    moving = (0.0, 0.0, 0.3, 1.5, 0.1, 0.5)
    whole = advance(CAR_2, moving, 0.4, 0.7, DT)
    pieces = advance(CAR_2, advance(CAR_2, moving, 0.4, 0.7, 0.4 * DT), 0.4, 0.7, 0.6 * DT)
    np.testing.assert_allclose(pieces, whole, atol=1e-4)


def test_observation_and_reward_are_those_of_the_world():
    """Encoded and paid as `RCCar` does, sparse and dense, near the goal and far from it."""
    rng = np.random.default_rng(1)
    for margin_factor in (20.0, 5.0):
        car = RCCar(margin_factor=margin_factor)
        task = car.task(1)
        for size in (0.05, 0.3, 3.0):
            stack, actions = ActionStack(), rng.uniform(-1, 1, (3, 2))
            for action in actions:
                stack.push(action)
            state, after = (size * rng.uniform(-1, 1, (2, 6))).astype(np.float32)
            obs, next_obs = (
                encode(Observation(0.0, s[:3].astype(float), s[3:].astype(float), 0, True), stack)
                for s in (state, after)
            )
            stored = car.infer(jnp.asarray(obs))
            np.testing.assert_allclose(obs, car.observe(stored), atol=1e-6)
            np.testing.assert_allclose(stored.actions, actions, atol=1e-6)
            paid = task.reward(jnp.asarray(obs), jnp.zeros(2, jnp.float32), jnp.asarray(next_obs))
            assert reward(after[:3].astype(float), actions[0], margin_factor) == pytest.approx(float(paid), abs=1e-5)


def test_wrap():
    assert wrap(3 * math.pi) == pytest.approx(math.pi) and wrap(-math.pi) == math.pi
    assert wrap(0.5 - 4 * math.pi) == pytest.approx(0.5)
