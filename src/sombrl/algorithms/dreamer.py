"""DreamerV3 with latent disagreement: its row in the table. The algorithm is in `sombrl.dreamer`."""

from typing import Any

from sombrl.algorithms.base import NO_OFFLINE, Algorithm, Preset
from sombrl.config.run import RunConfig
from sombrl.dreamer.config import DreamerConfig
from sombrl.envs.maker import EnvMaker
from sombrl.training.base import Trainer


def _trainer(config: DreamerConfig, run: RunConfig, maker: EnvMaker) -> Trainer[Any]:
    from sombrl.dreamer.trainer import DreamerTrainer  # imported when first asked for: it is large

    return DreamerTrainer(config, run, maker)


OWN_DISCOUNT = "does not go with dreamer, which learns from episodes with a discount of its own: leave it out."
NEVER_RESET = "is for --setting non-episodic, and dreamer learns from episodes: leave it out."

AUTHORS: Preset = {"size": "12m", "ratio": 512.0, "envs": 16, "capacity": 5_000_000}
"""DreamerV3's own for DeepMind Control at the size of the paper. It wants a large GPU and 80 GB for the images."""

FEATURES: Preset = {"ensemble_target": "embedding", "ensemble_lr": 1e-3, "bonus_scale": "scale", "bonus_weight": 0.5}
"""σ about the encoder's features, in units of its own spread: what finds most on small pictures (docs/dreamer.md)."""

DREAMER = Algorithm(
    "dreamer",
    DreamerConfig,
    None,
    "a latent world model, and a policy trained inside it; images and vectors",
    _trainer,
    lacks={
        "downstream": "is not for dreamer: explore without a task (--explore unsupervised --out RUN), then train for "
        "each with --start-from RUN.",
        "setting=discounted": OWN_DISCOUNT,
        "setting=non-episodic": "never resets, and dreamer learns from episodes: leave it out.",
        **dict.fromkeys(("discount", "growing_horizon", "horizon_floor"), OWN_DISCOUNT),
        "stop_when_gap": "compares two plans, and dreamer learns a policy: leave it out.",
        "random_episodes": "is not for dreamer, which fills its replay before it learns: leave it out.",
        **{name: why for name, why in NO_OFFLINE.items() if "=" not in name},
        **dict.fromkeys(("update_every", "update_rule", "update_threshold", "update_minimum"), NEVER_RESET),
    },
    presets={"authors": AUTHORS, "features": FEATURES},
)
