"""The RC car: published rewards and returns, its delay, and its three faces saying the same."""

import functools
import itertools
import math
import warnings

import gymnasium
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sombrl.dynamics.true import TrueDynamics
from sombrl.envs.rc_car import (
    DOWNSTREAM,
    GOAL,
    OBSERVATION_NOISE,
    START,
    CarState,
    RCCar,
    draw_trajectory,
)
from sombrl.envs.rc_car_dynamics import DEFAULTS
from sombrl.envs.rc_car_gym import ID, RCCarEnv
from sombrl.envs.registry import make_envs
from sombrl.records import SombrlError
from tests.oracles.rc_car import oracle

EXACT = RCCar(observation_noise=False, start_spread=0)
REST = (*START, 0.0, 0.0, 0.0)
# By margin factor: the reward at D = 0.2, 0.5, 1, 2, 3.4 and the mean return of 100 idle frames.
REWARDS = {
    20: ((0.978, 0.735, 0.354, 0.110, 0.039), 3.78),
    10: ((0.92, 0.41, 0.12, 0.03, 0.010), 0.97),
    5: ((0.735, 0.148, 0.033, 0.008, 0.003), 0.245),
    2.5: ((0.41, 0.04, 0.009, 0.002, 0.001), 0.061),
    2: ((0.308, 0.027, 0.005, 0.001, 0.0004), 0.039),
    1: ((0.100, 0.007, 0.001, 0.0003, 0.0001), 0.010),
}


def f32(values):
    return jnp.asarray(np.asarray(values, np.float32))


@functools.cache
def starts():
    """4000 starts of the default car."""
    return jax.jit(jax.vmap(lambda key: RCCar().reset(key=key)))(jr.split(jr.key(0), 4000))


@functools.cache
def stepper(world):
    """One compiled frame, shared by the tests."""
    return jax.jit(lambda state, action, key: world.step(state, action, key=key))


@pytest.mark.parametrize("factor", list(REWARDS))
def test_the_published_reward(factor):
    world = RCCar(margin_factor=factor)
    for distance, expected in zip((0.2, 0.5, 1.0, 2.0, 3.4), REWARDS[factor][0], strict=True):
        x = math.sqrt(distance**2 - min(distance, 3.0) ** 2 / 2)
        turn = min(distance, 3.0) / math.sqrt(2)
        obs = f32([0.0, x, math.sin(turn), math.cos(turn), 9.0, 9.0, 9.0, *[0.3] * 6])
        half_a_digit = 0.5 * 10.0 ** -len(f"{expected}".split(".")[1]) + 1e-6
        assert float(world.parked(obs, GOAL)) == pytest.approx(expected, abs=max(half_a_digit, 0.02 * expected))


def test_reward_of_the_goal_pose():
    world = RCCar(margin_factor=1)
    inside = f32([0.05, 0.0, math.sin(-0.05), math.cos(-0.05), *[0.0] * 9])
    assert float(world.parked(inside, GOAL)) == 1.0
    slope = jax.grad(lambda obs: world.parked(obs, GOAL))
    assert np.isfinite(slope(f32([0, 0, 0, 1, *[0] * 9]))).all() and np.isfinite(slope(jnp.zeros(13))).all()
    for name, task in world.downstream(1).items():
        x, y, theta = DOWNSTREAM[name]
        there = f32([x, y, math.sin(theta), math.cos(theta), *[0.0] * 9])
        zero = jnp.zeros(2, jnp.float32)
        assert float(task.reward(there, zero, there)) == pytest.approx(1.0, abs=1e-6)
        assert float(world.task(1).reward(there, zero, there)) < 0.1
    assert len(DOWNSTREAM) == 3 and world.optimal_average() is None


@pytest.mark.thorough
def test_idle_returns():
    """The mean over starts, noise included; 2 %."""
    world = RCCar()

    def frame(state, key):
        state, reward, _ = world.step(state, jnp.zeros(2, jnp.float32), key=key)
        return state, (world.observe(state), reward)

    first = jax.tree.map(lambda leaf: leaf[:500], starts())
    keys = jr.split(jr.key(1), (100, 500))
    observed, rewards = jax.jit(lambda first, keys: jax.lax.scan(jax.vmap(frame), first, keys)[1])(first, keys)
    assert float(rewards.sum(0).mean()) == pytest.approx(3.78, rel=0.02)
    every = jax.vmap(lambda obs: jnp.stack([RCCar(margin_factor=factor).parked(obs, GOAL) for factor in REWARDS]))
    returns = jax.jit(every)(observed.reshape(-1, 13)).sum(0) / 500
    expected = [idle for _, idle in REWARDS.values()]
    np.testing.assert_allclose(returns, expected, rtol=0.02)


