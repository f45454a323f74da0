"""`--jobs`: several processes train the seeds of a run, with the numbers of one, and survive what one does."""

import os
import re
import shutil
import signal
from pathlib import Path

import jax
import numpy as np
import pytest

import sombrl
from sombrl.agent.agent import Agent
from sombrl.cli.main import main
from sombrl.config.run import RunConfig
from sombrl.records import SombrlError
from sombrl.storage.run_folder import RunFolder
from sombrl.sweep import jobs, side_by_side
from sombrl.sweep.local import LocalBackend, cores_here
from sombrl.sweep.parts import split
from tests.small import SMALL_FLAGS, call, reproducible_rows
from tests.sweep.tiny import alive, finish, start
from tests.waiting import wait_for

# Two parts of two: the programs of one seed alone round differently where they are compiled with little optimisation.
FLAGS = ["--env", "pendulum", "--seeds", "4", "--no-tensorboard", *SMALL_FLAGS]
EPISODES = 100  # that take as long as a process to start
SHORT = ["train", "gp-icem", *FLAGS, "--episodes", "3"]
LONG = ["train", "gp-icem", *FLAGS, "--episodes", str(EPISODES)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same run, of one process and of two."""
    folder = tmp_path_factory.mktemp("runs")
    for number in (1, 2):
        main([*SHORT, "--jobs", str(number), "--out", str(folder / f"jobs-{number}")])
    return folder / "jobs-1", folder / "jobs-2"


def test_the_metrics_are_those_of_one_process(runs):
    one, two = runs
    assert reproducible_rows(two) == reproducible_rows(one)
    parts = RunFolder.open(two).parts
    assert [part.path.name for part in parts] == ["seeds-0-1", "seeds-2-3"]
    assert RunFolder.open(two).config == RunFolder.open(one).config
    assert [RunFolder.open(part.path).config["run"]["seeds"] for part in parts] == [2, 2]


@pytest.mark.thorough
def test_an_agent_of_all_seeds_is_loaded(runs):
    one, two = map(sombrl.load, runs)
    assert isinstance(two, Agent) and two.seeds == [0, 1, 2, 3] and two.iteration == 3
    for ours, theirs in zip(jax.tree.leaves(two.state), jax.tree.leaves(one.state), strict=True):
        assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()
    assert np.array_equal(two.evaluate(2), one.evaluate(2))
    observation = np.array([1.0, 0.0, 0.5], np.float32)
    assert np.array_equal(two.predict(observation)[0], one.predict(observation)[0])


def test_commands_take_it_as_any_run(runs, tmp_path, capsys):
    def output(run: Path, *argv: object) -> str:
        code, out, err = call([str(word) for word in argv], capsys)
        assert code == 0, err
        return out.replace(str(run), "RUN")

    def both(*argv: str) -> None:
        one, two = (output(run, *(word.replace("RUN", str(run)) for word in argv)) for run in runs)
        assert one == two

    both("eval", "RUN", "--episodes", "1")
    both("plot", "RUN")
    for i, run in enumerate(runs):
        output(run, "export", run, "--out", tmp_path / f"{i}.csv")
        output(run, "report", run, "--out", tmp_path / f"{i}.html")
    assert (tmp_path / "0.csv").read_bytes() == (tmp_path / "1.csv").read_bytes()
    assert "could not" not in (tmp_path / "1.html").read_text()


@pytest.mark.thorough
def test_resume_goes_on_with_every_part(runs, tmp_path, capsys):
    one, two = (shutil.copytree(run, tmp_path / run.name) for run in runs)
    code, _, err = call(["resume", str(two)], capsys)
    assert code == 2 and "is complete (3 episodes): give more with --episodes" in err
    code, _, err = call(["resume", str(two), "--episodes", "2"], capsys)
    assert code == 2 and "--episodes cannot be 2" in err
    for run in (one, two):
        assert call(["resume", str(run), "--episodes", "5", "--no-tensorboard"], capsys)[0] == 0
    assert reproducible_rows(two) == reproducible_rows(one) and len(reproducible_rows(two)) == 20


@pytest.fixture(scope="module")
def long_reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long") / "run"
    main([*LONG, "--jobs", "1", "--out", str(folder)])
    return reproducible_rows(folder)


def pids(run: Path) -> dict[str, int]:
    """The processes that hold the parts of a run."""
    found = {}
    for part in RunFolder.open(run).parts if (run / "manifest.json").is_file() else []:
        if part.in_use and (words := (part.path / ".lock").read_text().split()):
            found[part.path.name] = int(words[1])
    return found


def iterations(run: Path) -> int:
    path = run / "metrics.jsonl"
    return len(path.read_text().splitlines()) // 4 if path.exists() else 0


@pytest.mark.thorough
def test_a_worker_and_later_the_parent_are_killed(long_reference, tmp_path):
    """The worker goes on by itself; without the parent the workers end, and resume continues each part."""
    run = tmp_path / "run"
    parent = start(*LONG, "--jobs", "2", "--out", run)
    wait_for(lambda: iterations(run) >= 2 and len(pids(run)) == 2, parent)
    os.kill(pids(run)["seeds-2-3"], signal.SIGKILL)
    before = RunFolder.open(run).saved_iteration
    wait_for(lambda: iterations(run) > before + 2, parent)
    workers = list(pids(run).values())
    parent.kill()
    parent.communicate()
    wait_for(lambda: not any(map(alive, workers)))
    stopped_at = iterations(run)
    assert 2 <= stopped_at < EPISODES
    _, err = finish(start("resume", run, "--no-tensorboard"))
    assert "Traceback" not in err
    assert reproducible_rows(run) == long_reference


@pytest.mark.thorough
def test_ctrl_c_and_sigterm_stop_all_parts(long_reference, tmp_path):
    run, command = tmp_path / "run", (*LONG, "--jobs", "2", "--out", tmp_path / "run")
    for sent in (signal.SIGINT, signal.SIGTERM):
        before = iterations(run)
        parent = start(*command)
        wait_for(lambda before=before: iterations(run) > before and len(pids(run)) == 2, parent)
        workers = list(pids(run).values())
        parent.send_signal(sent)
        _, err = finish(parent, code=130)
        assert not any(map(alive, workers))
        saved = RunFolder.open(run).saved_iteration
        assert f"sombrl: {saved} of {EPISODES} iterations are saved; continue with: sombrl resume {run}" in err
        assert len(err.splitlines()) == 2 and iterations(run) >= saved > before
        command = ("resume", run, "--no-tensorboard")
    finish(start(*command))
    assert reproducible_rows(run) == long_reference


@pytest.mark.thorough
def test_a_fault_of_one_part_stops_the_others_and_is_told_once(tmp_path):
    """A file in the place of the second part's checkpoints."""
    run = tmp_path / "run"
    parent = start(*LONG, "--jobs", "2", "--out", run)
    wait_for(lambda: len(pids(run)) == 2, parent)
    folder = run / "parts" / "seeds-2-3" / "checkpoints"
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("a file")
    _, err = finish(parent, code=1)
    sentence = r"sombrl: cannot write checkpoint .*; \d+ of 100 iterations are saved; continue with: sombrl resume"
    assert re.search(sentence, err), err
    assert err.count("sombrl: ") == 1 and "Traceback" not in err and pids(run) == {}


def test_seeds_are_split_evenly():
    parts = split(RunConfig(seed=3, seeds=5, env_workers=4), 2)
    assert {name: config.seed_list for name, config in parts.items()} == {
        "parts/seeds-3-5": [3, 4, 5],
        "parts/seeds-6-7": [6, 7],
    }
    assert [config.env_workers for config in parts.values()] == [2, 2]
    assert list(split(RunConfig(seeds=2), 2)) == ["parts/seed-0", "parts/seed-1"]


def test_how_many_processes(monkeypatch):
    def number(given: int | None, seeds: int) -> int:
        return side_by_side.processes(given, seeds)

    monkeypatch.delenv("SOMBRL_JOBS")
    monkeypatch.setattr(side_by_side, "cores_here", lambda: [0, 1, 2, 3])
    assert [number(None, seeds) for seeds in (1, 3, 4, 9)] == [1, 3, 4, 4]
    assert number(2, 9) == 2 and number(16, 3) == 3 and number(8, 1) == 1
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: name == "jax_plugins" or None)
        for gpus, expected in ((["0"], 1), (["0", "1"], 2), ([], 4)):  # none: JAX computes on the CPU
            patch.setattr(side_by_side, "visible_gpus", lambda gpus=gpus: gpus)
            assert number(None, 9) == expected
    monkeypatch.setenv("SOMBRL_JOBS", "2")
    assert number(None, 9) == 2
    for given, sentence in ((0, "--jobs must be at least 1"), (None, "SOMBRL_JOBS must be a number")):
        monkeypatch.setenv("SOMBRL_JOBS", "many")
        with pytest.raises(SombrlError, match=sentence):
            number(given, 2)


