"""The arrays of a run whose seeds were trained by several processes, as if one process had saved them."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from sombrl.numerics import join_rows
from sombrl.records import SombrlError

OF_A_ROW = re.compile(r"(\w+/)(\d+)(/.*)")
"""A free array that belongs to one row, such as `replay/0/added`."""
OF_ALL = ("ratio",)  # free, and the same for all rows: Dreamer's count of updates


def joined_entry(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The manifest entry of an array whose rows are in several parts."""
    first = parts[0]
    if any(part["dtype"] != first["dtype"] or part["shape"][1:] != first["shape"][1:] for part in parts):
        raise _differs(first["path"])
    if len(parts) == 1 or not first["shape"]:
        return first
    return first | {"shape": [sum(part["shape"][0] for part in parts), *first["shape"][1:]]}


def joined_array(name: str, parts: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of all parts; what has no rows must be the same in all."""
    if len(parts) == 1:
        return parts[0]
    if parts[0].ndim:
        return np.concatenate(parts)
    if any(part != parts[0] for part in parts):
        raise _differs(name)
    return parts[0]


def joined_free(parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Free arrays of all parts: those of one row get its number among all rows, the others are joined row by row."""
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, np.ndarray] = {}
    first = 0
    for part in parts:
        owned = {name: found for name in part if (found := OF_A_ROW.fullmatch(name))}
        for name, found in owned.items():
            joined[f"{found[1]}{first + int(found[2])}{found[3]}"] = part[name]
        first += 1 + max((int(found[2]) for found in owned.values()), default=-1)
    for name, array in parts[0].items():
        if not OF_A_ROW.fullmatch(name):
            joined[name] = array if name in OF_ALL else join_rows([part[name] for part in parts])
    return joined


def _differs(name: str) -> SombrlError:
    return SombrlError(f"the parts of this run do not fit together, {name} differs: resume them with one version.")
