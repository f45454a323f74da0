"""Compiled programs are kept on disk between processes, where compiling takes long: on accelerators."""

import os
from pathlib import Path

import jax


def keep_programs() -> None:
    """Use a folder of the user's, unless JAX was told of one (JAX_COMPILATION_CACHE_DIR) or runs on a CPU.

    On a CPU a program compiles in seconds, and one that another kind of CPU compiled may not run.
    """
    told = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if told is not None or jax.default_backend() == "cpu":
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(home / "sombrl" / "programs"))
