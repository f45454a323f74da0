"""Worlds that change with the episode, and what costs in them."""

import gymnasium
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import sombrl.envs.rc_car_gym  # noqa: F401 (registers the car)
from sombrl.dynamics.true import TrueDynamics, TrueLearner
from sombrl.envs.drift import Drift
from sombrl.envs.mountain_car import POWER, MountainCar
from sombrl.envs.pendulum import DT, MAX_TORQUE, Pendulum
from sombrl.envs.rc_car import RCCar
from sombrl.envs.registry import make_envs
from sombrl.records import SombrlError
from sombrl.replay import Replay

ON = np.ones(1, bool)


def test_the_factor_of_an_episode():
    fading = Drift("torque", 4, 2, 0.5)
    factors = [float(fading.in_episode(episode).of("torque")) for episode in (0, 3, 4, 5, 6, 10**6)]
    np.testing.assert_allclose(factors, [1.0, 1.0, 0.75, 0.5, 0.5, 0.5])
    assert fading.in_episode(9).of("mass") == 1.0
    heavier = Drift("mass", 0, 1, 2.0).in_episode(0)
    np.testing.assert_allclose(heavier.applied(jnp.asarray(3.0)), 1.5)
    assert Drift().in_episode(7).now is None


@pytest.mark.parametrize("options", [{"drift": "torque", "drift_factor": 0.5}, {"drift": "mass", "drift_factor": 2.0}])
def test_half_the_torque_and_twice_the_mass_halve_what_the_motor_does(options):
    """Of a rod and of a car on a hill alike, because gravity moves every mass alike."""
    spins, speeds = [], []
    for episode in (2, 3):
        pendulum = make_envs("pendulum", [0], env_kwargs=options | {"drift_from": 3})
        pendulum.reset(episode)
        spins.append(pendulum.step(np.ones((1, 1), np.float32), ON).obs[0, 2])
        car = make_envs("mountain-car", [0], env_kwargs=options | {"drift_from": 3})
        by_force = []
        for force in (0.0, 1.0):
            car.reset(episode)
            by_force.append(car.step(np.full((1, 1), force, np.float32), ON).obs[0, 1])
        speeds.append(by_force[1] - by_force[0])
    np.testing.assert_allclose(spins, np.array([1.0, 0.5]) * 3 * MAX_TORQUE * DT, rtol=1e-5)
    np.testing.assert_allclose(speeds, np.array([1.0, 0.5]) * POWER, rtol=1e-4)


@pytest.mark.thorough
def test_the_car_has_less_force_or_more_mass():
    speeds = {}
    for kind, factor in (("none", 0.5), ("torque", 0.5), ("mass", 2.0)):
        world = RCCar(drift=kind, drift_from=0, drift_factor=factor, delay=0, observation_noise=0, start_spread=0)
        world = world.in_episode(0)
        state = world.reset(key=jr.key(0))
        speeds[kind] = -float(world.step(state, jnp.asarray([0.0, 0.1]), key=jr.key(1))[0].truth[3])
    assert speeds["none"] > 0
    np.testing.assert_allclose(speeds["torque"], speeds["mass"], rtol=0.05)  # drag is small at the start
    np.testing.assert_allclose(speeds["torque"], 0.5 * speeds["none"], rtol=0.1)


@pytest.mark.parametrize("name", ["pendulum", "mountain-car", "rc-car"])
def test_a_world_that_does_not_drift_is_the_same_in_every_episode(name):
    world = make_envs(name, [0]).world
    assert world.in_episode(jnp.asarray(5)) is world
    drifting = make_envs(name, [0], env_kwargs={"drift": "torque", "drift_from": 100})
    plain = make_envs(name, [0])
    for envs in (drifting, plain):
        envs.reset(1)
    action = np.full((1, plain.spec.action_dim), 0.7, np.float32)
    for _ in range(5):
        ours, theirs = drifting.step(action, ON), plain.step(action, ON)
    np.testing.assert_allclose(ours.obs, theirs.obs, rtol=1e-6)
    assert jax.tree.structure(drifting.world.without_noise().drift) == jax.tree.structure(drifting.world.drift)


