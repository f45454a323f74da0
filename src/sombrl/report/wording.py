"""How numbers, intervals and lists are written."""

import math
from collections.abc import Iterable

from sombrl.report.statistics import Estimate, Point


def number(value: float, like: float | None = None) -> str:
    """Three digits or so, with a real minus; as many decimals as a number of the size of `like` would have."""
    size = abs(value if like is None else like)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2
    if 0 < size < 0.1:
        decimals = min(9, 1 - math.floor(math.log10(size)))
    return f"{value:,.{decimals}f}".replace("-", "−")


def known(value: float | None, form: str = "") -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else form.format(value) if form else number(value)


def interval_text(value: float, low: float, high: float) -> str:
    """0.21 [0.12, 0.30]."""
    like = max(abs(value), abs(low), abs(high))
    return f"{number(value, like)} [{number(low, like)}, {number(high, like)}]"


def estimate_texts(found: Estimate | Point) -> tuple[str, str]:
    """An estimate and its ends: 0.21 and [0.12, 0.30], or nothing where there is no interval."""
    value, low, high = found
    if low is None or high is None:
        return number(value), ""
    shown, _, ends = interval_text(value, low, high).partition(" ")
    return shown, ends


def count(n: int, what: str) -> str:
    """1 seed, 2 seeds."""
    return f"{n} {what}{'s' * (n != 1)}"


def listed(words: Iterable[str]) -> str:
    """A, b and c."""
    *head, last = words
    return f"{', '.join(head)} and {last}" if head else last
