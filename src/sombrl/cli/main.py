"""The command line. Every flag comes from the same frozen dataclasses as the Python API."""

import dataclasses
import functools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from sombrl.algorithms import ALGORITHMS
from sombrl.config.run import RunConfig
from sombrl.config.suggestions import nearest
from sombrl.controllers.icem import PRESETS
from sombrl.records import RunFault, SombrlError
from sombrl.runs.train import Interrupted
from sombrl.storage.program_cache import keep_programs

USAGE = """usage: sombrl COMMAND ...

  train ALGORITHM   train on an environment        sombrl train gp-icem --env Pendulum-v1 --explore optimistic
  resume RUN        continue a run exactly         sombrl resume runs/p
  eval RUN          returns of the trained agent   sombrl eval runs/p --episodes 10 --video swing.gif
  plot RUN...       learning curves as a picture   sombrl plot runs/p runs/q
  export RUN...     metrics of runs as one table   sombrl export runs/p --out results/pendulum.csv
  export-policy RUN a policy for NumPy or ONNX      sombrl export-policy runs/p --out pilot
  export-replay RUN episodes as a Minari dataset    sombrl export-replay runs/p --out pendulum/replay-v0
  report PATH...    runs and tables as one page    sombrl report runs --out report.html
  experiment NAME   the paper's experiments         sombrl experiment gp-episodic --scale small
  sweep SPEC        many runs, on many machines    sombrl sweep examples/sweeps/pendulum.toml --backend local
  status SWEEP      what became of its cells       sombrl status sweeps/bonus-weight --watch
  tune SPEC         search for settings            sombrl tune examples/sweeps/tune.toml --trials 20
  hardware run C    drive a car and learn           sombrl hardware run runs/car --backend sim --episodes 20
  list WHAT         algorithms, explorations, envs, presets or experiments
  check-env ENV     whether an environment will work, and what to mend
  doctor            whether this machine is set up well
  demo              optimistic against greedy on sparse MountainCar, in a few minutes

`sombrl COMMAND --help` shows every option with its default."""


@dataclasses.dataclass(frozen=True)
class Output:
    """Where a run goes and how it is watched."""

    out: Path | None = None
    """The run's folder, new; default runs/ALGORITHM_ENV_EXPLORATION, numbered."""
    jobs: int | None = None
    """Processes that train some of the seeds each; default: as many as cores or accelerators allow. The numbers on a
    CPU do not depend on it."""
    checkpoint_every: int | None = None
    """Iterations between checkpoints; default 1, dreamer 10. Ctrl-C and faults save in any case."""
    tensorboard: bool = True
    """Write TensorBoard events (extra `tb`)."""
    wandb: bool = False
    """Write Weights & Biases runs, one per seed (extra `wandb`); offline unless WANDB_MODE=online."""
    films: bool = True
    """Dreamer on images: with every checkpoint, films of the last episode and of what the model expects (Pillow)."""


def train(argv: list[str]) -> None:
    """Sombrl train ALGORITHM [options]."""
    from sombrl.runs.evaluate import evaluate_run
    from sombrl.sweep.jobs import train as train_run

    algorithms = ", ".join(ALGORITHMS)
    if not argv or argv[0] in ("-h", "--help"):
        print(f"usage: sombrl train ALGORITHM [options], with ALGORITHM one of: {algorithms}")
        print("`sombrl train ALGORITHM --help` shows every option with its default.")
        return
    name, *rest = argv
    if name not in ALGORITHMS:
        raise nearest(name, ALGORITHMS, "algorithm")
    preset, rest = _take(rest, "--preset")
    if preset is not None and preset not in PRESETS:
        raise nearest(preset, PRESETS, "preset")
    algorithm = ALGORITHMS[name]
    default, planned = algorithm.config(), ""
    if hasattr(default, "icem"):
        default = dataclasses.replace(default, icem=PRESETS[preset or "light"])
        planned = f" --preset {'|'.join(PRESETS)} (default light) sets the planner's defaults below."
    elif preset is not None:
        raise SombrlError(f"--preset sets iCEM's numbers, and {name} does not plan: leave it out.")
    run_config, output, config = _parse(
        rest,
        f"sombrl train {name}",
        {"run": RunConfig, "output": Output, "algorithm": algorithm.config},
        {"run": RunConfig(), "output": Output(), "algorithm": default},
        f"{algorithm.summary}.{planned}",
    )
    if preset is not None and config.controller not in ("icem", "cem"):
        raise SombrlError(
            f"--preset sets iCEM's numbers, and --controller {config.controller} does not use them: leave it out."
        )
    out = output.out or _free(Path("runs") / f"{name}_{_slug(run_config.env)}_{config.explore.explore}")
    command = ["sombrl", "train", *argv]
    train_run(
        name,
        config,
        run_config,
        out,
        jobs=output.jobs,
        command=command,
        checkpoint_every=output.checkpoint_every,
        tensorboard=output.tensorboard,
        wandb=output.wandb,
        films=output.films,
    )
    for task in run_config.downstream:
        print()
        evaluate_run(out, episodes=10, task=task)
    print(f"done: {out}  (sombrl eval {out} · sombrl plot {out})")


