"""A report finds runs, cells and tables wherever they lie, and says what it could not read."""

import json

import numpy as np
import pytest

from sombrl.records import SombrlError
from sombrl.report.loading import ITERATIONS, Key, find
from tests.report.examples import curve, write_run, write_table


def test_run_is_read_as_it_was_written(tmp_path):
    write_run(tmp_path / "runs" / "a", seeds=(3, 4), films=True)
    (source,) = find([tmp_path]).sources
    record = source.records[Key("gp-icem/optimistic", "pendulum", "finite-horizon", "rollout/ep_rew_mean", 4)]
    np.testing.assert_array_equal(record.frames, 20.0 * np.arange(1, 11))
    np.testing.assert_array_equal(record.decisions, 10.0 * np.arange(1, 11))
    np.testing.assert_array_equal(record.values, curve(1.0, 4, 10))
    assert {key.seed for key in source.records} == {3, 4}
    assert [file.name for file in source.media] == ["swing.gif"]


def test_table_is_read_with_the_manifest_beside_it(tmp_path):
    write_table(tmp_path / "results" / "toy" / "small.csv", tasks=2)
    (source,) = find([tmp_path]).sources
    assert source.comparison == "toy · small"
    assert source.cells["world/optimistic"]["seconds"] == 12.5
    record = source.records[Key("greedy", "world-1", "finite-horizon", "rollout/ep_rew_mean", 2)]
    np.testing.assert_array_equal(record.values, curve(1.0, 2, 12))


def test_what_cannot_be_read_is_skipped_with_the_reason(tmp_path):
    write_run(tmp_path / "whole")
    (write_run(tmp_path / "no-manifest") / "manifest.json").unlink()
    (write_run(tmp_path / "no-metrics") / "metrics.jsonl").unlink()
    (write_run(tmp_path / "bad-line") / "metrics.jsonl").write_text("{}\nnonsense\n")
    (write_run(tmp_path / "no-seeds") / "metrics.jsonl").write_text('{"reward": 1}\n')
    (write_run(tmp_path / "bad-config") / "config.json").write_text('{"run": 1}')
    (write_run(tmp_path / "bad-eval") / "eval.json").write_text("[1, 2]")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    cut = write_table(tmp_path / "cut.csv")
    cut.write_text(cut.read_text()[:-5])
    found = find([tmp_path])
    assert [source.path.name for source in found.sources] == ["whole"]
    reasons = {path.name: reason for path, reason in found.skipped}
    assert set(reasons) == {
        *("no-manifest", "no-metrics", "bad-line", "no-seeds", "bad-config", "bad-eval", "other.csv", "cut.csv")
    }
    assert "no manifest.json" in reasons["no-manifest"]
    assert "no metrics yet" in reasons["no-metrics"]
    assert "line 2" in reasons["bad-line"]
    assert "not a table of results" in reasons["other.csv"]


def test_half_written_last_line_is_ignored(tmp_path):
    run = write_run(tmp_path / "run", seeds=(0,))
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"iteration": 10, "se')
    (source,) = find([run]).sources
    assert all(len(record.values) == 10 for record in source.records.values())


def test_null_metrics_leave_a_gap(tmp_path):
    run = write_run(tmp_path / "run", seeds=(0,), episodes=1)
    row = {"iteration": 1, "seed": 0, "decisions": 20, "env_frames": 40, "rollout/ep_rew_mean": None, "model/rmse": 2}
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")
    (source,) = find([run]).sources
    lengths = {key.metric: len(record.values) for key, record in source.records.items()}
    assert (lengths["rollout/ep_rew_mean"], lengths["model/rmse"]) == (1, 1)


def test_run_without_frames_counts_iterations(tmp_path):
    write_run(tmp_path / "run", counted=False)
    (source,) = find([tmp_path]).sources
    assert source.axis == ITERATIONS


def test_cell_of_an_experiment_uses_the_experiments_names(tmp_path):
    cell = tmp_path / "toy-small" / "pendulum" / "run-1"
    write_run(cell / "run", seeds=(0, 1), episodes=4)
    (cell / "settings.json").write_text(json.dumps({"experiment": "toy", "method": "ours", "env": "pendulum c=1"}))
    (cell / "evaluations").mkdir()
    (cell / "evaluations" / "00000002.json").write_text(json.dumps({"eval/ep_rew_mean": [5.0, 6.0]}))
    (source,) = find([tmp_path]).sources
    assert source.comparison == "toy · small (cells)"
    record = source.records[Key("ours", "pendulum c=1", "finite-horizon", "eval/ep_rew_mean", 1)]
    assert (record.frames.tolist(), record.decisions.tolist(), record.values.tolist()) == ([40.0], [20.0], [6.0])


def test_sweep_is_read_from_its_cells_and_not_from_its_table(tmp_path):
    cell = tmp_path / "cells" / "pendulum" / "optimistic"
    write_run(cell / "run")
    (cell / "settings.json").write_text(json.dumps({"experiment": "weights", "method": "ours", "env": "pendulum"}))
    (cell / "finished.json").write_text(json.dumps({"seconds": 3.0, "versions": {"sombrl": "0.1.0"}}))
    (tmp_path / "sweep.json").write_text("{}")
    write_table(tmp_path / "results.csv", experiment="weights")
    (source,) = find([tmp_path]).sources
    assert (source.comparison, source.path) == ("weights", cell)
    assert source.cells == {"pendulum/optimistic": {"seconds": 3.0, "versions": {"sombrl": "0.1.0"}}}


def test_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SombrlError, match="there is no"):
        find([tmp_path / "nowhere"])
