"""GP dynamics in episodes: gp-episodic, lambda-strategies, and what all GP experiments share.

The numbers of scale `paper` are those of the published non-episodic code (the text gives only λ = 10 and five seeds),
except for the planner's noise and horizon, see `PLAN`. Scale `small` keeps what is compared and fits two CPU cores.
"""

import dataclasses
from typing import Any

import numpy as np

from sombrl.algorithms.gp_icem import GPICEMConfig
from sombrl.config.run import RunConfig
from sombrl.controllers.icem import PRESETS, ICEMConfig
from sombrl.dynamics.gp import GPConfig
from sombrl.envs.mountain_car import GOAL_REWARD
from sombrl.exploration.config import ExploreConfig
from sombrl.exploration.weight import TheoryConfig
from sombrl.paper.experiments.base import SCALES, Cell, Evaluation, Experiment, Headline, TrainCell
from sombrl.paper.experiments.figures import (
    LOOKS,
    Look,
    Panel,
    draw_grid,
    draw_panel,
    finish,
    new_figure,
    require,
    select,
)
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row
from sombrl.theory import episodic_regret

METHODS = ("optimistic", "constant-10", "hucrl", "pets", "greedy")
"""SOMBRL with λ in units of the task's rewards and with the paper's λ = 10, and the comparisons. In the non-episodic
setting: SOMBRL, NeoRL, NePETS, NeMean."""
ENVS = ("pendulum", "mountain-car")
BONUS_WEIGHT = 10.0  # λ of all the paper's GP experiments
SEEDS = dict(zip(SCALES, (2, 5, 5), strict=True))

SMOKE_GP = GPConfig(capacity=64, rank=8, fit_points=16, fit_steps=3)
SMOKE_PLAN = ICEMConfig(num_samples=12, num_elites=3, iterations=2, horizon=4, particles=2)

GP = {
    # Enough for two to four inputs and a thousand transitions; the demo's numbers.
    "small": GPConfig(capacity=1024, fit_points=128, fit_steps=40),
    "paper": GPConfig(),
}
# On the true system the published plans often fail (oracle-published in gp-episodic), and exploration would be blamed
# for the search: 20 decisions of 5 frames are too many for Pendulum, and MountainCar needs long pushes where the
# published noise is nearly white.
PENDULUM: dict[str, Any] = {"horizon": 10}
MOUNTAIN_CAR: dict[str, Any] = {"noise_exponent": 2.0, "init_std": 1.0}
PLAN = {
    ("pendulum", "small"): dataclasses.replace(PRESETS["light"], **PENDULUM),
    # 30 decisions of 5 frames: the way up takes about 100 frames.
    ("mountain-car", "small"): dataclasses.replace(PRESETS["light"], horizon=30, **MOUNTAIN_CAR),
    ("pendulum", "paper"): dataclasses.replace(PRESETS["pendulum"], **PENDULUM),
    ("mountain-car", "paper"): dataclasses.replace(PRESETS["mountain-car"], **MOUNTAIN_CAR),
}
ORACLE_PLAN = {  # a larger search, close to J(π*)
    "pendulum": ICEMConfig(1000, 50, iterations=8, horizon=14, noise_exponent=1.0, init_std=1.0),
    "mountain-car": ICEMConfig(1000, 50, iterations=6, horizon=50, **MOUNTAIN_CAR),
}
SMALL_PARTICLES = 3  # of pets at scale small; the paper's 5 would take most of the half hour

RETURN, REGRET, WEIGHT = "rollout/ep_rew_mean", "regret", "explore/bonus_weight"
LAST_RETURNS = Headline(RETURN, "return, last 3 episodes", last=3)


def explore(method: str, *, beta: float = 2.0) -> ExploreConfig:
    """The exploration of a method; a strategy gets the numbers it reads and no others."""
    default = GPICEMConfig().explore
    match method:
        case "constant-10":
            return dataclasses.replace(default, bonus_weight=BONUS_WEIGHT, bonus_weight_units="reward")
        case "hucrl":
            return dataclasses.replace(default, explore="hucrl", beta=beta)
        case _:
            return dataclasses.replace(default, explore=method)


def gp_config(
    method: str, env: str, scale: str, *, beta: float = 2.0, horizon: int | None = None, **changes: Any
) -> GPICEMConfig:
    """The algorithm of a method; "oracle" plans greedily on the true system. `changes` are fields of the GP.

    `horizon` is for an action repeat other than that of `episodes_of`; scale smoke has its own.
    """
    gp, plan = (SMOKE_GP, SMOKE_PLAN) if scale == "smoke" else (GP[scale], PLAN[env, scale])
    if method == "oracle":
        search = plan if scale == "smoke" else ORACLE_PLAN[env]
        return GPICEMConfig(explore=explore("greedy"), icem=search, model="true", horizon_value="none")
    if horizon is not None and scale != "smoke":
        plan = dataclasses.replace(plan, horizon=horizon)
    if method == "pets" and scale == "small":
        plan = dataclasses.replace(plan, particles=SMALL_PARTICLES)
    # Plain plans, as published, so that strategies are compared and not the value beyond the horizon.
    gp = dataclasses.replace(gp, **changes)
    return GPICEMConfig(explore=explore(method, beta=beta), gp=gp, icem=plan, horizon_value="none")


