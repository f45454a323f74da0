"""A sweep whose cells take a second each once they are compiled, and how to drive it from outside.

Nothing is learned in it (model = "true"), which compiles quickly; LEARNING is the override that changes this.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

SPEC = """
name = "tiny"
algorithm = "gp-icem"
env = "pendulum"
explore = ["optimistic"]
seeds = 2

[set]
model = "true"
episodes = 12
action_repeat = 5
episode_length = 6
gp = { capacity = 128, rank = 8, fit_points = 16, fit_steps = 3 }
icem = { num_samples = 12, num_elites = 3, iterations = 2, horizon = 4, particles = 2 }

[grid]
seed = [0, 2]
"""


LEARNING = "model=gp"


def write(folder: Path, text: str = SPEC) -> Path:
    path = folder / "tiny.toml"
    path.write_text(text)
    return path


STARTED: list[subprocess.Popen] = []


def start(*argv: object, folder: Path | None = None, **environment: str) -> subprocess.Popen:
    # Not -m sombrl: a suite started in the background ignores Ctrl-C, and its children would inherit that.
    heed = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from sombrl.cli import main; "
    process = subprocess.Popen(
        [sys.executable, "-c", f"{heed}main(sys.argv[1:])", *map(str, argv)],
        env=os.environ | environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    STARTED.append(process)
    return process


def finish(process: subprocess.Popen, code: int = 0, timeout: float = 300) -> tuple[str, str]:
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == code, out + err
    return out, err


def cells(sweep: Path) -> list[Path]:
    path = sweep / "sweep.json"
    return [sweep / "cells" / cell["name"] for cell in json.loads(path.read_text())["cells"]] if path.exists() else []


def events(cell: Path, kind: str) -> list[dict]:
    path = cell / "attempts.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def checkpointed(cell: Path) -> bool:
    return any(path.name.isdigit() for path in (cell / "run" / "checkpoints").glob("*"))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
