"""MBPO taken apart: mbpo-bonus-ablation, mbpo-lambda-strategies, mbpo-updates and mbpo-dmc-trap."""

from functools import partial
from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment, Headline
from sombrl.paper.experiments.figures import (
    Look,
    Panel,
    draw_grid,
    draw_panel,
    draw_tiles,
    finish,
    new_figure,
    require,
    select,
    title_of,
)
from sombrl.paper.experiments.mbpo import (
    EARNED,
    LAST_EARNED,
    LAST_RETURNS,
    LAST_WEIGHT,
    MBPO_LOOKS,
    METRICS,
    RETURN,
    RETURNS,
    WEIGHT,
    decisions_of,
    mbpo_cell,
    mbpo_config,
)
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row

SEEDS_ABOVE_50 = Headline(RETURN, "seeds above 50", last=3, at_least=50.0)

# mbpo-bonus-ablation

BONUS_CHANGES: dict[str, dict[str, Any]] = {
    "as-published": {},
    "norm": {"explore": {"bonus": "norm"}},
    "information-gain": {"explore": {"bonus": "mean-information-gain"}},
    "scaled-only": {"sac": {"bonus_scale": "scale"}},
    "unscaled": {"sac": {"bonus_scale": "none"}},
    "in-the-reward": {"sac": {"bonus_enters": "reward"}},
}
BONUS_QUESTIONS = {
    "What is it?": ("norm", "information-gain"),
    "How is it scaled?": ("scaled-only", "unscaled"),
    "Where does it enter?": ("in-the-reward",),
}
BONUS_LOOKS = {
    "as-published": Look("mean of σ, z-score, in the target", COLORS[0]),
    "norm": Look("norm of σ", COLORS[1]),
    "information-gain": Look("mean information gain", COLORS[2]),
    "scaled-only": Look("divided by its std", COLORS[4]),
    "unscaled": Look("as it is", COLORS[5]),
    "in-the-reward": Look("in the reward", COLORS[6]),
    "greedy": Look("none", COLORS[3], "-."),
}


def bonus_cells(scale: str) -> list[Cell]:
    """One per change, and one without a bonus."""
    env = "mountain-car" if scale == "small" else "cartpole-sparse"
    configs = {name: mbpo_config("optimistic", env, scale, **changes) for name, changes in BONUS_CHANGES.items()}
    configs["greedy"] = mbpo_config("greedy", env, scale)
    metrics, alike = (*METRICS, "policy/bonus"), ("as-published", "greedy")  # the same except for λ
    return [
        mbpo_cell(name, env, scale, config, metrics=metrics, group=env if name in alike else None)
        for name, config in configs.items()
    ]


def draw_bonus(rows: list[Row]) -> Any:
    """A panel per question, each with the published bonus and with none."""
    require(rows, RETURN)
    figure = new_figure(3.8 * len(BONUS_QUESTIONS), 4.6)
    env = rows[0].env
    for axes, (question, names) in zip(figure.subplots(1, len(BONUS_QUESTIONS)), BONUS_QUESTIONS.items(), strict=True):
        shown = {name: BONUS_LOOKS[name] for name in ("as-published", *names, "greedy")}
        draw_panel(axes, select(rows, env=env), RETURNS, shown)
        axes.set(title=question, xlabel="frames")
    figure.axes[0].set_ylabel(RETURNS.label)
    finish(figure, f"The bonus of MBPO-Optimistic, {title_of(env)}", rows)
    return figure


MBPO_BONUS_ABLATION = Experiment(
    name="mbpo-bonus-ablation",
    summary="the bonus of MBPO: mean, norm or information gain; scaled or not; in the target or in the reward",
    figure="appendix D.1, no figure",
    cells=bonus_cells,
    draw=draw_bonus,
    headlines=(LAST_RETURNS, SEEDS_ABOVE_50, LAST_EARNED, LAST_WEIGHT),
)
"""What the bonus is, how it is scaled and where it enters, one change at a time.

The paper writes λ‖σ‖ and adds it to the reward. The published code takes the mean of σ over the model's outputs, the
reward's included, subtracts its running mean, divides by its running standard deviation, and treats the result as SAC
treats entropy: a part of the critic's target and of the actor's objective. Each step is undone here by itself: the norm
of σ, or MaxInfoRL's information gain; scaled only, so that it is never negative, or as it is; added to the reward. λ
tunes itself in all of them. MBPO-Mean has no bonus.

The paper has no such figure. Sparse CartPole; at scale small MountainCar, where a bonus that can be negative has one
more effect: it may pay for ending the episode early.
"""

