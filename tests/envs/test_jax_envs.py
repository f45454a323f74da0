"""Action repeat, cost, noise and faults of pure-JAX worlds."""

import sys
from typing import ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.envs.base import AbstractWorld
from sombrl.envs.jax_envs import JaxEnvs
from sombrl.envs.mountain_car import MountainCar
from sombrl.envs.pendulum import Pendulum
from sombrl.envs.registry import make_envs
from sombrl.records import AbstractTask, RunFault, SombrlError

ON = np.ones(1, bool)


class NoTask(AbstractTask):
    def reward(self, state, action, next_state):
        return jnp.zeros((), jnp.float32)

    def terminated(self, state, action, next_state):
        return jnp.zeros((), bool)


class Noisy(AbstractWorld):
    """A random walk with a pytree state; NaN in `broken` at the fourth frame."""

    obs_dim: ClassVar[int] = 1
    action_dim: ClassVar[int] = 2
    episode_frames: ClassVar[int] = 10
    broken: str = ""

    def reset(self, *, key):
        return {"x": jr.normal(key, (1,), jnp.float32), "t": jnp.zeros((), jnp.int32)}

    def step(self, state, action, *, key):
        x = state["x"] + jr.normal(key, (1,), jnp.float32)
        bad = state["t"] == 3
        x = jnp.where(bad & (self.broken == "observation"), jnp.nan, x)
        reward = jnp.where(bad & (self.broken == "reward"), jnp.inf, 1.0).astype(jnp.float32)
        return {"x": x, "t": state["t"] + 1}, reward, jnp.zeros((), bool)

    def observe(self, state):
        return state["x"]

    def task(self, action_repeat):
        return NoTask()

    def draw(self, state, axes):
        axes.plot([0], [float(state["x"][0])], "o")


def step_by_hand(world, state, action, frames):
    total = 0.0
    for _ in range(frames):
        state, reward, ended = world.step(state, action, key=jr.key(0))
        total += float(reward)
        if ended:
            break
    return state, total, bool(ended)


def test_repeats_sum_the_frames():
    world = Pendulum()
    envs = JaxEnvs(world, [0], name="p", action_repeat=5)
    envs.reset(0)
    action = np.array([[0.7]], np.float32)
    step = envs.step(action, ON)
    state, total, _ = step_by_hand(world, world.reset(key=jr.key(0)), jnp.asarray(action[0]), 5)
    np.testing.assert_allclose(step.obs[0], world.observe(state), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(step.reward[0], total, rtol=1e-5)
    assert envs.spec.episode_length == 40


def test_a_goal_stops_the_repeat():
    envs = JaxEnvs(MountainCar(terminates=True), [0], name="m", action_repeat=4)
    envs.reset(0)
    saved = envs.get_state()
    saved["state0"] = np.array([[0.4, 0.04]], np.float32)
    envs.set_state(saved)
    step = envs.step(np.array([[1.0]], np.float32), ON)
    _, total, ended = step_by_hand(
        MountainCar(terminates=True), jnp.array([0.4, 0.04], jnp.float32), jnp.ones(1, jnp.float32), 4
    )
    assert step.terminated[0] and not step.truncated[0] and ended
    np.testing.assert_allclose(step.reward[0], total, rtol=1e-6)
    assert total == pytest.approx(100 - 2 * 0.1)  # two frames, not four


def test_a_last_decision_with_fewer_frames():
    envs = JaxEnvs(Noisy(), [0], name="n", action_repeat=4)
    envs.reset(0)
    rewards = [envs.step(np.zeros((1, 2)), ON) for _ in range(3)]
    assert [r.reward[0] for r in rewards] == [4, 4, 2] and rewards[-1].truncated[0]


def test_cost_is_charged_on_the_torque_of_every_frame():
    free, paid = (make_envs("pendulum", [0], action_repeat=3, action_cost=k) for k in (0.0, 0.5))
    free.reset(0), paid.reset(0)
    action = np.array([[-0.75]], np.float32)
    gap = free.step(action, ON).reward[0] - paid.step(action, ON).reward[0]
    assert gap == pytest.approx(3 * 0.5 * 2.0 * 0.75, rel=1e-5)
    obs = jnp.array([-1.0, 0.0, 0.0], jnp.float32)
    known = [e.task.reward(obs, jnp.array([-0.75], jnp.float32), obs) for e in (free, paid)]
    assert float(known[0] - known[1]) == pytest.approx(gap, rel=1e-5)


def test_noise_differs_between_decisions_seeds_and_episodes():
    envs = JaxEnvs(Noisy(), [0, 1], name="n", action_repeat=2)
    seen = []
    for episode in range(2):
        last = envs.reset(episode)
        for _ in range(3):
            obs = envs.step(np.zeros((2, 2)), np.ones(2, bool)).obs
            seen.append(obs - last)
            last = obs
    assert len(np.unique(np.round(np.concatenate(seen), 5))) == 12


def test_decisions_compile_once():
    class Counting(Noisy):
        traces: ClassVar[list[int]] = []

        def step(self, state, action, *, key):
            Counting.traces.append(1)
            return super().step(state, action, key=key)

    envs = JaxEnvs(Counting(), [0, 1, 2], name="n")
    after_first = 0
    for episode in range(2):
        envs.reset(episode)
        envs.step(np.zeros((3, 2)), np.ones(3, bool))
        after_first = len(Counting.traces) if episode == 0 else after_first
        envs.step(np.zeros((3, 2), np.float32), np.array([True, False, True]))
    assert len(Counting.traces) == after_first


@pytest.mark.parametrize("tensor, told", [("observation", r"observation\[0\] is nan"), ("reward", "reward is inf")])
def test_a_broken_world_names_the_place(tensor, told):
    envs = JaxEnvs(Noisy(broken=tensor), [7], name="noisy")
    envs.reset(2)
    for _ in range(3):
        envs.step(np.zeros((1, 2)), ON)
    with pytest.raises(RunFault, match=rf"noisy \(seed 7, episode 2, step 3\): {told}"):
        envs.step(np.zeros((1, 2)), ON)


def test_a_world_that_does_not_keep_its_word():
    class Liar(Noisy):
        obs_dim: ClassVar[int] = 3

    with pytest.raises(SombrlError, match=r"float32\[3\]"):
        JaxEnvs(Liar(), [0], name="liar")


def test_64_bits_change_nothing():
    def play():
        envs = JaxEnvs(Pendulum(start="random"), [0, 5], name="p", action_repeat=2)
        return [envs.reset(1), *(envs.step(np.full((2, 1), 0.3), np.ones(2, bool)).obs for _ in range(4))]

    single = play()
    with jax.enable_x64(True):
        double = play()
    assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(single, double, strict=True))


@pytest.mark.parametrize("world", [Pendulum(), MountainCar(), Noisy()])
def test_render(world, monkeypatch):
    envs = JaxEnvs(world, [0, 1], name="w")
    with pytest.raises(SombrlError, match="call reset"):
        envs.render(0)
    envs.reset(0)
    picture = envs.render(1)
    assert picture.shape == (320, 480, 3) and picture.dtype == np.uint8 and picture.std() > 0
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SombrlError, match=r"pip install 'sombrl\[video\]'"):
        envs.render(0)
