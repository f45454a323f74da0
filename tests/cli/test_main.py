"""Bad input is one sentence and exit code 2; nothing half-written is left, nothing existing overwritten."""

import csv
import json
import shutil
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from sombrl.cli.app import COMMANDS, main
from sombrl.storage.results import read_rows
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
        ("train gp-icem --icem.num-elites 500", "--icem.num-elites 500 must not exceed --icem.num-samples 200"),
        ("train gp-icem --seeds 0", "--seeds must be at least 1, not 0: it is how many to train, from --seed on"),
        ("train gp-icem --seeds 1000000000000", "train at most 10000 together"),
        ("train gp-icem --seed -1", "--seed must be from 0 to 2147483647"),
        ("train gp-icem --seed 2147483648", "--seed must be from 0 to 2147483647"),
        ("train gp-icem --seed 2147483647 --seeds 2", "the last of them below 2147483648"),
        ("train dreamer --decisions 0", "--decisions must be at least 1, not 0: leave it out"),
        ("train dreamer --report-every 0", "--report-every must be at least 1, not 0: it is in decisions"),
        ("train dreamer --env-workers -1", "0 steps the environments in turn"),
        ("train dreamer --envs 0", "--envs must be at least 1"),
        ("train gp-icem --episodes 0", "--episodes must be at least 1"),
        ("train gp-icem --env mountain-car --env-kwargs slope=3", "slope"),
        ("train gp-icem --env mountain-car --env-kwargs slope", "name=value"),
        ("train gp-icem --env-kwargs max_spede=3", "max_spede"),
        ("train gp-icem --action-cost nan", "--action-cost"),
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
    table = list(csv.DictReader(out.read_text().splitlines()))
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


@pytest.mark.thorough
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
    code, out, _ = call(["train", "gp-icem", "--help-all"], capsys)
    assert code == 0 and "--gp.noise-std" in out and "0.03" in out


def test_ctrl_c_stops_also_where_python_drops_it(capsys, monkeypatch):
    class Leaving:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def command(argv):
        Leaving()
        threading.Event().wait(20)  # it never comes: an interrupt alone ends this early

    monkeypatch.setitem(COMMANDS, "doctor", command)
    old = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores Ctrl-C
    try:
        code, _, err = call(["doctor"], capsys)
    finally:
        signal.signal(signal.SIGINT, old)
    assert (code, err) == (130, "sombrl: stopped.\n")


