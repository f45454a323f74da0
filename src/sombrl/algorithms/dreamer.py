"""DreamerV3 with latent disagreement: a row of the table; the rest is in `sombrl.dreamer`."""

from sombrl.algorithms.base import Algorithm
from sombrl.dreamer.config import DreamerConfig


def _agent() -> type:
    from sombrl.dreamer.agent import DreamerAgent

    return DreamerAgent


DREAMER = Algorithm(
    "dreamer", DreamerConfig, None, "a latent world model, and a policy trained inside it; images and vectors", _agent
)
