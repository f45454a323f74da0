"""Bounds in Dreamer's imagination: sums of what its own heads say along one latent episode."""

import equinox as eqx
import jax
import numpy as np
import pytest

import sombrl
from sombrl.dreamer.rssm import Latent
from sombrl.errors import SombrlError
from sombrl.runs.train import train
from sombrl.training.base import EVALUATION_EPISODES
from sombrl.training.play import play
from tests.dreamer.test_agent import agent
from tests.small import reproducible_rows

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def trained():
    return agent(seeds=2, decisions=96).learn(72)


def test_they_are_sums_along_the_imagined_states(trained):
    found = trained.bounds(episodes=2)
    assert np.all(found.low < found.value) and np.all(found.value < found.high)
    dreamer, networks = trained.trainer.dreamer, trained.state.learned.networks
    with trained.trainer._evaluation_envs(render=False) as envs:
        policy, imagined = trained.trainer.imagined(envs, None)
        starts = imagined.reset(EVALUATION_EPISODES)
        (played,) = play(policy, imagined, first_episode=EVALUATION_EPISODES, episodes=1, record=True)
    rows = played.rows
    assert np.array_equal(rows.obs[:, 0], starts)  # the same episode begins in the same state
    assert rows.obs.shape == (2, 7, dreamer.size.features)
    for row, valid in enumerate(played.valid):
        net = jax.tree.map(lambda leaf, row=row: leaf[row], networks)
        rewards = jax.vmap(net.reward.mean)(rows.next_obs[row])
        np.testing.assert_allclose(found.value[0, row], np.sum(rewards[valid]), rtol=1e-4, atol=1e-6)
        sigma = jax.vmap(lambda x, a, net=net: net.ensemble.sigma(x, a))(rows.obs[row], rows.action[row])
        np.testing.assert_allclose(found.uncertainty[0, row], np.sum(sigma[valid]), rtol=1e-4)
        ends = np.asarray(jax.vmap(net.cont.mean)(rows.next_obs[row])) < 0.5 * net.cont.discount
        assert valid.sum() == min(7, 1 + int(np.argmax(ends)) if ends[valid].any() else 7)
        # The deterministic part follows from the state and the action alone.
        size = dreamer.size
        x = rows.obs[row, 0]
        latent = Latent(x[: size.deter], x[size.deter :].reshape(size.latents, size.classes))
        later = net.rssm.core(latent, rows.action[row, 0])
        np.testing.assert_allclose(later, rows.next_obs[row, 0, : size.deter], rtol=1e-4, atol=1e-5)
    weights = np.exp(trained.state.learned.bonus_weight.log_weight)
    np.testing.assert_allclose(found.factor, weights, rtol=1e-5)


def test_an_expected_end_ends_the_episode(trained):
    """A head that expects the end everywhere leaves one decision, one that never does the whole episode."""
    state, found = trained.state, []
    cont = state.learned.networks.cont.output
    try:
        for logit in (-9.0, 9.0):
            values = 0 * cont.weight, 0 * cont.bias + logit
            where = lambda s: (s.learned.networks.cont.output.weight, s.learned.networks.cont.output.bias)  # noqa: E731
            trained.trainer.replace_state(eqx.tree_at(where, state, values))
            found.append(trained.bounds(episodes=1, factor=1.0).uncertainty)
    finally:
        trained.trainer.replace_state(state)
    assert np.all(3 * found[0] < found[1])  # one decision of seven


def test_what_it_cannot_say_is_refused(trained):
    with pytest.raises(SombrlError, match="another policy cannot see"):
        trained.bounds(lambda obs: 0.0, factor=1.0)
    with pytest.raises(SombrlError, match="no theorem's"):
        trained.bounds(theory=True)
    plain = agent(explore="greedy", decisions=48).learn(24)
    with pytest.raises(SombrlError, match="an ensemble that disagrees"):
        plain.bounds(factor=1.0)
    with pytest.raises(SombrlError, match="add --eval-every"):
        agent(record_bounds=True)
    with pytest.raises(SombrlError, match="compares two plans"):
        agent(stop_when_gap=0.1)


def test_evaluations_are_predicted(tmp_path):
    made = agent(record_bounds=True, eval_every=24, eval_episodes=1, decisions=72)
    train("dreamer", made.config, made.run_config, tmp_path / "run", tensorboard=False, films=False)
    rows = [row for row in reproducible_rows(tmp_path / "run") if "bounds/return" in row]
    assert rows and all(row["bounds/realised"] == row["eval/ep_rew_mean"] for row in rows)
    assert sombrl.load(tmp_path / "run").past_bounds.episodes == len(rows)
