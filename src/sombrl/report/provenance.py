"""Where the numbers come from, and the differences between runs that a reader should know."""

from typing import Any

from sombrl.report.comparison import Comparison
from sombrl.report.loading import Source
from sombrl.report.variants import differing, settings
from sombrl.report.wording import listed

PACKAGES = ("sombrl", "jax", "numpy")


def caveats(comparison: Comparison) -> list[str]:
    """Sentences to read before believing the comparison."""
    notes = [*comparison.notes]
    notes += [str(s.manifest["note"]) for s in comparison.sources if s.manifest and s.manifest.get("note")]
    notes += _seeds(comparison) + _repeats(comparison) + _versions(comparison) + _settings(comparison)
    unknown = [str(source.path) for source in comparison.sources if not source.manifest]
    if unknown:
        notes.append(f"No manifest lies beside {listed(unknown)}: versions, machine and command are not known.")
    return list(dict.fromkeys(note if note.endswith(".") else f"{note}." for note in notes))


def made_by(source: Source) -> list[dict[str, Any]]:
    """The manifests of what computed a source's numbers: of its cells where they are known, else its own."""
    cells = [cell for cell in source.cells.values() if isinstance(cell, dict) and "versions" in cell]
    return cells or ([source.manifest] if source.manifest else [])


def device(manifest: dict[str, Any]) -> str:
    """The name of the device that a manifest records."""
    found = manifest.get("device") or {}
    return str(found.get("kind") or found.get("platform") or "unknown")


def _seeds(comparison: Comparison) -> list[str]:
    sentences = []
    for task in comparison.tasks:
        counts = {method: len(values) for method, values in task.finals.items()}
        most = max(counts.values(), default=0)
        if fewer := [f"{method} has {n}" for method, n in counts.items() if n < most]:
            sentences.append(f"{task.name}: {listed(fewer)} of {most} seeds.")
    numbers = {max(map(len, task.finals.values()), default=0) for task in comparison.tasks}
    if len(numbers) > 1:
        sentences.append("Tasks have different numbers of seeds; those with more weigh more in the aggregate.")
    some = [task.name for task in comparison.tasks if len(task.finals) < len(comparison.methods)]
    if some and len(comparison.tasks) > 1:
        sentences.append(
            f"Not every method has a score on {listed(some)}; methods are compared on the tasks they share."
        )
    return sentences


def _repeats(comparison: Comparison) -> list[str]:
    """Methods that act at different rates: frames compare them, decisions do not."""
    sentences = []
    for task in comparison.tasks:
        repeats = {}
        for method, seeds in task.records.items():
            record = next(iter(seeds.values()))
            if record.decisions[-1] > 0:
                repeats[method] = round(record.frames[-1] / record.decisions[-1], 2)
        if len(set(repeats.values())) > 1:
            rates = listed(f"{method} {value:g}" for method, value in repeats.items())
            sentences.append(f"{task.name}: frames per decision differ ({rates}); compare by frames, not by decisions.")
    return sentences


def _versions(comparison: Comparison) -> list[str]:
    sentences, manifests = [], [made for source in comparison.sources for made in made_by(source)]
    for package in PACKAGES:
        found = {(made.get("versions") or {}).get(package) for made in manifests}
        if len(found) > 1:
            names = listed(sorted(version or "an unknown version" for version in found))
            sentences.append(f"Runs of different versions of {package} are compared here: {names}.")
    devices = sorted({device(made) for made in manifests})
    if len(devices) > 1:
        sentences.append(f"Not all was computed on the same device ({listed(devices)}): times are not comparable.")
    return sentences


def _settings(comparison: Comparison) -> list[str]:
    """Runs on one task that differ in more than the exploration: then the exploration alone explains nothing."""
    said: dict[str, list[str]] = {}
    for task in comparison.tasks:
        here = [
            source
            for source in comparison.sources
            if source.config is not None
            and source.kind == "run"
            and any(key.place == task.place for key in source.records)
        ]
        flat = [settings(source) for source in here]
        explored = {name for source in here for name in (source.config or {}).get("config", {}).get("explore", {})}
        if other := [name for name in differing(flat) if name not in explored and not name.startswith("theory.")]:
            shown = listed(other[:4]) if len(other) <= 4 else f"{', '.join(other[:4])} and {len(other) - 4} more"
            said.setdefault(shown, []).append(task.name)
    return [
        f"{listed(tasks)}: the runs differ in more than their exploration ({fields}); see the hyperparameters."
        for fields, tasks in said.items()
    ]
