"""Tables of results: what is written is read again, a spreadsheet runs none of it, and one bad run spoils no table."""

import csv
import io
import json

import pytest

from sombrl.records import SombrlError
from sombrl.storage.results import Row, export_runs, read_rows, rows_text
from tests.report.examples import write_run


@pytest.mark.parametrize(
    "env", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\tx", "'=x", "''=x", "'plain", "Pendulum-v1"]
)
def test_no_cell_is_a_formula_and_every_text_comes_back(tmp_path, env):
    """A spreadsheet takes what begins with one of these for a formula, unless a quote is before it."""
    row = Row("x", "m", env, "s", 0, "rollout/ep_rew_mean", 1, 1, -2.5)
    path = tmp_path / "x.csv"
    path.write_text(rows_text([row]))
    cells = next(csv.reader(io.StringIO(path.read_text().split("\n", 1)[1])))
    assert not cells[2].startswith(("=", "+", "-", "@", "\t")) and cells[-1] == "-2.5"
    assert read_rows(path) == [row]


def damaged(path):
    run = write_run(path)
    config = json.loads((run / "config.json").read_text())
    config["run"]["env"] = "lone\ud800surrogate"
    (run / "config.json").write_text(json.dumps(config))
    return run


def test_a_run_that_cannot_be_read_is_left_out_and_named(tmp_path, capsys):
    runs = [damaged(tmp_path / "half"), write_run(tmp_path / "whole")]
    rows = read_rows(export_runs(runs, tmp_path / "x.csv", "trial"))
    assert {row.env for row in rows} == {"pendulum"}
    assert read_rows(export_runs(runs[1:], tmp_path / "y.csv", "trial")) == rows
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith("sombrl: left out: ") and "half/config.json is damaged" in err


def test_where_none_can_be_read_nothing_is_written(tmp_path):
    with pytest.raises(SombrlError, match="is not a text file"):
        export_runs([damaged(tmp_path / "half")], tmp_path / "x.csv", "trial")
    with pytest.raises(SombrlError, match="there is no run"):  # a slip of the keyboard
        export_runs([write_run(tmp_path / "whole"), tmp_path / "wohle"], tmp_path / "x.csv", "trial")
    with pytest.raises(SombrlError, match="there is nothing to export"):
        export_runs([], tmp_path / "x.csv", "trial")
    assert not (tmp_path / "x.csv").exists()


def test_no_file_of_a_run_is_read_through_a_link(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "metrics.jsonl").rename(tmp_path / "elsewhere")
    (run / "metrics.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SombrlError, match="is a link"):
        export_runs([run], tmp_path / "x.csv", "trial")
