"""How σ ranks errors: Spearman's ρ against SciPy's, and an agent's on episodes of its own."""

import numpy as np
import pytest
from scipy.stats import spearmanr

import sombrl
from sombrl.dreamer.calibration import DECODED, LATENT, SIGMA, spearman
from sombrl.errors import SombrlError


@pytest.mark.parametrize("ties", [False, True])
def test_ranks_are_those_of_scipy(ties):
    x, y = np.random.default_rng(0).normal(size=(2, 50))
    y = x + y
    x, y = (np.round(values) if ties else values for values in (x, y))
    np.testing.assert_allclose(spearman(x, y), spearmanr(x, y).statistic, rtol=1e-12)
    np.testing.assert_allclose(spearman(x, np.exp(x)), 1.0)
    np.testing.assert_allclose(spearman(x, -x), -1.0)
    assert np.isnan(spearman(x, np.ones(50)))


SETTINGS = {
    **{"size": "tiny", "envs": 2, "batch_size": 2, "batch_length": 4, "horizon": 2, "ratio": 8.0, "capacity": 200},
    **{"report_every": 24, "episode_length": 7, "hidden": [8], "members": 2},
}


@pytest.mark.thorough
def test_an_agent_is_measured_on_held_out_episodes():
    agent = sombrl.make("dreamer", "Pendulum-v1", seeds=2, **SETTINGS)
    next(agent.iterations(1))
    found = agent.trainer.calibration(3)
    assert {name: values.shape for name, values in found.items()} == dict.fromkeys((LATENT, DECODED, SIGMA), (1, 2))
    assert all((np.abs(found[name]) <= 1).all() for name in (LATENT, DECODED))
    assert (found[SIGMA] > 0).all()
    again = agent.trainer.calibration(3)
    np.testing.assert_equal(again, found)


def test_without_an_ensemble_there_is_nothing_to_rank():
    agent = sombrl.make("dreamer", "Pendulum-v1", explore="greedy", **SETTINGS)
    with pytest.raises(SombrlError, match="no ensemble"):
        agent.trainer.calibration(1)
