"""Agents that act by short plans from their policy: reductions, resume, and plans for those trained without."""

import numpy as np
import pytest

from sombrl.agent.make import load, make
from sombrl.records import SombrlError
from tests.small import call
from tests.training.test_episodic import leaves

TINY = {"hidden": (8, 8), "batch_size": 8}
PLAN = {"num_samples": 12, "iterations": 1, "horizon": 2, "proposals": 2}
OBS = np.array([0.6, -0.8, 0.1], np.float32)


def agent(controller="sac-mppi", **settings):
    nets = {name: TINY | settings.pop(name, {}) for name in ("sac", "ensemble")}
    run = {"report_every": 20, "decisions": 60, "episode_length": 15}
    return make("mbpo", "Pendulum-v1", controller=controller, **{"plan": PLAN} | run | nets | settings)


def actions(trained):
    return np.asarray(trained.state.replay.data.action)


@pytest.fixture(scope="module")
def without():
    """An agent that was trained without plans, and is not changed by the tests."""
    return agent("sac").learn(40)


@pytest.mark.thorough
def test_an_agent_that_was_trained_without_plans_can_act_by_them(without):
    policy, _ = without.predict(OBS)
    np.testing.assert_array_equal(without.predict(OBS, plan="none")[0], policy)
    plans = [without.predict(OBS, plan="mppi", deterministic=how)[0] for how in (True, False)]
    assert all(np.abs(plan - policy).max() > 1e-3 for plan in plans)
    np.testing.assert_array_equal(without.predict(OBS, plan="mppi")[0], plans[0])  # deterministic
    np.testing.assert_array_equal(without.predict(OBS)[0], policy)  # as it was
    assert without.trainer.plan == "none"


@pytest.mark.thorough
def test_eval_says_how_it_acted(without, tmp_path, capsys):
    run = tmp_path / "run"
    without.save(run)
    for words, said in (
        ([], "by the policy, without its noise"),
        (["--plan", "mppi"], "by short plans from the policy (mppi)"),
    ):
        code, out, _ = call(["eval", str(run), "--episodes", "1", *words], capsys)
        assert code == 0 and said in out


@pytest.mark.thorough
def test_plans_need_a_policy_and_a_model(without):
    with pytest.raises(SombrlError, match="unknown plan"):
        without.predict(OBS, plan="cem")
    for other in (agent("icem", schedule="constant"), make("sac", "Pendulum-v1")):
        with pytest.raises(SombrlError, match="--plan needs a policy with critics"):
            other.evaluate(1, plan="mppi")
        assert other.trainer.plan is None


def test_names_of_the_controllers():
    short, full, elites = (agent(name).trainer.parts for name in ("mppi", "sac-mppi", "sac-icem"))
    assert short.controller == full.controller != elites.controller
    assert [parts.online for parts in (short, full, elites)] == [True] * 3
    assert agent("sac-icem").trainer.plan == "icem" and not agent("icem", schedule="constant").trainer.parts.online


@pytest.mark.thorough
def test_plans_without_a_horizon_are_mbpo():
    planned = agent(plan=PLAN | {"horizon": 0}).learn(60)
    for ours, theirs in zip(leaves(planned), leaves(agent("sac").learn(60)), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.thorough
def test_plans_without_a_bonus_weight_are_greedy():
    """Up to rounding, which what is learned from its own actions makes larger: so the first thirty decisions."""
    nothing, some, greedy = (
        actions(agent(schedule="constant", **options).learn(30))[:, :30]
        for options in ({"bonus_weight": 0.0}, {"bonus_weight": 10.0}, {"explore": "greedy"})
    )
    np.testing.assert_allclose(nothing, greedy, atol=1e-3)
    assert np.abs(some - greedy).max() > 0.1 and greedy.std() > 0.1


@pytest.mark.thorough
def test_one_member_is_its_own_mean():
    one = {"members": 1, "noise_floor": 1e-12}
    pets, mean = (agent(explore=explore, ensemble=one).learn(40) for explore in ("pets", "greedy"))
    ours, theirs = (actions(trained)[0, :24] for trained in (pets, mean))
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


@pytest.mark.thorough
def test_resumes_bit_for_bit(tmp_path):
    whole, half = agent(seeds=2).learn(60), agent(seeds=2).learn(40)
    half.save(tmp_path / "run")
    for resumed in (load(tmp_path / "run").learn(20), half.learn(20)):
        for ours, theirs in zip(leaves(resumed), leaves(whole), strict=True):
            assert np.array_equal(ours, theirs)


@pytest.mark.thorough
def test_export_is_of_the_policy_and_says_so(tmp_path, capsys):
    trained = agent().learn(20)
    trained.save(tmp_path / "run")
    code, _, err = call(["export-policy", str(tmp_path / "run"), "--out", str(tmp_path / "policy")], capsys)
    assert code == 0 and "the policy alone is exported" in err
