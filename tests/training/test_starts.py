"""How training begins: random episodes, the one-point start, and a normaliser that survives standing still."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from sombrl.agent.make import load, make
from sombrl.dynamics.gp import GPConfig, GPLearner
from sombrl.envs.registry import make_envs
from sombrl.records import SombrlError, Transition
from sombrl.replay import Replay
from sombrl.training.random_actions import random_actions
from tests.small import small


def actions(agent, episodes, length=6):
    """[seeds, episodes, length, action]."""
    data = np.asarray(agent.state.replay.data.action)
    return data[:, : episodes * length].reshape(data.shape[0], episodes, length, -1)


def test_the_first_episodes_are_random():
    planned = actions(small(seeds=2, random_episodes=0).learn(18), 3)
    mixed = actions(small(seeds=2, random_episodes=2).learn(18), 3)
    for seed in range(2):
        for episode in range(2):
            drawn = [random_actions([seed], np.array([episode]), t, 1)[0] for t in range(6)]
            np.testing.assert_array_equal(mixed[seed, episode], drawn)
    assert not np.array_equal(mixed[0, 0], mixed[0, 1]) and not np.array_equal(mixed[0, 0], mixed[1, 0])
    assert np.abs(planned[:, 0] - mixed[:, 0]).max() > 0.1


def test_random_actions_are_uniform():
    drawn = np.array([[random_actions([s], np.array([0]), t, 2)[0] for t in range(50)] for s in range(40)])
    assert stats.kstest(drawn.ravel(), "uniform", (-1, 2)).pvalue > 0.01
    assert np.abs(np.corrcoef(drawn[:, 1:].ravel(), drawn[:, :-1].ravel())[0, 1]) < 0.05
    assert len(np.unique(drawn)) == drawn.size


def test_gp_icem_begins_with_one_and_the_others_with_none():
    assert make("gp-icem", "pendulum").trainer.parts.random_episodes == 1
    assert make("gp-icem", "pendulum", model="true", explore="greedy").trainer.parts.random_episodes == 0
    assert make("gp-icem", "pendulum", random_episodes=3).trainer.parts.random_episodes == 3
    assert make("mbpo", "pendulum").trainer.parts.random_episodes == 0
    with pytest.raises(SombrlError, match="random-episodes is not for dreamer"):
        make("dreamer", "Pendulum-v1", random_episodes=1)


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["sac", "mbpo"])
def test_learners_of_policies_begin_at_random_too(algorithm):
    nets = {"hidden": (8, 8), "batch_size": 8}
    parts = {"sac": nets} | ({"ensemble": nets} if algorithm == "mbpo" else {})
    agent = make(algorithm, "pendulum", episode_length=5, report_every=5, random_episodes=1, **parts).learn(10)
    drawn = [random_actions([0], np.array([0]), t, 1)[0] for t in range(5)]
    done = np.asarray(agent.state.replay.data.action)[0, :10]
    np.testing.assert_array_equal(done[:5], drawn)
    assert not np.array_equal(done[5:], [random_actions([0], np.array([1]), t, 1)[0] for t in range(5, 10)])


@pytest.mark.thorough
def test_random_episodes_resume_to_the_bit(tmp_path):
    whole = small(random_episodes=2).learn(18)
    half = small(random_episodes=2).learn(6)
    half.save(tmp_path / "run")
    np.testing.assert_array_equal(actions(load(tmp_path / "run").learn(12), 3), actions(whole, 3))


def test_the_one_point_start():
    """Before the first episode the data are one transition: the start, no action, no change."""
    agent = small(seeds=2, start_point=True).learn(6)
    data = agent.state.replay.data
    assert np.asarray(agent.state.replay.added).tolist() == [7, 7]
    np.testing.assert_array_equal(data.obs[:, 0], data.next_obs[:, 0])
    np.testing.assert_allclose(data.obs[:, 0], [[-1, 0, 0]] * 2, atol=1e-6)  # hanging, at rest
    np.testing.assert_array_equal(data.action[:, 0], 0.0)
    np.testing.assert_array_equal(data.obs[:, 1], data.obs[:, 0])
    assert np.all(np.asarray(data.action[:, 1:7]) != 0.0)


def episode(env, size, seed):
    """40 decisions of five frames with slowly changing actions of at most that size."""
    envs = make_envs(env, [seed], action_repeat=5, episode_length=40)
    obs, rows = envs.reset(0), []
    for pushed in np.clip(0.4 * np.cumsum(np.random.default_rng(seed).normal(size=40)), -1, 1):
        action = np.array([[size * pushed]], np.float32)
        step = envs.step(action, np.ones(1, bool))
        rows.append((obs[0], action[0], step.reward[0], step.obs[0]))
        obs = step.obs
    no = jnp.zeros(40, bool)
    return Transition(*(jnp.asarray(np.array(column, np.float32)) for column in zip(*rows, strict=True)), no, no)


def model_of(rows, least_action):
    """A GP of these data: its state and its dynamics."""
    dim = rows.obs.shape[1]
    config = GPConfig(capacity=64, rank=32, fit_steps=20, fit_points=32, least_action=least_action)
    learner = GPLearner(dim, 1, False, config)
    with jax.enable_x64(True):
        fit = jax.jit(lambda state, replay, key: learner.fit(state, replay, key=key))
        replay = Replay.empty(64, dim, 1).add(rows, jnp.ones(40, bool))
        state, _ = fit(learner.init(key=jr.key(0)), replay, jr.key(1))
    return state, learner.dynamics(state)


@pytest.mark.parametrize(("env", "before"), [("pendulum", 1000), ("mountain-car", 10)])
def test_after_standing_still_a_move_is_not_a_hundred_units(env, before):
    """The worst prediction of a lively episode after a motionless one, in units of the model's targets."""
    still, lively = episode(env, 0.01, 0), episode(env, 1.0, 1)
    worst = {}
    for least_action in (0.0, GPConfig().least_action):
        state, dynamics = model_of(still, least_action)
        means = jax.jit(jax.vmap(dynamics.predict))(lively.obs, lively.action).mean
        units = np.asarray(state.outputs.std)[: means.shape[1]]
        worst[least_action] = np.max(np.abs(np.asarray(means - lively.next_obs)) / units)
    assert worst[0.0] > before and worst[GPConfig().least_action] < 20


def test_lively_data_are_normalised_as_ever():
    rows = episode("pendulum", 1.0, 1)
    plain, floored = (model_of(rows, least_action)[0] for least_action in (0.0, 0.3))
    np.testing.assert_array_equal(plain.outputs.std, floored.outputs.std)
    np.testing.assert_array_equal(plain.inputs.std, floored.inputs.std)
