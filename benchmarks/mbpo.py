"""MBPO-Optimistic: milliseconds per decision, what optimism costs, and the time to the first decision. `make bench`.

A decision is what the authors' is: 5 updates with a fresh batch of 256 each, which are 5 steps of 5 members, 5 critic
steps on imagined and 1 on real data (BroNet), and 1 step of the actor, of the temperature and of λ. The stand-in
environment draws random observations and costs next to nothing, so its rows are the updates alone, driven by the loop
that training uses; `--dmc` adds that loop on the DeepMind Control Suite.

A block is a window of decisions, from report to report. Blocks of the variants alternate; the first window, which
compiles, is apart. Several seeds are trained together, and a decision is then one of each.
"""

import argparse
import dataclasses
import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gymnasium
import jax
import numpy as np

from benchmarks.timing import ROOT, Block, machine, ratio, row, timed, write
from sombrl.agent.agent import Agent
from sombrl.agent.make import make
from sombrl.training.episodic import ChunkReport


@dataclasses.dataclass(frozen=True)
class Size:
    """What an environment looks like to the networks, and their width."""

    obs_dim: int
    action_dim: int
    width: int
    window: int  # decisions of a block for one seed on a CPU: seconds
    dmc: str | None = None  # a task of that size


SIZES = {
    "pendulum": Size(3, 1, 256, 24),
    "cartpole": Size(5, 1, 256, 24, "dmc:cartpole-swingup_sparse"),
    "walker": Size(24, 6, 256, 24, "dmc:walker-run"),
    "humanoid": Size(67, 21, 512, 8, "dmc:humanoid-walk"),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "optimistic": {},
    "greedy": {"explore": "greedy"},
    "greedy, 1 member": {"explore": "greedy", "ensemble": {"members": 1}},
    "strong": {"preset": "strong"},
    "strong, greedy": {"preset": "strong", "explore": "greedy"},
    "strong, plans": {"preset": "strong", "controller": "sac-mppi"},
}
RATIOS = (
    *(("optimistic", "greedy"), ("optimistic", "greedy, 1 member")),
    *(("strong", "strong, greedy"), ("strong, plans", "strong")),
)
"""What optimism costs, and what plans do."""
THEIRS = {"pendulum": {"min_ms": 93.0, "cpu_ms": 170.0}, "humanoid": {"min_ms": 368.6, "cpu_ms": 713.0}}
"""The authors' MBPO-Optimistic (ombrl 4b0c5c3, JAX 0.6.2), updates only, per decision of one seed, least of 5 blocks:
measured by us on 2 cores of a virtualised AMD EPYC (2.6 GHz, AVX-512), which other work disturbed. Where wall and CPU
time of ours are equal, one core was all we got: then compare the CPU time."""
CAPACITY = 20_000  # transitions; a report copies the buffer, and a block here is much shorter than one in training
ACTION_REPEAT = 2  # of the suite's tasks, as the authors have it
FIRST_DECISIONS = 3


