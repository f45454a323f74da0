"""mbpo-dmc-trap: is MBPO worse than SAC on the DeepMind Control Suite, and why? (beside the paper)

Barkley and Fridovich-Keil (arXiv 2412.14312 and 2510.01457) report that MBPO falls below SAC there, and blame the
model: the reward is learned in one head with next states of another size, which biases the critic low, and predicting
changes of the state inflates the model's variance. A bonus on such a model would be built on sand.

Their first cause cannot happen here as it stands: every target is divided by its own standard deviation. And the
published MBPO-Optimistic imagines one next state per stored transition and keeps the stored reward, so that the learned
one is never read. Hence, all without a bonus, against SAC:

- one step, predicting the change of the state (the default) or the next state itself;
- branched rollouts of five steps with the policy's actions and learned rewards, the original MBPO's data, for both;
- the same, predicting changes, with a reward whose error hardly counts (1/100): what the first cause would do.

The lower panel is the critics' mean value on their last batch: too low or too high is where the trap would show first.

Walker and Hopper; at scale small the dense CartPole with small networks.
"""

from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment, Headline
from sombrl.paper.experiments.figures import Look, Panel, draw_grid
from sombrl.paper.experiments.mbpo import EARNED, MBPO_LOOKS, RETURN, RETURNS, mbpo_cell, mbpo_config
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row

VALUE, ERROR, REWARD_LOSS = "policy/q", "model/rmse", "model/reward_loss"
ENVS = {"smoke": ("cartpole-sparse",), "small": ("cartpole",), "paper": ("walker-run", "hopper-hop")}
BRANCHED = {"imagined": "branched"}
CHANGES: dict[str, dict[str, Any]] = {
    "one-step-delta": {},
    "one-step-absolute": {"ensemble": {"target": "absolute"}},
    "branched-delta": {"sac": BRANCHED},
    "branched-absolute": {"sac": BRANCHED, "ensemble": {"target": "absolute"}},
    "branched-faint-reward": {"sac": BRANCHED, "ensemble": {"reward_loss_weight": 0.01}},
}
LOOKS = {
    "one-step-delta": Look("one step, changes", COLORS[0]),
    "one-step-absolute": Look("one step, next states", COLORS[4], ":"),
    "branched-delta": Look("branched, changes", COLORS[1]),
    "branched-absolute": Look("branched, next states", COLORS[5], ":"),
    "branched-faint-reward": Look("branched, faint reward", COLORS[2]),
    "sac": MBPO_LOOKS["sac"],
}


def cells(scale: str) -> list[Cell]:
    """Every kind of imagined data, and none."""
    found: list[Cell] = []
    for env in ENVS[scale]:
        configs = {name: mbpo_config("greedy", env, scale, **changes) for name, changes in CHANGES.items()}
        metrics = (EARNED, VALUE, ERROR, REWARD_LOSS)
        found += [mbpo_cell(name, env, scale, config, metrics=metrics) for name, config in configs.items()]
        found.append(mbpo_cell("sac", env, scale, metrics=(EARNED, VALUE)))
    return found


def draw(rows: list[Row]) -> Any:
    """Returns above, what the critics believe below."""
    panels = [RETURNS, Panel(VALUE, "mean value of the critics", x="env_frames")]
    return draw_grid(rows, panels, LOOKS, title="MBPO on DeepMind Control", xlabel="frames")


MBPO_DMC_TRAP = Experiment(
    name="mbpo-dmc-trap",
    summary="imagined data of one step or branched, predicted as changes or as states, against SAC",
    figure="beside the paper, no figure",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last 3 evaluations", last=3),
        Headline(VALUE, "mean value", last=3),
        Headline(ERROR, "model RMSE", last=3),
        Headline(REWARD_LOSS, "loss of the reward", last=3),
    ),
)
