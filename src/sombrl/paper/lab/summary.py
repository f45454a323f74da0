"""What the rows say, in numbers: coverage of the lemma, slopes of the regret, decay of the uncertainty.

Everything here takes only rows, so a table can be made again from a CSV. `bounds_summary` has the lines about bounds.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from sombrl.paper.lab.bounds_summary import (
    HeldLine,
    held_table,
    horizon_table,
    lyapunov_table,
    simple_regret_table,
    update_table,
)
from sombrl.paper.lab.proportion import Share, wilson
from sombrl.paper.lab.rows import Rows, curves, distinct, select
from sombrl.records import SombrlError
from sombrl.theory import Slope, loglog_slope


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


def lemma_table(rows: Rows) -> list[LemmaLine]:
    """One line per setting and env that the optimism experiment was run on."""
    table = []
    tried = [
        row
        for row in rows
        if row["metric"].startswith(("lab/lemma_holds", "lab/lemma_both", "lab/calibrated", "lab/required"))
    ]
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
    places = distinct(kept, "env", "setting")
    for setting, env, method in sorted(
        distinct(kept, "setting", "env", "method"), key=lambda t: places.index(t[1::-1])
    ):
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
        parts += _scans(scans)
    if lines := held_table(rows):
        parts.append(_held(lines))
    if losses := simple_regret_table(rows):
        parts.append(
            _table(
                "Simple regret",
                ("setting", "systems", "method", "systems without a failure", "line before", "rₙ: median", "worst",
                 "bound: median", "largest rₙ/bound", "needed of λₙ: worst"),
                [
                    (t.setting, t.env, t.method, _share(t.systems), _share(t.before), f"{t.median:.2g}",
                     f"{t.worst:.2g}", f"{t.median_bound:.1e}", f"{t.ratio:.1e}", f"{t.worst_factor:.1e}")
                    for t in losses
                ],
            )
        )  # fmt: skip
    if horizons := horizon_table(rows):
        parts.append(
            _table(
                "Bounds over the horizon",
                ("T", "method", "bound at n = 1", "at the last n", "times per decision, n = 1", "last n",
                 "rₙ: mean", "promised too much"),
                [
                    (str(t.horizon), t.method, f"{t.bound_first:.1e}", f"{t.bound:.1e}", f"{t.growth_first:.1f}",
                     f"{t.growth:.1f}", f"{t.regret:.2f}", f"{t.promised:.3g}")
                    for t in horizons
                ],
            )
        )  # fmt: skip
    if known := lyapunov_table(rows):
        parts.append(_table("A known Lyapunov function", ("what", "known beforehand", "largest that was met"), known))
    if regrets := regret_table(rows, "lab/known_regret"):
        parts.append(
            _table(
                "Regret with a known Lyapunov function",
                ("method", "R_N: mean", "worst", "slope of log R_N", "95% interval"),
                [(t.method, f"{t.final:.1f}", f"{t.worst:.1f}", *_slope(t.slope)) for t in regrets],
            )
        )
    if bits := update_table(rows):
        parts.append(
            _table(
                "The one-bit rule in a GP run",
                ("rule", "decisions", "updates of the model", "decisions between updates: first ten", "last ten",
                 "longest", f"R_N after {bits[0].common} decisions"),
                [
                    (t.rule, f"{t.decisions:.0f}", str(t.updates), f"{t.first:.1f}", f"{t.last:.1f}",
                     str(t.longest), f"{t.regret:.0f}")
                    for t in bits
                ],
            )
        )  # fmt: skip
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


def _scans(scans: Sequence[RegretLine]) -> list[str]:
    """A table for λₙ and one for βₙ."""
    by = {(t.setting, t.env, t.method): t.final for t in scans}
    parts = []
    for method, weight in (("sombrl", "λₙ"), ("hucrl", "βₙ of H-UCRL")):
        kept = [t for t in scans if t.method.startswith(method)]
        factors = sorted({float(t.method.partition(" x")[2]) for t in kept})
        places = distinct([{"s": t.setting, "e": t.env} for t in kept], "s", "e")
        lines = []
        for s, e in places:
            found = (by.get((s, e, f"{method} x{factor:g}")) for factor in factors)
            lines.append((s, e, *("–" if value is None else f"{value:.1f}" for value in found)))
        if lines:
            header = ("setting", "systems", *(f"× {factor:g}" for factor in factors))
            parts.append(_table(f"R_N for other factors on {weight}", header, lines))
    return parts


def _held(lines: Sequence[HeldLine]) -> str:
    """How many systems the lemma never failed on; a setting has its own factors."""
    cells = []
    for t in lines:
        counts = ", ".join(f"{share.successes}/{share.trials} at {factor:g}" for factor, share in t.shares.items())
        cells.append((t.setting, t.env, counts, *(_least(x) for x in (t.least, t.least_regret))))
    return _table(
        "The least factor on λₙ with which the lemma held",
        ("setting", "systems", "systems without a failure", "least factor for all systems", "for π\\* and πₙ alone"),
        cells,
    )


def _least(factor: float | None) -> str:
    return "more" if factor is None else f"{factor:g}"


def _table(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return f"### {title}\n\n" + "\n".join(
        f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *lines)
    )


def _share(share: Share) -> str:
    return f"{share.successes}/{share.trials} ({share.low:.2f} to {share.high:.2f})"


def _slope(slope: Slope | None) -> tuple[str, str]:
    return ("–", "–") if slope is None else (f"{slope.value:.2f}", f"{slope.low:.2f} to {slope.high:.2f}")