def _damage(run, tmp_path, file, *where, value):
    """A copy of a run with one value of one file replaced."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    content = {"": json.loads((copy / file).read_text())}
    part = content
    for name in ("", *where)[:-1]:
        part = part[name]
    part[("", *where)[-1]] = value
    (copy / file).write_text(json.dumps(content[""]))
    return copy


READERS = ["resume", "eval", "plot", "export", "report", "export-policy"]


@pytest.mark.parametrize(
    ("where", "value", "sentence", "commands"),
    [
        ((), [], "holds no JSON object", READERS),
        ((), {}, "'algorithm'", ["resume", "eval", "plot", "export", "export-policy"]),
        (("algorithm",), 3, "no text under 'algorithm'", ["resume", "eval", "plot", "export", "export-policy"]),
        (
            ("algorithm",),
            "gp-cem",
            'config.json: unknown algorithm "gp-cem": did you mean "gp-icem"',
            ["resume", "eval"],
        ),
        (("run",), [], "no JSON object under 'run'", ["resume", "plot", "export"]),
        (("run", "env"), 3, "no text under 'run.env'", ["resume", "plot", "export"]),
        (("run", "env"), "pendulm", 'did you mean "pendulum"', ["resume"]),
        (
            ("run", "seeds"),
            "x",
            "the setting 'seeds' must be a whole number of at least 1, not 'x'",
            ["resume", "eval"],
        ),
        (("run", "seeds"), 10**30, "train at most 10000", ["resume"]),
        (("run", "setting"), "x", "must be one of finite-horizon", ["resume"]),
        (("run", "env_kwargs"), 3, "the setting 'env_kwargs' must be a list", ["resume", "report"]),
        (("run", "action_cost"), True, "the setting 'action_cost' must be a finite number of at least 0", ["resume"]),
        (("run", "new"), 3, "the setting 'new' is not known", ["resume"]),
        (("config", "explore"), 3, "no JSON object under 'config.explore'", ["resume", "plot", "export"]),
        (("config", "gp"), [], "the setting 'gp' must be a JSON object", ["resume"]),
        (("config", "gp", "rank"), None, "the setting 'gp.rank' must be a whole number", ["resume"]),
    ],
)
def test_a_damaged_config_is_named(where, value, sentence, commands, run, capsys, tmp_path, monkeypatch):
    copy = _damage(run, tmp_path, "config.json", *where, value=value)
    monkeypatch.chdir(tmp_path)
    outs = {"plot": "o.png", "export": "o.csv", "report": "o.html", "export-policy": "o"}
    for command in commands:
        code, _, err = call([command, "copy", *(("--out", outs[command]) if command in outs else ())], capsys)
        assert code == 2 and err.count("\n") == 1 and "config.json" in err, (command, err)
        assert sentence in err or command == "report", (command, err)
    assert list(tmp_path.iterdir()) == [copy]


@pytest.mark.parametrize(
    ("file", "where", "value"),
    [
        ("manifest.json", (), []),
        ("manifest.json", ("versions",), 3),
        ("manifest.json", ("versions", "sombrl"), {}),
        ("manifest.json", ("git", "commit"), 3),
        ("manifest.json", ("command",), 5),
        ("manifest.json", ("device",), 1),
        ("manifest.json", ("created",), [1]),
        ("eval.json", (0, "returns", "0"), "x"),
        ("eval.json", (0, "settings"), 3),
    ],
)
def test_a_report_names_a_damaged_file(file, where, value, run, capsys, tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    shutil.copytree(run, whole)
    (whole / "eval.json").write_text(json.dumps([{"settings": {"episodes": 1}, "returns": {"0": [1.0]}}]))
    copy = _damage(whole, tmp_path, file, *where, value=value)
    code, _, err = call(["report", str(copy), "--out", str(tmp_path / "o.html")], capsys)
    assert code == 2 and err.count("\n") == 1 and file in err, err
    code, _, _ = call(["report", str(copy), str(whole), "--out", str(tmp_path / "o.html")], capsys)
    assert code == 0 and file in (tmp_path / "o.html").read_text()


@pytest.mark.parametrize(
    ("name", "value"), [("iteration", None), ("seed", "x"), ("env_frames", []), ("decisions", 0.5)]
)
def test_a_damaged_row_is_named(name, value, run, capsys, tmp_path, monkeypatch):
    shutil.copytree(run, tmp_path / "copy")
    monkeypatch.chdir(tmp_path)
    first, *rest = (run / "metrics.jsonl").read_text().splitlines()
    rows = [json.dumps(json.loads(first) | {name: value}), *rest]
    (tmp_path / "copy" / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    for command in ("plot copy --out o.png", "export copy --out o.csv", "report copy --out o.html"):
        code, _, err = call(command.split(), capsys)
        assert code == 2 and err.count("\n") == 1 and "line 1 of copy/metrics.jsonl" in err, err


def test_a_path_through_a_file_is_refused(run, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    commands = [
        ["train", "gp-icem", "--env", "pendulum", "--out", "file/x", *SMALL_FLAGS],
        ["train", "gp-icem", "--env", "pendulum", "--out", "file/x/y", *SMALL_FLAGS],
        ["plot", str(run), "--out", "file/x.png"],
        ["export", str(run), "--out", "file/x.csv"],
        ["report", str(run), "--out", "file/x.html"],
        ["export-policy", str(run), "--out", "file/x"],
        ["eval", str(run), "--video", "file/x.gif"],
    ]
    for argv in commands:
        code, _, err = call(argv, capsys)
        flag = "--video" if "--video" in argv else "--out"
        assert code == 2 and "file is not a folder" in err and f"choose another {flag}" in err, (argv, err)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"] and (tmp_path / "file").read_text() == "mine"


def test_eval_before_the_first_checkpoint(run, capsys, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "checkpoints")
    code, _, err = call(["eval", str(copy)], capsys)
    assert code == 2 and "nothing is saved" in err and f"sombrl resume {copy}" in err


def test_trainings_without_out_that_start_at_once_have_folders_of_their_own(monkeypatch, capsys, tmp_path):
    from sombrl.sweep import jobs

    monkeypatch.chdir(tmp_path)
    started = []

    def train(*where, **rest):
        started.append(where[3])
        if len(started) < 3:  # another one starts before this one has written anything
            main(["train", "gp-icem", "--env", "pendulum"])

    monkeypatch.setattr(jobs, "train", train)
    main(["train", "gp-icem", "--env", "pendulum"])
    assert [path.name for path in started] == [f"gp-icem_pendulum_optimistic{end}" for end in ("", "-2", "-3")]
    assert list(tmp_path.iterdir()) == []  # nothing was trained, and nothing is left


@pytest.mark.thorough
def test_scripts_that_are_installed_already_find_their_entry_point():
    """The first two releases' scripts import these names, each in a process of its own."""
    for line in ("from sombrl.cli.main import main", "from sombrl.cli import main"):
        code = f"{line}; main(['--version'])"
        done = subprocess.run(
            [sys.executable, "-W", "error::FutureWarning", "-c", code], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert done.stdout.startswith("sombrl ")
