"""The OpenGL library that draws MuJoCo's pictures: found before dm_control is loaded, which chooses for good."""

import ctypes
import functools
import os
import subprocess
import sys

from sombrl.errors import SombrlError
from sombrl.optional import broken, first_line

BACKENDS = ("egl", "osmesa")  # with or without a GPU; neither needs a screen
LIBRARIES = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}
NONE = ("disable", "disabled", "off", "false", "0")  # MuJoCo's words for no pictures
PROBE = """
from dm_control.mujoco import Physics
world = '<mujoco><worldbody><light pos="0 0 3"/><geom type="sphere" size="1"/></worldbody></mujoco>'
assert Physics.from_xml_string(world).render(16, 16).any()
"""
PATIENCE = 60.0  # seconds for a probe: the first load of a driver can be slow
KNOWN = "SOMBRL_DRAWS_WITH"  # in the environment of the processes that we start: what was found to work


def require_opengl(name: str) -> None:
    """Choose an OpenGL library for `name`. A `MUJOCO_GL` that is set already is kept if it works."""
    loaded = sys.modules.get("dm_control._render")
    chosen = os.environ.get("MUJOCO_GL") if loaded is None else getattr(loaded, "BACKEND", None)
    if not chosen and loaded is None:
        chosen = next((backend for backend in BACKENDS if can_draw(backend)), None)
        if chosen is None:
            raise refuse(name, "neither EGL nor OSMesa works here")
        os.environ["MUJOCO_GL"] = chosen
    elif not chosen or chosen.lower() in NONE:
        raise cannot_draw(name, "this process was started without pictures")
    elif os.environ.get(KNOWN) != chosen and not can_draw(chosen):
        raise refuse(name, f"MUJOCO_GL={chosen} does not work here")
    os.environ[KNOWN] = chosen


def choose_for_mujoco() -> None:
    """A library that is there, unless there is a screen or something is set: mujoco by itself would try a window."""
    if os.environ.get("MUJOCO_GL") or "DISPLAY" in os.environ:
        return
    for backend, library in LIBRARIES.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        os.environ["MUJOCO_GL"] = backend
        return


@functools.cache
def can_draw(backend: str) -> bool:
    """Whether MuJoCo draws with it, tried in a process of its own: after a failed attempt others fail too."""
    return _try(PROBE, backend) is None


def refuse(name: str, why: str) -> SombrlError:
    """The error where no library draws; if dm_control fails without pictures too, it names dm_control."""
    failed = _try("import dm_control.suite", "disable")
    return cannot_draw(name, why) if failed is None else broken("dm_control", failed)


def _try(script: str, backend: str) -> str | None:
    """The last line of the errors of a Python program; None if it succeeded."""
    environ = {**os.environ, "MUJOCO_GL": backend}
    try:
        ran = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, timeout=PATIENCE)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return first_line(error)
    said = ran.stderr.decode(errors="replace").strip().split("\n")[-1]
    return None if ran.returncode == 0 else said or f"exit status {ran.returncode}"


def cannot_draw(name: str, why: str) -> SombrlError:
    """The error for pictures that cannot be made."""
    return SombrlError(
        f"{name} cannot draw ({why}): install libegl1 or libosmesa6 (Debian's names) and start with MUJOCO_GL=egl or "
        "MUJOCO_GL=osmesa, or without MUJOCO_GL to have one found."
    )