def test_what_cannot_be_split_says_so_when_asked_to(capsys, monkeypatch):
    """The seeds of --start-from are taken in their order, so a part would begin with the wrong ones."""
    monkeypatch.setenv("SOMBRL_JOBS", "2")

    class Config:
        start_from = "runs/explored"

    assert jobs._parts(None, Config(), RunConfig(seeds=2)) == 1
    assert capsys.readouterr().err == ""
    assert jobs._parts(2, Config(), RunConfig(seeds=2)) == 1
    assert capsys.readouterr().err.count("one process trains all seeds") == 1


def test_workers_of_a_run_share_the_cores_but_not_the_rounding(monkeypatch):
    """As many threads as this process has, because XLA rounds sums by their number; each on its own cores."""
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    backend = LocalBackend(2, shared=True, gpus=[])
    assert backend.environment(0)["PJRT_NPROC"] == str(len(cores_here()))
    monkeypatch.setattr("sombrl.sweep.local.cores_here", lambda: [0, 2, 4, 5, 7])
    assert [LocalBackend(2, shared=True, gpus=[]).cores(place) for place in range(2)] == [[0, 2, 4], [5, 7]]
    assert [LocalBackend(7, shared=True, gpus=[]).cores(place) for place in (0, 6)] == [[0], [2]]
    devices = LocalBackend(2, shared=True, gpus=["0", "1"])
    assert [devices.environment(place)["CUDA_VISIBLE_DEVICES"] for place in range(2)] == ["0", "1"]
