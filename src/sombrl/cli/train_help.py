"""The help of `sombrl train ALGORITHM`: options in groups, the dozen that matter first, or all of them."""

import shutil
import textwrap
from collections.abc import Iterator

from sombrl.algorithms import ALGORITHMS
from sombrl.config.fields import Field, value_at
from sombrl.config.kinds import Kind
from sombrl.config.run import RunConfig

GROUPS = ("environment", "run", "exploration", "setting", "model", "planner", "policy", "logging")
RUN = {
    "environment": ("env", "env_kwargs", "action_repeat", "action_cost", "env_workers", "episode_length"),
    "setting": ("setting", "downstream", "discount", "growing_horizon", "horizon_floor"),
    "logging": ("tensorboard", "wandb", "films"),
}
"""Options of the run and of its output; those that are not named here are in the group run, or begin with update."""
PARTS = {
    "icem": "planner",
    "mppi": "planner",
    "value": "planner",
    "plan": "planner",
    "sac": "policy",
    "search": "policy",
}
"""Configurations inside an algorithm's; the others are of the model."""
OWN = {"controller": "planner", "horizon_value": "planner", "preset": "run", "start_from": "run"}
"""Fields of the algorithm itself; the others are of the model."""
FIRST = (
    *("env", "env_kwargs", "episode_length", "episodes", "decisions", "seeds", "jobs", "eval_every", "out", "preset"),
    "offline",
    *("explore", "bonus_weight", "schedule", "setting", "controller", "prior", "size", "ratio", "wandb"),
)
"""What most people change."""
COLUMN = 25


def help_text(algorithm: str, options: list[Field], *, everything: bool) -> str:
    """The options of an algorithm in groups, as wide as the terminal."""
    width = max(60, min(shutil.get_terminal_size().columns, 110))
    lines = [f"usage: sombrl train {algorithm} [options]", f"{ALGORITHMS[algorithm].summary}", ""]
    for group in GROUPS:
        chosen = [field for field in options if _group(field) == group and (everything or field.name in FIRST)]
        if chosen:
            lines += [f"{group}:"]
        for field in chosen:
            lines += _lines(algorithm, field, width, everything)
    if not everything:
        lines.append(f"--help-all shows all {len(options)} options.")
    return "\n".join(lines)


def _group(field: Field) -> str:
    if field.part in ("run", "output"):
        if field.name.startswith("update_"):
            return "setting"
        return next((group for group, names in RUN.items() if field.name in names), "run")
    if field.path[:1] == ("explore",):
        return "exploration"
    return OWN.get(field.name) or PARTS.get(field.path[0], "model")


def _lines(algorithm: str, field: Field, width: int, everything: bool) -> Iterator[str]:
    """One option: its flag and what it takes, then what it does."""
    flag = field.flag
    shown = f"{flag}, --no-{flag[2:]}" if field.kind.base is bool else f"{flag} {_metavar(field.kind)}"
    text = field.help if everything else field.help.partition(". ")[0]
    choices = [one for one in field.kind.choices if f"{field.name}={one}" not in ALGORITHMS[algorithm].lacks]
    if choices:
        text = f"{'|'.join(choices)}. {text}"
    default = _default(algorithm, field)
    text = f"{text.rstrip('.')} (default {default})." if default is not None else f"{text.rstrip('.')}."
    lines = textwrap.wrap(text.replace("|", "| "), width - COLUMN, break_on_hyphens=False)  # choices are broken at bars
    wrapped = [line.replace("| ", "|") for line in lines]
    if len(shown) + 3 > COLUMN:
        yield f"  {shown}"
        shown = ""
    for line in wrapped or [""]:
        yield f"  {shown:<{COLUMN - 2}}{line}".rstrip()
        shown = ""


def _metavar(kind: Kind) -> str:
    if kind.base is tuple:
        return f"{_metavar(kind.items[0])} ..."
    if kind.choices:
        return "NAME"
    return {int: "INT", float: "FLOAT"}.get(kind.base, kind.base.__name__.upper() if kind.base is not str else "TEXT")


def _default(algorithm: str, field: Field) -> str | None:
    """The default as one would type it; None where there is none, or the text says it."""
    if field.part in ("preset", "output") or "default" in field.help.lower():
        return None
    value = value_at(RunConfig() if field.part == "run" else ALGORITHMS[algorithm].config(), field.path)
    if field.kind.base is bool:
        return "on" if value else "off"
    if value is None or value == ():
        return None
    return (
        " ".join(map(str, value))
        if isinstance(value, tuple)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