def resume(argv: list[str]) -> None:
    """Sombrl resume RUN [options]."""
    from sombrl.sweep.jobs import resume as resume_run

    def options(
        run: Annotated[Path, tyro.conf.Positional],
        episodes: int | None = None,
        checkpoint_every: int | None = None,
        tensorboard: bool = True,
        wandb: bool = False,
        films: bool = True,
    ) -> None:
        """Continue a run exactly where its last checkpoint is.

        Args:
            run: The run's folder.
            episodes: Train up to this many episodes instead of the run's own number; nothing else can change.
            checkpoint_every: Iterations between checkpoints; default 1, and 10 of dreamer.
            tensorboard: Write TensorBoard events.
            wandb: Write Weights & Biases runs; those of before go on.
            films: Dreamer on images: with every checkpoint, films of what is seen and expected.
        """
        options = {"tensorboard": tensorboard, "wandb": wandb, "films": films}
        resume_run(run, episodes=episodes, checkpoint_every=checkpoint_every, **options)
        print(f"done: {run}  (sombrl eval {run} · sombrl plot {run})")

    _call(options, argv, "sombrl resume")


def evaluate(argv: list[str]) -> None:
    """Sombrl eval RUN [options]."""
    from sombrl.runs.evaluate import evaluate_run

    def options(
        run: Annotated[Path, tyro.conf.Positional],
        episodes: int = 10,
        explore: bool = False,
        task: str | None = None,
        video: Path | None = None,
    ) -> None:
        """Returns of the trained agent on episodes it has never seen.

        Args:
            run: The run's folder.
            episodes: Episodes per seed.
            explore: Plan with the exploration strategy of the run; default: for the task alone, by the mean.
            task: Plan for this downstream task of the environment instead of its own, and be paid for it.
            video: Also film the first seed's first episode (.gif or .mp4).
        """
        evaluate_run(run, episodes=episodes, explore=explore, task=task, video=video)

    _call(options, argv, "sombrl eval")


def plot(argv: list[str]) -> None:
    """Sombrl plot RUN... [options]."""
    from sombrl.runs.plots import plot_runs

    def options(runs: Annotated[tuple[Path, ...], tyro.conf.Positional], out: Path | None = None) -> None:
        """Learning curves of one or more runs, median and interquartile range over seeds.

        Args:
            runs: Run folders.
            out: The picture (.png, .svg or .pdf), new; default: plots/learning.png in the first run.
        """
        print(f"wrote {plot_runs(list(runs), out)}")

    _call(options, argv, "sombrl plot")


def export(argv: list[str]) -> None:
    """Sombrl export RUN... [options]."""
    from sombrl.storage.results import export_runs

    def options(runs: Annotated[tuple[Path, ...], tyro.conf.Positional], out: Path, experiment: str = "run") -> None:
        """The metrics of one or more runs as one long table, a row per seed, iteration and metric.

        Args:
            runs: Run folders.
            out: The file, new: .csv, or .parquet (extra `parquet`).
            experiment: What the first column says.
        """
        print(f"wrote {export_runs(list(runs), out, experiment)}")

    _call(options, argv, "sombrl export")


def export_policy(argv: list[str]) -> None:
    """Sombrl export-policy RUN [options]."""
    from sombrl.export import export_policy as write

    def options(
        run: Annotated[Path, tyro.conf.Positional], out: Path, seed: int | None = None, onnx: bool = False
    ) -> None:
        """The trained policy as a folder that needs NumPy alone: policy.py, policy.json and policy.npz.

        Args:
            run: The run's folder.
            out: The folder, new.
            seed: Whose policy; default: the first seed's.
            onnx: Also write policy.onnx (extra `onnx`).
        """
        print(f"wrote {write(run, out, seed=seed, onnx=onnx)}  (python {out / 'policy.py'} checks it)")

    _call(options, argv, "sombrl export-policy")


