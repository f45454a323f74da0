"""The page itself: text and tables from `sections`, curves as data for the script, everything in one file."""

import datetime
import html
import importlib.resources
import json
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any, Literal

import sombrl
from sombrl.records import SombrlError
from sombrl.report import sections
from sombrl.report.aggregate import STATISTICS, Aggregate, aggregate
from sombrl.report.claims import Claim, claims
from sombrl.report.comparison import ORDER, Comparison, compare
from sombrl.report.curves import curve
from sombrl.report.loading import Found, Record, find
from sombrl.report.measures import EXPLORATION_PANELS, REGRET_PANELS, Panel
from sombrl.report.media import Medium, embed
from sombrl.report.provenance import care
from sombrl.storage.files import check_new, write_whole

Axis = Literal["frames", "decisions"]
PANEL_POINTS = 50
"""Of a curve in a small panel."""
LIVE_MARK = '<meta name="sombrl-report" content="live">'
"""In the head of a page that a watching process rewrites, and in no other."""


def write_report(paths: Sequence[Path], out: Path, *, axis: Axis = "frames", title: str | None = None) -> Path:
    """Write the page of everything under `paths`; refuses to overwrite, and to write a page about nothing."""
    check(paths, out)
    found = find(paths)
    require(found, paths)
    write_whole(out, page(found, axis=axis, title=title))
    return out


def check(paths: Sequence[Path], out: Path, *, live: bool = False) -> None:
    """Refuse what cannot work, before anything is read."""
    if not paths:
        raise SombrlError("there is nothing to report: name runs or tables, as in sombrl report runs --out r.html.")
    if out.suffix.lower() not in (".html", ".htm"):
        raise SombrlError(f"a report is an .html file, not {out.name!r}: choose another --out.")
    if not (live and out.is_file() and _is_live(out)):
        check_new(out, "--out")


def require(found: Found, paths: Sequence[Path]) -> None:
    """Refuse a page with no numbers on it."""
    if found.sources:
        return
    where = ", ".join(map(str, paths))
    if not found.skipped:
        raise SombrlError(f"there are no runs and no tables of results in {where}: give folders that hold some.")
    path, reason = found.skipped[0]
    more = f" ({len(found.skipped) - 1} more could not be read either)" if len(found.skipped) > 1 else ""
    raise SombrlError(f"nothing in {where} can be reported: {path}: {reason}{more}")


def page(found: Found, *, axis: Axis = "frames", title: str | None = None, reload_s: int | None = None) -> str:
    """The whole page. With `reload_s`, it reads itself again every so many seconds."""
    comparisons = compare(found.sources)
    media = embed(file for source in found.sources for file in source.media)
    by_path = {medium.path: medium for medium in media}
    parts, data, verdicts, every = [], [], [], []
    for index, comparison in enumerate(comparisons):
        said, warning = claims(comparison)
        every += said
        together = aggregate(comparison)
        own = [by_path[file] for source in comparison.sources for file in source.media]
        verdicts.append(sections.verdict_rows(index, comparison, said, warning))
        parts.append(_section(index, comparison, together, said if len(comparisons) > 1 else [], own))
        data.append(_data(comparison, together))
    now = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    runs = sum(source.kind == "run" for source in found.sources)
    counts = {"run": runs, "table": len(found.sources) - runs, "comparison": len(comparisons)}
    what = [f"{n} {name}{'s' * (n != 1)}" for name, n in counts.items() if n]
    refresh = f'<noscript><meta http-equiv="refresh" content="{reload_s}"></noscript>'
    fields = {
        "title": html.escape(title or _title(comparisons)),
        "what": html.escape(", ".join(what) or "nothing yet"),
        "written": f"written {now} by sombrl {sombrl.__version__}",
        "live": "" if reload_s is None else LIVE_MARK,
        "reload": "0" if reload_s is None else str(reload_s),
        "noscript": "" if reload_s is None else refresh,
        "verdicts": "".join(verdicts),
        "summary": sections.summary(every),
        "claims": _claims_note(every),
        "skipped": _skipped(found),
        "options": "".join(
            f'<option value="{n}">{html.escape(comparison.name)}</option>' for n, comparison in enumerate(comparisons)
        ),
        "sections": "".join(parts),
        "style": _template("page.css"),
        "script": _template("page.js"),
        "data": _script_json({"axis": axis, "comparisons": data}),
    }
    return Template(_template("page.html")).substitute(fields)


def _is_live(path: Path) -> bool:
    """Whether a file is the page of a watching process, of this one or of one that was killed."""
    with open(path, "rb") as file:
        return LIVE_MARK.encode() in file.read(2000)


def _title(comparisons: list[Comparison]) -> str:
    return comparisons[0].name if len(comparisons) == 1 else "Comparison of methods"


def _claims_note(every: list[Claim]) -> str:
    if not every:
        return ""
    few = " Intervals from five seeds or fewer are too narrow: trust them less than 95 %."
    return (
        "A sign says where the 95 % interval of the difference lies: above 0, below it or around it. Each interval "
        "stands for itself: of twenty claims with nothing behind them, one will look as if there were something."
        f"{few if min(claim.seeds[0] for claim in every) <= 5 else ''}"
    )


def _skipped(found: Found) -> str:
    if not found.skipped:
        return ""
    sentences = [f"{path}: {reason}" for path, reason in found.skipped]
    return f"<h3>Skipped</h3>{sections.bullet_list(sentences)}"


