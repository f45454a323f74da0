"""A proportion and its interval."""

import math
from typing import NamedTuple

from sombrl.records import SombrlError

Z95 = 1.959963984540054


class Share(NamedTuple):
    """A proportion with its 95% interval."""

    value: float
    low: float
    high: float
    successes: int
    trials: int


def wilson(successes: int, trials: int) -> Share:
    """The 95% interval of Wilson (1927) for a proportion."""
    if not 0 <= successes <= trials or trials < 1:
        raise SombrlError(f"{successes} of {trials} is not a proportion: count trials and successes.")
    p, z2 = successes / trials, Z95**2 / trials
    centre = (p + 0.5 * z2) / (1.0 + z2)
    half = math.sqrt(p * (1.0 - p) * z2 + 0.25 * z2**2) / (1.0 + z2)
    return Share(p, max(0.0, centre - half), min(1.0, centre + half), successes, trials)
