"""Methods side by side on every task they share, and the notes a reader needs."""

import dataclasses

from sombrl.report.loading import FRAMES, Key, Record, Source
from sombrl.report.tasks import Task, tasks_of
from sombrl.report.variants import named_apart
from sombrl.report.wording import listed
from sombrl.runs.colors import ORDER, exploration


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All sources of one name: methods, tasks and the notes a reader needs."""

    name: str
    sources: list[Source]
    methods: list[str]
    tasks: list[Task]
    records: dict[Key, Record]
    labels: dict[str, str]
    """The method's name for each run folder."""
    notes: list[str]

    @property
    def size(self) -> tuple[bool, int]:
        """Whether methods are compared, and by how many runs: the largest comparison is shown first."""
        runs = sum(len(scores) for task in self.tasks for scores in task.finals.values())
        return len(self.scored) > 1, runs

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


def _compare(name: str, group: list[Source]) -> Comparison:
    sources, labels, notes = named_apart(group)
    records: dict[Key, Record] = {}
    axes: dict[tuple[str, str], dict[str, set[str]]] = {}
    for source in sources:
        for key, record in source.records.items():
            records.setdefault(key, record)
            axes.setdefault(key.place, {}).setdefault(key.method, set()).add(source.axis)
    several = {env for env, _ in axes if sum(env == other for other, _ in axes) > 1}
    tasks: list[Task] = []
    for place in axes:
        title = " · ".join(place) if place[0] in several else place[0]
        here = {key: record for key, record in records.items() if key.place == place}
        here, axis = _one_axis(title, here, axes[place], notes)
        tasks += tasks_of(title, place, axis, here, notes)
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
    """The records that share an axis: if only some methods count frames, those that do."""
    kinds = {axis for found in axes.values() for axis in found}
    if len(kinds) == 1:
        return records, kinds.pop()
    foreign = sorted(method for method, found in axes.items() if found != {FRAMES})
    notes.append(
        f"{title}: {listed(foreign)} counted iterations and no env frames. The two axes cannot be compared, so "
        f"{'it is' if len(foreign) == 1 else 'they are'} left out."
    )
    return {key: record for key, record in records.items() if key.method not in foreign}, FRAMES


def _merged(notes: list[str]) -> list[str]:
    """Merge notes that say the same about several tasks. A note has the form `task: sentence`."""
    said: dict[str, list[str]] = {}
    for note in notes:
        task, _, what = note.rpartition(": ") if note.count(": ") == 1 else ("", "", note)
        said.setdefault(what, []).append(task)
    return [f"{listed(tasks)}: {what}" if any(tasks) else what for what, tasks in said.items()]
