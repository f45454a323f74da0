"""The Control Suite through a camera: `dmc-vision:domain-task` shows square RGB pictures in place of the state."""

import dataclasses
from typing import Any

import numpy as np

from sombrl.envs.adapters.opengl import cannot_draw
from sombrl.envs.guards import check_count
from sombrl.envs.layout import ObsLayout, Part
from sombrl.optional import first_line

PREFIX = "dmc-vision:"
CAMERAS = {"quadruped": 2}  # where the usual benchmarks look from; the first camera everywhere else


@dataclasses.dataclass
class Camera:
    """What the agent sees instead of numbers."""

    name: str  # of the environment
    size: int = 64
    """Pixels of a side."""
    drew: bool = dataclasses.field(default=False, init=False)
    """Whether there was a picture yet: then it can be done, and what fails is an accident."""

    def __post_init__(self) -> None:
        """Refuse an impossible size."""
        check_count(self.size, "size")

    @property
    def layout(self) -> ObsLayout:
        """One image."""
        return ObsLayout((Part("image", (self.size, self.size, 3), "image"),))

    def picture(self, physics: Any) -> np.ndarray:
        """Where the physics are now, as a row of bytes."""
        domain = self.name.removeprefix(PREFIX).partition("-")[0]
        try:
            picture = physics.render(self.size, self.size, camera_id=CAMERAS.get(domain, 0))
        except Exception as error:  # each OpenGL library has its own kind
            if self.drew:
                raise
            raise cannot_draw(self.name, first_line(error)) from error
        self.drew = True
        return self.layout.flatten({"image": picture})
