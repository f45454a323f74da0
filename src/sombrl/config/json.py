"""A frozen dataclass as plain JSON data, and back."""

import contextlib
import dataclasses
import reprlib
import types
import typing
from typing import Any, Literal

from sombrl.errors import SombrlError


def to_json(config: Any) -> Any:
    """A frozen dataclass as plain JSON data; infinities as strings, because JSON has none."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {field.name: to_json(getattr(config, field.name)) for field in dataclasses.fields(config)}
    if isinstance(config, float) and config in (float("inf"), float("-inf")):
        return str(config)
    return list(config) if isinstance(config, tuple) else config


def from_json(cls: type, data: Any, within: str = "") -> Any:
    """The inverse of `to_json`. Unknown names and values of another kind are refused, missing ones keep their default.

    `within` comes before the names of settings in what is said of them.
    """
    if not isinstance(data, dict):
        raise _wrong(within.rstrip("."), "a JSON object", data)
    hints = typing.get_type_hints(cls)
    names = {field.name for field in dataclasses.fields(cls)}
    if unknown := set(data) - names:
        raise SombrlError(
            f"the setting {within + sorted(unknown)[0]!r} is not known to this version of sombrl: "
            "use the version that wrote it (see manifest.json)."
        )
    return cls(**{name: _value(hints[name], value, within + name) for name, value in data.items()})


def _value(hint: Any, value: Any, name: str) -> Any:
    kind, options = typing.get_origin(hint), typing.get_args(hint)
    if kind in (typing.Union, types.UnionType):
        hint = next(option for option in options if option is not types.NoneType)
        return None if value is None else _value(hint, value, name)
    if dataclasses.is_dataclass(hint):
        return from_json(typing.cast(type, hint), value, f"{name}.")
    if kind is tuple:
        each = [options[0]] * len(value) if isinstance(value, list) and options[-1] is ... else list(options)
        if isinstance(value, list) and len(value) == len(each):
            return tuple(_value(one, item, name) for one, item in zip(each, value, strict=True))
        raise _wrong(name, "a list" if options[-1] is ... else f"a list of {len(options)}", value)
    if kind is Literal:
        if value not in options:
            raise _wrong(name, f"one of {', '.join(map(str, options))}", value)
    elif hint is float:
        with contextlib.suppress(TypeError, OverflowError):
            if not isinstance(value, bool | str) or value in ("inf", "-inf"):
                return float(value)
        raise _wrong(name, "a number", value)
    elif hint is int:  # somebody may have said 1e5
        if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
            raise _wrong(name, "a whole number", value)
        return int(value)
    elif hint in (str, bool) and not isinstance(value, hint):
        raise _wrong(name, "a text" if hint is str else "true or false", value)
    return value


def _wrong(name: str, wanted: str, value: Any) -> SombrlError:
    return SombrlError(f"the setting {name!r} must be {wanted}, not {reprlib.repr(value)}.")
