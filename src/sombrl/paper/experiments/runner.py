"""`sombrl experiment`: run the cells that are not finished, then write the table, its manifest and the figure."""

import fnmatch
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sombrl.config.suggestions import nearest
from sombrl.records import SombrlError
from sombrl.runs.cell import Cell
from sombrl.runs.cell_folder import CellFolder
from sombrl.runs.experiment import SCALES, Experiment
from sombrl.runs.headlines import table
from sombrl.runs.in_turn import RunCells, cells_manifest, run_in_turn
from sombrl.runs.plots import drawing
from sombrl.runs.train import Interrupted, terminate_as_interrupt
from sombrl.storage.files import write_whole
from sombrl.storage.results import Row, read_rows, rows_text

RELEASED = "release.csv"
"""Beside the results of an experiment: the table of the last release, for those that compare with it."""


def run_experiment(
    experiment: Experiment,
    scale: str,
    *,
    out: Path = Path("results"),
    runs: Path = Path("runs/experiments"),
    pattern: str = "*",
    partial: bool = False,
    env_workers: int = 0,
    data: Sequence[Path] = (),
    command: list[str] | None = None,
    run_cells: RunCells | None = None,
) -> Path | None:
    """Bring the cells that match to their end. When none is left, write the results and return the CSV's path.

    `partial` writes those of the finished cells also when some are left. A cell that another experiment in `runs` has
    finished with the same settings is taken over. Several processes may work on one experiment: each takes cells that
    no other has, and the last one writes. `env_workers` processes step simulators side by side. `data` are the files of
    an experiment that needs some; a folder stands for its npz files, in the order of their names. `run_cells` brings
    cells to their end in another way than one after the other in this process.
    """
    if env_workers < 0:
        raise SombrlError(f"--env-workers must be 0 or more, not {env_workers}.")
    _known(scale)
    cells = experiment.cells_at(scale, _files(experiment, data))
    chosen = match(cells, pattern, experiment.name)
    for path, flag in ((out, "--out"), (out / experiment.name, "--out"), (runs, "--runs")):
        if path.exists() and not path.is_dir():
            raise SombrlError(f"{path} is a file: choose another {flag}.")
    with drawing("the figure of an experiment"):
        pass  # without matplotlib it would fail after the training
    again = ["sombrl", "experiment", experiment.name, "--scale", scale]
    again += ["--data", *map(str, data)] if data else []
    root = runs / f"{experiment.name}-{scale}"
    folders = {cell.name: CellFolder(root / cell.name, experiment.name, cell, env_workers) for cell in cells}
    for folder in folders.values():
        folder.check()
    try:
        with terminate_as_interrupt():
            names = [cell.name for cell in chosen]
            (run_cells or run_in_turn)([folders[name] for name in names], names, runs, command or again)
    except (KeyboardInterrupt, Interrupted):
        done = sum(folder.finished for folder in folders.values())
        raise Interrupted(
            f"{done} of {len(cells)} cells are finished and kept, as is what the others have saved; go on with the "
            f"same command: {' '.join(command or again)}"
        ) from None
    finished = [folder for folder in folders.values() if folder.finished]
    if left := [name for name, folder in folders.items() if not folder.finished]:
        print(f"{len(left)} of {len(cells)} cells of {experiment.name} remain: {', '.join(left)}")
        if not (partial and finished):
            return None
    return _publish(experiment, scale, finished, out, command or again)


def redraw(experiment: Experiment, scale: str, *, out: Path = Path("results")) -> Path:
    """Draw the figures again from the CSV alone and return the path of the first."""
    _known(scale)
    table = out / experiment.name / f"{scale}.csv"
    if not table.exists():
        raise SombrlError(
            f"there is no {table} to draw: run sombrl experiment {experiment.name} --scale {scale} first."
        )
    rows = read_rows(table)
    if foreign := {row.experiment for row in rows} - {experiment.name}:
        raise SombrlError(f"{table} holds the experiment {min(foreign)}, not {experiment.name}.")
    if not rows:
        raise SombrlError(f"{table} has no rows to draw: make the file again.")
    return _draw(experiment, rows, table)[0]


