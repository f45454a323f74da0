"""The progress display: exact plain lines, the fields on a terminal, and nothing that can stop a run."""

import io
import math
import os
import re
import sys

import numpy as np
import pytest

from sombrl.training.progress import Progress, _short

SUMMARY = {
    "return": [-400.5, -210.25, -150.0],
    "bonus_weight": 1.0,
    "mean_std": 0.01234,
    "bonus_share": 0.125,
    "model_loss": -1.5,
    "decisions_per_s": 45.61,
}
BROKEN = {"return": [math.nan] * 3, "bonus_weight": None, "mean_std": math.inf, "bonus_share": math.nan}


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def episodes(stream, seconds, summary=SUMMARY, total=25, decisions=3):
    clock = Clock()
    with Progress(total, "Pendulum-v1", 3, stream, clock=clock) as progress:
        for n, duration in enumerate(seconds):
            for t in range(decisions):
                clock.now += duration / decisions
                progress.decision(t, decisions)
            progress.iteration(summary | {"iteration": n})


def test_plain_lines_exactly():
    stream = io.StringIO()
    episodes(stream, [60.0, 10.0, 20.0])
    fields = "return -210.2 [-400.5, -150]  λ 1  σ 0.01234  bonus 12.5%  loss -1.5  decisions/s 45.61"
    assert stream.getvalue().splitlines() == [
        "Pendulum-v1, 3 seeds",
        "compiling…",  # at once: it may take minutes until there is a number
        f"iteration 1/25  {fields}  ETA 24m00s",  # only the compiling one is known
        f"iteration 2/25  {fields}  ETA 3m50s",
        f"iteration 3/25  {fields}  ETA 5m30s",
    ]
    assert "\r" not in stream.getvalue() and "\x1b" not in stream.getvalue()


def test_plain_even_when_colour_is_forced(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    episodes(stream, [1.0])
    assert "\x1b" not in stream.getvalue()


def test_numbers_that_are_none_are_shown():
    stream = io.StringIO()
    episodes(stream, [5000.0], BROKEN | {"return": [math.nan, 2.0, 1.0]}, total=3)
    assert stream.getvalue().splitlines()[2] == (
        "iteration 1/3  return 1.5 [1, 2] (1 without)  λ -  σ inf  bonus nan  loss -  decisions/s -  ETA 2h46m"
    )


def test_arrays_are_numbers_too():
    stream = io.StringIO()
    assert _short(12345.67) == "12346" and _short(1e9) == "1e+09"
    arrays = {name: np.asarray(value, np.float32) for name, value in SUMMARY.items()}
    episodes(stream, [1.0], arrays | {"bonus_weight": np.array([1.0, 2.0, 9.0])})
    assert "return -210.2 [-400.5, -150]  λ 2  σ 0.01234  bonus 12.5%" in stream.getvalue()


def screen(text):
    """What is left on the screen: rich redraws by erasing lines, so it is what follows the last erasure."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.split("\x1b[2K")[-1])


def test_terminal_shows_the_fields(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    episodes(stream, [60.0, 10.0])
    assert "\x1b[" in stream.getvalue() and "decision 2/3" in stream.getvalue()
    lines = [line.rstrip() for line in screen(stream.getvalue()).splitlines() if line.strip()]
    assert lines[0] == "Pendulum-v1, 3 seeds"
    assert lines[1].split() == ["iteration", "return", "λ", "σ", "bonus", "loss", "decisions/s"]
    assert lines[2].split() == [
        "1/25",
        "-210.2",
        "[-400.5,",
        "-150]",
        "1",
        "0.01234",
        "12.5%",
        "-1.5",
        "45.61",
    ]
    assert lines[3].split()[0] == "2/25"
    assert lines[4].startswith("iteration 3/25") and lines[4].endswith("ETA 3m50s")


def test_narrow_terminal_keeps_every_field(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    episodes(stream, [60.0, 10.0])
    lines = [line.rstrip() for line in screen(stream.getvalue()).splitlines()]
    assert max(map(len, lines)) <= 40
    assert "return       -210.2 [-400.5, -150]" in lines and "decisions/s  45.61" in lines


@pytest.mark.parametrize("columns", [1, 10, 40, 300])
@pytest.mark.parametrize("summary", [{}, BROKEN, {"return": [], "model_loss": "text"}, SUMMARY])
def test_nothing_crashes(monkeypatch, columns, summary):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    for stream in (Terminal(), io.StringIO()):
        episodes(stream, [1.0, 0.0], summary)
        assert stream.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_a_closed_pipe_is_silence(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w", encoding="utf-8")
    stream.isatty = lambda: terminal
    before = sys.stdout, sys.stderr
    clock = Clock()
    with Progress(3, "x", 1, stream, clock=clock) as progress:
        os.close(reader)
        for n in range(3):
            clock.now += 1.0
            progress.decision(0, 1)
            progress.iteration(SUMMARY | {"iteration": n})
            assert (sys.stdout, sys.stderr) == before or n == 0
    assert (sys.stdout, sys.stderr) == before
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_a_closed_stream_is_silence():
    for stream in (io.StringIO(), Terminal()):
        stream.close()
        episodes(stream, [1.0])


def test_ascii_streams_get_words():
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="ascii")
    episodes(stream, [1.0])
    assert b"lambda 1  sigma 0.01234" in buffer.getvalue()


def test_decisions_are_cheap():
    clock = Clock()
    with Progress(1, "x", 1, Terminal(), clock=clock) as progress:
        drawings = []
        progress._draw = lambda: drawings.append(clock.now)
        for t in range(1000):
            progress.decision(t, 1000)
        assert drawings == []


def test_a_seed_whose_episode_goes_on_shows_its_last_return():
    stream = io.StringIO()
    with Progress(2, "Pendulum-v1", 2, stream) as progress:
        progress.iteration({"iteration": 0, "return": [1.0, math.nan]})
        progress.iteration({"iteration": 1, "return": [math.nan, 5.0]})
    _, _, first, second = stream.getvalue().splitlines()
    assert "return 1 [1, 1] (1 without)" in first
    assert "return 3 [1, 5]  " in second