class StandIn(gymnasium.Env):
    """Random observations and rewards, whatever is done."""

    def __init__(self, obs_dim: int, action_dim: int):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (obs_dim,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (action_dim,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start anywhere."""
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Go anywhere."""
        return self._obs(), float(self.np_random.standard_normal()), False, False, {}

    def _obs(self) -> np.ndarray:
        return self.np_random.standard_normal(self.observation_space.shape, np.float32)


def agent(size: Size, env: Any, seeds: int, window: int, variant: dict[str, Any], **settings: Any) -> Agent:
    """MBPO of that size, or of a preset's; everything else is its default."""
    hidden = {"hidden": (size.width, size.width)}
    own = {"sac": {} if "preset" in variant else hidden, "ensemble": hidden | variant.get("ensemble", {})}
    run = {"seeds": seeds, "decisions": CAPACITY, "report_every": window}
    return make("mbpo", env, **(settings | variant | own | run))


def stand_in(size: Size, seeds: int, window: int, variant: dict[str, Any]) -> Agent:
    """MBPO on random observations."""
    env = functools.partial(StandIn, size.obs_dim, size.action_dim)
    return agent(size, env, seeds, window, variant, episode_length=1000)


class Compilations:
    """Counts the programs that XLA was asked for: mostly single operations, which take milliseconds."""

    def __init__(self) -> None:
        self.number = 0
        self.large = 0  # of these, those that took over half a second
        self.seconds = 0.0
        self.cached = 0  # found in the persistent cache
        jax.monitoring.register_event_duration_secs_listener(self._compiled)
        jax.monitoring.register_event_listener(self._event)

    def _compiled(self, event: str, duration_secs: float, **_: Any) -> None:
        if "backend_compile" in event:
            self.number += 1
            self.large += duration_secs > 0.5
            self.seconds += duration_secs

    def _event(self, event: str, **_: Any) -> None:
        self.cached += event.endswith("compilation_cache/cache_hits")

    def __call__(self) -> dict[str, float]:
        """The counts so far."""
        return {"programs": self.number, "large": self.large, "seconds": self.seconds, "from_cache": self.cached}

    def since(self, before: dict[str, float]) -> dict[str, float]:
        """The counts since then."""
        return {name: value - before[name] for name, value in self().items()}


@dataclasses.dataclass
class Run:
    """An agent in training, and its blocks so far."""

    seeds: int
    window: int
    reports: Iterator[Any]
    compiled: dict[str, float] = dataclasses.field(default_factory=dict)  # in the first window
    windows: list[Block] = dataclasses.field(default_factory=list)  # of all windows
    stages: list[dict[str, float]] = dataclasses.field(default_factory=list)

    @property
    def blocks(self) -> list[Block]:
        """All windows but the first."""
        return self.windows[1:]

    def advance(self) -> None:
        """One window, all of its results waited for."""

        def window() -> ChunkReport:
            report = next(self.reports)
            assert isinstance(report, ChunkReport)
            jax.block_until_ready(report.state)
            return report

        report, block = timed(window)
        self.windows.append(block)
        self.stages.append(report.seconds)

    def row(self) -> dict[str, Any]:
        """A row of the result; stages as the loop itself reports them."""
        cells: dict[str, Any] = row(self.blocks, self.window)
        best = self.stages[1:][int(np.argmin([block.wall for block in self.blocks]))]
        cells["ms_per_seed"] = cells["min_ms"] / self.seeds
        cells["stages_ms"] = {stage: 1e3 * seconds / self.window for stage, seconds in best.items()}
        return cells | {"first_window_s": self.windows[0].wall, "compilations": self.compiled}


def measure(makers: dict[str, Callable[[], Agent]], rounds: int, compilations: Compilations) -> dict[str, Run]:
    """Blocks of all of them in turn."""
    runs = {}
    for name, new in makers.items():
        before = compilations()
        trained = new()
        run = Run(len(trained.seeds), trained.window, trained.iterations(rounds + 1))
        run.advance()
        run.compiled = compilations.since(before)
        runs[name] = run
    before = compilations()
    for _ in range(rounds):
        for run in runs.values():
            run.advance()
    if again := compilations.since(before)["programs"]:
        print(f"{again} compilations after the first window: the times below include them")
    return runs


def window_of(size: Size, seeds: int) -> int:
    """Decisions of a block: on a CPU seeds come one after the other, so fewer; an accelerator is faster."""
    return max(3, size.window // seeds) if jax.default_backend() == "cpu" else 100


def ratios(runs: dict[str, Run]) -> dict[str, dict[str, float]]:
    """How many times as long one variant takes as another."""
    pairs = [(above, below) for above, below in RATIOS if above in runs and below in runs]
    return {f"{above} / {below}": ratio(runs[above].blocks, runs[below].blocks) for above, below in pairs}


def against_theirs(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """How many times as long the authors' code takes per decision of one seed, by the minima: case → factors."""
    found = {}
    for case, cells in rows.items():
        size, variant, seeds = case.split(" · ")
        if variant == "optimistic" and size in THEIRS:
            times = {name: value * int(seeds) / cells[name] for name, value in THEIRS[size].items()}
            found[case] = {"min": times["min_ms"], "cpu": times["cpu_ms"]}
    return found


def start_up(size: str) -> dict[str, dict[str, Any]]:
    """Seconds from the start of a process to its first decisions: nothing compiled before, and again."""
    found = {}
    with tempfile.TemporaryDirectory() as cache:
        environ = os.environ | {"JAX_COMPILATION_CACHE_DIR": cache}
        for name in ("cold", "warm"):
            start = time.time()
            command = [sys.executable, "-m", "benchmarks.mbpo", "--first-decisions", size]
            done = subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, check=True)
            answer = json.loads(done.stdout.splitlines()[-1])
            answer["decisions_s"] = [moment - start for moment in answer["decisions_s"]]
            found[name] = answer
    return found


def first_decisions(size: Size) -> None:
    """In a process of its own: print when the first decisions were made, and stop there."""
    compilations, moments = Compilations(), []

    def on_decision(decision: int, length: int) -> None:
        moments.append(time.time())

    trained = stand_in(size, 1, FIRST_DECISIONS, VARIANTS["optimistic"])
    next(trained.iterations(1, on_decision=on_decision))
    print(json.dumps({"decisions_s": moments} | compilations()))


def bench_stand_in(args: argparse.Namespace, compilations: Compilations) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rows of every size and number of seeds, and what optimism and plans cost there."""
    rows: dict[str, dict[str, Any]] = {}
    costs = {}
    for name in args.sizes:
        for seeds in args.seeds:
            size, window = SIZES[name], window_of(SIZES[name], seeds)
            makers: dict[str, Callable[[], Agent]] = {
                variant: functools.partial(stand_in, size, seeds, window, VARIANTS[variant])
                for variant in args.variants
            }
            runs = measure(makers, args.rounds, compilations)
            rows |= {f"{name} · {variant} · {seeds}": run.row() for variant, run in runs.items()}
            costs[f"{name} · {seeds}"] = ratios(runs)
    return rows, costs


def bench_dmc(args: argparse.Namespace, compilations: Compilations) -> dict[str, Any]:
    """The whole loop with simulators, MBPO-Optimistic."""
    rows = {}
    settings = {"action_repeat": ACTION_REPEAT, "env_workers": args.env_workers}
    for size in (SIZES[name] for name in args.sizes if SIZES[name].dmc):
        for seeds in args.seeds:
            new = functools.partial(agent, size, size.dmc, seeds, window_of(size, seeds), {}, **settings)
            runs = measure({"optimistic": new}, args.rounds, compilations)
            rows[f"{size.dmc} · optimistic · {seeds}"] = runs["optimistic"].row()
    return rows


def show(rows: dict[str, dict[str, Any]]) -> None:
    """Print rows, the stages of the loop beside them."""
    for name, cells in rows.items():
        stages = ", ".join(f"{stage} {milliseconds:.2f}" for stage, milliseconds in cells["stages_ms"].items())
        print(
            f"{name:<48}{cells['min_ms']:>9.2f}{cells['median_ms']:>9.2f}{cells['cpu_ms']:>9.2f}"
            f"{cells['ms_per_seed']:>9.2f}{cells['first_window_s']:>9.1f}{cells['compilations']['large']:>10}  {stages}"
        )


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["pendulum", "humanoid"])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="numbers of seeds to train together")
    parser.add_argument("--rounds", type=int, default=5, help="blocks of every variant, in turn")
    parser.add_argument("--dmc", action="store_true", help="also the loop on the suite's task of each size")
    parser.add_argument("--env-workers", type=int, default=0, help="processes that step the suite's simulators")
    parser.add_argument("--no-start-up", action="store_true", help="leave out the time to the first decision")
    parser.add_argument("--first-decisions", choices=SIZES, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("runs/bench/mbpo.json"))
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, print, and write JSON."""
    args = parse()
    if args.first_decisions:
        return first_decisions(SIZES[args.first_decisions])
    # First, because this process will take an accelerator's memory for itself.
    starts = {} if args.no_start_up else {size: start_up(size) for size in args.sizes}
    compilations = Compilations()
    rows, costs = bench_stand_in(args, compilations)
    loops = bench_dmc(args, compilations) if args.dmc else {}

    device = jax.devices()[0]
    print(f"milliseconds per decision on {device.device_kind} ({device.platform})\n")
    columns = f"{'min':>9}{'median':>9}{'cpu':>9}{'per seed':>9}{'first s':>9}{'compiled':>10}"
    print(f"{'size · variant · seeds':<48}{columns}  stages")
    show(rows | loops)
    print()
    for case, of_case in costs.items():
        for name, times in of_case.items():
            print(f"{case}: {name} {times['min']:.2f} by minima, {times['median']:.2f} by rounds")
    theirs = against_theirs(rows) if device.platform == "cpu" else {}  # theirs were measured on one
    for case, times in theirs.items():
        print(f"{case}: the authors' code takes {times['min']:.2f} times as long, {times['cpu']:.2f} in CPU time")
    for size, of_size in starts.items():
        for name, found in of_size.items():
            seconds = ", ".join(f"{moment:.1f}" for moment in found["decisions_s"])
            print(
                f"{size}, {name} start: decisions made after {seconds} s; {found['programs']} programs, "
                f"{found['large']} of them large, {found['from_cache']} from the cache"
            )
    result = {
        "decision": {"updates": 5, "batch_size": 256, "capacity": CAPACITY, "action_repeat_dmc": ACTION_REPEAT},
        "sizes": {name: dataclasses.asdict(SIZES[name]) for name in args.sizes},
        "updates_only": rows,
        "optimism": costs,
        "dmc_loop": loops,
        "start_up": starts,
        "theirs": THEIRS,
        "times_ours": theirs,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "machine": machine("sombrl", "jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium")
        | {"device": device.device_kind, "backend": device.platform, "env_workers": args.env_workers},
    }
    write(args.out, result)


if __name__ == "__main__":
    main()
