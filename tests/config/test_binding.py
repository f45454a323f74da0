"""A checkpoint belongs to the configuration it was made with; the first setting that was changed is named."""

import dataclasses
import json

import pytest

import sombrl
from sombrl.config.binding import LENGTH, OF_A_PART, require_same
from sombrl.records import SombrlError
from sombrl.storage.run_folder import RunFolder
from tests.small import call, small

SAVED = {"algorithm": "sac", "run": {"env": "pendulum", "seed": 3, "episodes": 2, "env_kwargs": []}, "config": {"a": 1}}


def changed(**run):
    return SAVED | {"run": SAVED["run"] | run}


def test_the_first_difference_is_named(tmp_path):
    require_same(tmp_path, SAVED, changed(env_kwargs=()), ())
    with pytest.raises(SombrlError, match=r"config.json was changed: run.env is 'mountain-car', and .* 'pendulum'"):
        require_same(tmp_path, SAVED, changed(env="mountain-car", seed=4), ())
    with pytest.raises(SombrlError, match=r"config.a is 2, and its checkpoint was made with 1"):
        require_same(tmp_path, SAVED, SAVED | {"config": {"a": 2}}, LENGTH)


def test_some_settings_are_free(tmp_path):
    require_same(tmp_path, SAVED, changed(episodes=9), LENGTH)
    require_same(tmp_path, SAVED, changed(seed=0), OF_A_PART)
    with pytest.raises(SombrlError, match=r"run\.seed"):
        require_same(tmp_path, SAVED, changed(seed=0), LENGTH)


def test_settings_of_another_version_are_no_change(tmp_path):
    require_same(tmp_path, SAVED, SAVED | {"config": {"a": 1, "b": 2}}, ())
    require_same(tmp_path, SAVED, SAVED | {"config": {}}, ())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "p"
    small(episodes=1).learn(6).save(folder)
    return folder


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("run", "env", "mountain-car"),
        ("run", "env_kwargs", ["reward=sparse"]),
        ("run", "action_cost", 0.5),
        ("run", "seed", 1),
        ("explore", "bonus_weight", 7.0),
        ("gp", "capacity", 10**9),
    ],
)
def test_a_changed_run_is_refused(run, part, field, value, capsys):
    """An enormous capacity too, before anything of that size is allocated."""
    path = run / "config.json"
    before = path.read_text()
    config = json.loads(before)
    place = config["run"] if part == "run" else config["config"][part]
    place[field] = value
    path.write_text(json.dumps(config))
    name = f"run.{field}" if part == "run" else f"config.{part}.{field}"
    try:
        for command in (["eval"], ["resume", "--episodes", "2"]):
            code, _, err = call([command[0], str(run), *command[1:]], capsys)
            assert code == 2 and f"config.json was changed: {name} is" in err and err.count("\n") == 1
    finally:
        path.write_text(before)


def test_a_longer_run_goes_on(run):
    assert sombrl.load(run).iteration == 1


def test_a_part_belongs_to_the_run_that_it_is_a_part_of(run):
    """It has some of the seeds, and everything else of the whole."""
    agent, whole = sombrl.load(run), small(episodes=1, seeds=3)
    meta = {"settings": agent.to_json()}
    whole.require_saved(run, meta, of_a_part=True)
    with pytest.raises(SombrlError, match=r"run\.seeds is 3"):
        whole.require_saved(run, meta)
    with pytest.raises(SombrlError, match=r"run\.action_cost"):
        small(episodes=1, seeds=3, action_cost=0.5).require_saved(run, meta, of_a_part=True)


def test_an_agent_of_other_settings_may_take_over_what_was_learned(run):
    """As docs/choosing.md does it: more candidates for the same model. The user has said so; no file was changed."""
    loaded = sombrl.load(run)
    config = dataclasses.replace(loaded.config, icem=dataclasses.replace(loaded.config.icem, num_samples=13))
    assert sombrl.Agent(loaded.algorithm, config, loaded.run_config).restore(RunFolder.open(run)).iteration == 1


def test_checkpoints_without_settings_load(run):
    """Those of earlier versions have none."""
    from tests.storage.test_arrays import sign

    (path,) = (run / "checkpoints").iterdir()
    sign(path, lambda manifest: manifest["meta"].pop("settings"))
    assert sombrl.load(run).iteration == 1


@pytest.mark.parametrize("iteration", [-5, "x", 7, None])
def test_an_iteration_that_is_none_is_damage(run, iteration, capsys):
    from tests.storage.test_arrays import sign

    (path,) = (run / "checkpoints").iterdir()
    before = (path / "manifest.json").read_text()
    sign(path, lambda manifest: manifest["meta"].update(iteration=iteration))
    try:
        code, _, err = call(["eval", str(run)], capsys)
        assert code == 2 and "its iteration is" in err and err.count("\n") == 1
    finally:
        (path / "manifest.json").write_text(before)
