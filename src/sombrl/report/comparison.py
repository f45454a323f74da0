"""Methods side by side: tasks with one measure each, and scores at the same number of frames."""

import dataclasses

import numpy as np

from sombrl.report.loading import FRAMES, Key, Record, Source
from sombrl.report.measures import AXES, DMC_RANGE, Measure, candidates
from sombrl.report.variants import named_apart
from sombrl.report.wording import listed

LAST = 0.1
"""A score is the mean over this last share of the frames: one episode alone is mostly luck."""
SHORT = 0.5
"""What ends before this share of the longest is not compared: all would be judged where they had just begun."""
ORDER = ("optimistic", "sombrl", "hucrl", "pets", "greedy", "random", "thompson")
"""Methods that come first, and keep their colours from page to page."""
FEW_POINTS = 3  # fewer evaluations than this are no learning curve


@dataclasses.dataclass(frozen=True)
class Task:
    """One environment in one setting, judged by one measure."""

    name: str
    env: str
    setting: str
    measure: Measure
    axis: str
    records: dict[str, dict[int, Record]]
    """By method and seed, of everything that can be drawn."""
    references: dict[str, float]
    """Levels of methods that learn nothing."""
    end: float
    """The frames at which scores are taken: the most that all compared methods reach."""
    finals: dict[str, np.ndarray]
    """By method, a score per seed."""
    bounds: tuple[float, float]
    """What is 0 and what is 1 in normalised scores, in the direction of better."""
    normalised_by: str

    def scores(self, method: str) -> np.ndarray:
        """Final scores in [0, 1], 1 the best; above or below where the range is a published one."""
        low, high = self.bounds
        values = self.oriented(method)
        return np.zeros_like(values) if high == low else (values - low) / (high - low)

    def oriented(self, method: str) -> np.ndarray:
        """Final scores, negated where less is better."""
        return self.finals[method] if self.measure.higher else -self.finals[method]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Everything of one name: what is compared and what must be said about it."""

    name: str
    sources: list[Source]
    methods: list[str]
    tasks: list[Task]
    records: dict[Key, Record]
    labels: dict[str, str]
    """Of each run's folder, the method it is called here."""
    notes: list[str]

    @property
    def scored(self) -> list[str]:
        """The methods that have a score on some task."""
        return [method for method in self.methods if any(method in task.finals for task in self.tasks)]


def compare(sources: list[Source]) -> list[Comparison]:
    """One comparison per name of the sources, in their order."""
    groups: dict[str, list[Source]] = {}
    for source in sources:
        groups.setdefault(source.comparison, []).append(source)
    return [_compare(name, group) for name, group in groups.items()]


def rank(method: str) -> tuple[int, str]:
    """The place of a method: known explorations first, then by name."""
    last = exploration(method)
    return (ORDER.index(last) if last in ORDER else len(ORDER), method)


def exploration(method: str) -> str:
    """The exploration in a method's name: greedy in `mbpo/greedy bonus_weight=1`."""
    return method.split(" ")[0].split("/")[-1]


def _compare(name: str, group: list[Source]) -> Comparison:
    sources, labels, notes = named_apart(group)
    records: dict[Key, Record] = {}
    axes: dict[tuple[str, str, str], set[str]] = {}
    for source in sources:
        for key, record in source.records.items():
            records.setdefault(key, record)
            axes.setdefault((key.env, key.setting, key.method), set()).add(source.axis)
    places = dict.fromkeys((key.env, key.setting) for key in records)
    several = {env for env, _ in places if sum(env == other for other, _ in places) > 1}
    tasks = []
    for env, setting in places:
        title = f"{env} · {setting}" if env in several else env
        here = {key: record for key, record in records.items() if (key.env, key.setting) == (env, setting)}
        here, axis = _one_axis(title, here, {m: a for (e, s, m), a in axes.items() if (e, s) == (env, setting)}, notes)
        tasks += _tasks(title, env, setting, axis, here, notes)
    notes = _merged(notes)
    if several and len(tasks) > 1:
        notes.append(
            f"{listed(sorted(several))} {'is' if len(several) == 1 else 'are'} here in different settings: "
            "each is a task of its own, none is pooled with another."
        )
    methods = sorted({method for task in tasks for method in task.records}, key=rank)
    return Comparison(name, sources, methods, tasks, records, labels, notes)


def _one_axis(
    title: str, records: dict[Key, Record], axes: dict[str, set[str]], notes: list[str]
) -> tuple[dict[Key, Record], str]:
    """What can stand on one axis: those that count frames, where not all do."""
    kinds = {axis for found in axes.values() for axis in found}
    if len(kinds) == 1:
        return records, kinds.pop()
    foreign = sorted(method for method, found in axes.items() if found != {FRAMES})
    notes.append(
        f"{title}: {listed(foreign)} counted iterations and no env frames. The two axes cannot be compared, so "
        f"{'it is' if len(foreign) == 1 else 'they are'} left out."
    )
    return {key: record for key, record in records.items() if key.method not in foreign}, FRAMES


