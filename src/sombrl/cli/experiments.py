"""`sombrl experiment`: the paper's experiments."""

from pathlib import Path
from typing import Annotated

import tyro

from sombrl.cli.parser import call
from sombrl.config.suggestions import nearest
from sombrl.errors import SombrlError
from sombrl.paper.experiments import EXPERIMENTS, redraw, run_experiment
from sombrl.paper.experiments import SCALES as scales
from sombrl.sweep.commands import BackendName, Flat, Workers, on_backend


def experiment(argv: list[str]) -> None:
    """Run what the words after `sombrl experiment` ask for."""

    def options(
        name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")],
        scale: Annotated[str, tyro.conf.arg(metavar="|".join(scales))] = "small",
        out: Path = Path("results"),
        runs: Path = Path("runs/experiments"),
        cells: str = "*",
        partial: bool = False,
        env_workers: int = 0,
        data: tuple[Path, ...] = (),
        redraw_only: Annotated[bool, tyro.conf.arg(name="redraw")] = False,
        backend: BackendName | None = None,
        workers: Flat = Workers(),  # noqa: B008  (frozen)
    ) -> None:
        """One of the paper's experiments: a table, its manifest and a figure, in OUT/NAME/SCALE.csv, .json and .png.

        Run the same command again after a stop: finished cells are kept, the broken one goes on. Processes with
        different --cells may work side by side.

        Args:
            name: Its name; `sombrl list experiments` has them.
            scale: smoke runs in a minute or two and shows nothing; small is for two CPU cores; paper has the paper's
                numbers.
            out: Where the results go.
            runs: Where the runs of its cells are kept.
            cells: Only cells whose name matches one of these comma-separated shell patterns.
            partial: Write the results of the finished cells also when some are left.
            env_workers: Processes that step the simulators of a cell; 0: in turn. The numbers are the same.
            data: Files of an experiment on recorded data (rccar-real-regression), or a folder of them.
            redraw_only: Only draw the figure again, from the CSV that is there.
            backend: Run the cells side by side, as `sombrl sweep` does; default: one after the other in this process.
            workers: What the backend is told.
        """
        if name not in EXPERIMENTS:
            raise nearest(name, EXPERIMENTS, "experiment")
        if redraw_only:
            print(f"wrote {redraw(EXPERIMENTS[name], scale, out=out)}")
            return
        if backend is None and workers != Workers():
            raise SombrlError("--workers and the other options of a backend need one: add --backend local.")
        run_experiment(
            *(EXPERIMENTS[name], scale),
            out=out,
            runs=runs,
            pattern=cells,
            partial=partial,
            env_workers=env_workers,
            data=data,
            command=["sombrl", "experiment", *argv],
            run_cells=None if backend is None else on_backend(backend, workers, "sombrl.paper.experiments:EXPERIMENTS"),
        )

    call(options, argv, "sombrl experiment")
