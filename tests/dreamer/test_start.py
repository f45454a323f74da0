"""A run that begins with what another has learned: the world model, and on the same environment its records."""

import shutil

import equinox as eqx
import gymnasium
import jax
import numpy as np
import pytest

import sombrl
from sombrl.dreamer.start import TASK, WORLD
from sombrl.errors import SombrlError
from sombrl.storage.run_folder import RunFolder

from .test_agent import SETTINGS, without_time

pytestmark = pytest.mark.thorough


def agent(**settings):
    return sombrl.make("dreamer", "Pendulum-v1", **(SETTINGS | {"decisions": 48, "eval_episodes": 2} | settings))


def arrays(network):
    return jax.tree.leaves(eqx.filter(network, eqx.is_array))


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(arrays(one), arrays(other), strict=True))


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    """Curiosity alone, as Plan2Explore has it; 48 decisions' time."""
    path = tmp_path_factory.mktemp("explored") / "run"
    trained = agent(explore="unsupervised", seeds=2)
    for _ in trained.iterations(2):
        pass
    trained.save(path)
    return path, trained


def test_the_model_comes_along_and_the_policy_does_not(explored):
    path, before = explored
    after = agent(explore="greedy", seeds=2, start_from=str(path))
    after.prepare()
    ours, theirs = after.state.learned.networks, before.state.learned.networks
    assert all(same(getattr(ours, name), getattr(theirs, name)) for name in WORLD + TASK)
    assert ours.ensemble is None and not same(ours.policy, theirs.policy) and not same(ours.value, theirs.value)
    for mine, its in zip(after.trainer.loop.replays, before.trainer.loop.replays, strict=True):
        assert mine.added == its.added
        for name in ("obs/obs", "action", "reward", "first", "deter", "stoch"):
            np.testing.assert_array_equal(mine._stream(name, 0, mine.added), its._stream(name, 0, its.added))
    # Room for those and for its own.
    assert after.trainer.loop.replays[0].ring == (48 + 48) // SETTINGS["envs"]
    curious = agent(explore="optimistic", seeds=1, start_from=str(path))
    curious.prepare()
    first = jax.tree.map(lambda leaf: leaf[:1], theirs.ensemble)
    assert same(curious.state.learned.networks.ensemble, first)


@pytest.mark.thorough
def test_zero_shot_is_learned_without_a_decision(explored):
    path, _ = explored
    after = agent(explore="greedy", seeds=2, start_from=str(path), start_updates=3)
    (row, other), *_ = [after.rows(report) for report in after.iterations(2)]
    assert row["decisions"] < 48, "those of this run alone"
    assert np.isfinite(row["eval/zero_shot"]) and row["eval/zero_shot"] != other["eval/zero_shot"]
    at_once = agent(explore="greedy", seeds=2, start_from=str(path), start_updates=3)
    at_once.prepare()
    practised = at_once.trainer.loop.practise(at_once.state, 3)
    at_once.trainer.replace_state(practised)
    assert np.all(practised.learned.updates == 3) and not practised.streams.decisions.any()
    np.testing.assert_array_equal(at_once.evaluate(2).mean(axis=0), [row["eval/zero_shot"], other["eval/zero_shot"]])


@pytest.mark.thorough
def test_what_follows_resumes_exactly_even_if_the_source_is_gone(explored, tmp_path):
    path, _ = explored
    source = shutil.copytree(path, tmp_path / "source")
    whole, half = (agent(explore="greedy", seeds=2, start_from=str(source)) for _ in range(2))
    rows = without_time([whole.rows(report) for report in whole.iterations(2)])
    next(iter(half.iterations(1)))
    half.save(tmp_path / "half")
    shutil.rmtree(source)
    resumed = sombrl.load(tmp_path / "half")
    np.testing.assert_equal(without_time([resumed.rows(report) for report in resumed.iterations(2)]), rows[1:])


def test_a_source_is_found_from_another_folder(explored, tmp_path, monkeypatch):
    """Killed before its first checkpoint, a run begins anew, wherever it is resumed."""
    path, before = explored
    monkeypatch.chdir(path.parent)
    RunFolder.create(tmp_path / "run", agent(start_from=path.name).to_json(), ["test"])
    monkeypatch.chdir(tmp_path)
    resumed = sombrl.load(tmp_path / "run", fresh=True)
    resumed.prepare()
    assert resumed.trainer.loop.replays[0].added == before.trainer.loop.replays[0].added


def test_what_is_saved_untrained_has_the_source_in_it(explored, tmp_path):
    path, before = explored
    agent(start_from=str(path)).save(tmp_path / "run")
    ours, theirs = sombrl.load(tmp_path / "run"), before.state.learned.networks
    assert same(ours.state.learned.networks.rssm, jax.tree.map(lambda leaf: leaf[:1], theirs.rssm))
    assert ours.trainer.loop.replays[0].added == before.trainer.loop.replays[0].added
    with pytest.raises(SombrlError, match="there is no run"):
        agent(start_from=str(tmp_path / "nothing")).save(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_an_object_has_no_name_to_know_it_by(explored):
    """What looks like the source's environment may be another."""
    path, _ = explored
    settings = SETTINGS | {"decisions": 48, "start_from": str(path)}
    heavy = sombrl.make("dreamer", lambda: gymnasium.make("Pendulum-v1", g=20.0), **settings)
    heavy.prepare()
    assert heavy.trainer.loop.replays[0].added == 0


def test_another_task_has_the_model_alone(explored):
    path, before = explored
    after = agent(explore="greedy", action_cost=0.1, start_from=str(path))
    after.prepare()
    ours, theirs = after.state.learned.networks, jax.tree.map(lambda leaf: leaf[:1], before.state.learned.networks)
    assert same(ours.rssm, theirs.rssm) and not same(ours.reward.body, theirs.reward.body)
    assert after.trainer.loop.replays[0].added == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": 3}, "has 2 seeds, too few for --seeds 3"),
        ({"size": "1m"}, "was trained with --size tiny: add it"),
        ({"envs": 1}, "was trained with --envs 2: add it"),
        ({"members": 3}, "was trained with --members 2 --hidden 8: add them"),
        ({"start_updates": 3, "action_cost": 0.1}, "has records of another environment: leave out --start-updates"),
        ({"env": "MountainCarContinuous-v0"}, "has other observations or actions than MountainCarContinuous-v0"),
    ],
)
def test_what_does_not_fit_is_refused(explored, settings, message):
    path, _ = explored
    env = settings.pop("env", "Pendulum-v1")
    new = sombrl.make("dreamer", env, **(SETTINGS | {"decisions": 48, "start_from": str(path)} | settings))
    with pytest.raises(SombrlError, match=message):
        new.prepare()


def test_no_run_and_none_of_dreamer_are_refused(tmp_path):
    with pytest.raises(SombrlError, match="there is no run"):
        agent(start_from=str(tmp_path / "nothing")).prepare()
    sombrl.make("gp-icem", "pendulum").save(tmp_path / "gp")
    with pytest.raises(SombrlError, match="is not a run of dreamer: --start-from needs one"):
        agent(start_from=str(tmp_path / "gp")).prepare()
    with pytest.raises(SombrlError, match="name it with --start-from"):
        agent(start_updates=3)
