"""Dreamer: milliseconds per update, what optimism costs, and the whole loop. `python -m benchmarks.dreamer`.

An update is the published one: 16 sequences of 64 records, imagination of 15 decisions from each record, one step of
the optimiser for everything; with optimism also the ensemble and λ. Batches are random records that lie on the device,
so that it alone is measured; blocks of both strategies alternate, and the first update, which compiles, is apart.

`--loop` adds training as it is, simulators, replay and all, on the task of each kind: decisions per second and minutes
per 100000 of them. Everything is made ready before anything is measured. The paper has 42.24 minutes for Dreamer and
46.32 for Dreamer-Optimistic per 100000 steps, on an RTX 4090, with a replay ratio that it does not state.
"""

import argparse
import dataclasses
import functools
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr

from benchmarks.timing import Block, alone, machine, ratio, row, timed, write
from sombrl.agent.make import make
from sombrl.dreamer.config import DreamerConfig, DreamerExplore
from sombrl.dreamer.dreamer import Dreamer, Sequences
from sombrl.dreamer.loop import compiled_update
from sombrl.dreamer.trainer import DreamerTrainer
from sombrl.envs.layout import Part
from sombrl.seeds import over_shard


@dataclasses.dataclass(frozen=True)
class Kind:
    """What is observed, and a task of that kind."""

    part: Part
    action_dim: int
    task: str


KINDS = {
    "proprio": Kind(Part("obs", (24,), "vector"), 6, "dmc:walker-walk"),
    "vision": Kind(Part("image", (64, 64, 3), "image"), 6, "dmc-vision:walker-walk"),
}
STRATEGIES = ("greedy", "optimistic")
EXPLORE = {name: DreamerExplore(explore=name) for name in STRATEGIES} | {
    "published": DreamerExplore(hidden=(512, 512)),
    "deter": DreamerExplore(ensemble_target="deter"),
    "scaled": DreamerExplore(bonus_scale="scale"),
}
"""What is timed: both strategies; with the published ensemble, whatever the size; and two readings of σ."""
BATCH, TIME = 16, 64


def batch(dreamer: Dreamer, kind: Kind, seeds: int) -> Sequences:
    """Random records."""
    lead = (seeds, BATCH, TIME)
    keys = jr.split(jr.key(0), 3)
    part = kind.part
    if part.kind == "image":
        obs = jr.randint(keys[0], (*lead, *part.shape), 0, 256).astype(jnp.uint8)
    else:
        obs = jr.normal(keys[0], (*lead, *part.shape), jnp.float32)
    no = jnp.zeros(lead, bool)
    return Sequences(
        obs={part.name: obs},
        action=jr.normal(keys[1], (seeds, BATCH, TIME + 1, kind.action_dim), jnp.float32),
        reward=jr.normal(keys[2], lead, jnp.float32),
        first=no,
        last=no,
        terminal=no,
        deter=jnp.zeros((seeds, BATCH, dreamer.size.deter), jnp.float32),
        stoch=jnp.zeros((seeds, BATCH, dreamer.size.latents), jnp.int32),
        new=jnp.zeros((seeds, BATCH), bool),
        positions=jnp.zeros((seeds, BATCH, 2), jnp.int32),
    )


class Updates:
    """One strategy's training on the same batch again and again."""

    def __init__(self, kind: Kind, explore: str, size: str, seeds: int, precision: Any, last: int | None = None):
        config = DreamerConfig(size=size, precision=precision, explore=EXPLORE[explore], imagine_last=last)
        dreamer = Dreamer(config, (kind.part,), kind.action_dim, False)
        keys = jr.key_data(jr.split(jr.key(1), seeds))
        self._batch = batch(dreamer, kind, seeds)
        self._state = jax.jit(lambda k: over_shard(lambda r: dreamer.init(key=jr.wrap_key_data(r[0])), (k,)))(keys)

        def learn(state: Any, batch: Any, keys: Any) -> Any:
            state, _, metrics = over_shard(
                lambda r: dreamer.learn(r[0], r[1], key=jr.fold_in(jr.wrap_key_data(r[2]), r[0].updates)),
                (state, batch, keys),
            )
            return state, metrics["model/loss"]

        self._learn, self._keys = compiled_update(learn), keys
        start = time.perf_counter()
        self(1)
        self.compile_s = time.perf_counter() - start
        self.blocks: list[Block] = []

    def __call__(self, number: int) -> None:
        """So many updates, waited for."""
        for _ in range(number):
            self._state, loss = self._learn(self._state, self._batch, self._keys)
        jax.block_until_ready(loss)


