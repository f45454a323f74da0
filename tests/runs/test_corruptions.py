"""Two hundred run folders that somebody has damaged, read by every command: a sentence and a code, never a trace."""

import json
import os
import random
import shutil

import numpy as np
import pytest

from sombrl.cli.app import main
from sombrl.storage import checkpoint
from tests.small import SMALL_FLAGS, call

CORRUPTIONS = 200
FILES = (
    "config.json",
    "manifest.json",
    "metrics.jsonl",
    "eval.json",
    "checkpoint/manifest.json",
    "checkpoint/arrays.npz",
)
VALUES = [
    None,
    True,
    -1,
    0,
    10**9,
    10**30,
    0.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\ud800",
    [],
    [1, "x"],
    {},
    {"x": []},
]
EVALUATION = [
    {"date": "2026", "settings": {"episodes": 1, "planner": "x", "trained": "y"}, "returns": {"0": [1.0, 2.0]}}
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    main(
        [
            "train",
            "gp-icem",
            "--env",
            "pendulum",
            "--episodes",
            "1",
            "--no-tensorboard",
            "--out",
            str(run),
            *SMALL_FLAGS,
        ]
    )
    (run / "eval.json").write_text(json.dumps(EVALUATION))
    return run


def places(value, path=()):
    """Where everything in a JSON value is."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, one in inside for found in places(one, (*path, key)))]


def change(rng, value):
    """A JSON value with something else in one place, or without it."""
    *path, last = rng.choice(places(value)[1:])
    place = value
    for key in path:
        place = place[key]
    if isinstance(place, dict) and rng.random() < 0.2:
        del place[last]
    else:
        place[last] = rng.choice(VALUES)
    return value


def corrupt(rng, run):
    """Damage one file of a run; what was done."""
    name = rng.choice(FILES)
    (*_, saved) = (run / "checkpoints").iterdir()
    path = run / name if not name.startswith("checkpoint/") else saved / name.partition("/")[2]
    how = rng.choice(["bytes", "cut", "kind", *["value"] * 4])
    if how == "value" and path.suffix == ".npz":
        arrays = dict(np.load(path))
        one = rng.choice(list(arrays))
        arrays[one] = rng.choice([arrays[one].astype(np.float16), arrays[one][None], np.zeros(3), np.array("x")])
        np.savez(path, **arrays)
    elif how == "value":
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        value = change(rng, json.loads(lines[-1]))
        if name == "checkpoint/manifest.json" and isinstance(value, dict):  # signed, as somebody who means it would
            value.pop("checksum", None)
            value["checksum"] = checkpoint._manifest_checksum(value)
        path.write_text("\n".join([*lines[:-1], json.dumps(value)]) + "\n")
    elif how == "kind":
        path.unlink()
        rng.choice([path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to("/etc/hostname"), lambda: None])()
    else:
        content = bytearray(path.read_bytes())
        at = rng.randrange(len(content))
        path.write_bytes(
            content[:at] if how == "cut" else content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :]
        )
    return f"{how} of {name}"


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(0, CORRUPTIONS, 20))
def test_whatever_is_damaged_is_said_in_a_sentence(first, whole, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number in range(first, first + 20):
        rng, run = random.Random(number), tmp_path / f"run-{number}"
        shutil.copytree(whole, run)
        what = f"{corrupt(rng, run)} (number {number})"
        commands = [["report", str(run), "--out", f"{number}.html"], ["export", str(run), "--out", f"{number}.csv"]]
        commands += [["plot", str(run), "--out", f"{number}.png"], ["resume", str(run), "--episodes", "1"]]
        for command in commands:
            code, _, err = call(command, capsys)
            assert code in (0, 1, 2), (what, command, err)
            assert "error in sombrl itself" not in err and "Traceback" not in err, (what, command, err)
            assert code == 0 or err.count("\n") == 1 or "checkpoint" in err, (what, command, err)
