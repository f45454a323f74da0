"""SAC: gradient steps per second, next to SBX and Stable-Baselines3. `make bench`; `make bench-peers` gets the peers.

A gradient step is one step each of the twin critics, the actor and the temperature, and one average of the target
critics (ours averages a target actor too), on a fresh batch of 256 from a full replay buffer; all networks have two
layers of 256. A call is 64 of them: one compiled program for sombrl and SBX, a loop for SB3. All on CPU, in float32.

The peers live in a process of their own that waits while we run. Blocks alternate, so that a noisy neighbour hits
all of them; first calls, which compile, are apart.
"""

import argparse
import dataclasses
import functools
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from benchmarks.timing import ROOT, Block, machine, ratio, row, timed, write
from sombrl.controllers.sac import SAC
from sombrl.controllers.sac_config import MODEL_FREE
from sombrl.dynamics.none import NoDynamics, NoTask
from sombrl.exploration import greedy
from sombrl.records import Transition
from sombrl.replay import Replay

SIZES = {"obs 17, action 6": (17, 6), "obs 3, action 1": (3, 1)}
WIDTH, BATCH, STEPS, TRANSITIONS = 256, 256, 64, 100_000
PEERS: dict[str, dict[str, Any]] = {
    "SBX": {"library": "sbx"},
    "SB3": {"library": "sb3"},
    "SB3, 1 thread": {"library": "sb3", "threads": 1},  # with more, a busy machine slows torch many times
}
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
WARM_UP = 2  # calls: SBX compiles twice, as the types of its arguments settle

Blocks = dict[str, dict[str, list[Block]]]  # size → who → blocks


class Ours:
    """sombrl's SAC, compiled for one size; the old state is given up at every call, as in training."""

    def __init__(self, obs_dim: int, action_dim: int):
        key = jr.key(0)
        config = dataclasses.replace(MODEL_FREE, hidden=(WIDTH, WIDTH), updates_per_call=STEPS, batch_size=BATCH)
        controller = SAC(obs_dim, config)
        mdp = greedy().imagine(
            NoDynamics(),
            NoTask(),
            state_dim=obs_dim,
            action_dim=action_dim,
            iteration=jnp.zeros((), jnp.int32),
            discount=1.0,
            key=key,
        )
        replay = full_replay(obs_dim, action_dim)

        @eqx.filter_jit(donate="all-except-first")
        def improve(kept: Any, state: Any) -> Any:
            mdp, replay, key = kept
            return controller.improve(state, mdp, replay, key=key)

        # The targets start as copies, but a buffer can be given up only once.
        state = jax.tree.map(jnp.copy, eqx.filter_jit(controller.init)(mdp, key=key))
        self._improve, self._mdp, self._replay, self._state, self._calls = improve, mdp, replay, state, 0

    def block(self) -> Block:
        """One call."""

        def call() -> Any:
            return jax.block_until_ready(self._improve((self._mdp, self._replay, key), self._state))

        self._calls += 1
        key = jax.block_until_ready(jr.key(self._calls))
        (self._state, _), block = timed(call)
        return block


def full_replay(obs_dim: int, action_dim: int) -> Replay:
    """Random transitions."""
    obs_key, action_key, reward_key, next_key = jr.split(jr.key(1), 4)
    no = jnp.zeros(TRANSITIONS, bool)
    rows = Transition(
        obs=jr.normal(obs_key, (TRANSITIONS, obs_dim), jnp.float32),
        action=jr.uniform(action_key, (TRANSITIONS, action_dim), jnp.float32, -1.0, 1.0),
        reward=jr.normal(reward_key, (TRANSITIONS,), jnp.float32),
        next_obs=jr.normal(next_key, (TRANSITIONS, obs_dim), jnp.float32),
        terminated=no,
        truncated=no,
    )
    return Replay.empty(TRANSITIONS, obs_dim, action_dim).add(rows, ~no)


