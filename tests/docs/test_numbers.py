"""docs/reproducing.md and docs/performance.md say what the committed results say, row by row."""

import csv
import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from sombrl.paper.experiments import planning_cost
from sombrl.paper.experiments.ladder import report
from sombrl.paper.experiments.rccar import PUBLISHED, PUBLISHED_AT
from sombrl.storage.results import Row, read_rows

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
METHODS = ("optimistic", "hucrl", "pets", "greedy")


def cells(page: str, *starts: str, section: str = "", table: int | None = None) -> list[str]:
    """What stands in a row of a page's (or section's) tables after its first cells, without the stars of the best."""
    text = (ROOT / "docs" / page).read_text()
    text = text.partition(f"\n## {section}")[2].partition("\n## ")[0] if section else text
    lines = [line for line in text.splitlines() if line.startswith(f"| {' | '.join(starts)} |")]
    (line,) = lines if table is None else lines[table : table + 1]
    return [cell.strip().replace("**", "") for cell in line.strip("|").split("|")][len(starts) :]


@functools.cache
def rows(path: str) -> list[Row]:
    return read_rows(RESULTS / path)


def series(path: str, **wanted) -> np.ndarray:
    """Values of one curve, [seeds, iterations]."""
    seeds: dict[int, list[float]] = {}
    for row in rows(path):
        if all(getattr(row, name) == value for name, value in wanted.items()):
            seeds.setdefault(row.seed, []).append(row.value)
    assert seeds, wanted
    return np.array(list(seeds.values()))


