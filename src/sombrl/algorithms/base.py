"""What an algorithm is: a frozen config, and a function that builds the parts (or the whole trainer) from it."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sombrl.config.kinds import kinds_of
from sombrl.config.run import RunConfig
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.maker import EnvMaker
from sombrl.errors import SombrlError
from sombrl.exploration.weight import TheoryConfig
from sombrl.settings import Setting
from sombrl.storage.datasets import place_of
from sombrl.training.base import Trainer
from sombrl.training.episodic import EpisodicTrainer
from sombrl.training.offline import OfflineEpisodicTrainer, OfflineOnlineTrainer
from sombrl.training.online import OnlineTrainer
from sombrl.training.parts import Parts as Parts

Build = Callable[[Any, AbstractEnvs, Setting], Parts]
"""config × environment × setting → parts; `envs.task` is None when the environment's reward is not known."""
MakeTrainer = Callable[[Any, RunConfig, EnvMaker], Trainer[Any]]
"""config × run × where environments come from → a trainer."""


Preset = Mapping[str, Any]
"""Values of several settings under one name, by the names of the fields ("gp.rank")."""


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """A name on the command line. It has `build`, or `trainer` where the common loops do not fit."""

    name: str
    config: type
    build: Build | None
    summary: str
    trainer: MakeTrainer | None = None
    lacks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Settings ("decisions") and choices ("schedule=auto") that mean nothing to it, and why, to be read after them."""
    presets: Mapping[str, Preset] = dataclasses.field(default_factory=dict)

    def make_trainer(self, config: Any, run: RunConfig, maker: EnvMaker) -> Trainer[Any]:
        """An untrained trainer."""
        names = {key.partition("=")[0] for key in self.lacks if "=" in key}
        self.refuse_values({name: getattr(run, name, getattr(config.explore, name, None)) for name in names})
        if self.trainer is not None:
            return self.trainer(config, run, maker)
        assert self.build is not None, f"{self.name} has neither parts nor a trainer"
        envs = maker.make(run.seed_list, endless=run.endless, workers=run.env_workers)
        setting = run.make_setting(envs.spec.episode_length)
        parts = self.build(config, envs, setting)
        begins = getattr(config, "start_from", None)
        if run.random_episodes is not None:
            parts = dataclasses.replace(parts, random_episodes=run.random_episodes)
        elif begins is not None:
            parts = dataclasses.replace(parts, random_episodes=0)  # the model has something to start from
        config, run = resolved(config, run)
        if run.offline is not None:
            if begins is not None:
                raise SombrlError("--offline learns from data alone: leave out --start-from.")
            offline = OfflineOnlineTrainer if parts.online else OfflineEpisodicTrainer
            return offline(config, run, maker, envs, setting, parts)
        if config.explore.schedule == "calibrated":
            raise SombrlError(
                "--schedule calibrated needs data that are held out: add --offline, or use --schedule constant."
            )
        parts = dataclasses.replace(parts, exploration=dataclasses.replace(parts.exploration, calibrated=False))
        kind = OnlineTrainer if parts.online else EpisodicTrainer
        return kind(config, run, maker, envs, setting, parts)

    def refuse_values(self, given: Mapping[str, Any]) -> None:
        """Refuse values of settings that the algorithm cannot have."""
        for name, value in given.items():
            if isinstance(value, str) and (why := self.lacks.get(f"{name}={value}")):
                raise SombrlError(f"--{name.replace('_', '-')} {value} {why}")

    def refuse_names(self, given: Iterable[str]) -> None:
        """Refuse settings that the algorithm does nothing with."""
        for name in given:
            if why := self.lacks.get(name):
                raise SombrlError(f"--{name.replace('_', '-')} {why}")


def resolved(config: Any, run: RunConfig) -> tuple[Any, RunConfig]:
    """The configurations with paths that hold from every folder."""
    if run.offline is not None:
        run = dataclasses.replace(run, offline=str(place_of(run.offline)))
    if getattr(config, "start_from", None) is not None:
        config = dataclasses.replace(config, start_from=str(place_of(config.start_from)))
    return config, run


NO_OFFLINE = {
    name: "is for algorithms with a model that says how unsure it is: use sombrl train mbpo, gp-icem or sim-fsvgd."
    for name in ("offline", "offline_seed", "offline_order", "held_out")
} | {"schedule=calibrated": "needs --offline, which is for mbpo, gp-icem and sim-fsvgd."}
"""What an algorithm lacks that learns from its own decisions alone."""


def windowed(capacity: int, window: int | None, flag: str) -> int:
    """Rows of replay: those of the window, which is a ring of that size; refuses one that is larger than the replay."""
    if window is not None and window > capacity:
        raise SombrlError(
            f"--replay-window {window} is more than the {capacity} transitions that are kept: raise {flag}, or leave "
            "--replay-window out."
        )
    return capacity if window is None else window


EPISODIC = {
    "decisions": "is for algorithms that learn at every decision: give --episodes, not --decisions.",
    "report_every": "is for algorithms that learn at every decision: there is a report after every episode here.",
}
"""What an algorithm lacks that learns between episodes."""
ONE_POLICY = {"schedule=decoupled": "is for mbpo, which learns two policies with it."}
"""What an algorithm lacks that learns one policy or none."""
NO_INFORMATION = {
    "schedule=theoretical": "is for gp-icem only: its model counts the information it has gained.",
    **{
        name: "is for --schedule theoretical, which is for gp-icem only: leave it out."
        for name in ("theory", *(f"theory.{name}" for name in kinds_of(TheoryConfig)))
    },
}
"""What an algorithm lacks whose model does not count its information gain."""
