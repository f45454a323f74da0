"""mbpo-bonus-ablation: what the bonus is, how it is scaled and where it enters, one change at a time.

The paper writes λ‖σ‖ and adds it to the reward. The published code takes the mean of σ over the model's outputs, the
reward's included, subtracts its running mean, divides by its running standard deviation, and treats the result as SAC
treats entropy: a part of the critic's target and of the actor's objective. Each step is undone here by itself: the norm
of σ, or MaxInfoRL's information gain; scaled only, so that it is never negative, or as it is; added to the reward. λ
tunes itself in all of them. MBPO-Mean has no bonus.

Ours alone: the paper has no such figure. Sparse CartPole; at scale small MountainCar, where a bonus that can be
negative has one more effect: it may pay for ending the episode early.
"""

from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment, Headline
from sombrl.paper.experiments.figures import Look, draw_panel, finish, new_figure, require, select, title_of
from sombrl.paper.experiments.mbpo import EARNED, METRICS, RETURN, RETURNS, WEIGHT, mbpo_cell, mbpo_config
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row

ENV = {"smoke": "cartpole-sparse", "small": "mountain-car", "paper": "cartpole-sparse"}
CHANGES: dict[str, dict[str, Any]] = {
    "as-published": {},
    "norm": {"explore": {"bonus": "norm"}},
    "information-gain": {"explore": {"bonus": "mean-information-gain"}},
    "scaled-only": {"sac": {"bonus_scale": "scale"}},
    "unscaled": {"sac": {"bonus_scale": "none"}},
    "in-the-reward": {"sac": {"bonus_enters": "reward"}},
}
QUESTIONS = {
    "What is it?": ("norm", "information-gain"),
    "How is it scaled?": ("scaled-only", "unscaled"),
    "Where does it enter?": ("in-the-reward",),
}
LOOKS = {
    "as-published": Look("mean of σ, z-score, in the target", COLORS[0]),
    "norm": Look("norm of σ", COLORS[1]),
    "information-gain": Look("mean information gain", COLORS[2]),
    "scaled-only": Look("divided by its std", COLORS[4]),
    "unscaled": Look("as it is", COLORS[5]),
    "in-the-reward": Look("in the reward", COLORS[6]),
    "greedy": Look("none", COLORS[3], "-."),
}


def cells(scale: str) -> list[Cell]:
    """One per change, and none at all."""
    env = ENV[scale]
    configs = {name: mbpo_config("optimistic", env, scale, **changes) for name, changes in CHANGES.items()}
    configs["greedy"] = mbpo_config("greedy", env, scale)
    metrics, alike = (*METRICS, "policy/bonus"), ("as-published", "greedy")  # alike but for λ
    return [
        mbpo_cell(name, env, scale, config, metrics=metrics, group=env if name in alike else None)
        for name, config in configs.items()
    ]


def draw(rows: list[Row]) -> Any:
    """A panel per question, each with the published bonus and with none."""
    require(rows, RETURN)
    figure = new_figure(3.8 * len(QUESTIONS), 4.6)
    env = rows[0].env
    for axes, (question, names) in zip(figure.subplots(1, len(QUESTIONS)), QUESTIONS.items(), strict=True):
        shown = {name: LOOKS[name] for name in ("as-published", *names, "greedy")}
        draw_panel(axes, select(rows, env=env), RETURNS, shown)
        axes.set(title=question, xlabel="frames")
    figure.axes[0].set_ylabel(RETURNS.label)
    finish(figure, f"The bonus of MBPO-Optimistic, {title_of(env)}", rows)
    return figure


MBPO_BONUS_ABLATION = Experiment(
    name="mbpo-bonus-ablation",
    summary="the bonus of MBPO: mean, norm or information gain; scaled or not; in the target or in the reward",
    figure="appendix D.1, no figure",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last 3 evaluations", last=3),
        Headline(RETURN, "seeds above 50", last=3, at_least=50.0),
        Headline(EARNED, "reward per decision, exploring"),
        Headline(WEIGHT, "last λ"),
    ),
)
