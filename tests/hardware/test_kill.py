"""kill -9 of the learner and of the controller: the car stands, and the campaign ends as one that was left in peace."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sombrl.hardware.campaign import Campaign, CampaignConfig
from sombrl.hardware.controller import Controller
from sombrl.hardware.files import EventLog, read_json
from tests.hardware.parts import ROOT, Inline, simulated
from tests.hardware.test_campaign import contents, same
from tests.waiting import wait_for

FLAGS = ["--trainer", "tests.hardware.parts:hashing", "--episodes", "3", "--steps", "30"]
TRAINING, EPISODE = 0.6, 31 * 0.02  # seconds of wall time


def command(path, *flags):
    return [sys.executable, "-m", "sombrl", "hardware", "run", str(path), *flags]


def start(path, *flags):
    """The command in a process of its own. A suite started in the background ignores Ctrl-C; this process must not."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command(path, *flags), cwd=ROOT, **pipes)
    finally:
        signal.signal(signal.SIGINT, before)


def training(campaign, number):
    """The process that trains a policy now, if one does."""
    beat = read_json(campaign.learner / "heartbeat.json") or {}
    return beat["pid"] if (beat.get("state"), beat.get("episode")) == ("training", number) else None


def running(pid):
    """Whether a process is there and not only waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def last_event(campaign):
    rows = EventLog.read(campaign.events_path)
    return (rows[-1]["event"], rows[-1].get("episode")) if rows else None


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Campaign:
    """The same campaign without a learner's process, without interruptions, and without its slowness."""
    config = CampaignConfig(trainer="tests.hardware.parts:hashing", episodes=3, steps=30)
    campaign = Campaign.create(tmp_path_factory.mktemp("reference") / "c", config, ["test"])
    Controller(campaign, simulated(), Inline(campaign), tell=lambda text: None).run()
    return campaign


@pytest.mark.thorough
def test_learner_and_controller_killed(undisturbed, tmp_path):
    campaign = Campaign(tmp_path / "c")
    slow = ["--backend", "tests.hardware.parts:slow_car", "--trainer-options", f"seconds={TRAINING}"]

    # The learner, while it trains policy 1: it is started again, and the car waits.
    process = start(campaign.path, *FLAGS, *slow)
    os.kill(wait_for(lambda: training(campaign, 1), process), signal.SIGKILL)

    # The controller, in the middle of episode 1. Its learner notices.
    wait_for(lambda: last_event(campaign) == ("begin", 1), process)
    learner = read_json(campaign.learner / "heartbeat.json")["pid"]
    time.sleep(EPISODE / 2)
    process.kill()
    out, _ = process.communicate()
    assert campaign.committed() == 1 and campaign.missing_policy() is None  # the policy is there, the episode is not
    (lost,) = [row for row in EventLog.read(campaign.events_path) if row["event"] == "learner-lost"]
    assert (lost["episode"], lost["car"]) == (1, "stopped") and "killed by signal 9" in lost["reason"]
    deadline = time.monotonic() + 10
    while running(learner):
        assert time.monotonic() < deadline, "an orphaned learner goes on"
        time.sleep(0.05)

    # Resumed with a word for the code it names and nothing else, and left alone.
    process = start(campaign.path, "--trust")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "episode 1 was cut short" in out
    assert same(contents(campaign), contents(undisturbed))
    assert [row["event"] for row in EventLog.read(campaign.events_path)].count("discarded") == 1


def test_ctrl_c_stops_the_car_and_says_how_to_go_on(tmp_path):
    """In real time: the signal comes in the middle of an episode, which is kept as an abort."""
    campaign = Campaign(tmp_path / "c")
    process = start(campaign.path, *FLAGS, "--steps", "300", "--episodes", "2")
    wait_for(lambda: last_event(campaign) == ("begin", 0), process)
    time.sleep(0.8)
    asked = time.time()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and f"sombrl hardware run {campaign.path}" in err and err.count("\n") == 1
    (episode,) = campaign.episodes(campaign.committed())
    abort = next(row for row in EventLog.read(campaign.events_path) if row["event"] == "abort")
    assert abort["reason"] == episode.end == "operator" and episode.valid.sum() > 0
    stopped = np.datetime64(abort["time"].removesuffix("+00:00"), "ms").astype(float) / 1e3
    assert stopped - asked < 0.2  # a period, and the time a busy machine takes to deliver a signal
    manifest = json.loads((campaign.path / "learner" / "manifest.json").read_text())
    assert manifest["device"]["platform"] and manifest["versions"]["jax"]
