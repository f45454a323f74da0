"""Worlds made of pixels: the physics of the worlds with vectors, pictures that tell states apart, and a reward that
is out of reach for noise and within reach of who knows the way."""

import warnings

import gymnasium
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sombrl.envs.mountain_car import MountainCar
from sombrl.envs.pendulum import Pendulum
from sombrl.envs.pixels.gym import IDS, PixelEnv
from sombrl.envs.pixels.world import SCENES, PixelWorld, Seen
from sombrl.envs.registry import make_envs
from sombrl.envs.wall import Wall
from sombrl.records import SombrlError

from .scripts import scripted

each = pytest.mark.parametrize("name", list(SCENES))


@pytest.mark.parametrize(
    ("name", "vectors"), [("mountain-car", MountainCar()), ("pendulum", Pendulum()), ("wall", Wall())]
)
def test_physics_are_those_of_the_vectors(name, vectors):
    world, frames = PixelWorld(name), SCENES[name].frames
    state, hidden = vectors.reset(key=jr.key(0)), world.reset(key=jr.key(0))
    step, frame = jax.jit(world.step), jax.jit(vectors.step)
    for action in np.random.default_rng(0).uniform(-1, 1, (30, vectors.action_dim)).astype(np.float32):
        hidden, _, _ = step(hidden, action, key=jr.key(1))
        for _ in range(frames):
            state, _, _ = frame(state, action, key=jr.key(2))
        np.testing.assert_allclose(np.asarray(hidden.now), np.asarray(state), rtol=1e-5, atol=1e-6)


@each
def test_random_actions_find_nothing_and_a_script_does(name):
    """Uniform actions in a thousand episodes, five times the budget of the experiment; normal ones hardly ever."""
    world, episodes = PixelWorld(name), 1000

    def episode(start, actions):
        def step(state, action):
            state, reward, _ = world.step(state, action, key=jr.key(0))
            return state, reward

        return jnp.sum(jax.lax.scan(step, world.reset(key=start), actions)[1])

    shape = (episodes, world.episode_frames, world.action_dim)
    actions = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    assert np.count_nonzero(jax.jit(jax.vmap(episode))(jr.split(jr.key(0), episodes), actions)) <= 1
    decide, state, rewards, solve = jax.jit(world.step), world.reset(key=jr.key(1)), [], scripted(name)
    for t in range(world.episode_frames):
        action = np.asarray(solve(np.asarray(state.now)), np.float32)
        state, reward, _ = decide(state, action, key=jr.key(t))
        rewards.append(float(reward))
    assert set(rewards) == {0.0, 1.0}
    assert sum(rewards) > 0.4 * world.episode_frames  # it stays there, too


@each
@pytest.mark.parametrize("size", [32, 64])
def test_pictures_tell_states_apart(name, size):
    world = PixelWorld(name, size)
    picture, start = jax.jit(world.picture), world.reset(key=jr.key(0))
    far = start.now + jnp.zeros_like(start.now).at[0].set(0.3)
    seen = [np.asarray(picture(Seen(*pair))) for pair in ((start.now, start.now), (far, far), (far, start.now))]
    assert all(image.shape == (size, size, 3) and image.dtype == np.uint8 for image in seen)
    assert np.array_equal(seen[0], np.asarray(picture(start)))
    resting, elsewhere, moved = seen
    assert np.array_equal(resting[..., 0], resting[..., 1])  # at rest both moments are the same
    assert np.abs(resting[..., 0].astype(int) - elsewhere[..., 0]).max() > 60
    assert np.array_equal(moved[..., 0], elsewhere[..., 0]) and np.array_equal(moved[..., 1], resting[..., 1])
    assert resting[..., 2].max() == 255  # the goal


def test_small_moves_are_seen():
    """A tenth of a pixel changes bytes: edges are smooth."""
    world = PixelWorld("wall")
    start = world.reset(key=jr.key(0)).now
    nudged = start.at[0].add(0.1 * 4.4 / 32)
    pictures = [np.asarray(world.picture(Seen(where, where)), int) for where in (start, nudged)]
    assert np.abs(pictures[0] - pictures[1]).max() > 10


def test_the_key_opens_the_door():
    world = PixelWorld("key-door")
    scene, step = world.scene, jax.jit(world.step)
    door_x, door_y = scene.place("D")
    right = np.array([1.0, 0.0], np.float32)
    for held, beyond in ((0.0, False), (1.0, True)):
        here = jnp.array([door_x - 0.7, door_y, held], jnp.float32)
        state = Seen(here, here)
        for t in range(4):
            state, _, _ = step(state, right, key=jr.key(t))
        assert (float(state.now[0]) > door_x + 0.5) == beyond
        blue = np.asarray(world.picture(state))[..., 2]
        assert np.count_nonzero((blue > 100) & (blue < 255)) == (0 if beyond else 32)  # key and door, 16 pixels each
    at_key = jnp.array([*scene.place("K"), 0.0], jnp.float32)
    assert float(step(Seen(at_key, at_key), 0.0 * right, key=jr.key(0))[0].now[2]) == 1.0


@each
def test_gymnasium_finds_no_fault_and_the_numbers_are_those_of_make_envs(name):
    env = gymnasium.make(f"sombrl.envs.pixels.gym:{IDS[name]}", render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    ours = make_envs(f"pixel:{name}", [7])
    obs, _ = env.reset(seed=7)
    assert np.array_equal(obs.ravel(), ours.reset(0)[0])
    rng = np.random.default_rng(0)
    for t in range(env.spec.max_episode_steps):
        action = rng.uniform(-1, 1, ours.spec.action_dim).astype(np.float32)
        obs, reward, _, truncated, _ = env.step(action)
        step = ours.step(action[None], np.ones(1, bool))
        assert np.array_equal(obs.ravel(), step.obs[0]) and reward == step.reward[0]
        assert truncated == step.truncated[0] == (t + 1 == env.spec.max_episode_steps)
    assert env.render().shape == (320, 320, 3) and env.render().dtype == np.uint8
    assert np.array_equal(env.reset()[0].ravel(), ours.reset(1)[0])


def test_what_is_refused():
    with pytest.raises(SombrlError, match="size must be 32 or 64, not 48"):
        make_envs("pixel:wall", [0], env_kwargs={"size": 48})
    with pytest.raises(SombrlError, match='unknown environment "pixel:walls": did you mean "pixel:wall"'):
        make_envs("pixel:walls", [0])
    with pytest.raises(SombrlError, match="render_mode"):
        PixelEnv("wall", render_mode="human")
    with pytest.raises(SombrlError, match="call reset first"):
        PixelEnv("wall").step(np.zeros(2))
