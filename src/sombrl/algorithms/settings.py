"""All settings of a run of an algorithm, the run's own, the exploration's and the algorithm's, by their names."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from sombrl.algorithms import ALGORITHMS
from sombrl.config.check import require
from sombrl.config.fields import Field, Path, changed, leaves
from sombrl.config.hints import MEANT, meant
from sombrl.config.kinds import Kind
from sombrl.config.run import RunConfig
from sombrl.records import SombrlError

PRESET = "preset"
"""Not a field but values of several, which single fields override: `sombrl train --preset`."""


def fields_of(algorithm: str) -> dict[str, Field]:
    """Every field of a run of the algorithm, by its name."""
    config = ALGORITHMS[algorithm].config
    found = [*leaves(RunConfig, "run"), *leaves(config, "config")]
    if names := tuple(ALGORITHMS[algorithm].presets):
        text = "Values of several options at once. Other options override them; `sombrl list presets` shows them."
        found.append(Field(PRESET, PRESET, (), Kind(str, choices=names), Literal[names], text))
    return {field.name: field for field in found}


def find_field(name: str, algorithms: tuple[str, ...]) -> dict[str, Field]:
    """The field that a name stands for, for every algorithm it concerns; refuses, with the nearest, one there is not.

    A name with an algorithm before it (`mbpo.sac.hidden`) concerns that one alone, any other must be a field of all.
    """
    plain = _plain(name)
    tables = {algorithm: fields_of(algorithm) for algorithm in algorithms}
    have = {algorithm: table[plain] for algorithm, table in tables.items() if plain in table}
    if len(have) == len(algorithms):
        return have
    owner = next((one for one in ALGORITHMS if name.startswith(f"{one}.")), None)
    if owner is not None and not have:
        if owner not in tables:
            raise SombrlError(f"{name} is for {owner}, which is not among the algorithms ({', '.join(algorithms)}).")
        rest = _plain(name.removeprefix(f"{owner}."))
        if rest in tables[owner]:
            return {owner: tables[owner][rest]}
        raise _unknown(name, [f"{owner}.{known}" for known in tables[owner]])
    if have:
        lacking = next(algorithm for algorithm in algorithms if algorithm not in have)
        first = next(iter(have))
        raise SombrlError(f"{name} is not a field of {lacking}: write {first}.{plain} for the one that has it.")
    raise _unknown(name, list(dict.fromkeys(known for table in tables.values() for known in table)))


def configured(algorithm: str, values: Mapping[Field, Any], config: Any = None) -> tuple[RunConfig, Any]:
    """The run and the algorithm's configuration with these values, and the defaults of `sombrl train` elsewhere."""
    ALGORITHMS[algorithm].refuse_values({field.name: value for field, value in values.items()})
    if config is None:
        config = ALGORITHMS[algorithm].config()
    given: dict[str, dict[Path, Any]] = {"run": {}, "config": {}}
    preset = next((value for field, value in values.items() if field.part == PRESET), None)
    for field, value in (preset_values(algorithm, preset) | dict(values)).items():
        if field.part != PRESET:
            given[field.part][field.path] = value
    return changed(RunConfig(), given["run"]), changed(config, given["config"])


def preset_values(algorithm: str, name: str | None) -> dict[Field, Any]:
    """The values of a preset; none if there is no name."""
    if name is None:
        return {}
    fields = fields_of(algorithm)
    if PRESET not in fields:
        raise SombrlError(f"{algorithm} has no presets: leave it out.")
    require(f"--{PRESET}", fields[PRESET].kind, name)
    return {fields[field]: value for field, value in ALGORITHMS[algorithm].presets[name].items()}


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a table of tables by dotted names, as TOML reads `gp.rank = 8` and `"gp.rank" = 8` alike."""
    for name, value in table.items():
        if isinstance(value, dict) and not {"low", "high", "choices"} & set(value):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def text_of(value: Any) -> str:
    """A value as in names of cells and methods."""
    if isinstance(value, tuple):
        return "-".join(map(text_of, value)) or "none"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(name: str) -> str:
    """The name of a field: dashes are the command line's, and the literature calls one of them utd."""
    plain = name.replace("-", "_")
    return MEANT["utd"][0] if plain == "utd" else plain


def _unknown(name: str, known: list[str]) -> SombrlError:
    close = meant(_plain(name), known)
    remedy = f"did you mean {' or '.join(close)}?" if close else "sombrl train ALGORITHM --help-all has them all."
    return SombrlError(f"no field is called {name}: {remedy}")