def _tasks(title: str, env: str, setting: str, axis: str, records: dict[Key, Record], notes: list[str]) -> list[Task]:
    """The task of an environment, or several where an unsupervised agent is tested on several."""
    by_metric: dict[str, dict[str, dict[int, Record]]] = {}
    for key, record in records.items():
        by_metric.setdefault(key.metric, {}).setdefault(key.method, {})[key.seed] = record
    measures = candidates(by_metric, setting)
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
    axis = AXES.get(setting, axis)
    found = []
    for measure in chosen:
        name = f"{title} · {measure.label.removeprefix('return on ')}" if len(chosen) > 1 else title
        found.append(_task(name, env, setting, axis, measure, by_metric[measure.metric], notes))
    return found


def _task(
    name: str,
    env: str,
    setting: str,
    axis: str,
    measure: Measure,
    records: dict[str, dict[int, Record]],
    notes: list[str],
) -> Task:
    learners = _learners(records)
    references = {
        method: float(np.mean(np.concatenate([record.values for record in seeds.values()])))
        for method, seeds in records.items()
        if method not in learners
    }
    kept = _long_enough(name, axis, learners, notes)
    end = min((record.frames[-1] for seeds in kept.values() for record in seeds.values()), default=0.0)
    ends = {method: max(record.frames[-1] for record in seeds.values()) for method, seeds in kept.items()}
    longer = {method: last for method, last in ends.items() if last > 1.1 * end}
    if longer:
        notes.append(
            f"{name}: scores are compared at {end:,.0f} {axis}, where the shortest run ends; "
            f"{listed(f'{method} went on to {last:,.0f}' for method, last in longer.items())}."
        )
    last = 0.0 if measure.running else LAST
    finals = {method: np.array([_final(r, end, last) for r in seeds.values()]) for method, seeds in kept.items()}
    oriented = np.concatenate([*finals.values(), []]) * (1 if measure.higher else -1)
    if env.startswith("dmc:") and setting == "finite-horizon" and measure.metric.endswith("ep_rew_mean"):
        bounds, how = DMC_RANGE, "the suite's range, 0 to 1000"
    else:
        bounds = (float(oriented.min()), float(oriented.max())) if len(oriented) else (0.0, 0.0)
        how = "worst and best final score of any run here"
    return Task(name, env, setting, measure, axis, learners, references, float(end), finals, bounds, how)


def _long_enough(
    name: str, axis: str, learners: dict[str, dict[int, Record]], notes: list[str]
) -> dict[str, dict[int, Record]]:
    """The seeds that got at least half as far as the longest."""
    longest = max((record.frames[-1] for seeds in learners.values() for record in seeds.values()), default=0.0)
    kept: dict[str, dict[int, Record]] = {}
    for method, seeds in learners.items():
        whole = {seed: record for seed, record in seeds.items() if record.frames[-1] >= SHORT * longest}
        if whole:
            kept[method] = whole
        if short := sorted(set(seeds) - set(whole)):
            which = method if not whole else f"seed{'s' * (len(short) > 1)} {listed(map(str, short))} of {method}"
            last = max(seeds[seed].frames[-1] for seed in short)
            notes.append(f"{name}: {which} ended at {last:,.0f} of {longest:,.0f} {axis}: in the curves, in no score.")
    return kept


def _final(record: Record, end: float, share: float) -> float:
    """The mean over the last share of the way to `end`, or the last value before it."""
    reached = record.frames <= end * (1 + 1e-9)
    last = record.values[reached & (record.frames > (1 - share) * end)]
    return float(last.mean() if len(last) else record.values[reached][-1] if reached.any() else record.values[0])


def _merged(notes: list[str]) -> list[str]:
    """Notes that say the same about several tasks as one: a note is `task: what`."""
    said: dict[str, list[str]] = {}
    for note in notes:
        task, _, what = note.rpartition(": ") if note.count(": ") == 1 else ("", "", note)
        said.setdefault(what, []).append(task)
    return [f"{listed(tasks)}: {what}" if any(tasks) else what for what, tasks in said.items()]


def _learners(records: dict[str, dict[int, Record]]) -> dict[str, dict[int, Record]]:
    """All but the oracles, which plan on the true system and learn nothing."""
    return {method: dict(sorted(seeds.items())) for method, seeds in records.items() if not method.startswith("oracle")}


def _points(records: dict[str, dict[int, Record]]) -> int:
    return max((len(record.values) for seeds in records.values() for record in seeds.values()), default=0)