def test_starts():
    states = starts()
    truth = np.asarray(states.truth, np.float64)
    gap = truth - REST
    gap[:, 2] = np.arctan2(np.sin(gap[:, 2]), np.cos(gap[:, 2]))
    width = np.array([0.1, 0.1, 0.1 * math.pi])
    assert np.all(np.abs(gap[:, :3]) <= width + 1e-6) and np.all(np.ptp(gap[:, :3], axis=0) > 1.98 * width)
    np.testing.assert_allclose(gap[:, 3:].std(0), [0.005, 0.005, 0.02], rtol=0.05)
    correlation = np.corrcoef(gap.T) - np.eye(6)
    assert np.abs(correlation).max() < 0.06  # position and heading have keys of their own
    noise = np.asarray(states.measured, np.float64) - truth
    np.testing.assert_allclose(noise.std(0), OBSERVATION_NOISE, rtol=0.05)
    assert not np.asarray(states.actions).any()
    np.testing.assert_array_equal(EXACT.reset(key=jr.key(3)).truth, np.array(REST, np.float32))
    np.testing.assert_allclose(OBSERVATION_NOISE, [0.00111, 0.00111, 0.00183, 0.00821, 0.00821, 0.0368], rtol=3e-3)


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_only_one_action_drives_the_car(delay):
    world = RCCar(delay=delay, observation_noise=0, start_spread=0)

    def states(actions):
        def step(state, action):
            state = world.step(state, action, key=jr.key(0))[0]
            return state, (state.truth, world.observe(state))

        return jax.lax.scan(step, world.reset(key=jr.key(0)), actions)[1]

    length = 7
    plan = np.random.default_rng(0).uniform(-0.9, 0.9, (length, 2)).astype(np.float32)
    plans = np.stack([plan] * (length + 1))
    for t in range(length):
        plans[t + 1, t] += 0.1
    truth, observed = map(np.asarray, jax.jit(jax.vmap(states))(f32(plans)))
    for t in range(length):  # the action of t is felt by the state after t + delay, and by none before
        changed = np.any(truth[t + 1] != truth[0], axis=1)
        np.testing.assert_array_equal(changed, np.arange(length) >= t + delay)
    past = np.concatenate([np.zeros((delay, 2), np.float32), plan])
    for t in range(length):  # oldest first: what will drive the car comes first
        np.testing.assert_array_equal(observed[0, t, 7:], past[t + 1 : t + 1 + delay].reshape(-1))
    assert world.obs_dim == observed.shape[-1] == 7 + 2 * delay


def test_pending_actions_do_not_leak_into_the_next_episode():
    envs = make_envs("rc-car", [0])
    first = envs.reset(1)
    envs.reset(0)
    for _ in range(4):
        assert envs.step(np.ones((1, 2)), np.ones(1, bool)).obs[0, -1] == 1.0
    np.testing.assert_array_equal(envs.reset(1), first)
    assert not first[0, 7:].any()


@pytest.mark.thorough
def test_the_legacy_stack_is_a_frame_late():
    worlds = [RCCar(observation_noise=0, start_spread=0, stack=stack) for stack in ("corrected", "legacy")]
    rng = np.random.default_rng(0)
    states, seen = [world.reset(key=jr.key(0)) for world in worlds], []
    for _ in range(6):
        action = f32(rng.uniform(-1, 1, 2))
        moved = [stepper(world)(state, action, jr.key(0)) for world, state in zip(worlds, states, strict=True)]
        assert moved[0][1] == moved[1][1]
        np.testing.assert_array_equal(moved[0][0].truth, moved[1][0].truth)
        before, after = worlds[1].observe(states[1]), worlds[1].observe(moved[1][0])
        known = worlds[1].task(1).reward(before, action, after)
        np.testing.assert_allclose(known, moved[1][1], rtol=1e-6)
        states = [state for state, _, _ in moved]
        seen.append([np.asarray(world.observe(state))[7:] for world, state in zip(worlds, states, strict=True)])
    for (corrected, _), (_, legacy) in itertools.pairwise(seen):
        np.testing.assert_array_equal(legacy, corrected)
    with pytest.raises(SombrlError, match="hides the newest action"):
        worlds[1].infer(after)
    with pytest.raises(SombrlError, match="hides the newest action"):
        worlds[1].task(2)


