"""Finished cells are kept, broken ones go on, settings are never mixed, and the CSV is the same to the byte."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sombrl.paper.experiments import redraw, run_experiment
from sombrl.records import SombrlError
from sombrl.storage.results import COLUMNS, read_rows
from tests.paper.experiments.toy import TOY
from tests.small import heed_ctrl_c
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A shared compilation cache, so that the second process is not mostly a compiler."""
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("xla")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return os.environ | cache


def start(folder: Path, environment: dict, *flags: str) -> subprocess.Popen:
    places = ["--out", str(folder / "results"), "--runs", str(folder / "runs")]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.paper.experiments.toy", *places, *flags],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,
    )


def finish(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


@pytest.fixture(scope="module")
def reference(tmp_path_factory, environment):
    """The experiment, never interrupted."""
    folder = tmp_path_factory.mktemp("reference")
    return folder, finish(start(folder, environment))


def test_results(reference):
    folder, printed = reference
    rows = read_rows(folder / "results" / "toy" / "smoke.csv")
    assert (folder / "results" / "toy" / "smoke.csv").read_text().splitlines()[0] == ",".join(COLUMNS)
    assert list(dict.fromkeys(row.method for row in rows)) == ["greedy", "optimistic", "hucrl"]
    assert not [row for row in rows if row.metric.startswith("time/")]
    returns = [row for row in rows if row.method == "optimistic" and row.metric == "rollout/ep_rew_mean"]
    logged = (folder / "runs" / "toy-smoke" / "pendulum" / "run" / "run" / "metrics.jsonl").read_text().splitlines()
    assert [row.value for row in returns] == [json.loads(line)["rollout/ep_rew_mean"] for line in logged]
    evaluated = [(row.decisions, row.seed) for row in rows if row.metric == "eval/ep_rew_mean"]
    assert evaluated == [(12, 0), (12, 1), (18, 0), (18, 1)]  # after episode 2, and at the end
    manifest = json.loads((folder / "results" / "toy" / "smoke.json").read_text())
    assert set(manifest["cells"]) == {"quick", "pendulum/run", "slow"} and "commit" in manifest["git"]
    assert manifest["cells"]["quick"]["seconds"] >= 0 and manifest["device"]["platform"]
    assert len((folder / "results" / "toy" / "smoke.png").read_bytes()) > 10_000
    assert "[2/3] pendulum/run … done in" in printed and "1 left" in printed and "smoke.csv" in printed


@pytest.mark.thorough
def test_killed_and_run_again(reference, environment, tmp_path):
    process = start(tmp_path, environment)
    cell = tmp_path / "runs" / "toy-smoke" / "pendulum" / "run"
    wait_for(lambda: (cell / "run" / "checkpoints" / "00000001").exists(), process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    quick = cell.parents[1] / "quick" / "rows.csv"
    assert quick.exists() and not (cell / "rows.csv").exists()
    written = quick.stat().st_mtime_ns
    printed = finish(start(tmp_path, environment))
    assert "1 of 3 cells are finished already" in printed
    assert quick.stat().st_mtime_ns == written
    name = Path("results", "toy", "smoke.csv")
    assert (tmp_path / name).read_bytes() == (reference[0] / name).read_bytes()
    picture = name.with_suffix(".png")
    assert (tmp_path / picture).read_bytes() == (reference[0] / picture).read_bytes()


@pytest.mark.thorough
def test_killed_between_checkpoint_and_evaluation(reference, environment, tmp_path):
    """The evaluation after the last checkpoint is made up for."""
    folder = tmp_path / "again"
    subprocess.run(["cp", "-r", str(reference[0]), str(folder)], check=True)
    cell = folder / "runs" / "toy-smoke" / "pendulum" / "run"
    (cell / "rows.csv").unlink()
    (cell / "evaluations" / "00000003.json").unlink()
    (folder / "results" / "toy" / "smoke.csv").unlink()
    finish(start(folder, environment))
    name = Path("results", "toy", "smoke.csv")
    assert (folder / name).read_bytes() == (reference[0] / name).read_bytes()


@pytest.mark.thorough
def test_two_processes_side_by_side(reference, environment, tmp_path):
    wait = tmp_path / "wait"
    wait.touch()
    slow = start(tmp_path, environment | {"TOY_WAIT": str(wait)}, "--cells", "slow")
    wait_for((tmp_path / "wait.waiting").exists, slow)
    others = finish(start(tmp_path, environment))  # all cells: the one in use is left to its owner
    assert "[3/3] slow is in the hands of another process" in others
    assert "1 of 3 cells of toy remain: slow" in others
    assert not (tmp_path / "results").exists()
    wait.unlink()
    printed = finish(slow)
    assert "figure" in printed
    name = Path("results", "toy", "smoke.csv")
    assert (tmp_path / name).read_bytes() == (reference[0] / name).read_bytes()


def test_ctrl_c_keeps_what_is_done(environment, tmp_path):
    wait = tmp_path / "wait"
    wait.touch()
    flags = ("--cells", "quick,slow")
    process = start(tmp_path, environment | {"TOY_WAIT": str(wait)}, *flags)
    wait_for((tmp_path / "wait.waiting").exists, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "1 of 3 cells are finished" in err and "--cells quick,slow" in err and "Traceback" not in err


def test_a_finished_experiment_says_so(reference, capsys):
    folder, _ = reference
    files = sorted((path, path.stat().st_mtime_ns) for path in (folder / "results").rglob("*"))
    options = {"out": folder / "results", "runs": folder / "runs"}
    path = run_experiment(TOY, "smoke", **options)
    assert path == folder / "results" / "toy" / "smoke.csv"
    assert "written already" in capsys.readouterr().out
    assert sorted((path, path.stat().st_mtime_ns) for path in (folder / "results").rglob("*")) == files


def changed(**fields):
    """The toy without its run, and with other options of its first cell."""

    def cells(scale: str) -> list:
        quick, _, slow = TOY.cells(scale)
        return [dataclasses.replace(quick, options=quick.options | fields), slow]

    return dataclasses.replace(TOY, cells=cells)


def test_other_settings_are_refused_before_anything_runs(tmp_path, monkeypatch):
    options = {"out": tmp_path / "results", "runs": tmp_path / "runs"}
    assert run_experiment(changed(), "smoke", pattern="quick", **options) is None
    before = (tmp_path / "runs" / "toy-smoke" / "quick" / "rows.csv").read_bytes()
    with pytest.raises(SombrlError, match="other settings"):
        run_experiment(changed(numbers=5), "smoke", **options)
    monkeypatch.setattr("sombrl.__version__", "9.9")
    with pytest.raises(SombrlError, match="another version"):
        run_experiment(changed(), "smoke", **options)
    assert (tmp_path / "runs" / "toy-smoke" / "quick" / "rows.csv").read_bytes() == before
    assert not (tmp_path / "runs" / "toy-smoke" / "slow").exists()


def test_a_foreign_folder_is_left_alone(tmp_path):
    mine = tmp_path / "runs" / "toy-smoke" / "quick" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("chapter 1")
    with pytest.raises(SombrlError, match="not a cell of an experiment"):
        run_experiment(changed(), "smoke", out=tmp_path / "results", runs=tmp_path / "runs")
    assert [path.name for path in mine.parent.iterdir()] == ["thesis.txt"]


def test_redraw_needs_the_csv_alone(reference, tmp_path):
    source = reference[0] / "results" / "toy"
    copy = tmp_path / "toy" / "smoke.csv"
    copy.parent.mkdir()
    copy.write_bytes((source / "smoke.csv").read_bytes())
    picture = redraw(TOY, "smoke", out=tmp_path)
    assert picture.read_bytes() == (source / "smoke.png").read_bytes()


def test_changed_results_are_written_again(reference, tmp_path, capsys):
    options = {"out": tmp_path / "results", "runs": tmp_path / "runs"}
    path = run_experiment(changed(), "smoke", **options)
    whole = path.read_bytes()
    path.write_text("something else")
    run_experiment(changed(), "smoke", **options)
    assert path.read_bytes() == whole
