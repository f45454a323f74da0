"""DreamerV3 with latent disagreement: its row in the table. The algorithm is in `sombrl.dreamer`."""

from typing import Any

from sombrl.algorithms.base import Algorithm
from sombrl.config.run import RunConfig
from sombrl.dreamer.config import DreamerConfig
from sombrl.envs.maker import EnvMaker
from sombrl.training.base import Trainer


def _trainer(config: DreamerConfig, run: RunConfig, maker: EnvMaker) -> Trainer[Any]:
    from sombrl.dreamer.trainer import DreamerTrainer  # imported when first asked for: it is large

    return DreamerTrainer(config, run, maker)


DREAMER = Algorithm(
    "dreamer",
    DreamerConfig,
    None,
    "a latent world model, and a policy trained inside it; images and vectors",
    _trainer,
)
