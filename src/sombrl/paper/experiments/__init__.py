"""The paper's experiments as data: `sombrl experiment NAME --scale small`. A new one is a file and a row here."""

from sombrl.paper.experiments.base import SCALES, Cell, Evaluation, Experiment, FunctionCell, Headline, TrainCell
from sombrl.paper.experiments.dreamer_action_cost import DREAMER_ACTION_COST
from sombrl.paper.experiments.dreamer_atari import DREAMER_ATARI
from sombrl.paper.experiments.dreamer_lambda import DREAMER_LAMBDA
from sombrl.paper.experiments.dreamer_proprio import DREAMER_PROPRIO
from sombrl.paper.experiments.dreamer_vision import DREAMER_VISION
from sombrl.paper.experiments.gp_compute_cost import GP_COMPUTE_COST
from sombrl.paper.experiments.gp_discounted import GP_DISCOUNTED
from sombrl.paper.experiments.gp_episodic import GP_EPISODIC
from sombrl.paper.experiments.gp_nonepisodic import GP_NONEPISODIC
from sombrl.paper.experiments.gp_unsupervised import GP_UNSUPERVISED
from sombrl.paper.experiments.lambda_strategies import LAMBDA_STRATEGIES
from sombrl.paper.experiments.mbpo_action_cost import MBPO_ACTION_COST
from sombrl.paper.experiments.mbpo_bonus_ablation import MBPO_BONUS_ABLATION
from sombrl.paper.experiments.mbpo_dmc_trap import MBPO_DMC_TRAP
from sombrl.paper.experiments.mbpo_lambda_strategies import MBPO_LAMBDA_STRATEGIES
from sombrl.paper.experiments.mbpo_state import MBPO_STATE
from sombrl.paper.experiments.mbpo_updates import MBPO_UPDATES
from sombrl.paper.experiments.mbpo_vs_model_free import MBPO_VS_MODEL_FREE
from sombrl.paper.experiments.rccar_ablation import RCCAR_ABLATION
from sombrl.paper.experiments.rccar_margins import RCCAR_MARGINS
from sombrl.paper.experiments.rccar_real_regression import RCCAR_REAL_REGRESSION
from sombrl.paper.experiments.rkhs_projection import RKHS_PROJECTION
from sombrl.paper.experiments.runner import redraw, run_experiment
from sombrl.paper.experiments.theory_lab import THEORY_LAB
from sombrl.paper.experiments.tolerance_reward import TOLERANCE_REWARD

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        GP_EPISODIC,
        GP_NONEPISODIC,
        GP_DISCOUNTED,
        GP_UNSUPERVISED,
        RKHS_PROJECTION,
        LAMBDA_STRATEGIES,
        THEORY_LAB,
        GP_COMPUTE_COST,
        MBPO_STATE,
        MBPO_VS_MODEL_FREE,
        MBPO_ACTION_COST,
        MBPO_BONUS_ABLATION,
        MBPO_LAMBDA_STRATEGIES,
        MBPO_DMC_TRAP,
        MBPO_UPDATES,
        RCCAR_MARGINS,
        RCCAR_ABLATION,
        RCCAR_REAL_REGRESSION,
        TOLERANCE_REWARD,
        DREAMER_VISION,
        DREAMER_PROPRIO,
        DREAMER_ACTION_COST,
        DREAMER_ATARI,
        DREAMER_LAMBDA,
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
