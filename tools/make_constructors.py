"""Writes src/sombrl/agent/constructors.py, the signatures of `sombrl.GPICEM` and its siblings, from the configurations.

python tools/make_constructors.py           # after a field of a configuration has changed
"""

import dataclasses
import subprocess
import sys
import textwrap
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from sombrl.algorithms import ALGORITHMS
from sombrl.config.check import Configuration
from sombrl.config.fields import help_of
from sombrl.config.kinds import Kind, kinds_of
from sombrl.config.run import RunConfig

TARGET = Path(__file__).resolve().parents[1] / "src" / "sombrl" / "agent" / "constructors.py"
NAMES = {
    "gp-icem": "GPICEM",
    "mbpo": "MBPO",
    "sac": "SAC",
    "maxinfo-sac": "MaxInfoSAC",
    "sim-fsvgd": "SimFSVGD",
    "dreamer": "Dreamer",
}
EXAMPLES = {
    "gp-icem": '"MountainCarContinuous-v0", action_repeat=5, episode_length=40).learn(400)',
    "mbpo": '"dmc:walker-run", seeds=5, sac={"batch_size": 128}).learn(50_000)',
    "sac": '"Pendulum-v1", preset="strong").learn(5_000)',
    "maxinfo-sac": '"MountainCarContinuous-v0").learn(25_000)',
    "sim-fsvgd": '"rc-car", frame="body", bonus_weight=0.1).learn(1_000)',
    "dreamer": '"dmc-vision:cartpole-swingup", explore="greedy", size="1m").learn(5_000)',
}
HEADER = '''"""The constructors of agents, with every setting, its type and its default, for editors and type checkers.

Written by tools/make_constructors.py; a test compares it with the configurations. `constructs` replaces each function
by one that gives what it was given to `make`, so that a wrong name or value is refused in a sentence.
"""

# mypy: disable-error-code="empty-body"
# ruff: noqa: B008

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from sombrl.agent.agent import Agent
from sombrl.agent.make import constructs
'''


def source() -> str:
    """The module, as ruff formats it."""
    nested: dict[type, None] = {}
    functions = [_function(name, nested) for name in ALGORITHMS if name in NAMES]
    used = [*nested, *(algorithm.config for algorithm in ALGORITHMS.values())]
    imports = sorted({f"from {cls.__module__} import {cls.__name__}" for cls in used})
    text = "\n".join([HEADER + "\n".join(imports), *map(_settings, nested), *functions])
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--fix", "--select", "I", "-q"], ["format", "-q"]):
        asked = [*ruff, *command, "--stdin-filename", str(TARGET), "-"]
        text = subprocess.run(asked, input=text, capture_output=True, text=True, check=True).stdout
    return text


def _function(algorithm: str, nested: dict[type, None]) -> str:
    row = ALGORITHMS[algorithm]
    config = row.config()
    parameters: list[tuple[str, str, str | None, str]] = [
        ("env", "Any", None, "A name of `sombrl list envs`, a gymnasium.Env, or a function that makes one.")
    ]
    parameters.append(("config", f"{row.config.__name__} | None", "None", "All of the algorithm's own settings."))
    if row.presets:
        names = f"Literal[{', '.join(map(repr, row.presets))}] | None"
        text = "Values of several settings at once, which the others override; `sombrl list presets` shows them."
        parameters.append(("preset", names, "None", text))
    parts: list[Any] = [RunConfig(), config.explore, config]
    for part in parts:
        docs = help_of(type(part))
        for name, kind in kinds_of(type(part)).items():
            if (name in ("env", "explore") and part is not config.explore) or name in row.lacks:
                continue
            value = getattr(part, name)
            if dataclasses.is_dataclass(kind.base):
                nested[kind.base] = None
            text = docs.get(name) or f"{kind.base.__doc__}".partition("\n")[0]
            hint = _type(kind, without=_refused(name, row.lacks))
            if name == "env_kwargs":
                hint += " | Mapping[str, Any]"
            parameters.append((name, hint, _value(value), text))
    signature = ",\n    ".join(
        f"{name}: {hint}" + (f" = {default}" if default is not None else "") + (", *" if name == "env" else "")
        for name, hint, default, _ in parameters
    )
    listed = "\n".join(
        textwrap.fill(f"{name}: {text}", 112, initial_indent=" " * 8, subsequent_indent=" " * 12)
        for name, _, _, text in parameters
    )
    summary = f"{row.summary[0].upper()}{row.summary[1:]}."
    return (
        f'\n\n@constructs("{algorithm}")\ndef {NAMES[algorithm]}(\n    {signature},\n) -> Agent:\n'
        f'    """{summary}\n\n    Args:\n{listed}\n\n'
        f'    Example:\n        agent = sombrl.{NAMES[algorithm]}({EXAMPLES[algorithm]}\n    """\n    ...\n'
    )


def _settings(cls: type) -> str:
    """What may stand in a dict in place of a nested configuration."""
    lines = [f"    {name}: {_type(kind)}" for name, kind in kinds_of(cls).items()]
    name = cls.__name__.replace("Config", "Settings")
    return f'\n\nclass {name}(TypedDict, total=False):\n    """Fields of {cls.__name__}, by name."""\n\n' + "\n".join(
        lines
    )


def _refused(name: str, lacks: Mapping[str, str]) -> set[str]:
    return {key.partition("=")[2] for key in lacks if key.startswith(f"{name}=")}


def _type(kind: Kind, without: Collection[str] = ()) -> str:
    if kind.choices:
        some = f"Literal[{', '.join(repr(one) for one in (*kind.choices, *kind.also) if one not in without)}]"
    elif kind.base is tuple:
        some = f"Sequence[{_type(kind.items[0])}]"
    elif dataclasses.is_dataclass(kind.base):
        some = f"{kind.base.__name__} | {kind.base.__name__.replace('Config', 'Settings')}"
    else:
        some = kind.base.__name__
    return f"{some} | None" if kind.optional else some


def _value(value: Any) -> str:
    """A default, written as short as it can be."""
    if not isinstance(value, Configuration):
        return repr(value)
    usual = type(value)()
    given = {name: getattr(value, name) for name in kinds_of(type(value))}
    changed = [f"{name}={_value(one)}" for name, one in given.items() if one != getattr(usual, name)]
    return f"{type(value).__name__}({', '.join(changed)})"


if __name__ == "__main__":
    TARGET.write_text(source())
    print(f"wrote {TARGET}")
