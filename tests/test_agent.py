"""The Python API: predict as Stable-Baselines3 expects it, evaluate, save and load."""

import gymnasium
import numpy as np
import pytest

import sombrl
from sombrl.records import SombrlError
from tests.small import SMALL, small
from tests.training.test_episodic import Corridor


@pytest.fixture(scope="module")
def agent():
    return small("Pendulum-v1", seeds=2).learn(12)


def test_predict_takes_one_observation_or_many(agent):
    one, state = agent.predict(np.array([1.0, 0.0, 0.5]))
    assert one.shape == (1,) and abs(one[0]) <= 2.0
    many, states = agent.predict(np.array([[1.0, 0.0, 0.5], [-1.0, 0.0, 0.5]]))
    assert many.shape == (2, 1)
    assert np.array_equal(many[0], one)  # a row does not depend on its neighbours
    assert int(states.decision[0]) == int(state.decision[0]) == 1


def test_predict_is_repeatable_and_warm_starts(agent):
    obs = np.array([[-1.0, 0.0, 0.0]])  # hanging, where no action is at its bound
    first, state = agent.predict(obs)
    again, _ = agent.predict(obs)
    assert np.array_equal(first, again)
    second, state = agent.predict(obs, state=state)
    restarted, _ = agent.predict(obs, state=state, episode_start=np.array([True]))
    assert np.array_equal(restarted, first)
    assert not np.array_equal(second, first)
    explored, _ = agent.predict(obs, deterministic=False)
    assert not np.array_equal(explored, first)


def test_actions_reach_the_bounds_of_the_environment(agent):
    env = gymnasium.make("Pendulum-v1")
    obs, _ = env.reset(seed=0)
    state = None
    for _ in range(5):
        action, state = agent.predict(obs, state)
        assert env.action_space.contains(action)
        obs, *_ = env.step(action)
    scaled = agent.envs.physical(np.array([[1.0], [-1.0], [0.0]], np.float32))
    assert scaled.ravel().tolist() == [2.0, -2.0, 0.0]


def test_evaluation_leaves_training_alone(agent):
    before = [np.asarray(x).copy() for x in (agent.state.replay.data.action, agent.state.controller.plan)]
    first = agent.evaluate(2)
    assert first.shape == (2, 2) and np.all(first < 0)
    assert np.array_equal(first, agent.evaluate(2))
    assert not np.array_equal(first, agent.evaluate(2, explore=True))
    after = [np.asarray(x) for x in (agent.state.replay.data.action, agent.state.controller.plan)]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_saved_agents_act_the_same(agent, tmp_path):
    agent.save(tmp_path / "agent")
    loaded = sombrl.load(tmp_path / "agent")
    obs = np.array([0.3, -0.9, 1.0])
    assert np.array_equal(agent.predict(obs)[0], loaded.predict(obs)[0])
    assert loaded.config == agent.config and loaded.run_config == agent.run_config
    with pytest.raises(SombrlError, match="not empty"):
        agent.save(tmp_path / "agent")


def test_an_environment_object_must_be_given_again(tmp_path):
    agent = sombrl.GPICEM(Corridor(), **(SMALL | {"episode_length": 5})).learn(5)
    agent.save(tmp_path / "agent")
    with pytest.raises(SombrlError, match="env="):
        sombrl.load(tmp_path / "agent")
    assert sombrl.load(tmp_path / "agent", env=Corridor()).iteration == 1


def test_settings_go_where_they_belong():
    agent = sombrl.make("gp-icem", "pendulum", explore="hucrl", beta=3.0, gp={"rank": 9}, seed=4, reward="learned")
    assert agent.config.explore.beta == 3.0 and agent.config.gp.rank == 9 and agent.seeds == [4]
    assert agent.trainer.parts.learner.learn_task
    with pytest.raises(SombrlError, match="bonus_weight"):
        sombrl.make("gp-icem", "pendulum", bonus_wieght=3.0)
    with pytest.raises(SombrlError, match="gp-icem"):
        sombrl.make("gp-cem", "pendulum")
    with pytest.raises(SombrlError, match="at least 1"):
        agent.learn(0)


def test_reward_is_learned_where_it_is_not_known():
    with pytest.raises(SombrlError, match="--reward learned"):
        small(Corridor, reward="known", episode_length=5)
    assert small(Corridor, episode_length=5).trainer.parts.learner.learn_task
    assert not small("Pendulum-v1").trainer.parts.learner.learn_task
