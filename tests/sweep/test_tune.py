"""The search: what it may vary, what it stops early, and that it goes on where it was. Most needs the extra `tune`."""

import json
import math
import statistics
from collections.abc import Sequence
from typing import Any

import pytest

from sombrl.cli.main import main
from sombrl.records import SombrlError
from sombrl.runs.cell_folder import CellFolder
from sombrl.storage.files import write_whole
from sombrl.storage.results import Row, read_rows, rows_text
from sombrl.sweep import driver
from sombrl.sweep.driver import AbstractBackend, Ended
from sombrl.sweep.spec import read_spec
from sombrl.sweep.status import status_text
from sombrl.sweep.tune import LAST, STARTUP, ends_of, space, tune
from sombrl.sweep.worker import Job
from tests.sweep.tiny import LEARNING, SPEC, checkpointed, events, finish, start, write
from tests.waiting import wait_for

TUNE = SPEC.replace("[grid]\nseed = [0, 2]\n", "").replace('["optimistic"]', '"optimistic"')
SEARCH = """
[search]
bonus_weight = { low = 0.1, high = 100, log = true }
icem.noise_exponent = { low = 0, high = 2 }
env_kwargs = { choices = [[], ["reward=sparse"]] }
"""
EPISODES = 6


def spec(tmp_path, search: str = SEARCH, *overrides: str):
    return read_spec(write(tmp_path, TUNE + search), overrides)


def test_the_ends_of_the_space_are_cells(tmp_path):
    asked = spec(tmp_path)
    make, dimensions = space(asked)
    assert [d.field.name for d in dimensions] == ["bonus_weight", "icem.noise_exponent", "env_kwargs"]
    values = {d.field: d.ends()[-1] for d in dimensions}
    cell = make(values, 7)
    assert cell.name == "trial-0007" and cell.config.explore.bonus_weight == 100.0
    assert cell.config.icem.noise_exponent == 2.0 and cell.run.env_kwargs == ("reward=sparse",)
    assert cell.method == "gp-icem/optimistic bonus_weight=100 icem.noise_exponent=2 env_kwargs=reward=sparse"
    assert len(ends_of(asked)) == 6


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        ("", "no [search]"),
        ("[search]\ngp.rnak = { low = 1, high = 2 }", "did you mean gp.rank"),
        ("[search]\ngp.rank = 3", "takes low and high"),
        ("[search]\ngp.rank = { low = 1, high = 2, step = 1 }", "(it has step)"),
        ("[search]\ngp.rank = { low = 2 }", "needs both low and high"),
        ("[search]\nbonus_weight = { low = 3, high = 2 }", "needs low < high"),
        ("[search]\nbonus_weight = { low = 0, high = 2, log = true }", "low > 0"),
        ("[search]\ngp.kernel = { low = 0, high = 2 }", "give choices"),
        ("[search]\ngp.kernel = { choices = [] }", "must be a list of values"),
        ("[search]\ngp.kernel = { choices = ['rfb'] }", "one of rbf"),
        ("[search]\nseeds = { low = 1, high = 2 }", "both set and searched"),
        ("[search]\nicem.num_elites = { low = 1, high = 50 }", "num_elites"),  # more than samples
        ("[grid]\nseed = [0, 2]\n[search]\ngp.rank = { low = 1, high = 2 }", "has no grid"),
    ],
)
def test_bad_searches(search, sentence, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["tune", str(write(tmp_path, TUNE + search)), "--out", str(tmp_path / "sweep")])
    err = capsys.readouterr().err
    assert stop.value.code == 2 and sentence in err and err.count("\n") == 1, err
    assert not (tmp_path / "sweep").exists()


