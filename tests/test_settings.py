"""Finite-horizon, discounted and never-reset runs: borders, update rules, and resume in the middle of a trajectory."""

import gymnasium
import jax
import numpy as np
import pytest

from sombrl.agent.make import load
from sombrl.envs.mountain_car import MountainCar
from sombrl.exploration.bonus import InformationGain
from sombrl.records import SombrlError
from sombrl.settings import LONGEST, Discounted, FiniteHorizon, NonEpisodic, Unsupervised
from sombrl.theory.update_rule import ONE_BIT
from tests.dynamics.data import predict
from tests.small import SMALL, small
from tests.training.test_episodic import Corridor, leaves

ENDLESS = {"setting": "non-episodic", "update_every": 4, "episode_length": None}


def test_the_discounted_horizon_grows_as_in_the_theorem():
    setting = Discounted(0.9, longest=50, floor=2)
    lengths = [setting.chunk_length(n) for n in range(300)]
    assert lengths[0] == 2 and lengths[-1] == 50
    for n in (9, 99):
        assert 0.9 ** lengths[n] <= 1 / (n + 1) < 0.9 ** (lengths[n] - 1)
    assert Discounted(0.9, longest=50, growing=False).chunk_length(0) == 50
    assert FiniteHorizon(7).chunk_length(3) == FiniteHorizon(7).longest == 7


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (lambda: Discounted(1.0, 5), "--discount must lie strictly between 0 and 1, not 1.0"),
        (lambda: Discounted(0.0, 5), "--discount"),
        (lambda: Discounted(0.9, 5, floor=0), "--horizon-floor"),
        (lambda: Discounted(0.9, 0), "the episode length"),
        (lambda: FiniteHorizon(0), "the episode length"),
        (lambda: NonEpisodic(0), "--update-every"),
        (lambda: NonEpisodic(0, "fixed"), "0, no cap, is for --update-rule one-bit"),
        (lambda: NonEpisodic(0, "one-bit", minimum=1001), "--update-minimum must lie between 1 and 1000"),
        (lambda: NonEpisodic(-1, "one-bit"), "--update-every"),
        (lambda: NonEpisodic(5, minimum=6), "--update-minimum must lie between 1 and --update-every = 5"),
        (lambda: NonEpisodic(5, "uncertainty", threshold=0.0), "--update-threshold, the C"),
        (lambda: NonEpisodic(5, "uncertainty", threshold=float("inf")), "--update-threshold"),
        (lambda: small(downstream=("spin",)), "use --setting unsupervised"),
        (lambda: small(setting="unsupervised", downstream=("spni",)), 'did you mean "spin"'),
        (lambda: small(Corridor, setting="unsupervised", downstream=("spin",)), "has no downstream tasks"),
    ],
)
def test_impossible_settings(bad, sentence):
    with pytest.raises(SombrlError, match=sentence):
        bad()


def test_update_rules():
    bit = NonEpisodic(10, "one-bit", minimum=3)
    assert [bit.update_due(0.7, decisions) for decisions in (2, 3)] == [False, True]
    assert not bit.update_due(0.69, 5)
    assert NonEpisodic(10, "uncertainty", threshold=2.0).update_due(2.1, 1)
    assert not NonEpisodic(10, "uncertainty", threshold=2.0).update_due(2.0, 1)
    assert not NonEpisodic(10).update_due(1e9, 10)


@pytest.mark.thorough
def test_without_a_cap_nothing_but_the_rule_ends_a_chunk():
    """A threshold that a cap of 4 would never let it reach; √3 a step at most, so at least six steps."""
    rule = {"update_rule": "uncertainty", "update_threshold": 10.0}
    lengths = {}
    for cap in (4, 0):
        agent = small("pendulum", **ENDLESS | rule | {"update_every": cap})
        report = next(iter(agent.iterations(1)))
        lengths[cap] = int(report.chunk.valid.sum())
    assert lengths == {4: 4, 0: 6}
    assert NonEpisodic(0, "one-bit").chunk_length(3) == LONGEST


def test_the_uncertainty_rule_ends_a_chunk_at_its_sum():
    agent = small("pendulum", **ENDLESS | {"update_rule": "uncertainty", "update_threshold": 3.0})
    lengths = []
    agent.learn(8, callback=lambda agent, report: lengths.append(int(report.chunk.valid.sum())))
    assert lengths[0] == 2  # under the prior every step is √3 = 1.73, and 2·√3 > 3


