"""A field of the configurations by its name on the command line (`gp.rank`): find it, read its value, set it."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from sombrl.algorithms import ALGORITHMS
from sombrl.config.run import RunConfig
from sombrl.controllers.icem import PRESETS
from sombrl.records import SombrlError

SHORT = {"utd": "sac.updates_per_call"}
"""What the literature calls a field whose own name says more."""
PRESET = "preset"
"""Not a field but the defaults of several: the numbers of iCEM, as `sombrl train --preset`."""

Path = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Field:
    """Where a value goes and what it may be."""

    name: str
    """As on the command line, with underscores."""
    part: str
    """"run" or "config": which of the two dataclasses of a cell has it."""
    path: Path
    hint: Any

    def read(self, value: Any) -> Any:
        """The value of this field that a text or a value of a TOML file stands for."""
        try:
            return _read(value, self.hint)
        except (ValueError, TypeError, KeyError):
            raise SombrlError(f"{self.name} must be {_words(self.hint)}, not {_shown(value)}.") from None


def fields_of(algorithm: str) -> dict[str, Field]:
    """Every field of a run of the algorithm, by its name."""
    config = ALGORITHMS[algorithm].config
    found = [Field(".".join(path), "run", path, hint) for path, hint in _leaves(RunConfig)]
    for path, hint in _leaves(config):
        # The exploration's fields have no prefix on the command line, for every algorithm has them.
        shown = path[1:] if path[0] == "explore" else path
        found.append(Field(".".join(shown), "config", path, hint))
    if hasattr(config(), "icem"):
        found.append(Field(PRESET, "preset", (), typing.Literal[tuple(PRESETS)]))
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
        raise SombrlError(f"{name} is no field of {lacking}: write {next(iter(have))}.{plain} for the one that has it.")
    raise _unknown(name, list(dict.fromkeys(known for table in tables.values() for known in table)))


def configured(algorithm: str, values: Mapping[Field, Any]) -> tuple[RunConfig, Any]:
    """The run and the algorithm's configuration with these values, and the defaults of `sombrl train` elsewhere."""
    config = ALGORITHMS[algorithm].config()
    if hasattr(config, "icem"):
        preset = next((value for field, value in values.items() if field.part == "preset"), "light")
        config = dataclasses.replace(config, icem=PRESETS[preset])
    given: dict[str, dict[Path, Any]] = {"run": {}, "config": {}}
    for field, value in values.items():
        if field.part != "preset":
            given[field.part][field.path] = value
    return _changed(RunConfig(), given["run"]), _changed(config, given["config"])


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
    """The name of a field: dashes are the command line's."""
    plain = name.replace("-", "_")
    return SHORT.get(plain, plain)


def _unknown(name: str, known: list[str]) -> SombrlError:
    close = difflib.get_close_matches(_plain(name), known, n=3, cutoff=0.5)
    # The last word alone is often right where the part before it is not: `gp.horizon` for `icem.horizon`.
    last = _plain(name).rpartition(".")[2]
    close += [one for one in known if one.rpartition(".")[2] == last and one not in close]
    remedy = f"did you mean {' or '.join(close[:4])}?" if close else "sombrl train ALGORITHM --help has them all."
    return SombrlError(f"no field is called {name}: {remedy}")


def _leaves(kind: type, prefix: Path = ()) -> Iterator[tuple[Path, Any]]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            yield from _leaves(typing.cast(type, hint), (*prefix, field.name))
        else:
            yield (*prefix, field.name), hint


def _changed(config: Any, values: Mapping[Path, Any]) -> Any:
    """All values at once: some are possible only together."""
    parts = {path[0]: {p[1:]: v for p, v in values.items() if p[0] == path[0]} for path in values}
    return dataclasses.replace(
        config,
        **{name: inner[()] if () in inner else _changed(getattr(config, name), inner) for name, inner in parts.items()},
    )


def _read(value: Any, hint: Any) -> Any:
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        some = next(option for option in options if option is not types.NoneType)
        return None if value in (None, "none", "None") else _read(value, some)
    if origin is typing.Literal:
        if str(value) not in options:
            raise ValueError
        return str(value)
    if origin is tuple:
        items = value.split() if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            items = [items]
        return tuple(_read(item, options[0]) for item in items)
    if hint is bool:
        return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).lower()]
    if isinstance(value, bool | list | dict) or (hint is int and isinstance(value, float)):
        raise ValueError
    return hint(value)


def _words(hint: Any) -> str:
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return f"{_words(next(option for option in options if option is not types.NoneType))} or none"
    if origin is typing.Literal:
        return f"one of {', '.join(options)}"
    if origin is tuple:
        return f"several of {_words(options[0])}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[hint]


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value)
