"""mbpo-updates: how much to learn from a decision (beside the paper).

The published MBPO-Optimistic does five updates of model and critics per decision and one of the policy, of its
temperature and of λ. Where rewards are sparse that is what makes it slow: the reward is found early, and then the
policy needs tens of thousands of steps to follow its critics. Hence, all with the bonus:

- published: five updates, one step of the policy;
- policy-steps: five updates, each with a step of the policy;
- more-updates: ten updates, each with a step of the policy (five model steps, as before);

and more-updates-mean, the last one without the bonus, because more updates might do without it.

Sparse CartPole and Walker; at scale small MountainCar with small networks.
"""

from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment, Headline
from sombrl.paper.experiments.figures import Look, draw_tiles
from sombrl.paper.experiments.mbpo import EARNED, MBPO_LOOKS, RETURN, RETURNS, WEIGHT, mbpo_cell, mbpo_config
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row

ENVS = {
    "smoke": ("pendulum",),
    "small": ("mountain-car",),
    "paper": ("cartpole-sparse-short", "walker-run"),
}
POLICY_STEPS = {"policy_every": 1}
MORE_UPDATES = POLICY_STEPS | {"updates_per_call": 10}
LOOKS = {
    "published": Look("5 updates, 1 policy step", MBPO_LOOKS["optimistic"].color),
    "policy-steps": Look("5 updates, 5 policy steps", COLORS[1]),
    "more-updates": Look("10 updates, 10 policy steps", COLORS[2]),
    "more-updates-mean": Look("10 and 10, without the bonus", COLORS[3], "-."),
}


def cells(scale: str) -> list[Cell]:
    """Every schedule with the bonus, and the longest without."""
    found: list[Cell] = []
    for env in ENVS[scale]:
        configs = {
            "published": mbpo_config("optimistic", env, scale),
            "policy-steps": mbpo_config("optimistic", env, scale, sac=POLICY_STEPS),
            "more-updates": mbpo_config("optimistic", env, scale, sac=MORE_UPDATES),
            "more-updates-mean": mbpo_config("greedy", env, scale, sac=MORE_UPDATES),
        }
        found += [
            mbpo_cell(name, env, scale, config, group=f"{env}-more" if name.startswith("more") else None)
            for name, config in configs.items()
        ]
    return found


def draw(rows: list[Row]) -> Any:
    """Returns over frames."""
    return draw_tiles(rows, RETURNS, LOOKS, title="How much to learn from a decision", xlabel="frames")


MBPO_UPDATES = Experiment(
    name="mbpo-updates",
    summary="updates of the model and of the policy per decision, with and without the bonus",
    figure="beside the paper, no figure",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last 3 evaluations", last=3),
        Headline(EARNED, "reward per decision, exploring"),
        Headline(WEIGHT, "last λ"),
    ),
)
