"""The metrics of several parts are those that one process would have written, whatever moment they are read at."""

import json

import pytest

from sombrl.records import SombrlError
from sombrl.storage.merged_metrics import MergedMetrics, first_missing
from sombrl.storage.run_folder import RunFolder

PARTS = ("parts/seeds-0-1", "parts/seed-2")


def row(iteration: int, seed: int) -> dict:
    return {"iteration": iteration, "seed": seed, "rollout/ep_rew_mean": iteration / 3 + seed}


@pytest.fixture
def run(tmp_path):
    run = RunFolder.create(tmp_path / "run", {}, [], PARTS)
    for part in run.parts:
        RunFolder.create(part.path, {}, [])
    return run


def test_a_run_knows_its_parts(run, tmp_path):
    opened = RunFolder.open(run.path)
    assert [part.path for part in opened.parts] == [run.path / name for name in PARTS]
    assert RunFolder.create(tmp_path / "plain", {}, []).parts == []
    (run.path / "group.json").write_text(json.dumps({"parts": ["../../elsewhere"]}))
    with pytest.raises(SombrlError, match=r"group\.json is damaged"):
        RunFolder.open(run.path).parts  # noqa: B018


def test_an_iteration_is_merged_when_all_parts_have_it(run):
    pair, single = run.parts
    merged = MergedMetrics(run.parts, [2, 1])
    assert list(merged.new()) == []
    pair.append([row(0, 0), row(0, 1)])
    pair.append([row(1, 0)])  # a kill has cut the other row off
    assert list(merged.new()) == []
    single.append([row(0, 2), row(1, 2)])
    assert list(merged.new()) == [[[row(0, 0), row(0, 1)], [row(0, 2)]]]
    pair.truncate(1)
    pair.append([row(1, 0), row(1, 1)])
    with open(pair.metrics_path, "a") as file:
        file.write('{"iteration": 2, "se')
    assert list(merged.new()) == [[[row(1, 0), row(1, 1)], [row(1, 2)]]]
    assert list(merged.new()) == [] and merged.next == 2


def test_a_part_that_goes_back_to_its_checkpoint_adds_nothing_twice(run):
    pair, single = run.parts
    merged = MergedMetrics(run.parts, [2, 1])
    for n in range(3):
        pair.append([row(n, 0), row(n, 1)])
        single.append([row(n, 2)])
    assert len(list(merged.new())) == 3
    pair.truncate(1)
    for n in range(1, 4):
        pair.append([row(n, 0), row(n, 1)])
    single.append([row(3, 2)])
    assert list(merged.new()) == [[[row(3, 0), row(3, 1)], [row(3, 2)]]]


def test_half_an_iteration_at_the_top_is_written_again(run):
    run.append([row(n, seed) for n in range(2) for seed in range(3)] + [row(2, 0)])
    assert first_missing(run, 3) == 2
    for n in range(3):
        run.parts[0].append([row(n, 0), row(n, 1)])
        run.parts[1].append([row(n, 2)])
    run.truncate(2)
    for parts in MergedMetrics(run.parts, [2, 1], 2).new():
        run.append([one for part in parts for one in part])
    assert run.rows() == [row(n, seed) for n in range(3) for seed in range(3)]
