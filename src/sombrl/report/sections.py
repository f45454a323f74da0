"""The tables of scores. They are whole without JavaScript; charts come on top."""

from collections.abc import Mapping, Sequence

import numpy as np

from sombrl.report import statistics
from sombrl.report.aggregate import STATISTICS, Aggregate
from sombrl.report.comparison import Comparison
from sombrl.report.efficiency import SHARES, frames_to_reach
from sombrl.report.markup import Html, number_cell, row, table, text
from sombrl.report.statistics import Estimate, Point
from sombrl.report.tasks import LAST, Task
from sombrl.report.wording import count, estimate_texts, known, number


def final_scores(comparison: Comparison) -> str:
    """Final scores in the task's own units: IQM with its interval; in bold the best where it is clearly so."""
    methods = comparison.scored
    rows = [
        row(task.name, *_final_cells(task, methods), small=f"{task.measure.label} at {task.end:,.0f} {task.axis}")
        for task in comparison.tasks
    ]
    caption = (
        "Interquartile mean over seeds [95 % interval], in the task's own units, in bold where no other interval "
        "overlaps that of the best. A seed's score is "
        f"its mean over the last {100 * LAST:.0f} % of the frames, or the last value of one that sums up."
    )
    return table(caption, ["task", *methods], rows)


def aggregate_section(comparison: Comparison, found: Aggregate | None) -> str:
    """Statistics over all tasks, and how scores were normalised."""
    if found is None:
        return "<p>Fewer than two methods share a task, so there is nothing to aggregate.</p>"
    how = "; ".join(
        f"{by} ({', '.join(task.name for task in found.tasks if task.normalised_by == by)})"
        for by in dict.fromkeys(task.normalised_by for task in found.tasks)
    )
    left = f" Left out, because a method is missing there: {', '.join(found.left_out)}." if found.left_out else ""
    few = "" if found.seeds >= statistics.ENOUGH else f" With {count(found.seeds, 'seed')} there are no intervals."
    intro = (
        f"Over {count(len(found.tasks), 'task')} that all methods have, {found.seeds} seeds or more each. Scores are "
        f"normalised per task, 0 and 1 being: {how}.{left}{few}"
    )
    rows = [
        row(method, *(number_cell(*estimate_texts(found.statistics[method][name])) for name in STATISTICS))
        for method in found.methods
    ]
    caption = "Normalised scores over all tasks [95 % stratified bootstrap interval]; of the gap, less is better"
    return f"<p>{text(intro)}</p>{table(caption, ['method', *STATISTICS], rows)}"


def improvement_table(found: Aggregate) -> str:
    """The probability that one method beats another, for every pair; shaded."""
    rows = [row(ours, *(_improvement_cell(found, ours, theirs) for theirs in found.methods)) for ours in found.methods]
    caption = "Probability that a run of the row's method beats one of the column's on a task taken at random"
    return table(caption, ["beats →", *found.methods], rows)


def efficiency_table(comparison: Comparison) -> str:
    """Frames until a share of the best score is reached."""
    rows = []
    for task in comparison.tasks:
        found = frames_to_reach(task)
        if found is None:
            continue
        thresholds, methods = found
        ordered = [method for method in comparison.methods if method in methods]
        levels = ", ".join(number(at) for at in thresholds)
        name = f"{text(task.name)}<small>{text(task.measure.label)} of {levels}</small>"
        head = f'<th scope="rowgroup" rowspan="{len(ordered)}">{name}</th>'
        for method in ordered:
            reached = ((known(one.frames, "{:,.0f}"), f"{one.seeds}/{one.of}") for one in methods[method])
            rows.append(row(method, *(number_cell(*cell) for cell in reached), before=head))
            head = ""
    if not rows:
        return ""
    caption = (
        "Frames until a seed first reaches a share of the way from the lowest start to the best interquartile mean of "
        "any method: median over seeds, and how many of them get there (– : less than half)"
    )
    return table(caption, ["task", "method", *(f"{share:.0%}" for share in SHARES)], rows)


def task_options(tasks: Sequence[Task]) -> str:
    """The choices of the task selector."""
    every = '<option value="all">all tasks</option>' if len(tasks) > 1 else ""
    return every + "".join(f'<option value="{n}">{text(task.name)}</option>' for n, task in enumerate(tasks))


def _final_cells(task: Task, methods: Sequence[str]) -> list[str]:
    found = {method: _final(values) for method, values in task.finals.items()}
    best = clearly_best(found, task.measure.higher)
    cells: list[str] = []
    for method in methods:
        if method not in found:
            cells.append("–")
            continue
        shown, ends = estimate_texts(found[method])
        cells.append(number_cell(Html(f"<b>{shown}</b>") if method == best else shown, ends))
    return cells


def _final(scores: np.ndarray) -> Estimate | Point:
    if len(scores) >= statistics.ENOUGH:
        return statistics.estimate(statistics.iqm, [scores])
    return float(statistics.trimmed_mean(scores)), None, None


def clearly_best(found: Mapping[str, Estimate | Point], higher: bool = True) -> str | None:
    """The best of several methods if its interval overlaps no other's; None where some method has no interval."""
    if len(found) < 2:
        return None
    sign = 1 if higher else -1
    ends: dict[str, tuple[float, float]] = {}
    for method, (_, low, high) in found.items():
        if low is None or high is None:
            return None
        worse, better = sorted((sign * low, sign * high))
        ends[method] = (worse, better)
    best = max(ends, key=lambda method: ends[method])
    return best if all(ends[best][0] > better for method, (_, better) in ends.items() if method != best) else None


def _improvement_cell(found: Aggregate, ours: str, theirs: str) -> str:
    if ours == theirs:
        return "–"
    estimate = found.improvement[ours, theirs]
    share = round(100 * (estimate[0] - 0.5))  # of the colour of better or worse
    return number_cell(*estimate_texts(estimate), look=f"--better: {max(share, 0)}%; --worse: {max(-share, 0)}%")
