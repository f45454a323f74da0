"""A stranger's run cannot run code: its files name what they like, and nothing of theirs is imported."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import gymnasium
import pytest

import sombrl
from sombrl.algorithms import ALGORITHMS
from sombrl.cli.app import main
from sombrl.records import SombrlError
from tests.small import SMALL_FLAGS, call

PAYLOAD = """
import pathlib
pathlib.Path({mark!r}).write_text("run")
import gymnasium
gymnasium.register("X-v0", "gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=6)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on Pendulum-v1, which needs no word."""
    folder = tmp_path_factory.mktemp("runs") / "p"
    flags = ["--env", "Pendulum-v1", "--episodes", "1", "--no-tensorboard", "--out", str(folder)]
    main(["train", "gp-icem", *flags, *SMALL_FLAGS])
    return folder


@pytest.fixture
def stranger(trained, tmp_path, monkeypatch):
    """The same run, whose configuration names a module that lies in it; and the file that shows whether it ran."""
    monkeypatch.chdir(tmp_path)
    run, mark = tmp_path / "runs" / "stranger", tmp_path / "mark"
    shutil.copytree(trained, run)
    config = json.loads((run / "config.json").read_text())
    config["run"]["env"] = "runs.stranger.payload:X-v0"
    (run / "config.json").write_text(json.dumps(config))
    (run / "payload.py").write_text(PAYLOAD.format(mark=str(mark)))
    yield run, mark
    for name in ("runs", "runs.stranger", "runs.stranger.payload"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("command", ["eval", "bounds", "resume --episodes 2", "export-policy --out pilot"])
def test_no_command_imports_what_a_run_names(stranger, command, capsys):
    run, mark = stranger
    name, *rest = command.split()
    code, _, err = call([name, "runs/stranger", *rest], capsys)
    assert code == 2 and err.count("\n") == 1
    assert "runs.stranger.payload" in err and "--env runs.stranger.payload:X-v0" in err and "--trust" in err
    assert not mark.exists() and not (run.parents[1] / "pilot").exists()


def test_load_imports_nothing_either(stranger):
    run, mark = stranger
    sys.path.insert(0, os.getcwd())  # as in a script: the run lies beside it
    try:
        with pytest.raises(SombrlError, match=r"a file's word is not enough"):
            sombrl.load(run)
    finally:
        sys.path.remove(os.getcwd())
    assert not mark.exists()


def test_beside_an_object_the_name_in_the_file_counts_for_nothing(trained):
    """A run that this one begins from (--start-from) may name the same module: still untrusted."""
    run = dataclasses.replace(sombrl.load(trained).run_config, env="payload:X-v0")
    config = ALGORITHMS["gp-icem"].config()
    agent = sombrl.Agent("gp-icem", config, run, lambda: gymnasium.make("Pendulum-v1"))
    assert not agent._word.allows("payload:X-v0")
    assert sombrl.make("gp-icem", "Pendulum-v1")._word.allows("Pendulum-v1")


def test_naming_another_environment_does_not_count(stranger, capsys):
    _, mark = stranger
    code, _, err = call(["eval", "runs/stranger", "--env", "Pendulum-v1"], capsys)
    assert code == 2 and "was trained on runs.stranger.payload:X-v0, not on Pendulum-v1" in err
    assert not mark.exists()


@pytest.mark.parametrize("word", [["--trust"], ["--env", "runs.stranger.payload:X-v0"]])
def test_with_the_word_it_is_imported(stranger, word):
    """In a process of its own: what it registers stays with it."""
    _, mark = stranger
    command = [sys.executable, "-m", "sombrl", "eval", "runs/stranger", "--episodes", "1", *word]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **SRC})
    assert mark.exists()
    # What was imported is another environment than the checkpoint was made with.
    assert done.returncode == 2 and "run.env" in done.stderr and done.stderr.count("\n") == 1


SRC = {"PYTHONPATH": os.path.dirname(os.path.dirname(sombrl.__file__))}


@pytest.mark.thorough
def test_modules_in_the_current_folder_shadow_nothing(trained, tmp_path):
    """A stranger's folder may hold a file with the name of a package that a command imports late."""
    for name in ("tensorboardX", "PIL", "pygame", "shimmy", "dm_control"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\nraise SystemExit(7)\n")
    shutil.copytree(trained, tmp_path / "p")
    command = [sys.executable, "-m", "sombrl", "eval", "p", "--episodes", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **SRC})
    assert done.returncode == 0, done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "sombrl", "plot", "p"], cwd=tmp_path, capture_output=True, env={**os.environ, **SRC}
    )
    assert done.returncode == 0 and not (tmp_path / "mark").exists()


def test_a_sweep_is_a_file_as_any_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "payload.py").write_text(PAYLOAD.format(mark=str(tmp_path / "mark")))
    (tmp_path / "s.toml").write_text('algorithm = "gp-icem"\nenv = "payload:X-v0"\n')
    code, _, err = call(["sweep", "s.toml"], capsys)
    assert code == 2 and "payload" in err and "env=payload:X-v0" in err
    assert not (tmp_path / "mark").exists() and not (tmp_path / "sweeps").exists()


@pytest.mark.thorough
def test_training_on_a_module_of_ones_own_goes_on_as_its_sentence_says(tmp_path):
    """Train, resume and evaluate with a module that lies in the current folder."""
    (tmp_path / "own.py").write_text(PAYLOAD.format(mark=str(tmp_path / "mark")).replace("X-v0", "Own-v0"))

    def sombrl_(*words):
        command = [sys.executable, "-m", "sombrl", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **SRC})

    flags = ["--env", "own:Own-v0", "--episodes", "1", "--no-tensorboard", "--out", "p"]
    done = sombrl_("train", "gp-icem", *flags, *SMALL_FLAGS)
    assert done.returncode == 0, done.stderr
    assert "sombrl eval p --env own:Own-v0" in done.stdout
    (tmp_path / "mark").unlink()
    assert sombrl_("eval", "p", "--episodes", "1").returncode == 2 and not (tmp_path / "mark").exists()
    done = sombrl_("resume", "p", "--env", "own:Own-v0", "--episodes", "2", "--no-tensorboard")
    assert done.returncode == 0 and (tmp_path / "mark").exists(), done.stderr
