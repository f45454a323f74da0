"""Runs of one method told apart: seeds of one configuration are pooled, other configurations get another name."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from sombrl.report.loading import Source

NOT_SETTINGS = ("seed", "seeds", "env", "env_kwargs", "action_cost", "env_workers", "setting")
"""Fields of a run that are not settings of a method: seeds, task, and what changes no number."""
LENGTHS = ("episodes", "decisions", "eval_every", "eval_episodes", "report_every")
"""Length of a run and how often it is evaluated: runs that differ only in these are pooled."""
NAMED = 2  # with more differing fields than this a name is too long: the folder's is used


def named_apart(sources: list[Source]) -> tuple[list[Source], dict[str, str], list[str]]:
    """The sources with methods renamed where configurations differ; each run's method by path; notes on both."""
    places: dict[tuple[str, ...], list[Source]] = {}
    for source in sources:
        if source.kind == "run" and source.config is not None:
            places.setdefault(_place(source), []).append(source)
    different = {place: differing([settings(run) for run in runs]) for place, runs in places.items()}
    varying = sorted({field for fields in different.values() for field in fields})
    ambiguous = {method for (method, *_), fields in different.items() if fields}
    notes: list[str] = []
    names: dict[str, str] = {}
    for (method, *_), runs in places.items():
        seen: dict[tuple[str, int], Path] = {}
        for run in runs:
            name = _variant(method, run, varying) if method in ambiguous else method
            taken = {key.seed for key in run.records if (name, key.seed) in seen}
            if taken:
                other = seen[name, min(taken)]
                notes.append(
                    f"{run.path} and {other} have the same settings and seeds: they are shown apart, under their "
                    "names, and not pooled."
                )
                name = f"{name} ({_own_part(run.path, other)})"
            seen |= {(name, key.seed): run.path for key in run.records}
            names[str(run.path)] = name
    return [_renamed(source, names.get(str(source.path))) for source in sources], names, notes


def settings(source: Source) -> dict[str, Any]:
    """Everything that decides what a run's numbers are, but the task and the seeds, by dotted name."""
    assert source.config is not None
    flat = flatten(source.config.get("config", {}))
    run = {name: value for name, value in flatten(source.config.get("run", {})).items() if name not in NOT_SETTINGS}
    return flat | {name: value for name, value in run.items() if name not in LENGTHS}


def flatten(tree: dict[str, Any], above: str = "") -> dict[str, Any]:
    """A nested dictionary by dotted names, those of command line options: `explore.explore` is `explore`."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{above}{name}." if name != "explore" else above)
        else:
            flat[f"{above}{name}"] = value
    return flat


def differing(tables: list[dict[str, Any]]) -> list[str]:
    """The fields that are not the same in all tables; one that a table lacks differs."""
    fields = dict.fromkeys(name for table in tables for name in table)
    return [name for name in fields if len({json.dumps(table.get(name, "–")) for table in tables}) > 1]


def _place(run: Source) -> tuple[str, ...]:
    key = next(iter(run.records))
    return (key.method, key.env, key.setting)


def _variant(method: str, run: Source, varying: list[str]) -> str:
    if len(varying) > NAMED:
        return f"{method} ({run.path.name})"
    own = settings(run)
    return " ".join([method, *(f"{name}={own.get(name, '–')}" for name in varying)])


def _own_part(path: Path, other: Path) -> str:
    """Where a path leaves another one's: cells of two sweeps have one name, their sweeps have not."""
    return next((ours for ours, theirs in zip(path.parts, other.parts, strict=False) if ours != theirs), path.name)


def _renamed(source: Source, method: str | None) -> Source:
    if method is None:
        return source
    return dataclasses.replace(source, records={key._replace(method=method): r for key, r in source.records.items()})
