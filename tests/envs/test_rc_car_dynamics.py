"""The car's equations: published trajectories, an oracle in NumPy, symmetries, energy, order, derivatives."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.envs.rc_car_dynamics import DEFAULTS, RANGES, advance, derivative, draw_parameters
from tests.oracles.rc_car import oracle

REST = (1.42, -1.04, math.pi, 0.0, 0.0, 0.0)
# The state after 1, 10 and 30 steps from rest under `wave`, from an implementation in NumPy that is not ours.
PUBLISHED = {
    ("low", "legacy"): (
        (1.4171, -1.0400, -3.1416, -0.1415, 0.0, 0.0),
        (1.2421, -1.0579, -3.0726, -0.8328, -0.0966, 0.2290),
        (0.6655, -1.0752, -3.0630, -1.1917, -0.1719, 0.4577),
    ),
    ("low", "rk4"): (
        (1.4176, -1.0400, -3.1416, -0.1422, 0.0, 0.0),
        (1.2445, -1.0575, -3.0731, -0.8361, -0.0935, 0.2125),
        (0.6677, -1.0740, -3.0644, -1.1950, -0.1679, 0.4426),
    ),
    ("high", "legacy"): (
        (1.4170, -1.0400, -3.1416, -0.1463, 0.0, 0.0),
        (1.2278, -1.0747, -3.0046, -0.9265, -0.2125, 0.6401),
        (0.5642, -1.1283, -3.0151, -1.3735, -0.2945, 0.9396),
    ),
    ("high", "rk4"): (
        (1.4175, -1.0400, -3.1416, -0.1468, 0.0, 0.0),
        (1.2307, -1.0740, -3.0052, -0.9302, -0.2106, 0.6395),
        (0.5662, -1.1269, -3.0173, -1.3794, -0.2921, 0.9544),
    ),
}


def f32(values):
    return jnp.asarray(np.asarray(values, np.float32))


def wave(length):
    t = np.arange(length)
    return np.stack([0.6 * np.sin(0.3 * t), 0.5 + 0.4 * np.cos(0.2 * t)], axis=1)


def stack(*cars):
    return jax.tree.map(lambda *numbers: f32(numbers), *cars)


def drive(parameters, start, actions, integrator="rk4", **options):
    """Every state [time, 6] of one car."""

    def step(state, action):
        state = advance(parameters, state, action, integrator=integrator, **options)
        return state, state

    return jax.lax.scan(step, start, actions)[1]


def same_angle(left, right, atol):
    gap = np.asarray(left, np.float64) - right
    np.testing.assert_allclose(np.arctan2(np.sin(gap), np.cos(gap)), 0.0, atol=atol)


def same_state(left, right, atol):
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    np.testing.assert_allclose(left[..., [0, 1, 3, 4, 5]], right[..., [0, 1, 3, 4, 5]], atol=atol, rtol=0)
    same_angle(left[..., 2], right[..., 2], atol)


@pytest.mark.parametrize("integrator", ["rk4", "legacy"])
def test_published_trajectories(integrator):
    cars = stack(DEFAULTS["low", 2], DEFAULTS["high", 2])
    run = jax.jit(jax.vmap(lambda car: drive(car, f32(REST), f32(wave(30)), integrator)))
    for fidelity, states in zip(("low", "high"), run(cars), strict=True):
        same_state(states[np.array([0, 9, 29])], PUBLISHED[fidelity, integrator], 1e-4)


@pytest.mark.parametrize("integrator", ["rk4", "legacy"])
def test_any_car_anywhere_against_numpy(integrator):
    """Cars with an offset, a wide blend and drag; forwards, backwards, sliding."""
    drawn = [draw_parameters(*car, key=key) for car, key in zip([*RANGES], jr.split(jr.key(0), 4), strict=True)]
    cars, count = [*DEFAULTS.values(), *drawn], 30
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (len(cars), count, 6)) * [4, 4, 3.1, 3, 3, 6]
    actions = rng.uniform(-1.3, 1.3, (len(cars), count, 2))
    step = jax.vmap(lambda car, state, action: advance(car, state, action, integrator=integrator), in_axes=(None, 0, 0))
    moved = jax.jit(jax.vmap(step))(stack(*cars), f32(states), f32(actions))
    for car, *rows in zip(cars, states, actions, moved, strict=True):
        car = jax.tree.map(float, car)
        expected = [oracle(car, state, action, integrator) for state, action, _ in zip(*rows, strict=True)]
        same_state(rows[-1], expected, 2e-3 if integrator == "rk4" else 1e-2)  # float32 beside a cliff in vx


@pytest.mark.thorough
def test_the_integrator_is_of_fourth_order_and_the_legacy_one_of_first(x64):
    actions = jnp.tile(jnp.array([0.7, 0.6], jnp.float64), (6, 1))
    start = jnp.array([0.0, 0.0, 0.3, 2.0, 0.6, 0.5], jnp.float64)  # fast enough for tyres alone, all the way
    cars = jax.tree.map(lambda *numbers: jnp.array(numbers), DEFAULTS["high", 2], DEFAULTS["low", 2])

    def ends(substeps, integrator):
        run = jax.jit(jax.vmap(lambda car: drive(car, start, actions, integrator, substeps=substeps)[-1]))
        return np.asarray(run(cars))

    truth = ends(200, "rk4")
    for integrator, low, high in (("rk4", 13, 20), ("legacy", 1.8, 2.3)):
        coarse, fine = (np.abs(ends(n, integrator) - truth).max(axis=1) for n in (16, 32))
        assert np.all((coarse / fine > low) & (coarse / fine < high) & (fine > 1e-12))


def test_a_mirrored_car_drives_the_mirrored_way():
    flip = np.array([1, -1, -1, 1, -1, -1])
    start, actions = np.array([0.3, -0.2, 0.4, 0.5, 0.2, -0.3]), wave(40) * [1.5, 1.0]
    starts, plans = f32([start, flip * start]), f32([actions, actions * [-1, 1]])
    run = jax.jit(jax.vmap(lambda car, s, a: drive(car, s, a)))
    for car in (DEFAULTS["high", 2], DEFAULTS["low", 2]):
        one, other = run(stack(car, car), starts, plans)
        same_state(np.asarray(one) * flip, other, 1e-4)
        assert np.ptp(one[:, 2]) > 0.2  # it did turn


def test_the_floor_is_the_same_everywhere():
    """Turned and moved at the start, turned and moved at the end; also with an angle offset."""
    turn, start, actions = 2.1, np.array([0.3, -0.2, 0.4, 0.5, 0.2, -0.3]), wave(40) * [1.5, 1.0]
    c, s = math.cos(turn), math.sin(turn)

    def elsewhere(state):
        state = np.array(state, np.float64)
        rotation = np.array([[c, -s], [s, c]])
        state[..., :2] = state[..., :2] @ rotation.T + [1.0, -2.0]
        state[..., 3:5] = state[..., 3:5] @ rotation.T
        state[..., 2] += turn
        return state

    run = jax.jit(jax.vmap(lambda car, s: drive(car, s, f32(actions))))
    for car in (DEFAULTS["high", 1], DEFAULTS["low", 1]):
        here, there = run(stack(car, car), f32([start, elsewhere(start)]))
        same_state(elsewhere(here), there, 2e-4)


@pytest.mark.thorough
def test_the_car_goes_where_its_velocity_points():
    """Also with an angle offset; the published positions ignore it."""
    car, start = DEFAULTS["high", 1], np.array([0.0, 0.0, 0.7, 2.0 * math.cos(0.7), 2.0 * math.sin(0.7), 0.0])
    for integrator, agrees in (("rk4", True), ("legacy", False)):
        moved = advance(car, f32(start), f32([0.0, 0.0]), integrator=integrator, dt=1e-3, substeps=1)
        course = math.atan2(float(moved[1]), float(moved[0]))
        assert (abs(course - 0.7) < 1e-3) == agrees


@pytest.mark.thorough
def test_without_throttle_energy_is_lost():
    """Rolling straight, forwards and backwards; and sliding on tyres, whatever the wheels do."""
    straight = f32([[0, 0, 0.5, v * math.cos(0.5), v * math.sin(0.5), 0] for v in (3.0, 0.5, -0.5, -3.0)])
    for car in (DEFAULTS["high", 2], DEFAULTS["low", 2]):
        run = jax.jit(jax.vmap(lambda s, car=car: drive(car, s, jnp.zeros((60, 2), jnp.float32))))
        speed = run(straight)[..., 3:5]
        speed = np.linalg.norm(np.concatenate([straight[:, None, 3:5], speed], axis=1), axis=-1)
        assert np.all(np.diff(speed, axis=1) < 1e-6) and np.all(speed[:, -1] < 0.5 * speed[:, 0])

    rng = np.random.default_rng(0)
    moving = rng.uniform([0, 0, -3, 0.1, -3, -8], [0, 0, 3, 4, 3, 8], (300, 6))
    steer = np.column_stack([rng.uniform(-1, 1, 300), np.zeros(300)])
    mass = np.array([0, 0, 0, 1.65, 1.65, 0.06])
    slope = jax.vmap(lambda s, a: derivative(DEFAULTS["high", 2], s, a))
    rate = jax.jit(slope)(f32(moving), f32(steer))
    assert np.all(np.sum(mass * moving * np.asarray(rate), axis=1) < 0.0)  # d/dt of the kinetic energy


@pytest.mark.thorough
def test_everything_stays_finite():
    """Standstills, crawls beside the blend, absurd speeds: values and derivatives by state, action and car."""
    rng = np.random.default_rng(0)
    count = 1000
    tiny = 10.0 ** rng.uniform(-30, 1, (count, 6)) * rng.choice([-1, 0, 1], (count, 6))
    absurd = 10.0 ** rng.uniform(0, 37, (count, 6)) * rng.choice([-1, 1], (count, 6))
    crawl = np.tile(REST, (count, 1)) * 0.0
    crawl[:, 3] = 10.0 ** rng.uniform(-9, -1, count)
    crawl[:, 5] = rng.choice([0, 1e-7, 3], count)
    states = f32(np.concatenate([tiny, absurd, crawl, np.zeros((1, 6))]))
    actions = f32(rng.uniform(-1, 1, (len(states), 2)) * rng.choice([0, 1], (len(states), 2)))

    def total(car, state, action):
        moved = advance(car, state, action)
        return jnp.sum(moved), moved

    every = jax.jit(jax.vmap(jax.grad(total, (0, 1, 2), has_aux=True), in_axes=(None, 0, 0)))
    for car in (DEFAULTS["high", 2], RANGES["high", 2][0]):
        for leaf in jax.tree.leaves(every(jax.tree.map(jnp.float32, car), states, actions)):
            assert np.isfinite(leaf).all()
    assert not np.isfinite(advance(car, f32([np.nan] * 6), f32([0, 0]))).any()  # what is not finite stays so


def test_drawn_cars_fill_their_ranges():
    for (fidelity, car), (low, high) in RANGES.items():
        nominal = DEFAULTS[fidelity, car]
        cars = jax.vmap(lambda k, f=fidelity, c=car: draw_parameters(f, c, key=k))(jr.split(jr.key(1), 400))
        columns = []
        for name in nominal.__dataclass_fields__:
            least, largest = getattr(low, name), getattr(high, name)
            drawn = np.asarray(getattr(cars, name), np.float64)
            room = largest - least
            assert np.all((drawn >= least - 1e-6) & (drawn <= largest + 1e-6))
            if room > 0:
                assert drawn.min() < least + 0.03 * room and drawn.max() > largest - 0.03 * room
                columns.append(drawn)
            else:
                np.testing.assert_allclose(drawn, least, rtol=1e-6)
        correlation = np.corrcoef(columns) - np.eye(len(columns))
        assert np.abs(correlation).max() < 0.25  # each for itself
        assert len(columns) == {("low", 1): 8, ("low", 2): 10, ("high", 1): 16, ("high", 2): 16}[fidelity, car]
    nominal, (low, high) = DEFAULTS["high", 2], RANGES["high", 2]
    inside = jax.tree.map(lambda x, a, b: a <= x <= b, nominal, low, high)
    assert all(jax.tree.leaves(inside))  # the truth is one of the high-fidelity cars
