"""`sombrl resume`, `eval`, `bounds`, `plot`, `report` and the exports: what works on runs."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from sombrl.cli.parser import run_of
from sombrl.envs.trust import Word, again, import_from_here, module_of
from sombrl.errors import SombrlError
from sombrl.storage.run_folder import RunFolder

Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
Runs = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")]
Paths = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PATH...")]
Env = Annotated[str | None, tyro.conf.arg(metavar="NAME")]


def _word(run: Path, env: str | None, trust: bool) -> Word:
    """What the user says about the environment of a run; code that may run is also looked for in this folder."""
    if env is not None and env != (stored := RunFolder.open(run).settings["run"]["env"]):
        raise SombrlError(f"{run} was trained on {stored}, not on {env}: leave out --env.")
    if trust or (env is not None and module_of(env)):
        import_from_here()
    return Word.of(trust, env)


def resume(
    run: Run,
    episodes: int | None = None,
    checkpoint_every: int | None = None,
    tensorboard: bool = True,
    wandb: bool = False,
    films: bool = True,
    env: Env = None,
    trust: bool = False,
) -> None:
    """Continue a run exactly where its last checkpoint is.

    Args:
        run: The run's folder.
        episodes: Train up to this many episodes instead of the run's own number; nothing else can change.
        checkpoint_every: Iterations between checkpoints; default 1, and 10 of dreamer.
        tensorboard: Write TensorBoard events.
        wandb: Write Weights & Biases runs; those of before go on.
        films: Dreamer on images: with every checkpoint, films of what is seen and expected.
        env: The run's environment again, where that is module:Id: a file may not choose what is imported.
        trust: Run whatever code the folder names.
    """
    from sombrl.sweep.jobs import resume as resume_run

    options = {"tensorboard": tensorboard, "wandb": wandb, "films": films}
    run = run_of(run, "resume")
    word = _word(run, env, trust)
    resume_run(run, episodes=episodes, checkpoint_every=checkpoint_every, word=word, **options)
    print(f"done: {run}  (sombrl eval {run}{'' if env is None else again(env)} · sombrl plot {run})")


def evaluate(
    run: Run,
    episodes: int = 10,
    explore: bool = False,
    task: str | None = None,
    plan: Literal["mppi", "icem", "none"] | None = None,
    video: Path | None = None,
    env: Env = None,
    trust: bool = False,
) -> None:
    """Returns of the trained agent on episodes it has never seen.

    Args:
        run: The run's folder.
        episodes: Episodes per seed.
        explore: Plan with the exploration strategy of the run; default: for the task alone, by the mean.
        task: Plan for this downstream task of the environment instead of its own, and score by its reward.
        plan: mbpo: act by short plans that begin with the policy and end in its critics (mppi, icem), or by the policy
            alone (none); default: as it was trained.
        video: Also film the first seed's first episode (.gif or .mp4).
        env: The run's environment again, where that is module:Id: a file may not choose what is imported.
        trust: Run whatever code the folder names.
    """
    from sombrl.runs.evaluate import evaluate_run

    run = run_of(run, "eval")
    word = _word(run, env, trust)
    evaluate_run(run, episodes=episodes, explore=explore, task=task, plan=plan, video=video, word=word)


def bounds(
    run: Run,
    episodes: int = 10,
    factor: float | None = None,
    theory: bool = False,
    calibrated: float | None = None,
    env: Env = None,
    trust: bool = False,
) -> None:
    """Lower and upper bounds on the return of the trained agent, J ± λ Σ‖σ‖, from its model alone.

    Args:
        run: The run's folder.
        episodes: Episodes per seed, in the model.
        factor: λ, in reward per unit of Σ‖σ‖; default: that with which the run explores.
        theory: λ of the setting's theorem (gp-icem), with the run's own --theory options.
        calibrated: λ with which this share of the latest recorded episodes (--record-bounds) was inside, such as 0.9.
        env: The run's environment again, where that is module:Id: a file may not choose what is imported.
        trust: Run whatever code the folder names.
    """
    from sombrl.runs.bounds import bounds_of_run

    run = run_of(run, "bounds")
    word = _word(run, env, trust)
    bounds_of_run(run, episodes=episodes, factor=factor, theory=theory, calibrated=calibrated, word=word)


def plot(runs: Runs, out: Path | None = None) -> None:
    """Learning curves of one or more runs, median and interquartile range over seeds.

    Args:
        runs: Run folders.
        out: The picture (.png, .svg or .pdf), new; default: plots/learning.png in the first run.
    """
    from sombrl.runs.plots import plot_runs

    print(f"wrote {plot_runs(list(runs), out)}")


def export(runs: Runs, out: Path, experiment: str = "run") -> None:
    """The metrics of one or more runs as one long table, a row per seed, iteration and metric.

    Args:
        runs: Run folders.
        out: The file, new: .csv, or .parquet (extra `parquet`).
        experiment: What the first column says.
    """
    from sombrl.storage.results import export_runs

    print(f"wrote {export_runs(list(runs), out, experiment)}")


def export_policy(
    run: Run, out: Path, seed: int | None = None, onnx: bool = False, env: Env = None, trust: bool = False
) -> None:
    """The trained policy as a folder that needs NumPy alone: policy.py, policy.json and policy.npz.

    Args:
        run: The run's folder.
        out: The folder, new.
        seed: Whose policy; default: the first seed's.
        onnx: Also write policy.onnx (extra `onnx`).
        env: The run's environment again, where that is module:Id: a file may not choose what is imported.
        trust: Run whatever code the folder names.
    """
    from sombrl.export import export_policy as write

    run = run_of(run, "export-policy")
    written = write(run, out, seed=seed, onnx=onnx, word=_word(run, env, trust))
    print(f"wrote {written}  (python {out / 'policy.py'} checks it)")


def export_replay(run: Run, out: str, seed: int | None = None, env: Env = None, trust: bool = False) -> None:
    """The episodes of a run's replay as a Minari dataset (extra `minari`).

    Args:
        run: The run's folder.
        out: The dataset's name, new, e.g. pendulum/replay-v0; Minari keeps it in MINARI_DATASETS_PATH.
        seed: Whose episodes; default: those of every seed, one after the other.
        env: The run's environment again, where that is module:Id: a file may not choose what is imported.
        trust: Run whatever code the folder names.
    """
    from sombrl.export import to_minari

    run = run_of(run, "export-replay")
    written = to_minari(run, out, seed=seed, word=_word(run, env, trust))
    print(f"wrote {written}  (minari.load_dataset({out!r}))")


def report(
    paths: Paths,
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
    from sombrl.report import watch, write_report

    print(f"wrote {(watch if live else write_report)(paths, out, axis=axis, title=title)}")
