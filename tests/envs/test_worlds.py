"""Our worlds against Gymnasium's own simulators, and their tasks against their rewards."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.envs.action_cost import ActionCost, norm
from sombrl.envs.deceptive_chain import DeceptiveChain
from sombrl.envs.mountain_car import MountainCar
from sombrl.envs.pendulum import Pendulum
from sombrl.envs.tolerance import tolerance
from sombrl.envs.wall import Wall
from sombrl.records import SombrlError

WORLDS = [
    Pendulum(),
    Pendulum(start="random", action_cost=0.2),
    Pendulum(reward="sparse", action_cost=0.1),
    MountainCar(),
    MountainCar(terminates=True, action_cost=0.0),
    DeceptiveChain(action_cost=0.02),
    Wall(),
]
BOXES = {
    Pendulum: ([-3, -8], [3, 8]),
    MountainCar: ([-1.2, -0.07], [0.6, 0.07]),
    DeceptiveChain: ([-1, -0.1], [6, 0.1]),
    Wall: ([-2, -2, -0.2, -0.2], [2, 2, 0.2, 0.2]),
}
"""Where the states of a world are."""


def new_key():
    """Fresh each time: a key is used once."""
    return jax.random.key(0)


def compiled(world):
    return jax.jit(lambda state, action: world.step(state, action, key=new_key())), jax.jit(world.observe)


def f32(*values):
    return jnp.array(values, jnp.float32)


def test_pendulum_is_gymnasiums_step_by_step():
    env = gymnasium.make("Pendulum-v1", disable_env_checker=True).unwrapped
    env.reset(seed=0)
    step, observe = compiled(Pendulum())
    rng = np.random.default_rng(0)
    state = jnp.array([3.0, 1.0], jnp.float32)
    for _ in range(500):
        env.state = np.asarray(state, np.float64)
        action = rng.uniform(-1, 1, 1).astype(np.float32)
        obs, reward, terminated, _, _ = env.step(2 * action)
        state, ours, ended = step(state, action)
        np.testing.assert_allclose(observe(state), obs, rtol=1e-5, atol=2e-6)
        np.testing.assert_allclose(ours, reward, rtol=1e-5, atol=2e-6)
        assert bool(ended) == terminated


def test_pendulum_follows_gymnasium_without_correction():
    """Errors of float32 only: a wrong constant would be far off after 50 frames."""
    env = gymnasium.make("Pendulum-v1", disable_env_checker=True).unwrapped
    env.reset(seed=0)
    step, observe = compiled(Pendulum())
    state = Pendulum().reset(key=new_key())
    env.state = np.array([np.pi, 0.0])
    for t in range(50):
        action = np.array([np.sin(0.3 * t)], np.float32)
        obs, *_ = env.step(2 * action)
        state, _, _ = step(state, action)
    np.testing.assert_allclose(observe(state), obs, atol=1e-4)


@pytest.mark.parametrize("terminates", [False, True])
def test_mountain_car_is_gymnasiums_step_by_step(terminates):
    env = gymnasium.make("MountainCarContinuous-v0", disable_env_checker=True).unwrapped
    env.reset(seed=0)
    step, observe = compiled(MountainCar(terminates=terminates))
    rng = np.random.default_rng(0)
    walls = goals = 0
    for _ in range(500):
        state = rng.uniform([-1.25, -0.08], [0.62, 0.08]).clip([-1.2, -0.07], [0.6, 0.07]).astype(np.float32)
        env.state = np.asarray(state, np.float64)
        action = rng.uniform(-1, 1, 1).astype(np.float32)
        obs, reward, terminated, _, _ = env.step(action)
        state, ours, ended = step(state, action)
        np.testing.assert_allclose(observe(state), obs, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(ours, reward, rtol=1e-5)
        assert bool(ended) == (terminated and terminates)
        walls, goals = walls + (obs[0] == np.float32(-1.2)), goals + terminated
    assert walls > 5 and goals > 5  # both special cases were met


def test_starts():
    np.testing.assert_array_equal(Pendulum().reset(key=new_key()), np.array([np.pi, 0], np.float32))

    pendulum = np.asarray(jax.vmap(lambda k: Pendulum(start="random").reset(key=k))(jax.random.split(new_key(), 500)))
    assert np.all(np.abs(pendulum) <= [np.float32(np.pi), 1]) and np.all(np.ptp(pendulum, 0) > [6, 1.9])
    car = np.asarray(jax.vmap(lambda k: MountainCar().reset(key=k))(jax.random.split(new_key(), 500)))
    assert np.all((car[:, 0] >= -0.6) & (car[:, 0] <= -0.4)) and np.ptp(car[:, 0]) > 0.19
    assert not car[:, 1].any()


def test_the_car_can_rest_on_the_right_wall():
    """The optimum of the variant that never ends: 100 a frame with no force (facts 3.6)."""
    state, reward, ended = MountainCar().step(f32(0.6, 0.0), f32(0.0), key=new_key())
    np.testing.assert_allclose(state[0], 0.6)
    assert reward == 100.0 and not ended and state[1] >= 0


def test_sparse_pendulum_by_hand():
    world = Pendulum(reward="sparse", action_cost=0.1)
    assert Pendulum(reward="sparse").action_cost == 0.0 and Pendulum().action_cost == 0.001
    still = world.step(f32(0.0, 0.0), f32(0.0), key=new_key())[1]
    np.testing.assert_allclose(still, 1.0)
    # cos θ = 0.85 and ω = 1 lie one margin outside: 0.1 each; u = 0.2 as well, so 0.1 · (0.1 − 1).
    edge = world.step(f32(np.arccos(0.85), 1.0), f32(0.1), key=new_key())[1]
    np.testing.assert_allclose(edge, 0.01 - 0.09, rtol=1e-4)
    hanging = world.step(f32(np.pi, 0.0), f32(1.0), key=new_key())[1]
    np.testing.assert_allclose(hanging, -0.1, rtol=1e-5)


def test_tolerance_by_hand():
    """dm_control: exp(−½ (x·√(−2 ln v))²) = v^(x²), x the distance in margins."""
    x = f32(-2.0, -1.5, -1.0, 0.0, 1.0, 1.25, 1.5, 2.0)
    expected = [0.1**4, 0.1, 1, 1, 1, 0.1**0.25, 0.1, 0.1**4]
    np.testing.assert_allclose(tolerance(x, lower=-1.0, upper=1.0, margin=0.5), expected, rtol=1e-5)
    np.testing.assert_allclose(tolerance(x, lower=-1.0, upper=1.0, margin=1.0, value_at_margin=0.5)[-1], 0.5, rtol=1e-6)
    np.testing.assert_array_equal(tolerance(x, lower=-1.0, upper=1.0, margin=0.0), [0, 0, 1, 1, 1, 0, 0, 0])


def played(world, policy):
    """Where a policy takes a world in an episode, and its return."""
    step, _ = compiled(world)
    state, total, states = world.reset(key=new_key()), 0.0, []
    for _ in range(world.episode_frames):
        state, reward, _ = step(state, f32(*policy(np.asarray(state))))
        total += float(reward)
        states.append(np.asarray(state))
    return np.array(states), total


def test_the_chain_pays_a_little_at_home_and_a_lot_behind_the_hill():
    chain = DeceptiveChain()
    states, home = played(chain, lambda state: [0.0])
    assert home == pytest.approx(0.1 * 200, rel=1e-5) and np.abs(states[:, 0]).max() < 0.1
    states, away = played(chain, lambda state: [1.0 if state[0] < 5.5 else 0.0])
    there = int(np.argmax(states[:, 0] >= 5.0))
    assert 50 < there < 80  # frames of full force
    assert away > 6 * home and away == pytest.approx(200 - there, abs=10)
    # Work against height: a constant force f reaches the top if 4 · 0.005 f > 3 · 0.003.
    assert played(chain, lambda state: [0.4])[0][:, 0].max() < 4.0 < played(chain, lambda state: [0.5])[0][:, 0].max()


def test_the_wall_has_to_be_walked_around():
    wall = Wall()
    straight, nothing = played(wall, lambda state: [1.0, 0.0])
    run_up, _ = played(wall, lambda state: [1.0 if state[2] > 0 or state[0] < -1.9 else -1.0, 0.0])
    assert straight[:, 0].max() < 0.0 and run_up[:, 0].max() < 0.0
    assert nothing == pytest.approx(-0.01 * 100, rel=1e-4)

    def around(state):
        x, y = state[:2]
        target = (-0.6, 1.6) if x < -0.3 and y < 1.3 else (0.8, 1.5) if x < 0.4 and y > 1.0 else (1.0, -1.0)
        return np.clip(4 * (np.array(target) - state[:2]) - 6 * state[2:], -1, 1)

    states, total = played(wall, around)
    assert total > 55 and np.linalg.norm(states[-1, :2] - [1.0, -1.0]) < 0.1


@pytest.mark.parametrize("world", WORLDS, ids=lambda w: f"{type(w).__name__}-{WORLDS.index(w)}")
def test_the_task_is_the_worlds_reward(world):
    task = world.task(1)

    def both(key):
        start_key, place_key, action_key, step_key = jax.random.split(key, 4)
        # Anywhere in the state space, the goal included.
        low, high = (f32(*bound) for bound in BOXES[type(world)])
        share = jax.random.uniform(place_key, low.shape, jnp.float32)
        state = world.reset(key=start_key) * 0.0 + low + share * (high - low)
        action = jax.random.uniform(action_key, (world.action_dim,), jnp.float32, -1.0, 1.0)
        moved, reward, ended = world.step(state, action, key=step_key)
        obs, next_obs = world.observe(state), world.observe(moved)
        return reward, task.reward(obs, action, next_obs), ended, task.terminated(obs, action, next_obs)

    real, known, ended, known_end = jax.jit(jax.vmap(both))(jax.random.split(new_key(), 300))
    np.testing.assert_allclose(known, real, rtol=1e-4, atol=1e-5)
    assert len(np.unique(np.round(np.asarray(real), 1))) > 1  # not all in one place
    np.testing.assert_array_equal(known_end, ended)


def test_repeats_multiply_the_tasks_reward():
    obs, next_obs, action = f32(-1.0, 0.0, 2.0), f32(-1.0, 0.0, 2.0), f32(0.5)
    one, four = (Pendulum().task(n).reward(obs, action, next_obs) for n in (1, 4))
    np.testing.assert_allclose(four, 4 * one)
    at_goal = f32(0.5, 0.01)
    stay, end = (MountainCar(terminates=t).task(4).reward(at_goal, action, at_goal) for t in (False, True))
    np.testing.assert_allclose(stay, 4 * (100 - 0.1 * 0.25), rtol=1e-6)
    np.testing.assert_allclose(end, 100 - 4 * 0.1 * 0.25, rtol=1e-6)  # the goal is paid once


def test_action_cost_charges_the_physical_norm():
    task = ActionCost(Pendulum().task(3), 0.5, (-2.0,), (2.0,), 3)
    obs, action = f32(-1.0, 0.0, 2.0), f32(-0.75)
    plain = Pendulum().task(3).reward(obs, action, obs)
    np.testing.assert_allclose(task.reward(obs, action, obs), plain - 3 * 0.5 * 1.5, rtol=1e-6)
    assert not task.terminated(obs, action, obs)
    np.testing.assert_array_equal(jax.grad(norm)(f32(0.0, 0.0)), [0, 0])


def test_long_spins_keep_their_digits():
    step, _ = compiled(Pendulum())
    state = f32(0.0, 8.0)
    for _ in range(300):
        state = step(state, f32(1.0))[0]
        assert abs(float(state[0])) <= np.float32(np.pi)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Pendulum(start="up"), ("start", "hanging")),
        (lambda: Pendulum(reward="none"), ("reward", "sparse")),
        (lambda: Pendulum(action_cost=-1.0), ("action_cost", "≥ 0")),
        (lambda: MountainCar(action_cost=float("nan")), ("action_cost", "≥ 0")),
    ],
)
def test_bad_options_are_refused(make, words):
    with pytest.raises(SombrlError) as error:
        make()
    assert all(word in str(error.value) for word in words)
