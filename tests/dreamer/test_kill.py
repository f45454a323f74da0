"""kill -9 of Dreamer and of its simulators, Ctrl-C and SIGTERM: the run goes on, exactly where nothing was lost."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.small import reproducible_rows, run_signalled

SETTINGS = {
    "env": "dmc:cartpole-swingup",
    "size": "tiny",
    "envs": "2",
    "batch-size": "2",
    "batch-length": "4",
    "horizon": "2",
    "ratio": "4",
    "hidden": "8",
    "members": "2",
    "capacity": "400",
    "decisions": "96",
    "report-every": "24",
    "episode-length": "30",
}
FLAGS = [text for name, value in SETTINGS.items() for text in (f"--{name}", value)] + ["--no-tensorboard"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sombrl", *arguments]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference") / "run"
    subprocess.run(command("train", "dreamer", *FLAGS, "--out", str(folder)), check=True, capture_output=True)
    return reproducible_rows(folder)


def wait_for_rows(process: subprocess.Popen, folder, number: int) -> None:
    metrics, deadline = folder / "metrics.jsonl", time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.exists() and metrics.read_text().count("\n") >= number:
            return
        time.sleep(0.002)


@pytest.mark.thorough
def test_the_trainer_is_killed_in_the_middle_of_an_episode(reference, tmp_path):
    folder = tmp_path / "run"
    process = subprocess.Popen(
        command("train", "dreamer", *FLAGS, "--out", str(folder)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for_rows(process, folder, 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(reference) > 2
    resumed = subprocess.run(command("resume", str(folder), "--no-tensorboard"), capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    assert reproducible_rows(folder) == reference


@pytest.mark.thorough
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_end_of_the_report(sent, reference, tmp_path):
    """It comes after five of twelve ticks, when latents of the report before were written over already."""
    folder = tmp_path / "run"
    stopped = run_signalled(["train", "dreamer", *FLAGS, "--env-workers", "2", "--out", folder], sent, 17)
    assert stopped.returncode == 130, stopped.stderr
    assert "stopping after this report" in stopped.stderr and "Traceback" not in stopped.stderr
    assert f"2 of 4 iterations are saved; continue with: sombrl resume {folder}" in stopped.stderr
    resumed = subprocess.run(command("resume", str(folder), "--no-tensorboard"), capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    assert reproducible_rows(folder) == reference


@pytest.mark.thorough
def test_a_simulator_is_killed(tmp_path):
    folder = tmp_path / "run"
    flags = [*FLAGS, "--env-workers", "2", "--decisions", "480"]
    process = subprocess.Popen(
        command("train", "dreamer", *flags, "--out", str(folder)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_rows(process, folder, 2)
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    assert children and process.poll() is None
    os.kill(int(children[0]), signal.SIGKILL)
    _, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    assert "killed by signal 9" in error
    assert reproducible_rows(folder)[-1]["decisions"] > 400
