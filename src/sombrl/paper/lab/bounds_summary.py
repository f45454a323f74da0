"""What the rows say about bounds: the least factor on λₙ, the simple regret, the horizon, the energy, the updates."""

from typing import NamedTuple

import numpy as np

from sombrl.paper.lab.proportion import Share, wilson
from sombrl.paper.lab.rows import Rows, curves, distinct, select


class HeldLine(NamedTuple):
    """With which factors on λₙ the optimism lemma never failed."""

    setting: str
    env: str
    shares: dict[float, Share]  # of systems, by factor, all policies
    least: float | None  # the least factor tried from which on no system failed; None where even the largest did
    least_regret: float | None  # the same for π* and πₙ alone


class SimpleRegretLine(NamedTuple):
    """The simple-regret lemma in one setting, env and for one factor on λₙ."""

    setting: str
    env: str
    method: str
    systems: Share  # those on which it held for every n
    before: Share  # and the line of its proof before the last
    median: float  # of rₙ, over systems and the n that are shown
    worst: float
    median_bound: float
    ratio: float  # the largest rₙ/bound
    worst_factor: float  # on λₙ of the theory, the least that would have allowed every rₙ of these plans


class HorizonLine(NamedTuple):
    """The bound of one method for one T; medians over systems, but means of the regret."""

    horizon: int
    method: str
    bound_first: float
    bound: float
    growth_first: float
    growth: float
    regret: float  # per episode
    promised: float


class UpdateLine(NamedTuple):
    """How often one update rule updated a GP."""

    rule: str
    decisions: float
    updates: int
    first: float  # decisions between updates, mean of the first ten
    last: float
    longest: int
    common: int  # decisions that every method has
    regret: float  # after these; the mean over seeds


def held_table(rows: Rows) -> list[HeldLine]:
    """One line per setting and env."""
    table = []
    kept = select(rows, metric="lab/lemma_held")
    for setting, env in distinct(kept, "setting", "env"):
        found: dict[str, dict[float, Share]] = {}
        for metric in ("lab/lemma_held", "lab/lemma_held_regret"):
            here = select(rows, metric=metric, setting=setting, env=env)
            for (method,) in distinct(here, "method"):
                values = curves(select(here, method=method))[1]
                factor = float(method.partition(" x")[2])
                found.setdefault(metric, {})[factor] = wilson(int(values.sum()), values.size)
        all_of_them, regret = (dict(sorted(shares.items())) for shares in found.values())
        table.append(HeldLine(setting, env, all_of_them, least(all_of_them), least(regret)))
    return table


def least(shares: dict[float, Share]) -> float | None:
    """The least factor from which on every system held."""
    held = None
    for factor in sorted(shares, reverse=True):
        if shares[factor].value < 1.0:
            break
        held = factor
    return held


def simple_regret_table(rows: Rows) -> list[SimpleRegretLine]:
    """One line per setting, env and method."""
    table = []
    tried = [row for row in rows if row["metric"].startswith("lab/simple_regret")]
    for setting, env, method in distinct(tried, "setting", "env", "method"):
        here = select(tried, setting=setting, env=env, method=method)

        def values(metric: str, here: Rows = here) -> np.ndarray:
            return curves(select(here, metric=f"lab/simple_regret{metric}"))[1]

        regret, bound, held, before = values(""), values("_bound"), values("_held"), values("_held_before")
        table.append(
            SimpleRegretLine(
                setting,
                env,
                method,
                wilson(int(held.sum()), held.size),
                wilson(int(before.sum()), before.size),
                float(np.median(regret)),
                float(regret.max()),
                float(np.median(bound)),
                float(np.max(regret / bound)),
                float(values("_factor_worst").max()),
            )
        )
    return table


def horizon_table(rows: Rows) -> list[HorizonLine]:
    """Two lines per T."""
    names = ("bound_first", "bound", "growth_first", "growth", "regret", "promised")
    found: dict[tuple[int, str], list[float]] = {}
    for name in names:
        kept = select(rows, metric=f"lab/horizon_{name}")
        for (method,) in distinct(kept, "method"):
            times, values = curves(select(kept, method=method))
            middle = values.mean(axis=0) if name in ("regret", "promised") else np.median(values, axis=0)
            for horizon, value in zip(times, middle, strict=True):
                found.setdefault((int(horizon), method), []).append(float(value))
    return [HorizonLine(*key, *found[key]) for key in sorted(found, key=lambda key: key[0])]


def lyapunov_table(rows: Rows) -> list[tuple[str, str, str]]:
    """What the Lyapunov functions promise, and what was met."""
    kept = [row for row in rows if row["env"] in ("wide", "switched")]
    if not kept:
        return []

    def values(metric: str, method: str) -> np.ndarray:
        return curves(select(kept, metric=f"lab/{metric}", method=method))[1]

    turns, growth = curves(select(kept, metric="lab/growth", method="taking-turns"))
    stable = [int(t) for t, g in zip(turns, growth[0], strict=True) if np.all(growth[0][turns >= t] < 1.0)]
    minimum = int(values("lyapunov_minimum", "theory").item())
    at_minimum = float(growth[0][list(turns).index(minimum)])
    upper, lower = (float(values(f"c_{side}", "theory").item()) for side in ("upper", "lower"))
    return [
        (
            "K, all states, actions and systems",
            f"{values('drift_constant', 'known').max():.2f}",
            f"{values('drift_constant_exact', 'known').max():.2f}",
        ),
        (
            "average energy ‖x‖, all policies and systems",
            f"{values('energy_bound', 'known').max():.2f}",
            f"{values('energy_largest', 'known').max():.2f}",
        ),
        ("share of time at the edge", "–", f"{max(values('energy_at_edge', 'known').max(), 0.0):.1e}"),
        (
            f"taking turns, C_u = {upper:.2f}, C_l = {lower:.2f}: least T",
            f"{minimum} (growth {at_minimum:.2f})",
            f"{stable[0]} (at T = 1 growth {growth[0][0]:.2f})",
        ),
    ]


def update_table(rows: Rows) -> list[UpdateLine]:
    """One line per rule, which the env names; a chunk is what was done between two updates."""
    lengths, regrets = (select(rows, metric=f"rollout/{name}") for name in ("ep_len_mean", "regret"))
    rules = [env for (env,) in distinct(lengths, "env")]
    if not rules:
        return []
    curve = {rule: _by_seed(select(regrets, env=rule)) for rule in rules}
    common = int(min(points[-1][0] for seeds in curve.values() for points in seeds))
    table = []
    for rule in rules:
        chunks = np.array([[length for _, length in seed] for seed in _by_seed(select(lengths, env=rule))])
        at_common = [_at(common, points) for points in curve[rule]]
        table.append(
            UpdateLine(
                rule,
                float(chunks.sum(axis=1).mean()),
                chunks.shape[1],
                float(chunks[:, :10].mean()),
                float(chunks[:, -10:].mean()),
                int(chunks.max()),
                common,
                float(np.mean(at_common)),
            )
        )
    return table


def _at(decisions: int, points: list[tuple[float, float]]) -> float:
    """The value of a curve after so many decisions, on the line between two of its points."""
    when, values = np.array(points).T
    return float(np.interp(decisions, when, values))


def _by_seed(rows: Rows) -> list[list[tuple[float, float]]]:
    """(decisions, value) of every seed, in the order of the decisions."""
    seeds: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        seeds.setdefault(str(row["seed"]), []).append((float(row["decisions"]), float(row["value"])))
    return [sorted(points) for points in seeds.values()]
