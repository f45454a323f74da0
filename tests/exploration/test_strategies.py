"""Bonuses and propagations against their formulas, and every strategy's place in the table."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.agent.make import load, make
from sombrl.dynamics.base import AbstractDynamics
from sombrl.exploration import (
    STRATEGIES,
    Constant,
    DrawnOnce,
    EpistemicNorm,
    Exponential,
    Hallucinated,
    InformationGain,
    Linear,
    Mean,
    NoBonus,
    NoisyMean,
    Penalty,
    Resampled,
)
from sombrl.exploration.config import ExploreConfig
from sombrl.exploration.reward_scale import reward_scale
from sombrl.records import AbstractTask, Prediction, SombrlError, Transition
from sombrl.replay import Replay
from sombrl.settings import FiniteHorizon
from tests.dynamics.data import fit, learner, replay_of, wave
from tests.oracles.toy import LinearDynamics, f32
from tests.small import small

PREDICTION = Prediction(
    jnp.array([1.0, 2.0], jnp.float32),
    jnp.array([0.3, 0.4], jnp.float32),
    jnp.array([0.1, 0.2], jnp.float32),
    jnp.array([0.1, 0.2], jnp.float32),
)


@pytest.fixture(scope="module")
def dynamics():
    gp = learner(rank=32, fit_steps=2)
    return gp.dynamics(fit(gp, replay_of(wave(20)))[0])


def test_bonuses_are_their_formulas():
    assert float(NoBonus()(PREDICTION)) == 0.0
    np.testing.assert_allclose(float(EpistemicNorm("physical")(PREDICTION)), 0.5, rtol=1e-6)
    np.testing.assert_allclose(float(EpistemicNorm()(PREDICTION)), np.hypot(3, 2), rtol=1e-6)
    expected = np.log(1 + 9) + np.log(1 + 4)
    np.testing.assert_allclose(float(InformationGain()(PREDICTION)), expected, rtol=1e-6)


def test_information_gain_is_that_of_a_linear_gaussian_model(x64):
    """One observation of x ~ N(0, σ²) with noise s: the entropy falls by ½ log(1 + σ²/s²), our unit is twice that."""
    sigma, noise = 0.7, 0.2
    before, after = sigma**2, 1 / (1 / sigma**2 + 1 / noise**2)
    prediction = Prediction(*(jnp.array([v], jnp.float32) for v in (0.0, sigma, noise, 1.0)))
    np.testing.assert_allclose(float(InformationGain()(prediction)), np.log(before / after), rtol=1e-6)


def test_schedules(dynamics):
    def values(weight, *iterations):
        return [float(weight(jnp.asarray(n, jnp.int32), dynamics)) for n in iterations]

    assert np.allclose(values(Linear(10.0, 2.0, 4), 0, 1, 2, 3, 4, 99), [10, 8, 6, 4, 2, 2])
    assert np.allclose(values(Exponential(8.0, 0.5, 4), 0, 1, 2, 3, 4, 99), [8, 4, 2, 1, 0.5, 0.5])
    assert np.allclose(values(Constant(3.0), 0, 7), 3.0)


def test_propagations_are_their_formulas(dynamics, key):
    state, action = jnp.array([0.5, -3.0], jnp.float32), jnp.array([0.2], jnp.float32)
    eta = jnp.array([1.0, -0.5], jnp.float32)
    prediction = dynamics.predict(state, action)
    assert np.array_equal(Mean()(dynamics, state, action, key=key), prediction.mean)
    lucky = Hallucinated(3.0)(dynamics, state, jnp.concatenate([action, eta]), key=key)
    expected = prediction.mean + 3.0 * prediction.epistemic_std * eta
    np.testing.assert_allclose(np.asarray(lucky), np.asarray(expected), rtol=1e-5)
    beyond = Hallucinated(3.0)(dynamics, state, jnp.concatenate([action, 2.0 + 0.0 * eta]), key=key)
    bound = prediction.mean + 3.0 * prediction.epistemic_std
    np.testing.assert_allclose(np.asarray(beyond), np.asarray(bound), rtol=1e-5)
    for i, (propagation, std) in enumerate(
        (
            (Resampled(), jnp.sqrt(prediction.epistemic_std**2 + prediction.aleatoric_std**2)),
            (NoisyMean(), prediction.aleatoric_std),
        )
    ):
        keys = jr.split(jr.key(i), 4000)
        samples = jax.vmap(lambda k, p=propagation: p(dynamics, state, action, key=k))(keys)
        np.testing.assert_allclose(np.asarray(samples.std(0)), np.asarray(std), rtol=0.06)
        standard_error = np.asarray(std) / np.sqrt(4000)
        assert np.all(np.abs(np.asarray(samples.mean(0) - prediction.mean)) < 4 * standard_error)


class _Latent(AbstractDynamics):
    """A model whose state is not a vector and which cannot draw."""

    def predict(self, state, action):
        raise AssertionError

    def transition(self, state, action, *, key):
        raise AssertionError

    def observe(self, belief, prev_action, obs, *, key):
        raise AssertionError


@pytest.mark.parametrize("propagation", [Resampled(), DrawnOnce(), Hallucinated(1.0)])
def test_a_model_that_does_not_fit_is_refused_with_the_remedy(propagation, key):
    with pytest.raises(SombrlError, match="use --explore optimistic or greedy"):
        propagation.prepare(_Latent(), key=key)
    assert isinstance(Mean().prepare(_Latent(), key=key), _Latent)


@pytest.mark.parametrize(
    ("name", "propagation", "bonus", "extra", "task_weight", "stochastic"),
    [
        ("greedy", Mean, NoBonus, 0, 1.0, False),
        ("pets", Resampled, NoBonus, 0, 1.0, True),
        ("thompson", DrawnOnce, NoBonus, 0, 1.0, False),
        ("hucrl", Hallucinated, NoBonus, 2, 1.0, False),
        ("optimistic", Mean, EpistemicNorm, 0, 1.0, False),
        ("unsupervised", Mean, EpistemicNorm, 0, 0.0, False),
        ("pessimistic", Mean, Penalty, 0, 1.0, False),
    ],
)
def test_the_table_of_strategies(name, propagation, bonus, extra, task_weight, stochastic):
    strategy = ExploreConfig(explore=name).build(FiniteHorizon(5), 3)
    assert isinstance(strategy.propagation, propagation) and isinstance(strategy.bonus, bonus)
    assert strategy.propagation.extra_actions(2) == extra
    assert strategy.task_weight == task_weight
    assert strategy.propagation.stochastic is stochastic
    assert name in STRATEGIES and STRATEGIES[name].__doc__


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"explore": "optimstic"}, 'did you mean "optimistic"'),
        ({"bonus_weight": -1.0}, "--bonus-weight must be a finite number of at least 0"),
        ({"bonus_weight": float("nan")}, "--bonus-weight"),
        ({"bonus_weight_end": -0.5, "schedule": "linear"}, "--bonus-weight-end"),
        ({"bonus_weight_end": 0.5}, "does nothing with --schedule constant"),
        ({"schedule": "linear"}, "needs --bonus-weight-end"),
        ({"schedule": "exponential", "bonus_weight_end": 0.0}, "never gets to or from 0"),
        ({"schedule": "theoretical", "bonus": "information-gain"}, "--bonus norm"),
        ({"schedule": "theoretical", "sigma_units": "physical"}, "--sigma-units normalised"),
        ({"bonus_weight_steps": 0}, "--bonus-weight-steps"),
        ({"beta": float("inf")}, "--beta"),
    ],
)
def test_bad_exploration_settings(settings, sentence):
    with pytest.raises(SombrlError, match=sentence):
        ExploreConfig(**settings)


def test_a_lambda_in_ranges_follows_the_rewards(tmp_path):
    """Pendulum pays more when it hangs less low: the scale is the range of the rewards from the first episode on."""
    agent = small(explore="optimistic", bonus_weight=0.5, bonus_weight_units="range", random_episodes=2)
    seen = []
    agent.learn(18, callback=lambda agent, report: seen.append(float(report.mdp.bonus_weight[0])))
    rewards = np.asarray(agent.state.replay.data.reward)[0]
    assert seen[0] == 50.0  # without data: 0.5 · 1 · 100
    agent.save(tmp_path / "run")
    policy = load(tmp_path / "run").trainer.policy("explore")
    assert float(policy._for(1).mdp.bonus_weight[0]) >= 0.5 * np.ptp(rewards[:18]) * (1 - 1e-6)
    assert load(tmp_path / "run").trainer.policy("task")._for(1).mdp.bonus_weight[0] == 0.0


class Paid(AbstractTask):
    """What a state pays is its first coordinate; a force costs. Ends below -5."""

    def reward(self, state, action, next_state):
        return next_state[0] - jnp.sum(action**2)

    def terminated(self, state, action, next_state):
        return next_state[0] < -5.0


def data_of(states, paid):
    """A replay of these states, each the start of an episode."""
    obs, number = f32(states)[:, None], len(states)
    no = jnp.zeros(number, bool)
    rows = Transition(obs, jnp.zeros((number, 1), jnp.float32), f32(paid), obs + 1.0, no, no)
    return Replay.empty(8, 1, 1).add(rows, ~no)


STILL, FALLING = (
    LinearDynamics(f32([[1.0]]), f32([[1.0]]), f32(0.0)),
    LinearDynamics(f32([[2.0]]), f32([[1.0]]), f32(0.0)),
)


@pytest.mark.parametrize(
    ("dynamics", "states", "paid", "expected"),
    [
        (STILL, [0.0, 0.0, 0.0], [0.0, -0.5, -1.0], 100.0),  # costs alone: nothing was found
        (STILL, [0.0, 0.0, 0.0], [0.0, -1.0, 3.0], 4.0),  # 3 more than doing nothing pays: found
        (STILL, [0.0, 0.0, 0.0], [0.1, 0.0, -0.9], 50.5),  # a tenth of the range: half way
        (STILL, [0.4, 0.4, 0.4], [0.4, 0.0, -0.6], 100.0),  # doing nothing pays as well as all that was seen
        (STILL, [1.0, 1.0, 1.0], [1.0, 1.0, 1.0], 100.0),  # rewards that never differ have a range of 1
        (FALLING, [-0.1, -0.1, -0.1], [0.0, 0.0, -1.0], 1.0),  # doing nothing ends badly: what keeps 0 was found
    ],
)
def test_the_scale_of_rewards(dynamics, states, paid, expected):
    np.testing.assert_allclose(reward_scale(dynamics, Paid(), data_of(states, paid), 1), expected, rtol=1e-5)


def test_doing_nothing_starts_where_episodes_do():
    """A long stay at 3 changes nothing: the one episode began at 0."""
    obs = f32([0.0, 3.0, 3.0, 3.0])[:, None]
    no = jnp.zeros(4, bool)
    after = jnp.concatenate([obs[1:], obs[-1:]])
    rows = Transition(obs, jnp.zeros((4, 1), jnp.float32), f32([-1.0, 3.0, 3.0, 3.0]), after, no, no)
    replay = Replay.empty(8, 1, 1).add(rows, ~no)
    np.testing.assert_allclose(reward_scale(STILL, Paid(), replay, 1), 4.0, rtol=1e-5)


def test_the_scale_without_data():
    assert float(reward_scale(STILL, Paid(), Replay.empty(8, 1, 1), 1)) == 100.0


@pytest.mark.thorough
def test_the_theoretical_lambda_is_in_reward():
    plain, ranges = (small(schedule="theoretical", bonus_weight_units=units).learn(12) for units in ("reward", "range"))
    np.testing.assert_array_equal(plain.state.replay.data.action, ranges.state.replay.data.action)


@pytest.mark.parametrize("algorithm", ["mbpo", "maxinfo-sac"])
def test_ranges_are_for_planners(algorithm):
    with pytest.raises(SombrlError, match="for planners"):
        make(algorithm, "pendulum", bonus_weight_units="range")
