"""What a field may hold, read from its type: the type itself, its choices and its bounds, and all of that in words."""

import dataclasses
import functools
import math
import numbers
import types
import typing
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, Literal

import annotated_types


@dataclasses.dataclass(frozen=True)
class OneOf:
    """Beside a `str`: the names that it may be, from a table; those in `also` are taken but not listed."""

    names: tuple[str, ...]
    also: tuple[str, ...] = ()

    @staticmethod
    def of(names: Iterable[str], also: Iterable[str] = ()) -> "OneOf":
        """The names of a table."""
        return OneOf(tuple(names), tuple(also))


@dataclasses.dataclass(frozen=True)
class Advice:
    """Beside a type: what to do instead, said after the refusal of a bad value."""

    text: str


@dataclasses.dataclass(frozen=True)
class Before:
    """Beside a type: what holds for a configuration that was stored before there was this field."""

    value: Any


@dataclasses.dataclass(frozen=True)
class Kind:
    """A type with its bounds. A float is finite, unless its upper bound is stated to be infinite."""

    base: type
    """bool, int, float, str, Path, tuple or a dataclass; object where anything goes."""
    optional: bool = False
    choices: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    items: tuple["Kind", ...] = ()
    """Of a tuple: one kind per item, or with `many` the one that all have."""
    many: bool = False
    low: float | None = None
    high: float | None = None
    above: bool = False
    """`low` itself is not allowed."""
    below: bool = False
    """`high` itself is not allowed."""
    least: int = 0
    """Of a tuple: items at least."""
    advice: str = ""
    before: Before | None = None

    @property
    def words(self) -> str:
        """What is allowed, to be read after "must be"."""
        return self._some + self._or_none

    @property
    def _or_none(self) -> str:
        """Not said where there is advice, which says what to do instead."""
        return " or None" if self.optional and not self.advice else ""

    @property
    def _some(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.base is tuple:
            return _list_words(self)
        if self.base in (int, float):
            return self._number(f"a {_noun(self)}")
        if dataclasses.is_dataclass(self.base):
            return f"{self.base.__name__}(...)"
        return {bool: "true or false", str: "a text", Path: "a path"}.get(self.base, "something else")

    @property
    def bounds(self) -> str:
        """What is allowed of a number that is already known to be one."""
        if self.low is None and self.high is None and self.base is float:
            return "a finite number"
        if self.base is float and (self.low is None or self.high is None or _infinite(self)):
            return self.words
        return self._number("") + self._or_none

    def _number(self, noun: str) -> str:
        low, high = (None if bound is None or math.isinf(bound) else f"{bound:.10g}" for bound in (self.low, self.high))
        of = f"{noun} of " if noun else ""
        noun = f"{noun} " if noun else ""
        match low, high:
            case None, None:
                return noun.strip()
            case "0", None if self.above:
                return "positive and finite" if self.base is float and not _infinite(self) else "positive"
            case _, None:
                return f"{noun}above {low}" if self.above else f"{of}at least {low}"
            case None, _:
                return f"{noun}below {high}" if self.below else f"{of}at most {high}"
            case _ if self.above and self.below:
                return f"{noun}strictly between {low} and {high}"
            case _ if not (self.above or self.below):
                return f"{noun}from {low} to {high}" if self.base is int else f"{noun}between {low} and {high}"
        least = f"above {low}" if self.above else f"at least {low}"
        return f"{noun}{least} and {'below' if self.below else 'at most'} {high}"


def kinds_of(cls: type) -> dict[str, Kind]:
    """The kind of every field of a dataclass."""
    return _kinds_of(typing.cast(Hashable, cls))


@functools.cache
def _kinds_of(cls: Any) -> dict[str, Kind]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: kind_of(hints[field.name]) for field in dataclasses.fields(cls)}


