"""Where a run was made: versions, device, precision, git state and command."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from contextlib import suppress
from typing import Any

import jax

CAREFUL = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""A repository's own configuration may name programs to run; the current folder may be a stranger's."""


def versions(*packages: str) -> dict[str, str | None]:
    """The installed version of each package, None for one that is not installed."""
    found: dict[str, str | None] = dict.fromkeys(packages)
    for name in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def provenance(command: list[str]) -> dict[str, Any]:
    """What one needs to know to run it again and get the same numbers."""
    device = jax.devices()[0]
    return {
        "format": 1,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": list(command),
        "versions": versions("sombrl", "jax", "jaxlib", "numpy", "equinox", "optax", "gymnasium"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": {"platform": device.platform, "kind": device.device_kind, "count": jax.device_count()},
        "cpus": os.cpu_count(),
        # mypy does not see these two: JAX makes the attributes when it is imported.
        "precision": {
            "jax_enable_x64": bool(jax.config.jax_enable_x64),  # type: ignore[attr-defined]
            "jax_default_matmul_precision": jax.config.jax_default_matmul_precision,  # type: ignore[attr-defined]
            "xla_flags": os.environ.get("XLA_FLAGS"),  # the deterministic switch of a GPU is there
        },
        "git": {"commit": _git("rev-parse", "HEAD"), "dirty": _dirty()},
    }


def _dirty() -> bool | None:
    status = _git("status", "--porcelain", "--untracked-files=no")
    return None if status is None else bool(status)


def _git(*arguments: str) -> str | None:
    """The answer of git about the current directory, None when there is none: never a reason to fail."""
    # Without optional locks: looking must not disturb a git command of the user.
    environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}
    try:
        answer = subprocess.run(
            ["git", *CAREFUL, *arguments], capture_output=True, text=True, timeout=10, check=True, env=environment
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
