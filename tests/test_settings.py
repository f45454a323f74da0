"""Finite-horizon, discounted and never-reset runs: borders, update rules, and resume in the middle of a trajectory."""

import gymnasium
import jax
import numpy as np
import pytest

from sombrl.agent import load
from sombrl.exploration.bonus import InformationGain
from sombrl.records import SombrlError
from sombrl.settings import Discounted, FiniteHorizon, NonEpisodic
from sombrl.theory.update_rule import ONE_BIT
from tests.dynamics.data import predict
from tests.small import SMALL, small
from tests.test_loop import Corridor, leaves

ENDLESS = {"setting": "non-episodic", "update_every": 4, "episode_length": None}


def test_the_discounted_horizon_grows_as_in_the_theorem():
    setting = Discounted(0.9, longest=50, floor=2)
    lengths = [setting.chunk_length(n) for n in range(300)]
    assert lengths[0] == 2 and lengths[-1] == 50
    for n in (9, 99):
        assert 0.9 ** lengths[n] <= 1 / (n + 1) < 0.9 ** (lengths[n] - 1)
    assert Discounted(0.9, longest=50, growing=False).chunk_length(0) == 50
    assert FiniteHorizon(7).chunk_length(3) == FiniteHorizon(7).longest == 7


@pytest.mark.parametrize("bad", [lambda: Discounted(1.0, 5), lambda: Discounted(0.0, 5), lambda: NonEpisodic(0)])
def test_impossible_settings(bad):
    with pytest.raises(SombrlError):
        bad()


def test_a_discounted_run_has_the_theorys_episodes():
    agent = small(setting="discounted", discount=0.5, episode_length=12)
    lengths = []
    agent.learn(36, callback=lambda agent, report: lengths.append(int(report.chunk.valid.sum())))
    assert lengths == [agent.setting.chunk_length(n) for n in range(3)]


@pytest.mark.parametrize("env", ["pendulum", "Pendulum-v1"])
def test_a_trajectory_without_resets_is_one_piece_and_resumes_exactly(env, tmp_path):
    whole = small(env, seeds=2, **ENDLESS).learn(16)
    rows = whole.state.replay.data
    assert int(whole.state.replay.added[0]) == 16
    assert np.array_equal(rows.obs[:, 1:16], rows.next_obs[:, :15])
    assert not np.asarray(rows.truncated).any()

    half = small(env, seeds=2, **ENDLESS).learn(8)
    half.envs.step(np.zeros((2, 1), np.float32), np.ones(2, bool))  # interrupted within a chunk
    half.save(tmp_path / "run")
    for resumed in (load(tmp_path / "run").learn(8), half.learn(8)):
        for ours, theirs in zip(leaves(resumed), leaves(whole), strict=True):
            assert np.array_equal(ours, theirs)


def test_the_one_bit_rule_for_every_seed_by_itself():
    gp = SMALL["gp"] | {"noise_std": 3.0, "rank": 32}  # so much that a step teaches less than a bit
    settings = ENDLESS | {"one_bit": True, "update_every": 6, "explore": "greedy", "gp": gp}
    agent = small("pendulum", seeds=2, **settings)
    gains = []

    def check(agent, report):
        for seed in range(2):
            one = jax.tree.map(lambda leaf, seed=seed: leaf[seed], report.state.learner)
            dynamics = agent.parts.learner.dynamics(one)
            rows = jax.tree.map(lambda leaf, seed=seed: leaf[seed], report.chunk.transitions)
            length = int(report.chunk.valid[seed].sum())
            total = np.cumsum(np.asarray(jax.vmap(InformationGain())(predict(dynamics, rows.obs, rows.action))))
            assert length == 6 or total[length - 1] > ONE_BIT
            assert np.all(total[: length - 1] <= ONE_BIT + 1e-4)
            gains.append(length)

    agent.learn(36, callback=check)
    assert gains[:2] == [3, 3]  # under the prior a step is 3 ln(1 + 1/9) = 0.316, and ln 2 = 0.693
    alone = small("pendulum", seed=1, **settings).learn(36)
    for ours, theirs in zip(leaves(agent), leaves(alone), strict=True):
        assert np.array_equal(ours[1:], theirs)


def test_an_environment_that_ends_is_refused_without_resets():
    with pytest.raises(SombrlError, match="never resets: choose a variant"):
        small(Corridor, **ENDLESS, explore="unsupervised").learn(200)
    with pytest.raises(SombrlError, match="max_episode_steps=-1"):
        small(lambda: gymnasium.make("Pendulum-v1"), **ENDLESS)


def test_the_average_reward_is_reported():
    agent = small("pendulum", **ENDLESS)
    rows = []
    agent.learn(8, callback=lambda agent, report: rows.extend(agent.rows(report)))
    rewards = np.asarray(agent.state.replay.data.reward)[0, :8]
    np.testing.assert_allclose(rows[-1]["rollout/average_reward"], rewards.mean(), rtol=1e-5)
