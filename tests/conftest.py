"""Strict flags for every test: shapes checked, no silent promotion, warnings are errors; often no key used twice."""

import atexit
import gc
import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

# Most of the suite's time is XLA's, so it compiles with little optimisation, in a third of the time. If XLA_FLAGS
# is set, even to nothing, it is left alone: `XLA_FLAGS= make test` compiles as a user's program does.
if "XLA_FLAGS" not in os.environ:
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    if version("jaxlib").startswith("0.10."):  # later ones stop at a flag that they do not know
        os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # the same programs in many tests and processes: compiled once
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="sombrl-tests-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("SOMBRL_JOBS", "1")  # a process per seed costs seconds: tests of --jobs ask for it
os.environ.setdefault("MPLBACKEND", "Agg")

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_configure(config):
    """No key is used twice. `make test` leaves this check, a tenth of its time, to `make test-all`."""
    jax.config.update("jax_debug_key_reuse", "not thorough" not in config.option.markexpr)


# Where arrays are at home. Elsewhere checking every call would take a fifth of the suite's time and see no shape.
SHAPED = ("controllers", "dreamer", "dynamics", "envs", "exploration", "networks", "theory", "training")
SHAPED += ("numerics", "records", "replay", "seeds", "demo.story", "paper.lab", "paper.planning", "paper.recordings")
hook = install_import_hook([f"sombrl.{room}" for room in SHAPED], "beartype.beartype")
hook.__enter__()

gc.set_threshold(100_000, 50, 50)  # tracing makes millions of small objects, and next to no cycles


def pytest_collection_finish():
    """What was imported stays: the collector need not look at it again."""
    gc.collect()
    gc.freeze()


MOST_MAPS = 30_000
"""A process may have 65530 memory maps, and every compiled program holds some: a thousand tests compile too many."""


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """Forget compiled programs where there are many."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


def pytest_collection_modifyitems(items):
    """Bit for bit comparisons of compiled programs need those that a user runs: `make test-all` has a pass for them."""
    if "xla_backend_optimization_level=0" in os.environ["XLA_FLAGS"]:
        quick = pytest.mark.skip(reason="compiled as a user's program is: XLA_FLAGS= pytest -m optimised")
        for item in items:
            if item.get_closest_marker("optimised"):
                item.add_marker(quick)


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture
def x64():
    """Where a test itself computes in float64."""
    with jax.enable_x64(True):
        yield
