"""Writes docs/settings.md: every option of `sombrl train`, its type, default and unit, from the configurations.

python tools/make_settings.py           # after a field of a configuration has changed
"""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from sombrl.algorithms import ALGORITHMS
from sombrl.cli.train import NO_FILMS, OutputOptions
from sombrl.config.fields import Field, leaves, value_at
from sombrl.config.run import RunConfig

TARGET = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
HEADER = """# Every setting

The options of `sombrl train`, with their defaults. In Python they are keyword arguments: `--icem.horizon 30` is
`icem={"horizon": 30}`. `sombrl train ALGORITHM --help` shows those that matter first. Where algorithms differ, the
default says whose it is. *Written by `tools/make_settings.py` from the configurations; a test compares the two.*
"""
TITLES = {
    "": "Every run",
    "output": "Output",
    "explore": "Exploration",
    "theory": "Exploration: λ from the theorems",
    "gp": "The Gaussian process",
    "icem": "The planner iCEM",
    "mppi": "The planner MPPI",
    "plan": "Short plans from a policy",
    "value": "The value beyond the horizon",
    "ensemble": "The ensemble",
    "sac": "The policy (SAC)",
    "model": "The particles of sim-fsvgd",
    "search": "The search for a policy of sim-fsvgd",
    "safety": "Safety",
}
OWN = "Of {} alone"
COUNTED = (
    "decisions|frames|episodes|transitions|gradient steps|updates|steps|iterations|seeds|processes|networks|seconds|"
    "bytes|share|samples|particles|records|layers|candidates|anchors|units|widths"
)
UNIT = re.compile(
    rf"^(?:[\w, -]+: )?(?:at least |every )?(?:so many )?({COUNTED})\b|\bin (reward|seconds|normalised units)\b", re.I
)


def source() -> str:
    """The page."""
    return HEADER + "".join(f"\n## {title}\n\n{_table(rows)}" for title, rows in _groups().items() if rows)


def _groups() -> dict[str, dict[str, tuple[Field, dict[str, Any]]]]:
    """Per title, the fields by their flags, with the default of every algorithm that has them."""
    groups: dict[str, dict[str, tuple[Field, dict[str, Any]]]] = {title: {} for title in TITLES.values()}
    for name, algorithm in ALGORITHMS.items():
        groups[OWN.format(name)] = {}
        lacks = {*algorithm.lacks, *(NO_FILMS if name != "dreamer" else ())}
        for part, config in (("run", RunConfig()), ("output", OutputOptions()), ("config", algorithm.config())):
            for field in leaves(type(config), part):
                if field.name not in lacks:
                    title = _title(field, name)
                    _, defaults = groups[title].setdefault(field.flag, (field, {}))
                    defaults[name] = value_at(config, field.path)
    return groups


def _title(field: Field, algorithm: str) -> str:
    prefix = field.name.partition(".")[0] if "." in field.name else ""
    if field.part == "output":
        prefix = "output"
    elif not prefix and field.part == "config":
        prefix = "explore" if field.path[0] == "explore" and algorithm != "dreamer" else algorithm
    return TITLES.get(prefix, OWN.format(algorithm))


def _table(rows: dict[str, tuple[Field, dict[str, Any]]]) -> str:
    lines = ["| option | type | default | unit | meaning |", "| --- | --- | --- | --- | --- |"]
    for flag, (field, defaults) in rows.items():
        unit = UNIT.search(field.help) if field.number or field.kind.base is tuple else None
        named = (unit[1] or unit[2]).lower() if unit else ""
        cells = (f"`{flag}`", field.kind.words, _default(defaults), named, field.help)
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _default(defaults: dict[str, Any]) -> str:
    whose: dict[str, list[str]] = defaultdict(list)
    for algorithm, value in defaults.items():
        whose[_shown(value)].append(algorithm)
    most = max(whose, key=lambda text: len(whose[text]))
    others = [f"{', '.join(names)}: {text}" for text, names in whose.items() if text != most]
    return "; ".join([most, *others])


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


if __name__ == "__main__":
    TARGET.write_text(source())
    print(f"wrote {TARGET}")
