"""`sombrl sweep`, `tune` and `status`, and `sombrl experiment --backend`: the command line of this folder."""

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from sombrl.envs.trust import Word, import_from_here, module_of, require_word
from sombrl.records import SombrlError
from sombrl.runs.cell import FunctionCell, TrainCell
from sombrl.runs.cell_folder import CellFolder
from sombrl.runs.in_turn import RunCells
from sombrl.sweep.driver import AbstractBackend, Drive, complete, to_the_end
from sombrl.sweep.in_time import InTime, check_minutes
from sombrl.sweep.local import LocalBackend, gpu_left_free
from sombrl.sweep.on_ray import RayBackend
from sombrl.sweep.on_slurm import SlurmBackend
from sombrl.sweep.pace import Paces
from sombrl.sweep.places import ExperimentPlace
from sombrl.sweep.spec import read_spec, read_table, rehearse, spec_of
from sombrl.sweep.status import status_text
from sombrl.sweep.sweep import open_sweep, run_sweep

BackendName = Literal["local", "ray", "slurm"]


@dataclasses.dataclass(frozen=True)
class Workers:
    """What the backends can be told."""

    workers: int | None = None
    """Cells at a time; default: local one per GPU, or per two cores; Ray and SLURM as many as they have room for."""
    retries: int = 2
    """How often a cell whose process died goes on from its checkpoint before it counts as failed."""
    cpus_per_cell: int = 1
    """Ray, SLURM: cores of a cell."""
    gpus_per_cell: float = 0.0
    """Ray, SLURM: GPUs of a cell; Ray also has parts of one."""
    address: str | None = None
    """Ray: host:port of a cluster; default RAY_ADDRESS, or a cluster of this machine for the time of the sweep."""
    partition: str | None = None
    """SLURM: where to queue."""
    minutes: float | None = None
    """Local: how long this call may take; what is not done by then is saved, and the same command goes on. SLURM: the
    time limit of a job (240); a cell that needs longer goes back to the queue and goes on."""
    memory: int = 8
    """SLURM: GB of a job."""
    slurm_local: bool = False
    """SLURM: jobs as processes of this machine, to try it out."""

    def check(self, backend: str) -> None:
        """Refuse impossible numbers, and options that the backend would not look at."""
        if self.minutes is not None:
            check_minutes(self.minutes)
        for name in ("workers", "cpus_per_cell", "memory"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise SombrlError(f"--{name.replace('_', '-')} must be at least 1, not {value}.")
        if self.retries < 0 or self.gpus_per_cell < 0:
            raise SombrlError("--retries and --gpus-per-cell must be 0 or more.")
        readers = {"cpus_per_cell": ("ray", "slurm"), "gpus_per_cell": ("ray", "slurm"), "address": ("ray",)}
        readers |= dict.fromkeys(("partition", "memory", "slurm_local"), ("slurm",)) | {"minutes": ("local", "slurm")}
        for name, backends in readers.items():
            if getattr(self, name) != getattr(Workers(), name) and backend not in backends:
                raise SombrlError(f"--{name.replace('_', '-')} is for --backend {' or '.join(backends)}: leave it out.")

    def backend(self, name: BackendName, root: Path) -> AbstractBackend:
        """The backend of that name for the cells in a folder."""
        match name:
            case "local":
                return LocalBackend(self.workers)
            case "ray":
                return RayBackend(self.workers, cpus=self.cpus_per_cell, gpus=self.gpus_per_cell, address=self.address)
            case "slurm":
                return SlurmBackend(
                    root,
                    self.workers,
                    cpus=self.cpus_per_cell,
                    gpus=self.gpus_per_cell,
                    minutes=240 if self.minutes is None else math.ceil(self.minutes),
                    memory=self.memory,
                    partition=self.partition,
                    local=self.slurm_local,
                )

    def see_through(self, name: BackendName, root: Path) -> Callable[[Drive], None]:
        """How the cells in a folder are seen through on the backend of that name."""
        if name != "local" or self.minutes is None:
            return to_the_end
        return InTime(self.minutes, Paces(root))

    def rehearsed(self, name: BackendName, root: Path, cells: Sequence[TrainCell]) -> AbstractBackend:
        """The same, once it is known that the cells can be made."""
        made = self.backend(name, root)
        try:
            # Only now: Ray may fork processes, which is not safe once JAX runs.
            with gpu_left_free():
                rehearse(cells)
        except BaseException:
            made.close([])
            raise
        return made


SpecPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SPEC")]
Overrides = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FIELD=VALUE,VALUE")]
Flat = Annotated[Workers, tyro.conf.arg(name="")]


@dataclasses.dataclass(frozen=True)
class Asked:
    """What stands on the command line of `sombrl sweep`, for a file that is a campaign."""

    spec: Path
    table: dict[str, Any]
    out: Path | None
    results: Path
    dry_run: bool
    workers: Workers
    command: tuple[str, ...]


def sweep(argv: list[str], campaign: Callable[[Asked], None]) -> None:
    """Sombrl sweep SPEC [FIELD=VALUE,VALUE ...] [options]; `campaign` is what runs cells of experiments."""

    def options(
        spec: SpecPath,
        overrides: Overrides = (),
        out: Path | None = None,
        backend: BackendName = "local",
        partial: bool = False,
        trust: bool = False,
        dry_run: bool = False,
        results: Path | None = None,
        workers: Flat = Workers(),  # noqa: B008  (frozen)
    ) -> None:
        """Train every cell of a sweep: algorithms × environments × strategies × a grid of fields.

        Run the same command again after a stop: finished cells are kept, broken ones go on from their checkpoints.
        With --minutes it stops by itself. A file of [[cell]]s is a campaign: cells of the paper's experiments.

        Args:
            spec: The sweep or the campaign as a TOML file (docs/sweeps.md, docs/campaigns.md).
            overrides: Fields in place of the file's, such as mbpo.utd=1,5,20: a list is a grid.
            out: The sweep's folder; default sweeps/NAME.
            backend: Where the cells run.
            partial: Write the table of the finished cells also when some have failed.
            trust: Run the code that the spec names, such as an environment module:Id; env=module:Id says so as well.
            dry_run: Only say what a campaign would do in --minutes.
            results: Where finished cells of a campaign are merged into; default results.
            workers: What the backend is told.
        """
        workers.check(backend)
        table = read_table(spec)
        if "cell" in table:
            for given, option in ((overrides, "FIELD=VALUE"), (partial, "--partial"), (trust, "--trust")):
                if given:
                    raise SombrlError(f"a campaign takes no {option}: its cells are as the experiments have them.")
            if backend != "local":
                raise SombrlError(f"a campaign runs on one machine: leave out --backend {backend}.")
            where = (out, results or Path("results"))
            campaign(Asked(spec, table, *where, dry_run, workers, ("sombrl", "sweep", *argv)))
            return
        if dry_run or results is not None:
            name = "--dry-run" if dry_run else "--results"
            raise SombrlError(f"{name} is for a campaign, a file of [[cell]]s: leave it out.")
        asked = spec_of(spec, table, overrides)
        if asked.search:
            raise SombrlError(f"{spec} has a [search]: use sombrl tune {spec}.")
        folder = out or Path("sweeps") / asked.name
        cells = asked.cells()
        word = _word(cells, overrides, trust)
        see_through = workers.see_through(backend, folder)  # its time begins now
        place, made = open_sweep(folder, asked.name, cells, lambda: workers.rehearsed(backend, folder, cells), word)
        command = ["sombrl", "sweep", *argv]
        run_sweep(place, made, retries=workers.retries, partial=partial, command=command, see_through=see_through)

    tyro.cli(options, args=argv, prog="sombrl sweep")


def tune(argv: list[str]) -> None:
    """Sombrl tune SPEC [FIELD=VALUE ...] [options]."""
    from sombrl.sweep.tune import ends_of
    from sombrl.sweep.tune import tune as search

    def options(
        spec: SpecPath,
        overrides: Overrides = (),
        out: Path | None = None,
        trials: int = 20,
        backend: BackendName = "local",
        trust: bool = False,
        workers: Flat = Workers(),  # noqa: B008  (frozen)
    ) -> None:
        """Search the fields under [search] of a spec with Optuna; a trial is a cell, and bad ones are stopped early.

        Run the same command again after a stop, also with more trials: the search goes on where it was.

        Args:
            spec: One cell as a TOML file, with a table [search] (docs/sweeps.md).
            overrides: Fields in place of the file's, field=value.
            out: The folder of the search; default sweeps/NAME.
            trials: How many in all.
            backend: Where the trials run.
            trust: Run the code that the spec names, such as an environment module:Id; env=module:Id says so as well.
            workers: What the backend is told.
        """
        workers.check(backend)
        if backend == "local" and workers.minutes is not None:
            raise SombrlError("--minutes is for --backend slurm here: give a search so many --trials instead.")
        asked = read_spec(spec, overrides)
        folder = out or Path("sweeps") / asked.name
        cells = ends_of(asked)
        search(
            asked,
            folder,
            lambda: workers.rehearsed(backend, folder, cells),
            trials=trials,
            at_once=workers.workers,
            retries=workers.retries,
            command=["sombrl", "tune", *argv],
            word=_word(cells, overrides, trust),
        )

    tyro.cli(options, args=argv, prog="sombrl tune")


def status(argv: list[str]) -> None:
    """Sombrl status SWEEP [options]."""

    def options(
        sweep: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SWEEP")],
        watch: bool = False,
        every: float = 2.0,
    ) -> None:
        """What has become of every cell of a sweep, from its files alone.

        Args:
            sweep: The folder of a sweep, of a search, or of the cells of an experiment that was run with --backend.
            watch: Show it again and again, until Ctrl-C.
            every: Seconds between two looks.
        """
        if every <= 0:
            raise SombrlError(f"--every must be more than 0 seconds, not {every:g}.")
        text = status_text(sweep)
        while watch:
            clear = "\x1b[H\x1b[2J" if sys.stdout.isatty() else ""
            print(f"{clear}{text}", flush=True)
            time.sleep(every)
            text = status_text(sweep)
        print(text)

    tyro.cli(options, args=argv, prog="sombrl status")


def _word(cells: Sequence[TrainCell], overrides: Sequence[str], trust: bool) -> Word:
    """What the user says about the environments of a spec, which is a file as any other; refuses what needs more."""
    given = [text.partition("=") for text in overrides]
    names = [name.strip() for field, _, value in given if field == "env" for name in value.split(",")]
    word = Word.of(trust, *names)
    for cell in cells:
        require_word(cell.run, word, "env=")
    if any(module_of(cell.run.env) for cell in cells):
        import_from_here()
    return word


def on_backend(backend: BackendName, workers: Workers, table: str) -> RunCells:
    """What `run_experiment` takes to have its cells run on a backend; `table` is module:NAME of the experiments."""
    workers.check(backend)

    def run_cells(folders: list[CellFolder], names: list[str], runs: Path | None, command: list[str]) -> None:
        assert runs is not None
        first = folders[0]
        data = next((folder.cell.data for folder in folders if isinstance(folder.cell, FunctionCell)), ())
        scale = first.path.relative_to(runs).parts[0].removeprefix(f"{first.experiment}-")
        place = ExperimentPlace(table, first.experiment, scale, runs, data, first.env_workers)
        complete(
            place,
            names,
            workers.backend(backend, place.root),
            retries=workers.retries,
            command=command,
            see_through=workers.see_through(backend, place.root),
        )

    return run_cells
