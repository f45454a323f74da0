"""`sombrl train ALGORITHM`: every field of the configurations as a flag, and only those that the algorithm has."""

import contextlib
import dataclasses
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro

from sombrl.algorithms import ALGORITHMS
from sombrl.algorithms.settings import configured, fields_of, preset_values
from sombrl.cli.parser import flags, refuse_unknown, take
from sombrl.cli.train_help import help_text
from sombrl.config.check import require
from sombrl.config.fields import Field, leaves
from sombrl.config.run import RunConfig
from sombrl.config.suggestions import nearest
from sombrl.envs.trust import Word, again, import_from_here, module_of
from sombrl.errors import RunFault, SombrlError
from sombrl.exploration.strategies import OF_STRATEGIES

NEGATED = re.compile(r"--no-([\w.-]+)\.([\w-]+)")
"""--no-sac.first-norm, as the help has it; tyro says --sac.no-first-norm."""
NO_FILMS = {"films": "is for dreamer, whose model imagines pictures: leave it out."}


@dataclasses.dataclass(frozen=True)
class OutputOptions:
    """Where a run goes and how it is watched."""

    out: Path | None = None
    """The run's folder, new; default: one in runs/. Its name is ALGORITHM_ENV_EXPLORATION, numbered."""
    jobs: int | None = None
    """Processes that train some of the seeds each; default: as many as cores or accelerators allow. On a CPU the
    numbers do not depend on it."""
    checkpoint_every: int | None = None
    """Iterations between checkpoints; default 1, dreamer 10. Ctrl-C and faults save in any case."""
    tensorboard: bool = True
    """Write TensorBoard events (extra `tb`)."""
    wandb: bool = False
    """Write Weights & Biases runs, one per seed. Extra `wandb`; offline unless WANDB_MODE=online."""
    films: bool = True
    """On images: with every checkpoint, films of the last episode and of what the model expects (Pillow)."""


def train(argv: list[str]) -> None:
    """Train, as the words after `sombrl train` ask."""
    if not argv or argv[0] in ("-h", "--help", "--help-all"):
        print("usage: sombrl train ALGORITHM [options], with ALGORITHM one of:\n")
        for name, algorithm in ALGORITHMS.items():
            print(f"  {name:<12} {algorithm.summary}")
        print("\n`sombrl train ALGORITHM --help` shows the options that matter first, --help-all every one.")
        return
    name, *rest = argv
    if name not in ALGORITHMS:
        raise nearest(name, ALGORITHMS, "algorithm")
    if {"-h", "--help", "--help-all"} & set(rest):
        print(help_text(name, list(_options(name).values()), everything="--help-all" in rest))
        return
    _refuse(name, rest)
    preset, rest = take(rest, "--preset")
    run_config, output, config = _read(name, rest, preset)
    _say_idle(config.explore.explore, rest)
    planner = preset is not None and all(field.startswith("icem.") for field in ALGORITHMS[name].presets[preset])
    if planner and config.controller not in ("icem", "cem"):
        raise SombrlError(
            f"--preset {preset} sets iCEM's numbers, and --controller {config.controller} does not use them: leave it "
            "out."
        )
    _run(name, run_config, output, config, ["sombrl", "train", *argv])


def _run(name: str, run_config: RunConfig, output: OutputOptions, config: Any, command: list[str]) -> None:
    from sombrl.runs.evaluate import evaluate_run
    from sombrl.sweep.jobs import train as train_run

    if module_of(run_config.env):
        import_from_here()
    out = output.out or _new_folder(Path("runs") / f"{name}_{_slug(run_config.env)}_{config.explore.explore}")
    try:
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
    finally:
        if output.out is None:
            with contextlib.suppress(OSError):  # it is a run by now; what was refused leaves nothing behind
                out.rmdir()
                out.parent.rmdir()
    for task in run_config.downstream:
        print()
        evaluate_run(out, episodes=10, task=task, word=Word.of(False, run_config.env))
    print(f"done: {out}  (sombrl eval {out}{again(run_config.env)} · sombrl plot {out})")


def _options(algorithm: str) -> dict[str, Field]:
    """The options of the algorithm by name, without those that it does nothing with."""
    found = fields_of(algorithm) | {field.name: field for field in leaves(OutputOptions, "output")}
    return {name: field for name, field in found.items() if name not in _lacks(algorithm)}


def _lacks(algorithm: str) -> Mapping[str, str]:
    return {**ALGORITHMS[algorithm].lacks, **({} if algorithm == "dreamer" else NO_FILMS)}


def _refuse(algorithm: str, argv: list[str]) -> None:
    """Refuse options that there are not, and options and choices that the algorithm lacks."""
    lacks, options = _lacks(algorithm), _options(algorithm)
    for name in flags(argv):
        if why := lacks.get(name.removeprefix("no_")):
            raise SombrlError(f"--{name.replace('_', '-')} {why}")
        owners = [other for other in ALGORITHMS if name not in options and name in fields_of(other)]
        if owners:
            raise SombrlError(
                f"--{name.replace('_', '-')} is for {', '.join(owners)}, not for {algorithm}: leave it out."
            )
    refuse_unknown(argv, options, f"sombrl train {algorithm} --help-all")
    for name in {key.partition("=")[0] for key in lacks if "=" in key} & set(options):
        field = options[name]
        value = take(argv, field.flag)[0]
        ALGORITHMS[algorithm].refuse_values({name: value})
        if value is not None:
            left = tuple(choice for choice in field.kind.choices if f"{name}={choice}" not in lacks)
            require(field.flag, dataclasses.replace(field.kind, choices=left), value)


def _say_idle(explore: str, argv: list[str]) -> None:
    """Say which options the strategy does not look at."""
    for option in flags(argv):
        if explore not in (strategies := OF_STRATEGIES.get(option, (explore,))):
            flag, owners = option.replace("_", "-"), " and ".join(strategies)
            print(f"sombrl: --{flag} does nothing with --explore {explore}: it is for {owners}.", file=sys.stderr)


def _read(algorithm: str, argv: list[str], preset: str | None) -> tuple[RunConfig, OutputOptions, Any]:
    """The three configurations as one flat command line."""
    run_config, config = configured(algorithm, preset_values(algorithm, preset))
    groups: dict[str, Any] = {"run": run_config, "output": OutputOptions(), "algorithm": config}
    fields = [
        (name, Annotated[type(group), tyro.conf.arg(name="")], dataclasses.field(default=group))
        for name, group in groups.items()
    ]
    combined = dataclasses.make_dataclass("Options", fields, frozen=True)
    words = [f"--{own[1]}.no-{own[2]}" if (own := NEGATED.fullmatch(word)) else word for word in argv]
    parsed: Any = tyro.cli(combined, args=words, prog=f"sombrl train {algorithm}")
    return parsed.run, parsed.output, parsed.algorithm


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-." else "-" for c in name)


def _new_folder(path: Path) -> Path:
    """Make the folder, with a number if the name is taken: a training that starts at the same time gets another."""
    candidate, number = path, 2
    while True:
        try:
            candidate.mkdir(parents=True)
            return candidate
        except FileExistsError:
            candidate, number = path.with_name(f"{path.name}-{number}"), number + 1
        except OSError as error:
            raise RunFault(f"cannot create the run {candidate}: {error.strerror or error}.") from error
