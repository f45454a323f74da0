"""J and Σ‖σ‖ in the learned model: by hand, exactly where the model is the world, and without touching training."""

import dataclasses
import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from sombrl.agent.make import load, make
from sombrl.config.run import RunConfig
from sombrl.controllers.icem import ICEM, ICEMConfig
from sombrl.dynamics.base import AbstractLearner
from sombrl.envs.maker import EnvMaker
from sombrl.exploration import greedy
from sombrl.records import SombrlError
from sombrl.theory import bonus_weight, confidence
from sombrl.training import bounds
from sombrl.training.base import EVALUATION_EPISODES
from sombrl.training.bounds import Past
from sombrl.training.episodic import EpisodicTrainer
from sombrl.training.function_policy import FunctionPolicy
from sombrl.training.parts import Parts
from tests.controllers.worlds import Model, Task, f32
from tests.small import small
from tests.training.test_episodic import Corridor, leaves

TINY = {"hidden": (8, 8), "batch_size": 8}


class Known(AbstractLearner):
    """Knows x' = x/2 + u/4 and σ = spread · exp(u) from the start."""

    double_precision: ClassVar[bool] = False
    spread: float = eqx.field(static=True)
    limit: float = eqx.field(static=True)

    def init(self, *, key):
        return jnp.zeros((), jnp.float32)

    def fit(self, state: Float[Array, ""], replay, *, key):
        return state, {}

    def dynamics(self, state):
        return Model(f32(self.spread))

    def task(self, state):
        return Task(f32(self.limit))


def known(spread=0.3, limit=math.inf, length=12, **run) -> EpisodicTrainer:
    settings = RunConfig(env="pendulum", env_kwargs=("start=random",), episode_length=length, seeds=2, **run)
    maker = EnvMaker.of(settings)
    envs = maker.make(settings.seed_list)
    parts = Parts(Known(spread, limit), greedy(), ICEM(ICEMConfig(8, 2, iterations=1, horizon=2)), capacity=32)
    return EpisodicTrainer(None, settings, maker, envs, settings.make_setting(length), parts)


def by_hand(start, policy, *, spread, limit=math.inf, length=12, discount=1.0):
    """J and Σ‖σ‖ in float64."""
    state, value, sigma = start.astype(np.float64), 0.0, 0.0
    for t in range(length):
        action = policy(state)
        value += discount**t * -((action - 0.5) ** 2)
        sigma += discount**t * math.sqrt(len(state)) * spread * math.exp(action)
        state = 0.5 * state + 0.25 * action
        if state[0] > limit:
            break
    return value, sigma


@pytest.mark.parametrize(
    ("limit", "run", "discount"),
    [(math.inf, {}, 1.0), (0.2, {}, 1.0), (math.inf, {"setting": "discounted", "discount": 0.8}, 0.8)],
    ids=["whole", "ended", "discounted"],
)
def test_a_linear_system_with_a_known_posterior(limit, run, discount):
    trainer = known(limit=limit, **run)

    def policy(state):
        return 0.7 * float(np.tanh(state[0] + 0.3))

    value, sigma = trainer.foretell(FunctionPolicy(policy, 1), episodes=3)
    assert value.shape == sigma.shape == (3, 2)
    for episode in range(3):
        starts = trainer.envs.reset(EVALUATION_EPISODES + episode)
        for row in range(2):
            expected = by_hand(starts[row], policy, spread=0.3, limit=limit, discount=discount)
            np.testing.assert_allclose((value[episode, row], sigma[episode, row]), expected, rtol=1e-5, atol=1e-6)


def test_where_the_model_is_the_world_the_bounds_are_the_return():
    agent = small("pendulum", env_kwargs={"start": "random"}, model="true", explore="greedy", seeds=2).learn(6)
    found = agent.bounds(episodes=3, factor=7.0)
    assert np.all(found.uncertainty == 0)
    assert np.array_equal(found.low, found.value) and np.array_equal(found.high, found.value)
    np.testing.assert_allclose(found.value, agent.evaluate(3), rtol=1e-5)
    still = agent.bounds(lambda obs: 0.0, episodes=1, factor=7.0)
    assert not np.array_equal(still.value[0], found.value[0])


@pytest.fixture(scope="module")
def agent():
    """It expects every episode before it."""
    return small(explore="optimistic", seeds=2, record_bounds=True, episodes=4).learn(24)


@pytest.mark.thorough
def test_a_larger_factor_gives_wider_bounds(agent):
    narrow, wide = (agent.bounds(episodes=2, factor=factor) for factor in (0.5, 2.0))
    assert np.array_equal(narrow.value, wide.value) and np.all(narrow.uncertainty > 0)
    assert np.all(wide.low < narrow.low) and np.all(narrow.low < narrow.value) and np.all(narrow.high < wide.high)
    np.testing.assert_allclose(wide.high - wide.value, 4 * (narrow.high - narrow.value))
    assert wide.covered >= narrow.covered


