"""Finished rows go into the table of their experiment; what is there of other cells stays, and is known as done."""

import json
import tomllib
from pathlib import Path

import pytest

from sombrl.cli.main import main
from sombrl.paper.campaign.merge import SETTINGS, merge
from sombrl.paper.campaign.place import RUNS
from sombrl.paper.campaign.spec import campaign_of
from sombrl.paper.campaign.work import Work
from sombrl.paper.experiments import EXPERIMENTS
from sombrl.paper.experiments.runner import run_experiment
from sombrl.records import SombrlError
from sombrl.runs.cell_folder import CellFolder
from sombrl.storage.results import read_rows
from sombrl.sweep.machine import Machine, Room

TEXT = "[[cell]]\nexperiment = 'tolerance-reward'\nscale = 'smoke'\ncells = '{}'\nminutes = 1\n"
NAME = "tolerance-reward"


def folders(runs: Path, *names: str) -> list[CellFolder]:
    """Finished cells of an experiment whose cells are functions."""
    cells = {cell.name: cell for cell in EXPERIMENTS[NAME].cells_at("smoke")}
    found = [CellFolder(runs / f"{NAME}-smoke" / name, NAME, cells[name]) for name in names]
    for folder in found:
        folder.complete(["sombrl"])
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The table that `sombrl experiment` writes."""
    place = tmp_path_factory.mktemp("whole")
    path = run_experiment(EXPERIMENTS[NAME], "smoke", out=place / "results", runs=place / "runs")
    assert path is not None
    return path


def test_in_two_steps_it_is_the_whole_table(whole, tmp_path):
    results = tmp_path / "results"
    merge(NAME, "smoke", folders(tmp_path / "a", "factor-20", "factor-10", "factor-5"), results, ["sombrl"])
    path = merge(NAME, "smoke", folders(tmp_path / "b", "factor-2", "factor-1"), results, ["sombrl"])
    assert path.read_bytes() == whole.read_bytes()
    assert path.with_suffix(".png").read_bytes() == whole.with_suffix(".png").read_bytes()
    manifest = json.loads(path.with_suffix(".json").read_text())
    assert list(manifest["cells"]) == list(json.loads(whole.with_suffix(".json").read_text())["cells"])
    assert all(len(record[SETTINGS]) == 64 for record in manifest["cells"].values())


def test_rows_of_the_same_cell_are_replaced(whole, tmp_path):
    path = tmp_path / "results" / NAME / "smoke.csv"
    path.parent.mkdir(parents=True)
    lines = whole.read_text().splitlines(keepends=True)
    path.write_text("".join(line.rpartition(",")[0] + ",99.5\n" if i else line for i, line in enumerate(lines)))
    merge(NAME, "smoke", folders(tmp_path / "a", "factor-20"), tmp_path / "results", ["sombrl"])
    rows = read_rows(path)
    assert len(rows) == len(lines) - 1
    assert all((row.value == 99.5) == (row.method != "factor-20") for row in rows)


def test_merging_again_writes_nothing(tmp_path):
    own = folders(tmp_path / "a", "factor-20")
    path = merge(NAME, "smoke", own, tmp_path / "results", ["sombrl"])
    before = [(one, one.stat().st_mtime_ns) for one in sorted(path.parent.iterdir())]
    merge(NAME, "smoke", own, tmp_path / "results", ["sombrl"])
    assert before == [(one, one.stat().st_mtime_ns) for one in sorted(path.parent.iterdir())]


def work(folder: Path, cells: str = "*", text: str = TEXT) -> Work:
    campaign = campaign_of(Path("c.toml"), tomllib.loads(text.format(cells)))
    return Work(campaign, folder / "campaign", folder / "results", ["sombrl", "sweep", "c.toml"])


def test_a_machine_that_has_only_the_results_knows_what_is_done(tmp_path):
    merge(NAME, "smoke", folders(tmp_path / "elsewhere", "factor-20", "factor-5"), tmp_path / "results", ["sombrl"])
    here = work(tmp_path)
    assert [todo.task.cells[0] for todo in here.todos(measured=True)] == ["factor-10", "factor-2", "factor-1"]
    assert "results have it already" in here.table({}, Room(Machine("two cores", 2, (8.0,))), 25.0)


def test_rows_made_with_other_settings_do_not_count(tmp_path):
    path = merge(NAME, "smoke", folders(tmp_path / "elsewhere", "factor-20"), tmp_path / "results", ["sombrl"])
    manifest = json.loads(path.with_suffix(".json").read_text())
    manifest["cells"]["factor-20"][SETTINGS] = "0" * 64
    path.with_suffix(".json").write_text(json.dumps(manifest))
    assert len(work(tmp_path).todos(measured=True)) == 5
    path.with_suffix(".json").write_text("{")
    with pytest.raises(SombrlError, match="restore it from a copy"):
        work(tmp_path)


def test_a_damaged_table_is_refused_at_the_start(tmp_path):
    path = merge(NAME, "smoke", folders(tmp_path / "elsewhere", "factor-20"), tmp_path / "results", ["sombrl"])
    path.write_text(path.read_text()[:-5])
    with pytest.raises(SombrlError, match=r"damaged|ends in the middle"):
        work(tmp_path)


def test_cells_of_other_settings_in_the_folder_are_refused(tmp_path):
    own = work(tmp_path, "factor-20")
    own.paces["x"].minutes = 1.0
    own.paces.save()
    (folder,) = folders(tmp_path / "campaign" / RUNS, "factor-20")
    settings = json.loads((folder.path / "settings.json").read_text())
    (folder.path / "settings.json").write_text(json.dumps(settings | {"options": {"points": 7}}))
    with pytest.raises(SombrlError, match="made with other settings"):
        work(tmp_path, "factor-20")


@pytest.mark.thorough
def test_a_campaign_of_functions_from_the_command_line(whole, tmp_path, monkeypatch, capsys):
    """Workers, table, status and what is next, in seconds: nothing is compiled."""
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(TEXT.format("*"))
    command = ["sweep", "c.toml", "--minutes", "3"]
    main(command)
    out = capsys.readouterr().out
    assert "0 of 5 are finished, on this machine" in out and "all is finished" in out
    assert (Path("results") / NAME / "smoke.csv").read_bytes() == whole.read_bytes()
    main(["status", "sweeps/c"])
    assert "5 of 5 cells done" in capsys.readouterr().out
    Path("sweeps/c").rename("elsewhere")
    main(["status", "elsewhere"])
    assert "5 of 5 cells done" in capsys.readouterr().out
    main([*command, "--out", "elsewhere"])
    assert "5 of 5 are finished" in capsys.readouterr().out
