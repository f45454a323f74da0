"""The OpenGL library that draws MuJoCo's pictures: found before dm_control is loaded, which chooses for good."""

import functools
import os
import subprocess
import sys

from sombrl.errors import SombrlError

BACKENDS = ("egl", "osmesa")  # with or without a GPU; neither needs a screen
NONE = ("disable", "disabled", "off", "false", "0")  # MuJoCo's words for no pictures
PROBE = """
from dm_control.mujoco import Physics
world = '<mujoco><worldbody><light pos="0 0 3"/><geom type="sphere" size="1"/></worldbody></mujoco>'
assert Physics.from_xml_string(world).render(16, 16).any()
"""
PATIENCE = 60.0  # seconds for a probe: the first load of a driver can be slow


def require_opengl(name: str) -> None:
    """See to it that `name` can draw. A `MUJOCO_GL` that is set already is respected."""
    loaded = sys.modules.get("dm_control._render")
    chosen = os.environ.get("MUJOCO_GL") if loaded is None else getattr(loaded, "BACKEND", None)
    if chosen is None and loaded is None:
        chosen = next((backend for backend in BACKENDS if can_draw(backend)), None)
        if chosen is None:
            raise cannot_draw(name, "neither EGL nor OSMesa works here")
        os.environ["MUJOCO_GL"] = chosen
    if chosen is None or chosen.lower() in NONE:
        raise cannot_draw(name, "this process was started without pictures")


@functools.cache
def can_draw(backend: str) -> bool:
    """Whether MuJoCo draws with it, tried in a process of its own: a failed attempt spoils the next."""
    environ = {**os.environ, "MUJOCO_GL": backend}
    try:
        ran = subprocess.run([sys.executable, "-c", PROBE], env=environ, capture_output=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ran.returncode == 0


def cannot_draw(name: str, why: str) -> SombrlError:
    """The error for pictures that cannot be made."""
    return SombrlError(
        f"{name} cannot draw ({why}): install libegl1 or libosmesa6 (Debian's names) and start with MUJOCO_GL=egl or "
        "MUJOCO_GL=osmesa, or without MUJOCO_GL to have one found."
    )