def agrees(cell: str, values: np.ndarray) -> None:
    """A cell `median [quartile, quartile]` is that of the values, to its own last digit; brackets may be left out."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", cell)
    assert len(numbers) in (1, 3), cell
    for text, value in zip(numbers, np.percentile(values, [50, 25, 75]), strict=False):
        decimals = len(text.partition(".")[2])
        assert abs(float(text) - value) <= 0.5 * 10**-decimals + 1e-6, (cell, value)


@pytest.mark.parametrize("env", ["MountainCar", "Pendulum"])
def test_gps_with_resets(env):
    name = {"MountainCar": "mountain-car", "Pendulum": "pendulum"}[env]
    returned = cells("reproducing.md", env, "return, last 3 of 20 episodes")
    regretted = cells("reproducing.md", env, "regret R_N")
    for method, cell, regret in zip(METHODS, returned, regretted, strict=False):
        where = {"path": "gp-episodic/paper.csv", "env": name, "method": method}
        agrees(cell, series(**where, metric="rollout/ep_rew_mean")[:, -3:].mean(axis=1))
        agrees(regret, series(**where, metric="regret")[:, -1])
    oracle = series("gp-episodic/paper.csv", env=name, method="oracle", metric="rollout/ep_rew_mean")
    agrees(returned[4], oracle[:, -3:].mean(axis=1))


@pytest.mark.parametrize("env", ["MountainCar", "Pendulum"])
def test_gps_after_random_actions(env):
    name = {"MountainCar": "mountain-car", "Pendulum": "pendulum"}[env]
    row = cells("reproducing.md", f"{env}, after random actions")
    for method, cell in zip(("optimistic", "constant-10", *METHODS[1:]), row, strict=True):
        agrees(cell, series("gp-episodic/small.csv", env=name, method=method, metric="regret")[:, -1])


@pytest.mark.parametrize(
    ("env", "cost"),
    [("MountainCar", "0"), ("MountainCar", "0.2"), *(("Pendulum", cost) for cost in ("0", "0.1", "0.2"))],
)
def test_gps_with_other_costs(env, cost):
    name = {"MountainCar": "mountain-car", "Pendulum": "pendulum"}[env]
    row = cells("reproducing.md", f"{env}, c = {cost}, summed")
    for method, cell in zip(("optimistic", "hucrl", "greedy"), row, strict=True):
        where = {"env": f"{name} action_cost={float(cost)}", "method": method, "metric": "rollout/ep_rew_mean"}
        agrees(cell, series("gp-episodic/small.csv", **where).sum(axis=1))


KEPT = {"MountainCar": "mountain-car", "sparse Pendulum": "pendulum reward=sparse"}
KEPT |= {"deceptive chain": "deceptive-chain", "wall": "wall"}


@pytest.mark.parametrize("task", KEPT)
def test_what_is_kept(task):
    best, *kept = cells("choosing.md", task)
    found = series("found-kept/small.csv", env=KEPT[task], method="optimistic", metric="rollout/ep_rew_mean")
    agrees(best, found.max(axis=1))
    for method, cell, count in zip(("optimistic", "no-value", "greedy"), kept[::2], kept[1::2], strict=True):
        where = {"path": "found-kept/small.csv", "env": KEPT[task], "method": method}
        agrees(cell, series(**where, metric="eval/ep_rew_mean")[:, 0])
        assert count == f"{int(np.sum(series(**where, metric='kept')[:, 0] >= 0.9))}/5"


SAFE = {"Pendulum": "pendulum speed_limit=7", "MountainCar": "mountain-car cliff=-1.1"}
SHIELDED = "Pendulum, policy"
SAFE[SHIELDED] = "pendulum speed_limit=7 mbpo"
WITHIN = {"optimistic": "optimistic", "optimistic within a budget": "safe", "greedy": "greedy"}
WITHIN |= {"greedy within a budget": "safe-greedy", "optimistic, λc = 0": "safe-mean"}


@pytest.mark.parametrize("task", SAFE)
def test_violations_and_what_it_costs_to_have_none(task):
    methods = [name for name in WITHIN if f"| {task} | {name} |" in (ROOT / "docs" / "safety.md").read_text()]
    assert {"optimistic", "optimistic within a budget"} <= set(methods)
    for name in methods:
        rate, clean, earned = cells("safety.md", task, name)
        where = {"path": "safe-exploration/small.csv", "env": SAFE[task], "method": WITHIN[name]}
        agrees(rate, series(**where, metric="safety/violations_per_1000")[:, -1])
        without = series(**where, metric="without violation")[:, 0]
        assert clean == f"{int(without.sum())}/{len(without)}"
        paid = "average_reward" if task == SHIELDED else "ep_rew_mean"
        agrees(earned, series(**where, metric=f"rollout/{paid}")[:, -3:].mean(axis=1))


LADDER = {"MountainCar": "MountainCarContinuous-v0", "sparse Pendulum": "pendulum reward=sparse"}
LADDER |= {"deceptive chain": "deceptive-chain", "sparse CartPole": "dmc:cartpole-swingup_sparse"}
LADDER |= {"ball in cup": "dmc:ball_in_cup-catch", "reacher, easy": "dmc:reacher-easy"}
LADDER |= {"CartPole": "dmc:cartpole-swingup", "point mass": "dmc:point_mass-easy"}


@pytest.mark.parametrize("task", LADDER)
def test_the_ladder(task):
    for method, cell in zip(("optimistic", "greedy", "adaptive", "paper"), cells("ladder.md", task)[1:], strict=True):
        where = {"path": "ladder/paper.csv", "env": LADDER[task], "method": method}
        agrees(cell, series(**where, metric="eval/ep_rew_mean")[:, -3:].mean(axis=1))


def test_the_standings_of_the_ladder():
    said = (ROOT / "docs" / "ladder.md").read_text()
    for line in report(list(rows("ladder/paper.csv"))).splitlines():
        assert line in said, line


PICTURES = {"MountainCar": "mountain-car", "wall": "wall", "corridor": "corridor", "key and door": "key-door"}
SIGMAS = {"as published": "optimistic", "of the features, rescaled": "features"}
SIGMAS |= {"of the recurrent state, rescaled": "recurrent", "Dreamer, no bonus": "greedy"}


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("world", PICTURES)
def test_what_is_found_from_pictures(world, sigma):
    found, after, end, best, rank = cells("dreamer.md", world, sigma)
    where = {"path": "dreamer-sparse-pixels/paper.csv", "env": f"pixel:{PICTURES[world]}", "method": SIGMAS[sigma]}
    returns = series(**where, metric="rollout/ep_rew_mean")
    paid = [row.max() > 0 for row in returns]
    assert found == f"{sum(paid)}/{len(paid)}" and best.split() == [f"{row.max():.0f}" for row in returns]
    agrees(end, series(**where, metric="eval/ep_rew_mean")[:, -1])
    if any(paid):
        agrees(after, series(**where, metric="decisions until found")[:, 0])
    if sigma != "Dreamer, no bonus":
        agrees(rank, series(**where, metric="eval/sigma_rank_latent")[:, -1])


SIGNS, GOING_ON = ("pessimistic", "greedy", "optimistic"), ("continued", "data-alone", "over")


@pytest.mark.parametrize("data", ["random", "mixed", "medium", "expert"])
def test_what_each_sign_learns_from_data(data):
    own, *found = cells("offline.md", data, section="What it is worth", table=0)
    where = {"path": "offline-sign/small.csv", "env": f"pendulum data={data}", "metric": "eval/ep_rew_mean"}
    agrees(own, series(**where, method="data")[:, 0])
    for method, end, way in zip(SIGNS, found[:3], found[3:], strict=True):
        agrees(end, series(**where, method=method)[:, -1])
        agrees(way, series(**where, method=method).mean(axis=1))


@pytest.mark.parametrize("data", ["random", "mixed", "medium"])
def test_what_going_on_from_data_is_worth(data):
    found = cells("offline.md", data, section="What it is worth", table=1)
    where = {"path": "offline-to-online/small.csv", "env": f"pendulum data={data}", "metric": "eval/ep_rew_mean"}
    for method, end, way in zip(GOING_ON, found[:3], found[3:], strict=True):
        agrees(end, series(**where, method=method)[:, -1])
        agrees(way, series(**where, method=method).mean(axis=1))


DRIFTED = {"Pendulum, motor reversed": "pendulum torque=-1", "Pendulum, motor at half": "pendulum torque=0.5"}


@pytest.mark.parametrize(("data", "method"), [("all", "all"), ("the last three episodes", "window")])
@pytest.mark.parametrize("task", DRIFTED)
def test_what_a_window_is_worth(task, data, method):
    score, recovered, until, regret = cells("drift.md", task, data)
    where = {"path": "drift/small.csv", "env": DRIFTED[task], "method": method}
    agrees(score, series(**where, metric="score")[:, -3:].mean(axis=1))
    found = series(**where, metric="recovered")[:, 0]
    assert recovered == f"{int(found.sum())}/{len(found)}"
    if found.any():
        agrees(until, series(**where, metric="episodes until recovered")[:, 0])
    agrees(regret, series(**where, metric="dynamic_regret")[:, -1])


@pytest.mark.parametrize("cost", ["0.0", "0.1", "0.2"])
@pytest.mark.parametrize("env", ["MountainCar", "Pendulum"])
def test_gps_without_resets(env, cost):
    name = {"MountainCar": "mountain-car", "Pendulum": "pendulum"}[env]
    row = cells("reproducing.md", f"{env}, c = {cost}")
    for method, cell in zip(METHODS, row, strict=True):
        wanted = {"env": f"{name} action_cost={cost}", "method": method, "metric": "rollout/regret"}
        agrees(cell, series("gp-nonepisodic/paper.csv", **wanted)[:, -1])


@pytest.mark.parametrize("env", ["MountainCar", "Pendulum"])
def test_gps_without_resets_after_random_actions(env):
    name = {"MountainCar": "mountain-car", "Pendulum": "pendulum"}[env]
    row = cells("reproducing.md", f"{env}, a random start")
    for method, cell in zip(("optimistic", "constant-10", *METHODS[1:]), row, strict=True):
        where = {"env": name, "method": method, "metric": "rollout/regret"}
        agrees(cell, series("gp-nonepisodic/small.csv", **where)[:, -1])


MBPO = {
    "MountainCar": ("MountainCarContinuous-v0", 25_000),
    "sparse CartPole": ("dmc:cartpole-swingup_sparse", 100_000),
    "sparse CartPole, 200k": ("dmc:cartpole-swingup_sparse", 200_000),
    "reacher-hard": ("dmc:reacher-hard", 100_000),
    "finger-spin": ("dmc:finger-spin", 100_000),
    "hopper-hop": ("dmc:hopper-hop", 100_000),
    "walker-run": ("dmc:walker-run", 100_000),
    "quadruped-run": ("dmc:quadruped-run", 100_000),
    "quadruped-run, 200k": ("dmc:quadruped-run", 200_000),
}


@pytest.mark.parametrize("task", MBPO)
def test_mbpo_and_what_others_have_published(task):
    env, frames = MBPO[task]
    ours = cells("reproducing.md", task, section="Figure 3, left")
    at = {"env": env, "metric": "eval/ep_rew_mean", "env_frames": frames}
    for method, cell in zip(("optimistic", "greedy", "pets"), ours, strict=False):
        agrees(cell, series("mbpo-state/paper.csv", **at, method=method)[:, 0])
    with (ROOT / "docs" / "figures" / "published.csv").open() as table:
        published = {(p["env"], p["method"]): p for p in csv.DictReader(table) if p["env_frames"] == str(frames)}
    for method, cell in zip(("SAC, 2 updates", "TD-MPC2", "BRO, 10 updates"), ours[3:], strict=True):
        row = published.get((env, method))
        assert cell == (f"{row['mean']} ± {row['std']}" if row else "")


@pytest.mark.parametrize("task", ["MountainCar", "walker-run", "sparse CartPole"])
def test_model_free_learners(task):
    env, frames = MBPO[task]
    at = {"env": env, "metric": "eval/ep_rew_mean", "env_frames": frames}
    row = cells("reproducing.md", task, section="Figure 6")
    for method, cell in zip(("optimistic", "greedy", "sac", "maxinfo-sac"), row, strict=True):
        agrees(cell, series("mbpo-vs-model-free/paper.csv", **at, method=method)[:, 0])


@pytest.mark.parametrize("method", ["optimistic", "PETS"])
@pytest.mark.parametrize("margin", ["20, dense", "5, sparse", "2, very sparse"])
def test_the_car(margin, method):
    env, name = f"rc-car margin_factor={margin.split(',')[0]}", method.lower()
    values = series("rccar-margins/paper.csv", env=env, method=name, metric="rollout/ep_rew_mean")
    ours, published = (cells("reproducing.md", margin, f"{method}, {whose}") for whose in ("ours", "published"))
    for episode, cell, theirs in zip((3, 6, 10, 14, 20), ours, published, strict=True):
        agrees(cell, values[:, episode - 1])
        assert float(theirs) == PUBLISHED[env, name][PUBLISHED_AT.index(episode)]


def bench(name: str) -> dict:
    return json.loads((RESULTS / "bench" / f"{name}.json").read_text())


def test_plans():
    timings, theirs = (bench("gp_icem")[part] for part in ("timings", "theirs"))
    for strategy in ("optimistic", "hucrl", "pets", "optimistic, 5 particles"):
        measured = [timings[f"plan · {strategy} · {number} · 1"]["min_s"] for number in (100, 400, 1000, 2000)]
        assert cells("performance.md", strategy) == [f"{seconds:.3f}" for seconds in measured]
    expected = [f"{theirs['plan_s'][number]:.3f}" for number in ("100", "400")]
    assert cells("performance.md", "the authors' code, 5 particles")[:2] == expected
    text = (ROOT / "docs" / "performance.md").read_text()
    fit, default = (timings[f"{name} · 400"]["min_s"] for name in ("refit", "default refit"))
    assert f"takes {fit:.1f} s at the effort of\nthe benchmark and {default:.1f} s" in text
    assert f"the authors' code takes {theirs['refit_s']['400']:.0f} s" in text


def test_decisions_of_mbpo():
    ours = bench("mbpo")
    sizes = {"pendulum": "Pendulum: 3 observations, width 256", "humanoid": "humanoid: 67 observations, width 512"}
    for size, row in sizes.items():
        numbers = [
            ours["updates_only"][f"{size} · {how} · 1"]["min_ms"]
            for how in ("optimistic", "greedy", "greedy, 1 member")
        ]
        expected = [*numbers, ours["theirs"][size]["min_ms"]]
        assert cells("performance.md", row) == [f"{ms:.0f}" for ms in expected]
    h200, seeds = bench("mbpo_h200"), (1, 5, 15)
    updates = [h200["updates_only"][f"cartpole · optimistic · {n}"] for n in seeds]
    loop = [h200["dmc_loop"][f"dmc:cartpole-swingup_sparse · optimistic · {n}"]["min_ms"] for n in seeds]
    table = {
        "random observations: the loop and all updates": [f"{u['min_ms']:.1f}" for u in updates],
        "of these, waiting for the updates": [f"{u['stages_ms']['improve']:.1f}" for u in updates],
        "sparse CartPole, four worker processes": [f"{ms:.1f}" for ms in loop],
    }
    for label, key in (("", ""), (" with one member", ", 1 member")):
        ratios = [h200["optimism"][f"cartpole · {n}"][f"optimistic / greedy{key}"]["min"] for n in seeds]
        table[f"optimism / mean planning{label}"] = [f"{ratio:.2f}" for ratio in ratios]
    for label, expected in table.items():
        assert cells("performance.md", label) == expected


def test_gradient_and_training_steps():
    for size, row in (
        ("obs 17, action 6", "17 observations, 6 actions"),
        ("obs 3, action 1", "3 observations, 1 action"),
    ):
        steps = bench("sac")["per_gradient_step"][size]
        assert cells("performance.md", row) == [f"{steps[who]['min_ms']:.1f}" for who in ("sombrl", "SBX", "SB3")]
    car = bench("sim_fsvgd")
    for prior, row in (("low", "kinematic simulator"), ("high", "simulator with tyres")):
        ours = [car["rows"][name]["min_ms"] for name in (prior, f"{prior}, drawn")]
        assert cells("performance.md", row) == [f"{ms:.1f}" for ms in (*ours, car["theirs"][prior]["min_ms"])]


def test_episodes_of_parking():
    for seeds, seconds in bench("parking")["rows"].items():
        row = cells("performance.md", seeds, section="An episode of parking")
        assert row == [f"{seconds[part]:.1f}" for part in ("fit_s", "search_s", "episode_s", "first_episode_s")]


@pytest.mark.parametrize(("task", "row"), [("cartpole", "sparse cartpole"), ("cheetah", "cheetah")])
def test_playground_beside_dm_control(task, row):
    measured = [cells for seeds in (1, 8) for cells in bench("playground")["rows"][f"{task} · {seeds}"].values()]
    shown = cells("performance.md", row, section="Playground beside dm_control")
    assert [float(cell) for cell in shown] == pytest.approx([one["cpu_ms"] for one in measured], rel=0.02)


def test_updates_of_dreamer_on_two_cores():
    updates = bench("dreamer")["updates"]
    greedy, optimistic = (updates[f"proprio · {how} · 1"]["min_ms"] / 1e3 for how in ("greedy", "optimistic"))
    text = (ROOT / "docs" / "performance.md").read_text()
    assert f"takes {greedy:.2f} s, and {optimistic:.2f} s with optimism" in text


@pytest.mark.parametrize(("kind", "name"), [("proprio", "vectors"), ("vision", "pixels")])
def test_dreamer_on_a_gpu(kind, name):
    measured, section = bench("dreamer_h200"), "An update of Dreamer"
    greedy, optimistic = (measured["updates"][f"{kind} · {how} · 1"] for how in ("greedy", "optimistic"))
    times = f"{measured['optimism'][f'{kind} · 1']['min']:.2f}"
    compiled = f"{greedy['compile_s']:.1f} and {optimistic['compile_s']:.1f}"
    expected = [f"{greedy['min_ms']:.1f}", f"{optimistic['min_ms']:.1f}", times, compiled]
    assert cells("performance.md", name, section=section) == expected
    loops = [measured["loop"][f"{kind} · {how}"] for how in ("greedy", "optimistic")]
    per_s = [f"{loop['decisions_per_s']:.0f}" for loop in loops]
    minutes = [loop["minutes_per_100k_decisions"] for loop in loops]
    expected = [*per_s, *(f"{m:.1f}" for m in minutes), f"{minutes[1] / minutes[0]:.2f}"]
    assert cells("performance.md", f"from {name}", section=section) == expected
    assert f"from {name} {minutes[1] / minutes[0]:.2f}" in cells("reproducing.md", "Dreamer-Optimistic / Dreamer")[1]


@pytest.mark.parametrize(("name", "path", "window"), [
    ("from vectors, 90k to 100k frames", "dreamer-proprio/paper.csv", (90_000, 100_000)),
    ("from vectors, 190k to 200k frames", "dreamer-proprio/paper.csv", (190_000, 200_000)),
    ("from pixels, 40k to 60k frames", "dreamer-vision/three-seeds.csv", (40_000, 60_000)),
    ("from pixels, 80k to 100k frames", "dreamer-vision/one-seed.csv", (80_000, 100_000)),
])  # fmt: skip
def test_dreamer_beside_the_published_one(name, path, window):
    found: dict[int, list[float]] = {}
    for row in rows(path):
        if row.metric == "rollout/ep_rew_mean" and window[0] < row.env_frames <= window[1]:
            found.setdefault(row.seed, []).append(row.value)
    with (ROOT / "docs" / "figures" / "published.csv").open() as table:
        (theirs,) = [p for p in csv.DictReader(table) if (p["env"], p["env_frames"]) == (row.env, str(window[1]))]
    ours = " ".join(f"{np.mean(values):.0f}" for values in found.values())
    assert cells("reproducing.md", name) == [ours, f"{theirs['mean']} ± {theirs['std']}"]


def test_an_episode_of_parking_on_a_gpu():
    row = bench("parking_h200")["rows"]["1"]
    text = " ".join((ROOT / "docs" / "performance.md").read_text().split())
    assert f"one car takes {row['episode_s']:.1f} s on an idle H200 (others on it were paused)" in text
    assert f"paused): {row['fit_s']:.1f} of fitting" in text
    assert f"and {row['search_s']:.1f} of searching" in text


def test_seconds_of_gps():
    def measured(env: str, method: str, metric: str) -> float:
        wanted = {"env": env, "method": method, "setting": "1 seed", "metric": f"time/{metric}_s"}
        return float(series("gp-compute-cost/small.csv", **wanted)[0, 0])

    methods = ("optimistic", "hucrl", "greedy")
    run = [f"{measured('pendulum', method, 'warm'):.0f}" for method in methods]
    assert cells("performance.md", "Pendulum, one seed: 20 episodes of 40 decisions")[:3] == run
    for env, row in (("pendulum", "Pendulum, s per decision"), ("mountain-car", "MountainCar, s per decision")):
        assert cells("performance.md", row)[:3] == [f"{measured(env, method, 'decision'):.3f}" for method in methods]


MOTORS = ("a motor per link", "one motor")


def extremes(values: list[float]) -> tuple[float, float]:
    return min(values), max(values)


def span(low: float, high: float) -> str:
    return f"{low:.1f} to {high:.1f}"


def test_what_an_equally_good_plan_costs():
    found = rows("planning-cost/small.csv")
    text = (ROOT / "docs" / "performance.md").read_text()
    for table in (planning_cost.markdown(found), planning_cost.sigma_table(found)):
        assert table in text
    for line in planning_cost.report(found).splitlines()[-2:]:
        assert line in text

    def ratios(metric: str, env: str, setting: str, dims: set[int]) -> list[float]:
        """How many times H-UCRL needs what SOMBRL needs, where half of the seeds get there."""
        where = {"env": env, "setting": setting}
        ours, theirs = (planning_cost.needed(found, metric, method=m, **where) for m in ("optimistic", "hucrl"))
        each = [np.median(theirs[dim]) / np.median(ours[dim]) for dim in dims]
        return [float(value) for value in each if np.isfinite(value)]

    dims, samples = {2, 4, 8, 12, 20}, "plan/samples_90"
    for metric, said in (
        (samples, "1.2 to 34.5 times as many for 90 %"),
        ("plan/samples_95", "95 % 2.3 to 19.8 times"),
    ):
        all_of_them = [r for env in ("masses", "pendulums") for m in MOTORS for r in ratios(metric, env, m, dims)]
        assert said in text and span(min(all_of_them), max(all_of_them)) in said
    each, one = MOTORS
    assert span(*extremes(ratios(samples, "masses", each, dims - {2}))) == "1.8 to 2.1"
    assert span(*extremes(ratios(samples, "pendulums", each, dims))) == "3.8 to 7.9"
    assert span(*extremes(ratios(samples, "masses", one, dims - {2}))) == "2.2 to 6.0"
    assert not ratios(samples, "pendulums", one, {8, 12, 20})
    few = [
        planning_cost.needed(found, samples, env=env, setting=one, method="optimistic")
        for env in ("masses", "pendulums")
    ]
    assert extremes([float(np.median(values)) for seeds in few for values in seeds.values()]) == (200, 600)
    assert text.count("1.8 to 2.1") == text.count("3.8 to 7.9") == text.count("200 to 600 samples") == 1
    assert (ROOT / "docs" / "reproducing.md").read_text().count("1.2 to 34.5") == 2
