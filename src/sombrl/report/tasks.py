"""A task: one environment in one setting, the measure that methods are compared by there, and their scores."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from sombrl.report.loading import Key, Record
from sombrl.report.measures import AXES, DMC_RANGE, Measure, candidates
from sombrl.report.wording import listed

ByMethod = dict[str, dict[int, Record]]
"""Records by method and seed."""

LAST = 0.1
"""A score is the mean over this last share of the frames: a single episode is mostly chance."""
SHORT = 0.5
"""Runs shorter than this share of the longest are not scored, or all scores would be taken too early."""
FEW_POINTS = 3  # fewer evaluations than this are not a learning curve


@dataclasses.dataclass(frozen=True)
class Task:
    """One environment in one setting, judged by one measure."""

    name: str
    env: str
    setting: str
    measure: Measure
    axis: str
    records: ByMethod
    """Everything that can be drawn, scored or not."""
    references: dict[str, float]
    """Levels of methods that learn nothing."""
    end: float
    """The frames at which scores are taken: the most that all compared methods reach."""
    finals: dict[str, np.ndarray]
    """By method, a score per seed."""
    bounds: tuple[float, float]
    """What is 0 and what is 1 in normalised scores, in the direction of better."""
    normalised_by: str

    @property
    def place(self) -> tuple[str, str]:
        """Environment and setting; several tasks can share them."""
        return self.env, self.setting

    def scores(self, method: str) -> np.ndarray:
        """Final scores in [0, 1], 1 the best; above or below where the range is a published one."""
        low, high = self.bounds
        values = self.oriented(method)
        return np.zeros_like(values) if high == low else (values - low) / (high - low)

    def oriented(self, method: str) -> np.ndarray:
        """Final scores, negated where less is better."""
        return self.finals[method] if self.measure.higher else -self.finals[method]


def tasks_of(title: str, place: tuple[str, str], axis: str, records: dict[Key, Record], notes: list[str]) -> list[Task]:
    """The task of one environment and setting, or several where an unsupervised agent is tested on several.

    What a reader must know of them is added to `notes`.
    """
    by_metric: dict[str, ByMethod] = {}
    for key, record in records.items():
        by_metric.setdefault(key.metric, {}).setdefault(key.method, {})[key.seed] = record
    measures = candidates(by_metric, setting=place[1])
    learning = [m for m in measures if _points(by_metric[m.metric]) >= FEW_POINTS] or measures
    if not learning:
        notes.append(f"{title}: no metric says which method is better, so nothing is compared there.")
        return []
    most = max(len(_learners(by_metric[measure.metric])) for measure in learning)
    chosen = [next(measure for measure in learning if len(_learners(by_metric[measure.metric])) == most)]
    if chosen[0].label.startswith("return on "):
        chosen = [measure for measure in learning if measure.label.startswith("return on ")]
    lacking = sorted({key.method for key in records} - set(by_metric[chosen[0].metric]))
    if lacking and most > 0:
        notes.append(f"{title}: {listed(lacking)} did not record {chosen[0].metric} and cannot be compared by it.")
    axis = AXES.get(place[1], axis)
    found = []
    for measure in chosen:
        name = f"{title} · {measure.label.removeprefix('return on ')}" if len(chosen) > 1 else title
        found.append(_task(name, place, axis, measure, by_metric[measure.metric], notes))
    return found


def _task(name: str, place: tuple[str, str], axis: str, measure: Measure, records: ByMethod, notes: list[str]) -> Task:
    learners = _learners(records)
    references = {
        method: float(np.mean(np.concatenate([record.values for record in seeds.values()])))
        for method, seeds in records.items()
        if method not in learners
    }
    kept = _long_enough(name, axis, learners, notes)
    end = min((_last(seeds, min) for seeds in kept.values()), default=0.0)
    if longer := {m: _last(seeds) for m, seeds in kept.items() if _last(seeds) > 1.1 * end}:
        notes.append(
            f"{name}: scores are compared at {end:,.0f} {axis}, where the shortest run ends; "
            f"{listed(f'{method} went on to {last:,.0f}' for method, last in longer.items())}."
        )
    share = 0.0 if measure.running else LAST
    finals = {method: np.array([_final(r, end, share) for r in seeds.values()]) for method, seeds in kept.items()}
    bounds, how = _bounds(place, measure, finals)
    return Task(name, *place, measure, axis, learners, references, end, finals, bounds, how)


def _bounds(place: tuple[str, str], measure: Measure, finals: dict[str, np.ndarray]) -> tuple[tuple[float, float], str]:
    """What is 0 and what is 1 in normalised scores, and where that comes from."""
    env, setting = place
    if env.startswith("dmc:") and setting == "finite-horizon" and measure.metric.endswith("ep_rew_mean"):
        return DMC_RANGE, "the suite's range, 0 to 1000"
    oriented = np.concatenate([*finals.values(), []]) * (1 if measure.higher else -1)
    ends = (float(oriented.min()), float(oriented.max())) if len(oriented) else (0.0, 0.0)
    return ends, "worst and best final score of any run here"


def _long_enough(name: str, axis: str, learners: ByMethod, notes: list[str]) -> ByMethod:
    """The seeds that got at least half as far as the longest."""
    longest = max((_last(seeds) for seeds in learners.values()), default=0.0)
    kept: ByMethod = {}
    for method, seeds in learners.items():
        short = {seed: record for seed, record in seeds.items() if record.frames[-1] < SHORT * longest}
        if len(short) < len(seeds):
            kept[method] = {seed: record for seed, record in seeds.items() if seed not in short}
        if short:
            some = f"seed{'s' * (len(short) > 1)} {listed(map(str, short))} of {method}"
            who = some if method in kept else method
            ended = f"{_last(short):,.0f} of {longest:,.0f} {axis}"
            notes.append(f"{name}: {who} ended at {ended}: in the curves, in no score.")
    return kept


def _last(seeds: Mapping[int, Record], choose: Callable[[Iterable[float]], float] = max) -> float:
    """The frames at which the longest seed ends, or the shortest."""
    return choose(float(record.frames[-1]) for record in seeds.values())


def _final(record: Record, end: float, share: float) -> float:
    """The mean over the last share of the way to `end`, or the last value before it."""
    reached = record.frames <= end * (1 + 1e-9)
    last = record.values[reached & (record.frames > (1 - share) * end)]
    return float(last.mean() if len(last) else record.values[reached][-1] if reached.any() else record.values[0])


def _learners(records: ByMethod) -> ByMethod:
    """All but the oracles, which plan on the true system and learn nothing."""
    return {method: dict(sorted(seeds.items())) for method, seeds in records.items() if not method.startswith("oracle")}


def _points(records: ByMethod) -> int:
    return max((len(record.values) for seeds in records.values() for record in seeds.values()), default=0)
