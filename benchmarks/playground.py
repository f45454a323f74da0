"""Frames a second of MuJoCo Playground's tasks, and of their like in dm_control: `python -m benchmarks.playground`.

Both are stepped as the loop steps them, one environment per seed, by random actions, in the same process and in turns.
The tasks have the same names and not the same time steps: Playground's finger, for one, takes four substeps a frame
where dm_control's takes two. Compiling is apart.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.timing import Block, machine, row, timed, write
from sombrl.envs.interface import AbstractEnvs
from sombrl.envs.registry import make_envs

PAIRS = {
    "cartpole": ("playground:CartpoleSwingupSparse", "dmc:cartpole-swingup_sparse"),
    "cheetah": ("playground:CheetahRun", "dmc:cheetah-run"),
    "humanoid": ("playground:HumanoidWalk", "dmc:humanoid-walk"),
}


def first_decision(envs: AbstractEnvs) -> float:
    """Seconds of the first reset and decision, which compile."""
    start = time.perf_counter()
    envs.reset(0)
    envs.step(np.zeros((len(envs.seeds), envs.spec.action_dim)), np.ones(len(envs.seeds), bool))
    return time.perf_counter() - start


def play(envs: AbstractEnvs, decisions: int, episode: int) -> None:
    """Random decisions from the start of an episode."""
    rng, active = np.random.default_rng(episode), np.ones(len(envs.seeds), bool)
    envs.reset(episode)
    for _ in range(decisions):
        envs.step(rng.uniform(-1, 1, (len(envs.seeds), envs.spec.action_dim)), active)


def table(blocks: dict[str, list[Block]], frames: int) -> dict[str, dict[str, float]]:
    """Milliseconds and number of frames, of which a block did `frames`, by environment."""
    rows = {name: row(cells, frames) for name, cells in blocks.items()}
    return {name: {**cells, "frames_per_s": 1e3 / cells["min_ms"]} for name, cells in rows.items()}


def measure(pair: Sequence[str], seeds: int, decisions: int, rounds: int) -> dict[str, dict[str, float]]:
    """Both of a pair in turns, `rounds` times."""
    envs = {name: make_envs(name, range(seeds)) for name in pair}
    first = {name: first_decision(one) for name, one in envs.items()}
    blocks: dict[str, list[Block]] = {name: [] for name in pair}
    for episode in range(rounds):
        for name, one in envs.items():
            blocks[name].append(timed(lambda one=one, episode=episode: play(one, decisions, episode))[1])  # type: ignore[misc]
    repeat = {one.spec.action_repeat for one in envs.values()}
    assert len(repeat) == 1
    for one in envs.values():
        one.close()
    rows = table(blocks, seeds * decisions * repeat.pop())
    return {name: {**cells, "first_s": first[name]} for name, cells in rows.items()}


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=PAIRS, default=["cartpole", "cheetah"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 8], help="numbers of environments")
    parser.add_argument("--decisions", type=int, default=200, help="of a block, in every environment")
    parser.add_argument("--rounds", type=int, default=5, help="blocks, the least disturbed of which counts")
    parser.add_argument("--out", type=Path, default=Path("runs/bench/playground.json"))
    args = parser.parse_args()
    print(f"{'environment':<34}{'number':>7}{'frames/s':>10}{'first, s':>10}")
    rows = {}
    for task in args.tasks:
        for seeds in args.seeds:
            rows[f"{task} · {seeds}"] = cells = measure(PAIRS[task], seeds, args.decisions, args.rounds)
            for name, of in cells.items():
                print(f"{name:<34}{seeds:>7}{of['frames_per_s']:>10.0f}{of['first_s']:>10.1f}", flush=True)
    settings = {name: value for name, value in vars(args).items() if name != "out"}
    where = machine("jax", "jaxlib", "mujoco", "mujoco-mjx", "playground", "dm_control")
    write(args.out, {"settings": settings, "rows": rows, "machine": where})


if __name__ == "__main__":
    main()