def episodes_of(env: str, scale: str, **changes: Any) -> RunConfig:
    """Episodes of 200 frames from the start, the first with random actions. `changes` are fields of the run."""
    lengths = {  # action repeat, decisions per episode, episodes
        ("pendulum", "small"): (5, 40, 20),
        ("mountain-car", "small"): (5, 40, 10),
        ("pendulum", "paper"): (5, 40, 20),
        ("mountain-car", "paper"): (2, 100, 20),
    }
    repeat, length, episodes = (5, 6, 3) if scale == "smoke" else lengths[env, scale]
    fields: dict[str, Any] = {"env": env, "action_repeat": repeat, "episode_length": length, "episodes": episodes}
    return RunConfig(**(fields | {"seeds": SEEDS[scale]} | changes))


def greedy_evaluation(scale: str) -> Evaluation:
    """A few episodes after training, without exploration."""
    return Evaluation(episodes=1 if scale == "smoke" else 5)


def add_regret(rows: list[Row], metric: str) -> list[Row]:
    """R_N of every seed against the mean of all the oracle's returns."""
    regret = []
    for env in dict.fromkeys(row.env for row in rows):
        returns = select(rows, env=env, metric=metric)
        if not any(row.method == "oracle" for row in returns):
            continue
        optimal = float(np.mean([row.value for row in returns if row.method == "oracle"]))
        for method, seed in dict.fromkeys((row.method, row.seed) for row in returns if "oracle" not in row.method):
            found = select(returns, method=method, seed=seed)
            for row, value in zip(found, episodic_regret(np.array([row.value for row in found]), optimal), strict=True):
                regret.append(dataclasses.replace(row, metric=REGRET, value=float(value)))
    return regret


# gp-episodic

COSTS = {"pendulum": (0.0, 0.1, 0.2), "mountain-car": (0.0, 0.2)}
"""Other costs of actions; MountainCar's own is 0.1, Pendulum's 0.001."""
COMPARED = ("optimistic", "hucrl", "greedy")


def episodic_cells(scale: str) -> list[Cell]:
    """Every method on both environments, and the reference J(π*): the true system with two searches.

    The reference learns nothing, so a few episodes are enough.
    """
    metrics = (RETURN, WEIGHT, "explore/mean_std", "model/rmse")
    found: list[Cell] = []
    for env in ENVS:
        if scale != "smoke":
            found += [_costly(env, cost, method, scale) for cost in COSTS[env] for method in COMPARED]
        run, evaluation = episodes_of(env, scale), greedy_evaluation(scale)
        for method in METHODS:
            config = gp_config(method, env, scale)
            found.append(TrainCell(f"{env}/{method}", method, env, run, config, metrics=metrics, evaluation=evaluation))
        run = episodes_of(env, scale, episodes=2 if scale == "smoke" else 5)
        oracles = {"oracle": gp_config("oracle", env, scale)}
        if scale != "smoke":
            oracles["oracle-published"] = dataclasses.replace(oracles["oracle"], icem=PRESETS[env])
        found += [TrainCell(f"{env}/{name}", name, env, run, config) for name, config in oracles.items()]
    return found


def _costly(env: str, cost: float, method: str, scale: str) -> Cell:
    """A method on an environment with another cost of actions, which moves the true optimum a little."""
    run = episodes_of(env, scale, env_kwargs=(f"action_cost={cost}",))
    config, evaluation = gp_config(method, env, scale), greedy_evaluation(scale)
    name, label = f"{env}-c{cost}/{method}", f"{env} action_cost={cost}"
    return TrainCell(name, method, label, run, config, metrics=(RETURN,), evaluation=evaluation)


def draw_episodic(rows: list[Row]) -> Any:
    """Returns above, regret below, with the environments' own costs of actions."""
    rows = [row for row in rows if row.env in ENVS]
    return draw_grid(
        rows,
        [Panel(RETURN, "return of the episode", reference="oracle"), Panel(REGRET, "cumulative regret $R_N$")],
        LOOKS,
        title="GP dynamics, episodic",
        xlabel="episode",
    )


