"""Dreamer as an agent: seeds do not meet, a resumed run is the same run, and bad input gets a sentence."""

import jax
import numpy as np
import pytest

import sombrl
from sombrl.algorithms.dreamer import DreamerExplore
from sombrl.errors import SombrlError

SETTINGS = {
    "size": "tiny",
    "envs": 2,
    "batch_size": 2,
    "batch_length": 4,
    "horizon": 2,
    "ratio": 8.0,
    "capacity": 200,
    "report_every": 24,
    "episode_length": 7,
    "hidden": (8,),
    "members": 2,
}


def agent(**settings):
    return sombrl.make("dreamer", "Pendulum-v1", **(SETTINGS | settings))


def reports(trained, until: int):
    return [trained.rows(report) for report in trained.iterations(until)]


def without_time(rows):
    return [[{k: v for k, v in row.items() if not k.startswith("time/")} for row in report] for report in rows]


@pytest.fixture(scope="module")
def pair():
    trained = agent(seeds=2)
    return trained, reports(trained, 4)


def test_a_seed_alone_is_that_seed_among_others(pair):
    _, together = pair
    alone = reports(agent(seed=1), 4)
    np.testing.assert_equal(without_time(alone), [[report[1]] for report in without_time(together)])


def test_seeds_in_one_program_as_on_an_accelerator(pair, monkeypatch):
    """Rounding apart, they are what they are one by one; actions, returns and losses."""
    monkeypatch.setattr("sombrl.dreamer.loop.lots_of", lambda rows, apart: [slice(0, rows)])
    (together,) = without_time(reports(agent(seeds=2), 1))
    for ours, theirs in zip(together, without_time(pair[1][:1])[0], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4, nan_ok=True)


def test_what_is_saved_does_not_depend_on_the_precision_of_a_machine():
    """An accelerator computes in bfloat16; its runs are evaluated and exported on laptops."""
    half = agent(precision="bfloat16")
    next(iter(half.iterations(1)))
    for ours, theirs in zip(jax.tree.leaves(half.state), jax.tree.leaves(agent().state), strict=True):
        assert np.shape(ours) == np.shape(theirs) and np.asarray(ours).dtype == np.asarray(theirs).dtype


def test_what_a_run_reports(pair):
    trained, rows = pair
    last = rows[-1][0]
    # 12 records of each of 2 environments per report; every eighth begins an episode.
    assert last["decisions"] == 2 * sum(1 for t in range(48) if t % 8)
    assert last["rollout/ep_len_mean"] == 7
    assert np.isfinite(last["rollout/ep_rew_mean"])
    assert last["explore/bonus_weight"] == pytest.approx(2.0, rel=1e-2)
    assert not [name for name in last if name.startswith(("sum/", "count/"))]
    assert last["loss/ensemble_new"] > 0 and last["loss/ensemble_old"] > 0
    # 8 replayed records per record, in batches of 8; learning starts with 8 start positions.
    starts = trained.loop.starts_at
    assert sum(report[0]["time/updates"] for report in rows) == 1 + (96 - starts)


def test_a_resumed_run_is_the_same_run(pair, tmp_path):
    trained, rows = pair
    first = agent(seeds=2)
    reports(first, 2)
    first.save(tmp_path / "run")
    second = sombrl.load(tmp_path / "run")
    assert second.iteration == 2
    np.testing.assert_equal(without_time(reports(second, 4)), without_time(rows[2:]))
    for ours, theirs in zip(jax.tree.leaves(second.state), jax.tree.leaves(trained.state), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    ours, theirs = second.loop.replay_state(), trained.loop.replay_state()
    assert set(ours) == set(theirs)
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def test_predict_and_evaluate_leave_training_alone(pair):
    trained, _ = pair
    before = [np.asarray(leaf) for leaf in jax.tree.leaves(trained.state)]
    returns = trained.evaluate(2)
    assert returns.shape == (2, 2)
    np.testing.assert_array_equal(returns, trained.evaluate(2))
    obs = np.array([1.0, 0.0, 0.0], np.float32)
    action, memory = trained.predict(obs)
    again, _ = trained.predict(obs)
    np.testing.assert_array_equal(action, again)
    remembered, _ = trained.predict(obs, memory)
    assert (remembered != action).any()  # it knows that it has been here before
    restarted, _ = trained.predict(obs, memory, episode_start=np.array([True]))
    assert action.shape == restarted.shape == (1,)
    for old, new in zip(before, jax.tree.leaves(trained.state), strict=True):
        np.testing.assert_array_equal(old, np.asarray(new))
    with pytest.raises(SombrlError, match="3 numbers"):
        trained.predict(np.zeros(4, np.float32))


def test_bad_settings_get_a_sentence():
    with pytest.raises(SombrlError, match="episodes"):
        agent(setting="non-episodic")
    with pytest.raises(SombrlError, match="--explore unsupervised"):
        agent(setting="unsupervised")
    with pytest.raises(SombrlError, match="--capacity"):
        agent(capacity=11, batch_length=4)
    with pytest.raises(SombrlError, match="GiB"):
        agent(capacity=10**12, decisions=10**12)
    assert DreamerExplore().curious
