"""Training on a task of Playground, killed in the middle of an episode: the resumed run has the same metrics."""

import importlib.util
import signal
import subprocess
import sys

import pytest

from tests.small import reproducible_rows
from tests.waiting import wait_for

# An episode has 500 decisions: every checkpoint but the last lies in the middle of one.
LENGTH = ["--decisions", "2000", "--report-every", "400", "--checkpoint-every", "1", "--no-tensorboard"]
SPARSE = ["--env", "playground:CartpoleSwingupSparse"]
SMALL = ["--sac.hidden", "32", "32", "--sac.batch-size", "32"]
RUNS = {
    "sac": ["sac", *SPARSE, *SMALL],
    "mbpo": ["mbpo", *SPARSE, *SMALL, "--ensemble.hidden", "32", "32"],
    "dreamer": [
        *("dreamer", "--env", "playground:CartpoleSwingup", "--size", "tiny", "--ratio", "16"),
        *("--batch-size", "4", "--batch-length", "16"),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_killed_and_resumed(name, tmp_path):
    if importlib.util.find_spec("mujoco_playground") is None:
        pytest.skip("needs sombrl[playground]")
    whole, killed = tmp_path / "whole", tmp_path / "killed"

    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "sombrl", *arguments]

    subprocess.run(command("train", *RUNS[name], *LENGTH, "--out", str(whole)), check=True, capture_output=True)
    process = subprocess.Popen(
        command("train", *RUNS[name], *LENGTH, "--out", str(killed)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    metrics = killed / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") >= 2, process, seconds=1200)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    resumed = subprocess.run(command("resume", str(killed), "--no-tensorboard"), capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    rows = reproducible_rows(whole)
    assert rows[-1]["decisions"] > 1900 and len(rows) >= 5  # dreamer counts by ticks of four environments
    assert reproducible_rows(killed) == rows
