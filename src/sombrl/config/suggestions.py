"""The sentence for a name that does not exist: what was meant, and where the names are listed."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable
from typing import Any

from sombrl.errors import SombrlError

LISTINGS = {
    "environment": "sombrl list envs",
    "algorithm": "sombrl list algorithms",
    "exploration": "sombrl list explorations",
    "preset": "sombrl list presets",
    "experiment": "sombrl list experiments",
}
"""The command that lists each kind of thing."""


def nearest(word: str, choices: Iterable[str], what: str, see: str | None = None) -> SombrlError:
    """The error to raise for an unknown `word`, a `what`; `see` overrides the command of `LISTINGS`."""
    by_lower = {choice.lower(): choice for choice in choices}
    see = see or LISTINGS.get(what)
    where = f" (see: {see})" if see else ""
    # Case is forgiven in the comparison because it is the commonest slip.
    close = difflib.get_close_matches(word.lower(), list(by_lower), n=1)
    if close:
        return SombrlError(f'unknown {what} "{word}": did you mean "{by_lower[close[0]]}"?{where}')
    if 0 < len(by_lower) <= 8:
        return SombrlError(f'unknown {what} "{word}": choose one of {", ".join(by_lower.values())}{where}')
    return SombrlError(f'unknown {what} "{word}"{where}')


def check_choices(config: Any) -> None:
    """Refuse a name that a `Literal` field of a dataclass does not list; of a command line, tyro has checked them."""
    for name, choices in _choices(type(config)).items():
        value = getattr(config, name)
        if value not in choices:
            raise nearest(str(value), [choice for choice in choices if choice], "--" + name.replace("_", "-"))


def _choices(cls: Any) -> dict[str, tuple[Any, ...]]:
    """What each field may be, of those that list it."""
    hints, found = typing.get_type_hints(cls), {}
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        optional = typing.get_origin(hint) in (typing.Union, types.UnionType)
        options = typing.get_args(hint) if optional else (hint,)
        literal = [option for option in options if typing.get_origin(option) is typing.Literal]
        if literal and all(option in literal or option is types.NoneType for option in options):
            found[field.name] = (*typing.get_args(literal[0]), *([None] if len(options) > 1 else []))
    return found