def test_lambda_is_that_of_exploration_or_of_the_theorem(agent):
    assert agent.bounds(episodes=1).factor.tolist() == [10.0, 10.0]  # --preset paper
    function, expected = agent.trainer._fitted().function, []
    for gain, noise in zip(function.information_gain[:, :3], function.noise_std[:, :3], strict=True):
        numbers = {"norm_bound": 1.0, "noise_std": noise, "delta": 0.1, "state_dim": 3, "model_noise_std": noise}
        widest = jnp.max(confidence.beta(gain, **numbers))
        numbers = {"horizon": 6, "state_dim": 3, "noise_std": jnp.min(noise), "c_max": math.sqrt(3)}
        expected.append(float(bonus_weight.finite_horizon(widest, **numbers)))
    np.testing.assert_allclose(agent.bounds(episodes=1, theory=True).factor, expected, rtol=1e-4)


def test_calibrated_is_the_quantile_of_what_was_recorded(agent):
    past = agent.past_bounds
    assert past.episodes == 8
    found = agent.bounds(episodes=1, calibrated=0.8)  # rank ⌈9 · 0.8⌉ = 8 of 8
    error = np.abs(past.realised - past.value) / past.uncertainty
    np.testing.assert_allclose(found.factor, error.max())
    assert past.covered(found.factor) == 1.0 and past.covered(0.999 * error.max()) == 7 / 8
    # Of rolling factors the first two iterations have none: eight cases in four times, four needed.
    later = error[2:] <= np.array([np.max(error[:2]), np.sort(error[:3], axis=None)[5]])[:, None]
    assert found.covered == np.mean(later)


def test_recording_does_not_move_training(agent):
    plain = small(explore="optimistic", seeds=2, episodes=4)
    rows = [row for report in plain.iterations(4) for row in plain.rows(report)]
    for ours, theirs in zip(leaves(agent), leaves(plain), strict=True):
        assert np.array_equal(ours, theirs)
    assert not any(name.startswith("bounds/") for row in rows for name in row)
    recorded = {(row["iteration"], row["seed"]): row for row in agent._recorded}
    for row in rows:
        twin = recorded[row["iteration"], row["seed"]]
        assert twin["bounds/realised"] == row["rollout/ep_rew_mean"]
        assert all(twin[name] == value for name, value in row.items() if not name.startswith("time/"))


@pytest.mark.thorough
def test_what_is_recorded_is_what_the_model_said_before_the_episode():
    """A trainer that stands before an episode says the same, but for the start, which is always that of hanging."""
    agent = small(explore="greedy", record_bounds=True, episodes=3).learn(6)
    value, sigma = agent.trainer.foretell(None, 1)
    row = agent.rows(agent.trainer.iterate())[0]
    assert row["bounds/return"] == pytest.approx(value[0, 0], rel=1e-5)
    assert row["bounds/uncertainty"] == pytest.approx(sigma[0, 0], rel=1e-5)


def test_random_actions_are_nobodys_prediction():
    agent = small(explore="optimistic", random_episodes=1, record_bounds=True, episodes=2)
    rows = [agent.rows(report)[0] for report in agent.iterations(2)]
    assert math.isnan(rows[0]["bounds/return"]) and rows[1]["bounds/return"] < 0
    assert agent.past_bounds.episodes == 1


def test_the_past_by_hand():
    def row(iteration, seed, value, sigma, realised):
        return {"iteration": iteration, "seed": seed} | dict(
            zip((bounds.RETURN, bounds.UNCERTAINTY, bounds.REALISED), (value, sigma, realised), strict=True)
        )

    rows = [
        row(0, 0, 10.0, 2.0, 13.0),
        row(0, 1, 10.0, 2.0, 9.0),
        row(3, 0, 5.0, 1.0, 5.0),
        {"iteration": 4, "seed": 0},
    ]
    past = Past.of([*rows, row(5, 1, None, None, None)])
    lost = Past.of([row(0, 0, None, 2.0, 1.0), row(0, 1, 1.0, 2.0, 1.0), row(1, 0, "x", 1.0, 1.0)])
    assert lost.scores.tolist()[0] == [math.inf, 0.0] and lost.covered(1e9) == 1 / 3  # what diverged has lost
    assert past.episodes == 3 and past.scores[0].tolist() == [1.5, 0.5] and past.scores[1, 0] == 0.0
    assert past.covered(1.0) == 2 / 3 and past.covered(1.5) == 1.0 and past.covered(0.1) == 1 / 3
    assert past.calibrated(0.5) == 0.5 and past.calibrated(0.7) == 1.5
    sure = Past.of([row(0, 0, 1.0, 0.0, 2.0), row(1, 0, 1.0, 0.0, 1.0)])
    assert sure.scores.ravel().tolist() == [math.inf, 0.0]
    with pytest.raises(SombrlError, match="wrong with Σ‖σ‖ = 0"):
        sure.calibrated(0.6)


