"""dreamer-atari: Dreamer-Optimistic against Dreamer on games whose rewards are hard to find (figure 7 of the paper).

Venture first, on which DreamerV3 earns nothing in 200 million frames; then Freeway, Montezuma's Revenge and Frostbite.
Evaluated by whole games, because they have no fixed length, with sampled actions, as published.

Differs from the paper, which does not say how its Venture is set up: here the games are as in the Atari 100k benchmark
(64 x 64 pixels in colour, no sticky actions), with its budget of 100k decisions at scale paper. There Venture is also
as in the benchmark of 200 million frames (96 x 96 in grey, sticky actions), with its replay ratio and the same budget.
"""

from typing import Any

from sombrl.paper.experiments.base import Cell, Evaluation, Experiment, Headline
from sombrl.paper.experiments.dreamer import DREAMER_LOOKS, EARNED, METHODS, SHARE, WEIGHT, dreamer_cell, dreamer_config
from sombrl.paper.experiments.figures import Panel, draw_tiles
from sombrl.storage.results import Row

GAMES = {
    "smoke": ("atari:Venture",),
    "small": ("atari:Venture",),
    "paper": ("atari:Venture", "atari:Freeway", "atari:MontezumaRevenge", "atari:Frostbite"),
}
DECISIONS = {"smoke": None, "small": 2000, "paper": 100_000}
EVALUATIONS = {
    "smoke": Evaluation(1, explore=True),
    "small": Evaluation(1, explore=True),
    "paper": Evaluation(3, every=40, explore=True),  # a game that stands still takes 27000 decisions
}
RETURNS = Panel("eval/ep_rew_mean", "return of a game", x="env_frames")


def cells(scale: str) -> list[Cell]:
    """Both methods on every game."""
    fields: dict[str, Any] = {"envs": 1} if scale == "paper" else {}
    setups: list[tuple[str, tuple[str, ...]]] = [(game, ()) for game in GAMES[scale]]
    if scale == "paper":
        setups.append(("atari:Venture", ("protocol=atari200m",)))
    return [
        dreamer_cell(
            *(method, game, scale, dreamer_config(method, scale, **fields)),
            env_kwargs=options,
            decisions=DECISIONS[scale],
            evaluation=EVALUATIONS[scale],
        )
        for game, options in setups
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
        Headline("eval/ep_rew_mean", "return of a game"),
        Headline(EARNED, "reward per decision, exploring"),
        Headline(WEIGHT, "last λ"),
        Headline(SHARE, "last bonus share"),
    ),
)
