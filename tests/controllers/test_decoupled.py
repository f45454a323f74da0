"""Two policies from the same data: each is what SAC would learn alone, and they act in turn."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.agent.make import load
from sombrl.controllers import SAC, SACConfig
from sombrl.controllers.decoupled import Decoupled
from sombrl.records import SombrlError
from tests.controllers.test_sac import assert_same, eager
from tests.controllers.worlds import f32, filled, random_replay, transitions, uncertain, world
from tests.training.test_episodic import leaves
from tests.training.test_online import agent

TINY = SACConfig(hidden=(4, 4), critic="plain", batch_size=6, updates_per_call=1, real_every=1, policy_every=1)
PAIR = Decoupled(SAC(3, TINY))
OBS = f32([0.3, -0.2, 1.1])


@pytest.mark.thorough
def test_each_is_what_sac_learns_alone():
    replay, mdp = random_replay(), uncertain()
    start = PAIR.init(mdp, key=jr.key(0))
    after, metrics = eager(PAIR, start, mdp, replay, jr.key(1))
    task_key, curious_key = jr.split(jr.key(1))
    assert_same(after.task, eager(PAIR.sac, start.task, world(), replay, task_key)[0])
    curious, expected = eager(PAIR.sac, start.curious, mdp, replay, curious_key)
    assert_same(after.curious, curious)
    assert metrics == expected
    assert any(not np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (after.task, curious)), strict=True))


@pytest.mark.parametrize(
    ("terminated", "truncated", "turns"), [(False, False, False), (True, False, True), (False, True, True)]
)
def test_turns_end_with_episodes(terminated, truncated, turns):
    mdp = uncertain()
    start = PAIR.init(mdp, key=jr.key(0))
    # In a full buffer the latest row is not the last one.
    rows = transitions(np.zeros((5, 3)), np.zeros((5, 2)), np.zeros(5), np.zeros((5, 3)))
    latest = transitions(np.ones((1, 3)), np.zeros((1, 2)), [0.0], np.zeros((1, 3)), terminated, truncated)
    replay = filled(rows, capacity=5).add(latest, jnp.ones(1, bool))
    once, _ = eager(PAIR, start, mdp, replay, jr.key(1))
    twice, _ = eager(PAIR, once, mdp, replay, jr.key(2))
    assert bool(start.exploring)
    assert (bool(once.exploring), bool(twice.exploring)) == ((False, True) if turns else (True, True))


def test_who_acts():
    mdp = uncertain()
    state = PAIR.init(mdp, key=jr.key(0))
    after = dataclasses.replace(state, exploring=jnp.zeros((), bool))
    cases = ((PAIR, state, state.curious), (PAIR, after, state.task), (PAIR.for_evaluation(), state, state.task))
    for pair, given, policy in cases:
        action, _ = pair.act(given, mdp, OBS, key=jr.key(2))
        assert_same(action, pair.sac.act(policy, mdp, OBS, key=jr.key(2))[0])


def pair():
    """An agent that compiles soon."""
    return agent(schedule="decoupled", seeds=2, sac={"updates_per_call": 1, "policy_every": 1}, ensemble={"members": 2})


@pytest.mark.thorough
def test_turns_in_training_and_resumes_bit_for_bit(tmp_path):
    whole, half = (pair().learn(decisions) for decisions in (60, 40))
    half.save(tmp_path / "run")
    for resumed in (load(tmp_path / "run").learn(20), half.learn(20)):
        for ours, theirs in zip(leaves(resumed), leaves(whole), strict=True):
            assert np.array_equal(ours, theirs)
    # Four episodes of 15; the end of the last one is seen at the next decision.
    assert not whole.state.controller.exploring.any()
    np.testing.assert_allclose(
        whole.predict(np.asarray(OBS))[0],
        2.0 * np.tanh(np.asarray(whole.trainer.parts.controller.actor(_row(whole.state.controller, 0))(OBS))[:1]),
        rtol=1e-5,
    )


def _row(tree, i):
    return jax.tree.map(lambda leaf: leaf[i], tree)


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (lambda: agent(schedule="decoupled", controller="sac-mppi"), "use --controller sac"),
        (lambda: agent(schedule="decoupled", controller="icem"), "a planner has none"),
        (lambda: agent(schedule="decoupled", setting="non-episodic"), "take turns by episodes"),
        (lambda: agent("maxinfo-sac", schedule="decoupled"), "is for mbpo"),
        (lambda: agent(schedule="decoupled", explore="pessimistic"), "pessimism pays none"),
    ],
)
def test_what_cannot_be(bad, sentence):
    with pytest.raises(SombrlError, match=sentence):
        bad()
