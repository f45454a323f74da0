"""The smallest agents that still do everything: seconds to compile, milliseconds to run."""

import json
import signal
import subprocess
import sys

from sombrl.agent.agent import Agent
from sombrl.agent.make import make
from sombrl.cli.main import main

SMALL = {
    "preset": "paper",  # plain plans from the first decision on
    "gp": {"capacity": 64, "rank": 8, "fit_steps": 3, "fit_points": 16, "draw_features": 16},
    "icem": {"num_samples": 12, "num_elites": 3, "iterations": 2, "horizon": 4, "particles": 2},
    "mppi": {"num_samples": 12, "iterations": 2, "horizon": 4, "particles": 2},
    "episode_length": 6,
    "episodes": 3,
}

SMALL_FLAGS = [
    *("--preset", "paper"),
    *("--gp.capacity", "64", "--gp.rank", "8", "--gp.fit-steps", "3", "--gp.fit-points", "16"),
    *("--gp.draw-features", "16", "--icem.num-samples", "12", "--icem.num-elites", "3", "--icem.iterations", "2"),
    *("--icem.horizon", "4", "--icem.particles", "2", "--episode-length", "6"),
]


def small(env="pendulum", **settings) -> Agent:
    return make("gp-icem", env, **(SMALL | settings))


def heed_ctrl_c() -> None:
    """For a child process: a suite started in the background ignores Ctrl-C, and its children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def call(argv, capsys):
    """What a command printed, and its exit code: code, stdout, stderr."""
    code = 0
    try:
        main(argv)
    except SystemExit as stop:
        code = stop.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def reproducible_rows(folder):
    """The metrics of a run without their times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in lines]


def run_signalled(argv, sent, decision, env=None, before="") -> subprocess.CompletedProcess:
    """A command in a process of its own, which gets the signal `sent` at its decision number `decision` (from 1)."""
    script = f"""
import os, signal
from sombrl.cli.main import main
from sombrl.training.progress import Progress
signal.signal(signal.SIGINT, signal.default_int_handler)  # as at a terminal
shown, taken = Progress.decision, []
def decision(self, t, length):
    shown(self, t, length)
    taken.append(t)
    if len(taken) == {decision}:
        os.kill(os.getpid(), {int(sent)})
Progress.decision = decision
{before}
main({list(map(str, argv))!r})
"""
    return subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
