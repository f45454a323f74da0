"""The parts of the page that are text and tables. They are whole without JavaScript; charts come on top."""

import html
import json
import shlex
from collections.abc import Iterable, Sequence

from sombrl.report import statistics
from sombrl.report.aggregate import STATISTICS, Aggregate, Estimate
from sombrl.report.claims import Claim, interval_text, number
from sombrl.report.comparison import LAST, Comparison, Task
from sombrl.report.curves import ENOUGH
from sombrl.report.efficiency import SHARES, STAGES, costs, frames_to_reach
from sombrl.report.loading import Source
from sombrl.report.media import Medium
from sombrl.report.provenance import device, made_by
from sombrl.report.variants import differing, flatten

GLYPHS = {"better": "▲", "worse": "▼", "level": "≈", "few": "·"}
MEANINGS = {"better": "better", "worse": "worse", "level": "no difference", "few": "too few seeds"}


def verdict_rows(index: int, comparison: Comparison, found: list[Claim], warning: str | None) -> str:
    """The claims of a comparison as a table body."""
    tasks, measures = comparison.tasks, dict.fromkeys(task.measure.label for task in comparison.tasks)
    what = f"{_count(len(tasks), 'task')} · {', '.join(measures) or 'no measure'}"
    rows = [
        f'<tr class="name"><th colspan="4" scope="rowgroup"><a href="#c={index}" data-open="{index}">'
        f"{_text(comparison.name)}</a> <small>{_text(what)}</small></th></tr>"
    ]
    for claim in found:
        seeds = f"{claim.seeds[0]}" if claim.seeds[0] == claim.seeds[1] else f"{claim.seeds[0]} to {claim.seeds[1]}"
        rows.append(
            f'<tr class="{claim.verdict}"><th scope="row"><span class="glyph" role="img" '
            f'aria-label="{MEANINGS[claim.verdict]}">{GLYPHS[claim.verdict]}</span> {_text(claim.sentence)}</th>'
            f'<td data-label="difference">{_forest(claim)}</td>'
            f'<td data-label="P(better)" class="number"><span>{_estimate(claim.improvement)}</span></td>'
            f'<td data-label="tasks × seeds" class="number">{claim.tasks} × {seeds}</td></tr>'
        )
    if not found:
        why = "One method: nothing to compare it with." if len(comparison.methods) == 1 else "Nothing can be compared."
        rows.append(f'<tr class="few"><th scope="row" colspan="4">{why}</th></tr>')
    if warning:
        rows.append(f'<tr class="warning"><td colspan="4">{_text(warning)}</td></tr>')
    return f"<tbody>{''.join(rows)}</tbody>"


def summary(found: Sequence[Claim]) -> str:
    """How the claims fall, in one sentence."""
    if not found:
        return ""
    said = {
        "better": "the first method is better",
        "worse": "it is worse",
        "level": "there is no difference within the interval",
        "few": "there are too few seeds to tell",
    }
    counts = {verdict: sum(claim.verdict == verdict for claim in found) for verdict in said}
    parts = [f"in {n} {said[verdict]} ({GLYPHS[verdict]})" for verdict, n in counts.items() if n]
    seeds = [n for claim in found for n in claim.seeds]
    spread = f"{min(seeds)} to {max(seeds)}" if min(seeds) < max(seeds) else f"{max(seeds)}"
    return f"{_count(len(found), 'claim')}, on {spread} seeds per task and method: {', '.join(parts)}."


def final_scores(comparison: Comparison) -> str:
    """Final scores in the task's own units: IQM with its interval, the best in bold."""
    methods = [method for method in comparison.methods if any(method in task.finals for task in comparison.tasks)]
    rows = []
    for task in comparison.tasks:
        middles = {m: float(statistics.trimmed_mean(task.oriented(m))) for m in methods if m in task.finals}
        best = max(middles.values(), default=0.0)
        cells = []
        for method in methods:
            if method not in task.finals:
                cells.append("<td>–</td>")
                continue
            values = task.finals[method]
            shown, ends = number(float(statistics.trimmed_mean(values))), ""
            if len(values) >= ENOUGH:
                low, high = statistics.interval(statistics.iqm, [values])
                whole = interval_text(float(statistics.trimmed_mean(values)), float(low), float(high))
                shown, _, ends = whole.partition(" ")
            shown = f"<b>{shown}</b>" if middles[method] == best else shown
            cells.append(f'<td class="number">{shown} <small>{ends}</small></td>')
        head = f"{_text(task.name)}<small>{_text(task.measure.label)} at {task.end:,.0f} {task.axis}</small>"
        rows.append(f'<tr><th scope="row">{head}</th>{"".join(cells)}</tr>')
    caption = (
        "Interquartile mean over seeds [95 % interval], in the task's own units, the best in bold. A seed's score is "
        f"its mean over the last {100 * LAST:.0f} % of the frames, or the last value of one that sums up."
    )
    return _table(caption, ["task", *methods], rows)