GP_EPISODIC = Experiment(
    name="gp-episodic",
    summary="Pendulum and MountainCar with resets: optimistic, hucrl, pets, greedy",
    figure="figure 2, right",
    cells=episodic_cells,
    draw=draw_episodic,
    headlines=(LAST_RETURNS, Headline("eval/ep_rew_mean", "without exploring"), Headline(REGRET, "regret R_N")),
    derive=lambda rows: add_regret(rows, RETURN),
)
"""Figure 2, right, of the paper (sections 5.3 and D.4): J(πₙ) over episodes with GP dynamics.

SOMBRL (optimistic: λ in units of the task's rewards; constant-10: the paper's λ), H-UCRL, PETS and the mean planner on
Pendulum (dense reward, from hanging) and MountainCar, with known rewards, after one episode of random actions. SOMBRL,
H-UCRL and the mean planner also with other costs of actions. The dashed line is a larger planner on the true system:
the reference J(π*) of the regret R_N = Σₙ J(π*) - J(πₙ). A planner is not the optimum, so R_N may fall a little.
`oracle-published` in the CSV is the published planner on the true system; it is the reason why ours differs (`PLAN`).

Differs from the paper: the figure shows the return that was executed while exploring, as the paper's curves do; the
return without exploration (`eval/ep_rew_mean`) is in the CSV too. The paper gives no MountainCar budget; ours is 20
episodes of 200 frames. The GP has at most rank 128 (64 at scale small), so beyond as many transitions it is not exact;
and its lengthscales are fitted to at most 256 of them (128) and with a prior, where the paper has maximum likelihood.
Scale small: light planner, MountainCar with 10 episodes and action repeat 5 instead of 2, PETS with 3 particles instead
of 5.
"""

# lambda-strategies

LAMBDA_LOOKS = {
    "range": Look("a tenth of the range of rewards", COLORS[5]),
    "constant-1": Look("λ = 1", COLORS[4]),
    "constant-10": Look("λ = 10", COLORS[0]),
    "linear": Look("linear, 10 to 0", COLORS[1]),
    "exponential": Look("exponential, 10 to 0.1", COLORS[2]),
    "theoretical": Look("theorem × 1e-06", COLORS[6]),
    "greedy": Look("none", COLORS[3]),
}


def lambda_strategies(episodes: int, action_repeat: int) -> dict[str, ExploreConfig]:
    """The explorations by name, for a run of so many episodes."""
    # The factor brings the theorem's first λₙ to the size of the others; it then grows with the data.
    theory = TheoryConfig(factor=1e-6, reward_max=GOAL_REWARD * action_repeat)
    falling: dict[str, Any] = {"bonus_weight": 10.0, "bonus_weight_steps": episodes}
    return {
        "range": GPICEMConfig().explore,
        "constant-1": ExploreConfig(explore="optimistic", bonus_weight=1.0),
        "constant-10": ExploreConfig(explore="optimistic", bonus_weight=10.0),
        "linear": ExploreConfig(explore="optimistic", schedule="linear", bonus_weight_end=0.0, **falling),
        "exponential": ExploreConfig(explore="optimistic", schedule="exponential", bonus_weight_end=0.1, **falling),
        "theoretical": ExploreConfig(explore="optimistic", schedule="theoretical", theory=theory),
        "greedy": explore("greedy"),
    }


def lambda_cells(scale: str) -> list[Cell]:
    """One per strategy."""
    env = "mountain-car"
    run = episodes_of(env, scale, episodes={"smoke": 3, "small": 10, "paper": 20}[scale])
    base = gp_config("greedy", env, scale)
    return [
        TrainCell(name, name, env, run, dataclasses.replace(base, explore=explore), metrics=(RETURN, WEIGHT))
        for name, explore in lambda_strategies(run.episodes, run.action_repeat or 1).items()
    ]


def draw_lambda(rows: list[Row]) -> Any:
    """Returns left, λₙ right."""
    require(rows, RETURN)
    require(rows, WEIGHT)
    figure = new_figure(10.0, 4.6)
    left, right = figure.subplots(1, 2)
    draw_panel(left, rows, Panel(RETURN, ""), LAMBDA_LOOKS)
    left.set(title="MountainCar", ylabel="return of the episode", xlabel="episode")
    draw_panel(right, rows, Panel(WEIGHT, ""), {name: look for name, look in LAMBDA_LOOKS.items() if name != "greedy"})
    right.set(title="weight of the bonus", ylabel="$λ_n$", xlabel="episode")
    right.set_yscale("symlog", linthresh=0.1)
    finish(figure, "How λ is chosen", rows)
    return figure


LAMBDA_STRATEGIES = Experiment(
    name="lambda-strategies",
    summary="λ constant, falling, from the theorem, or 0, on sparse MountainCar",
    figure="section 5.2, no figure",
    cells=lambda_cells,
    draw=draw_lambda,
    headlines=(
        LAST_RETURNS,
        Headline(RETURN, "seeds that found the goal", last=3, at_least=1.0),
        Headline(WEIGHT, "last λ"),
    ),
)
"""How λₙ is chosen (section 5.2 of the paper), on sparse MountainCar.

A tenth of the range of the rewards (`--bonus-weight-units range`), constant λ (1 and the paper's 10), falling linearly
or exponentially from 10 over the run, the λₙ of the finite-horizon theorem times a factor (the bound is loose), and
none (greedy). The left panel shows which of them find the goal and keep it, the right one what λₙ was.

The paper names these ways and does not compare them.
"""
