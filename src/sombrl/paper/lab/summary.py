"""What the rows say, in numbers: coverage of the lemma, slopes of the regret, decay of the uncertainty.

Everything here takes only rows, so a table can be made again from a CSV.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from sombrl.paper.lab.rows import Rows, curves, distinct, select
from sombrl.records import SombrlError
from sombrl.theory import Slope, loglog_slope

Z95 = 1.959963984540054


class Share(NamedTuple):
    """A proportion with its 95% interval."""

    value: float
    low: float
    high: float
    successes: int
    trials: int


class LemmaLine(NamedTuple):
    """How the optimism lemma fared in one setting and one env."""

    setting: str
    env: str
    pairs: float  # the share of (system, n, random policy) on which it held
    systems: Share  # those on which it held for every n and every policy
    both_sides: Share  # and |J(π, f*) - J(π, μₙ)| <= λₙ Σₙ with Σₙ under either dynamics
    calibrated: Share  # and |μₙ - f*| <= βₙσₙ everywhere
    without_bonus: float  # the share of (system, n, policy) that would have held at λₙ = 0
    median_factor: float  # over systems and n, the median of the least factor on λₙ with which all policies hold
    worst_factor: float
    worst_beta: float  # the largest |μₙ - f*|/(βₙσₙ) anywhere


class RegretLine(NamedTuple):
    """The regret of one method in one setting and one env."""

    setting: str
    env: str
    method: str
    final: float  # the mean over systems of R_N
    worst: float  # the largest R_N
    slope: Slope | None  # of log R_N against log N, over the second half; None where there is nothing to fit


class DecayLine(NamedTuple):
    """How max_π Σ_N(π, f*) shrinks."""

    method: str
    first: float
    last: float
    slope: Slope | None


def wilson(successes: int, trials: int) -> Share:
    """The 95% interval of Wilson (1927) for a proportion."""
    if not 0 <= successes <= trials or trials < 1:
        raise SombrlError(f"{successes} of {trials} is not a proportion: count trials and successes.")
    p, z2 = successes / trials, Z95**2 / trials
    centre = (p + 0.5 * z2) / (1.0 + z2)
    half = math.sqrt(p * (1.0 - p) * z2 + 0.25 * z2**2) / (1.0 + z2)
    return Share(p, max(0.0, centre - half), min(1.0, centre + half), successes, trials)


def lemma_table(rows: Rows) -> list[LemmaLine]:
    """One line per setting and env that the optimism experiment was run on."""
    table = []
    tried = [row for row in rows if row["metric"].startswith(("lab/lemma", "lab/calibrated", "lab/required"))]
    for setting, env in distinct(tried, "setting", "env"):
        here = select(tried, setting=setting, env=env)

        def values(metric: str, here: Rows = here) -> np.ndarray:
            return curves(select(here, metric=f"lab/{metric}"))[1]

        def always(*metrics: str, values: Callable[[str], np.ndarray] = values) -> Share:
            held = np.prod([values(f"{metric}_always")[:, 0] for metric in metrics], axis=0)
            return wilson(int(held.sum()), len(held))

        table.append(
            LemmaLine(
                setting,
                env,
                float(np.mean(values("lemma_holds"))),
                always("lemma_holds", "lemma_holds_planned"),
                always("lemma_both_sides"),
                always("calibrated"),
                float(np.mean(values("lemma_holds_without_bonus"))),
                float(np.median(values("required_factor"))),
                float(np.max(values("required_factor_worst"))),
                float(np.max(values("required_beta_worst"))),
            )
        )
    return table


def coverage(rows: Rows) -> dict[tuple[str, str, int], float]:
    """The share of (system, policy) pairs on which the lemma held, per (setting, env, decisions seen)."""
    found: dict[tuple[str, str, int], float] = {}
    held = select(rows, metric="lab/lemma_holds")
    for setting, env in distinct(held, "setting", "env"):
        times, values = curves(select(held, setting=setting, env=env))
        found |= {(setting, env, int(when)): float(mean) for when, mean in zip(times, values.mean(axis=0), strict=True)}
    return found


def regret_table(rows: Rows, metric: str = "lab/regret") -> list[RegretLine]:
    """One line per setting, env and method."""
    table = []
    kept = select(rows, metric=metric)
    for setting, env, method in distinct(kept, "setting", "env", "method"):
        _, values = curves(select(kept, setting=setting, env=env, method=method))
        table.append(
            RegretLine(setting, env, method, float(values[:, -1].mean()), float(values[:, -1].max()), slope_of(values))
        )
    return table


def decay_table(rows: Rows) -> list[DecayLine]:
    """How fast the largest uncertainty shrinks, and how fast the rate of the theorem does."""
    table = []
    for metric in ("lab/max_uncertainty", "lab/rate"):
        kept = select(rows, metric=metric)
        for (method,) in distinct(kept, "method"):
            _, values = curves(select(kept, method=method))
            table.append(DecayLine(method, float(values[:, 0].mean()), float(values[:, -1].mean()), slope_of(values)))
    return table


def slope_of(values: np.ndarray) -> Slope | None:
    """The log-log slope with its interval; without one for a single curve, and none where it cannot be had."""
    try:
        return loglog_slope(values if len(values) > 1 else np.repeat(values, 2, axis=0))
    except SombrlError:
        return None


def markdown(rows: Rows) -> str:
    """The tables of docs/lab.md, as many as the rows allow."""
    parts = []
    if lemmas := lemma_table(rows):
        parts.append(
            _table(
                "The optimism lemma",
                ("setting", "systems", "pairs that hold", "at λₙ = 0", "systems without a failure", "both inequalities",
                 "calibrated", "needed of λₙ: median", "worst", "needed of βₙ: worst"),
                [
                    (t.setting, t.env, f"{t.pairs:.1%}", f"{t.without_bonus:.1%}", _share(t.systems),
                     _share(t.both_sides), _share(t.calibrated), f"{t.median_factor:.1e}",
                     f"{t.worst_factor:.1e}", f"{t.worst_beta:.2f}")
                    for t in lemmas
                ],
            )
        )  # fmt: skip
    if regrets := regret_table(rows):
        parts.append(
            _table(
                "Regret",
                ("setting", "systems", "method", "R_N: mean", "worst", "slope of log R_N", "95% interval"),
                [(t.setting, t.env, t.method, f"{t.final:.1f}", f"{t.worst:.1f}", *_slope(t.slope)) for t in regrets],
            )
        )
    if scans := regret_table(rows, "lab/scan_regret"):
        by = {(t.setting, t.env, t.method): t.final for t in scans}
        methods = [m for (m,) in distinct([{"m": t.method} for t in scans], "m")]
        places = distinct([{"s": t.setting, "e": t.env} for t in scans], "s", "e")
        parts.append(
            _table(
                "R_N for other factors on λₙ",
                ("setting", "systems", *(m.replace("sombrl x", "λₙ × ") for m in methods)),
                [(s, e, *(f"{by[s, e, m]:.1f}" for m in methods)) for s, e in places],
            )
        )
    if decays := decay_table(rows):
        names = {"theory": "√(Γ_N³/N)", "sombrl": "SOMBRL, r = 0", "random": "random actions"}
        parts.append(
            _table(
                "Exploration without a reward",
                ("max_π Σ_N(π, f*)", "first", "last", "slope", "95% interval"),
                [(names.get(t.method, t.method), f"{t.first:.2f}", f"{t.last:.2f}", *_slope(t.slope)) for t in decays],
            )
        )
    return "\n\n".join(parts)


def _table(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return f"### {title}\n\n" + "\n".join(
        f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *lines)
    )


def _share(share: Share) -> str:
    return f"{share.successes}/{share.trials} ({share.low:.2f} to {share.high:.2f})"


def _slope(slope: Slope | None) -> tuple[str, str]:
    return ("–", "–") if slope is None else (f"{slope.value:.2f}", f"{slope.low:.2f} to {slope.high:.2f}")
