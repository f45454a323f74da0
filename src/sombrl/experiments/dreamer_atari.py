"""dreamer-atari: Dreamer-Optimistic against Dreamer on games whose rewards are hard to find (figure 7 of the paper).

Venture first, on which DreamerV3 earns nothing in 200 million frames; then Freeway, Montezuma's Revenge and Frostbite.
Evaluated by whole games, because they have no fixed length, with sampled actions, as published.

Differs from the paper, which does not say how its Venture is set up: here it is as in the Atari 100k benchmark (64 x 64
pixels in colour, no sticky actions), with its budget of 100k decisions at scale paper.
"""

from typing import Any

from sombrl.experiments.base import Cell, Evaluation, Experiment, Headline
from sombrl.experiments.dreamer import DREAMER_LOOKS, EARNED, METHODS, SHARE, WEIGHT, dreamer_cell, dreamer_config
from sombrl.experiments.figures import Panel, draw_tiles
from sombrl.results import Row

GAMES = {
    "smoke": ("atari:Venture",),
    "small": ("atari:Venture",),
    "paper": ("atari:Venture", "atari:Freeway", "atari:MontezumaRevenge", "atari:Frostbite"),
}
RATIO = 256.0  # of the Atari 100k benchmark
DECISIONS = {"smoke": None, "small": 2000, "paper": 100_000}
EVALUATIONS = {
    "smoke": Evaluation(1, explore=True),
    "small": Evaluation(1, explore=True),
    "paper": Evaluation(3, every=40, explore=True),  # a game that stands still takes 27000 decisions
}
RETURNS = Panel("eval/ep_rew_mean", "return of a game", x="env_frames")


def cells(scale: str) -> list[Cell]:
    """Both methods on every game."""
    fields: dict[str, Any] = {"ratio": RATIO, "envs": 1} if scale == "paper" else {}
    return [
        dreamer_cell(
            *(method, game, scale, dreamer_config(method, scale, **fields)),
            decisions=DECISIONS[scale],
            evaluation=EVALUATIONS[scale],
        )
        for game in GAMES[scale]
        for method in METHODS
    ]


def draw(rows: list[Row]) -> Any:
    """Returns over frames."""
    return draw_tiles(rows, RETURNS, DREAMER_LOOKS, title="Dreamer on Atari", xlabel="frames")


DREAMER_ATARI = Experiment(
    name="dreamer-atari",
    summary="Dreamer-Optimistic against Dreamer on Venture and other games that are hard to explore",
    figure="figure 7, Venture",
    cells=cells,
    draw=draw,
    headlines=(
        Headline("eval/ep_rew_mean", "return without exploring"),
        Headline(EARNED, "reward per decision, exploring"),
        Headline(WEIGHT, "last λ"),
        Headline(SHARE, "last bonus share"),
    ),
)
