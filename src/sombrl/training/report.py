"""A report as rows of metrics, as a line of progress, and what there is to warn of in it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sombrl.envs.interface import EnvSpec
from sombrl.training import bounds
from sombrl.training.base import Report

REWARD_SCALE = (1e-4, 1e3)
"""The largest reward of a decision should be above the first, the root mean square below the second."""
SHOWN = {
    "bonus_weight": ("explore/bonus_weight",),
    "mean_std": ("explore/mean_std",),
    "bonus_share": ("explore/bonus_share",),
    "model_loss": ("model/nll", "model/loss"),
}
"""What the progress line shows, by the metrics that have it, the first that is there."""


def rows(report: Report, seeds: Sequence[int], spec: EnvSpec) -> list[dict[str, Any]]:
    """One row of metrics per seed. Everything but the `time/` fields is reproducible."""
    seconds = sum(report.seconds.values())
    return [
        {
            "iteration": report.iteration,
            "seed": seed,
            "decisions": int(report.decisions[i]),
            "env_frames": int(report.decisions[i]) * spec.action_repeat,
            "rollout/ep_rew_mean": float(report.returns[i]),
            **{name: values[i].item() for name, values in report.columns.items()},
            **{name: float(values[i]) for name, values in report.metrics.items()},
            "time/fps": float(report.taken.sum() / seconds),
            **{f"time/{stage}_s": value for stage, value in report.seconds.items()},
        }
        for i, seed in enumerate(seeds)
    ]


def summary(reports: Sequence[Report]) -> dict[str, Any]:
    """What the progress line shows of trainers side by side: the returns of all, and the first one's numbers."""
    first = reports[0]
    found = {shown: [name for name in names if name in first.metrics] for shown, names in SHOWN.items()}
    rate = first.columns.get("safety/violations_per_1000")
    return {
        **({} if rate is None else {"violations": rate}),
        "iteration": first.iteration,
        "return": np.concatenate([report.returns for report in reports]).tolist(),
        **{shown: first.metrics[names[0]] for shown, names in found.items() if names},
        **_promised(first),
        "decisions_per_s": sum(report.taken.sum() / sum(report.seconds.values()) for report in reports),
    }


def _promised(report: Report) -> dict[str, Any]:
    """J⁻ and J⁺ of the episode with the λ it was planned with, where they were recorded."""
    if bounds.RETURN not in report.metrics:
        return {}
    value, spread = report.metrics[bounds.RETURN], report.metrics["explore/bonus_weight"]
    spread = spread * report.metrics[bounds.UNCERTAINTY]
    return {"low": value - spread, "high": value + spread}


def reward_warning(report: Report, spec: EnvSpec) -> str | None:
    """A sentence, where critics learn from rewards that are too large or too small for them; None otherwise."""
    if report.reward_size is None:
        return None
    largest, typical = report.reward_size
    if largest == 0 or (typical < REWARD_SCALE[1] and largest > REWARD_SCALE[0]):
        return None
    return (
        f"the rewards of {spec.name} are {typical:.3g} in size (root mean square of a decision; largest "
        f"{largest:.3g}), and critics learn best between 0.01 and 10: scale them in the environment."
    )
