"""The settings of a particle Bayesian neural network: SVGD, FSVGD, SimFSVGD, and a deep ensemble to compare with."""

import dataclasses
import math
from typing import Literal, get_args

from sombrl.dynamics.particles import ActivationName
from sombrl.dynamics.prior_score import EstimatorName
from sombrl.dynamics.svgd import RepulsionName
from sombrl.records import SombrlError

ScoreName = Literal["gp", "ssge", "nu-method", "kde", "gp+nu-method"]

NU_METHOD_FROM = 0.75  # of a fit with gp+nu-method: the share of its steps that the Gaussian score has


@dataclasses.dataclass(frozen=True)
class ParticleConfig:
    """The particles and how they are trained. The defaults are those of SimFSVGD on the RC car."""

    inference: Literal["fsvgd", "svgd", "ensemble"] = "fsvgd"
    """Particles are pushed apart, and have their prior, as functions; or as vectors of weights; or every one goes its
    own way to the likeliest weights (a deep ensemble)."""
    particles: int = 10
    """Networks. One knows no epistemic uncertainty."""
    hidden: tuple[int, ...] = (64, 64, 64)
    """Widths of the hidden layers; none: the model is linear."""
    activation: ActivationName = "leaky-relu"
    """Of the hidden layers."""
    learning_rate: float = 1e-3
    """AdamW's."""
    weight_decay: float = 1e-3
    """AdamW's, on the networks; the noise does not decay."""
    batch_size: int = 32
    """Transitions per step, drawn with replacement."""
    steps: int = 40_000
    """Gradient steps of a fit."""
    held_out: float = 0.2
    """Share of the rows (every fifth) that a fit is judged by and not trained on; 0: none, and the last step wins."""
    check_every: int = 2000
    """Steps between two looks at the held-out rows; the particles of the best look are kept."""
    fresh: bool = True
    """Every fit starts from new networks; otherwise from the last fit's."""
    bandwidth: float | None = 0.2
    """h of the kernel exp(-d²/2h²) between particles; None: their median distance, which keeps more of their spread."""
    repulsion: RepulsionName = "textbook"
    """Weight of the repulsion against the attraction: equal, or smaller by the number of particles (the authors')."""
    measurement_points: int = 16
    """Inputs per step, beside the batch's, at which particles are compared and the prior holds."""
    neighbourhood_share: float = 0.25
    """Share of these that are inputs of data, displaced a little."""
    visited_share: float = 0.25
    """Share of these that are visited observations with new random actions. The rest is drawn from the domain."""
    neighbourhood_width: float = 0.1
    """That little: a standard deviation, in normalised units."""
    functions: int = 512
    """Simulator prior: functions drawn at every step to estimate its score."""
    score: ScoreName = "gp"
    """Simulator prior: Gaussian with the moments of the draws; spectral Stein (SSGE); ν-method; kernel density; or
    Gaussian first and then ν-method."""
    resolution: float = 0.01
    """Gaussian priors: no value is known better than to this, normalised. The authors' is 0.01; above it the smooth
    part of a prior is learned in far fewer steps."""
    prior_scaling: Literal["full", "legacy"] = "full"
    """The prior counts once, as Bayes has it, whatever it is; or as the authors' code weighs each kind."""
    likelihood_exponent: float = 0.5
    """Power of the likelihood: below 1 the data count less."""
    learn_noise: bool = True
    """The noise, one number per output, is learned; otherwise it stays as given."""
    prior_lengthscale: float = 0.2
    """FSVGD without a simulator: lengthscale of its GP prior, normalised inputs."""
    prior_scale: float = 1.0
    """FSVGD without a simulator: standard deviation of its GP prior, normalised targets."""
    additive_lengthscale: float = 5.0
    """Simulator prior: lengthscale of the GP that stands for what the simulator lacks; physical inputs, all alike."""
    additive_scales: tuple[float, ...] | None = None
    """Simulator prior: standard deviation of that GP, one per output, physical units; None: the simulator is right."""
    draw_additive: bool = False
    """Draw that GP with every function, as the authors do; otherwise the Gaussian score adds its covariance, which is
    what the draws estimate. The other scores always draw."""
    weight_prior_std: float = 0.5
    """SVGD and ensemble: of the Gaussian prior of weights."""
    bias_prior_std: float = 10.0
    """SVGD and ensemble: of the Gaussian prior of biases."""

    def __post_init__(self):
        """Refuse numbers that cannot work."""
        for name in ("particles", "batch_size", "steps", "check_every", "measurement_points"):
            if getattr(self, name) < 1:
                raise SombrlError(f"{_flag(name)} must be at least 1, not {getattr(self, name)}.")
        if self.functions < 2:
            raise SombrlError(f"{_flag('functions')} must be at least 2, to have a spread, not {self.functions}.")
        if any(width < 1 for width in self.hidden):
            raise SombrlError(f"{_flag('hidden')} must be widths of at least 1, not {self.hidden}.")
        for name in POSITIVE:
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):  # NaN fails too
                raise SombrlError(f"{_flag(name)} must be positive and finite, not {value}.")
        if self.bandwidth is not None and not (self.bandwidth > 0 and math.isfinite(self.bandwidth)):
            raise SombrlError(f"{_flag('bandwidth')} must be positive (None: by the median), not {self.bandwidth}.")
        for name in ("weight_decay", "neighbourhood_width"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise SombrlError(f"{_flag(name)} must be a finite number of at least 0, not {value}.")
        if not 0 <= self.held_out <= 0.5:
            raise SombrlError(f"{_flag('held_out')} must lie between 0 and 0.5, not {self.held_out}.")
        shares = self.neighbourhood_share, self.visited_share
        if not (min(shares) >= 0 and sum(shares) <= 1):
            raise SombrlError(
                f"{_flag('neighbourhood_share')} and {_flag('visited_share')} must be at least 0 and add up to at most "
                f"1, not {shares[0]} and {shares[1]}."
            )
        if self.additive_scales is not None and not all(s >= 0 and math.isfinite(s) for s in self.additive_scales):
            raise SombrlError(f"{_flag('additive_scales')} must be finite and at least 0, not {self.additive_scales}.")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise SombrlError(f"{_flag(name)} must be one of {', '.join(choices)}, not {getattr(self, name)!r}.")

    @property
    def period(self) -> int | None:
        """Every so many rows one is held out."""
        return round(1.0 / self.held_out) if self.held_out else None

    @property
    def phases(self) -> tuple[tuple[EstimatorName, int], ...]:
        """The estimators of the prior's score one after the other, and how many steps each has."""
        if self.score != "gp+nu-method":
            return ((self.score, self.steps),)
        first = round(NU_METHOD_FROM * self.steps)
        parts: tuple[tuple[EstimatorName, int], ...] = (("gp", first), ("nu-method", self.steps - first))
        return tuple(part for part in parts if part[1] > 0)


POSITIVE = (
    "learning_rate",
    "likelihood_exponent",
    "resolution",
    "prior_lengthscale",
    "prior_scale",
    "additive_lengthscale",
    "weight_prior_std",
    "bias_prior_std",
)
CHOICES = {
    "inference": ("fsvgd", "svgd", "ensemble"),
    "activation": get_args(ActivationName),
    "repulsion": get_args(RepulsionName),
    "score": get_args(ScoreName),
    "prior_scaling": ("full", "legacy"),
}


def _flag(name: str) -> str:
    return f"--model.{name.replace('_', '-')}"