def test_calibration_looks_back_twenty_episodes_or_twice_what_it_takes():
    realised = np.concatenate([np.full((10, 4), 9.0), np.full((5, 4), 1.0)])
    past = Past(np.zeros_like(realised), np.ones_like(realised), realised)
    assert past.calibrated(0.9) == 1.0  # of the last five iterations of four seeds
    assert past.calibrated(0.95) == 9.0  # 19 are needed, so 38 are looked at
    assert past.rolling(0.9)[[0, 2, 3, 14]].tolist() == [math.inf, math.inf, 9.0, 9.0]
    assert past.rolling(0.9).shape == (15,)


def test_the_gap_by_hand():
    high, low = np.array([-90.0, 10.0, 5.0, 0.0]), np.array([-100.0, 8.0, 7.0, 0.0])
    assert bounds.gap(high, low).tolist() == [0.1, 0.2, 0.0, 0.0]


def test_training_ends_when_the_bounds_meet():
    agent = small(explore="optimistic", stop_when_gap=0.99, bonus_weight=1e-3, episodes=5).learn(30)
    assert agent.iteration == 1  # λ is next to nothing


@pytest.mark.thorough
def test_learned_rewards_and_ensembles_have_bounds_too():
    agent = make("mbpo", Corridor, controller="icem", explore="optimistic", schedule="constant", bonus="norm",
                 ensemble=TINY | {"steps_per_fit": 1}, icem=ICEMConfig(8, 2, iterations=1, horizon=2),
                 horizon_value="none", episode_length=5, episodes=2, record_bounds=True)  # fmt: skip
    agent.learn(10)
    found = agent.bounds(episodes=2)
    assert np.all(np.isfinite(found.low)) and np.all(found.low < found.high) and agent.past_bounds.episodes == 2


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"factor": 0.0}, "factor must be positive and finite, not 0.0"),
        ({"factor": math.nan}, "factor must be positive"),
        ({"factor": math.inf}, "factor must be positive"),
        ({"calibrated": 1.0}, "calibrated must lie strictly between 0 and 1"),
        ({"calibrated": 0.9, "factor": 1.0}, "give one of them"),
        ({"theory": True, "factor": 1.0}, "give one of them"),
        ({"episodes": 0}, "at least 1 episode"),
        ({"calibrated": 0.99}, "at least 99 past episodes, and there are 8"),
        ({"policy": lambda obs: [0.0, 0.0], "factor": 1.0}, "1 finite number in"),
        ({"policy": lambda obs: math.nan, "factor": 1.0}, "1 finite number in"),
    ],
)
def test_what_is_no_bound_is_refused(agent, asked, sentence):
    with pytest.raises(SombrlError, match=sentence):
        agent.bounds(**asked)


@pytest.mark.thorough
def test_agents_without_bounds_say_so(tmp_path):
    with pytest.raises(SombrlError, match="train first"):
        small().bounds()
    with pytest.raises(SombrlError, match="never reset"):
        small(setting="non-episodic", update_every=4).learn(4).bounds()
    plain = small(explore="greedy").learn(6)
    with pytest.raises(SombrlError, match="without a λ in reward"):
        plain.bounds()
    with pytest.raises(SombrlError, match="no past episodes to calibrate on"):
        plain.bounds(calibrated=0.9)
    sac = make("sac", "pendulum", sac=TINY, report_every=5, decisions=5, episode_length=5).learn(5)
    with pytest.raises(SombrlError, match="has none: use gp-icem"):
        sac.bounds(factor=1.0)
    plain.save(tmp_path / "run")
    assert np.array_equal(load(tmp_path / "run").bounds(factor=1.0).value, plain.bounds(factor=1.0).value)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"setting": "non-episodic", "record_bounds": True}, "--record-bounds is about whole episodes"),
        ({"setting": "non-episodic", "stop_when_gap": 0.1}, "--stop-when-gap is about whole episodes"),
        ({"explore": "greedy", "stop_when_gap": 0.1}, "--stop-when-gap compares"),
        ({"explore": "optimistic", "bonus": "information-gain", "stop_when_gap": 0.1}, "--stop-when-gap compares"),
        ({"stop_when_gap": 0.0}, "--stop-when-gap must"),
    ],
)
def test_settings_that_do_not_go_together(settings, sentence):
    with pytest.raises(SombrlError, match=sentence):
        small(**settings)


def test_a_policy_that_learns_predicts_evaluations_alone():
    with pytest.raises(SombrlError, match="add --eval-every"):
        make("mbpo", "pendulum", record_bounds=True)
    with pytest.raises(SombrlError, match="none: leave it out"):
        make("sac", "pendulum", record_bounds=True, eval_every=10)
    assert dataclasses.replace(RunConfig(), stop_when_gap=0.05).stop_when_gap == 0.05
