"""Where compiled programs are kept."""

import jax
import pytest

from sombrl.program_cache import keep_programs


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


def test_an_accelerator_has_a_folder(updated, monkeypatch, tmp_path):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_programs()
    assert updated == {"jax_compilation_cache_dir": str(tmp_path / "sombrl" / "programs")}


def test_a_cpu_has_none(updated):
    keep_programs()
    assert updated == {}
