"""Replays to Minari and back: borders, ends, units and seeds; half of it without Minari, on the episodes themselves."""

import dataclasses
import os
import sys
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sombrl
from sombrl.agent.make import make
from sombrl.cli.main import main
from sombrl.errors import SombrlError
from sombrl.export import from_minari, seed_replay, to_minari
from sombrl.export.minari_replay import episodes_of
from sombrl.records import Transition
from tests.export.agents import NETS, Sights, recorded, rows
from tests.small import small


@pytest.fixture
def minari(tmp_path, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the package's own imports
        pytest.importorskip("h5py", reason="needs sombrl[minari]")
        package = pytest.importorskip("minari", reason="needs sombrl[minari]")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    return package


def sac(capacity=100, **settings):
    return make("sac", "sombrl-tests/Tiny-v0", sac=NETS, capacity=capacity, **settings)


def walk(lengths, terminated, obs_dim=4, action_dim=2, seed=0):
    """Episodes of those lengths; a third list says which end by themselves, by the clock, or are merely cut."""
    rng, columns = np.random.default_rng(seed), []
    for length, end in zip(lengths, terminated, strict=True):
        obs = rng.normal(size=(length + 1, obs_dim)).astype(np.float32)
        last = np.arange(length) == length - 1
        action = rng.uniform(-1, 1, (length, action_dim)).astype(np.float32)
        reward = rng.normal(size=length).astype(np.float32)
        columns.append((obs[:-1], action, reward, obs[1:], last & (end == "task"), last & (end == "clock")))
    return Transition(*(jnp.asarray(np.concatenate(column)) for column in zip(*columns, strict=True)))


def filled(agent, transitions):
    """The replay after those rows, also more than fit it."""
    valid = jnp.ones(len(transitions.reward), bool)
    replay = jax.vmap(lambda replay: replay.add(transitions, valid))(agent.state.replay)
    agent.trainer.replace_state(eqx.tree_at(lambda s: s.replay, agent.state, replay))
    return agent


def test_episodes_end_where_they_did():
    given = walk([3, 5, 2, 4], ["task", "clock", "cut", "running"])
    episodes = list(episodes_of(filled(sac(), given)))
    assert [len(episode.reward) for episode in episodes] == [3, 5, 2, 4]
    assert [episode.terminated for episode in episodes] == [True, False, False, False]
    assert [episode.truncated for episode in episodes] == [False, True, True, True]
    np.testing.assert_array_equal(np.concatenate([episode.obs["obs"][:-1] for episode in episodes]), given.obs)
    np.testing.assert_array_equal(np.concatenate([episode.obs["obs"][1:] for episode in episodes]), given.next_obs)
    # The bounds are (-1, 0) and (3, 4): -1 ↦ low and 1 ↦ high.
    physical = np.array([1.0, 2.0]) + 2.0 * np.asarray(given.action)
    np.testing.assert_allclose(np.concatenate([episode.action for episode in episodes]), physical, atol=1e-6)


def test_an_episode_without_its_start_is_left_out():
    given = walk([5, 4, 3], ["clock", "clock", "clock"])
    episodes = list(episodes_of(filled(sac(capacity=10), given)))  # 12 rows: two of the first episode are gone
    assert [len(episode.reward) for episode in episodes] == [4, 3]
    np.testing.assert_array_equal(episodes[0].obs["obs"][0], given.obs[5])
    np.testing.assert_array_equal(episodes[1].reward, given.reward[9:])


@pytest.mark.thorough
def test_episodes_are_those_that_were_played():
    """Growing episodes of the discounted setting end before the environment does."""
    agent = small(seeds=2, setting="discounted", discount=0.5, horizon_floor=2, episode_length=6)
    played = [[], []]
    for report in agent.iterations(3):
        for row in range(2):
            played[row].append(np.asarray(report.chunk.transitions.reward[row])[report.chunk.valid[row]])
    episodes = list(episodes_of(agent))
    assert [episode.seed for episode in episodes] == [0, 0, 0, 1, 1, 1]
    for episode, reward in zip(episodes, played[0] + played[1], strict=True):
        np.testing.assert_array_equal(episode.reward, reward)
        assert episode.truncated and not episode.terminated


def test_dreamers_records_are_episodes():
    short = {"batch_size": 1, "batch_length": 3}
    agent = recorded(Sights, capacity=24, **short)  # 12 records of each of 2 environments, and no more
    episodes = list(episodes_of(agent))
    # Episodes of 4 and of 6 records have 3 and 5 decisions.
    assert [len(episode.reward) for episode in episodes] == [3, 3, 3, 5, 5]
    assert [episode.terminated for episode in episodes] == [False, True, False, False, True]
    batch = agent.trainer.loop.replays[0].latest(1)  # the last four records of the first
    np.testing.assert_array_equal(episodes[2].obs["frame"], batch.obs["frame"][0])
    np.testing.assert_array_equal(episodes[2].reward, batch.reward[0, 1:])
    np.testing.assert_array_equal(episodes[2].action, 5 + np.argmax(batch.action[0, :3], axis=1))
    assert len(list(episodes_of(recorded(Sights, capacity=20, **short)))) == 3  # each has lost its first two records


def test_there_and_back(minari, tmp_path):
    agent = filled(sac(seeds=2), walk([3, 5, 2], ["task", "clock", "running"]))
    folder = to_minari(agent, "tiny/replay-v0")
    assert folder == tmp_path / "datasets" / "tiny" / "replay-v0"
    assert not [name for name in os.listdir(tmp_path / "datasets") if name.startswith(".tmp")]
    dataset = minari.load_dataset("tiny/replay-v0")
    assert dataset.total_episodes == 6 and dataset.total_steps == 20
    assert dataset.action_space.low.tolist() == [-1, 0] and dataset.action_space.high.tolist() == [3, 4]
    episodes = list(dataset.iterate_episodes())
    assert [set(episode.infos["seed"].tolist()) for episode in episodes] == [{0}] * 3 + [{1}] * 3
    assert [episode.terminations.tolist()[-1] for episode in episodes[:3]] == [True, False, False]
    assert [episode.truncations.tolist()[-1] for episode in episodes[:3]] == [False, True, True]
    assert all(dataset.action_space.contains(action) for action in episodes[0].actions)

    to_minari(agent, "tiny/one-v0", seed=1)
    back = from_minari("tiny/one-v0", sac())
    stored = jax.tree.map(lambda leaf: np.asarray(leaf[1, :10]), agent.state.replay.data)
    for name in ("obs", "next_obs", "reward", "terminated"):
        np.testing.assert_array_equal(getattr(back, name), getattr(stored, name))
    np.testing.assert_allclose(back.action, stored.action, atol=2e-7)
    ends = np.isin(np.arange(10), [7, 9])  # that of the clock, and where the data end
    np.testing.assert_array_equal(back.truncated, ends)


def test_pictures_lose_nothing(minari):
    agent = recorded(Sights)
    to_minari(agent, "sights-v0")
    dataset = minari.load_dataset("sights-v0")
    assert dataset.action_space.n == 3 and dataset.action_space.start == 5
    assert dataset.observation_space["place"].start == 2
    for theirs, ours in zip(dataset.iterate_episodes(), episodes_of(agent), strict=True):
        for name, part in ours.obs.items():
            np.testing.assert_array_equal(theirs.observations[name], part)
        np.testing.assert_array_equal(theirs.actions, ours.action)


def test_a_model_learns_from_imported_episodes_as_from_its_own(minari):
    first = small("pendulum", seed=0).learn(12)
    to_minari(first, "pendulum/replay-v0")
    second = small("pendulum", seed=0)
    seed_replay(second, from_minari("pendulum/replay-v0", second))
    # The same fit of the same data.
    second.trainer._now = dataclasses.replace(second.trainer._now, iteration=2)
    second.trainer.replace_state(eqx.tree_at(lambda s: s.learner, second.state, first.state.learner))
    ours, theirs = jax.tree.leaves(first.trainer._fitted()), jax.tree.leaves(second.trainer._fitted())
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=1e-6)