@pytest.mark.thorough
@pytest.mark.parametrize("options", [{}, {"delay": 0, "margin_factor": 5, "control_cost": 0.2}], ids=str)
def test_the_task_is_what_a_step_pays(options):
    """To the bit, noise included."""
    world = RCCar(**options)
    step, reward, observe = stepper(world), jax.jit(world.task(1).reward), jax.jit(world.observe)
    state, rng = world.reset(key=jr.key(0)), np.random.default_rng(0)
    for t in range(30):
        action = f32(rng.uniform(-1, 1, 2))
        obs = observe(state)
        state, paid, ended = step(state, action, jr.key(t))
        np.testing.assert_allclose(reward(obs, action, observe(state)), paid, rtol=1e-6, atol=1e-7)
        assert not ended and np.any(np.asarray(state.measured) != np.asarray(state.truth))
    moved, paid, _ = world.step(state, action, key=jr.key(99))  # not compiled: nothing is fused and rounded otherwise
    assert float(world.task(1).reward(world.observe(state), action, world.observe(moved))) == float(paid)


def test_repeated_frames_charge_what_drove_the_car():
    """At the goal, standing still, nothing but the charge differs from 1 a frame."""
    world = RCCar(observation_noise=0, control_cost=0.1)
    past, action = f32([[0.1, 0.0], [0.2, 0.0], [0.3, 0.0]]), f32([0.5, 0.0])
    rest = jnp.zeros(6, jnp.float32)
    start = state = CarState(rest, past, rest)
    total, charged = 0.0, 0.0
    for repeat, steer in enumerate([0.1, 0.2, 0.3, 0.5, 0.5], start=1):
        state, reward, _ = stepper(world)(state, action, jr.key(0))
        total, charged = total + float(reward), charged + steer**2
        assert total == pytest.approx(repeat - 0.1 * charged, abs=1e-5)
        known = world.task(repeat).reward(world.observe(start), action, world.observe(state))
        assert float(known) == pytest.approx(total, abs=1e-5)


def test_the_true_model_predicts_what_happens():
    envs = make_envs("rc-car", [0], action_repeat=2, env_kwargs={"observation_noise": "False"})
    predict = jax.jit(TrueDynamics(RCCar().without_noise(), 2).predict)
    obs = envs.reset(0)
    for t in range(6):
        action = np.array([[np.sin(t), np.cos(t)]], np.float32)
        prediction = predict(jnp.asarray(obs[0]), jnp.asarray(action[0]))
        obs = envs.step(action, np.ones(1, bool)).obs
        np.testing.assert_allclose(np.asarray(prediction.mean), obs[0], atol=1e-5)


def test_options():
    world = make_envs("rc-car", [0], env_kwargs={"margin_factor": "5", "car": "1", "observation_noise": "True"}).world
    assert (world.margin_factor, world.car, world.observation_noise, world.obs_dim) == (5.0, 1, 1.0, 13)
    quiet = RCCar(margin_factor=2, fidelity="low", delay=1, control_cost=1, start_spread=0.5).without_noise()
    assert (quiet.margin_factor, quiet.fidelity, quiet.delay, quiet.control_cost) == (2.0, "low", 1, 1.0)
    assert quiet.observation_noise == 0.0 and quiet.start_spread == 0.5 and quiet.integrator == "rk4"
    other = RCCar(fidelity="low", car=1, integrator="legacy", delay=0)
    start, action = np.array([0, 0, 0.5, 1, 0, 0.2]), np.array([1.0, 0.5])
    truth = other.step(CarState(f32(start), jnp.zeros((0, 2)), f32(start)), f32(action), key=jr.key(0))[0].truth
    np.testing.assert_allclose(truth, oracle(DEFAULTS["low", 1], start, action, "legacy"), atol=1e-4)


@pytest.mark.parametrize(
    "options, told",
    [
        ({"margin_factor": 0}, "margin_factor must be positive"),
        ({"margin_factor": -1.0}, "margin_factor must be a finite number"),
        ({"fidelity": "medium"}, "'low' or 'high'"),
        ({"car": 3}, "car must be 1 or 2, not 3"),
        ({"car": True}, "car must be 1 or 2"),
        ({"integrator": "euler"}, "'rk4' or 'legacy'"),
        ({"delay": -1}, "delay must be a number of whole frames"),
        ({"observation_noise": -1.0}, "observation_noise"),
        ({"control_cost": float("nan")}, "control_cost"),
        ({"stack": "old"}, "'corrected' or 'legacy'"),
        ({"start_spread": -0.1}, "start_spread"),
    ],
    ids=str,
)
def test_refusals(options, told):
    with pytest.raises(SombrlError, match=told):
        RCCar(**options)