def kind_of(hint: Any) -> Kind:
    """The kind that a type hint stands for."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        kind = kind_of(options[0])
        for mark in hint.__metadata__:
            kind = _marked(kind, mark)
        return kind
    if origin in (typing.Union, types.UnionType):
        some = [option for option in options if option is not types.NoneType]
        return dataclasses.replace(kind_of(some[0]), optional=True) if len(some) == 1 else Kind(object)
    if origin is Literal:
        return Kind(str, choices=options) if all(isinstance(option, str) for option in options) else Kind(object)
    if origin is tuple:
        many = options[-1] is ...
        return Kind(tuple, items=tuple(kind_of(option) for option in options if option is not ...), many=many)
    plain = hint in (bool, int, float, str, Path) or dataclasses.is_dataclass(hint)
    return Kind(hint if plain else object)


def misfit(kind: Kind, value: Any) -> str | None:
    """What `value` must be instead, in words; None where it fits."""
    if value is None:
        return None if kind.optional or kind.base is object else kind.words
    if not _is(kind.base, value) or (kind.choices and value not in kind.choices + kind.also):
        return kind.words
    if kind.base is tuple:
        each = kind.items * len(value) if kind.many else kind.items
        short = len(value) < kind.least or len(value) != len(each)
        return kind.words if short or any(misfit(one, item) for one, item in zip(each, value, strict=True)) else None
    return None if kind.base not in (int, float) or _within(kind, value) else kind.bounds


def from_plain(kind: Kind, value: Any) -> Any:
    """A value of JSON, TOML or Python as the kind has it (a list as a tuple, 1e5 as an int); what is wrong stays."""
    if isinstance(value, list | tuple) and kind.base is tuple:
        each = kind.items * len(value) if kind.many else kind.items
        paired = zip(each, value, strict=False) if len(each) == len(value) else ()
        return tuple(from_plain(one, item) for one, item in paired) if len(each) == len(value) else tuple(value)
    if kind.base is float and (_is(float, value) or value in ("inf", "-inf")):
        try:
            return float(value)
        except OverflowError:
            return value
    if kind.base is int and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def from_text(kind: Kind, text: str) -> Any:
    """The value that a word, or several words, stand for; what cannot be read stays a text."""
    if kind.optional and text in ("none", "None"):
        return None
    if kind.base is tuple:
        words = text.split()
        each = kind.items * len(words) if kind.many else kind.items
        return tuple(from_text(one, word) for one, word in zip(each, words, strict=False))
    if kind.base is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return kind.base(text) if kind.base in (int, float, Path) else text
    except ValueError:
        return text


def _marked(kind: Kind, mark: Any) -> Kind:
    match mark:
        case OneOf(names, also):
            return dataclasses.replace(kind, choices=names, also=also)
        case Before():
            return dataclasses.replace(kind, before=mark)
        case Advice(text):
            return dataclasses.replace(kind, advice=text)
        case annotated_types.MinLen(least):
            return dataclasses.replace(kind, least=least)
        case annotated_types.Interval():
            return functools.reduce(_marked, mark, kind)
        case annotated_types.Ge(bound) if isinstance(bound, int | float):
            return dataclasses.replace(kind, low=float(bound))
        case annotated_types.Gt(bound) if isinstance(bound, int | float):
            return dataclasses.replace(kind, low=float(bound), above=True)
        case annotated_types.Le(bound) if isinstance(bound, int | float):
            return dataclasses.replace(kind, high=float(bound))
        case annotated_types.Lt(bound) if isinstance(bound, int | float):
            return dataclasses.replace(kind, high=float(bound), below=True)
    return kind  # somebody else's, such as tyro's


def _is(base: type, value: Any) -> bool:
    if base is object:
        return True
    if base in (int, float):
        return isinstance(value, numbers.Integral if base is int else numbers.Real) and not isinstance(value, bool)
    return isinstance(value, base)


def _within(kind: Kind, value: Any) -> bool:
    """NaN compares false, so it is never within; without bounds too."""
    low, high = kind.low, kind.high
    if kind.base is float and not (math.isfinite(value) or (_infinite(kind) and value == math.inf)):
        return False
    return (low is None or (value > low if kind.above else value >= low)) and (
        high is None or (value < high if kind.below else value <= high)
    )


def _infinite(kind: Kind) -> bool:
    return kind.high == math.inf and not kind.below


def _noun(kind: Kind) -> str:
    if kind.base is int:
        return "whole number"
    return "finite number" if kind.low is not None and kind.high is None else "number"


def _list_words(kind: Kind) -> str:
    if not kind.many:
        return f"a list of {len(kind.items)}"
    item = kind.items[0]
    number = item.base in (int, float)
    noun = f"{_noun(item)}s" if number else "texts" if item.base is str else "values"
    bounds = item._number("") if number else ""
    some = f"a list of one or more {noun}" if kind.least == 1 else f"a list of {noun}"
    return f"{some}, each {bounds}" if bounds else some
