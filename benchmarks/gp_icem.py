"""GP + iCEM: seconds per decision, fit and append, compile time and memory. `make bench`.

The plan is the authors' nonepisodic Pendulum plan: 500 fresh candidates + 15 kept elites, 50 elites, 10 iterations,
horizon 20, 5 particles = 515,000 model steps with mean and std of three outputs. Their code needs, on two cores of
the same kind, 2.5 s (n = 100) and 14.7 s (n = 400) per such plan, and 17 s and 660 s per hyperparameter refit.

Blocks of the variants alternate, so that a noisy neighbour hits all of them; min and median are reported.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from sombrl.controllers.icem import ICEM, PRESETS
from sombrl.dynamics.gp import GPConfig, GPLearner
from sombrl.envs.pendulum import Pendulum
from sombrl.exploration import Constant, EpistemicNorm, Exploration, NoisyMean, hucrl, optimistic, pets
from sombrl.records import Transition
from sombrl.replay import Replay
from sombrl.seeds import over_seeds

SIZES = (100, 400, 1000, 2000)
THEIRS = {"plan_s": {100: 2.456, 400: 14.722}, "refit_s": {100: 17.0, 400: 660.0}}
PARTICLES = "optimistic, 5 particles"
STRATEGIES = {
    "optimistic": lambda: optimistic(Constant(10.0)),
    PARTICLES: lambda: Exploration(NoisyMean(), EpistemicNorm(), Constant(10.0)),
    "pets": pets,
    "hucrl": lambda: hucrl(2.0),
}


def transitions(number: int, seed: int) -> Transition:
    """Pendulum frames under held random torques, from random starts."""
    world = Pendulum(start="random")

    def frame(carry: Any, inputs: Any) -> Any:
        state, action = carry
        t, key = inputs
        new_key, reset_key, step_key = jr.split(key, 3)
        action = jnp.where(t % 8 == 0, jr.uniform(new_key, (1,), jnp.float32, -1.0, 1.0), action)
        state = jnp.where(t % 200 == 0, world.reset(key=reset_key), state)
        next_state, reward, _ = world.step(state, action, key=step_key)
        row = (world.observe(state), action, reward, world.observe(next_state))
        return (next_state, action), row

    start = (world.reset(key=jr.key(seed)), jnp.zeros(1, jnp.float32))
    steps = (jnp.arange(number, dtype=jnp.int32), jr.split(jr.key(seed + 1), number))
    _, (obs, action, reward, next_obs) = jax.lax.scan(frame, start, steps)
    no = jnp.zeros(number, bool)
    return Transition(obs, action, reward, next_obs, no, no)


def replay_of(number: int, seeds: int, capacity: int) -> Replay:
    """One buffer per seed, each with `number` transitions of its own."""

    def one(seed: int) -> Replay:
        rows = jax.tree.map(lambda leaf: leaf[:number], transitions(2000, seed))
        return Replay.empty(capacity, 3, 1).add(rows, jnp.ones(number, bool))

    stacked: Replay = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[one(seed) for seed in range(seeds)])
    return stacked


def keys(seeds: int, base: int) -> Any:
    """One key per seed."""
    return jr.wrap_key_data(jnp.stack([jr.key_data(jr.key(base + seed)) for seed in range(seeds)]))


class Timer:
    """Seconds of calls, results waited for; first calls apart."""

    def __init__(self) -> None:
        self.first: dict[Any, Any] = {}
        self.calls: dict[Any, Any] = {}

    def __call__(self, name: Any, function: Callable[..., Any], *args: Any) -> Any:
        """Call and note how long it took."""
        start, cpu = time.perf_counter(), time.process_time()
        result = jax.block_until_ready(function(*args))
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        if name not in self.first:
            self.first[name] = seconds, cpu
        else:
            self.calls.setdefault(name, []).append((seconds, cpu))
        return result

    def best(self, name: Any) -> float:
        """The least disturbed call."""
        return float(min(seconds for seconds, _ in self.calls[name]))

    def row(self, name: Any) -> dict[str, Any]:
        """A row of the result."""
        walls, cpus = zip(*self.calls.get(name, [self.first[name]]), strict=True)
        return {
            "min_s": min(walls),
            "median_s": statistics.median(walls),
            "cpu_s": min(cpus),
            "reps": len(self.calls.get(name, [])),
            "first_call_s": self.first[name][0],
        }


def parts(strategy: str, rank: int) -> Any:
    """The compiled learner and planner for one strategy."""
    learner = GPLearner(3, 1, False, GPConfig(rank=rank, capacity=2048))
    controller = ICEM(PRESETS["pendulum"])
    make: Callable[..., Any] = STRATEGIES[strategy]
    task, exploration = Pendulum().task(1), make()

    def imagine(state: Any, key: Any) -> Any:
        return exploration.imagine(
            learner.dynamics(state),
            task,
            state_dim=3,
            action_dim=1,
            iteration=jnp.zeros((), jnp.int32),
            discount=1.0,
            key=key,
        )

    def act(state: Any, mdp: Any, obs: Any, key: Any) -> Any:
        return controller.act(state, mdp, obs, key=key)

    return {
        "init": over_seeds(lambda key: learner.init(key=key), double_precision=True),
        "fit": over_seeds(lambda s, r, key: learner.fit(s, r, key=key), double_precision=True),
        "imagine": over_seeds(imagine),
        "start": over_seeds(lambda mdp, key: controller.init(mdp, key=key)),
        "act": over_seeds(act),
    }


def bench_plans(timer: Timer, rank: int, blocks: int) -> None:
    """Every strategy at every n, for one and five seeds, in alternating blocks."""
    compilations: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration_secs, **_: compilations.append(event) if "backend_compile" in event else None
    )
    cases = {}
    for seeds in (1, 5):
        for strategy in STRATEGIES if seeds == 1 else ("optimistic",):
            compiled = parts(strategy, rank)
            state = compiled["init"](keys(seeds, 0))
            for number in SIZES:
                fitted, _ = compiled["fit"](state, replay_of(number, seeds, 2048), keys(seeds, 1))
                mdp = compiled["imagine"](fitted, keys(seeds, 2))
                plan = compiled["start"](mdp, keys(seeds, 3))
                cases[strategy, number, seeds] = compiled["act"], plan, mdp
    obs = {seeds: jnp.tile(jnp.array([[-1.0, 0.0, 0.0]], jnp.float32), (seeds, 1)) for seeds in (1, 5)}
    for block in range(blocks + 1):  # the first one compiles
        for (strategy, number, seeds), (act, plan, mdp) in cases.items():
            before = len(compilations)
            name = ("plan", strategy, number, seeds)
            timer(name, act, plan, mdp, obs[seeds], keys(seeds, 10 + block))
            if number != SIZES[0] or block > 0:
                assert len(compilations) == before, f"compiled again at n = {number}"


def bench_fits(timer: Timer, rank: int, blocks: int) -> dict[str, Any]:
    """A cold refit on up to 512 points against one with ten times the steps; the default refit; an append."""
    likelihoods = {}
    held_out = jax.tree.map(lambda leaf: leaf[1000:1500], transitions(2000, 7))
    for number in (100, 400):
        replay, more = replay_of(number, 1, 2048), replay_of(number + 40, 1, 2048)
        for label, steps in (("refit", 100), ("long refit", 1000)):
            config = GPConfig(rank=rank, capacity=2048, fit_points=512, fit_steps=steps, lengthscale_prior_std=1e6)
            fit, prior, dynamics = learner_parts(config)
            for block in range(blocks + 1 if label == "refit" else 1):
                fitted, _ = timer((label, number), fit, prior, replay, keys(1, block))
            likelihoods[f"{label} {number}"] = log_likelihood(dynamics(fitted), held_out)
        fit, prior, _ = learner_parts(GPConfig(rank=rank, capacity=2048, refit_every=1_000_000))
        for block in range(blocks + 1):
            fitted, _ = timer(("default refit", number), fit, prior, replay, keys(1, block))
            timer(("append 40", number), fit, fitted, more, keys(1, block))
    return likelihoods


def learner_parts(config: GPConfig) -> Any:
    """The compiled fit, the prior for one seed, and how to get the dynamics of its first row."""
    learner = GPLearner(3, 1, False, config)
    fit = over_seeds(lambda s, r, key: learner.fit(s, r, key=key), double_precision=True)
    prior = over_seeds(lambda key: learner.init(key=key), double_precision=True)(keys(1, 0))
    return fit, prior, lambda state: learner.dynamics(jax.tree.map(lambda leaf: leaf[0], state))


def log_likelihood(dynamics: Any, rows: Transition) -> float:
    """Mean held-out log density per output, normalised units."""
    prediction = jax.jit(jax.vmap(dynamics.predict))(rows.obs, rows.action)
    error = np.asarray((rows.next_obs - prediction.mean) / prediction.scale)
    total = prediction.epistemic_std**2 + prediction.aleatoric_std**2
    variance = np.asarray(total / prediction.scale**2)
    return float(np.mean(-0.5 * error**2 / variance - 0.5 * np.log(2 * np.pi * variance)))


def bars(timer: Timer, likelihoods: dict[str, float]) -> list[dict[str, Any]]:
    """What the project promises of itself. Ratios are medians over blocks in which both sides ran."""

    def ratio(above: Any, below: Any) -> float:
        pairs = zip(timer.calls[above], timer.calls[below], strict=True)
        return float(statistics.median(a / b for (a, _), (b, _) in pairs))

    plan = timer.best(("plan", PARTICLES, 400, 1))
    lost = likelihoods["long refit 400"] - likelihoods["refit 400"]
    rows = [
        ("plan at n = 400, as many model steps as theirs [s]", plan, 0.75),
        ("the same as a fraction of theirs", plan / THEIRS["plan_s"][400], 1 / 20),
        ("cold refit at n = 400 [s]", timer.best(("refit", 400)), 10.0),
        ("held-out nats lost to a refit ten times as long", lost, 0.05),
        ("n = 1000 over n = 100", ratio(("plan", PARTICLES, 1000, 1), ("plan", PARTICLES, 100, 1)), 2.0),
        ("five seeds over one", ratio(("plan", "optimistic", 400, 5), ("plan", "optimistic", 400, 1)), 5.2),
        ("optimistic over pets", ratio(("plan", PARTICLES, 400, 1), ("plan", "pets", 400, 1)), 1.1),
    ]
    return [{"bar": name, "value": value, "limit": limit, "ok": bool(value <= limit)} for name, value, limit in rows]


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=5, help="repeats of every measurement")
    parser.add_argument("--rank", type=int, default=GPConfig().rank, help="pivots of the GP")
    parser.add_argument("--out", type=Path, default=Path("runs/bench/gp_icem.json"))
    args = parser.parse_args()

    timer = Timer()
    bench_plans(timer, args.rank, args.blocks)
    likelihoods = bench_fits(timer, args.rank, args.blocks)
    rows = {" · ".join(map(str, name)): timer.row(name) for name in timer.first}
    checks = bars(timer, likelihoods)

    print(f"{'what · strategy · n · seeds':<48}{'min s':>9}{'median s':>10}{'cpu s':>9}{'first s':>9}")
    for name, row in rows.items():
        print(f"{name:<48}{row['min_s']:>9.3f}{row['median_s']:>10.3f}{row['cpu_s']:>9.3f}{row['first_call_s']:>9.2f}")
    ratio = timer.best(("plan", "hucrl", 400, 1)) / timer.best(("plan", "optimistic", 400, 1))
    print(f"\nhucrl / optimistic, n = 400, one particle each: {ratio:.2f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory: {peak:.0f} MB\n")
    for check in checks:
        verdict = "ok     " if check["ok"] else "MISSED "
        print(f"{verdict}{check['bar']}: {check['value']:.3f} (at most {check['limit']:.3f})")

    result = {
        "plan": {"model_steps": 515 * 10 * 20 * 5, "rank": args.rank},
        "timings": rows,
        "held_out_log_likelihood": likelihoods,
        "hucrl_over_optimistic": ratio,
        "peak_memory_mb": peak,
        "bars": checks,
        "theirs": THEIRS,
        "load_average": os.getloadavg(),
        "machine": {"cpus": os.cpu_count(), "platform": platform.platform(), "jax": jax.__version__},
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nwrote {args.out}")
    if not all(check["ok"] for check in checks):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
