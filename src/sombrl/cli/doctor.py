"""`sombrl doctor`: whether this machine is set up well, and what to do where it is not."""

import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from sombrl.storage.provenance import versions

Level = Literal["ok", "warning", "error"]
Finding = tuple[Level, str]
GIB = 2**30
EXTRAS = (
    ("matplotlib", "report", "pictures: sombrl plot, sombrl demo, films of our own worlds"),
    ("tensorboardX", "tb", "TensorBoard curves"),
    ("imageio_ffmpeg", "video", ".mp4 films of sombrl eval --video"),
    ("pygame", "video", "films of Gymnasium's classic-control worlds"),
    ("dm_control", "dmc", "the DeepMind control suite"),
    ("mujoco_playground", "playground", "MuJoCo Playground's tasks in JAX"),
    ("ale_py", "atari", "Atari games"),
    ("ray", "ray", "sweeps on a Ray cluster"),
    ("submitit", "slurm", "sweeps on SLURM"),
    ("optuna", "tune", "sombrl tune"),
    ("onnx", "onnx", "policies as ONNX graphs"),
    ("minari", "minari", "replay as Minari datasets"),
    ("pyarrow", "parquet", "tables as Parquet"),
    ("wandb", "wandb", "Weights & Biases"),
)
"""Module, the extra that installs it, what it is for."""


def examine() -> list[Finding]:
    """Every finding, as (level, sentence). A check that breaks is itself a finding: this never raises."""
    findings: list[Finding] = []
    for check in CHECKS:
        try:
            findings += check()
        except Exception as error:
            findings.append(
                ("error", f"the check of {check.__name__.strip('_')} broke, {type(error).__name__}: {error}")
            )
    return findings


def _python() -> Iterator[Finding]:
    """The version; an older one than 3.11 could not have come this far."""
    yield "ok", f"Python {platform.python_version()} on {platform.platform(terse=True)}"


def _jax() -> Iterator[Finding]:
    found = versions("jax", "jaxlib")
    device = jax.devices()[0]
    count = jax.device_count()
    yield (
        "ok",
        f"jax {found['jax']}, jaxlib {found['jaxlib']} on {count} × {device.device_kind} ({device.platform})",
    )
    if device.platform != "cpu":
        off = os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "true").lower() in ("false", "0")
        share = os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION")
        taken = "as it needs it" if off else f"{share or '0.75'} of it at once"
        yield (
            "ok",
            f"JAX takes the device's memory {taken}; where others share it, set XLA_PYTHON_CLIENT_PREALLOCATE=false",
        )
    elif shutil.which("nvidia-smi"):
        yield "warning", "there is an NVIDIA driver, but JAX runs on the CPU: pip install 'sombrl[cuda]'."


def _double_precision() -> Iterator[Finding]:
    """The GP's Cholesky is float64 whatever the global flag says."""
    with jax.enable_x64(True):
        matrix = jnp.eye(3, dtype=jnp.float64) + 1e-12
        factor = jnp.linalg.cholesky(matrix)
        good = factor.dtype == jnp.float64 and bool(np.allclose(factor @ factor.T, matrix, rtol=0, atol=1e-14))
    if good:
        yield "ok", "float64 works where the Gaussian processes need it"
    else:
        yield (
            "error",
            "a float64 Cholesky factor came out wrong on this device: train with JAX_PLATFORMS=cpu.",
        )


def _threads() -> Iterator[Finding]:
    threads = os.environ.get("OPENBLAS_NUM_THREADS")
    if threads == "1":
        yield "ok", "OPENBLAS_NUM_THREADS is 1"
    else:
        yield (
            "warning",
            f"OPENBLAS_NUM_THREADS is {threads or 'not set'}: its threads wait by spinning, so that a "
            "Cholesky on a busy machine gets up to 60 times slower; export OPENBLAS_NUM_THREADS=1.",
        )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg()[0]
    busy = f"; others keep {load:.1f} of them busy" if cores and load > 0.75 * cores else ""
    yield ("warning" if busy else "ok"), f"{cores} CPU core{'s' * (cores != 1)}{busy}"


def _memory() -> Iterator[Finding]:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():  # counts what the page cache would give back
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        available = int(lines["MemAvailable"].split()[0]) * 1024
    level: Level = "warning" if available < 2 * GIB else "ok"
    yield level, f"{available / GIB:.1f} of {total / GIB:.1f} GiB of memory are free{_less(level, '2 GiB')}"


def _disk() -> Iterator[Finding]:
    free = shutil.disk_usage(Path.cwd()).free
    level: Level = "warning" if free < GIB else "ok"
    yield level, f"{free / GIB:.1f} GiB of disk are free in {Path.cwd()}{_less(level, '1 GiB')}"


def _compilation_cache() -> Iterator[Finding]:
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "sombrl" / "xla"
    folder = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR", default))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        yield (
            "warning",
            f"compiled programs cannot be kept in {folder} ({error.strerror or error}), so that every "
            "command compiles again: set JAX_COMPILATION_CACHE_DIR to a folder you can write.",
        )
    else:
        yield "ok", f"compiled programs are kept in {folder}"


def _extras() -> Iterator[Finding]:
    for module, extra, purpose in EXTRAS:
        if importlib.util.find_spec(module) is None:
            yield "warning", f"{module} is not installed ({purpose}): pip install 'sombrl[{extra}]'."
        else:
            yield "ok", f"{module} is installed ({purpose})"


def _rendering() -> Iterator[Finding]:
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    backend = os.environ.get("MUJOCO_GL")
    if backend:
        yield "ok", f"MuJoCo draws with MUJOCO_GL={backend}"
    elif screen or sys.platform in ("darwin", "win32"):
        yield "ok", "there is a screen to draw on"
    else:
        yield (
            "ok",
            "there is no screen: films work without one, MuJoCo's with MUJOCO_GL=egl (GPU) or osmesa (CPU)",
        )


def _less(level: Level, needed: str) -> str:
    return f"; runs may want {needed} or more" if level == "warning" else ""


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python,
    _jax,
    _double_precision,
    _threads,
    _memory,
    _disk,
    _compilation_cache,
    _extras,
    _rendering,
)
