"""What an algorithm is: a frozen config, and a function that builds the parts (or the whole trainer) from it."""

import dataclasses
from collections.abc import Callable
from typing import Any

from sombrl.config.run import RunConfig
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.maker import EnvMaker
from sombrl.settings import Setting
from sombrl.training.base import Trainer
from sombrl.training.episodic import EpisodicTrainer
from sombrl.training.online import OnlineTrainer
from sombrl.training.parts import Parts as Parts

Build = Callable[[Any, AbstractEnvs, Setting], Parts]
"""config × environment × setting → parts; `envs.task` is None when the environment's reward is not known."""
MakeTrainer = Callable[[Any, RunConfig, EnvMaker], Trainer[Any]]
"""config × run × where environments come from → a trainer."""


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """A name on the command line. It has `build`, or `trainer` where the common loops do not fit."""

    name: str
    config: type
    build: Build | None
    summary: str
    trainer: MakeTrainer | None = None

    def make_trainer(self, config: Any, run: RunConfig, maker: EnvMaker) -> Trainer[Any]:
        """An untrained trainer."""
        if self.trainer is not None:
            return self.trainer(config, run, maker)
        assert self.build is not None, f"{self.name} has neither parts nor a trainer"
        envs = maker.make(run.seed_list, endless=run.endless, workers=run.env_workers)
        setting = run.make_setting(envs.spec.episode_length)
        parts = self.build(config, envs, setting)
        kind = OnlineTrainer if parts.online else EpisodicTrainer
        return kind(config, run, maker, envs, setting, parts)
