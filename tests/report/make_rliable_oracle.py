"""Numbers of the rliable package for test_statistics.py, as rliable_oracle.json beside this file.

rliable needs pandas < 3, which nothing else here does, so it has an environment of its own:

    python -m venv rliable-venv
    rliable-venv/bin/pip install rliable "pandas<3"
    rliable-venv/bin/python tests/report/make_rliable_oracle.py
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
from rliable import library, metrics

SHAPES = [(3, 1), (4, 2), (5, 8), (10, 8), (7, 3)]  # runs, tasks: also some whose quarter is no whole number
REPS = 20_000
THRESHOLDS = np.linspace(0.0, 1.2, 13)


def case(runs: int, tasks: int, rng: np.random.Generator) -> dict:
    """Two methods' scores, with ties in them, and everything rliable says about them."""
    ours = np.round(rng.beta(2.0, 1.5, size=(runs, tasks)) * rng.uniform(0.5, 1.3, size=tasks), 2)
    theirs = np.round(rng.beta(1.5, 2.0, size=(runs + 1, tasks)), 2)
    statistics = {
        "iqm": metrics.aggregate_iqm,
        "mean": metrics.aggregate_mean,
        "median": metrics.aggregate_median,
        "optimality_gap": metrics.aggregate_optimality_gap,
    }
    points, ends = library.get_interval_estimates(
        {"ours": ours},
        lambda scores: np.array([statistic(scores) for statistic in statistics.values()]),
        reps=REPS,
        random_state=np.random.RandomState(0),
    )
    better, better_ends = library.get_interval_estimates(
        {"pair": (ours, theirs)},
        metrics.probability_of_improvement,
        reps=REPS // 10,  # a Mann-Whitney test per task and resampling
        random_state=np.random.RandomState(1),
    )
    profile, profile_ends = library.create_performance_profile(
        {"ours": ours}, list(THRESHOLDS), reps=REPS // 10, use_score_distribution=True
    )
    return {
        "ours": ours.tolist(),
        "theirs": theirs.tolist(),
        "statistics": {
            name: {"point": float(points["ours"][i]), "ends": ends["ours"][:, i].tolist()}
            for i, name in enumerate(statistics)
        },
        "probability_of_improvement": {
            "point": float(np.squeeze(better["pair"])),
            "ends": np.ravel(better_ends["pair"]).tolist(),
        },
        "profile": {"points": profile["ours"].tolist(), "ends": profile_ends["ours"].tolist()},
    }


if __name__ == "__main__":
    rng = np.random.default_rng(20210830)
    oracle = {
        "versions": {name: version(name) for name in ("rliable", "numpy", "scipy", "arch", "pandas")},
        "reps": REPS,
        "thresholds": THRESHOLDS.tolist(),
        "cases": [case(runs, tasks, rng) for runs, tasks in SHAPES],
    }
    out = Path(__file__).with_name("rliable_oracle.json")
    out.write_text(json.dumps(oracle, indent=1) + "\n")
    print(f"wrote {out}")
