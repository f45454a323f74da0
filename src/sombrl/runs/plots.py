"""`sombrl plot`: the learning curves of runs, straight from their metrics.jsonl."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.optional import require
from sombrl.records import RunFault, SombrlError
from sombrl.runs.colors import COLORS as COLORS
from sombrl.runs.colors import places
from sombrl.storage.files import check_new, refuse_links
from sombrl.storage.results import readable
from sombrl.storage.run_folder import RunFolder

DASHES = ("-", "--", ":", "-.")  # when there are more runs than colours
RETURN = "rollout/ep_rew_mean"
PANELS = (
    ("explore/mean_std", "mean ‖σ‖ on visited states"),
    ("explore/bonus_share", "bonus share of the objective"),
    ("model/rmse", "model RMSE (normalised)"),
    ("model/coverage", "coverage of ±2σ"),
)
STYLE: dict[Any, Any] = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "legend.frameon": False,
    "svg.fonttype": "none",
}
SUFFIXES = (".png", ".svg", ".pdf")


def plot_runs(runs: list[Path], out: Path | None) -> Path:
    """Draw the runs into one picture and return its path: `out`, new, or plots/learning.png in the first run."""
    if not runs:
        raise SombrlError("there is nothing to plot: name at least one run, sombrl plot runs/p.")
    if out is not None:
        out = Path(out)
        if out.suffix.lower() not in SUFFIXES:
            raise SombrlError(f"a plot is a {', '.join(SUFFIXES)} file, not {out.name!r}: choose another --out.")
        check_new(out, "--out")
    if out is None:
        RunFolder.open(Path(runs[0])).refuse_links()  # the picture goes into it
    read = readable(list(map(Path, runs)), _read)
    folders, tables = [folder for folder, _ in read], [rows for _, rows in read]
    with drawing("plotting"):
        figure = _figure(folders, tables)
        out = folders[0].plots / "learning.png" if out is None else out
        # Written aside: the suffix stays, because matplotlib chooses the format by it.
        aside = out.with_name(f".tmp-{os.getpid()}-{out.name}")
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(aside, dpi=150)
            os.replace(aside, out)
        except OSError as error:
            raise RunFault(f"cannot write {out}: {error.strerror or error}.") from error
        finally:
            with contextlib.suppress(OSError):  # it was renamed, or is not a folder
                aside.unlink()
    return out


@contextlib.contextmanager
def drawing(what: str) -> Iterator[None]:
    """Our matplotlib style, and one sentence where matplotlib is missing or broken. No pyplot: no windows, no state."""
    missing = f"{what} needs matplotlib: pip install 'sombrl[report]'."
    matplotlib = require("matplotlib", "matplotlib", missing)
    require("matplotlib.figure", "matplotlib", missing)
    with matplotlib.rc_context(STYLE):
        yield


def curves(rows: list[dict[str, Any]], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """A metric per iteration and seed, with its environment frames: two arrays [iterations, seeds].

    NaN where a seed has no row (an unfinished iteration), or no number.
    """
    iterations = {n: i for i, n in enumerate(sorted({row["iteration"] for row in rows}))}
    seeds = {seed: i for i, seed in enumerate(sorted({row["seed"] for row in rows}))}
    frames, values = np.full((2, len(iterations), len(seeds)), np.nan)
    for row in rows:
        place = iterations[row["iteration"]], seeds[row["seed"]]
        frames[place] = row["env_frames"]
        value = row.get(metric)
        values[place] = value if isinstance(value, int | float) else np.nan
    return frames, values


def draw_curve(axes: Any, x: np.ndarray, values: np.ndarray, color: str, label: str, dash: str = "-") -> None:
    """Thin lines for the seeds, a band between the quartiles, a thick line at the median. Takes `curves`."""
    seen = np.isfinite(values).any(axis=1)  # an iteration without a number has no median
    x, values = x[seen], values[seen]
    if not len(values):
        return
    if values.shape[1] > 1:
        # A seed's own thin line is at its own frames: where episodes end early these differ.
        axes.plot(x, values, color=color, linewidth=0.7, alpha=0.4)
    low, middle, high = np.nanpercentile(values, [25, 50, 75], axis=1)
    centre = np.nanmedian(x, axis=1)
    axes.fill_between(centre, low, high, color=color, alpha=0.18, linewidth=0)
    marker = "o" if len(centre) <= 25 else None
    axes.plot(centre, middle, dash, color=color, linewidth=2.4, marker=marker, markersize=4.5, label=label)


def _figure(folders: list[RunFolder], tables: list[list[dict[str, Any]]]) -> Any:
    from matplotlib.figure import Figure

    panels = [panel for panel in PANELS if any(row.get(panel[0]) is not None for rows in tables for row in rows)]
    figure = Figure(figsize=(12, 7.5 if panels else 4.5), layout="constrained")
    grid = figure.add_gridspec(2 if panels else 1, max(1, len(panels)), height_ratios=[1.7, 1][: 1 + bool(panels)])
    main = figure.add_subplot(grid[0, :])
    small = [figure.add_subplot(grid[1, i]) for i in range(len(panels))]
    labels = _labels(folders)
    for rows, label, place in zip(tables, labels, places(labels), strict=True):
        look: dict[str, Any] = {
            "color": COLORS[place % len(COLORS)],
            "dash": DASHES[place // len(COLORS) % len(DASHES)],
        }
        draw_curve(main, *curves(rows, RETURN), label=label, **look)
        for axes, (metric, _) in zip(small, panels, strict=True):
            draw_curve(axes, *curves(rows, metric), label=label, **look)

    main.set(ylabel="return of an episode", xlabel="environment frames (decisions × action repeat)")
    names = " and ".join(dict.fromkeys(folder.settings["run"]["env"] for folder in folders))
    main.set_title(f"{names}: median over seeds, band between the quartiles, thin lines the seeds")
    if len(folders) > 1:
        main.legend(loc="best")
    for axes, (metric, title) in zip(small, panels, strict=True):
        axes.set_title(title)
        axes.set_xlabel("environment frames")
        axes.locator_params(axis="x", nbins=4)
        if metric == "model/coverage":
            axes.axhline(0.95, color="#888888", linewidth=1, linestyle=":")  # of a calibrated model
        if metric in ("model/coverage", "explore/bonus_share"):
            axes.set_ylim(-0.03, 1.05)
        else:
            axes.set_ylim(bottom=0)
    return figure


def _labels(folders: list[RunFolder]) -> list[str]:
    """The strategy; with the run's name where strategies meet twice."""
    strategies = [folder.settings["config"].get("explore", {}).get("explore", folder.path.name) for folder in folders]
    if len(set(strategies)) == len(strategies):
        return strategies
    names = [folder.path.name for folder in folders]
    if len(set(names)) < len(names):
        names = [str(folder.path) for folder in folders]
    return [f"{strategy} ({name})" for strategy, name in zip(strategies, names, strict=True)]


def _read(path: Path) -> tuple[RunFolder, list[dict[str, Any]]]:
    """A run, and its rows."""
    folder = RunFolder.open(path)
    refuse_links(path, ("config.json", "metrics.jsonl"))
    _ = folder.settings  # refuses what is damaged
    return folder, _rows(folder)


def _rows(folder: RunFolder) -> list[dict[str, Any]]:
    rows = [row for row in folder.rows() if {"iteration", "seed", "env_frames"} <= row.keys()]
    if not rows:
        raise SombrlError(f"{folder.path} has no metrics yet: train it first, sombrl resume {folder.path}.")
    return rows
