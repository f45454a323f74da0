"""The loop that drives a real car: backends, a safety supervisor, 30 Hz control, and a learner in its own process.

What runs while the car moves (`control_loop.py` and all it uses) is NumPy alone: nothing is compiled, nothing waits for
the learner, and none of it needs JAX.
"""

from sombrl.hardware.backend import Ack, CarBackend, Health, Observation
from sombrl.hardware.control_loop import run_episode
from sombrl.hardware.episode import Episode
from sombrl.hardware.policy import Actor
from sombrl.hardware.sim_backend import SimBackend
from sombrl.hardware.supervisor import Supervisor, SupervisorConfig

__all__ = [
    "Ack",
    "Actor",
    "CarBackend",
    "Episode",
    "Health",
    "Observation",
    "SimBackend",
    "Supervisor",
    "SupervisorConfig",
    "run_episode",
]
