"""Compiled programs are kept on disk between processes: compiled once per machine, not once per command."""

import hashlib
import os
import platform
import warnings
from pathlib import Path

import jax

CPU_FACTS = ("model name", "flags", "Features", "CPU part")
"""Lines of /proc/cpuinfo that say which instructions a program may use."""


def keep_programs() -> None:
    """Use a folder of the user's, unless JAX was told of one (JAX_COMPILATION_CACHE_DIR)."""
    # JAX does not write entries atomically: a process that reads one too early warns, and compiles the program itself.
    warnings.filterwarnings("ignore", message="Error reading persistent compilation cache entry", category=UserWarning)
    told = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if told is None:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "sombrl" / f"programs-{machine_kind()}"))


def machine_kind() -> str:
    """A short name for this kind of CPU: a home folder can be shared by machines that run different instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts = sorted({line for line in lines if line.startswith(CPU_FACTS)})
    except OSError:
        facts = [platform.processor()]
    return hashlib.blake2b("\n".join([platform.machine(), *facts]).encode(), digest_size=4).hexdigest()
