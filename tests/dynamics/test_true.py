"""Planning on the true system: exact predictions, and a return no learner should beat."""

import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.dynamics.true import TrueDynamics
from sombrl.envs.registry import make_envs
from sombrl.records import SombrlError
from tests.small import small


@pytest.mark.parametrize("name", ["pendulum", "mountain-car"])
def test_the_true_model_predicts_what_happens(name):
    envs = make_envs(name, [0], action_repeat=3)
    model = TrueDynamics(envs.world, 3)
    obs = envs.reset(0)
    for t in range(5):
        action = np.array([[np.cos(t)]], np.float32)
        prediction = model.predict(jnp.asarray(obs[0]), jnp.asarray(action[0]))
        obs = envs.step(action, np.ones(1, bool)).obs
        np.testing.assert_allclose(np.asarray(prediction.mean), obs[0], atol=2e-5)
    assert not np.asarray(prediction.epistemic_std).any()


def test_planning_on_it_swings_up_at_once():
    icem = {"num_samples": 100, "num_elites": 10, "iterations": 3, "horizon": 12}
    agent = small(model="true", explore="greedy", icem=icem, action_repeat=5, episode_length=40)
    returns = []
    agent.learn(40, callback=lambda agent, report: returns.append(float(report.chunk.returns[0])))
    assert returns[0] > -500  # hanging for an episode is -1974


def test_only_our_own_worlds_are_true():
    with pytest.raises(SombrlError, match="--model true needs one of sombrl's own worlds"):
        small("Pendulum-v1", model="true")
