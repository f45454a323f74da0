"""rccar-margins: figure 4, right, of the paper (section 6, "Hardware experiments"): parking an RC car.

SimFSVGD-Optimistic against SimFSVGD, whose imagined cars are sampled anew at every step and who has no bonus, on
rewards that are dense (margin factor 20), sparse (5) and sparser (2, 1). λ falls from 0.1 to 0 until the last episode.
The faint lines are the paper's medians, read off its figure; it does not say which factor its "very sparse" is, here it
is drawn beside 2.

Differs from the paper: λ (rccar.py says why); the integrator of the car is a true Runge-Kutta one, past actions are
shown as they are, the model sees the car from the car and is fitted to its prior before the first episode, and the
policy is searched for with fewer and larger updates, from the last policy on. `rccar-ablation` has λ, the frame and the
search as published.
"""

from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment, Headline
from sombrl.paper.experiments.figures import draw_tiles
from sombrl.paper.experiments.rccar import CAR_LOOKS, RETURN, RETURNS, SHARE, SIGMA, car_cell, car_config
from sombrl.storage.results import Row

MARGINS = {"smoke": (20.0,), "small": (20.0, 5.0), "paper": (20.0, 5.0, 2.0, 1.0)}
METHODS: dict[str, dict[str, Any]] = {"optimistic": {}, "pets": {"explore": "pets"}}

PUBLISHED_AT = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 19, 20)
PUBLISHED = {
    ("rc-car margin_factor=20", "optimistic"): (
        *(3.5, 10.2, 14.9, 27.4, 32.4, 36.3, 41.0, 42.3, 44.8, 44.3, 45.1, 44.4, 44.9, 44.8),
    ),
    ("rc-car margin_factor=20", "pets"): (
        *(3.1, 5.0, 12.9, 24.4, 26.3, 34.2, 40.5, 41.6, 44.4, 44.5, 44.6, 44.1, 44.9, 44.9),
    ),
    ("rc-car margin_factor=5", "optimistic"): (
        *(-0.4, -0.2, -0.1, 0.5, 2.1, 8.1, 17.4, 23.0, 26.6, 27.2, 26.4, 26.5, 28.2, 27.9),
    ),
    ("rc-car margin_factor=5", "pets"): (*(0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.4, 5.2, 15.0, 24.4, 27.6, 27.8, 27.9),),
    ("rc-car margin_factor=2", "optimistic"): (
        *(-0.8, -0.5, -0.3, -0.3, -0.3, -0.3, 0.0, 0.1, 0.1, 1.8, 4.8, 14.6, 15.1, 19.8),
    ),
    ("rc-car margin_factor=2", "pets"): (0.1,) * 14,
}
"""The paper's medians at the episodes of `PUBLISHED_AT`, digitised."""


def cells(scale: str) -> list[Cell]:
    """Both methods at every margin."""
    return [
        car_cell(method, margin, scale, car_config(scale, explore))
        for margin in MARGINS[scale]
        for method, explore in METHODS.items()
    ]


def draw(rows: list[Row]) -> Any:
    """Returns over episodes, the published ones behind them."""
    figure = draw_tiles(rows, RETURNS, CAR_LOOKS, title="Parking an RC car", xlabel="episode")
    envs = list(dict.fromkeys(row.env for row in rows))
    for axes, env in zip(figure.axes, envs, strict=False):
        for method, look in CAR_LOOKS.items():
            if (env, method) in PUBLISHED:
                axes.plot(PUBLISHED_AT, PUBLISHED[env, method], ":", color=look.color, linewidth=1.2, alpha=0.8)
    return figure


RCCAR_MARGINS = Experiment(
    name="rccar-margins",
    summary="SimFSVGD-Optimistic against SimFSVGD, rewards from dense to very sparse",
    figure="figure 4, right",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last episode"),
        Headline(RETURN, "last 3 episodes", last=3),
        Headline(SHARE, "last bonus share"),
        Headline(SIGMA, "last mean ‖σ‖"),
    ),
)
