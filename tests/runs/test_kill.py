"""kill -9 at any moment, Ctrl-C or SIGTERM, resume, and the metrics are those of a run that was never interrupted."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.recorded import write_npz
from tests.small import SMALL_FLAGS, reproducible_rows, run_signalled

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


@pytest.mark.parametrize("episode", [0, pytest.param(2, marks=pytest.mark.thorough)])
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
from sombrl.storage import checkpoint
from sombrl.cli.main import main
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


PRESSED_AGAIN = """
import time
from sombrl.storage import checkpoint
from sombrl.runs import signals
signals.ONE_PRESS, publish, heard = 0.0, checkpoint._publish, []
at_once = signals.Signals._at_once
signals.Signals._at_once = lambda self: at_once(self) or heard.append(1)
def signalled_publish(aside, final):
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    while not heard:
        time.sleep(0.001)
    publish(aside, final)
checkpoint._publish = signalled_publish
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sent", "during_the_save"), [(signal.SIGINT, ""), (signal.SIGTERM, ""), (signal.SIGINT, PRESSED_AGAIN)]
)
def test_a_signal_saves_and_says_how_to_go_on(sent, during_the_save, reference, environment, tmp_path):
    """In the middle of the second episode; those that come during the save wait for its end."""
    folder = tmp_path / "run"
    argv = ["train", "gp-icem", *FLAGS, "--checkpoint-every", "4", "--out", folder]
    stopped = run_signalled(argv, sent, 9, environment, during_the_save)
    assert stopped.returncode == 130, stopped.stderr
    assert "stopping at the next decision" in stopped.stderr and "Traceback" not in stopped.stderr
    assert f"1 of 4 iterations are saved; continue with: sombrl resume {folder}" in stopped.stderr
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["00000001"]
    assert resume(folder, environment).returncode == 0
    assert reproducible_rows(folder) == reference


OFFLINE = ["--env", "pendulum", "--explore", "pessimistic", "--seeds", "2", "--decisions", "60", "--report-every", "15"]
OFFLINE += ["--episode-length", "8", "--sac.hidden", "8", "8", "--sac.actor-hidden", "8", "8", "--sac.batch-size", "8"]
OFFLINE += ["--ensemble.hidden", "8", "8", "--ensemble.batch-size", "8", "--no-tensorboard"]


@pytest.fixture(scope="module")
def offline_reference(tmp_path_factory, environment):
    folder = tmp_path_factory.mktemp("offline")
    data = write_npz(folder / "data.npz")
    command = [sys.executable, "-m", "sombrl", "train", "mbpo", *OFFLINE, "--offline", data, "--out", folder / "run"]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    return reproducible_rows(folder / "run")


@pytest.mark.thorough
@pytest.mark.parametrize("decision", [1, 20])
def test_an_offline_run_goes_on_without_its_data(decision, offline_reference, environment, tmp_path):
    """The data are in the checkpoints, the first of which is there before anything is learned."""
    folder, data = tmp_path / "run", write_npz(tmp_path / "data.npz")
    argv = ["train", "mbpo", *OFFLINE, "--offline", data, "--out", folder]
    assert run_signalled(argv, signal.SIGKILL, decision, environment).returncode == -signal.SIGKILL
    data.unlink()
    result = resume(folder, environment)
    assert result.returncode == 0, result.stderr
    assert reproducible_rows(folder) == offline_reference


@pytest.mark.thorough
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_so_does_a_run_that_began_with_another(sent, environment, tmp_path):
    """What it began with may be gone: --start-from, killed in the second window."""
    argv = ["train", "mbpo", *OFFLINE, "--explore", "optimistic", "--start-from", write_npz(tmp_path / "data.npz")]
    subprocess.run(
        [sys.executable, "-m", "sombrl", *map(str, argv), "--out", tmp_path / "whole"],
        check=True,
        env=environment,
        capture_output=True,
    )
    stopped = run_signalled([*argv, "--out", tmp_path / "run"], sent, 20, environment)
    assert stopped.returncode == (130 if sent == signal.SIGINT else -sent), stopped.stderr
    (tmp_path / "data.npz").unlink()
    result = resume(tmp_path / "run", environment)
    assert result.returncode == 0, result.stderr
    assert reproducible_rows(tmp_path / "run") == reproducible_rows(tmp_path / "whole")


MBPO = ["--env", "dmc:reacher-hard", "--seeds", "2", "--decisions", "120", "--report-every", "20"]
MBPO += ["--episode-length", "15", "--ensemble.batch-size", "8", "--ensemble.hidden", "8", "8", "--no-tensorboard"]
MBPO += ["--sac.hidden", "8", "8", "--sac.batch-size", "8"]


@pytest.fixture(scope="module")
def mbpo_reference(tmp_path_factory, environment):
    pytest.importorskip("dm_control")
    folder = tmp_path_factory.mktemp("mbpo") / "run"
    command = [sys.executable, "-m", "sombrl", "train", "mbpo", *MBPO, "--out", str(folder)]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    return reproducible_rows(folder)


@pytest.mark.thorough
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_mbpo_stopped_in_the_middle_of_an_episode_of_a_simulator(sent, mbpo_reference, environment, tmp_path):
    """Windows of 20 decisions, episodes of 15: the checkpoint holds the physics half-way through."""
    folder = tmp_path / "run"
    stopped = run_signalled(["train", "mbpo", *MBPO, "--out", folder], sent, 30, environment)
    assert stopped.returncode == (130 if sent == signal.SIGINT else -sent), stopped.stderr
    result = resume(folder, environment)
    assert result.returncode == 0, result.stderr
    assert reproducible_rows(folder) == mbpo_reference


TINY_POLICY = ["--decisions", "60", "--report-every", "20", "--episode-length", "15", "--ensemble.batch-size", "8"]
TINY_POLICY += ["--ensemble.hidden", "8", "8", "--sac.hidden", "8", "8", "--sac.batch-size", "8"]
LEARNED = ["--safety.budget", "0.9", "--safety.cost-model", "learned"]
MODES = {
    "safe": ["gp-icem", *SMALL_FLAGS, "--episodes", "4", "--env-kwargs", "speed_limit=1", *LEARNED],
    "shield": ["mbpo", *TINY_POLICY, "--env-kwargs", "speed_limit=1", *LEARNED],
    "drift": [
        *("gp-icem", *SMALL_FLAGS, "--episodes", "4", "--replay-window", "9"),
        *("--env-kwargs", "drift=mass", "drift_from=1", "drift_over=3", "drift_factor=2"),
    ],
}


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_killed_with_a_budget_a_shield_or_a_window(mode, environment, tmp_path):
    """In the middle of the third iteration: what an episode has cost and what has drifted are as they were."""
    argv = ["train", *MODES[mode], "--env", "pendulum", "--seeds", "2", "--no-tensorboard", "--out"]
    whole, folder = tmp_path / "whole", tmp_path / "run"
    subprocess.run(
        [sys.executable, "-m", "sombrl", *argv, str(whole)], check=True, env=environment, capture_output=True
    )
    killed = run_signalled([*argv, folder], signal.SIGKILL, 50 if mode == "shield" else 15, environment)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    result = resume(folder, environment)
    assert result.returncode == 0, result.stderr
    assert reproducible_rows(folder) == reproducible_rows(whole)
    assert ("safety/violations" in reproducible_rows(folder)[0]) == (mode != "drift")