def aggregate_section(comparison: Comparison, found: Aggregate | None) -> str:
    """Statistics over all tasks, and the probability that one method beats another."""
    if found is None:
        return "<p>Fewer than two methods share a task, so there is nothing to aggregate.</p>"
    how = "; ".join(
        f"{by} ({', '.join(task.name for task in found.tasks if task.normalised_by == by)})"
        for by in dict.fromkeys(task.normalised_by for task in found.tasks)
    )
    left = f" Left out, because a method is missing there: {', '.join(found.left_out)}." if found.left_out else ""
    few = "" if found.seeds >= ENOUGH else f" With {_count(found.seeds, 'seed')} there are no intervals."
    intro = (
        f"Over {_count(len(found.tasks), 'task')} that all methods have, {found.seeds} seeds or more each. Scores are "
        f"normalised per task, 0 and 1 being: {how}.{left}{few}"
    )
    rows = [
        f'<tr><th scope="row">{_text(method)}</th>'
        + "".join(f'<td class="number">{_estimate(found.statistics[method][name])}</td>' for name in STATISTICS)
        + "</tr>"
        for method in found.methods
    ]
    caption = "Normalised scores over all tasks [95 % stratified bootstrap interval]; of the gap, less is better"
    table = _table(caption, ["method", *STATISTICS], rows)
    return f"<p>{_text(intro)}</p>{table}"


def improvement_table(found: Aggregate) -> str:
    """Who beats whom."""
    rows = [
        f'<tr><th scope="row">{_text(ours)}</th>'
        + "".join(
            '<td class="self">–</td>' if ours == theirs else _shaded(found.improvement[ours, theirs])
            for theirs in found.methods
        )
        + "</tr>"
        for ours in found.methods
    ]
    caption = "Probability that a run of the row's method beats one of the column's on a task taken at random"
    return _table(caption, ["beats →", *found.methods], rows)


def efficiency_table(comparison: Comparison) -> str:
    """Frames until so much of the best is reached."""
    rows = []
    for task in comparison.tasks:
        found = frames_to_reach(task)
        if found is None:
            continue
        thresholds, methods = found
        ordered = [method for method in comparison.methods if method in methods]
        for n, method in enumerate(ordered):
            levels = ", ".join(number(at) for at in thresholds)
            head = f"{_text(task.name)}<small>{_text(task.measure.label)} of {levels}</small>"
            first = f'<th scope="rowgroup" rowspan="{len(ordered)}">{head}</th>'
            cells = "".join(
                f'<td class="number">{_thousands(one.frames)} <small>{one.seeds}/{one.of}</small></td>'
                for one in methods[method]
            )
            rows.append(f'<tr>{first if n == 0 else ""}<th scope="row">{_text(method)}</th>{cells}</tr>')
    if not rows:
        return ""
    caption = (
        "Frames until a seed first reaches a share of the way from the lowest start to the best interquartile mean of "
        "any method: median over seeds, and how many of them get there (– : less than half)"
    )
    return _table(caption, ["task", "method", *(f"{share:.0%}" for share in SHARES)], rows)


