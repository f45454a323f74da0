"""`sombrl doctor`: a sentence for everything, quickly, whatever is broken."""

import time

import pytest

from sombrl.cli import doctor
from sombrl.cli.app import main


def sentences(level=None):
    return [sentence for found, sentence in doctor.examine() if level in (None, found)]


def test_everything_is_looked_at_quickly():
    start = time.perf_counter()
    findings = doctor.examine()
    assert time.perf_counter() - start < 5
    assert {level for level, _ in findings} <= {"ok", "warning"}  # the tests run on a working machine
    text = "\n".join(sentence for _, sentence in findings)
    for word in ("Python 3", "jaxlib", "float64", "OPENBLAS", "core", "memory", "disk", "compiled programs"):
        assert word in text
    for module, _, _ in doctor.EXTRAS:
        assert module in text


def test_missing_extras_say_how_to_install(monkeypatch):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    text = "\n".join(sentences("warning"))
    for module, extra, purpose in doctor.EXTRAS:
        assert f"{module} is not installed ({purpose}): pip install 'sombrl[{extra}]'." in text


def test_spinning_threads_are_warned_of(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "8")
    assert any("OPENBLAS_NUM_THREADS is 8" in sentence for sentence in sentences("warning"))


def test_an_unwritable_cache_is_warned_of(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert any("JAX_COMPILATION_CACHE_DIR" in sentence for sentence in sentences("warning"))


def test_a_full_disk_is_warned_of(monkeypatch):
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage)
    assert any("0.0 GiB of disk" in sentence for sentence in sentences("warning"))


@pytest.mark.parametrize("broken", ["devices", "enable_x64"])
def test_a_broken_check_is_a_finding(monkeypatch, broken):
    def fail(*args):
        raise RuntimeError("no backend")

    monkeypatch.setattr(doctor.jax, broken, fail)
    assert any("no backend" in sentence for sentence in sentences("error"))
    assert len(sentences()) > 8  # the others went on


def test_command(capsys):
    main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(line.split()[0] in ("ok", "warning", "error") for line in lines)