def export_replay(argv: list[str]) -> None:
    """Sombrl export-replay RUN [options]."""
    from sombrl.export import to_minari

    def options(run: Annotated[Path, tyro.conf.Positional], out: str, seed: int | None = None) -> None:
        """The episodes of a run's replay as a Minari dataset (extra `minari`).

        Args:
            run: The run's folder.
            out: The dataset's name, new, e.g. pendulum/replay-v0; Minari keeps it in MINARI_DATASETS_PATH.
            seed: Whose episodes; default: those of every seed, one after the other.
        """
        print(f"wrote {to_minari(run, out, seed=seed)}  (minari.load_dataset({out!r}))")

    _call(options, argv, "sombrl export-replay")


def report(argv: list[str]) -> None:
    """Sombrl report PATH... [options]."""
    from sombrl.report import watch, write_report

    def options(
        paths: Annotated[tuple[Path, ...], tyro.conf.Positional],
        out: Path = Path("report.html"),
        live: bool = False,
        axis: Literal["frames", "decisions"] = "frames",
        title: str | None = None,
    ) -> None:
        """One page about runs and tables of results that opens without a network: verdicts, curves, tables.

        Args:
            paths: Run folders, tables of results (.csv), or folders with such in them.
            out: The page (.html), new.
            live: Write the page again while the runs grow, until Ctrl-C; the open page reads itself again.
            axis: What the curves are drawn over at first; the page can switch.
            title: The page's heading.
        """
        written = (watch if live else write_report)(paths, out, axis=axis, title=title)
        print(f"wrote {written}")

    _call(options, argv, "sombrl report")


def experiment(argv: list[str]) -> None:
    """Sombrl experiment NAME [options]."""
    from sombrl.paper.experiments import EXPERIMENTS, redraw, run_experiment
    from sombrl.paper.experiments import SCALES as scales
    from sombrl.sweep.commands import BackendName, Flat, Workers, on_backend

    def options(
        name: Annotated[str, tyro.conf.Positional],
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
        command = ["sombrl", "experiment", *argv]
        run_experiment(
            *(EXPERIMENTS[name], scale),
            out=out,
            runs=runs,
            pattern=cells,
            partial=partial,
            env_workers=env_workers,
            data=data,
            command=command,
            run_cells=None if backend is None else on_backend(backend, workers, "sombrl.paper.experiments:EXPERIMENTS"),
        )

    _call(options, argv, "sombrl experiment")


def list_names(argv: list[str]) -> None:
    """Sombrl list WHAT."""
    from sombrl.envs.registry import list_envs
    from sombrl.exploration.strategies import STRATEGIES
    from sombrl.paper.experiments import EXPERIMENTS

    tables: dict[str, Callable[[], list[tuple[str, str]]]] = {
        "algorithms": lambda: [(name, algorithm.summary) for name, algorithm in ALGORITHMS.items()],
        "explorations": lambda: [(name, (make.__doc__ or "").strip()) for name, make in STRATEGIES.items()],
        "envs": list_envs,
        "presets": lambda: [(name, str(preset)) for name, preset in PRESETS.items()],
        "experiments": lambda: [(name, f"{e.summary} ({e.figure})") for name, e in EXPERIMENTS.items()],
    }
    what = argv[0] if argv else ""
    if what in ("", "-h", "--help"):
        print(f"usage: sombrl list {'|'.join(tables)}")
        return
    if what not in tables:
        raise nearest(what, tables, "list", see="sombrl list")
    rows = tables[what]()
    width = max(len(name) for name, _ in rows)
    for name, summary in rows:
        print(f"{name:<{width}}  {summary}")


def check_env(argv: list[str]) -> None:
    """Sombrl check-env ENV [options]."""
    from sombrl.envs.check import check_env as check

    def options(
        env: Annotated[str, tyro.conf.Positional],
        env_kwargs: tuple[str, ...] = (),
        episode_length: int | None = None,
    ) -> None:
        """Whether an environment will work with sombrl, and what to mend.

        Args:
            env: A name as in `sombrl train --env`.
            env_kwargs: Options of the environment as name=value.
            episode_length: Decisions per episode, for environments without a time limit.
        """
        kwargs = RunConfig(env_kwargs=env_kwargs).env_options
        findings = check(env, env_kwargs=kwargs, episode_length=episode_length)
        if len(findings) == 1 and findings[0].level == "error":  # it could not even be made
            raise SombrlError(findings[0].sentence)
        for finding in findings:
            print(f"{finding.level:<8} {finding.sentence}")
        if any(finding.level == "error" for finding in findings):
            raise SombrlError(f"{env} will not work as it is: see the errors above.")

    _call(options, argv, "sombrl check-env")


def doctor(argv: list[str]) -> None:
    """Sombrl doctor."""
    from sombrl.cli.doctor import examine

    if argv:
        print("usage: sombrl doctor   (takes no options)")
        return
    for level, sentence in examine():
        print(f"{level:<8} {sentence}")


def demo(argv: list[str]) -> None:
    """Sombrl demo [options]."""
    from sombrl.demo.run import demo as run_demo

    def options(out: Path = Path("runs/demo"), seeds: int = 5, episodes: int = 8) -> None:
        """Optimistic against greedy on sparse MountainCar; ends with a table and a page.

        Args:
            out: The folder of the demo; an old demo in it is replaced.
            seeds: Seeds per strategy.
            episodes: Episodes per seed.
        """
        run_demo(out, seeds=seeds, episodes=episodes)

    _call(options, argv, "sombrl demo")


def sweep(argv: list[str]) -> None:
    """Sombrl sweep SPEC [options]."""
    from sombrl.sweep.commands import sweep as command

    command(argv)


def status(argv: list[str]) -> None:
    """Sombrl status SWEEP [options]."""
    from sombrl.sweep.commands import status as command

    command(argv)


def tune(argv: list[str]) -> None:
    """Sombrl tune SPEC [options]."""
    from sombrl.sweep.commands import tune as command

    command(argv)


def hardware(argv: list[str]) -> None:
    """Sombrl hardware run | status | check."""
    from sombrl.hardware.commands import hardware as command

    command(argv)


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "plot": plot,
    "export": export,
    "export-policy": export_policy,
    "export-replay": export_replay,
    "report": report,
    "experiment": experiment,
    "sweep": sweep,
    "status": status,
    "tune": tune,
    "hardware": hardware,
    "list": list_names,
    "check-env": check_env,
    "doctor": doctor,
    "demo": demo,
}