def compute_section(comparison: Comparison) -> str:
    """Decisions per second and seconds per stage of runs; seconds of an experiment's cells."""
    parts = []
    if found := costs(comparison):
        rows = [
            f'<tr><th scope="row">{_text(cost.method)}</th><td>{_text(cost.env)}</td>'
            f'<td class="number">{cost.seeds}</td><td class="number">{_maybe(cost.decisions_per_s)}</td>'
            + "".join(f'<td class="number">{_maybe(seconds)}</td>' for seconds in cost.stages)
            + "</tr>"
            for cost in found
        ]
        names = [stage.removeprefix("time/").removesuffix("_s") + ", s" for stage in STAGES]
        caption = "Decisions per second of all seeds together, after compiling; seconds of the run by stage"
        parts.append(_table(caption, ["method", "task", "seeds", "decisions/s", *names], rows))
    cells = [(name, cell) for source in comparison.sources for name, cell in source.cells.items()]
    timed = [(name, cell) for name, cell in cells if isinstance(cell, dict) and "seconds" in cell]
    if timed:
        rows = []
        for name, cell in timed:
            shared = cell.get("cells in one program")
            said = [f"together with {shared - 1} other{'s' * (shared > 2)}"] if shared else []
            said += ["resumed: seconds of the last process alone"] if cell.get("resumed") else []
            rows.append(
                f'<tr><th scope="row">{_text(name)}</th><td class="number">{cell["seconds"]:,.0f}</td>'
                f"<td>{_text(device(cell))}</td><td>{_text('; '.join(said))}</td></tr>"
            )
        caption = "Seconds of each cell of the experiment, compiling included"
        parts.append(_table(caption, ["cell", "seconds", "device", "remark"], rows))
    return "".join(parts) or "<p>No times are recorded in these files.</p>"


def settings_section(comparison: Comparison) -> str:
    """Hyperparameters: what differs first, everything in a fold-out."""
    known = [source for source in comparison.sources if source.config is not None]
    if not known:
        prints = [(source.manifest or {}).get("settings_sha256") for source in comparison.sources]
        mark = f" Their fingerprint is {prints[0][:12]}." if prints[0] else ""
        return f"<p>The files of this comparison do not hold its settings.{mark}</p>"
    tables = [_flat(source) for source in known]
    heads = [comparison.labels.get(str(source.path), source.path.parent.name) for source in known]
    if len(set(heads)) < len(heads):
        heads = [f"{head} ({source.path.name})" for head, source in zip(heads, known, strict=True)]
    parts = []
    if len(known) > 1:
        names = differing(tables)
        rows = _setting_rows(names, tables)
        caption = "Settings that differ between the runs"
        parts.append(_table(caption, ["setting", *heads], rows) if rows else "<p>All runs have the same settings.</p>")
    else:
        parts.append(f"<p>The settings of one run are known: {_text(heads[0])}.</p>")
    rows = _setting_rows(dict.fromkeys(name for table in tables for name in table), tables)
    everything = _table("All settings", ["setting", *heads], rows)
    parts.append(f"<details><summary>All {len(rows)} settings</summary>{everything}</details>")
    return "".join(parts)


def provenance_table(comparison: Comparison) -> str:
    """Where each file came from: versions, machine, time, command."""
    rows = []
    for source in comparison.sources:
        own, made = source.manifest or {}, made_by(source)
        versions = [manifest.get("versions") or {} for manifest in made]
        git = own.get("git") or {}
        commit = f"{git['commit'][:10]}{' with changes' if git.get('dirty') else ''}" if git.get("commit") else "–"
        command = shlex.join(map(str, own["command"])) if own.get("command") else "–"
        columns = [
            own.get("created", "–")[:16].replace("T", " "),
            _several(v.get("sombrl") for v in versions),
            _several(v.get("jax") for v in versions),
            _several(manifest.get("python") or own.get("python") for manifest in made),
            _several(device(manifest) for manifest in made),
            commit,
        ]
        rows.append(
            f'<tr><th scope="row">{_text(source.path)}</th>'
            + "".join(f"<td>{_text(text)}</td>" for text in columns)
            + f"<td><code>{_text(command)}</code></td></tr>"
        )
    heads = ["file", "created", "sombrl", "jax", "python", "device", "commit", "command"]
    everything = "".join(
        f"<details><summary>Manifest of {_text(source.path)}</summary><pre>"
        f"{_text(json.dumps(source.manifest, indent=1, ensure_ascii=False))}</pre></details>"
        for source in comparison.sources
        if source.manifest
    )
    return _table("What the numbers were made with", heads, rows) + everything