@pytest.mark.thorough
def test_64_bits_change_nothing():
    def play():
        envs = make_envs("rc-car", [3])
        return [envs.reset(0), *(envs.step(np.full((1, 2), 0.4), np.ones(1, bool)).obs for _ in range(6))]

    single = play()
    with jax.enable_x64(True):
        double = play()
    assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(single, double, strict=True))


def test_gymnasium_has_nothing_to_complain_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(f"sombrl.envs.rc_car_gym:{ID}", render_mode="rgb_array").unwrapped)


@pytest.mark.thorough
def test_the_gymnasium_car_is_the_world_to_the_bit():
    env, envs = gymnasium.make(ID, margin_factor=5), make_envs("rc-car", [7], env_kwargs={"margin_factor": 5})
    rng = np.random.default_rng(0)
    for episode in range(2):
        obs, _ = env.reset(seed=7 if episode == 0 else None)
        np.testing.assert_array_equal(obs, envs.reset(episode)[0])
        for t in range(100):
            action = rng.uniform(-1, 1, 2).astype(np.float32)
            obs, reward, terminated, truncated, _ = env.step(action)
            step = envs.step(action[None], np.ones(1, bool))
            np.testing.assert_array_equal(obs, step.obs[0])
            assert reward == step.reward[0] and not terminated and truncated == step.truncated[0] == (t == 99)
            assert env.observation_space.contains(obs)
    with pytest.raises(SombrlError, match="call reset first"):
        RCCarEnv().step(np.zeros(2, np.float32))
    with pytest.raises(SombrlError, match="render_mode"):
        RCCarEnv(render_mode="human")


def test_pictures():
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    env, envs = RCCarEnv(render_mode="rgb_array"), make_envs("rc-car", [0])
    env.reset(seed=0), envs.reset(0)
    before, plain = env.render(), envs.render(0)
    for _ in range(25):
        env.step(np.array([0.5, 1.0], np.float32)), envs.step(np.array([[0.5, 1.0]]), np.ones(1, bool))
    after = env.render()
    orange, blue = np.array([221, 132, 82]), np.array([76, 114, 176])

    def count(picture, colour):
        return int(np.all(np.abs(picture.astype(int) - colour) < 12, axis=-1).sum())

    assert before.shape == after.shape == plain.shape == (320, 480, 3) and before.dtype == np.uint8
    assert count(before, orange) < 10 < 100 < count(after, orange)  # the way it came
    assert count(before, blue) > 300 and count(plain, blue) > 300  # the car
    assert np.any(plain != envs.render(0))
    figure = Figure(figsize=(3.0, 3.0), dpi=50)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    draw_trajectory(axes, np.array([[9.0, 0.0, 0.0], [9.0, 1.0, 0.5], [8.0, 1.0, 1.0]]))
    assert axes.get_xlim()[0] < -1.0 and axes.get_xlim()[1] > 9.0  # goal and car are both in view
    assert np.diff(axes.get_xlim()) == pytest.approx(np.diff(axes.get_ylim()))


@pytest.mark.slow
def test_a_simple_search_parks():
    """Cross-entropy on knots every 5 frames, from the mean start; 45 is known to be possible."""
    start = EXACT.reset(key=jr.key(0))

    def total(knots):
        def step(state, action):
            state, reward, _ = EXACT.step(state, action, key=jr.key(0))
            return state, reward

        return jax.lax.scan(step, start, jnp.repeat(knots, 5, axis=0))[1].sum()

    @jax.jit
    def search(key):
        def improve(carry, key):
            mean, std, best = carry
            plans = jnp.clip(mean[None] + std[None] * jr.normal(key, (400, 20, 2), jnp.float32), -1.0, 1.0)
            scores = jax.vmap(total)(plans)
            elites = plans[jnp.argsort(-scores)[:40]]
            return (elites.mean(0), elites.std(0) + 0.01, jnp.maximum(best, scores.max())), None

        zero = jnp.zeros((20, 2), jnp.float32)
        return jax.lax.scan(improve, (zero, zero + 0.7, jnp.float32(0)), jr.split(key, 60))[0][2]

    assert float(search(jr.key(0))) >= 40.0
