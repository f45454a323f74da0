"""Parking an RC car: seconds of an episode, fitting and searching apart. `python -m benchmarks.parking`.

The episodes are those of `sombrl experiment rccar-margins` at a scale, on the sparse reward. The first one compiles and
fits the model to the simulator alone; the ones after it are measured, and the least of them counts. The authors' code
allows an hour of a GPU for an episode of one car.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax

from benchmarks.timing import alone, machine, write
from sombrl.agent.agent import Agent
from sombrl.paper.experiments.base import SCALES
from sombrl.paper.experiments.rccar import car_cell, car_config

MARGIN = 5.0


def episodes_of(scale: str, seeds: int, number: int, lock: Path | None = None) -> list[dict[str, float]]:
    """Seconds of every part of every episode; the first one is not waited for (`alone`)."""
    cell = car_cell("optimistic", MARGIN, scale, car_config(scale))
    agent = Agent("sim-fsvgd", cell.config, dataclasses.replace(cell.run, seeds=seeds, episodes=number))
    reports = agent.iterations(number)
    first = next(reports).seconds
    with alone(lock):
        return [first, *(report.seconds for report in reports)]


def table(episodes: Sequence[dict[str, float]]) -> dict[str, float]:
    """The quickest episode but the first, which is apart."""
    first, *later = episodes
    best = min(later, key=lambda parts: sum(parts.values()))
    return {
        "fit_s": best["fit"],
        "search_s": best["improve"],
        "drive_s": best["collect"],
        "episode_s": sum(best.values()),
        "first_episode_s": sum(first.values()),
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="small", help="paper is for a GPU")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 5], help="numbers of cars to train together")
    parser.add_argument("--episodes", type=int, default=2, help="the first one is apart")
    parser.add_argument("--lock", type=Path, help="a file that other benchmarks hold while they measure")
    parser.add_argument("--out", type=Path, default=Path("runs/bench/parking.json"))
    args = parser.parse_args(arguments)
    if args.episodes < 2:
        parser.error("--episodes must be at least 2: the first one compiles.")
    return args


def main() -> None:
    """Measure, print, and write JSON."""
    args = parse()
    device = jax.devices()[0]
    print(f"seconds of an episode of parking at scale {args.scale} on {device.device_kind} ({device.platform})\n")
    print(f"{'seeds':<7}{'fit':>9}{'search':>9}{'drive':>9}{'all':>9}{'the first':>11}")
    rows = {}
    for seeds in args.seeds:
        rows[str(seeds)] = cells = table(episodes_of(args.scale, seeds, args.episodes, args.lock))
        numbers = (cells[name] for name in ("fit_s", "search_s", "drive_s", "episode_s"))
        print(f"{seeds:<7}" + "".join(f"{n:>9.1f}" for n in numbers) + f"{cells['first_episode_s']:>11.1f}", flush=True)
    settings = {name: value for name, value in vars(args).items() if name not in ("out", "lock")}
    where = machine("sombrl", "jax", "jaxlib", "equinox", "optax", "numpy")
    where |= {"device": device.device_kind, "backend": device.platform}
    write(args.out, {"settings": settings, "rows": rows, "machine": where})


if __name__ == "__main__":
    main()
