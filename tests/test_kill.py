"""kill -9 at any moment, resume, and the metrics are those of a run that was never interrupted."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.small import SMALL_FLAGS, heed_ctrl_c, reproducible_rows

FLAGS = ["--env", "Pendulum-v1", "--seeds", "2", "--episodes", "4", "--no-tensorboard", *SMALL_FLAGS]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A compilation cache, so that the second process is not mostly a compiler."""
    return os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("xla"))}


@pytest.fixture(scope="module")
def reference(tmp_path_factory, environment):
    folder = tmp_path_factory.mktemp("reference") / "run"
    command = [sys.executable, "-m", "sombrl", "train", "gp-icem", *FLAGS, "--out", str(folder)]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    return reproducible_rows(folder)


def resume(folder, environment):
    command = [sys.executable, "-m", "sombrl", "resume", str(folder), "--no-tensorboard"]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("episode", [0, 2])
def test_killed_between_episodes(episode, reference, environment, tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "sombrl", "train", "gp-icem", *FLAGS, "--out", str(folder)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    metrics = folder / "metrics.jsonl"
    while time.monotonic() < deadline and process.poll() is None:
        enough = (
            folder.exists()
            if episode == 0
            else metrics.exists() and len(metrics.read_text().splitlines()) >= 2 * episode
        )
        if enough:
            break
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    result = resume(folder, environment)
    assert result.returncode == 0, result.stderr
    assert reproducible_rows(folder) == reference


def test_killed_while_a_checkpoint_is_written(reference, environment, tmp_path):
    folder = tmp_path / "run"
    script = f"""
import os, signal
from sombrl import checkpoint
from sombrl.cli import main
publish, saves = checkpoint._publish, []
def dying_publish(aside, final):
    saves.append(final)
    if len(saves) == 3:
        (aside / "arrays.npz").write_bytes((aside / "arrays.npz").read_bytes()[:1000])  # half a file on disk
        os.kill(os.getpid(), signal.SIGKILL)
    publish(aside, final)
checkpoint._publish = dying_publish
main({["train", "gp-icem", *FLAGS, "--out", str(folder)]!r})
"""
    process = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True)
    assert process.returncode == -signal.SIGKILL
    assert resume(folder, environment).returncode == 0
    assert reproducible_rows(folder) == reference


def test_a_damaged_checkpoint_falls_back_and_says_so(reference, environment, tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "sombrl", "train", "gp-icem", *FLAGS, "--out", str(folder)]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    newest = sorted((folder / "checkpoints").iterdir())[-1] / "arrays.npz"
    newest.write_bytes(newest.read_bytes()[:5000])
    result = resume(folder, environment)
    assert result.returncode == 0 and "damaged" in result.stderr
    assert reproducible_rows(folder) == reference


def test_ctrl_c_saves_and_says_how_to_go_on(reference, environment, tmp_path):
    folder = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "sombrl",
        "train",
        "gp-icem",
        *FLAGS,
        "--checkpoint-every",
        "4",
        "--out",
        str(folder),
    ]
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=environment, preexec_fn=heed_ctrl_c, **pipes)
    metrics = folder / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert f"sombrl resume {folder}" in err and "Traceback" not in err
    assert resume(folder, environment).returncode == 0
    assert reproducible_rows(folder) == reference


def test_mbpo_killed_in_the_middle_of_an_episode_of_a_simulator(environment, tmp_path):
    """Windows of 20 decisions, episodes of 15: the checkpoint holds the physics half-way through."""
    pytest.importorskip("dm_control")
    small = ["--sac.hidden", "8", "8", "--sac.batch-size", "8", "--ensemble.hidden", "8", "8"]
    flags = ["--env", "dmc:reacher-hard", "--seeds", "2", "--decisions", "120", "--report-every", "20", *small]
    flags += ["--episode-length", "15", "--ensemble.batch-size", "8", "--no-tensorboard"]
    whole, folder = tmp_path / "whole", tmp_path / "run"
    command = [sys.executable, "-m", "sombrl", "train", "mbpo", *flags, "--out"]
    subprocess.run([*command, str(whole)], check=True, env=environment, capture_output=True)
    process = subprocess.Popen(
        [*command, str(folder)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline, metrics = time.monotonic() + 120, folder / "metrics.jsonl"
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.exists() and len(metrics.read_text().splitlines()) >= 2:
            break
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    result = resume(folder, environment)
    assert result.returncode == 0, result.stderr
    assert reproducible_rows(folder) == reproducible_rows(whole)
