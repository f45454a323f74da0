"""The paper's theory as functions: information gain, βₙ, λₙ, when to update, regret, fₙ, and the bounds of the proofs.

Each function names the equation or lemma it implements. Compute in float64 (`with jax.enable_x64(True):`).
"""

from sombrl.theory import bonus_weight
from sombrl.theory.bonus_weight import discounted_horizon
from sombrl.theory.bounds import Sides, log_det_lower, log_det_upper
from sombrl.theory.confidence import Coverage, beta, calibration, calibration_curve, required_beta
from sombrl.theory.information_gain import gain_rate, greedy_information_gain, information_gain
from sombrl.theory.regret import Slope, discounted_regret, episodic_regret, loglog_slope, nonepisodic_regret
from sombrl.theory.rkhs import KernelExpansion, project, projected_mean, rkhs_norm
from sombrl.theory.simple_regret import (
    hallucinated_bound,
    hallucinated_growth,
    simple_regret_bound,
    simple_regret_factor,
)
from sombrl.theory.update_rule import ONE_BIT, information, lyapunov_minimum, update_due

__all__ = [
    "ONE_BIT",
    "Coverage",
    "KernelExpansion",
    "Sides",
    "Slope",
    "beta",
    "bonus_weight",
    "calibration",
    "calibration_curve",
    "discounted_horizon",
    "discounted_regret",
    "episodic_regret",
    "gain_rate",
    "greedy_information_gain",
    "hallucinated_bound",
    "hallucinated_growth",
    "information",
    "information_gain",
    "log_det_lower",
    "log_det_upper",
    "loglog_slope",
    "lyapunov_minimum",
    "nonepisodic_regret",
    "project",
    "projected_mean",
    "required_beta",
    "rkhs_norm",
    "simple_regret_bound",
    "simple_regret_factor",
    "update_due",
]
