"""The settings of Dreamer, published defaults."""

import dataclasses
from typing import Annotated, Any, Literal

import tyro
from annotated_types import Ge, Gt, Interval

from sombrl.config.check import Configuration
from sombrl.config.kinds import Advice, OneOf
from sombrl.controllers.sac_losses import COUNT_CAP, BonusScale
from sombrl.dreamer.disagreement import SigmaName, TargetName
from sombrl.dreamer.encoder import CnnName
from sombrl.dreamer.sizes import SIZES, Size
from sombrl.records import SombrlError

REPRESENTATION_SCALE, REPLAY_VALUE_SCALE = 0.1, 0.3  # of these losses; all others count once
STRATEGIES = ("greedy", "optimistic", "unsupervised")


@dataclasses.dataclass(frozen=True)
class DreamerExplore(Configuration):
    """How to explore."""

    explore: Annotated[str, OneOf(STRATEGIES), tyro.conf.arg(metavar="|".join(STRATEGIES))] = "optimistic"
    """The task alone (DreamerV3); the task and the bonus; or the bonus alone (Plan2Explore)."""
    bonus_weight: Annotated[float, Ge(0)] = 2.0
    """λ of the optimistic strategy, where it starts."""
    schedule: Literal["constant", "auto"] = "auto"
    """How λ changes. Not at all; or it is tuned so that the policy's bonus matches that of its target (EMA) policy."""
    bonus_weight_lr: Annotated[float, Ge(0)] = 4e-5
    """Auto: learning rate of log λ (LaProp)."""
    bonus_weight_decay: Annotated[float, Ge(0)] = 1e-3
    """Auto: α of the term α λ that pulls λ down."""
    sigma: SigmaName = "mean-std"
    """σ from the members' spread: its mean over the latents; its norm (the paper, to the letter); the mean variance; or
    the logarithm of the mean, which is negative."""
    members: Annotated[int, Ge(2), Advice("one network cannot disagree")] = 5
    """Networks of the ensemble."""
    hidden: tuple[Annotated[int, Ge(1)], ...] | None = None
    """Widths of their hidden layers; default: two as wide as the size says, 512 (published) from 12m on, 64 at 1m."""
    ensemble_target: TargetName = "stoch"
    """What they predict of the next record: the sampled latents; the recurrent state, which has no chance in it; or the
    encoder's features (Plan2Explore)."""
    bootstrap: Annotated[float, Interval(gt=0, le=1)] = 1.0
    """Share of the records that each network learns from, always the same ones, drawn for each network; 1: all."""
    ensemble_lr: Annotated[float, Ge(0)] | None = None
    """Learning rate of the ensemble; default: --learning-rate."""
    bonus_scale: BonusScale = "none"
    """σ as it is; divided by its running std (scale), so that λ has the unit of a reward whatever σ has shrunk to; or
    its running mean subtracted too (z-score), which can pay to end early."""
    bonus_memory: Annotated[int, Ge(1)] = COUNT_CAP
    """Values of σ that the running mean and std reach back, about: two per record of a batch, 2048 per update."""
    bonus_floor: Annotated[float, Gt(0)] = 1e-4
    """The least std that σ is divided by."""

    def refuse_combinations(self) -> None:
        """A λ of 0 stays 0 however it is tuned."""
        if self.schedule == "auto" and self.explore == "optimistic" and self.bonus_weight == 0:
            raise SombrlError("--schedule auto cannot leave --bonus-weight 0: use --schedule constant, or greedy.")

    @property
    def curious(self) -> bool:
        """Whether there is an ensemble."""
        return self.explore != "greedy"

    @property
    def scaled(self) -> bool:
        """Whether σ is divided by its running std."""
        return self.curious and self.bonus_scale != "none"

    def widths(self, size: Size) -> tuple[int, ...]:
        """Of the ensemble's hidden layers."""
        return (size.ensemble, size.ensemble) if self.hidden is None else tuple(self.hidden)

    @property
    def tuned(self) -> bool:
        """Whether λ is learned."""
        return self.explore == "optimistic" and self.schedule == "auto"


