"""Strict flags for every test: shapes checked, no silent promotion, no key used twice, warnings are errors."""

import atexit
import gc
import os
import shutil
import tempfile

if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # the same programs in many tests and processes: compiled once
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="sombrl-tests-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)

hook = install_import_hook("sombrl", "beartype.beartype")
hook.__enter__()


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """Every compiled program holds memory maps, and a process may have 65530: a thousand tests compile too many."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture
def x64():
    """Where a test itself computes in float64."""
    with jax.enable_x64(True):
        yield