def evaluation_table(comparison: Comparison) -> str:
    """What `sombrl eval` has added to the runs."""
    rows = []
    for source in comparison.sources:
        for one in source.evaluations:
            seeds = {seed: sum(values) / len(values) for seed, values in one["returns"].items() if values}
            settings = one["settings"]
            method = comparison.labels.get(str(source.path), source.path.name)
            rows.append(
                f'<tr><th scope="row">{_text(method)}</th><td>{_text(settings.get("planner", "–"))}</td>'
                f'<td class="number">{_text(settings.get("trained", "–"))}</td>'
                f'<td class="number">{_text(settings.get("episodes", "–"))}</td>'
                f'<td class="number">{" · ".join(number(value) for value in seeds.values())}</td></tr>'
            )
    if not rows:
        return ""
    heads = ["method", "acting", "after", "episodes per seed", "mean return per seed"]
    return _table("Evaluations of the trained agents (sombrl eval)", heads, rows)


def media_section(media: Sequence[Medium]) -> str:
    """Films and pictures, and those that were too large."""
    shown = []
    for medium in media:
        if medium.data is None:
            continue
        name = _text(medium.path)
        inside = f'<img src="{medium.data}" alt="{name}" loading="lazy">'
        if medium.kind.startswith("video/"):
            inside = f'<video src="{medium.data}" controls muted playsinline aria-label="{name}"></video>'
        shown.append(f"<figure>{inside}<figcaption>{name}</figcaption></figure>")
    left = [f"<li>{_text(medium.path)} ({_text(medium.reason)})</li>" for medium in media if medium.data is None]
    out = f"<p>Not in this page:</p><ul>{''.join(left)}</ul>" if left else ""
    return (f'<div class="media">{"".join(shown)}</div>' if shown else "") + out


def bullet_list(sentences: Iterable[str]) -> str:
    """Sentences as a list."""
    return f"<ul>{''.join(f'<li>{_text(sentence)}</li>' for sentence in sentences)}</ul>"


def task_options(tasks: Sequence[Task]) -> str:
    """The choices of the task selector."""
    every = '<option value="all">all tasks</option>' if len(tasks) > 1 else ""
    return every + "".join(f'<option value="{n}">{_text(task.name)}</option>' for n, task in enumerate(tasks))


def _forest(claim: Claim) -> str:
    """The difference and its interval as a small picture on a scale from −1 to 1."""
    if claim.difference is None:
        return '<span class="quiet">no interval</span>'
    middle, low, high = (50 + 50 * max(-1.0, min(1.0, value)) for value in claim.difference)
    label = f"difference of normalised scores {interval_text(*claim.difference)}, on a scale from −1 to 1"
    return (
        f'<svg class="forest" viewBox="0 0 100 14" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<path class="zero" d="M50 0V14"/><path class="range" d="M{low:.1f} 7H{max(high, low + 0.5):.1f}"/>'
        f'<path class="middle" d="M{middle:.1f} 2.5V11.5"/></svg>'
    )


def _shaded(estimate: Estimate) -> str:
    share = round(100 * (estimate[0] - 0.5))  # of the colour of better or worse
    look = f"--better: {max(share, 0)}%; --worse: {max(-share, 0)}%"
    return f'<td class="number shaded" style="{look}">{_estimate(estimate)}</td>'


def _estimate(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    middle, low, high = estimate
    ends = "" if low is None or high is None else f" <small>[{_two(low)}, {_two(high)}]</small>"
    return f"{_two(middle)}{ends}"


def _two(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _thousands(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _maybe(value: float | None) -> str:
    return "–" if value is None else number(value)


def _several(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys("unknown" if value is None else str(value) for value in values)) or "–"


def _flat(source: Source) -> dict:
    config = source.config or {}
    return {"algorithm": config.get("algorithm"), **flatten(config.get("config", {})), **flatten(config.get("run", {}))}


def _setting_rows(names: Iterable[str], tables: list[dict]) -> list[str]:
    return [
        f'<tr><th scope="row"><code>{_text(name)}</code></th>'
        + "".join(f"<td>{_text(_setting(table.get(name, '–')))}</td>" for table in tables)
        + "</tr>"
        for name in names
    ]


def _setting(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _table(caption: str, heads: Iterable[str], rows: Sequence[str]) -> str:
    columns = "".join(f'<th scope="col">{_text(head)}</th>' for head in heads)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_text(caption)}"><table>'
        f"<caption>{_text(caption)}</caption><thead><tr>{columns}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _text(value: object) -> str:
    return html.escape(str(value))
