"""docs/benchmarks.md and the pages of the algorithms say what the committed results say."""

import csv

import numpy as np
import pytest

from tests.docs.test_numbers import MBPO, ROOT, agrees, bench, cells, series

TASKS = {name: where for name, where in MBPO.items() if "," not in name} | {
    "humanoid-walk": ("dmc:humanoid-walk", 100_000)
}
PEERS = ("SAC, 2 updates", "TD-MPC2", "DreamerV3", "BRO, 10 updates")


def defaults(task: str, method: str) -> np.ndarray:
    env, frames = TASKS[task]
    at = {"env": env, "metric": "eval/ep_rew_mean", "env_frames": frames}
    return series("mbpo-strong/paper.csv", **at, method=method)[:, 0]


@pytest.mark.parametrize("task", TASKS)
def test_the_defaults_of_mbpo_beside_others(task):
    row = cells("benchmarks.md", task)
    for method, cell in zip(("optimistic", "greedy"), row, strict=False):
        agrees(cell, defaults(task, method))
    with (ROOT / "docs" / "figures" / "published.csv").open() as table:
        published = {(p["env"], p["method"], p["env_frames"]): p for p in csv.DictReader(table)}
    for peer, cell in zip(PEERS, row[2:], strict=True):
        found = published.get((TASKS[task][0], peer, "100000"))
        assert cell == (f"{float(found['mean']):.0f} ± {float(found['std']):.0f}" if found else "")


@pytest.mark.parametrize("task", TASKS)
def test_the_page_of_mbpo(task):
    name = "MountainCar, 25k frames" if task == "MountainCar" else task
    for method, cell in zip(("optimistic", "greedy"), cells("algorithms/mbpo.md", name), strict=True):
        agrees(cell, defaults(task, method))


@pytest.mark.parametrize(
    ("page", "row", "env"),
    [
        ("benchmarks.md", "MountainCar, 10 episodes of 40 decisions", "mountain-car"),
        ("benchmarks.md", "Pendulum, 20 episodes of 40 decisions", "pendulum"),
        ("algorithms/gp-icem.md", "MountainCar, regret", "mountain-car"),
        ("algorithms/gp-icem.md", "Pendulum, regret", "pendulum"),
    ],
)
def test_regret(page, row, env):
    for method, cell in zip(("optimistic", "hucrl", "pets", "greedy"), cells(page, row), strict=True):
        agrees(cell, series("gp-episodic/small.csv", env=env, method=method, metric="regret")[:, -1])


@pytest.mark.parametrize("task", ["MountainCar", "walker-run", "sparse CartPole"])
def test_the_page_of_sac(task):
    env, frames = TASKS[task]
    at = {"env": env, "metric": "eval/ep_rew_mean", "env_frames": frames}
    row = cells("algorithms/sac.md", task)
    for method, cell in zip(("optimistic", "greedy", "sac", "maxinfo-sac"), row, strict=True):
        agrees(cell, series("mbpo-vs-model-free/paper.csv", **at, method=method)[:, 0])


@pytest.mark.parametrize("margin", ["20, dense", "5, sparse", "2, very sparse"])
def test_parking(margin):
    row = cells("benchmarks.md", margin)
    named = [("optimistic", "ours"), ("PETS", "ours"), ("optimistic", "published"), ("PETS", "published")]
    assert row == [cells("reproducing.md", margin, f"{method}, {whose}")[-1] for method, whose in named]


@pytest.mark.parametrize(
    "name", ["from vectors, 190k to 200k frames", "from pixels, 40k to 60k frames", "from vectors, 90k to 100k frames"]
)
def test_dreamer(name):
    for page in ("benchmarks.md", "algorithms/dreamer.md"):
        if f"| {name} |" in (ROOT / "docs" / page).read_text():
            assert cells(page, name) == cells("reproducing.md", name)


def test_speeds():
    steps = bench("sac")["per_gradient_step"]["obs 17, action 6"]
    assert cells("benchmarks.md", "a gradient step of SAC, 17 observations")[:2] == [
        f"{steps[who]['min_ms']:.1f}" for who in ("sombrl", "SBX")
    ]
    mbpo = bench("mbpo")
    assert cells("benchmarks.md", "all that MBPO-Optimistic learns at a decision, Pendulum")[:2] == [
        f"{mbpo['updates_only']['pendulum · optimistic · 1']['min_ms']:.0f}",
        f"{mbpo['theirs']['pendulum']['min_ms']:.0f}",
    ]
    plan = bench("gp_icem")
    ours = plan["timings"]["plan · optimistic, 5 particles · 400 · 1"]["min_s"]
    assert cells("benchmarks.md", "a plan of `gp-icem` with 400 transitions, five particles")[:2] == [
        f"{1000 * ours:.0f}",
        f"{1000 * plan['theirs']['plan_s']['400']:.0f}",
    ]
    car = bench("sim_fsvgd")
    assert cells("benchmarks.md", "a training step of SimFSVGD, kinematic simulator")[:2] == [
        f"{car['rows']['low']['min_ms']:.1f}",
        f"{car['theirs']['low']['min_ms']:.1f}",
    ]