def test_without_optuna(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(SystemExit) as stop:
        main(["tune", str(write(tmp_path, TUNE + SEARCH)), "--out", str(tmp_path / "sweep")])
    assert stop.value.code == 2 and "pip install 'sombrl[tune]'" in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()


class Scripted(AbstractBackend):
    """Cells that only write metrics, an iteration per look; the return is best at λ = 3 and grows with time."""

    slots = 2

    def __init__(self, die_at: int | None = None):
        self.die_at, self.looks, self.stopped = die_at, 0, 0

    def start(self, jobs: Sequence[Job]) -> list[Any]:
        return [job.place.folders()[job.name] for job in jobs]

    def ended(self, task: CellFolder) -> Ended | None:
        self.looks += 1
        if self.looks == self.die_at:
            raise KeyboardInterrupt
        path = task.path / "run" / "metrics.jsonl"
        rows = path.read_text().splitlines() if path.exists() else []
        iteration = len(rows) // 2
        if iteration == EPISODES:
            values = [json.loads(row) for row in rows]
            table = [
                Row(
                    "tiny",
                    task.cell.method,
                    "pendulum",
                    "finite-horizon",
                    v["seed"],
                    RETURN,
                    1,
                    v["iteration"],
                    v[RETURN],
                )
                for v in values
            ]
            write_whole(task.path / "finished.json", json.dumps({"seconds": 1.0}))
            write_whole(task.rows_path, rows_text(table))
            return Ended(0)
        if not rows:
            task._begin()
            path.parent.mkdir()
            task.attempts.note("started", iteration=0, planned=EPISODES)
        with open(path, "a") as file:
            for seed in range(2):
                row = {"iteration": iteration, "seed": seed, RETURN: value_of(task.cell, iteration) + seed}
                file.write(json.dumps(row) + "\n")
        return None

    def stop(self, tasks: Sequence[Any]) -> None:
        self.stopped += len(tasks)


RETURN = "rollout/ep_rew_mean"


def value_of(cell: Any, iteration: int) -> float:
    return iteration - math.log(cell.config.explore.bonus_weight / 3) ** 2


def search(tmp_path, backend: Scripted, trials: int):
    return tune(
        spec(tmp_path),
        tmp_path / "sweep",
        lambda: backend,
        trials=trials,
        at_once=None,
        retries=0,
        command=["sombrl", "tune", "tiny.toml"],
    )


def test_a_search_finds_the_top_stops_the_bad_and_goes_on(tmp_path, monkeypatch, capsys):
    optuna = pytest.importorskip("optuna", reason="needs the extra `tune`")
    monkeypatch.setattr(driver, "LOOK_EVERY", 0.0)
    from sombrl.runs.train import Interrupted

    with pytest.raises(Interrupted, match="same command: sombrl tune"):
        search(tmp_path, Scripted(die_at=25), trials=24)
    sweep = tmp_path / "sweep"
    storage = f"sqlite:///{sweep / 'study.db'}"
    running = [t for t in optuna.load_study(study_name="tiny", storage=storage).trials if not t.state.is_finished()]
    assert len(running) == 2

    backend = Scripted()
    table = search(tmp_path, backend, trials=24)
    study = optuna.load_study(study_name="tiny", storage=storage)
    assert len(study.trials) == 24 and all(trial.state.is_finished() for trial in study.trials)
    assert all(study.trials[trial.number].params == trial.params for trial in running)  # they went on, as they were
    pruned = [t for t in study.trials if t.state.name == "PRUNED"]
    assert len(pruned) == backend.stopped > 0 and min(t.number for t in pruned) >= STARTUP
    assert {len(events(sweep / "cells" / f"trial-{n:04d}", "started")) for n in range(24)} == {1}

    rows = read_rows(table)
    finals: dict[str, float] = {}
    for method in {row.method for row in rows}:
        ours = [row.value for row in rows if row.method == method]
        finals[method] = statistics.fmean(ours[-2 * LAST :])  # two seeds
    assert study.best_value == pytest.approx(max(finals.values()))
    assert 1 < study.best_params["bonus_weight"] < 9
    printed = capsys.readouterr().out
    assert f"best     trial-{study.best_trial.number:04d}" in printed and "stopped early" in printed
    text = status_text(sweep)
    assert "below the median" in text and f"{len(pruned)} pruned" in text and "no driver" not in text

    search(tmp_path, Scripted(), trials=25)  # a search that came to its end can be made longer
    assert len(optuna.load_study(study_name="tiny", storage=storage).trials) == 25
    with pytest.raises(SombrlError, match="another sweep"):
        tune(
            spec(tmp_path, SEARCH, "gp.rank=4"),
            sweep,
            Scripted,
            trials=30,
            at_once=None,
            retries=0,
            command=["sombrl"],
        )


@pytest.mark.slow
def test_trials_are_real_runs_and_survive_the_driver(tmp_path):
    pytest.importorskip("optuna", reason="needs the extra `tune`")
    sweep = tmp_path / "sweep"
    text = "[search]\nbonus_weight = { low = 0.1, high = 100, log = true }\n"
    command = ["tune", write(tmp_path, TUNE + text), LEARNING, "--trials", "3", "--out", sweep]
    first = start(*command)
    wait_for(lambda: checkpointed(sweep / "cells" / "trial-0000"), first)
    first.kill()
    first.communicate()
    out, _ = finish(start(*command))
    assert "3 trials came to their end, 0 were stopped early" in out
    assert [len(events(sweep / "cells" / f"trial-{n:04d}", "started")) for n in range(3)] == [2, 1, 1]
    assert len({row.method for row in read_rows(sweep / "results.csv")}) == 3
