"""The regression on recordings: what it is given, what it counts, and that its page says what its files say."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import PolynomialFeatures

from sombrl.cli.main import main
from sombrl.dynamics.rc_car_prior import CarBodyFrame
from sombrl.paper.experiments import EXPERIMENTS, run_experiment
from sombrl.paper.experiments.rccar_real import drawn, logs_of, markdown, report
from sombrl.paper.recordings.car_models import regression
from sombrl.records import SombrlError
from sombrl.runs.plots import drawing
from sombrl.storage.results import read_rows
from tests.paper.recordings.recordings import drive, save, spiked

ROOT = Path(__file__).resolve().parents[3]
EXPERIMENT = EXPERIMENTS["rccar-real-regression"]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings")
    save(folder / "train_1.npz", spiked(drive(120, seed=1), 80))
    save(folder / "train_2.npz", drive(90, seed=2))
    return folder


@pytest.mark.thorough
def test_from_start_to_figure(recordings, tmp_path):
    places = {"out": tmp_path / "results", "runs": tmp_path / "runs", "data": [recordings]}
    cells = "persistence,ridge*,ensemble,fsvgd"
    path = run_experiment(EXPERIMENT, "smoke", pattern=cells, partial=True, **places)
    rows = read_rows(path)
    assert {row.method for row in rows} == {"persistence", "ridge-3", "ridge", "ensemble", "fsvgd"}
    assert {(row.decisions, row.seed) for row in rows} == {(12, 0), (12, 1), (88, 0), (88, 1)}
    assert len(path.with_suffix(".png").read_bytes()) > 10_000
    with drawing("a test"):
        assert len(EXPERIMENT.draw(rows).axes) == 4
    # RMSE of the ridge on all rows, by another library.
    train, test = logs_of(tuple(sorted(recordings.glob("*.npz"))), 3)
    frame, features = CarBodyFrame(past=3), PolynomialFeatures(2, include_bias=False)
    (x, y), (new, truth) = regression(frame, train), regression(frame, test)
    error = Ridge(3.0).fit(features.fit_transform(x), y).predict(features.transform(new)) - truth
    found = {row.metric: row.value for row in rows if row.method == "ridge-3" and row.decisions == 88 and row.seed == 0}
    assert found["rmse/omega"] == pytest.approx(np.sqrt(np.mean(error[:, 5] ** 2)), rel=1e-3)
    assert found["rmse"] == pytest.approx(
        np.sqrt(np.mean(np.sum(error**2, axis=1))), rel=1e-2
    )  # the chord, not the arc
    text = report(rows)
    assert "N = 88" in text and "better than ridge" in text


@pytest.mark.slow
def test_all_methods_learn_something(recordings, tmp_path):
    places = {"out": tmp_path / "results", "runs": tmp_path / "runs", "data": [recordings]}
    rows = read_rows(run_experiment(EXPERIMENT, "smoke", **places))
    assert {row.method for row in rows} == {cell.name for cell in EXPERIMENT.cells_at("smoke")}


def test_the_last_file_is_tested_on(recordings):
    first, second = sorted(recordings.glob("*.npz"))
    train, test = logs_of((first, second))
    assert (len(train), len(test)) == (120 - 30 - 2, 90 - 30)
    train, test = logs_of((first, second, first))
    assert (len(train), len(test)) == (88 + 60, 88)


def test_rows_are_drawn_in_the_order_of_time(recordings):
    train, _ = logs_of(tuple(sorted(recordings.glob("*.npz"))))
    some, others = drawn(train, 20, 0), drawn(train, 20, 1)
    assert len(set(some.row)) == 20 and list(some.row) == sorted(some.row)
    assert set(some.row) != set(others.row)
    assert drawn(train, None, 0) is train and drawn(train, 1000, 0) is train


def test_cells_know_the_contents_of_their_files_and_not_their_place(recordings, tmp_path):
    files = tuple(sorted(recordings.glob("*.npz")))
    copies = tuple(tmp_path / path.name for path in files)
    for path, copy in zip(files, copies, strict=True):
        copy.write_bytes(path.read_bytes())
    (cell, *_), (same, *_) = EXPERIMENT.cells_at("smoke", files), EXPERIMENT.cells_at("smoke", copies)
    assert cell.settings() == same.settings() and str(recordings) not in str(cell.settings())
    save(copies[1], drive(90, seed=3))
    assert cell.settings() != EXPERIMENT.cells_at("smoke", copies)[0].settings()


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("rccar-real-regression", [], "needs recordings of the car (docs/recordings.md): add --data PATH"),
        ("rccar-real-regression", ["nothing"], "is not enough to train and test on"),
        ("rccar-real-regression", ["empty"], "there is no npz file in empty"),
        ("rccar-real-regression", ["one/train_1.npz", "nothing.npz"], "there is no recording nothing.npz"),
        ("rccar-real-regression", ["one"], "give --data another one"),
        ("tolerance-reward", ["one"], "tolerance-reward reads no files: leave out --data"),
    ],
)
def test_without_good_files_it_is_a_sentence(name, data, sentence, recordings, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "train_1.npz").write_bytes((recordings / "train_1.npz").read_bytes())
    with pytest.raises(SystemExit) as stop:
        main(["experiment", name, "--scale", "smoke", *(["--data", *data] if data else [])])
    err = capsys.readouterr().err
    assert stop.value.code == 2 and sentence in err and err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "one"}


def test_a_run_of_zero_recordings_is_refused():
    with pytest.raises(SombrlError, match="add --data"):
        run_experiment(EXPERIMENT, "smoke")


def test_the_page_has_the_table_of_the_results():
    rows = read_rows(ROOT / "results" / "rccar-real-regression" / "small.csv")
    assert markdown(rows) in (ROOT / "docs" / "recordings.md").read_text()