@pytest.mark.thorough
def test_seeded_rows_count_as_the_agents_own():
    agent = small(seeds=2)
    given = rows(agent)
    seed_replay(agent, given)
    np.testing.assert_array_equal(agent.state.replay.added, [20, 20])
    np.testing.assert_allclose(agent.state.total_reward, np.asarray(given.reward, np.float64).sum())
    (report,) = agent.iterations(1)
    assert [row["decisions"] for row in agent.rows(report)] == [26, 26]
    earned = np.asarray(given.reward, np.float64).sum() + report.chunk.returns
    np.testing.assert_allclose([row["rollout/average_reward"] for row in agent.rows(report)], earned / 26)
    with pytest.raises(SombrlError, match="has 1 iterations already"):
        seed_replay(agent, given)


def test_bad_input_gets_a_sentence(minari, tmp_path, capsys):
    agent = filled(sac(), walk([3], ["task"]))
    for name in ("tiny", "tiny/replay", "../replay-v0"):
        with pytest.raises(SombrlError, match="is called like pendulum/replay-v0"):
            to_minari(agent, name)
    with pytest.raises(SombrlError, match="no seed 5"):
        to_minari(agent, "tiny-v0", seed=5)
    with pytest.raises(SombrlError, match="no whole episode yet"):
        to_minari(sac(), "tiny-v0")
    assert not (tmp_path / "datasets" / "tiny-v0").exists()
    agent.save(tmp_path / "run")
    main(["export-replay", str(tmp_path / "run"), "--out", "tiny-v0"])
    assert "minari.load_dataset('tiny-v0')" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["export-replay", str(tmp_path / "run"), "--out", "tiny-v0"])
    assert stop.value.code == 2 and "is there already" in capsys.readouterr().err
    with pytest.raises(SombrlError, match="no Minari dataset other-v0"):
        from_minari("other-v0", agent)
    with pytest.raises(SombrlError, match="give a dataset of that environment"):
        from_minari("tiny-v0", sombrl.SAC("pendulum", sac=NETS))
    with pytest.raises(SombrlError, match="do not fit the replay of 2"):
        seed_replay(sac(capacity=2), from_minari("tiny-v0", agent))
    with pytest.raises(SombrlError, match="dreamer's replay"):
        seed_replay(recorded("Pendulum-v1"), walk([3], ["task"]))


def test_without_the_package_it_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    monkeypatch.setitem(sys.modules, "h5py", sys)  # there
    with pytest.raises(SombrlError, match=r"need minari: pip install 'sombrl\[minari\]'"):
        to_minari(sac(), "tiny-v0")
