"""The paper's layout: a column per environment, a curve per method, the median over seeds with its spread."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from sombrl.records import SombrlError
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row

TITLES = {
    "pendulum": "Pendulum",
    "mountain-car": "MountainCar",
    "rc-car": "RC car",
    "Pendulum-v1": "Pendulum",
    "MountainCarContinuous-v0": "MountainCar",
    "dmc:cartpole-swingup": "CartPole",
    "dmc:cartpole-swingup_sparse": "CartPole, sparse",
    "deceptive-chain": "Deceptive chain",
    "dmc:ball_in_cup-catch": "Ball in cup",
    "dmc:point_mass-easy": "Point mass",
    "dmc:reacher-easy": "Reacher easy",
    "dmc:reacher-hard": "Reacher hard",
    "dmc:finger-spin": "Finger spin",
    "dmc:hopper-hop": "Hopper hop",
    "dmc:walker-run": "Walker run",
    "dmc:quadruped-run": "Quadruped run",
    "dmc:humanoid-walk": "Humanoid walk",
    "pixel:mountain-car": "MountainCar, pixels",
    "pixel:pendulum": "Pendulum, pixels",
    "pixel:corridor": "Corridor, pixels",
    "pixel:key-door": "Key and door, pixels",
    "pixel:wall": "Wall, pixels",
}


@dataclasses.dataclass(frozen=True)
class Look:
    """How a method is drawn, the same in every figure."""

    label: str
    color: str
    dash: str = "-"


LOOKS = {
    "optimistic": Look("SOMBRL", COLORS[0]),
    "constant-10": Look("SOMBRL, λ = 10", COLORS[5], ":"),
    "hucrl": Look("H-UCRL", COLORS[1]),
    "pets": Look("PETS", COLORS[2]),
    "greedy": Look("Mean", COLORS[3], "-."),
    "random": Look("random actions", COLORS[4]),
    "oracle": Look("true system", COLORS[6], "--"),
}
NONEPISODIC_LOOKS = LOOKS | {
    "hucrl": dataclasses.replace(LOOKS["hucrl"], label="NeoRL"),
    "pets": dataclasses.replace(LOOKS["pets"], label="NePETS"),
    "greedy": dataclasses.replace(LOOKS["greedy"], label="NeMean"),
}


@dataclasses.dataclass(frozen=True)
class Panel:
    """A row of panels: one metric, for every environment."""

    metric: str
    label: str
    x: Literal["iteration", "decisions", "env_frames"] = "iteration"
    reference: str | None = None
    """A method that learns nothing and is drawn as a line at the mean of all its values."""


def select(rows: list[Row], **wanted: Any) -> list[Row]:
    """The rows whose fields have these values."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def curves(rows: list[Row], x: Literal["decisions", "env_frames"] = "decisions") -> tuple[np.ndarray, np.ndarray]:
    """`x` and values of one method, environment and metric: two arrays [iterations, seeds], NaN at the end."""
    seeds: dict[int, list[Row]] = {}
    for row in rows:
        seeds.setdefault(row.seed, []).append(row)
    counts, values = np.full((2, max(map(len, seeds.values())), len(seeds)), np.nan)
    for i, seed in enumerate(sorted(seeds)):
        ordered = sorted(seeds[seed], key=lambda row: row.decisions)
        counts[: len(ordered), i] = [getattr(row, x) for row in ordered]
        values[: len(ordered), i] = [row.value for row in ordered]
    return counts, values


def draw_median(axes: Any, x: np.ndarray, values: np.ndarray, look: Look) -> None:
    """The median over seeds and a band of one standard deviation, as in the paper. `values` is [x, seeds]."""
    middle = np.nanmedian(values, axis=1)
    spread = np.nanstd(values, axis=1)
    axes.fill_between(x, middle - spread, middle + spread, color=look.color, alpha=0.16, linewidth=0)
    marker = "o" if len(x) <= 25 else None
    axes.plot(x, middle, look.dash, color=look.color, linewidth=2.2, marker=marker, markersize=4, label=look.label)


def draw_panel(axes: Any, rows: list[Row], panel: Panel, looks: Mapping[str, Look]) -> None:
    """A curve per method of `looks` that has the metric; `rows` are those of one environment."""
    for method, look in looks.items():
        found = select(rows, method=method, metric=panel.metric)
        if not found:
            continue
        counts, values = curves(found, "decisions" if panel.x == "iteration" else panel.x)
        if method == panel.reference:
            axes.axhline(np.nanmean(values), color=look.color, linestyle=look.dash, linewidth=1.6, label=look.label)
            continue
        x = 1.0 + np.arange(len(values)) if panel.x == "iteration" else np.nanmedian(counts, axis=1)
        draw_median(axes, x, values, look)
    axes.margins(x=0.02)
    if panel.x == "iteration":
        axes.xaxis.get_major_locator().set_params(integer=True)
    elif panel.x == "env_frames":
        from matplotlib.ticker import EngFormatter

        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 200k, not 200000


