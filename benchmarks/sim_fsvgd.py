"""SimFSVGD on the RC car: milliseconds per training step, and the time to compile. `python -m benchmarks.sim_fsvgd`.

A step is what the authors' is: a batch of 32 and 16 measurement points, 512 functions drawn from the simulator at all
48 of them, the Gaussian score of each of 7 outputs, the Stein direction of 10 networks of 3 × 64, AdamW. Only where the
GP that stands for the simulator's gap is drawn too (`drawn`) is the arithmetic the same; by default its covariance is
added instead, which is what the draws estimate.

A block is one fit of a few hundred steps, as training runs it. Blocks of the variants alternate; the first fit, which
compiles, is apart. With several seeds a step is one of each.
"""

import argparse
import dataclasses
import functools
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr

from benchmarks.timing import Block, machine, row, timed, write
from sombrl.dynamics.particle_config import ParticleConfig
from sombrl.dynamics.particle_learner import ParticleLearner
from sombrl.dynamics.rc_car_prior import GAP_STD, LIKELIHOOD_STD, CarBodyFrame, CarSimulator, CarWorldFrame
from sombrl.records import Transition
from sombrl.replay import Replay
from sombrl.seeds import over_seeds

ROWS, OBS_DIM, ACTION_DIM = 1000, 13, 2  # as many random rows as the authors' code had; the work does not depend on it

VARIANTS: dict[str, dict[str, Any]] = {
    "low": {"fidelity": "low"},
    "low, drawn": {"fidelity": "low", "draw_additive": True},
    "high": {"fidelity": "high"},
    "high, drawn": {"fidelity": "high", "draw_additive": True},
    "body frame": {"fidelity": "low", "body": True},
    "fsvgd": {},
    "svgd": {"inference": "svgd"},
}
THEIRS = {"low": {"min_ms": 43.7, "cpu_ms": 69.0}, "high": {"min_ms": 44.9, "cpu_ms": 74.0}}
"""The authors' BNN_FSVGD_SimPrior (simulation_transfer 547fa14, JAX 0.4.38), per step, least of 5 blocks of 200 steps,
the additive GP drawn: measured by us on 2 cores of a virtualised AMD EPYC (2.6 GHz, AVX-512), which other work
disturbed. Its own loop of 200 steps in one call takes 42.1 and 43.9."""


def learner(steps: int, fidelity: str | None = None, body: bool = False, **settings: Any) -> ParticleLearner:
    """The published sizes, with a simulator of that fidelity or without one."""
    frame = CarBodyFrame() if body else CarWorldFrame()
    simulator = CarSimulator(fidelity, coordinates=frame) if fidelity else None
    if fidelity:
        settings["additive_scales"] = tuple(frame.per_target(GAP_STD[fidelity]).tolist())
    config = ParticleConfig(steps=steps, check_every=steps, **settings)
    return ParticleLearner(frame, config, simulator, noise_std=frame.per_target(LIKELIHOOD_STD))


def random_rows(seeds: int) -> Replay:
    """Random transitions, the same for every seed."""
    obs_key, action_key, next_key = jr.split(jr.key(0), 3)
    no = jnp.zeros(ROWS, bool)
    rows = Transition(
        obs=jr.normal(obs_key, (ROWS, OBS_DIM)),
        action=jr.uniform(action_key, (ROWS, ACTION_DIM), minval=-1.0, maxval=1.0),
        reward=jnp.zeros(ROWS),
        next_obs=jr.normal(next_key, (ROWS, OBS_DIM)),
        terminated=no,
        truncated=no,
    )
    replay = Replay.empty(2 * ROWS, OBS_DIM, ACTION_DIM).add(rows, ~no)
    spread: Replay = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (seeds, *leaf.shape)), replay)
    return spread


@dataclasses.dataclass
class Fits:
    """Fits of one variant, and their times so far; the first compiled."""

    fit: Callable[[int], Any]
    blocks: list[Block] = dataclasses.field(default_factory=list)

    @staticmethod
    def of(seeds: int, steps: int, settings: dict[str, Any]) -> "Fits":
        """A learner, ready to fit."""
        ours, replay = learner(steps, **settings), random_rows(seeds)
        state = over_seeds(lambda key: ours.init(key=key))(jr.split(jr.key(1), seeds))
        compiled = over_seeds(lambda state, replay, key: ours.fit(state, replay, key=key))

        def fit(number: int) -> Any:
            return jax.block_until_ready(compiled(state, replay, jr.split(jr.key(number), seeds)))

        return Fits(fit)

    def advance(self) -> None:
        """One more fit."""
        self.blocks.append(timed(functools.partial(self.fit, len(self.blocks)))[1])

    def row(self, seeds: int, steps: int) -> dict[str, Any]:
        """A row of the result."""
        cells: dict[str, Any] = row(self.blocks[1:], steps)
        return cells | {"ms_per_seed": cells["min_ms"] / seeds, "first_s": self.blocks[0].wall}


def against_theirs(rows: dict[str, dict[str, Any]], seeds: int) -> dict[str, dict[str, float]]:
    """How many times as long the authors' code takes per step of one seed, by the minima: variant → factors."""
    found = {}
    for variant, cells in rows.items():
        if (theirs := THEIRS.get(variant.partition(",")[0])) is not None:
            times = {name: value * seeds / cells[name] for name, value in theirs.items()}
            found[variant] = {"min": times["min_ms"], "cpu": times["cpu_ms"]}
    return found


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=1, help="seeds to train together")
    parser.add_argument("--steps", type=int, default=200, help="steps of a fit")
    parser.add_argument("--rounds", type=int, default=5, help="blocks of every variant, in turn")
    parser.add_argument("--out", type=Path, default=Path("runs/bench/sim_fsvgd.json"))
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, print, and write JSON."""
    args = parse()
    fits = {variant: Fits.of(args.seeds, args.steps, VARIANTS[variant]) for variant in args.variants}
    for _ in range(args.rounds + 1):
        for one in fits.values():
            one.advance()
    rows = {variant: one.row(args.seeds, args.steps) for variant, one in fits.items()}

    device = jax.devices()[0]
    print(f"milliseconds per training step of {args.seeds} seeds on {device.device_kind} ({device.platform})\n")
    print(f"{'variant':<16}{'min':>9}{'median':>9}{'cpu':>9}{'per seed':>9}{'first s':>9}")
    for variant, cells in rows.items():
        numbers = (cells[name] for name in ("min_ms", "median_ms", "cpu_ms", "ms_per_seed", "first_s"))
        print(f"{variant:<16}" + "".join(f"{number:>9.2f}" for number in numbers))
    theirs = against_theirs(rows, args.seeds) if device.platform == "cpu" else {}  # theirs were measured on one
    for variant, times in theirs.items():
        print(f"{variant}: the authors' code took {times['min']:.1f} times as long, {times['cpu']:.1f} in CPU time")
    result = {
        "step": {"seeds": args.seeds, "steps_per_fit": args.steps, "config": dataclasses.asdict(ParticleConfig())},
        "rows": rows,
        "theirs": THEIRS,
        "times_ours": theirs,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "machine": machine("sombrl", "jax", "jaxlib", "equinox", "optax", "numpy")
        | {"device": device.device_kind, "backend": device.platform},
    }
    write(args.out, result)


if __name__ == "__main__":
    main()