def main(argv: list[str] | None = None) -> None:
    """Run a command; bad input is one sentence and exit code 2, a fault while running one and 1."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(USAGE)
        return
    if argv[0] == "--version":
        print(f"sombrl {__import__('sombrl').__version__}")
        return
    keep_programs()
    sys.path.insert(0, os.getcwd())  # for --env module:Id-v0 with a module of the user's; a console script lacks it
    usual = sys.unraisablehook
    sys.unraisablehook = functools.partial(_insist, usual)
    try:
        if argv[0] not in COMMANDS:
            raise nearest(argv[0], COMMANDS, "command", see="sombrl --help")
        COMMANDS[argv[0]](argv[1:])
    except SombrlError as error:
        _stop(str(error), 2)
    except RunFault as error:
        _stop(str(error), 1)
    except Interrupted as stopped:
        _stop(str(stopped), 130)
    except KeyboardInterrupt:
        _stop("stopped.", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains again at exit
    except Exception as error:
        if os.environ.get("SOMBRL_DEBUG"):
            traceback.print_exc()
        kind = type(error).__name__
        _stop(f"an error in sombrl itself, {kind}: {error} (SOMBRL_DEBUG=1 shows the trace; please report it)", 1)
    finally:
        sys.unraisablehook = usual


def _insist(usual: Callable[[Any], Any], ignored: Any) -> None:
    """A Ctrl-C that falls into a finaliser or a callback of JAX's is swallowed there: it comes again a moment later."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        main = threading.main_thread().ident
        threading.Timer(0.05, lambda: signal.pthread_kill(main or 0, signal.SIGINT)).start()
    else:
        usual(ignored)


def _stop(sentence: str, code: int) -> None:
    print(f"sombrl: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(code)


def _parse(argv: list[str], prog: str, groups: dict[str, type], defaults: dict[str, Any], description: str) -> tuple:
    """Several dataclasses as one flat command line."""
    fields = [
        (name, Annotated[group, tyro.conf.arg(name="")], dataclasses.field(default=defaults[name]))
        for name, group in groups.items()
    ]
    combined = dataclasses.make_dataclass("Options", fields, frozen=True)
    parsed: Any = tyro.cli(combined, args=argv, prog=prog, description=description)
    return tuple(getattr(parsed, name) for name in groups)


def _call(function: Callable, argv: list[str], prog: str) -> None:
    tyro.cli(function, args=argv, prog=prog)


def _take(argv: list[str], flag: str) -> tuple[str | None, list[str]]:
    """A flag whose value decides the defaults of others, so that it must be read before them; None if not there."""
    rest: list[str] = []
    value: str | None = None
    words = iter(argv)
    for word in words:
        if word == flag:
            value = next(words, "")
        elif word.startswith(flag + "="):
            value = word.partition("=")[2]
        else:
            rest.append(word)
    return value, rest


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-." else "-" for c in name)


def _free(path: Path) -> Path:
    """The path, with a number if it is taken."""
    candidate, number = path, 2
    while candidate.exists():
        candidate, number = path.with_name(f"{path.name}-{number}"), number + 1
    return candidate
