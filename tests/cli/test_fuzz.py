"""A thousand odd command lines: a sentence and a documented code, no trace, and after a refusal nothing has changed."""

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from sombrl.cli.app import main
from tests.cli.fuzz import line
from tests.small import SMALL_FLAGS, call
from tests.sweep.tiny import SPEC

LINES, AT_ONCE = 1000, 50
SECONDS = 600
"""More than any of them takes that does not hang, on a busy machine too."""
DOCUMENTED = {
    int(code)
    for code in re.findall(r"^\| (\d+) \|", (Path(__file__).parents[2] / "docs/commands.md").read_text(), re.M)
}
WORLD = """
import gymnasium
import numpy as np
class World(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}
    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}
gymnasium.register("Good-v0", World, max_episode_steps=5)
def broken():
    raise RuntimeError("no such luck")
gymnasium.register("Bad-v0", broken)
"""


class Accepted(BaseException):
    """A command has been read, checked and understood: what comes now is its work."""


class Hung(BaseException):
    """It takes too long."""


def accept(*args, **kwargs):
    raise Accepted


WORK = (
    *("sombrl.storage.run_folder.RunFolder.create", "sombrl.runs.train.run_training", "sombrl.sweep.jobs._see_through"),
    "sombrl.training.base.foretell",
    *("sombrl.training.base.play", "sombrl.demo.run.train_strategies", "sombrl.paper.experiments.runner.run_in_turn"),
    *("sombrl.sweep.commands.run_sweep", "sombrl.sweep.commands.complete", "sombrl.hardware.controller.Controller.run"),
    *("sombrl.envs.adapters.processes.WorkerProcess", "sombrl.sweep.worker.Worker.__init__"),
    "sombrl.paper.campaign.run._run",
)
"""Where the work of a command begins."""


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A folder with one of everything."""
    place = tmp_path_factory.mktemp("template") / "here"
    (place / "runs").mkdir(parents=True)
    shared = ["--env", "pendulum", "--no-tensorboard"]
    main(["train", "gp-icem", *shared, "--episodes", "1", *SMALL_FLAGS, "--out", str(place / "run")])
    nets = ["--sac.hidden", "4", "--sac.batch-size", "4"]
    lengths = ["--decisions", "6", "--report-every", "6", "--episode-length", "5"]
    main(["train", "sac", *shared, *lengths, *nets, "--out", str(place / "policy")])
    shutil.copytree(place / "run", place / "runs" / "one")
    main(["export", str(place / "run"), "--out", str(place / "table.csv")])
    table = (place / "table.csv").read_bytes()
    (place / "half.csv").write_bytes(table[: len(table) // 2])
    (place / "sweep.toml").write_text(SPEC)
    (place / "search.toml").write_text(
        SPEC.partition("[grid]")[0] + "[search]\nbonus_weight = { low = 1.0, high = 2.0 }\n"
    )
    (place / "campaign.toml").write_text("[[cell]]\nexperiment = 'tolerance-reward'\nscale = 'smoke'\nminutes = 1\n")
    (place / "bad.toml").write_text("algorithm = [")
    (place / "world.py").write_text(WORLD)
    (place / "file.txt").write_text("chapter 1")
    (place / "unreadable").write_text("secret")
    (place / "unreadable").chmod(0)
    (place / "empty").mkdir()
    (place / "link").symlink_to("file.txt")
    (place / "loop").symlink_to("loop")
    (place / "dangling").symlink_to("nowhere")
    return place


@pytest.fixture
def copied(template, tmp_path):
    """Makes a fresh copy of the template for a line."""

    def copy(number: int) -> Path:
        here = tmp_path / str(number) / "here"
        shutil.copytree(template, here, symlinks=True)
        os.mkfifo(here / "fifo")
        return here

    return copy


def content(folder: Path) -> dict[str, object]:
    """Everything in a folder: names, kinds, contents."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        kind = os.lstat(path).st_mode
        plain = path.is_file() and not path.is_symlink()
        found[str(path.relative_to(folder))] = (kind, hashlib.sha256(path.read_bytes()).hexdigest() if plain else None)
    return found


@contextlib.contextmanager
def no_longer_than(seconds: int):
    """Inside, the program has so many seconds."""

    def ring(*_):
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def attempt(argv, capsys) -> tuple[int | str, str, str]:
    """As `call`; the code of a command that was accepted is a word."""
    try:
        with no_longer_than(SECONDS):
            return call(argv, capsys)
    except Accepted:
        captured = capsys.readouterr()
        return "accepted", captured.out, captured.err
    except Hung:
        return "hung", "", ""


def check(number: int, code: int | str, err: str, before: dict[str, object], after: dict[str, object]) -> None:
    """What holds for every line."""
    what = f"{number}: {shlex.join(line(number))!a} ended with {code}: {err[-1500:]!a}"
    assert code == "accepted" or code in DOCUMENTED, what
    assert "Traceback" not in err and "error in sombrl itself" not in err, what
    if code == 2:
        assert err.splitlines()[-1].startswith("sombrl: ") and "─" not in err, what
        assert after == before, (what, set(after.items()) ^ set(before.items()))
    else:
        changed = {name for name in before if after.get(name) != before[name]}
        assert not changed, (what, changed)


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(0, LINES, AT_ONCE))
def test_any_command_line(first, copied, monkeypatch, capsys):
    for name in WORK:
        monkeypatch.setattr(name, accept)
    for module in ("sombrl.sweep.commands", "sombrl.report.live"):
        monkeypatch.setattr(f"{module}.time", types.SimpleNamespace(sleep=accept))
    for number in range(first, first + AT_ONCE):
        here = copied(number)
        before = content(here.parent)
        with monkeypatch.context() as patch:
            patch.chdir(here)
            patch.setattr(sys, "path", list(sys.path))
            patch.delitem(sys.modules, "world", raising=False)
            code, _, err = attempt(line(number), capsys)
        check(number, code, err, before, content(here.parent))
        shutil.rmtree(here.parent)


@pytest.mark.thorough
def test_a_real_process_says_the_same(copied, capsys, monkeypatch):
    """Some of those that are refused, as a user types them."""
    asked = 0
    for number in range(LINES, LINES + 60):
        here = copied(number)
        with monkeypatch.context() as patch:
            for name in WORK:
                patch.setattr(name, accept)
            patch.chdir(here)
            patch.setattr(sys, "path", list(sys.path))
            code, _, err = attempt(line(number), capsys)
        if code == 2:
            before = content(here.parent)
            command = [sys.executable, "-m", "sombrl", *line(number)]
            ran = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=SECONDS)
            check(number, ran.returncode, ran.stderr, before, content(here.parent))
            theirs, ours = (re.sub(r"/proc/\d+", "/proc/self", text) for text in (ran.stderr, err))
            assert (ran.returncode, theirs) == (2, ours)
            asked += 1
        if asked == 12:
            return
    pytest.fail("too few lines are refused")
