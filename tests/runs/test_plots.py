"""`sombrl plot`: the curves are the metrics, for whole, unfinished, short and single-seed runs."""

import json
import sys

import numpy as np
import pytest

from sombrl.records import SombrlError
from sombrl.runs.plots import RETURN, _figure, _labels, _rows, curves, plot_runs
from sombrl.storage.run_folder import RunFolder

METRICS = ("explore/mean_std", "explore/bonus_share", "model/rmse", "model/coverage")


def make_run(path, strategy="optimistic", seeds=3, episodes=4, metrics=METRICS, env="mountain-car"):
    """A run folder with made-up numbers: return = 10 · episode + seed."""
    config = {"algorithm": "gp-icem", "config": {"explore": {"explore": strategy}}, "run": {"env": env}}
    folder = RunFolder.create(path, config, ["test"])
    for n in range(episodes):
        frames = {"iteration": n, "env_frames": 200 * (n + 1)}
        rows = [frames | {"seed": s, RETURN: 10.0 * n + s} | {name: 0.1 * n for name in metrics} for s in range(seeds)]
        folder.append(rows)
    return path


def drawn(*runs):
    """The axes of the figure of these runs."""
    folders = [RunFolder.open(run) for run in runs]
    return _figure(folders, [_rows(folder) for folder in folders]).axes


def median_line(axes, label):
    line = next(line for line in axes.lines if line.get_label() == label)
    return line.get_xdata(), line.get_ydata()


def test_the_median_line_is_the_median_of_the_metrics(tmp_path):
    main, *small = drawn(make_run(tmp_path / "a"))
    x, y = median_line(main, "optimistic")
    np.testing.assert_array_equal(x, [200, 400, 600, 800])
    np.testing.assert_array_equal(y, [1, 11, 21, 31])
    assert main.get_xlabel() == "environment frames (decisions × action repeat)"
    assert len(small) == 4
    np.testing.assert_allclose(median_line(small[0], "optimistic")[1], [0, 0.1, 0.2, 0.3])
    thin = [line for line in main.lines if line.get_linewidth() < 1]
    np.testing.assert_array_equal(sorted(line.get_ydata()[0] for line in thin), [0, 1, 2])
    (band,) = main.collections
    assert band.get_paths()[0].get_extents().height == pytest.approx(31)  # from 0.5 to 31.5


def test_runs_of_different_lengths_seeds_and_strategies(tmp_path):
    runs = [
        make_run(tmp_path / "a"),
        make_run(tmp_path / "b", "greedy", seeds=1, episodes=1),
        make_run(tmp_path / "c", "pets", episodes=40, metrics=()),
    ]
    main, *_ = drawn(*runs)
    assert [text.get_text() for text in main.get_legend().get_texts()] == ["optimistic", "greedy", "pets"]
    assert len(median_line(main, "greedy")[0]) == 1 and len(median_line(main, "pets")[0]) == 40
    colors = {line.get_color() for line in main.lines}
    assert len(colors) == 3


def test_unfinished_iterations_and_missing_numbers(tmp_path):
    path = make_run(tmp_path / "a", seeds=2, episodes=2)
    with open(path / "metrics.jsonl", "a") as file:
        row = {"iteration": 2, "seed": 0, "env_frames": 600, RETURN: 7.0, "model/rmse": None}
        file.write(json.dumps(row) + "\n" + '{"iteration": 3, "se')  # a killed writer
    rows = _rows(RunFolder.open(path))
    frames, values = curves(rows, RETURN)
    np.testing.assert_array_equal(values, [[0, 1], [10, 11], [7, np.nan]])
    np.testing.assert_array_equal(frames[2], [600, np.nan])
    main, *small = drawn(path)
    np.testing.assert_array_equal(median_line(main, "optimistic")[1], [0.5, 10.5, 7.0])
    assert len(median_line(small[2], "optimistic")[0]) == 2


def test_metrics_that_no_run_has_get_no_panel(tmp_path):
    assert len(drawn(make_run(tmp_path / "a", metrics=("model/rmse",)))) == 2
    assert len(drawn(make_run(tmp_path / "b", metrics=()))) == 1


def test_labels_tell_runs_apart(tmp_path):
    (tmp_path / "x").mkdir()
    runs = [make_run(tmp_path / name) for name in ("a", "b", "x/a")]
    folders = [RunFolder(run) for run in runs]
    assert _labels(folders[:2]) == ["optimistic (a)", "optimistic (b)"]
    assert len(set(_labels(folders))) == 3


def test_pictures_are_written(tmp_path):
    from PIL import Image

    run = make_run(tmp_path / "a")
    assert plot_runs([run, run], None) == run / "plots" / "learning.png"
    with Image.open(run / "plots" / "learning.png") as picture:
        assert picture.width > 1000 and len(np.unique(np.asarray(picture.convert("L")))) > 10
    svg = plot_runs([run], tmp_path / "new" / "p.svg").read_text()
    assert "environment frames" in svg
    plot_runs([run], None)  # drawn again: a plot is not data
    with pytest.raises(SombrlError, match=r"p\.svg is there already: delete it or choose another --out"):
        plot_runs([run], tmp_path / "new" / "p.svg")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["p.svg"]


def test_refusals(tmp_path, monkeypatch):
    run = make_run(tmp_path / "a")
    with pytest.raises(SombrlError, match="at least one run"):
        plot_runs([], None)
    with pytest.raises(SombrlError, match="there is no run"):
        plot_runs([tmp_path / "none"], None)
    with pytest.raises(SombrlError, match="no metrics yet"):
        plot_runs([make_run(tmp_path / "b", episodes=0)], None)
    with pytest.raises(SombrlError, match=r"\.png"):
        plot_runs([run], run / "metrics.jsonl")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SombrlError, match=r"needs matplotlib: pip install 'sombrl\[report\]'"):
        plot_runs([run], None)
