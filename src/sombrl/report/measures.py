"""Which metrics a report knows: those that methods are compared by, and those that explain what happened."""

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Measure:
    """A metric that says which of two methods is better."""

    metric: str
    label: str
    higher: bool = True
    """Whether more is better."""
    running: bool = False
    """Whether it sums up everything so far: then its last value is the score, not a mean over the last ones."""

    @property
    def direction(self) -> str:
        """The direction in words."""
        return "higher is better" if self.higher else "lower is better"


@dataclasses.dataclass(frozen=True)
class SmallChart:
    """A metric that is drawn over time to explain what happened; methods are not compared by it."""

    metric: str
    title: str
    reference: float | None = None
    """A value that gets a horizontal line."""


RETURNS = (
    Measure("eval/ep_rew_mean", "return without exploring"),
    Measure("rollout/ep_rew_mean", "return of an episode"),
    Measure("rollout/discounted_return", "discounted return of an episode"),
    Measure("rollout/average_reward", "reward per decision so far", running=True),
)
COSTS = (
    Measure("rollout/regret", "regret", higher=False, running=True),
    Measure("regret", "regret", higher=False, running=True),
    Measure("lab/regret", "regret", higher=False, running=True),
    Measure("eval/max_uncertainty", "uncertainty that is left", higher=False),
    Measure("nll", "negative log-likelihood", higher=False),
    Measure("rmse", "root mean squared error", higher=False),
    Measure("time/decision_s", "seconds per decision", higher=False),
)
DMC_RANGE = (0.0, 1000.0)
"""Of every task of the DeepMind Control suite: 1000 frames that pay between 0 and 1."""

REGRET_CHARTS = (
    SmallChart("rollout/regret", "regret so far"),
    SmallChart("regret", "regret so far"),
    SmallChart("lab/regret", "regret so far"),
    SmallChart("rollout/average_reward", "reward per decision so far"),
)
EXPLORATION_CHARTS = (
    SmallChart("explore/bonus_weight", "λ, weight of the bonus"),
    SmallChart("policy/bonus_weight", "λ, weight of the bonus, as tuned"),
    SmallChart("explore/bonus_share", "bonus share of the objective"),
    SmallChart("explore/mean_std", "mean ‖σ‖ on visited states"),
    SmallChart("explore/uncertainty", "Σ‖σ‖ of an episode"),
    SmallChart("eval/max_uncertainty", "largest Σ‖σ‖ that is left"),
    SmallChart("bounds/return", "J, the return that the model expected"),
    SmallChart("bounds/uncertainty", "Σ‖σ‖ that it expected on the way"),
    SmallChart("bounds/gap", "J⁺ of the optimistic over J⁻ of the greedy plan"),
    SmallChart("model/coverage", "calibration: coverage of ±2σ", reference=0.95),
    SmallChart("calibration", "calibration"),
    SmallChart("model/rmse", "model error (RMSE, normalised)"),
    SmallChart("model/nll", "model error (NLL)"),
)

AXES = {"regression": "training rows"}
"""What the counts of a table mean if they are not frames, by its setting."""


def candidates(metrics: Iterable[str], setting: str) -> list[Measure]:
    """The measures among some metrics, the preferred one first. For an unsupervised run these are its test tasks."""
    metrics = list(dict.fromkeys(metrics))
    known = {measure.metric for measure in (*RETURNS, *COSTS)}
    tasks = [Measure(m, f"return on {m[5:]}") for m in metrics if m.startswith("eval/") and m not in known]
    listed = [measure for measure in (*RETURNS, *COSTS) if measure.metric in metrics]
    return tasks + listed if setting == "unsupervised" else listed + tasks