# mbpo-lambda-strategies

LAMBDA_LOOKS = {
    "auto": Look("tunes itself, from 1", COLORS[0]),
    "constant-1": Look("λ = 1", COLORS[4]),
    "constant-0.1": Look("λ = 0.1", COLORS[5]),
    "linear": Look("linear, 1 to 0", COLORS[1]),
    "exponential": Look("exponential, 1 to 0.01", COLORS[2]),
    "greedy": Look("none", COLORS[3], "-."),
}
LAMBDA_GROUPS = {"auto": "tuned", "greedy": "tuned", "constant-1": "constant", "constant-0.1": "constant"}


def lambda_cells(scale: str) -> list[Cell]:
    """Every strategy on every environment; schedules count decisions."""
    envs = {"smoke": ("pendulum",), "small": ("mountain-car",), "paper": ("mountain-car", "cartpole-sparse")}
    found: list[Cell] = []
    for env in envs[scale]:
        falling = {"bonus_weight": 1.0, "bonus_weight_steps": decisions_of(env, scale).decisions}
        changes: dict[str, dict[str, Any]] = {
            "auto": {},
            "constant-1": {"schedule": "constant", "bonus_weight": 1.0},
            "constant-0.1": {"schedule": "constant", "bonus_weight": 0.1},
            "linear": {"schedule": "linear", "bonus_weight_end": 0.0, **falling},
            "exponential": {"schedule": "exponential", "bonus_weight_end": 0.01, **falling},
        }
        configs = {name: mbpo_config("optimistic", env, scale, explore=fields) for name, fields in changes.items()}
        configs["greedy"] = mbpo_config("greedy", env, scale)
        for name, config in configs.items():
            group = f"{env}-{LAMBDA_GROUPS[name]}" if name in LAMBDA_GROUPS else None
            found.append(mbpo_cell(name, env, scale, config, group=group))
    return found