class Loop:
    """One strategy's training as it is, compiled and learning."""

    def __init__(self, kind: Kind, explore: str, size: str, decisions: int, env_workers: int):
        settings: dict[str, Any] = {"explore": explore, "size": size, "capacity": 50_000, "report_every": decisions}
        agent = make("dreamer", kind.task, env_workers=env_workers, decisions=100_000, **settings)
        trainer = agent.trainer
        assert isinstance(trainer, DreamerTrainer)
        self._agent, before = agent, max(1, -(-trainer.loop.starts_at // agent.window) + 1)
        self._reports = agent.iterations(before + 1)
        for _ in range(before):
            next(self._reports)

    def __call__(self) -> dict[str, Any]:
        """The next report, measured; the last use of it."""
        report, agent = next(self._reports), self._agent
        seconds, decisions = sum(report.seconds.values()), int(report.taken.sum())
        agent.envs.close()
        return {
            "decisions_per_s": decisions / seconds,
            "updates_per_s": float(report.metrics["time/updates"][0]) / seconds,
            "minutes_per_100k_decisions": seconds / decisions * 1e5 / 60,
            "minutes_per_100k_frames": seconds / (decisions * agent.envs.spec.action_repeat) * 1e5 / 60,
            "ratio": agent.config.ratio,
            "seconds": report.seconds,
        }


def bench_updates(
    runs: dict[tuple[str, int], dict[str, Updates]], updates: int, rounds: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rows of every kind and number of seeds, and what optimism costs there."""
    rows: dict[str, Any] = {}
    costs: dict[str, Any] = {}
    for (name, seeds), strategies in runs.items():
        for _ in range(rounds):
            for run in strategies.values():
                run.blocks.append(timed(functools.partial(run, updates))[1])
        for strategy, run in strategies.items():
            cells = row(run.blocks, updates) | {"compile_s": run.compile_s}
            rows[f"{name} · {strategy} · {seeds}"] = cells | {"updates_per_s": 1e3 * seeds / cells["min_ms"]}
        for strategy in strategies:
            if strategy != "greedy" and "greedy" in strategies:
                where = f"{name} · {seeds}" if strategy == "optimistic" else f"{name} · {strategy} · {seeds}"
                costs[where] = ratio(strategies[strategy].blocks, strategies["greedy"].blocks)
    return rows, costs


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["proprio"])
    parser.add_argument("--size", default="1m", help="of the model; the paper's is 12m")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="numbers of seeds to train together")
    parser.add_argument("--precision", choices=("auto", "bfloat16", "float32"), default="auto")
    parser.add_argument("--updates", type=int, default=3, help="per block")
    parser.add_argument("--rounds", type=int, default=3, help="blocks of each strategy, in turn")
    parser.add_argument("--explore", nargs="+", choices=EXPLORE, default=list(STRATEGIES), help="what updates to time")
    parser.add_argument("--imagine-last", type=int, help="records of a sequence to imagine from; default: all")
    parser.add_argument("--loop", type=int, default=0, help="decisions of the measured part of training; 0: none")
    parser.add_argument("--env-workers", type=int, default=0)
    parser.add_argument("--lock", type=Path, help="a file that other benchmarks hold while they measure")
    parser.add_argument("--out", type=Path, default=Path("runs/bench/dreamer.json"))
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, print, and write JSON."""
    args = parse()
    runs = {
        (name, seeds): {
            s: Updates(KINDS[name], s, args.size, seeds, args.precision, args.imagine_last) for s in args.explore
        }
        for name, seeds in itertools.product(args.kinds, args.seeds)
    }
    ready = {
        f"{name} · {strategy}": Loop(KINDS[name], strategy, args.size, args.loop, args.env_workers)
        for name, strategy in (itertools.product(args.kinds, STRATEGIES) if args.loop else ())
    }
    print("ready", flush=True)
    device = jax.devices()[0]
    settings = {name: value for name, value in vars(args).items() if name not in ("out", "lock")}
    where = machine("jax") | {"device": device.device_kind, "backend": device.platform}
    loops: dict[str, Any] = {}
    with alone(args.lock):
        rows, costs = bench_updates(runs, args.updates, args.rounds)
        result = {"settings": settings, "updates": rows, "optimism": costs, "loop": loops, "machine": where}
        write(args.out, result)
        for name, loop in ready.items():
            loops[name] = loop()
            write(args.out, result)  # after each, so that a stop loses little
    print(f"Dreamer {args.size} on {device.device_kind} ({device.platform}), milliseconds per update of all seeds\n")
    print(f"{'kind · strategy · seeds':<34}{'min':>9}{'median':>9}{'updates/s':>11}{'compile s':>11}")
    for name, cells in rows.items():
        numbers = f"{cells['min_ms']:>9.1f}{cells['median_ms']:>9.1f}{cells['updates_per_s']:>11.1f}"
        print(f"{name:<34}{numbers}{cells['compile_s']:>11.1f}")
    for name, times in costs.items():
        print(f"{name}: optimism takes {times['min']:.3f} times as long by minima, {times['median']:.3f} by rounds")
    for name, cells in loops.items():
        print(
            f"{name}: {cells['decisions_per_s']:.0f} decisions/s, {cells['updates_per_s']:.1f} updates/s, "
            f"{cells['minutes_per_100k_decisions']:.1f} minutes per 100000 decisions and "
            f"{cells['minutes_per_100k_frames']:.1f} per 100000 frames at ratio {cells['ratio']:g}"
        )


if __name__ == "__main__":
    main()
