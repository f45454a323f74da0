"""What the RC-car experiments share: the car, how it is learned at each scale, and how a cell is made.

Scale `paper` has the published model (ten particles of 3 × 64, 512 simulated functions a step), five seeds and 20
episodes of 100 decisions; it is for a GPU. The model sees the car from the car, which needs fewer steps than the
published 40000. A policy is searched for four times side by side, each going on from its own last search: one alone may
miss a very sparse reward for good. λ falls from 0.1 to 0 in the last episode: the paper's falls from 0.5 within
ten, but it does not say in which unit σ is, and in ours (that of the model's normalised outputs) a policy follows 0.5
to the edge of the floor until it has faded. Scale `small` is for two CPU cores: two seeds, six episodes, a sixth of
the model's steps, a quarter of its functions and half of one search. Its curves are an impression.
"""

import dataclasses
from typing import Any

from sombrl.algorithms.sim_fsvgd import SimFSVGDConfig
from sombrl.config.run import RunConfig
from sombrl.paper.experiments.base import SCALES, TrainCell
from sombrl.paper.experiments.figures import Look, Panel
from sombrl.runs.plots import COLORS

RETURN = "rollout/ep_rew_mean"
SHARE, SIGMA, IMAGINED = "explore/bonus_share", "explore/mean_std", "policy/imagined_return"
METRICS = (RETURN, SHARE, SIGMA, IMAGINED, "model/nll", "model/rmse")
RETURNS = Panel(RETURN, "return of the episode")
CAR_LOOKS = {
    "optimistic": Look("SimFSVGD-Optimistic", COLORS[0]),
    "pets": Look("SimFSVGD", COLORS[3], "-."),
}

WEIGHT = 0.1  # λ in the first episode

SEEDS = dict(zip(SCALES, (2, 2, 5), strict=True))
EPISODES = dict(zip(SCALES, (2, 6, 20), strict=True))
LENGTH = dict(zip(SCALES, (8, 100, 100), strict=True))
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {
        "model": {"steps": 4, "check_every": 2, "functions": 8, "hidden": (8,), "particles": 3},
        "search": {"rounds": 2, "snapshots": 2, "rollouts": 4, "unroll": 2, "updates": 2}
        | {"capacity": 64, "judged_rollouts": 4, "judged_horizon": 4},
        "sac": {"hidden": (8, 8), "batch_size": 8},
    },
    "small": {
        "model": {"steps": 4000, "check_every": 500, "functions": 128},
        "search": {"rounds": 240, "fresh": False},
        "sac": {"target_entropy_factor": 0.5},
    },
    "paper": {
        "model": {"steps": 24_000},
        "search": {"rounds": 480, "fresh": False, "tries": 4, "capacity": 500_000},
        "sac": {"target_entropy_factor": 0.5},
    },
}


def car_config(scale: str, explore: dict[str, Any] | None = None, **fields: Any) -> SimFSVGDConfig:
    """SimFSVGD at a scale; `explore` are fields of the exploration, `fields` those of the algorithm."""
    config = SimFSVGDConfig(frame="body")
    parts = {name: dataclasses.replace(getattr(config, name), **given) for name, given in SIZES[scale].items()}
    explore = {} if explore is None else explore
    # Only the optimistic ones have a λ.
    weight = {} if "explore" in explore else {"bonus_weight": WEIGHT, "bonus_weight_steps": EPISODES[scale]}
    exploration = dataclasses.replace(config.explore, **(weight | explore))
    return dataclasses.replace(config, explore=exploration, **(parts | fields))


def car_cell(method: str, margin: float, scale: str, config: SimFSVGDConfig) -> TrainCell:
    """One method at one margin factor."""
    option = f"margin_factor={margin:g}"
    run = RunConfig(
        env="rc-car",
        env_kwargs=(option,),
        episode_length=LENGTH[scale],
        episodes=EPISODES[scale],
        seeds=SEEDS[scale],
    )
    name, env = f"margin-{margin:g}/{method}", f"rc-car {option}"
    return TrainCell(name, method, env, run, config, algorithm="sim-fsvgd", metrics=METRICS)
