"""Kills runs of every kind at random points with kill -9, goes on with them, and compares with undisturbed ones.

python tools/kill_runs.py --points 100 --seed 0 --minutes 90
python tools/kill_runs.py --modes sac dreamer --points 10 --out kills.csv

A point is a kill: before, after or in the middle of one of the writes of a run, or some time after one; of all its
processes, of the first, or of another. Most runs are killed several times. In the end all metrics but those of the
clock, and every array of the last checkpoint, must be those of an undisturbed run, bit for bit. A table says
what came out; the exit code is 1 where anything differs. Compiled programs are kept in JAX_COMPILATION_CACHE_DIR, if
there is one. Linux alone: processes are found in /proc.
"""

import argparse
import collections
import csv
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.kills.killing import Broken, disturbed, left_in_peace
from tests.kills.modes import MODES

EQUAL = "equal"
AGAIN = 0.75
"""How probably a run that goes on is killed once more."""


def main() -> None:
    """Kill until there are enough points, or the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES), metavar="MODE")
    parser.add_argument("--out", type=Path, help="a table with a row per run")
    given = parser.parse_args()
    deadline, rng = time.monotonic() + 60.0 * given.minutes, random.Random(given.seed)
    work = Path(tempfile.mkdtemp(prefix="sombrl-kills-"))
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(work / "programs"))
    rows: list[dict[str, Any]] = []
    peaceful: dict[str, Any] = {}
    order: list[str] = []
    while sum(row["kills"] for row in rows) < given.points and time.monotonic() < deadline:
        order = order or rng.sample(given.modes, len(given.modes))
        name, folder = order.pop(), work / f"run-{len(rows)}"
        if name not in peaceful:
            peaceful[name] = left_in_peace(MODES[name], work / "peace")
            shutil.rmtree(work / "peace")
        row = {"mode": name, **_killed(name, folder, rng, *peaceful[name])}
        rows.append(row)
        print(f"{sum(row['kills'] for row in rows):4d}  {' | '.join(map(str, row.values()))}", flush=True)
        if row["outcome"] == EQUAL:
            shutil.rmtree(folder)
        else:
            print(f"      left in {folder}")
        if given.out is not None:
            write(rows, given.out)
    print(f"\n{summary(rows)}")
    failed = any(row["outcome"] != EQUAL for row in rows)
    if not failed:
        shutil.rmtree(work)
    sys.exit(failed)


def _killed(name: str, folder: Path, rng: random.Random, result: Any, gaps: list[float]) -> dict[str, Any]:
    """One run: what was done to it and what came out."""
    began = time.monotonic()
    try:
        found, kills = disturbed(MODES[name], folder, rng, gaps, again=AGAIN)
        outcome = EQUAL if found == result else "differs"
    except Broken as error:
        kills, outcome = error.kills, str(error)
    said = ", then ".join(map(str, kills)) or "too late"
    return {"kills": len(kills), "killed": said, "outcome": outcome, "seconds": round(time.monotonic() - began, 1)}


def write(rows: list[dict[str, Any]], out: Path) -> None:
    """The file, a row per run."""
    with open(out, "w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def summary(rows: list[dict[str, Any]]) -> str:
    """A line per mode."""
    by_mode = collections.defaultdict(list)
    for row in rows:
        by_mode[row["mode"]].append(row)
    lines = [f"{'mode':<28} runs  equal  kills"]
    for name, own in [*sorted(by_mode.items()), ("all", rows)]:
        equal = sum(row["outcome"] == EQUAL for row in own)
        lines.append(f"{name:<28} {len(own):4d}  {equal:5d}  {sum(row['kills'] for row in own):5d}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
