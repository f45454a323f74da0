"""A frozen dataclass as plain JSON data, and back."""

import dataclasses
from typing import Any, TypeVar

from sombrl.config.check import require, shown
from sombrl.config.kinds import Kind, from_plain, kinds_of
from sombrl.errors import SombrlError

Config = TypeVar("Config")


def to_json(config: Any) -> Any:
    """A frozen dataclass as plain JSON data; infinities as strings, because JSON has none."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {field.name: to_json(getattr(config, field.name)) for field in dataclasses.fields(config)}
    if isinstance(config, float) and config in (float("inf"), float("-inf")):
        return str(config)
    return list(config) if isinstance(config, tuple) else config


def from_json(cls: type[Config], data: Any, within: str = "") -> Config:
    """The inverse of `to_json`. Unknown names and values of another kind are refused.

    What is missing has its default, or the value that held before there was this field.

    `within` comes before the names of settings in what is said of them.
    """
    if not isinstance(data, dict):
        name = within.rstrip(".")
        raise SombrlError(f"the setting {name!r} must be a JSON object, not {shown(data)}.")
    kinds = kinds_of(cls)
    if unknown := set(data) - set(kinds):
        raise SombrlError(
            f"the setting {within + sorted(unknown)[0]!r} is not known to this version of sombrl: "
            "use the version that wrote it (see manifest.json)."
        )
    given = {name: _value(kinds[name], value, within + name) for name, value in data.items()}
    before = {name: kind.before.value for name, kind in kinds.items() if kind.before is not None}
    return cls(**before | given)


def _value(kind: Kind, value: Any, name: str) -> Any:
    if dataclasses.is_dataclass(kind.base) and not (kind.optional and value is None):
        return from_json(kind.base, value, f"{name}.")
    value = from_plain(kind, value)
    require(f"the setting {name!r}", kind, value)
    return value
