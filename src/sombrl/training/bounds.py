"""Bounds on the return from the model alone, J ± λ Σ‖σ‖ (lemma "optimism"), and how past episodes bore them out."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sombrl.config.run import RunConfig
from sombrl.errors import SombrlError
from sombrl.theory.conformal import conformal_quantile, least_cases, rolling_quantiles

if TYPE_CHECKING:
    from sombrl.training.base import Report

RETURN, UNCERTAINTY, REALISED, GAP = "bounds/return", "bounds/uncertainty", "bounds/realised", "bounds/gap"
"""Metrics: J and Σ‖σ‖ in the model before an episode; the return it then had; J⁺ against J⁻ of two plans."""
LATEST = 20
"""Episodes that calibration looks back, or twice as many as it needs: older predictions were another model's."""


@dataclasses.dataclass(frozen=True)
class Past:
    """Predictions made before episodes, and the returns that followed, [iterations, seeds]; NaN where there is none."""

    value: np.ndarray
    uncertainty: np.ndarray
    realised: np.ndarray

    @staticmethod
    def of(rows: Sequence[Mapping[str, Any]]) -> "Past":
        """From rows of metrics; those without a predicted episode are left out."""
        kept = [row for row in rows if all(_known(row.get(name)) for name in ("iteration", "seed", REALISED))]
        times = sorted({row["iteration"] for row in kept})
        seeds = sorted({row["seed"] for row in kept})
        columns = np.full((3, len(times), len(seeds)), np.nan)
        for row in kept:
            place = times.index(row["iteration"]), seeds.index(row["seed"])
            found = [row.get(name) for name in (RETURN, UNCERTAINTY, REALISED)]
            columns[:, *place] = [value if _known(value) else np.nan for value in found]
        return Past(*columns)

    @property
    def episodes(self) -> int:
        """How many there are, of all seeds."""
        return int(np.sum(~np.isnan(self.realised)))

    @property
    def scores(self) -> np.ndarray:
        """|realised - J| / Σ‖σ‖: the least factor that covers; infinite after divergence, and of sure errors."""
        error = np.abs(self.realised - self.value)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(error == 0, 0.0, error / self.uncertainty)
        return np.asarray(np.where(np.isnan(ratio) & ~np.isnan(self.realised), np.inf, ratio))

    def covered(self, factor: float | np.ndarray) -> float:
        """The share of the episodes whose return was inside J ± factor · Σ‖σ‖, where there is a factor; NaN of none."""
        scores = self.scores
        factors = np.broadcast_to(factor, scores.shape) if self.episodes else scores
        counted = ~np.isnan(scores) & np.isfinite(factors)
        return float(np.mean(scores[counted] <= factors[counted])) if counted.any() else math.nan

    def calibrated(self, coverage: float) -> float:
        """The factor that covers so often, by the latest episodes."""
        if self.episodes == 0:
            raise SombrlError(
                "there are no past episodes to calibrate on: train with --record-bounds (policies: and --eval-every)."
            )
        latest = self.scores[-self._window(coverage) :]
        latest = latest[~np.isnan(latest)]
        if len(latest) < (least := least_cases(coverage)):
            raise SombrlError(
                f"coverage of {coverage:g} takes at least {least} past episodes, and there are {len(latest)}: train on "
                "or ask for less."
            )
        factor = conformal_quantile(latest, coverage)
        if not math.isfinite(factor):
            raise SombrlError(
                f"no factor covers {coverage:g} of the past episodes: in too many of them the model was wrong with "
                "Σ‖σ‖ = 0."
            )
        return factor

    def rolling(self, coverage: float) -> np.ndarray:
        """For every iteration the factor that would have been calibrated just before it."""
        return rolling_quantiles(self.scores, coverage, self._window(coverage))

    def _window(self, coverage: float) -> int:
        """Iterations that calibration looks back."""
        seeds = max(int(self.realised.shape[1]), 1)
        return math.ceil(max(LATEST, 2 * least_cases(coverage)) / seeds)


@dataclasses.dataclass(frozen=True)
class Bounds:
    """J⁻ <= J <= J⁺ of a policy under the learned model, [episodes, seeds]; J(π) is the mean over episodes."""

    value: np.ndarray
    """J."""
    uncertainty: np.ndarray
    """Σ‖σ‖, normalised units."""
    factor: np.ndarray
    """λ, reward per unit of Σ‖σ‖; [seeds]."""
    origin: str
    """Where λ comes from, in words."""
    past: Past
    covered: float
    """The share of past episodes whose return was inside their own J ± λ Σ‖σ‖; NaN without such."""

    @property
    def low(self) -> np.ndarray:
        """J⁻."""
        return np.asarray(self.value - self.factor * self.uncertainty)

    @property
    def high(self) -> np.ndarray:
        """J⁺."""
        return np.asarray(self.value + self.factor * self.uncertainty)


def _known(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def require_factor(factor: float | None, theory: bool, calibrated: float | None) -> None:
    """Refuse what is not a factor, and more than one way to choose it."""
    if (factor is not None) + theory + (calibrated is not None) > 1:
        raise SombrlError("factor, theory and calibrated are three ways to choose λ: give one of them.")
    if factor is not None and not (factor > 0 and math.isfinite(factor)):
        raise SombrlError(f"factor must be positive and finite, not {factor}.")
    if calibrated is not None and not 0 < calibrated < 1:
        raise SombrlError(f"calibrated must lie strictly between 0 and 1, as 0.9 does, not {calibrated}.")


def check_evaluated(run: RunConfig) -> None:
    """Where a policy learns in the middle of episodes, its predictions are compared with those of evaluations."""
    if run.eval_every == 0 or run.setting == "discounted":
        raise SombrlError(
            "--record-bounds predicts evaluations where a policy learns at every decision, undiscounted: add "
            "--eval-every, and leave out --setting discounted."
        )


def gap(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """J⁺ - J⁻ as a share of the larger of the two in size; 0 where they cross."""
    size = np.maximum(np.maximum(np.abs(high), np.abs(low)), np.finfo(np.float64).tiny)
    return np.asarray(np.maximum(high - low, 0.0) / size)


def enough(run: RunConfig, gaps: Sequence[float | None]) -> bool:
    """Whether the gaps of all seeds are as small as the run asks for."""
    fraction = run.stop_when_gap
    return fraction is not None and len(gaps) > 0 and all(g is not None and g <= fraction for g in gaps)


def why_stop(run: RunConfig, report: "Report") -> str | None:
    """The sentence with which a run ends early; None where it goes on."""
    gaps = np.asarray(report.metrics.get(GAP, ())).tolist()
    if not enough(run, gaps):
        return None
    return (
        f"stopped after {report.iteration + 1} episodes: J⁺ of the optimistic plan and J⁻ of the greedy one are within "
        f"{run.stop_when_gap:g} of each other (--stop-when-gap; now {max(gaps):.2g})."
    )
