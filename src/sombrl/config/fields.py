"""The fields of a configuration by their names on the command line (`gp.rank`): find them, read them, change them."""

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from sombrl.config.check import Configuration, require
from sombrl.config.kinds import Kind, from_plain, from_text, kinds_of

Path = tuple[str, ...]
Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True)
class Field:
    """Where a value goes and what it may be."""

    name: str
    """As on the command line, with underscores."""
    part: str
    """Which of several configurations it is in: "run", "config" or "preset"."""
    path: Path
    kind: Kind
    hint: Any
    """Its type without bounds."""
    help: str = ""

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def number(self) -> bool:
        """Whether there are values between two of its values."""
        return self.kind.base in (int, float)

    def read(self, value: Any) -> Any:
        """The value of this field that a text or a value of a TOML file stands for."""
        read = from_text(self.kind, value) if isinstance(value, str) else from_plain(self.kind, value)
        if self.kind.base is tuple and not isinstance(read, tuple) and value is not None:
            read = from_plain(self.kind, [value])
        require(self.flag, self.kind, read)
        return read


def leaves(cls: type, part: str, prefix: Path = ()) -> Iterator[Field]:
    """The fields of a configuration, and those of the configurations inside of it."""
    hints, docs = typing.get_type_hints(cls), help_of(cls)
    dotted = f"{cls.prefix}." if issubclass(cls, Configuration) and cls.prefix else ""
    for name, kind in kinds_of(cls).items():
        if dataclasses.is_dataclass(kind.base):
            yield from leaves(kind.base, part, (*prefix, name))
        else:
            yield Field(dotted + name, part, (*prefix, name), kind, hints[name], docs.get(name, ""))


def changed(config: Config, values: Mapping[Path, Any]) -> Config:
    """A configuration with other values, all at once: some are possible only together."""
    parts = {path[0]: {p[1:]: v for p, v in values.items() if p[0] == path[0]} for path in values}
    new = {name: v[()] if () in v else changed(getattr(config, name), v) for name, v in parts.items()}
    replaced: Config = dataclasses.replace(typing.cast(Any, config), **new)
    return replaced


def value_at(config: Any, path: Path) -> Any:
    """The value of a field."""
    return functools.reduce(getattr, path, config)


@functools.cache
def help_of(cls: Any) -> dict[str, str]:
    """The text below each field of a dataclass, in one line."""
    body = typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]).body
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
