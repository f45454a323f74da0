"""What is written into a run's folder stays in it: links in it are refused and their targets kept."""

import json
import os

import numpy as np
import pytest

from sombrl.records import SombrlError
from sombrl.runs.evaluate import _read
from sombrl.storage import checkpoint
from sombrl.storage.run_folder import OWN, RunFolder

LIKE = {"x": np.zeros(4)}


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "checkpoints", "eval.json", ".eval-lock", "wandb.json"])
def test_nothing_is_written_through_a_link(tmp_path, name):
    assert name in OWN
    precious = tmp_path / "precious"
    precious.write_text("mine")
    folder = RunFolder.create(tmp_path / "run", {}, ["test"])
    (folder.path / name).symlink_to(precious)
    with pytest.raises(SombrlError, match=f"{name} is a link"), folder.lock():
        raise AssertionError("it is locked")
    assert precious.read_text() == "mine"


def test_a_folder_may_be_a_link_as_a_whole(tmp_path):
    RunFolder.create(tmp_path / "disk", {}, ["test"])
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    folder = RunFolder.open(tmp_path / "run")
    with folder.lock():
        folder.append([{"iteration": 0}])
    assert json.loads((tmp_path / "disk" / "metrics.jsonl").read_text()) == {"iteration": 0}


def test_metrics_that_cannot_be_read_are_one_sentence(tmp_path):
    folder = RunFolder.create(tmp_path / "run", {}, ["test"])
    folder.metrics_path.mkdir()
    with pytest.raises(SombrlError, match=r"cannot read .*metrics.jsonl \(Is a directory\)"):
        folder.rows()


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.json", "eval.json"])
def test_a_pipe_in_the_place_of_a_file_blocks_nothing(tmp_path, name):
    """An archive can hold one, and to open it waits for somebody who writes."""
    folder = RunFolder.create(tmp_path / "run", {}, ["test"])
    (folder.path / name).unlink(missing_ok=True)
    os.mkfifo(folder.path / name)
    reads = {
        "metrics.jsonl": folder.rows,
        "config.json": lambda: folder.config,
        "eval.json": lambda: _read(folder.path / name),
    }
    with pytest.raises(SombrlError, match=f"{name}.*is not a file"):
        reads[name]()


@pytest.mark.parametrize("name", ["manifest.json", "arrays.npz"])
def test_nor_in_a_checkpoint(tmp_path, name):
    path = checkpoint.save(tmp_path, 1, LIKE, {"iteration": 1})
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(SombrlError, match=f"{name}: (cannot be read|is not a file)"):
        checkpoint.load_latest(tmp_path, LIKE)