@pytest.mark.thorough
def test_unsupervised_is_the_strategy_of_that_name_in_episodes():
    """λ → ∞: the setting with any λ, and the strategy without the setting, make the same decisions."""
    setting = small(setting="unsupervised", explore="optimistic", bonus_weight=1.0).learn(12)
    strategy = small(explore="unsupervised").learn(12)
    for ours, theirs in zip(leaves(setting), leaves(strategy), strict=True):
        assert np.array_equal(ours, theirs)
    assert setting.trainer.setting == Unsupervised(FiniteHorizon(6))


@pytest.mark.thorough
def test_downstream_tasks_are_planned_for_and_paid():
    agent = small(setting="unsupervised", downstream=("spin", "keep-down"), seeds=2).learn(6)
    returns = {task: agent.evaluate(1, task=task) for task in agent.run_config.downstream}
    assert returns["spin"].shape == (1, 2)
    assert np.all(returns["keep-down"] > returns["spin"])
    same = agent.evaluate(1, task=agent.envs.downstream["spin"])
    assert np.array_equal(same, returns["spin"])
    own, swing_up = agent.evaluate(1), agent.evaluate(1, task="swing-up")
    np.testing.assert_allclose(own, swing_up, rtol=1e-5)  # the world's own task by another name
    with pytest.raises(SombrlError, match="without exploring"):
        agent.evaluate(1, explore=True, task="spin")


@pytest.mark.thorough
def test_the_largest_uncertainty_is_the_planners():
    agent = small(setting="unsupervised", explore="greedy", seeds=2).learn(6)  # trained by random actions
    before, left = small(seeds=2).max_uncertainty(1), agent.max_uncertainty(2)
    assert left.shape == (2, 2) and np.all(left > 0)
    np.testing.assert_allclose(before, 6 * np.sqrt(3), rtol=1e-5)  # the prior: √3 everywhere, six decisions
    assert np.all(left < before)
    with pytest.raises(SombrlError, match="a whole number of episodes, at least 1"):
        agent.max_uncertainty(0)


@pytest.mark.thorough
def test_regret_is_reported_against_the_known_optimum():
    agent = small("mountain-car", action_repeat=2, **ENDLESS)
    rows = []
    agent.learn(8, callback=lambda agent, report: rows.extend(agent.rows(report)))
    rewards = np.asarray(agent.state.replay.data.reward)[0, :8]
    np.testing.assert_allclose(rows[-1]["rollout/regret"], np.sum(200.0 - rewards), rtol=1e-5)
    assert "rollout/regret" not in small().rows(next(iter(small().iterations(1))))[0]


def test_the_discounted_return_is_reported():
    agent = small(setting="discounted", discount=0.5, episode_length=6, horizon_floor=4)
    rows = []
    agent.learn(6, callback=lambda agent, report: rows.extend(agent.rows(report)))
    rewards = np.asarray(agent.state.replay.data.reward, np.float64)[0, :4]
    np.testing.assert_allclose(rows[0]["rollout/discounted_return"], rewards @ 0.5 ** np.arange(4), rtol=1e-6)


@pytest.mark.thorough
def test_a_discounted_run_has_the_theorys_episodes():
    agent = small(setting="discounted", discount=0.5, episode_length=12)
    lengths = []
    agent.learn(36, callback=lambda agent, report: lengths.append(int(report.chunk.valid.sum())))
    assert lengths == [agent.trainer.setting.chunk_length(n) for n in range(3)]


@pytest.mark.parametrize("env", ["pendulum", pytest.param("Pendulum-v1", marks=pytest.mark.thorough)])
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


@pytest.mark.slow
@pytest.mark.optimised
def test_the_one_bit_rule_for_every_seed_by_itself():
    gp = SMALL["gp"] | {"noise_std": 3.0, "rank": 32}  # so much that a step teaches less than a bit
    settings = ENDLESS | {"update_rule": "one-bit", "update_every": 6, "explore": "greedy", "gp": gp}
    agent = small("pendulum", seeds=2, **settings)
    gains = []

    def check(agent, report):
        for seed in range(2):
            one = jax.tree.map(lambda leaf, seed=seed: leaf[seed], report.state.learner)
            dynamics = agent.trainer.parts.learner.dynamics(one)
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
    for known in ("MountainCarContinuous-v0", MountainCar(terminates=True)):
        with pytest.raises(SombrlError, match="terminates, and the non-episodic setting never resets"):
            small(known, **ENDLESS)
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
