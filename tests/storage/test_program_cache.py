"""Where compiled programs are kept."""

import jax
import pytest

from sombrl.storage.program_cache import keep_programs, machine_kind


@pytest.fixture
def updated(monkeypatch):
    """What JAX would be told, instead of telling it. The suite has a folder of its own, which is put back."""
    told: dict = {}
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    with monkeypatch.context() as patched:
        patched.setattr(jax.config, "update", told.__setitem__)
        yield told
    jax.config.update("jax_compilation_cache_dir", before)


def test_programs_are_kept_in_the_cache_folder_of_the_user(updated, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_programs()
    assert updated == {"jax_compilation_cache_dir": str(tmp_path / "sombrl" / f"programs-{machine_kind()}")}


def test_a_folder_that_jax_was_told_of_stays(monkeypatch):
    before = jax.config.jax_compilation_cache_dir
    assert before is not None  # the suite's own
    keep_programs()
    assert jax.config.jax_compilation_cache_dir == before


def test_machines_with_other_instructions_have_another_folder(monkeypatch):
    here = machine_kind()
    monkeypatch.setattr("pathlib.Path.read_text", lambda self: "flags : sse2\nprocessor : 0\n")
    other = machine_kind()
    monkeypatch.setattr("pathlib.Path.read_text", lambda self: "flags : sse2\nprocessor : 1\n")
    assert here != other == machine_kind()
