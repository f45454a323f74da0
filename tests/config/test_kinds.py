"""A type with its bounds and choices: what fits, what is said of what does not, and values out of texts."""

import dataclasses
import math
from typing import Annotated, Literal

import numpy as np
import pytest
from annotated_types import Ge, Gt, Interval, Le, Lt, MinLen

from sombrl.config.kinds import Kind, OneOf, from_plain, from_text, kind_of, kinds_of, misfit

COUNT = Annotated[int, Ge(1)]
RATE = Annotated[float, Gt(0)]
CLIP = Annotated[float, Gt(0), Le(math.inf)]
SHARE = Annotated[float, Interval(ge=0, le=1)]
WIDTHS = Annotated[tuple[COUNT, ...], MinLen(1)]


@dataclasses.dataclass(frozen=True)
class Inner:
    """A configuration inside another."""

    depth: COUNT = 2


FITS = [
    (int, [0, -3, np.int64(4)]),
    (COUNT, [1, 10**30]),
    (COUNT | None, [None, 1]),
    (float, [0, -1.5, np.float32(2.0), np.int64(2)]),
    (RATE, [1e-9, 3]),
    (CLIP, [0.5, math.inf]),
    (SHARE, [0, 1, 0.5]),
    (bool, [True, False]),
    (str, ["", "x"]),
    (Literal["a", "b"], ["a"]),
    (Literal["a"] | None, ["a", None]),
    (Annotated[str, OneOf(("a",), also=("z",))], ["a", "z"]),
    (WIDTHS, [(1,), (3, 4)]),
    (tuple[str, ...], [(), ("a", "b")]),
    (tuple[int, str], [(1, "a")]),
    (Inner, [Inner()]),
    (Inner | None, [None]),
]
MISFITS = [
    (int, True, "a whole number"),
    (int, 2.0, "a whole number"),
    (int, "3", "a whole number"),
    (COUNT, 0, "at least 1"),
    (COUNT, "x", "a whole number of at least 1"),
    (COUNT | None, 0, "at least 1 or None"),
    (Annotated[int, Interval(ge=0, le=9)], 10, "from 0 to 9"),
    (float, math.nan, "a finite number"),
    (float, math.inf, "a finite number"),
    (float, "1", "a number"),
    (float, True, "a number"),
    (float, None, "a number"),
    (RATE, 0.0, "positive and finite"),
    (RATE, math.inf, "positive and finite"),
    (CLIP, -math.inf, "positive"),
    (Annotated[float, Ge(2)], 1.5, "a finite number of at least 2"),
    (SHARE, math.nan, "between 0 and 1"),
    (SHARE, "x", "a number between 0 and 1"),
    (Annotated[float, Interval(gt=0, lt=1)], 1.0, "strictly between 0 and 1"),
    (Annotated[float, Interval(ge=0, lt=1)], 1.0, "at least 0 and below 1"),
    (Annotated[float, Lt(3)], 3.0, "a number below 3"),
    (bool, 1, "true or false"),
    (str, 3, "a text"),
    (Literal["a", "b"], "c", "one of a, b"),
    (Literal["a", "b"], None, "one of a, b"),
    (Annotated[str, OneOf(("a",), also=("z",))], "y", "one of a"),
    (WIDTHS, (), "a list of one or more whole numbers, each at least 1"),
    (WIDTHS, (1, 0), "a list of one or more whole numbers, each at least 1"),
    (WIDTHS, 3, "a list of one or more whole numbers, each at least 1"),
    (tuple[str, ...], "ab", "a list of texts"),
    (tuple[int, str], (1,), "a list of 2"),
    (Inner, {"depth": 3}, "Inner(...)"),
]


@pytest.mark.parametrize(("hint", "values"), FITS, ids=str)
def test_values_of_a_type_fit(hint, values):
    assert [misfit(kind_of(hint), value) for value in values] == [None] * len(values)


@pytest.mark.parametrize(("hint", "value", "words"), MISFITS, ids=str)
def test_what_does_not_fit_is_told_what_would(hint, value, words):
    assert misfit(kind_of(hint), value) == words


def test_a_dataclass_has_a_kind_per_field():
    assert kinds_of(Inner) == {"depth": Kind(int, low=1.0)}


@pytest.mark.parametrize(
    ("hint", "plain", "value"),
    [
        (int, 1e5, 100_000),
        (int, 1.5, 1.5),
        (float, 3, 3.0),
        (float, "inf", math.inf),
        (float, "x", "x"),
        (float, 10**400, 10**400),
        (WIDTHS, [8, 16.0], (8, 16)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, str], [1], (1,)),
        (str, 3, 3),
    ],
    ids=str,
)
def test_plain_values_become_those_of_the_type(hint, plain, value):
    read = from_plain(kind_of(hint), plain)
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (int, "7", 7),
        (int, "7.5", "7.5"),
        (float, "1e-3", 1e-3),
        (COUNT | None, "none", None),
        (bool, "True", True),
        (bool, "yes", "yes"),
        (WIDTHS, "8 16", (8, 16)),
        (tuple[str, ...], "", ()),
        (Literal["a", "b"], "a", "a"),
    ],
    ids=str,
)
def test_texts_become_values_where_they_can(hint, text, value):
    read = from_text(kind_of(hint), text)
    assert read == value and type(read) is type(value)
