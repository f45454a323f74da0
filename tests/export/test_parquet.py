"""Results as Parquet: the CSV's columns and numbers, with types."""

import csv
import sys

import pytest

from sombrl.cli.main import main
from sombrl.storage.results import COLUMNS
from sombrl.storage.run_folder import RunFolder


@pytest.fixture
def run(tmp_path):
    config = {"algorithm": "mbpo", "config": {"explore": {"explore": "pets"}}, "run": {"env": "Pendulum-v1"}}
    folder = RunFolder.create(tmp_path / "run", config, ["test"])
    rows = [
        {"iteration": n, "seed": seed, "env_frames": 200 * n, "decisions": 100 * n, "rollout/ep_rew_mean": value}
        for n, value in enumerate([0.1 + 0.2, -1e-300, float("nan")])
        for seed in (3, 4)
    ]
    folder.append([row | {"model/rmse": 1.5} for row in rows])
    return folder.path


def test_the_columns_of_the_csv_with_types(run, tmp_path, capsys):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs sombrl[parquet]")
    for name in ("x.csv", "x.parquet"):
        main(["export", str(run), "--out", str(tmp_path / name), "--experiment", "trial"])
    table = parquet.read_table(tmp_path / "x.parquet")
    assert tuple(table.column_names) == COLUMNS
    kinds = {field.name: str(field.type) for field in table.schema}
    assert {kinds[name] for name in ("experiment", "method", "env", "setting", "metric")} == {"string"}
    assert {kinds[name] for name in ("seed", "env_frames", "decisions")} == {"int64"} and kinds["value"] == "double"
    lines = list(csv.DictReader((tmp_path / "x.csv").open()))
    assert len(lines) == table.num_rows == 10  # what is not a number is left out
    for line, row in zip(lines, table.to_pylist(), strict=True):
        assert {name: str(value) for name, value in row.items()} == line
    with pytest.raises(SystemExit) as stop:
        main(["export", str(run), "--out", str(tmp_path / "x.parquet")])
    assert stop.value.code == 2 and "is there already" in capsys.readouterr().err


def test_without_the_package_it_is_one_sentence(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SystemExit) as stop:
        main(["export", str(run), "--out", str(tmp_path / "x.parquet")])
    assert stop.value.code == 2 and "pip install 'sombrl[parquet]'" in capsys.readouterr().err
    assert not (tmp_path / "x.parquet").exists()
