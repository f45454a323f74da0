"""How the networks of rccar-real-regression learn: their settings, what the simulators are, and when they stop.

Everything here was chosen within the first recording, trained on its first four fifths and judged by the last.
"""

import dataclasses
import functools
from typing import Any

import jax.random as jr

from sombrl.dynamics.ensemble import EnsembleConfig, EnsembleLearner
from sombrl.dynamics.particle_config import ParticleConfig
from sombrl.dynamics.particle_learner import ParticleLearner
from sombrl.dynamics.rc_car_prior import GAP_STD, CarBodyFrame, CarSimulator
from sombrl.paper.recordings.car_models import EnsembleCar, ParticleCar, ensemble_rows, fit_until_worse, statistics_of
from sombrl.paper.recordings.car_scores import AbstractCarModel
from sombrl.paper.recordings.rc_car_logs import CarLog

PAST = 6  # actions that are remembered; more did not help
PRIORS: dict[str, dict[str, Any]] = {
    "sim-fsvgd-low": {"fidelity": "low", "car": 1, "delay": 5, "gap": 2.0},
    "sim-fsvgd-high": {"fidelity": "high", "car": 1, "delay": 5, "gap": 2.0},
}
"""The simulators; `gap` is a factor on the published scales of what they lack. Which car it was nobody knows."""
MODELS: dict[str, dict[str, Any]] = {
    "ensemble": {
        **{"members": 5, "hidden": [64, 64], "learn_std": True, "noise_floor": 0.1, "batch_size": 64},
        **{"learning_rate": 1e-3, "weight_decay": 1e-3, "gradient_clip": None},
    },
    "svgd": {"inference": "svgd", "bandwidth": None},
    "fsvgd": {"bandwidth": None, "resolution": 0.1, "prior_lengthscale": 10.0},
    "sim-fsvgd-low": {"bandwidth": None, "resolution": 0.1, "functions": 64},
    "sim-fsvgd-high": {"bandwidth": None, "resolution": 0.1, "functions": 64},
}
"""Fields of the learners' configurations; the rest are their defaults."""
FEW: dict[str, Any] = {"hidden": [8], "batch_size": 8}
SCALED: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {
        "ensemble": FEW | {"members": 2},
        **{method: FEW | {"particles": 2, "measurement_points": 4} for method in ("svgd", "fsvgd")},
        **{method: FEW | {"particles": 2, "measurement_points": 4, "functions": 4} for method in PRIORS},
    },
    "small": {},
    "paper": {method: {"functions": 512} for method in PRIORS},
}
"""What a scale changes of them."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """How long a network may learn, in calls of `fit` that are judged one by one."""

    steps: int
    """Gradient steps of one call."""
    rounds: int
    """Calls at most."""
    patience: int
    """Calls without a better one until it ends."""


BUDGETS = {
    "smoke": dict.fromkeys(MODELS, Budget(2, 2, 2)),
    "small": dict.fromkeys(MODELS, Budget(250, 32, 6)) | {"ensemble": Budget(50, 120, 30)},
    "paper": dict.fromkeys(MODELS, Budget(500, 60, 8)) | {"ensemble": Budget(50, 400, 60)},
}


def simulator_of(frame: CarBodyFrame, prior: dict[str, Any]) -> CarSimulator:
    """The simulator of an entry of `PRIORS`."""
    return CarSimulator(prior["fidelity"], prior["car"], coordinates=frame, delay=prior["delay"], box="driven")


def fitted(
    method: str,
    log: CarLog,
    past: int,
    *,
    capacity: int,
    seed: int,
    budget: Budget,
    model: dict[str, Any],
    prior: dict[str, Any] | None,
) -> tuple[AbstractCarModel, int]:
    """One network model, and how many steps it learned."""
    frame = CarBodyFrame(past=past)
    fit = functools.partial(
        fit_until_worse, capacity=capacity, rounds=budget.rounds, patience=budget.patience, key=jr.key(seed)
    )
    if method == "ensemble":
        members = EnsembleLearner(6, 2 + 2 * past, False, EnsembleConfig(steps_per_fit=budget.steps, **_tuples(model)))
        found, rounds = fit(members, lambda d: EnsembleCar(frame, d), log, rows=lambda rows: ensemble_rows(frame, rows))
        return found, rounds * budget.steps
    simulator, gap = None, None
    if prior is not None:
        simulator = simulator_of(frame, prior)
        gap = tuple(prior["gap"] * float(std) for std in frame.per_target(GAP_STD[simulator.fidelity]))
    config = ParticleConfig(
        # Every call goes on from the last. The latest rows are held out, not every fifth, whose neighbours are seen.
        held_out=0.0,
        fresh=False,
        steps=budget.steps,
        check_every=budget.steps,
        additive_scales=gap,
        **_tuples(model),
    )
    particles = ParticleLearner(frame, config, simulator, statistics=statistics_of(frame, log))
    found, rounds = fit(particles, lambda d: ParticleCar(frame, d), log)
    return found, rounds * budget.steps


def _tuples(model: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists alone."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in model.items()}
