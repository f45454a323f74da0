"""The settings of a particle Bayesian neural network: SVGD, FSVGD, SimFSVGD, and a deep ensemble to compare with."""

import dataclasses
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Interval

from sombrl.config.check import Configuration
from sombrl.config.kinds import Advice
from sombrl.dynamics.particles import ActivationName
from sombrl.dynamics.prior_score import EstimatorName
from sombrl.dynamics.svgd import RepulsionName
from sombrl.records import SombrlError

ScoreName = Literal["gp", "ssge", "nu-method", "kde", "gp+nu-method"]

NU_METHOD_FROM = 0.75  # of a fit with gp+nu-method: the share of its steps that the Gaussian score has


@dataclasses.dataclass(frozen=True)
class ParticleConfig(Configuration, prefix="model"):
    """The particles and how they are trained. The defaults are the authors' for SimFSVGD on the RC car, but for three.

    Half of the measurement points come from data (theirs: none), the repulsion is not divided by the number of
    particles a second time, and every prior counts fully. The authors' are neighbourhood_share = visited_share = 0 and
    repulsion = prior_scaling = "legacy".
    """

    inference: Literal["fsvgd", "svgd", "ensemble"] = "fsvgd"
    """Particles are pushed apart, and have their prior, as functions; or as vectors of weights; or every one goes its
    own way to the likeliest weights (a deep ensemble)."""
    particles: Annotated[int, Ge(1)] = 10
    """Networks. A single one has no epistemic uncertainty."""
    hidden: tuple[Annotated[int, Ge(1)], ...] = (64, 64, 64)
    """Widths of the hidden layers; none: the model is linear."""
    activation: ActivationName = "leaky-relu"
    """Of the hidden layers."""
    learning_rate: Annotated[float, Gt(0)] = 1e-3
    """AdamW's."""
    weight_decay: Annotated[float, Ge(0)] = 1e-3
    """AdamW's, on the networks; the noise does not decay."""
    batch_size: Annotated[int, Ge(1)] = 32
    """Transitions per step, drawn with replacement."""
    steps: Annotated[int, Ge(1)] = 40_000
    """Gradient steps of a fit."""
    held_out: Annotated[float, Interval(ge=0, le=0.5)] = 0.2
    """Share of the rows (every fifth) that a fit is judged by and not trained on; 0: none, and the last step wins."""
    check_every: Annotated[int, Ge(1)] = 2000
    """Steps between two looks at the held-out rows; the particles of the best look are kept."""
    fresh: bool = True
    """Every fit starts from new networks; otherwise from the last fit's."""
    bandwidth: Annotated[float, Gt(0)] | None = 0.2
    """h of the kernel exp(-d²/2h²) between particles; None: their median distance, which keeps more of their spread."""
    repulsion: RepulsionName = "textbook"
    """Weight of the repulsion against the attraction: equal, or smaller by the number of particles (the authors')."""
    measurement_points: Annotated[int, Ge(1)] = 16
    """Inputs per step, beside the batch's, at which particles are compared and the prior holds."""
    neighbourhood_share: Annotated[float, Interval(ge=0, le=1)] = 0.25
    """Share of these that are inputs of data, displaced a little."""
    visited_share: Annotated[float, Interval(ge=0, le=1)] = 0.25
    """Share of these that are visited observations with new random actions. The rest is drawn from the domain."""
    neighbourhood_width: Annotated[float, Ge(0)] = 0.1
    """That little: a standard deviation, in normalised units."""
    functions: Annotated[int, Ge(2), Advice("one function has no spread")] = 512
    """Simulator prior: functions drawn at every step to estimate its score."""
    score: ScoreName = "gp"
    """Simulator prior: Gaussian with the moments of the draws; spectral Stein (SSGE); ν-method; kernel density; or
    Gaussian first and then ν-method."""
    resolution: Annotated[float, Gt(0)] = 0.01
    """Gaussian priors: no value is known better than to this, normalised. The authors' is 0.01; above it the smooth
    part of a prior is learned in far fewer steps."""
    prior_scaling: Literal["full", "legacy"] = "full"
    """The prior counts once, as Bayes has it, whatever it is; or as the authors' code weighs each kind."""
    likelihood_exponent: Annotated[float, Gt(0)] = 0.5
    """Power of the likelihood: below 1 the data count less."""
    learn_noise: bool = True
    """The noise, one number per output, is learned; otherwise it stays as given."""
    prior_lengthscale: Annotated[float, Gt(0)] = 0.2
    """FSVGD without a simulator: lengthscale of its GP prior, normalised inputs."""
    prior_scale: Annotated[float, Gt(0)] = 1.0
    """FSVGD without a simulator: standard deviation of its GP prior, normalised targets."""
    additive_lengthscale: Annotated[float, Gt(0)] = 5.0
    """Simulator prior: lengthscale of the GP that stands for what the simulator lacks; physical inputs, all alike."""
    additive_scales: tuple[Annotated[float, Ge(0)], ...] | None = None
    """Simulator prior: standard deviation of that GP, one per output, physical units; None: the simulator is right."""
    draw_additive: bool = False
    """Draw that GP with every function, as the authors do; otherwise the Gaussian score adds its covariance, which is
    what the draws estimate. The other scores always draw."""
    weight_prior_std: Annotated[float, Gt(0)] = 0.5
    """SVGD and ensemble: of the Gaussian prior of weights."""
    bias_prior_std: Annotated[float, Gt(0)] = 10.0
    """SVGD and ensemble: of the Gaussian prior of biases."""

    def refuse_combinations(self) -> None:
        """The shares of the measurement points leave something, or nothing, for the domain."""
        if self.neighbourhood_share + self.visited_share > 1:
            raise SombrlError(
                "--model.neighbourhood-share and --model.visited-share must add up to at most 1, not "
                f"{self.neighbourhood_share} and {self.visited_share}."
            )

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
