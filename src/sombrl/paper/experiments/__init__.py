"""The paper's experiments as data: `sombrl experiment NAME --scale small`.

A new one is an `Experiment` in the file of its family, or in a new file, and a row here.
"""

from sombrl.paper.experiments.base import SCALES, Cell, Evaluation, Experiment, FunctionCell, Headline, TrainCell
from sombrl.paper.experiments.bounds_coverage import BOUNDS_COVERAGE
from sombrl.paper.experiments.dreamer import (
    DREAMER_ACTION_COST,
    DREAMER_ATARI,
    DREAMER_LAMBDA,
    DREAMER_PROPRIO,
    DREAMER_VISION,
)
from sombrl.paper.experiments.dreamer_k_curve import DREAMER_K_CURVE
from sombrl.paper.experiments.dreamer_sigma import DREAMER_SIGMA
from sombrl.paper.experiments.drift import DRIFT
from sombrl.paper.experiments.gp import GP_EPISODIC, LAMBDA_STRATEGIES
from sombrl.paper.experiments.gp_cost import GP_COMPUTE_COST
from sombrl.paper.experiments.gp_kept import FOUND_KEPT
from sombrl.paper.experiments.gp_settings import GP_DISCOUNTED, GP_NONEPISODIC, GP_UNSUPERVISED
from sombrl.paper.experiments.ladder import LADDER_EXPERIMENT
from sombrl.paper.experiments.lambda_rules import LAMBDA_RULES
from sombrl.paper.experiments.mbpo import MBPO_ACTION_COST, MBPO_STATE, MBPO_VS_MODEL_FREE
from sombrl.paper.experiments.mbpo_ablations import (
    MBPO_BONUS_ABLATION,
    MBPO_DMC_TRAP,
    MBPO_LAMBDA_STRATEGIES,
    MBPO_UPDATES,
)
from sombrl.paper.experiments.mbpo_strong import MBPO_STRONG, MBPO_STRONG_ABLATION
from sombrl.paper.experiments.offline import OFFLINE_SIGN, OFFLINE_TO_ONLINE
from sombrl.paper.experiments.planning_cost import PLANNING_COST
from sombrl.paper.experiments.rccar import RCCAR_ABLATION, RCCAR_MARGINS, TOLERANCE_REWARD
from sombrl.paper.experiments.rccar_real import RCCAR_REAL_REGRESSION
from sombrl.paper.experiments.runner import redraw, run_experiment
from sombrl.paper.experiments.safe import SAFE_EXPLORATION
from sombrl.paper.experiments.sparse_pixels import DREAMER_SPARSE_PIXELS
from sombrl.paper.experiments.theory import RKHS_PROJECTION, THEORY_LAB

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        GP_EPISODIC,
        GP_NONEPISODIC,
        GP_DISCOUNTED,
        GP_UNSUPERVISED,
        FOUND_KEPT,
        RKHS_PROJECTION,
        LAMBDA_STRATEGIES,
        THEORY_LAB,
        GP_COMPUTE_COST,
        PLANNING_COST,
        BOUNDS_COVERAGE,
        MBPO_STATE,
        MBPO_VS_MODEL_FREE,
        MBPO_ACTION_COST,
        MBPO_BONUS_ABLATION,
        MBPO_LAMBDA_STRATEGIES,
        MBPO_DMC_TRAP,
        MBPO_UPDATES,
        MBPO_STRONG,
        MBPO_STRONG_ABLATION,
        LADDER_EXPERIMENT,
        OFFLINE_SIGN,
        OFFLINE_TO_ONLINE,
        LAMBDA_RULES,
        SAFE_EXPLORATION,
        DRIFT,
        RCCAR_MARGINS,
        RCCAR_ABLATION,
        RCCAR_REAL_REGRESSION,
        TOLERANCE_REWARD,
        DREAMER_VISION,
        DREAMER_PROPRIO,
        DREAMER_ACTION_COST,
        DREAMER_ATARI,
        DREAMER_LAMBDA,
        DREAMER_SIGMA,
        DREAMER_K_CURVE,
        DREAMER_SPARSE_PIXELS,
    )
}

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "Cell",
    "Evaluation",
    "Experiment",
    "FunctionCell",
    "Headline",
    "TrainCell",
    "redraw",
    "run_experiment",
]
