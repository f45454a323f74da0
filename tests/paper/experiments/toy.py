"""The smallest experiment: one run of two seeds, and cells that only compute. As a script it is a command line."""

import dataclasses
import os
import sys
import time
from pathlib import Path

from sombrl.paper.experiments.base import Evaluation, Experiment, FunctionCell, Headline, TrainCell
from sombrl.paper.experiments.figures import LOOKS, Panel, draw_grid
from sombrl.paper.experiments.gp import SMOKE_GP, SMOKE_PLAN, episodes_of, gp_config

RETURN = "rollout/ep_rew_mean"


def squares(method: str, numbers: int) -> list[dict]:
    """Rows; those of hucrl take as long as a file is there, so that a test can act meanwhile."""
    if method == "hucrl" and "TOY_WAIT" in os.environ:
        Path(os.environ["TOY_WAIT"] + ".waiting").touch()
        while Path(os.environ["TOY_WAIT"]).exists():
            time.sleep(0.01)
    where = {"method": method, "env": "pendulum", "setting": "finite-horizon"}
    return [
        where | {"seed": seed, "metric": RETURN, "env_frames": n, "decisions": n, "value": 0.1 * n**2 + seed}
        for n in range(numbers)
        for seed in range(2)
    ]


def cells(scale: str) -> list:
    config = dataclasses.replace(gp_config("optimistic", "pendulum", "smoke"), gp=SMOKE_GP, icem=SMOKE_PLAN)
    run = episodes_of("pendulum", "smoke")
    evaluation = Evaluation(1, every=2)
    return [
        FunctionCell("quick", squares, {"method": "greedy", "numbers": 4}),
        TrainCell("pendulum/run", "optimistic", "pendulum", run, config, evaluation=evaluation),
        FunctionCell("slow", squares, {"method": "hucrl", "numbers": 4}),
    ]


def draw(rows):
    return draw_grid(rows, [Panel(RETURN, "return")], LOOKS, title="A toy", xlabel="episode")


TOY = Experiment("toy", "a toy", "no figure", cells, draw, (Headline(RETURN, "return"),))


if __name__ == "__main__":
    from sombrl.cli.main import main
    from sombrl.paper.experiments import EXPERIMENTS
    from tests.paper.experiments import toy  # under its real name, which is part of the settings

    EXPERIMENTS["toy"] = toy.TOY
    main(["experiment", "toy", "--scale", "smoke", *sys.argv[1:]])
