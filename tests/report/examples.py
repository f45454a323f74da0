"""Runs and tables made by hand, with numbers that are easy to check."""

import json
from pathlib import Path

import numpy as np

from sombrl.storage.results import Row, rows_text

VERSIONS = {"sombrl": "0.1.0", "jax": "0.10.2", "numpy": "2.4.6"}
GIF = bytes.fromhex("47494638396101000100800000ffffff00000021f90401000000002c00000000010001000002024401003b")


def curve(level: float, seed: int, episodes: int) -> np.ndarray:
    """Up to `level` plus a hundredth of the seed, half of the way in every episode."""
    return (level + 0.01 * seed) * (1 - 0.5 ** (1 + np.arange(episodes)))


def write_run(
    path: Path,
    explore: str = "optimistic",
    level: float = 1.0,
    *,
    env: str = "pendulum",
    seeds=(0, 1, 2, 3, 4),
    episodes: int = 10,
    repeat: int = 2,
    versions: dict | None = None,
    counted: bool = True,
    films: bool = False,
    **settings,
) -> Path:
    path.mkdir(parents=True)
    explored = {"explore": explore, "bonus_weight": 10.0} | {k: v for k, v in settings.items() if k == "bonus_weight"}
    rest = {name: value for name, value in settings.items() if name != "bonus_weight"}
    config = {
        "algorithm": "gp-icem",
        "config": {"explore": explored, "gp": {"rank": 8, "kernel": "rbf"} | rest},
        "run": {"env": env, "env_kwargs": [], "action_cost": 0.0, "seed": min(seeds), "seeds": len(seeds)},
    }
    manifest = {
        "created": "2026-01-02T03:04:05+00:00",
        "command": ["sombrl", "train", "gp-icem"],
        "versions": versions or VERSIONS,
        "python": "3.11.7",
        "device": {"platform": "cpu", "kind": "cpu", "count": 1},
        "git": {"commit": "0123456789abcdef", "dirty": False},
    }
    (path / "config.json").write_text(json.dumps(config))
    (path / "manifest.json").write_text(json.dumps(manifest))
    with open(path / "metrics.jsonl", "w") as file:
        for n in range(episodes):
            for seed in seeds:
                counts = {"decisions": 10 * (n + 1), "env_frames": 10 * repeat * (n + 1)} if counted else {}
                row = {
                    **{"iteration": n, "seed": seed, **counts},
                    "rollout/ep_rew_mean": float(curve(level, seed, episodes)[n]),
                    "rollout/average_reward": 0.1 * level,
                    "explore/bonus_weight": 10.0,
                    "explore/bonus_share": 0.5,
                    "explore/mean_std": 1.0 / (n + 1),
                    "model/coverage": 0.9,
                    **{"time/fps": 1.0 if n == 0 else 100.0, "time/fit_s": 2.0, "time/collect_s": 3.0},
                }
                file.write(json.dumps(row) + "\n")
    if films:
        (path / "videos").mkdir()
        (path / "videos" / "swing.gif").write_bytes(GIF)
    return path


def write_table(path: Path, tasks: int = 3, seeds: int = 5, experiment: str = "toy", better: float = 0.5) -> Path:
    """`optimistic` is better than `greedy` by `better` on every task but the last, where it is behind by a tenth."""
    rows = []
    for task in range(tasks):
        for method in ("optimistic", "greedy"):
            ahead = -0.1 if task == tasks - 1 and tasks > 1 else better
            level = 1.0 + (ahead if method == "optimistic" else 0.0)
            for seed in range(seeds):
                for n, value in enumerate(curve(level, seed, 12)):
                    where = (experiment, method, f"world-{task}", "finite-horizon", seed)
                    rows.append(Row(*where, "rollout/ep_rew_mean", 100 * (n + 1), 50 * (n + 1), float(value)))
                    rows.append(Row(*where, "regret", 100 * (n + 1), 50 * (n + 1), float(n)))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(rows_text(rows))
    manifest = {"experiment": experiment, "versions": VERSIONS, "created": "2026-01-02", "command": ["sombrl"]}
    cells = {"world/optimistic": {"seconds": 12.5, "resumed": False, "versions": VERSIONS}}
    path.with_suffix(".json").write_text(json.dumps(manifest | {"cells": cells}))
    return path