class Peers:
    """The process of the peers, `benchmarks/peers/sac.py`."""

    def __init__(self, python: Path):
        script = ROOT / "benchmarks" / "peers" / "sac.py"
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [python, "-W", "ignore", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
        )
        self.versions = self._answer()

    def __enter__(self) -> "Peers":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate()  # no more questions: it ends

    def block(self, ask: dict[str, Any], obs_dim: int, action_dim: int) -> Block:
        """One call of one of them."""
        counts = {"width": WIDTH, "transitions": TRANSITIONS, "gradient_steps": STEPS, "batch_size": BATCH}
        question = ask | {"obs_dim": obs_dim, "action_dim": action_dim} | counts
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return Block(**self._answer())

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the peers stopped; what they said is above (make bench-peers installs them)")
        answer: dict[str, Any] = json.loads(line)
        return answer


def measure(peers: Peers | None, names: Sequence[str], rounds: int) -> tuple[Blocks, Blocks]:
    """The first calls, and the blocks, of everyone at every size."""
    first: Blocks = {}
    blocks: Blocks = {}
    for size, (obs_dim, action_dim) in SIZES.items():
        runs: dict[str, Callable[[], Block]] = {"sombrl": Ours(obs_dim, action_dim).block}
        if peers is not None:
            runs |= {name: functools.partial(peers.block, PEERS[name], obs_dim, action_dim) for name in names}
        first[size] = {name: [run() for _ in range(WARM_UP)] for name, run in runs.items()}
        blocks[size] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                blocks[size][name].append(run())
    return first, blocks


def table(first: Blocks, blocks: Blocks) -> dict[str, dict[str, dict[str, Any]]]:
    """Size → who → milliseconds per gradient step, steps per second, first calls."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for size, of_size in blocks.items():
        rows[size] = {}
        for name, of_name in of_size.items():
            cells = row(of_name, STEPS)
            rates = {"steps_per_s": 1e3 / cells["min_ms"], "median_steps_per_s": 1e3 / cells["median_ms"]}
            rows[size][name] = cells | rates | {"first_calls_s": [block.wall for block in first[size][name]]}
    return rows


def ratios(blocks: Blocks) -> dict[str, dict[str, dict[str, Any]]]:
    """Size → peer → how many times as long it takes as ours."""
    return {
        size: {name: ratio(of_name, of_size["sombrl"]) for name, of_name in of_size.items() if name != "sombrl"}
        for size, of_size in blocks.items()
    }


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="blocks of everyone, in turn")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--out", type=Path, default=Path("runs/bench/sac.json"))
    args = parser.parse_args()

    jax.config.update("jax_platforms", "cpu")  # the peers' JAX has no other device
    versions = None
    if PEERS_PYTHON.exists():
        with Peers(PEERS_PYTHON) as peers:
            versions = peers.versions
            if versions["jax"] != jax.__version__:
                print(f"mind that the peers run on JAX {versions['jax']}, and we on {jax.__version__}")
            first, blocks = measure(peers, args.peers, args.rounds)
    else:
        print("SBX and SB3 are not installed, so this is sombrl alone: make bench-peers installs the peers")
        first, blocks = measure(None, (), args.rounds)
    rows, over = table(first, blocks), ratios(blocks)

    print(f"{'':<34}{'steps/s':>9}{'min ms':>9}{'median':>9}{'cpu ms':>9}{'first s':>9}{'× ours':>9}{'median':>9}")
    for size, of_size in rows.items():
        for name, cells in of_size.items():
            times = over[size].get(name, {"min": 1.0, "median": 1.0})
            print(
                f"{size + ' · ' + name:<34}{cells['steps_per_s']:>9.0f}{cells['min_ms']:>9.2f}"
                f"{cells['median_ms']:>9.2f}{cells['cpu_ms']:>9.2f}{cells['first_calls_s'][0]:>9.2f}"
                f"{times['min']:>9.2f}{times['median']:>9.2f}"
            )
    result = {
        "call": {"gradient_steps": STEPS, "batch_size": BATCH, "width": WIDTH, "transitions": TRANSITIONS},
        "per_gradient_step": rows,
        "times_ours": over,
        "peers": versions,
        "machine": machine("jax", "jaxlib", "equinox", "optax", "numpy") | {"device": jax.devices()[0].device_kind},
    }
    write(args.out, result)


if __name__ == "__main__":
    main()
