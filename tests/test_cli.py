"""Bad input is one sentence and exit code 2; nothing half-written is left, nothing existing overwritten."""

import csv
import json
import shutil

import numpy as np
import pytest

from sombrl.cli import main
from sombrl.results import read_rows
from tests.small import SMALL_FLAGS, call


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ("tarin", 'did you mean "train"'),
        ("train gp-cem", 'did you mean "gp-icem"'),
        ("train gp-icem --env Pendulum-v7", "Pendulum-v1"),
        ("train gp-icem --env nowhere:Id-v0", "nowhere"),
        ("train gp-icem --explore optimstic", 'did you mean "optimistic"'),
        ("train gp-icem --preset lihgt", 'did you mean "light"'),
        ("train gp-icem --env CartPole-v1", "Discrete"),
        ("train gp-icem --bonus-weight -1", "--bonus-weight must be a finite number"),
        ("train gp-icem --bonus-weight nan", "--bonus-weight must be a finite number"),
        ("train gp-icem --explore hucrl --beta -2", "--beta must be a finite number"),
        ("train gp-icem --gp.capacity 100", "raise --gp.capacity"),
        ("train gp-icem --icem.num-elites 500", "num_elites"),
        ("train gp-icem --seeds 0", "--seeds must be at least 1"),
        ("train gp-icem --episodes 0", "--episodes must be at least 1"),
        ("train gp-icem --env mountain-car --env-kwargs slope=3", "slope"),
        ("train gp-icem --env mountain-car --env-kwargs slope", "name=value"),
        ("train gp-icem --env-kwargs max_spede=3", "max_spede"),
        ("train gp-icem --action-cost nan", "action_cost"),
        ("train gp-icem --setting discounted --discount 1", "strictly between 0 and 1"),
        ("train gp-icem --setting non-episodic --update-every 0", "--update-every must be at least 1"),
        ("export nowhere --out x.csv", "there is no run nowhere"),
        ("resume nowhere", "there is no run nowhere"),
        ("eval nowhere", "there is no run nowhere"),
        ("plot nowhere", "nowhere"),
        ("list alogrithms", 'did you mean "algorithms"'),
        ("check-env Pendulum-v7", "Pendulum-v1"),
    ],
)
def test_bad_input(argv, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(argv.split(), capsys)
    assert code == 2
    assert sentence in err and err.startswith("sombrl: ") and err.count("\n") == 1
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("argv", ["train gp-icem --bonus-wieght 3", "resume x --gp.rank 3", "train gp-icem --seeds x"])
def test_unknown_flags_and_types_are_refused_by_the_parser(argv, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(argv.split(), capsys)
    assert code == 2 and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "p"
    main(
        ["train", "gp-icem", "--env", "pendulum", "--seeds", "2", "--episodes", "2", "--out", str(folder), *SMALL_FLAGS]
    )
    return folder


def test_train_writes_a_run(run, capsys):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [(row["iteration"], row["seed"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert rows[-1]["decisions"] == rows[-1]["env_frames"] == 12
    for name in ("rollout/ep_rew_mean", "explore/bonus_weight", "explore/bonus_share", "model/nll", "time/fps"):
        assert np.isfinite(rows[-1][name])
    config = json.loads((run / "config.json").read_text())
    assert config["config"]["gp"]["rank"] == 8 and config["run"]["seeds"] == 2
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"00000001", "00000002"}
    assert any((run / "tensorboard" / "seed_1").iterdir())


def test_export_writes_every_number_once(run, capsys, tmp_path):
    out = tmp_path / "results" / "p.csv"
    code, _, _ = call(["export", str(run), "--out", str(out), "--experiment", "trial"], capsys)
    assert code == 0
    table = list(csv.DictReader(out.open()))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    returns = [float(row["value"]) for row in table if row["metric"] == "rollout/ep_rew_mean"]
    assert returns == [row["rollout/ep_rew_mean"] for row in rows]
    assert {row["method"] for row in table} == {"gp-icem/optimistic"} and table[0]["setting"] == "finite-horizon"
    code, _, err = call(["export", str(run), "--out", str(out)], capsys)
    assert code == 2 and "there already" in err


def test_export_leaves_out_what_was_not_measured(run, capsys, tmp_path):
    """Where no episode ended since the last report its return is null."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    first, *rest = (copy / "metrics.jsonl").read_text().splitlines()
    row = json.loads(first) | {"rollout/ep_rew_mean": None}
    (copy / "metrics.jsonl").write_text("\n".join([json.dumps(row), *rest]) + "\n")
    assert call(["export", str(copy), "--out", str(tmp_path / "x.csv")], capsys)[0] == 0
    returns = [row for row in read_rows(tmp_path / "x.csv") if row.metric == "rollout/ep_rew_mean"]
    assert len(returns) == len(rest)


def test_an_existing_run_is_refused(run, capsys):
    before = sorted((path, path.stat().st_mtime_ns) for path in run.rglob("*"))
    code, _, err = call(["train", "gp-icem", "--env", "pendulum", "--out", str(run), *SMALL_FLAGS], capsys)
    assert code == 2 and "sombrl resume" in err
    assert sorted((path, path.stat().st_mtime_ns) for path in run.rglob("*")) == before


def test_resume_of_a_complete_run_says_so_and_more_episodes_are_honoured(run, capsys):
    code, _, err = call(["resume", str(run)], capsys)
    assert code == 2 and "complete" in err
    code, _, err = call(["resume", str(run), "--episodes", "1"], capsys)
    assert code == 2 and "already has 2" in err
    code, _, err = call(["resume", str(run), "--episodes", "3"], capsys)
    assert code == 0
    assert json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["iteration"] == 2


def test_eval_and_lists_print_something_true(run, capsys):
    code, out, _ = call(["eval", str(run), "--episodes", "1"], capsys)
    assert code == 0 and "median" in out
    for what, name in (("algorithms", "gp-icem"), ("explorations", "thompson"), ("envs", "mountain-car")):
        code, out, _ = call(["list", what], capsys)
        assert code == 0 and name in out
    code, out, _ = call(["check-env", "pendulum"], capsys)
    assert code == 0
    code, out, _ = call(["--help"], capsys)
    assert code == 0 and "resume" in out
    code, out, _ = call(["train", "gp-icem", "--help"], capsys)
    assert code == 0 and "--gp.noise-std" in out and "0.03" in out
