"""Kills runs of every kind at random points with kill -9, goes on with them, and compares with undisturbed ones.

python tools/kill_runs.py --points 100 --seed 0 --minutes 90
python tools/kill_runs.py --modes sac dreamer --points 10 --out kills.csv

A point is a kill: before, after or in the middle of one of the writes of a run, or some time after one; of all its
processes, of the first, or of another. Half of the runs are killed again when they go on. In the end all metrics but
those of the clock, and every array of the last checkpoint, must be those of a run that was left in peace, to the bit. A
table says what came out; the exit code is 1 where anything differs. Linux alone: processes are found in /proc.
"""

import argparse
import collections
import csv
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.kills.killing import Broken, disturbed, left_in_peace
from tests.kills.modes import MODES

EQUAL = "equal"


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
    rows: list[dict[str, object]] = []
    peaceful = {}
    points = 0
    try:
        while points < given.points and time.monotonic() < deadline:
            for name in rng.sample(given.modes, len(given.modes)):
                if points >= given.points or time.monotonic() > deadline:
                    break
                began = time.monotonic()
                if name not in peaceful:  # twice: the second shows how long a run takes that is compiled
                    first, second = (left_in_peace(MODES[name], work / f"peace{i}", work / "programs") for i in (1, 2))
                    for i in (1, 2):
                        shutil.rmtree(work / f"peace{i}")
                    if first[0] != second[0]:
                        sys.exit(f"{name} does not even repeat itself.")
                    peaceful[name] = second
                    print(f"{name}: {len(second[1]) - 1} writes in {sum(second[1]):.1f} s", flush=True)
                result, gaps = peaceful[name]
                folder = work / f"run-{len(rows)}"
                try:
                    found, kills = disturbed(MODES[name], folder, work / "programs", rng, gaps)
                    outcome = EQUAL if found == result else "differs"
                except Broken as error:
                    kills, outcome = error.kills, str(error)
                points += len(kills)
                said = " and ".join(map(str, kills)) or "not met"
                seconds = round(time.monotonic() - began, 1)
                rows.append(
                    {"mode": name, "points": len(kills), "killed": said, "outcome": outcome, "seconds": seconds}
                )
                print(f"{points:4d}  {name}: {said}: {outcome} ({seconds} s)", flush=True)
                if outcome == EQUAL:
                    shutil.rmtree(folder)
                else:
                    print(f"      left in {folder}")
    finally:
        if all(row["outcome"] == EQUAL for row in rows):
            shutil.rmtree(work, ignore_errors=True)
    report(rows, given.out)


def report(rows: list[dict[str, object]], out: Path | None) -> None:
    """The table by modes, and the file by runs."""
    if out is not None:
        with open(out, "w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    print(f"\n{'mode':<28} runs  kills  equal")
    by_mode = collections.defaultdict(list)
    for row in rows:
        by_mode[row["mode"]].append(row)
    for name, own in [*sorted(by_mode.items()), ("all", rows)]:
        equal = sum(row["outcome"] == EQUAL for row in own)
        print(f"{name:<28} {len(own):4d}  {sum(row['points'] for row in own):5d}  {equal:5d}")
    sys.exit(any(row["outcome"] != EQUAL for row in rows))


if __name__ == "__main__":
    main()
