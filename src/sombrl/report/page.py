"""The page itself: text, tables and places for charts, with the data and the scripts that draw them, in one file."""

import datetime
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import sombrl
from sombrl.errors import SombrlError
from sombrl.report import details, sections, verdicts
from sombrl.report.aggregate import Aggregate, aggregate
from sombrl.report.chart_data import chart_data
from sombrl.report.claims import claims
from sombrl.report.comparison import Comparison, compare
from sombrl.report.loading import Found, find
from sombrl.report.markup import asset, bullet_list, fill, fold, script_json, style
from sombrl.report.media import Medium, embed
from sombrl.report.provenance import caveats
from sombrl.report.wording import count
from sombrl.storage.files import check_new, write_whole

Axis = Literal["frames", "decisions"]
LIVE_MARK = '<meta name="sombrl-report" content="live">'
"""In the head of a page that a watching process rewrites, and in no other."""


def write_report(paths: Sequence[Path], out: Path, *, axis: Axis = "frames", title: str | None = None) -> Path:
    """Write the page of everything under `paths`; refuses to overwrite, and to write a page about nothing."""
    check_request(paths, out)
    found = find(paths)
    require_numbers(found, paths)
    write_whole(out, page(found, axis=axis, title=title))
    return out


def check_request(paths: Sequence[Path], out: Path, *, live: bool = False) -> None:
    """Refuse what cannot work, before anything is read."""
    if not paths:
        raise SombrlError("there is nothing to report: name runs or tables, as in sombrl report runs --out r.html.")
    if out.suffix.lower() not in (".html", ".htm"):
        raise SombrlError(f"a report is an .html file, not {out.name!r}: choose another --out.")
    if not (live and out.is_file() and _is_live(out)):
        check_new(out, "--out")


def require_numbers(found: Found, paths: Sequence[Path]) -> None:
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
    media = {medium.path: medium for medium in embed(file for source in found.sources for file in source.media)}
    judged: list[verdicts.Judged] = [(comparison, *claims(comparison)) for comparison in comparisons]
    data, parts = [], []
    for index, (comparison, own_claims, warning) in enumerate(judged):
        overall = aggregate(comparison)
        own_media = [media[file] for source in comparison.sources for file in source.media]
        data.append(chart_data(comparison, overall))
        own = verdicts.own_verdicts(comparison, own_claims, warning)
        parts.append(_section(index, comparison, data[-1]["tasks"], overall, own, own_media))
    summaries, scales, every_verdict = verdicts.all_verdicts(judged)
    fields = {
        "title": html.escape(title or (comparisons[0].name if len(comparisons) == 1 else "Comparison of methods")),
        "what": html.escape(_contents(found, comparisons)),
        "written": f"written {datetime.datetime.now().astimezone().isoformat(sep=' ', timespec='seconds')} "
        f"by sombrl {sombrl.__version__}",
        "live": "" if reload_s is None else LIVE_MARK,
        "reload": reload_s or 0,
        "noscript": f'<noscript><meta http-equiv="refresh" content="{reload_s}"></noscript>' if reload_s else "",
        "several": "" if len(comparisons) > 1 and every_verdict else "hidden",
        "summaries": summaries,
        "scales": scales,
        "choice": "" if scales.count("<option") > 1 else "hidden",
        "verdicts": every_verdict,
        "skipped": _skipped(found),
        "options": "".join(
            f'<option value="{n}">{html.escape(comparison.name)}</option>' for n, comparison in enumerate(comparisons)
        ),
        "sections": "".join(parts),
        "style": style(),
        "script": asset("charts.js") + asset("page.js"),
        "data": script_json({"axis": axis, "first": _largest(comparisons), "comparisons": data}),
    }
    return fill(asset("page.html"), fields)


def _is_live(path: Path) -> bool:
    """Whether a file is the page of a watching process, of this one or of one that was killed."""
    with open(path, "rb") as file:
        return LIVE_MARK.encode() in file.read(2000)


def _contents(found: Found, comparisons: Sequence[Comparison]) -> str:
    runs = sum(source.kind == "run" for source in found.sources)
    counts = {"run": runs, "table": len(found.sources) - runs, "comparison": len(comparisons)}
    return ", ".join(count(n, name) for name, n in counts.items() if n) or "nothing yet"


def _section(
    index: int,
    comparison: Comparison,
    tasks: list[dict[str, Any]],
    overall: Aggregate | None,
    own: str,
    media: list[Medium],
) -> str:
    """A comparison: headings, tables and the places for its charts, with its own verdicts."""
    charts = {"regret": "Regret and average reward", "explore": "Exploration and calibration"}
    tables = {
        "Sample efficiency": sections.efficiency_table(comparison),
        "Evaluations": details.evaluation_table(comparison),
        "Compute": details.compute_section(comparison),
        "Hyperparameters": details.settings_section(comparison),
        "Films and pictures": details.media_section(media),
        "Provenance": details.provenance_table(comparison),
    }
    fields = {
        "index": index,
        "name": html.escape(comparison.name),
        "verdicts": own,
        "caveats": _sentences("Read with care", caveats(comparison)),
        "tasks": sections.task_options(comparison.tasks),
        "curves": "" if comparison.tasks else "hidden",
        "finals": sections.final_scores(comparison) if comparison.tasks else "<p>Nothing here has a score.</p>",
        "aggregate": sections.aggregate_section(comparison, overall),
        "profile": "" if overall else "hidden",
        "improvement": sections.improvement_table(overall) if overall else "",
        "charts": "".join(
            f'<h3>{heading}</h3><div class="charts small" data-chart="{kind}"></div>'
            for kind, heading in charts.items()
            if any(task[kind] for task in tasks)
        ),
        "tables": "".join(f"<h3>{heading}</h3>{content}" for heading, content in tables.items() if content),
    }
    return fill(asset("comparison.html"), fields)


def _largest(comparisons: Sequence[Comparison]) -> int:
    """The comparison that is shown first: the one with the most runs. Their order is that of their names."""
    return max(range(len(comparisons)), key=lambda index: comparisons[index].size, default=0)


def _skipped(found: Found) -> str:
    """What could not be read, behind one line."""
    if not found.skipped:
        return ""
    reasons = bullet_list(f"{path}: {reason}" for path, reason in found.skipped)
    return f'<div id="skipped">{fold(f"Skipped: {len(found.skipped)} that cannot be read", reasons)}</div>'


def _sentences(heading: str, sentences: Sequence[str]) -> str:
    return f"<h3>{heading}</h3>{bullet_list(sentences)}" if sentences else ""