def test_the_true_model_is_that_of_the_episode():
    """One fit before every episode: the model that plans in episode n is the world as it is then."""
    world = Pendulum(drift="torque", drift_from=2, drift_factor=0.25)
    learner = TrueLearner(world, 1)
    state = learner.init(key=jr.key(0))
    envs = make_envs(world, [0])
    for episode in range(4):
        state, _ = learner.fit(state, Replay.empty(1, 3, 1), key=jr.key(0))
        dynamics = learner.dynamics(state)
        assert isinstance(dynamics, TrueDynamics)
        obs, action = envs.reset(episode)[0], np.full((1, 1), 0.8, np.float32)
        predicted = dynamics.predict(jnp.asarray(obs), jnp.asarray(action[0])).mean
        np.testing.assert_allclose(predicted, envs.step(action, ON).obs[0], atol=1e-5)


def test_costs_are_hinges():
    cost = Pendulum(speed_limit=6, cost_margin=1.0).cost(1)
    obs = jnp.asarray([1.0, 0.0, 0.0])
    speeds = [4.9, 5.5, -6.0, 6.5]
    found = [float(cost(obs, obs[:1], obs.at[2].set(speed))) for speed in speeds]
    np.testing.assert_allclose(found, [0.0, 0.5, 1.0, 1.5], atol=1e-6)
    cliff = MountainCar(cliff=-1.1, cost_margin=0.0).cost(1)
    cars = [jnp.asarray([x, 0.0]) for x in (-1.0, -1.1, -1.2)]
    assert [float(cliff(car, obs[:1], car)) for car in cars] == [0.0, 1.0, 1.0]
    fence = RCCar(fence=2.0, cost_margin=0.5).cost(1)
    place = jnp.zeros(13).at[1].set(-1.75)
    np.testing.assert_allclose(fence(place, place[:2], place), 0.5, rtol=1e-6)
    for world in (Pendulum(), MountainCar(), RCCar()):
        assert world.cost(1) is None


def test_gymnasiums_users_are_told_the_cost():
    env = gymnasium.make("sombrl/RCCar-v0", fence=1.7, cost_margin=1.0)
    env.reset(seed=3)
    assert env.unwrapped.world.fence == 1.7
    for _ in range(3):
        obs, *_, info = env.step(np.array([0.0, 0.5], np.float32))
        np.testing.assert_allclose(info["cost"], max(0.0, 1.0 + np.abs(obs[:2]).max() - 1.7), rtol=1e-5)
    plain = gymnasium.make("sombrl/RCCar-v0")
    plain.reset(seed=3)
    assert plain.step(np.zeros(2, np.float32))[-1] == {}


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("pendulum", {"drift": "wind"}, "drift must be 'none' or 'torque' or 'mass', not 'wind'"),
        ("pendulum", {"drift": "torque", "drift_from": -1}, "drift_from must be the number of an episode"),
        ("mountain-car", {"drift": "mass", "drift_over": 0}, "drift_over must be an integer ≥ 1"),
        ("rc-car", {"drift": "mass", "drift_factor": -1}, "drift_factor must be positive"),
        ("pendulum", {"drift": "torque", "drift_factor": 0}, "drift_factor must be positive"),
        ("pendulum", {"speed_limit": 0}, "speed_limit must be above 0"),
        ("mountain-car", {"cliff": -0.3}, "cliff must lie between -1.2 and -0.6"),
        ("rc-car", {"fence": 1.0}, "fence must be above 1.6"),
        ("rc-car", {"fence": 2.0, "cost_margin": -1}, "cost_margin must be a finite number"),
    ],
)
def test_impossible_options_are_refused_in_a_sentence(name, options, sentence):
    with pytest.raises(SombrlError, match=sentence):
        make_envs(name, [0], env_kwargs=options)
