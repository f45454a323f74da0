"""Costs in training: where they come from, how they are counted, learned, limited, saved, and refused."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import sombrl.envs.rc_car_gym  # noqa: F401 (registers the car)
from sombrl.agent.make import load, make
from sombrl.controllers.shield import Shield
from sombrl.dynamics.ensemble import EnsembleConfig, EnsembleLearner
from sombrl.dynamics.gp import GPConfig, GPLearner
from sombrl.envs.adapters.worker_link import StepBytes
from sombrl.envs.base import Step
from sombrl.envs.interface import EnvSpec
from sombrl.envs.registry import make_envs
from sombrl.records import AbstractCost, SombrlError, Transition
from sombrl.replay import Replay
from tests.dynamics.data import wave
from tests.small import SMALL_FLAGS, call, small
from tests.training.test_episodic import Corridor, leaves
from tests.training.test_online import agent as policy_agent

LIMITED = {"env_kwargs": {"speed_limit": 0.3, "cost_margin": 0.2}}
"""Any push exceeds it in a few decisions."""


class Fenced(Corridor):
    """Reports what it costs to be right of 0.3; or nothing, from decision `silent` on."""

    def __init__(self, silent: int | None = None):
        super().__init__()
        self.silent = silent

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        told = self.silent is None or self.steps < self.silent
        return obs, reward, terminated, truncated, {"cost": float(obs[0] > 0.3)} if told else {}


class RightOf(AbstractCost):
    """As a user would write it."""

    def __call__(self, state, action, next_state):
        return (next_state[0] > 0.3).astype(jnp.float32)


class Known(Corridor):
    """The same cost as a function."""

    cost_function = RightOf()


@pytest.mark.thorough
def test_a_budget_without_end_only_counts():
    """Bit for bit the run without a cost, and the count is that of the replay."""
    plain = small(seeds=2, explore="optimistic", **LIMITED).learn(18)
    rows = []
    counted = small(seeds=2, explore="optimistic", safety={"budget": math.inf}, **LIMITED)
    counted.learn(18, callback=lambda agent, report: rows.extend(agent.rows(report)))
    for part in ("learner", "controller", "replay"):
        ours, theirs = (jax.tree.leaves(getattr(agent.state, part)) for agent in (counted, plain))
        for a, b in zip(ours, theirs, strict=True):
            assert np.array_equal(a, b)
    speed = np.abs(np.asarray(counted.state.replay.data.next_obs)[:, :18, 2])
    violations = (speed >= 0.3).sum(axis=1)
    assert violations.sum() > 0
    np.testing.assert_array_equal(counted.state.costs.violations, violations)
    np.testing.assert_array_equal([row["safety/violations"] for row in rows], _per_episode(speed >= 0.3))
    hinge = np.maximum(0.0, 1.0 + (speed - 0.3) / 0.2)
    np.testing.assert_allclose([row["safety/cost"] for row in rows], _per_episode(hinge), rtol=1e-5)
    assert [row["safety/violations_per_1000"] for row in rows[-2:]] == (1000 * violations / 18).tolist()
    assert "safety/interventions" not in rows[0]


def _per_episode(values):
    """[seeds, 18] in rows as a run writes them: episode by episode, seed by seed."""
    return values.reshape(2, 3, 6).sum(axis=2).T.ravel()


def with_cost(rows: Transition, cost) -> Replay:
    rows = dataclasses.replace(rows, cost=jnp.asarray(cost, jnp.float32))
    number = rows.reward.shape[0]
    return Replay.empty(128, 2, 1, cost=True).add(rows, jnp.ones(number, bool))


def smooth(rows: Transition):
    """A cost of state and action, between 0 and 2."""
    return 1.0 + jnp.tanh(rows.obs[:, 0] + 0.5 * rows.action[:, 0])


@pytest.mark.thorough
def test_a_gp_learns_the_cost_as_the_function_is():
    """Beside the dynamics, which stay what they are without it; and σ says how far off it is."""
    train, test = wave(100, seed=3), wave(40, seed=4)
    config = GPConfig(capacity=128, rank=100, fit_steps=25, draw_features=16)
    learned, states = {}, {}
    for name, gp in (("plain", GPLearner(2, 1, False, config)), ("cost", GPLearner(2, 1, False, config, True))):
        with jax.enable_x64(True):
            state = gp.init(key=jr.key(0))
            states[name], _ = jax.jit(lambda s, r, k, gp=gp: gp.fit(s, r, key=k))(
                state, with_cost(train, smooth(train)), jr.key(1)
            )
        learned[name] = gp
    cost = learned["cost"].cost(states["cost"])
    assert cost is not None and learned["plain"].cost(states["plain"]) is None
    found = jax.vmap(lambda x, u: cost(x, u, x))(test.obs, test.action)
    std = jax.vmap(cost.std)(test.obs, test.action)
    error = np.abs(np.asarray(found - smooth(test)))
    assert error.mean() < 0.05 and np.mean(error < 3.0 * np.asarray(std) + 0.05) > 0.9
    far = jnp.asarray([30.0, 30.0])
    assert float(cost.std(far, test.action[0])) > 5.0 * float(np.median(std))
    ours, theirs = (learned[name].dynamics(states[name]) for name in ("cost", "plain"))
    means = [jax.vmap(lambda x, u, d=d: d.predict(x, u).mean)(test.obs, test.action) for d in (ours, theirs)]
    np.testing.assert_allclose(*means, atol=2e-2)


@pytest.mark.thorough
def test_an_ensemble_learns_the_cost_as_the_function_is():
    train, test = wave(120, seed=5), wave(40, seed=6)
    config = EnsembleConfig(members=3, hidden=(32,), steps_per_fit=1500, batch_size=64, learning_rate=3e-3)
    learner = EnsembleLearner(2, 1, True, config, learn_cost=True)
    state = learner.init(key=jr.key(0))
    replay = with_cost(train, smooth(train))
    state, metrics = jax.jit(lambda s, r, k: learner.fit(s, r, key=k))(state, replay, jr.key(1))
    cost = learner.cost(state)
    found = jax.vmap(lambda x, u: cost(x, u, x))(test.obs, test.action)
    assert np.abs(np.asarray(found - smooth(test))).mean() < 0.15
    assert float(cost.std(jnp.asarray([30.0, 30.0]), test.action[0])) > float(cost.std(test.obs[0], test.action[0]))
    assert np.isfinite(metrics["model/reward_loss"])
    prediction = learner.dynamics(state).predict(test.obs[0], test.action[0])
    assert prediction.task_std.shape == (1,)  # the reward's alone: a bonus does not seek costs


@pytest.mark.thorough
@pytest.mark.parametrize("env", [Fenced, Known])
def test_what_is_reported_and_what_is_known_is_the_same_cost(env):
    agent = small(env, episode_length=8, reward="learned", safety={"budget": 2.0, "cost_model": "learned"})
    agent.learn(24)
    count, rows = int(agent.state.replay.added[0]), agent.state.replay.data
    costs = np.asarray(rows.next_obs)[0, :count, 0] > 0.3
    np.testing.assert_array_equal(np.asarray(rows.cost)[0, :count], costs)
    assert int(agent.state.costs.violations[0]) == costs.sum()


def test_a_known_function_is_not_learned():
    agent = small(Known, episode_length=8, reward="learned", safety={"budget": 2.0, "weight": 0.7})
    parts = agent.trainer.parts
    limit = parts.safety.limit(parts.learner, agent.state.learner)
    assert limit.cost is parts.safety.known is Known.cost_function
    np.testing.assert_allclose([limit.weight, limit.budget], [0.7, 2.0])
    assert agent.state.replay.data.cost is None
    assert agent.learn(8).state.learner.function.mean_weights.shape[1] == 1 + 2  # the state, reward and end


@pytest.mark.thorough
def test_the_end_of_a_task_can_be_what_costs():
    agent = small(Corridor, seeds=2, episode_length=8, reward="learned", safety={"budget": 0.5, "cost": "termination"})
    agent.learn(24)
    rows = agent.state.replay.data
    np.testing.assert_array_equal(np.asarray(rows.cost), np.asarray(rows.terminated).astype(np.float32))
    np.testing.assert_array_equal(agent.state.costs.violations, np.asarray(rows.terminated).sum(axis=1))


def test_the_budget_is_that_of_an_episode():
    """In training and in evaluations what was spent is no longer there, and every episode begins with all of it."""
    agent = small(seeds=2, safety={"budget": 3.0}, **LIMITED).learn(12)
    assert (agent.state.costs.episode > 0).any()
    policy = agent.trainer.policy("task")
    memory, obs = policy.begin(), np.tile(np.asarray([[1.0, 0.0, 0.0]], np.float32), (2, 1))
    fast = obs + np.asarray([0.0, 0.0, 0.4], np.float32)
    first = np.ones(2, bool)
    spent = []
    for seen, starts in ((obs, first), (fast, ~first), (fast, ~first), (fast, np.asarray([True, False]))):
        _, memory = policy.act(memory, seen, starts)
        spent.append(memory.spent.tolist())
    np.testing.assert_allclose(spent, [[0, 0], [1.5, 1.5], [3.0, 3.0], [0.0, 4.5]], rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["safe", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("learned", "drift", "shield"))]
)
def test_resume_is_exact(name, tmp_path):
    made = {
        "safe": lambda: small(seeds=2, safety={"budget": 0.9}, **LIMITED),
        "learned": lambda: small(
            "mountain-car", env_kwargs={"cliff": -1.0}, safety={"budget": 0.9, "cost_model": "learned"}
        ),
        "drift": lambda: small(env_kwargs={"drift": "torque", "drift_from": 1, "drift_factor": -1}, replay_window=8),
        "shield": lambda: policy_agent("mbpo", "pendulum", safety={"budget": 0.9, "cost_model": "learned"}, **LIMITED),
    }[name]
    step = 20 if name == "shield" else 6
    whole, half = made().learn(3 * step), made().learn(2 * step)
    half.save(tmp_path / "run")
    resumed = load(tmp_path / "run").learn(step)
    assert resumed.iteration == whole.iteration == 3
    for ours, theirs in zip(leaves(resumed), leaves(whole), strict=True):
        assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


@pytest.mark.thorough
def test_a_shield_counts_what_it_does():
    """With so little left that every decision is beyond it, the fallback makes all of them; windows cut episodes."""
    agent = policy_agent("mbpo", "pendulum", random_episodes=1, safety={"budget": 1e-6, "horizon": 3}, **LIMITED)
    rows = []
    agent.learn(60, callback=lambda agent, report: rows.extend(agent.rows(report)))
    shield = agent.trainer.parts.controller
    assert isinstance(shield, Shield) and shield.horizon == 3 and agent.trainer.plan == "none"
    assert [row["safety/interventions"] for row in rows] == [5.0, 20.0, 20.0]  # 15 decisions were random
    assert all(row["safety/bound"] > 0 for row in rows)
    speed = np.abs(np.asarray(agent.state.replay.data.next_obs)[0, :60, 2])
    assert int(agent.state.costs.violations[0]) == (speed >= 0.3).sum()
    np.testing.assert_allclose(agent.state.costs.episode, 0.0)  # 60 decisions are four episodes
    assert agent.evaluate(1).shape == (1, 1)


@pytest.mark.thorough
def test_the_first_actions_are_as_large_as_they_may_be():
    agent = small(random_episodes=1, safety={"budget": 1.0, "random_size": 0.25}, **LIMITED).learn(6)
    plain = small(random_episodes=1, **LIMITED).learn(6)
    ours, theirs = (np.asarray(one.state.replay.data.action)[0, :6] for one in (agent, plain))
    np.testing.assert_allclose(ours, 0.25 * theirs, rtol=1e-6)


@pytest.mark.thorough
def test_a_window_is_a_replay_of_those_rows_alone():
    """The ring of the last rows holds what a replay holds that never had others; the models differ by rounding."""
    rows = wave(90, seed=7)
    ring, fresh = Replay.empty(40, 2, 1), Replay.empty(40, 2, 1)
    for start in range(0, 90, 30):
        ring = ring.add(jax.tree.map(lambda leaf, i=start: leaf[i : i + 30], rows), jnp.ones(30, bool))
    fresh = fresh.add(jax.tree.map(lambda leaf: leaf[50:], rows), jnp.ones(40, bool))
    order = np.argsort(np.asarray(ring.data.reward)), np.argsort(np.asarray(fresh.data.reward))
    for ours, theirs in zip(jax.tree.leaves(ring.data), jax.tree.leaves(fresh.data), strict=True):
        np.testing.assert_array_equal(np.asarray(ours)[order[0]], np.asarray(theirs)[order[1]])
    gp = GPLearner(2, 1, False, GPConfig(capacity=40, rank=40, fit_steps=20, fit_points=40, draw_features=16))
    fit = jax.jit(lambda s, r, k: gp.fit(s, r, key=k))
    with jax.enable_x64(True):
        states = [fit(gp.init(key=jr.key(0)), replay, jr.key(1))[0] for replay in (ring, fresh)]
    test = wave(20, seed=8)
    predictions = [jax.vmap(gp.dynamics(state).predict)(test.obs, test.action) for state in states]
    np.testing.assert_allclose(predictions[0].mean, predictions[1].mean, atol=1e-3)
    np.testing.assert_allclose(predictions[0].epistemic_std, predictions[1].epistemic_std, atol=1e-3)


@pytest.mark.thorough
def test_replay_window_sets_the_size_of_the_ring():
    agent = small(replay_window=8).learn(18)
    assert agent.state.replay.data.reward.shape == (1, 8) and int(agent.state.replay.added[0]) == 18
    policy = policy_agent("mbpo", "pendulum", replay_window=32, sac={"learning_starts": 10}).learn(60)
    assert policy.state.replay.data.reward.shape == (1, 32)


def test_worker_processes_pass_costs_on():
    spec = EnvSpec("x", 2, 1, 10, 1)
    code, no = StepBytes(spec, 3), np.zeros(3, bool)
    told = code.unpack_result(code.pack_result(Step(np.ones((3, 2), np.float32), np.zeros(3), no, no, np.arange(3.0))))
    np.testing.assert_array_equal(told.cost, np.arange(3.0))
    silent = code.unpack_result(code.pack_result(Step(np.ones((3, 2), np.float32), np.zeros(3), no, no)))
    assert np.isnan(silent.cost).all()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--safety.budget", "1"], "pendulum reports no cost"),
        (["--safety.budget", "-1"], "--safety.budget must be a number of at least 0, not -1"),
        (["--safety.budget", "1", "--safety.cost", "termination"], "pendulum never ends by itself"),
        (["--env-kwargs", "speed_limit=0", "--safety.budget", "1"], "speed_limit must be above 0"),
        (["--safety.budget", "1", "--setting", "non-episodic"], "--safety.budget is for an episode"),
        (["--env-kwargs", "speed_limit=6", "--safety.budget", "1", "--explore", "hucrl"], "whose cost bounds nothing"),
        (
            [
                "--env-kwargs",
                "speed_limit=6",
                "--safety.budget",
                "1",
                "--safety.cost-model",
                "learned",
                "--model",
                "true",
            ],
            "and so no cost",
        ),
        (["--replay-window", "65"], "--replay-window 65 is more than the 64 transitions that are kept"),
        (["--replay-window", "0"], "--replay-window must be at least 1, not 0"),
    ],
)
def test_bad_input_is_refused_in_a_sentence_and_nothing_is_written(flags, sentence, tmp_path, capsys):
    folder = tmp_path / "run"
    code, _, err = call(["train", "gp-icem", "--env", "pendulum", *SMALL_FLAGS, *flags, "--out", str(folder)], capsys)
    assert code == 2 and sentence in err and "Traceback" not in err
    assert not folder.exists()


def test_a_window_too_small_for_a_policy_is_refused():
    with pytest.raises(SombrlError, match="--replay-window 20 never holds the 50 transitions"):
        policy_agent("mbpo", "pendulum", replay_window=20, sac={"learning_starts": 50})


def test_a_cost_that_is_never_reported_or_not_always():
    with pytest.raises(SombrlError, match="Corridor reports no cost"):
        small(Corridor, episode_length=8, safety={"budget": 1.0})
    silent = small(lambda: Fenced(silent=5), episode_length=8, reward="learned", safety={"budget": 1.0})
    with pytest.raises(SombrlError, match="a step reported no cost, and others did"):
        silent.learn(16)
    with pytest.raises(SombrlError, match="is not known as a function"):
        small(Fenced, episode_length=8, safety={"budget": 1.0, "cost_model": "known"})


def test_the_car_behind_gymnasiums_interface_has_the_known_cost():
    envs = make_envs("sombrl/RCCar-v0", [0], env_kwargs={"fence": 1.7})
    envs.reset(0)
    step = envs.step(np.zeros((1, 2), np.float32), np.ones(1, bool))
    assert np.isfinite(step.cost).all()
    safety = make("gp-icem", "rc-car", env_kwargs={"fence": 1.7}, safety={"budget": 1.0}).trainer.parts.safety
    assert safety.known is not None and not safety.learned