def _section(
    index: int, comparison: Comparison, together: Aggregate | None, said: list[Claim], media: list[Medium]
) -> str:
    """A comparison: headings, tables and the places for its charts; with the claims that are not just above it."""
    notes = care(comparison)
    blocks = {
        "regret": _panel_block("regret", "Regret and average reward", comparison, REGRET_PANELS),
        "explore": _panel_block("explore", "Exploration and calibration", comparison, EXPLORATION_PANELS),
    }
    tables = {
        "Sample efficiency": sections.efficiency_table(comparison),
        "Evaluations": sections.evaluation_table(comparison),
        "Compute": sections.compute_section(comparison),
        "Hyperparameters": sections.settings_section(comparison),
        "Films and pictures": sections.media_section(media),
        "Provenance": sections.provenance_table(comparison),
    }
    fields = {
        "index": index,
        "name": html.escape(comparison.name),
        "claims": sections.bullet_list(claim.sentence for claim in said) if said else "",
        "care": f"<h3>Read with care</h3>{sections.bullet_list(notes)}" if notes else "",
        "tasks": sections.task_options(comparison.tasks),
        "curves": "" if comparison.tasks else "hidden",
        "finals": sections.final_scores(comparison) if comparison.tasks else "<p>Nothing here has a score.</p>",
        "aggregate": sections.aggregate_section(comparison, together),
        "profile": "" if together else "hidden",
        "improvement": sections.improvement_table(together) if together else "",
        "panels": "".join(blocks.values()),
        "tables": "".join(f"<h3>{heading}</h3>{content}" for heading, content in tables.items() if content),
    }
    return Template(_template("comparison.html")).substitute(fields)


def _panel_block(kind: str, heading: str, comparison: Comparison, panels: Sequence[Panel]) -> str:
    if not any(_panels(comparison, n, panels) for n in range(len(comparison.tasks))):
        return ""
    return f'<h3>{heading}</h3><div class="charts small" data-chart="{kind}"></div>'


def _data(comparison: Comparison, together: Aggregate | None) -> dict[str, Any]:
    """What the script draws."""
    methods = comparison.methods
    tasks = [
        {
            "name": task.name,
            "label": task.measure.label,
            "better": task.measure.direction,
            "axis": task.axis,
            "ref": {name: float(f"{level:.5g}") for name, level in task.references.items()},
            "curves": [
                {"m": methods.index(method), **curve(task.records[method], lines=True)}
                for method in methods
                if method in task.records
            ],
            "regret": _panels(comparison, n, REGRET_PANELS),
            "explore": _panels(comparison, n, EXPLORATION_PANELS),
        }
        for n, task in enumerate(comparison.tasks)
    ]
    return {
        "name": comparison.name,
        "methods": methods,
        "looks": _looks(methods),
        "tasks": tasks,
        "profile": None if together is None else _profile(methods, together),
        "aggregate": None if together is None else _aggregate(methods, together),
    }


def _panels(comparison: Comparison, number: int, panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """The panels that a task has curves for; of several tasks in one environment the first has them."""
    task = comparison.tasks[number]
    same = [(other.env, other.setting) for other in comparison.tasks[:number]]
    if (task.env, task.setting) in same:
        return []
    found = []
    for panel in panels:
        seeds: dict[str, dict[int, Record]] = {}
        for key, record in comparison.records.items():
            here = (key.env, key.setting, key.metric) == (task.env, task.setting, panel.metric)
            if here and key.metric != task.measure.metric and key.method in comparison.methods:
                seeds.setdefault(key.method, {})[key.seed] = record
        curves = [
            {"m": n, **curve(seeds[method], PANEL_POINTS)}
            for n, method in enumerate(comparison.methods)
            if method in seeds
        ]
        if curves:
            found.append({"title": panel.title, "ref": panel.reference, "curves": curves})
    return found


def _profile(methods: list[str], together: Aggregate) -> list[dict[str, Any]]:
    found = []
    for method, lines in together.profiles.items():
        names = ("i", "il", "ih")[: len(lines)]
        values = {name: [round(float(v), 3) for v in line] for name, line in zip(names, lines, strict=True)}
        found.append({"m": methods.index(method), "x": [round(float(t), 3) for t in together.thresholds], **values})
    return found


def _aggregate(methods: list[str], together: Aggregate) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "rows": [
                [methods.index(method), *(v if v is None else round(v, 4) for v in together.statistics[method][name])]
                for method in together.methods
            ],
        }
        for name in STATISTICS
    ]


def _looks(methods: list[str]) -> list[int]:
    """The place of each method in the palette: known explorations have theirs, others take what is free."""
    taken: dict[str, int] = {}
    for method in methods:
        last = method.split(" ")[0].split("/")[-1]
        place = max(ORDER.index(last) - 1, 0) if last in ORDER else None  # sombrl is optimistic
        if place is not None and place not in taken.values():
            taken[method] = place
    free = (place for place in range(len(methods) + len(ORDER)) if place not in taken.values())
    for method in methods:
        if method not in taken:
            taken[method] = next(free)
    return [taken[method] for method in methods]


def _template(name: str) -> str:
    return importlib.resources.files("sombrl.report").joinpath(name).read_text(encoding="utf-8")


def _script_json(content: Any) -> str:
    """JSON that can stand in a script element: nothing in it closes the element."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
