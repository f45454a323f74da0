"""The second half of a comparison: what it cost, with which settings it was made, films and provenance."""

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from sombrl.report.comparison import Comparison
from sombrl.report.efficiency import STAGES, costs
from sombrl.report.loading import Source
from sombrl.report.markup import Html, bullet_list, fold, number_cell, row, table, text
from sombrl.report.media import Medium
from sombrl.report.provenance import device, made_by
from sombrl.report.variants import differing, flatten
from sombrl.report.wording import known, number


def evaluation_table(comparison: Comparison) -> str:
    """What `sombrl eval` has added to the runs."""
    rows = []
    for source in comparison.sources:
        for one in source.evaluations:
            means = (number(sum(values) / len(values)) for values in one["returns"].values() if values)
            settings = one["settings"]
            rows.append(
                row(
                    comparison.labels.get(str(source.path), source.path.name),
                    settings.get("planner", "–"),
                    number_cell(settings.get("trained", "–")),
                    number_cell(settings.get("episodes", "–")),
                    number_cell(" · ".join(means)),
                )
            )
    heads = ["method", "acting", "after", "episodes per seed", "mean return per seed"]
    return table("Evaluations of the trained agents (sombrl eval)", heads, rows) if rows else ""


def compute_section(comparison: Comparison) -> str:
    """Decisions per second and seconds per stage of runs; seconds of an experiment's cells."""
    parts = []
    if found := costs(comparison):
        rows = [
            row(
                *(cost.method, cost.env, number_cell(cost.seeds), number_cell(known(cost.decisions_per_s))),
                *(number_cell(known(seconds)) for seconds in cost.stages),
            )
            for cost in found
        ]
        names = [stage.removeprefix("time/").removesuffix("_s") + ", s" for stage in STAGES]
        caption = "Decisions per second of all seeds together, after compiling; seconds of the run by stage"
        parts.append(table(caption, ["method", "task", "seeds", "decisions/s", *names], rows))
    cells = [(name, cell) for source in comparison.sources for name, cell in source.cells.items()]
    if timed := [(name, cell) for name, cell in cells if isinstance(cell, dict) and "seconds" in cell]:
        rows = [row(name, number_cell(f"{c['seconds']:,.0f}"), device(c), _remark(c)) for name, c in timed]
        caption = "Seconds of each cell of the experiment, compiling included"
        parts.append(table(caption, ["cell", "seconds", "device", "remark"], rows))
    return "".join(parts) or "<p>No times are recorded in these files.</p>"


def settings_section(comparison: Comparison) -> str:
    """Hyperparameters: what differs first, all of them in a fold-out."""
    with_config = [source for source in comparison.sources if source.config is not None]
    if not with_config:
        prints = [(source.manifest or {}).get("settings_sha256") for source in comparison.sources]
        mark = f" Their fingerprint is {prints[0][:12]}." if prints[0] else ""
        return f"<p>The files of this comparison do not hold its settings.{mark}</p>"
    tables = [_all_settings(source.config or {}) for source in with_config]
    heads = [comparison.labels.get(str(source.path), source.path.parent.name) for source in with_config]
    if len(set(heads)) < len(heads):
        heads = [f"{head} ({source.path.name})" for head, source in zip(heads, with_config, strict=True)]
    if len(with_config) == 1:
        first = f"<p>The settings of one run are known: {text(heads[0])}.</p>"
    elif rows := _setting_rows(differing(tables), tables):
        first = table("Settings that differ between the runs", ["setting", *heads], rows)
    else:
        first = "<p>All runs have the same settings.</p>"
    rows = _setting_rows(dict.fromkeys(name for one in tables for name in one), tables)
    return first + fold(f"All {len(rows)} settings", table("All settings", ["setting", *heads], rows))


def media_section(media: Sequence[Medium]) -> str:
    """Films and pictures, and those that were too large."""
    shown = "".join(_film(medium) for medium in media if medium.data is not None)
    left = [f"{medium.path} ({medium.reason})" for medium in media if medium.data is None]
    inside = f'<div class="media">{shown}</div>' if shown else ""
    return inside + (f"<p>Not in this page:</p>{bullet_list(left)}" if left else "")


def provenance_table(comparison: Comparison) -> str:
    """Where each file came from: versions, machine, time, command; and its whole manifest."""
    heads = ["file", "created", "sombrl", "jax", "python", "device", "commit", "command"]
    rows = [_provenance_row(source) for source in comparison.sources]
    manifests = (
        fold(f"Manifest of {source.path}", f"<pre>{_json(source.manifest)}</pre>")
        for source in comparison.sources
        if source.manifest
    )
    return table("What the numbers were made with", heads, rows) + "".join(manifests)


def _remark(cell: dict[str, Any]) -> str:
    shared = cell.get("cells in one program")
    remarks = [f"together with {shared - 1} other{'s' * (shared > 2)}"] if shared else []
    return "; ".join(remarks + ["resumed: seconds of the last process alone"] * bool(cell.get("resumed")))


def _all_settings(config: dict[str, Any]) -> dict[str, Any]:
    return {"algorithm": config.get("algorithm"), **flatten(config.get("config", {})), **flatten(config.get("run", {}))}


def _setting_rows(names: Iterable[str], tables: Sequence[dict[str, Any]]) -> list[str]:
    return [row(Html(f"<code>{text(n)}</code>"), *(_setting(one.get(n, "–")) for one in tables)) for n in names]


def _setting(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _film(medium: Medium) -> str:
    name = text(medium.path)
    if medium.kind.startswith("video/"):
        inside = f'<video src="{medium.data}" controls muted playsinline aria-label="{name}"></video>'
    else:
        inside = f'<img src="{medium.data}" alt="{name}" loading="lazy">'
    return f"<figure>{inside}<figcaption>{name}</figcaption></figure>"


def _provenance_row(source: Source) -> str:
    own, made = source.manifest or {}, made_by(source)
    versions = [manifest.get("versions") or {} for manifest in made]
    git = own.get("git") or {}
    commit = f"{git['commit'][:10]}{' with changes' if git.get('dirty') else ''}" if git.get("commit") else "–"
    command = shlex.join(map(str, own["command"])) if own.get("command") else "–"
    return row(
        source.path,
        own.get("created", "–")[:16].replace("T", " "),
        _different(found.get("sombrl") for found in versions),
        _different(found.get("jax") for found in versions),
        _different(manifest.get("python") or own.get("python") for manifest in made),
        _different(device(manifest) for manifest in made),
        commit,
        Html(f"<td><code>{text(command)}</code></td>"),
    )


def _different(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys("unknown" if value is None else str(value) for value in values)) or "–"


def _json(content: object) -> str:
    return text(json.dumps(content, indent=1, ensure_ascii=False))