def draw_grid(
    rows: list[Row],
    panels: list[Panel],
    looks: Mapping[str, Look],
    *,
    title: str,
    xlabel: str,
    env_title: Callable[[str], str] | None = None,
) -> Any:
    """A matplotlib figure: a column per environment of the rows, a row per panel, one legend below."""
    envs = list(dict.fromkeys(row.env for row in rows))
    for panel in panels:
        require(rows, panel.metric)
    figure = new_figure(4.6 * max(len(envs), 1.4), 3.3 * len(panels) + 1.0)
    grid = figure.subplots(len(panels), len(envs), squeeze=False, sharex="col")
    for column, env in enumerate(envs):
        here = select(rows, env=env)
        for axes, panel in zip(grid[:, column], panels, strict=True):
            draw_panel(axes, here, panel, looks)
        grid[0, column].set_title((env_title or title_of)(env))
        grid[-1, column].set_xlabel(xlabel)
    for axes, panel in zip(grid[:, 0], panels, strict=True):
        axes.set_ylabel(panel.label)
    finish(figure, title, rows)
    return figure


def draw_tiles(
    rows: list[Row], panel: Panel, looks: Mapping[str, Look], *, title: str, xlabel: str, columns: int = 4
) -> Any:
    """A matplotlib figure: a panel per environment of the rows, `columns` beside each other, one legend below."""
    require(rows, panel.metric)
    envs = list(dict.fromkeys(row.env for row in rows))
    columns = min(columns, len(envs))
    lines = -(-len(envs) // columns)
    figure = new_figure(3.8 * max(columns, 1.8), 3.1 * lines + 1.0)
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes, env in zip(grid.flat, envs, strict=False):
        draw_panel(axes, select(rows, env=env), panel, looks)
        axes.set(title=title_of(env), xlabel=xlabel)
    for axes in list(grid.flat)[len(envs) :]:
        axes.set_axis_off()
    for axes in grid[:, 0]:
        axes.set_ylabel(panel.label)
    finish(figure, title, rows)
    return figure


def draw_action_costs(rows: list[Row], panel: Panel, looks: Mapping[str, Look], *, title: str) -> Any:
    """A matplotlib figure: a line of panels per environment, a column per action cost."""
    columns = len({row.env.partition(" ")[2] for row in rows})
    return draw_tiles(rows, panel, looks, title=title, xlabel="frames", columns=columns)


def new_figure(width: float, height: float) -> Any:
    """An empty figure, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def finish(figure: Any, title: str, rows: list[Row], spread: str = "band: ± one standard deviation") -> None:
    """The title, what median and band are, and one legend for all panels."""
    count = len({row.seed for row in rows})
    over = f"median over {count} seeds, {spread}" if count > 1 else "one seed"
    inches = 0.085 * len(f"{title} ({over})")  # in one line, about
    gap = " " if inches < figure.get_figwidth() else "\n"
    figure.suptitle(f"{title}{gap}({over})", fontsize=11, x=0.01, ha="left")
    labels: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            labels.setdefault(label, handle)
    inches = sum(0.6 + 0.09 * len(label) for label in labels)  # of all labels in one line, about
    lines = int(np.ceil(max(inches / figure.get_figwidth(), len(labels) / 6)))
    columns = -(-len(labels) // lines)
    figure.legend(list(labels.values()), list(labels), loc="outside lower center", ncols=columns)


def require(rows: list[Row], metric: str) -> None:
    """Refuse rows that cannot make the figure."""
    if not select(rows, metric=metric):
        raise SombrlError(f"there is no {metric} among the rows to draw: make the CSV again.")


def title_of(env: str) -> str:
    """An environment for a title: "pendulum action_cost=0.1" is "Pendulum, c = 0.1"."""
    first, *options = env.split(" ")
    texts = [option.replace("action_cost=", "c = ").replace("reward=", "").replace("K=", "K = ") for option in options]
    for name, words in (
        ("margin_factor=", "margin factor "),
        ("speed_limit=", "speed limit "),
        ("cliff=", "cliff at "),
    ):
        texts = [text.replace(name, words) for text in texts]
    texts = [text.replace("torque=", "torque × ") for text in texts]
    return ", ".join([TITLES.get(first, first), *texts])