def draw_lambda(rows: list[Row]) -> Any:
    """Returns above, λ below."""
    panels = [RETURNS, Panel(WEIGHT, "$λ$", x="env_frames")]
    figure = draw_grid(rows, panels, LAMBDA_LOOKS, title="How λ is chosen, MBPO", xlabel="frames")
    for axes in figure.axes[len(figure.axes) // 2 :]:
        axes.set_yscale("symlog", linthresh=0.01)
    return figure


MBPO_LAMBDA_STRATEGIES = Experiment(
    name="mbpo-lambda-strategies",
    summary="λ of MBPO tuned, constant, falling, or 0",
    figure="section 5.2, no figure",
    cells=lambda_cells,
    draw=draw_lambda,
    headlines=(LAST_RETURNS, SEEDS_ABOVE_50, LAST_EARNED, LAST_WEIGHT),
)
"""How λ is chosen when a policy learns at every decision (sections 5.2 and D.1 of the paper).

λ tuned so that the policy's bonus matches that of its target policy (from 1; the published way), constant (1 and 0.1),
falling from 1 over the run, linearly to 0 or exponentially to 0.01, and none (MBPO-Mean). The bonus is the published
one, which has mean 0 and variance 1, so that λ is in units of reward.

The paper does not compare them. Scale paper: MountainCar and sparse CartPole; small: MountainCar.
"""

# mbpo-updates

UPDATES_LOOKS = {
    "published": Look("5 updates, 1 policy step", MBPO_LOOKS["optimistic"].color),
    "policy-steps": Look("5 updates, 5 policy steps", COLORS[1]),
    "more-updates": Look("10 updates, 10 policy steps", COLORS[2]),
    "more-updates-mean": Look("10 and 10, without the bonus", COLORS[3], "-."),
}


def updates_cells(scale: str) -> list[Cell]:
    """Every schedule with the bonus, and the longest one without."""
    envs = {"smoke": ("pendulum",), "small": ("mountain-car",), "paper": ("cartpole-sparse-short", "walker-run")}
    more = {"policy_every": 1, "updates_per_call": 10}
    found: list[Cell] = []
    for env in envs[scale]:
        configs = {
            "published": mbpo_config("optimistic", env, scale),
            "policy-steps": mbpo_config("optimistic", env, scale, sac={"policy_every": 1}),
            "more-updates": mbpo_config("optimistic", env, scale, sac=more),
            "more-updates-mean": mbpo_config("greedy", env, scale, sac=more),
        }
        for name, config in configs.items():
            group = f"{env}-more" if name.startswith("more") else None
            found.append(mbpo_cell(name, env, scale, config, group=group))
    return found


MBPO_UPDATES = Experiment(
    name="mbpo-updates",
    summary="updates of the model and of the policy per decision, with and without the bonus",
    figure="beside the paper, no figure",
    cells=updates_cells,
    draw=partial(
        draw_tiles, panel=RETURNS, looks=UPDATES_LOOKS, title="How much to learn from a decision", xlabel="frames"
    ),
    headlines=(LAST_RETURNS, LAST_EARNED, LAST_WEIGHT),
)
"""How much to learn from a decision (beside the paper).

The published MBPO-Optimistic does five updates of model and critics per decision and one of the policy, of its
temperature and of λ. Where rewards are sparse this makes it slow: the reward is found early, and then the policy needs
tens of thousands of steps to follow its critics. Compared, all with the bonus:

- published: five updates, one step of the policy;
- policy-steps: five updates, each with a step of the policy;
- more-updates: ten updates, each with a step of the policy (five model steps, as before);

and more-updates-mean, the last one without the bonus, because more updates might do without it.

Sparse CartPole and Walker; at scale small MountainCar with small networks.
"""

# mbpo-dmc-trap

VALUE, ERROR, REWARD_LOSS = "policy/q", "model/rmse", "model/reward_loss"
BRANCHED = {"imagined": "branched"}
TRAP_CHANGES: dict[str, dict[str, Any]] = {
    "one-step-delta": {},
    "one-step-absolute": {"ensemble": {"target": "absolute"}},
    "branched-delta": {"sac": BRANCHED},
    "branched-absolute": {"sac": BRANCHED, "ensemble": {"target": "absolute"}},
    "branched-faint-reward": {"sac": BRANCHED, "ensemble": {"reward_loss_weight": 0.01}},
}
TRAP_LOOKS = {
    "one-step-delta": Look("one step, changes", COLORS[0]),
    "one-step-absolute": Look("one step, next states", COLORS[4], ":"),
    "branched-delta": Look("branched, changes", COLORS[1]),
    "branched-absolute": Look("branched, next states", COLORS[5], ":"),
    "branched-faint-reward": Look("branched, faint reward", COLORS[2]),
    "sac": MBPO_LOOKS["sac"],
}


def trap_cells(scale: str) -> list[Cell]:
    """Every kind of imagined data, and SAC without any."""
    envs = {"smoke": ("cartpole-sparse",), "small": ("cartpole",), "paper": ("walker-run", "hopper-hop")}
    metrics = (EARNED, VALUE, ERROR, REWARD_LOSS)
    found: list[Cell] = []
    for env in envs[scale]:
        configs = {name: mbpo_config("greedy", env, scale, **changes) for name, changes in TRAP_CHANGES.items()}
        found += [mbpo_cell(name, env, scale, config, metrics=metrics) for name, config in configs.items()]
        found.append(mbpo_cell("sac", env, scale, metrics=(EARNED, VALUE)))
    return found


MBPO_DMC_TRAP = Experiment(
    name="mbpo-dmc-trap",
    summary="imagined data of one step or branched, predicted as changes or as states, against SAC",
    figure="beside the paper, no figure",
    cells=trap_cells,
    draw=partial(
        draw_grid,
        panels=[RETURNS, Panel(VALUE, "mean value of the critics", x="env_frames")],
        looks=TRAP_LOOKS,
        title="MBPO on DeepMind Control",
        xlabel="frames",
    ),
    headlines=(
        LAST_RETURNS,
        Headline(VALUE, "mean value", last=3),
        Headline(ERROR, "model RMSE", last=3),
        Headline(REWARD_LOSS, "loss of the reward", last=3),
    ),
)
"""Is MBPO worse than SAC on the DeepMind Control Suite, and why? (beside the paper)

Barkley and Fridovich-Keil (arXiv 2412.14312 and 2510.01457) report that MBPO falls below SAC there, and blame the
model: the reward is learned in one head with next states of another size, which biases the critic low, and predicting
changes of the state inflates the model's variance. A bonus on such a model could not be trusted.

Their first cause cannot occur here: every target is divided by its own standard deviation, and the published
MBPO-Optimistic imagines one next state per stored transition and keeps the stored reward, so that the learned one is
never read. Therefore, all without a bonus, against SAC:

- one step, predicting the change of the state (the default) or the next state itself;
- branched rollouts of five steps with the policy's actions and learned rewards, the original MBPO's data, for both;
- the same, predicting changes, with a reward whose error hardly counts (1/100): what the first cause would do.

The lower panel is the critics' mean value on their last batch: a value that is too low or too high would show first
there. Walker and Hopper; at scale small the dense CartPole with small networks.
"""
