"""What the numbers say: every claim with the interval behind it; of one comparison, or of all, by scale."""

from collections.abc import Sequence

from sombrl.report.claims import Claim
from sombrl.report.comparison import Comparison
from sombrl.report.markup import Html, bullet_list, text
from sombrl.report.statistics import Estimate
from sombrl.report.wording import count, estimate_texts, interval_text

GLYPHS = {"better": "▲", "worse": "▼", "level": "≈", "few": "·"}
MEANINGS = {"better": "better", "worse": "worse", "level": "no difference", "few": "too few seeds"}
SCALES = ("paper", "small", "smoke")
"""Scales of experiments, in the order in which they are offered; what has none is `other`."""
AXIS = Html('difference<span class="ticks" aria-hidden="true"><i>−1</i><i>0</i><i>1</i></span>')
"""The head of the bars: their axis. A span, because a narrow page stretches the bars and must not stretch the text."""
Judged = tuple[Comparison, Sequence[Claim], str | None]
"""A comparison, what is claimed of it, and a warning."""


def own_verdicts(comparison: Comparison, claims: Sequence[Claim], warning: str | None) -> str:
    """The claims of one comparison, below its charts."""
    if not claims:
        why = "One method: nothing to compare it with." if len(comparison.methods) == 1 else "Nothing can be compared."
        return f"<p>{why}</p>"
    after = bullet_list([warning]) if warning else ""
    rows = "".join(map(_claim_row, claims))
    return f'{_table(f"<tbody>{rows}</tbody>")}<p class="quiet">{reading_note(claims)}</p>{after}'


def all_verdicts(judged: Sequence[Judged]) -> tuple[str, str, str]:
    """Of all comparisons with claims: a summary per scale, the choices of a scale, and the table."""
    by_scale: dict[str, list[Claim]] = {}
    bodies = []
    for index, (comparison, claims, warning) in enumerate(judged):
        if claims:
            by_scale.setdefault(scale(comparison), []).extend(claims)
            bodies.append(_body(index, comparison, claims, warning))
    scales = [name for name in (*SCALES, "other") if name in by_scale]
    named = len(scales) > 1
    summaries = "".join(
        f'<p data-scale="{name}">{f"<b>{name}</b>: " if named else ""}{summary(by_scale[name])}</p>' for name in scales
    )
    options = "".join(f'<option value="{name}">{name}</option>' for name in scales)
    return summaries, options, _table("".join(bodies)) if bodies else ""


def scale(comparison: Comparison) -> str:
    """The scale of an experiment, which is at the end of its name."""
    last = comparison.name.removesuffix(" (cells)").rpartition(" · ")[2]
    return last if last in SCALES else "other"


def summary(claims: Sequence[Claim]) -> str:
    """How the claims fall, in one sentence."""
    meanings = {
        "better": "the first method is better",
        "worse": "it is worse",
        "level": "there is no difference within the interval",
        "few": "there are too few seeds to tell",
    }
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in meanings}
    parts = [f"in {n} {meanings[verdict]} ({GLYPHS[verdict]})" for verdict, n in counts.items() if n]
    fewest, most = min(claim.seeds[0] for claim in claims), max(claim.seeds[1] for claim in claims)
    return f"{count(len(claims), 'claim')}, on {_range(fewest, most)} seeds per task and method: {', '.join(parts)}."


def reading_note(claims: Sequence[Claim]) -> str:
    """How the signs are meant, and how far to trust them."""
    few = " Intervals from five seeds or fewer are too narrow: trust them less than 95 %."
    return (
        "A sign says where the 95 % interval of the difference lies: above 0, below it or around it. Each interval "
        "stands for itself: of twenty claims with nothing behind them, one will look as if there were something."
        f"{few if min(claim.seeds[0] for claim in claims) <= 5 else ''}"
    )


def _table(bodies: str) -> str:
    heads = "".join(f'<th scope="col">{text(head)}</th>' for head in ("claim", AXIS, "P(better)", "tasks × seeds"))
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="What the numbers say"><table class="verdicts">'
        f"<thead><tr>{heads}</tr></thead>{bodies}</table></div>"
    )


def _body(index: int, comparison: Comparison, claims: Sequence[Claim], warning: str | None) -> str:
    """The claims of a comparison, below its name."""
    tasks, measures = comparison.tasks, dict.fromkeys(task.measure.label for task in comparison.tasks)
    what = f"{count(len(tasks), 'task')} · {', '.join(measures)}"
    rows = [
        f'<tr class="name"><th colspan="4" scope="rowgroup"><a href="#c={index}" data-open="{index}">'
        f"{text(comparison.name)}</a> <small>{text(what)}</small></th></tr>",
        *map(_claim_row, claims),
    ]
    if warning:
        rows.append(f'<tr class="warning"><td colspan="4">{text(warning)}</td></tr>')
    return f'<tbody data-scale="{scale(comparison)}">{"".join(rows)}</tbody>'


def _claim_row(claim: Claim) -> str:
    value, ends = ("–", "") if claim.improvement is None else estimate_texts(claim.improvement)
    return (
        f'<tr class="{claim.verdict}"><th scope="row"><span class="glyph" role="img" '
        f'aria-label="{MEANINGS[claim.verdict]}">{GLYPHS[claim.verdict]}</span> {text(claim.sentence)}</th>'
        f'<td data-label="difference">{_difference_bar(claim.difference)}</td>'
        f'<td data-label="P(better)" class="number"><span>{value} <small>{ends}</small></span></td>'
        f'<td data-label="tasks × seeds" class="number">{claim.tasks} × {_range(*claim.seeds)}</td></tr>'
    )


def _difference_bar(difference: Estimate | None) -> str:
    """The difference and its interval as a small picture on a scale from −1 to 1, with ticks at every half."""
    if difference is None:
        return '<span class="quiet">no interval</span>'
    middle, low, high = (50 + 50 * max(-1.0, min(1.0, value)) for value in difference)
    label = f"difference of normalised scores {interval_text(*difference)}, on a scale from −1 to 1"
    return (
        f'<svg class="forest" viewBox="0 0 100 14" preserveAspectRatio="none" role="img" aria-label="{label}">'
        '<path class="scale" d="M0 13.5H100M.5 10V14M25 11V14M75 11V14M99.5 10V14"/><path class="zero" d="M50 0V14"/>'
        f'<path class="range" d="M{low:.1f} 6H{max(high, low + 0.5):.1f}"/>'
        f'<path class="middle" d="M{middle:.1f} 1.5V10.5"/></svg>'
    )


def _range(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"
