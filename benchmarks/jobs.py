"""A run of four seeds and the demo, with one process and with as many as there are cores: whole commands, from nothing.

Each command starts with an empty folder for compiled programs, so that compilation counts. The metrics of both must be
the same but for their times.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.timing import machine, write

RUNS = {
    "gp-icem, 4 seeds": ["train", "gp-icem", "--env", "Pendulum-v1", "--seeds", "4", "--no-tensorboard"],
    "demo": ["demo"],
}


def timed(words: list[str], out: Path) -> float:
    """Wall-clock seconds of a command."""
    with tempfile.TemporaryDirectory() as programs:
        environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": programs}
        environment.pop("SOMBRL_JOBS", None)
        start = time.perf_counter()
        command = [sys.executable, "-m", "sombrl", *words, "--out", str(out)]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start


def metrics(run: Path) -> list[dict[str, Any]]:
    """Every row of a run, or of the runs of a demo, without its times."""
    paths = [run / "metrics.jsonl"] if (run / "metrics.jsonl").exists() else sorted(run.glob("*/metrics.jsonl"))
    rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


def main() -> None:
    """Time both and write runs/bench/jobs.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/bench/jobs.json"))
    out = parser.parse_args().out
    table = {}
    for name, words in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            one, several = Path(folder) / "one", Path(folder) / "several"
            seconds = timed([*words, "--jobs", "1"], one), timed(words, several)
            same = metrics(one) == metrics(several)
        table[name] = {"one": seconds[0], "several": seconds[1], "ratio": seconds[0] / seconds[1], "same": same}
        print(
            f"{name:<18} one {seconds[0]:6.1f} s  several {seconds[1]:6.1f} s  ratio {table[name]['ratio']:.2f}", same
        )
    write(out, {"machine": machine(), "runs": table})


if __name__ == "__main__":
    main()
