"""ladder: eight small tasks on which every change of the agent can be judged (beside the paper).

Sparse and dense tasks, five seeds each, ten evaluations. Scale `small` has the strong preset alone and is an evening on
two CPU cores (`--backend local --workers 2`); scale `paper` has the defaults of the paper besides, which cost as much
again twice. The cells that both have are the same, so one takes them over from the other.

The score of a run is the mean return of its last three evaluations as a share of what an episode could pay if the goal
took no time; what is below 0 counts as 0. That share does not depend on the runs, so scores of two releases can be
compared.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sombrl.algorithms.settings import configured, find_field
from sombrl.config.run import RunConfig
from sombrl.paper.experiments.base import Cell, Evaluation, Experiment, Headline, TrainCell
from sombrl.paper.experiments.figures import Look, draw_panel, finish, new_figure, require, select, title_of
from sombrl.paper.experiments.mbpo import CHECKPOINT_EVERY, LAST_RETURNS, MBPO_LOOKS, METRICS, RETURN, RETURNS
from sombrl.paper.experiments.mbpo_strong import TINY
from sombrl.report.aggregate import Aggregate, aggregate
from sombrl.report.comparison import Comparison
from sombrl.report.measures import Measure
from sombrl.report.statistics import Estimate, Point
from sombrl.report.tasks import Task
from sombrl.report.wording import count, estimate_texts, listed
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row


@dataclasses.dataclass(frozen=True)
class Rung:
    """A task of the ladder."""

    id: str
    decisions: int
    episode_length: int
    most: float
    """What an episode could pay if the goal took no time."""
    action_repeat: int = 1
    env_kwargs: tuple[str, ...] = ()

    @property
    def env(self) -> str:
        """What the CSV says."""
        return " ".join((self.id, *self.env_kwargs))


DMC: dict[str, Any] = {"episode_length": 500, "most": 1000.0, "action_repeat": 2}
LADDER = {
    # Reward at the goal alone, which has to be looked for.
    "mountain-car": Rung("MountainCarContinuous-v0", 15_000, episode_length=999, most=100.0),
    "pendulum-sparse": Rung("pendulum", 5_000, episode_length=200, most=200.0, env_kwargs=("reward=sparse",)),
    "deceptive-chain": Rung("deceptive-chain", 10_000, episode_length=200, most=200.0),
    "cartpole-sparse": Rung("dmc:cartpole-swingup_sparse", 25_000, **DMC),
    # At the goal alone, which is soon found by chance.
    "ball-in-cup": Rung("dmc:ball_in_cup-catch", 7_500, **DMC),
    "reacher-easy": Rung("dmc:reacher-easy", 10_000, **DMC),
    # Everywhere.
    "cartpole": Rung("dmc:cartpole-swingup", 10_000, **DMC),
    "point-mass": Rung("dmc:point_mass-easy", 5_000, **DMC),
}

ADAPTIVE: dict[str, Any] = {"schedule": "decoupled", "sac.bonus_memory": 10_000}
"""The options of a λ rule that is to lose nowhere, by the names of `sombrl train`: the best of lambda-rules."""
STRONG: dict[str, Any] = {"preset": "strong"}
METHODS: dict[str, dict[str, Any]] = {
    "optimistic": STRONG | {"explore": "optimistic"},
    "greedy": STRONG | {"explore": "greedy"},
    "adaptive": STRONG | ADAPTIVE,
    "paper": {"preset": "paper", "explore": "optimistic"},
}
"""Options by the names of `sombrl train`."""
METHODS_AT = {
    "smoke": ("optimistic", "greedy", "adaptive"),
    "small": ("optimistic", "greedy", "adaptive"),
    "paper": tuple(METHODS),
}
LOOKS = {
    "optimistic": Look("strong, optimistic", MBPO_LOOKS["optimistic"].color),
    "greedy": Look("strong, greedy", MBPO_LOOKS["greedy"].color, "-."),
    "adaptive": Look("strong, adaptive λ", COLORS[1]),
    "paper": Look("preset paper, optimistic", COLORS[5], ":"),
}
SEEDS, EVALUATIONS, EPISODES = 5, 10, 3
REPORT_EVERY = 250
LAST = 3
"""Evaluations that a score is the mean of."""
RELEASE = "of the last release"


def ladder_cells(scale: str) -> list[Cell]:
    """Every method on every task."""
    tasks = ("pendulum-sparse", "deceptive-chain") if scale == "smoke" else tuple(LADDER)
    return [ladder_cell(task, method, scale) for task in tasks for method in METHODS_AT[scale]]


def ladder_cell(task: str, method: str, scale: str) -> TrainCell:
    """A method on a task."""
    evaluation = (2, 1) if scale == "smoke" else (EVALUATIONS, EPISODES)
    cell = agent_cell(f"{task}/{method}", LADDER[task], METHODS[method], scale, seeds=SEEDS, evaluation=evaluation)
    return dataclasses.replace(cell, group=task) if method in ("optimistic", "greedy") else cell


def agent_cell(
    name: str, rung: Rung, options: dict[str, Any], scale: str, *, seeds: int, evaluation: tuple[int, int]
) -> TrainCell:
    """An mbpo agent on a task; options by the names of `sombrl train`; so many evaluations, of so many episodes."""
    smoke = scale == "smoke"
    given = (TINY if smoke else {}) | options
    run, config = configured("mbpo", {find_field(name, ("mbpo",))["mbpo"]: value for name, value in given.items()})
    run = dataclasses.replace(
        run,
        env=rung.id,
        env_kwargs=rung.env_kwargs,
        action_repeat=rung.action_repeat,
        episode_length=10 if smoke else rung.episode_length,
        decisions=40 if smoke else rung.decisions,
        report_every=20 if smoke else REPORT_EVERY,
        seeds=2 if smoke else seeds,
    )
    number, episodes = evaluation
    return TrainCell(
        name=name,
        method=name.rpartition("/")[2],
        env=rung.env,
        run=run,
        config=config,
        algorithm="mbpo",
        metrics=METRICS,
        evaluation=Evaluation(episodes, every=_between(run, number)),
        checkpoint_every=CHECKPOINT_EVERY,
    )


def _between(run: RunConfig, evaluations: int) -> int:
    """Reports between two evaluations."""
    return (run.decisions or 0) // run.report_every // evaluations


def standings(rows: Sequence[Row], released: Sequence[Row] = ()) -> Aggregate | None:
    """IQM and probabilities of improvement over the tasks that all methods have; None where there is no such task.

    The methods of an earlier table are called after it. Of that, a method's task counts where it is as long as ours.
    """
    scores, ends = _scores(rows)
    earlier, earlier_ends = _scores(released)
    for (env, method), runs in earlier.items():
        if (env, method) in scores and earlier_ends[env, method] == ends[env, method]:
            scores[env, f"{method} {RELEASE}"] = runs
    methods = list(dict.fromkeys(method for _, method in scores))
    bounds = {rung.env: (0.0, rung.most) for rung in LADDER.values()}
    tasks = [
        Task(
            name=env,
            env=env,
            setting="finite-horizon",
            measure=Measure(RETURN, RETURNS.label),
            axis="env frames",
            records={},
            references={},
            end=float(max(end for (other, _), end in ends.items() if other == env)),
            finals={method: scores[env, method] for method in methods if (env, method) in scores},
            bounds=bounds[env],
            normalised_by="what an episode could pay at most",
        )
        for env in dict.fromkeys(env for env, _ in scores)
        if env in bounds
    ]
    return aggregate(Comparison("ladder", [], methods, tasks, {}, {}, []))


def _scores(rows: Sequence[Row]) -> tuple[dict[tuple[str, str], np.ndarray], dict[tuple[str, str], int]]:
    """By environment and method: a score per seed, not below 0, and the frames at which it was taken."""
    returns: dict[tuple[str, str], dict[int, list[Row]]] = {}
    for row in rows:
        if row.metric == RETURN:
            returns.setdefault((row.env, row.method), {}).setdefault(row.seed, []).append(row)
    scores, ends = {}, {}
    for where, seeds in returns.items():
        ordered = [sorted(found, key=lambda row: row.env_frames) for found in seeds.values()]
        scores[where] = np.array([max(0.0, float(np.mean([row.value for row in one[-LAST:]]))) for one in ordered])
        ends[where] = min(one[-1].env_frames for one in ordered)
    return scores, ends


def report(rows: list[Row]) -> str:
    """The methods by their IQM, and who beats whom."""
    return _text(standings(rows))


def against_release(rows: list[Row], released: list[Row]) -> str:
    """One line per method that the table of the last release has too, and a verdict on the first of them."""
    found = standings(rows, released)
    pairs = [] if found is None else [(m, f"{m} {RELEASE}") for m in found.methods if f"{m} {RELEASE}" in found.methods]
    if found is None or not pairs:
        return "The table of the last release has no task of the same length with the same method."
    lines = [_beats(found, ours, theirs) for ours, theirs in pairs]
    ours, theirs = pairs[0]
    verdict = {
        "better": f"{ours} is better than in the last release",
        "worse": f"{ours} is worse than in the last release",
        "level": f"no difference from the last release is shown for {ours}",
        "few": f"too few seeds to compare {ours} with the last release",
    }
    lines.append(
        f"Verdict: {verdict[_verdict(found.improvement[ours, theirs])]}, on {count(len(found.tasks), 'task')}."
    )
    return "\n".join(lines)


def _text(found: Aggregate | None) -> str:
    if found is None:
        return "Fewer than two methods share a task: nothing can be compared."
    lines = [f"IQM over {count(len(found.tasks), 'task')} and {count(found.seeds, 'seed')} of each:"]
    for method in found.methods:
        value, ends = estimate_texts(found.statistics[method]["IQM"])
        lines.append(f"  {method:<12} {value} {ends}".rstrip())
    lines += [_beats(found, a, b) for i, a in enumerate(found.methods) for b in found.methods[i + 1 :]]
    if found.left_out:
        lines.append(f"Not all methods are there yet on {listed(found.left_out)}: left out.")
    return "\n".join(lines)


WORDS = {"better": "better", "worse": "worse", "level": "no difference shown", "few": "too few seeds"}


def _beats(found: Aggregate, ours: str, theirs: str) -> str:
    """How likely a run of one is better than a run of the other on a task taken at random."""
    estimate = found.improvement[ours, theirs]
    value, ends = estimate_texts(estimate)
    return f"{ours} beats {theirs} with probability {value} {ends}".rstrip() + f": {WORDS[_verdict(estimate)]}"


def _verdict(estimate: Estimate | Point) -> str:
    """Where the interval of a probability of improvement lies: above a half, below it or around it."""
    _, low, high = estimate
    if low is None or high is None:
        return "few"
    return "better" if low > 0.5 else "worse" if high < 0.5 else "level"


def draw_ladder(rows: list[Row]) -> Any:
    """A matplotlib figure: the IQM of every method with its interval, then a panel per task."""
    require(rows, RETURN)
    envs = list(dict.fromkeys(row.env for row in rows))
    columns = min(3, len(envs) + 1)
    lines = -(-(len(envs) + 1) // columns)
    figure = new_figure(4.0 * max(columns, 2), 3.1 * lines + 1.0)
    first, *panels = figure.subplots(lines, columns, squeeze=False).flat
    _draw_iqm(first, standings(rows), LOOKS)
    for axes, env in zip(panels, envs, strict=False):
        draw_panel(axes, select(rows, env=env), RETURNS, LOOKS)
        axes.set(title=title_of(env), xlabel="frames")
    for axes in panels[len(envs) :]:
        axes.set_axis_off()
    finish(figure, "The ladder", rows)
    return figure


def _draw_iqm(axes: Any, found: Aggregate | None, looks: Mapping[str, Look]) -> None:
    axes.set_title("IQM over tasks" if found is None else f"IQM over {count(len(found.tasks), 'task')}, 95 % interval")
    methods = [] if found is None else [method for method in looks if method in found.methods]
    for place, method in enumerate(methods):
        assert found is not None
        value, low, high = found.statistics[method]["IQM"]
        look = looks[method]
        axes.plot([value], [place], "o", color=look.color, markersize=7)
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], color=look.color, linewidth=2.2)
    axes.set(xlim=(-0.03, 1.03), yticks=range(len(methods)), yticklabels=[looks[method].label for method in methods])
    axes.invert_yaxis()
    axes.margins(y=0.3)


LADDER_EXPERIMENT = Experiment(
    name="ladder",
    summary="eight small tasks, sparse and dense, on which a change of MBPO can be judged",
    figure="beside the paper, no figure",
    cells=ladder_cells,
    draw=draw_ladder,
    headlines=(LAST_RETURNS, Headline("policy/bonus_weight", "last λ")),
    report=report,
    against=against_release,
)
"""Is the agent better than in the last release, and is it worse anywhere? (beside the paper)"""
