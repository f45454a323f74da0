"""SAC in the loop, model-free and with a model that is right: minutes, `make test-slow`."""

from dataclasses import replace

import numpy as np
import pytest

from sombrl.controllers import MODEL_FREE, SAC
from sombrl.dynamics.true import TrueLearner
from sombrl.envs.registry import make_envs
from sombrl.exploration import greedy
from sombrl.settings import FiniteHorizon
from sombrl.training.episodic import run

pytestmark = pytest.mark.slow

PLANNED = -355.5  # iCEM with the true dynamics and a horizon of 40, from the same start (hanging)
CONFIG = replace(
    MODEL_FREE,
    hidden=(128, 128),
    batch_size=128,
    updates_per_call=400,
    actor_lr=1e-3,
    critic_lr=1e-3,
    temperature_lr=1e-3,
)


@pytest.mark.parametrize(
    "config",
    [CONFIG, replace(CONFIG, imagined="one-step", critic="bro", policy_every=2, real_every=2)],
    ids=["model-free", "true model"],
)
def test_pendulum_swings_up(config):
    envs = make_envs("pendulum", seeds=[0])
    learner = TrueLearner(envs.world, envs.spec.action_repeat)
    sac, setting = SAC(envs.spec.obs_dim, config), FiniteHorizon(200)
    reports = run(envs, learner, greedy(), sac, setting, seeds=[0], num_iterations=30, capacity=10_000)
    returns = [float(report.chunk.returns[0]) for report in reports]
    assert np.median(returns[-5:]) >= 1.1 * PLANNED, returns