def match(cells: list[Cell], pattern: str, experiment: str) -> list[Cell]:
    """The cells whose name matches one of the comma-separated shell patterns; refuses a pattern that matches none."""
    chosen: set[str] = set()
    for one in pattern.split(","):
        found = {cell.name for cell in cells if fnmatch.fnmatchcase(cell.name, one)}
        if not found:
            names = ", ".join(cell.name for cell in cells)
            raise SombrlError(f'no cell of {experiment} matches "{one}"; the cells are {names}.')
        chosen |= found
    return [cell for cell in cells if cell.name in chosen]


def _publish(experiment: Experiment, scale: str, folders: list[CellFolder], out: Path, command: list[str]) -> Path:
    """Write what is not there yet or differs, and say where it is."""
    rows = [row for folder in folders for row in folder.rows()]
    rows += experiment.derive(rows) if experiment.derive else []
    path = out / experiment.name / f"{scale}.csv"
    if not write_results(experiment, rows, path, lambda: _manifest(experiment, scale, folders, command)):
        print(f"the results of {experiment.name} at scale {scale} are written already")
    if experiment.report:
        print(f"\n{experiment.report(rows)}")
    else:
        over = "\nmedian [quartiles] over seeds" if len({row.seed for row in rows}) > 1 else ""
        print(f"\n{table(rows, experiment.headlines)}{over}")
    if said := against_release(experiment, rows, path):
        print(f"\n{said}")
    pictures = _figures(experiment, path)
    print("\n" + "\n".join([f"table    {path}", *(f"figure   {picture}" for picture in pictures)]))
    return path


def write_results(experiment: Experiment, rows: list[Row], path: Path, manifest: Callable[[], dict[str, Any]]) -> bool:
    """Write a table, its manifest and its figures where they are not there yet or differ; whether any were written."""
    text, beside = rows_text(rows), path.with_suffix(".json")
    same = path.is_file() and path.read_bytes() == text.encode()
    if not same:
        write_whole(path, text)
    if not (same and beside.is_file()):
        write_whole(beside, json.dumps(manifest(), indent=1) + "\n")
    if same and all(picture.is_file() for picture in _figures(experiment, path)):
        return False
    _draw(experiment, rows, path)
    return True


def against_release(experiment: Experiment, rows: list[Row], csv: Path) -> str | None:
    """What the experiment says about its rows and those of the last release, if there are such beside its results."""
    released = csv.with_name(RELEASED)
    return experiment.against(rows, read_rows(released)) if experiment.against and released.is_file() else None


def _manifest(experiment: Experiment, scale: str, folders: list[CellFolder], command: list[str]) -> dict[str, Any]:
    what = {"experiment": experiment.name, "figure": experiment.figure, "scale": scale}
    return what | cells_manifest(folders, command)


def _figures(experiment: Experiment, csv: Path) -> dict[Path, Callable[[list[Row]], Any]]:
    """The pictures beside a CSV, and what draws them."""
    more = {csv.with_name(f"{csv.stem}-{name}.png"): draw for name, draw in experiment.more_figures.items()}
    return {csv.with_suffix(".png"): experiment.draw} | more


def _draw(experiment: Experiment, rows: list[Row], csv: Path) -> list[Path]:
    figures = _figures(experiment, csv)
    for path, draw in figures.items():
        with drawing("the figure of an experiment"):
            image = io.BytesIO()
            # Without the version of matplotlib in it, the same rows give the same file.
            draw(rows).savefig(image, dpi=150, metadata={"Software": None})
        write_whole(path, image.getvalue())
    return list(figures)


def _files(experiment: Experiment, data: Sequence[Path]) -> tuple[Path, ...]:
    """The files behind --data, looked at before anything is written."""
    if experiment.data is None:
        if data:
            raise SombrlError(f"{experiment.name} reads no files: leave out --data.")
        return ()
    if not data:
        raise SombrlError(f"{experiment.name} needs {experiment.data.what}: add --data PATH, a folder or files.")
    files: list[Path] = []
    for path in map(Path, data):
        files += sorted(path.glob("*.npz")) if path.is_dir() else [path]
    if not files:
        raise SombrlError(f"there is no npz file in {', '.join(map(str, data))}: choose another --data.")
    experiment.data.check(tuple(files))
    return tuple(files)


def _known(scale: str) -> str:
    if scale not in SCALES:
        raise nearest(scale, SCALES, "scale")
    return scale