@dataclasses.dataclass(frozen=True)
class DreamerConfig(Configuration):
    """DreamerV3. Where nothing else is said the numbers are the published ones."""

    explore: Annotated[DreamerExplore, tyro.conf.arg(name="")] = dataclasses.field(default_factory=DreamerExplore)
    protocol: Literal["paper", "head"] = "paper"
    """Defaults of size, ratio, cnn and the action repeat on dmc: those of the published scores (12m, 512, paper, 2), or
    those of the authors' newest code, with their 12m model (256 with images, 1024 without; head; 1)."""
    size: Annotated[Annotated[str, OneOf.of(SIZES)] | None, tyro.conf.arg(metavar="|".join(SIZES))] = None
    """Millions of parameters; default: the protocol's."""
    ratio: Annotated[float, Gt(0)] | None = None
    """Records trained on per record collected; default: the protocol's, on Atari 256, or 32 with protocol=atari200m."""
    cnn: CnnName | None = None
    """The convolutions; default: the protocol's."""
    envs: Annotated[int, Ge(1)] = 4
    """Environments per seed, stepped together (published: 16, and 1 for Atari 100k)."""
    batch_size: Annotated[int, Ge(1)] = 16
    """Sequences per update."""
    batch_length: Annotated[int, Ge(2)] = 64
    """Records of each."""
    horizon: Annotated[int, Ge(1)] = 15
    """Decisions of an imagined trajectory; one starts at every record of a batch."""
    imagine_last: Annotated[int, Ge(1)] | None = None
    """Imagine from so many records at the end of every sequence only, and learn the value on these; None: from all."""
    capacity: Annotated[int, Ge(1)] = 1_000_000
    """Records kept per seed, in the machine's memory (published: 5 million)."""
    learning_rate: Annotated[float, Ge(0)] = 4e-5
    """Of everything but λ (LaProp)."""
    warmup: Annotated[int, Ge(0)] = 1000
    """Updates over which it climbs from 0."""
    slow_rate: Annotated[float, Interval(ge=0, le=1)] = 0.02
    """How far the slow value and the slow policy move towards the learned ones in an update."""
    unimix: Annotated[float, Interval(ge=0, le=1)] = 0.01
    """Discrete actions: share of the uniform distribution in the policy, so that none is ever given up."""
    start_from: str | None = None
    """A run of dreamer whose world model, and on the same environment whose records, this one begins with."""
    start_updates: Annotated[int, Ge(0)] = 0
    """Updates on those records before the first decision: what comes out is evaluated as eval/zero_shot."""
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    """What networks compute in (losses and returns are float32 always); auto: bfloat16 on an accelerator."""

    def refuse_combinations(self) -> None:
        """Updates before the first decision need records, and the replay needs room for a sequence."""
        if self.explore.ensemble_lr is not None and self.learning_rate == 0:
            raise SombrlError("--ensemble-lr is a multiple of --learning-rate inside: that must be above 0.")
        if self.imagine_last is not None and self.imagine_last > self.batch_length:
            raise SombrlError(
                f"--imagine-last {self.imagine_last} is more than the {self.batch_length} records of --batch-length."
            )
        if self.start_updates and self.start_from is None:
            raise SombrlError("--start-updates are made on the records of another run: name it with --start-from.")
        if self.capacity < self.envs * (self.batch_length + 1):
            raise SombrlError(
                f"--capacity must hold a sequence of every environment, {self.envs * (self.batch_length + 1)} records, "
                f"not {self.capacity}: raise it, or lower --envs or --batch-length."
            )

    @property
    def ensemble_widths(self) -> tuple[int, ...]:
        """The ensemble's hidden layers; the published ones where there is no ensemble."""
        size = self.resolved(images=False).size or ""
        return self.explore.widths(SIZES[size if self.explore.curious else "12m"])

    def resolved(self, images: bool) -> "DreamerConfig":
        """With the protocol's defaults filled in."""
        ratio = 512.0 if self.protocol == "paper" else (256.0 if images else 1024.0)
        filled: dict[str, Any] = {
            "size": self.size or "12m",
            "ratio": self.ratio or ratio,
            "cnn": self.cnn or self.protocol,
        }
        return dataclasses.replace(self, **filled)
