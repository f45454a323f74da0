"""The help says what there is for an algorithm, in groups, and nothing else."""

import re

import pytest

from sombrl.algorithms import ALGORITHMS
from sombrl.cli.app import COMMANDS
from sombrl.cli.train import _options, _read, _refuse
from sombrl.config.fields import value_at
from tests.small import call


@pytest.fixture
def page(capsys, monkeypatch):
    """What a command prints on a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def page(*argv):
        code, out, err = call(list(argv), capsys)
        assert code == 0 and err == ""
        return out

    return page


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_short_help_fits_a_screen(name, page):
    lines = page("train", name, "--help").splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 80
    groups = [line for line in lines if re.fullmatch(r"\w+:", line)]
    assert groups[:4] == ["environment:", "run:", "exploration:", "setting:"] and groups[-1] == "logging:"


def test_the_whole_help_has_what_applies(page):
    text = " ".join(page("train", "gp-icem", "--help-all").split())
    assert "--gp.noise-std FLOAT" in text and "(default 0.03)" in text
    assert "constant|linear|exponential|theoretical|calibrated. How" in text
    for absent in ("--films", "--decisions", "--report-every", "auto.", "--sac."):
        assert absent not in text, absent
    assert "--films, --no-films" in page("train", "dreamer", "--help-all")
    assert "--theory.delta" not in page("train", "mbpo", "--help-all")


def test_help_comes_first_whatever_else_is_said(page):
    assert page("train", "mbpo", "--nonsense", "--help") == page("train", "mbpo", "--help")


def test_every_command_has_a_help_of_its_own(page):
    assert all(f"\n  {name} " in page("--help") for name in COMMANDS)
    for name in COMMANDS:
        assert page(name, "--help").startswith(f"usage: sombrl {name}"), name
    for part in ("status", "check"):
        assert page("hardware", part, "--help").startswith(f"usage: sombrl hardware {part}")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_switches_of_the_help_switch(name):
    """On and off, as the help writes them."""
    switches = {field.flag: field for field in _options(name).values() if field.kind.base is bool}
    for on in (True, False):
        words = [flag if on else f"--no-{flag[2:]}" for flag in switches]
        _refuse(name, words)
        run, output, config = _read(name, words, None)
        parts = {"run": run, "output": output, "config": config}
        assert {flag: value_at(parts[field.part], field.path) for flag, field in switches.items()} == dict.fromkeys(
            switches, on
        )
