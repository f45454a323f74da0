"""What is written into a run's folder stays in it: links in it are refused and their targets kept."""

import json

import pytest

from sombrl.records import SombrlError
from sombrl.storage.run_folder import OWN, RunFolder


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
