"""Whether a configuration is still the one that a checkpoint was made with, and if not, what was changed first."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from sombrl.config.check import shown
from sombrl.errors import SombrlError

LENGTH = (
    *("run.episodes", "run.decisions", "run.env_workers", "run.eval_every", "run.eval_episodes"),
    *("run.record_bounds", "run.stop_when_gap"),
)
"""Settings that do not touch what was learned: how long, in how many processes, and what is looked at meanwhile."""
OF_A_PART = ("run.seed", "run.seeds")
"""Settings of a part of a run, which has some of its seeds."""
MISSING = object()


def require_same(run: Path, saved: dict[str, Any], now: dict[str, Any], free: Collection[str]) -> None:
    """Refuse a configuration that is not the saved one, but for the settings that are `free`.

    Settings that only one of them has are of another version of sombrl, whose defaults fill them in.
    """
    ours = dict(_flat(json.loads(json.dumps(now))))  # with lists for tuples
    for name, before in _flat(saved):
        value = ours.get(name, MISSING)
        if name not in free and value is not MISSING and value != before:
            raise SombrlError(
                f"{run / 'config.json'} was changed: {name} is {shown(value)}, and its checkpoint was made with "
                f"{shown(before)}: put that back, or train anew."
            )


def _flat(data: Any, within: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its path, run.env for one."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _flat(value, f"{within}{name}.")
    else:
        yield within.rstrip("."), data
