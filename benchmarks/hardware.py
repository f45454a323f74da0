"""The control loop at 30 Hz: how late it wakes up and how long it works, alone and beside a learner that is busy.

The car is the simulated one, in real time. The learner is a process of its own, of the campaign's priority, that trains
mbpo on the rc-car world the whole time; in a campaign the two never work at once, so this is the worst case. Each case
is run with real-time scheduling, where the system allows it, and without.

"late" is how long after its due time a tick begins, "jitter" how much the time between two commands differs from a
period, "work" everything from waking up to the command being sent, the simulated car's own physics included.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.timing import machine, write
from sombrl.hardware import Actor, SimBackend, Supervisor, SupervisorConfig, control_loop, run_episode
from sombrl.hardware.backend import PERIOD, Observation
from sombrl.hardware.encoding import ActionStack, encode
from sombrl.hardware.learner import NICE
from sombrl.hardware.sim_backend import SimConfig

WIDE = SupervisorConfig(field_x=(-1e3, 1e3), field_y=(-1e3, 1e3))  # nothing but the time ends an episode
LEARNER = f"""
import os
os.nice({NICE})
import sombrl
agent = sombrl.make("mbpo", "rc-car", report_every=20, decisions=100_000)
agent.learn(100_000, callback=lambda agent, report: print("busy", flush=True))
"""


def actor(width: int) -> Actor:
    """Two hidden layers of random weights."""
    rng = np.random.default_rng(0)
    shapes = [(13, width), (width, width), (width, 4)]
    weights = tuple((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32) for shape in shapes)
    return Actor.mlp(weights, tuple(np.zeros(shape[1], np.float32) for shape in shapes))


@contextlib.contextmanager
def busy_learner() -> Iterator[None]:
    """A learner that has compiled and learns."""
    process = subprocess.Popen([sys.executable, "-c", LEARNER], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for _ in range(2):
            if process.stdout.readline() != "busy\n":
                raise SystemExit("the learner did not start")
        yield
        if process.poll() is not None:
            raise SystemExit("the learner ended too early")
    finally:
        process.kill()
        process.wait()


def normal_priority() -> contextlib.AbstractContextManager[Any]:
    """Scheduled as everything else."""
    return mock.patch.object(control_loop, "real_time_priority", lambda clock: contextlib.nullcontext("normal"))


def drive(seconds: float, policy: Actor) -> dict[str, Any]:
    """One long episode."""
    backend = SimBackend(SimConfig())
    backend.reset("teleport")
    supervisor = Supervisor(backend, WIDE)
    try:
        episode = run_episode(backend, policy, supervisor, steps=round(seconds / PERIOD))
    finally:
        supervisor.close()
    return {
        **episode.timing(),
        "ticks": episode.length,
        "rate_hz": episode.length / ((episode.slot[-1] - episode.slot[0]) * PERIOD),
        "valid": float(episode.valid.mean()),
        "scheduling": episode.meta["priority"],
    }


def microseconds(call: Callable[[], Any], calls: int = 5000) -> float:
    """Of one call, the median over batches."""
    times = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(calls // 20):
            call()
        times.append((time.perf_counter() - start) / (calls // 20))
    return 1e6 * float(np.median(times))


def parts() -> dict[str, float]:
    """The parts of a tick, without waiting."""
    backend, stack = SimBackend(SimConfig(clock="simulated")), ActionStack()
    supervisor = Supervisor(backend, WIDE)
    frame = Observation(0.0, np.array([1.0, -1.0, 3.0]), np.array([0.3, 0.1, 0.2]), 1, True)
    supervisor.begin(0, frame, 0.0)
    obs, action = encode(frame, stack), np.array([0.3, 0.2])
    small, large = actor(64), actor(256)

    def tick() -> None:
        backend.clock.sleep_until(backend.clock.now() + PERIOD)
        backend.observe()
        backend._send(backend.clock.now(), 0.3, 0.1)

    return {
        "encode": microseconds(lambda: encode(frame, stack)),
        "policy 64 64": microseconds(lambda: small(obs)),
        "policy 256 256": microseconds(lambda: large(obs)),
        "supervisor": microseconds(lambda: (supervisor.look(frame), supervisor._allowed(action))),
        "simulated car": microseconds(tick),
    }


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of every case")
    parser.add_argument("--out", type=Path, default=Path("runs/bench/hardware.json"))
    args = parser.parse_args()

    microseconds_of, policy, cases = parts(), actor(256), {}
    for load, beside in (("alone", contextlib.nullcontext), ("busy learner", busy_learner)):
        with beside():
            cases[load] = drive(args.seconds, policy)
            with normal_priority():
                cases[f"{load}, normal scheduling"] = drive(args.seconds, policy)
    names = ("late", "jitter", "work")
    print(f"{'':<34}" + "".join(f"{f'{name} {p}':>12}" for name in names for p in ("p50", "p99", "max")) + "  overruns")
    for load, cells in cases.items():
        numbers = "".join(f"{cells[f'{name}_{p}_ms']:>12.3f}" for name in names for p in ("p50", "p99", "max"))
        print(f"{load:<34}{numbers}  {cells['overruns']:>8} ({cells['scheduling']})")
    print("microseconds of a tick: " + ", ".join(f"{name} {value:.0f}" for name, value in microseconds_of.items()))
    result = {
        "milliseconds": cases,
        "microseconds_of_a_tick": microseconds_of,
        "period_ms": 1e3 * PERIOD,
        "seconds": args.seconds,
        "machine": machine("numpy", "jax"),
    }
    write(args.out, result)


if __name__ == "__main__":
    main()
