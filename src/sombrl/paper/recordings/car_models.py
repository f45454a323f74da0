"""The models that are compared on a recorded car, all in its own frame, and how a fit of them is stopped.

Particles and ensembles are the learners of `sombrl.dynamics`. They see past actions as part of an observation
(particles) or of an action (the ensemble, which would otherwise learn to shift them).
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from sombrl.dynamics.base import AbstractLearner
from sombrl.dynamics.ensemble import EnsembleDynamics
from sombrl.dynamics.particles import ParticleDynamics, Statistics
from sombrl.dynamics.rc_car_prior import CarBodyFrame, CarSimulator
from sombrl.envs.rc_car_dynamics import DEFAULTS
from sombrl.paper.recordings.car_scores import AbstractCarModel, Mixture, held_out_nll
from sombrl.paper.recordings.rc_car_logs import CarLog, replay_of
from sombrl.paper.recordings.ridge import QuadraticRidge, fit_ridge
from sombrl.records import Transition

FLOOR = 1e-3  # of a std taken from few rows
HELD_OUT = 0.2  # share of the rows, the latest, that a fit is stopped by


class ParticleCar(AbstractCarModel):
    """SVGD, FSVGD or SimFSVGD: a component per particle."""

    frame: CarBodyFrame
    dynamics: ParticleDynamics

    def __call__(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Mixture:
        """What the particles say, with the noise they share."""
        values, noise = self.dynamics.particles(obs, action)
        return Mixture(values, jnp.broadcast_to(noise[None, :], values.shape))


class EnsembleCar(AbstractCarModel):
    """A deep ensemble: a component per member, each with its own noise."""

    frame: CarBodyFrame
    dynamics: EnsembleDynamics

    def __call__(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Mixture:
        """What the members say."""
        state, commands = seen_by_ensemble(self.frame, obs, action)
        ensemble = self.dynamics.ensemble
        output = ensemble(state, commands)
        means = jax.vmap(lambda mean: ensemble.next_state(state, mean) - state)(output.mean)
        return Mixture(means, output.std * ensemble.scale[None, :])


class RidgeCar(AbstractCarModel):
    """Quadratic ridge regression."""

    frame: CarBodyFrame
    ridge: QuadraticRidge

    def __call__(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Mixture:
        """One Gaussian, whose std is the same everywhere."""
        return Mixture(self.ridge(self.frame.inputs(obs, action))[None], self.ridge.noise_std[None])


class StandingCar(AbstractCarModel):
    """Persistence: nothing changes."""

    frame: CarBodyFrame
    std: Float[Array, " target"]

    def __call__(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Mixture:
        """No change, give or take what cars change."""
        return Mixture(jnp.zeros((1, self.std.shape[0]), self.std.dtype), self.std[None])


class SimulatedCar(AbstractCarModel):
    """A simulator's nominal car, nothing learned but how far off it is."""

    frame: CarBodyFrame
    simulator: CarSimulator
    std: Float[Array, " target"]

    def __call__(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Mixture:
        """Where that car goes, give or take what it was off before."""
        nominal = DEFAULTS[self.simulator.fidelity, self.simulator.car]
        return Mixture(self.simulator(nominal, self.frame.inputs(obs, action))[None], self.std[None])


def seen_by_ensemble(
    frame: CarBodyFrame, obs: Float[Array, " obs"], action: Float[Array, " action"]
) -> tuple[Float[Array, " 6"], Float[Array, " commands"]]:
    """A state whose change is the target, the car at the origin, and all actions as one."""
    inputs = frame.inputs(obs, action)
    return jnp.concatenate([jnp.zeros(3, inputs.dtype), inputs[:3]]), inputs[3:]


def ensemble_rows(frame: CarBodyFrame, rows: Transition) -> Transition:
    """Transitions as an ensemble is to learn them."""

    def one(obs: Array, action: Array, next_obs: Array) -> tuple[Array, Array, Array]:
        state, commands = seen_by_ensemble(frame, obs, action)
        return state, commands, state + frame.targets(obs, action, next_obs)

    state, commands, next_state = jax.vmap(one)(rows.obs, rows.action, rows.next_obs)
    return dataclasses.replace(rows, obs=state, action=commands, next_obs=next_state)


def regression(frame: CarBodyFrame, log: CarLog) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of a log, float64."""
    rows = log.transitions()
    inputs = jax.vmap(frame.inputs)(rows.obs, rows.action)
    targets = jax.vmap(frame.targets)(rows.obs, rows.action, rows.next_obs)
    return np.asarray(inputs, np.float64), np.asarray(targets, np.float64)


def statistics_of(frame: CarBodyFrame, log: CarLog) -> Statistics:
    """Mean and std of inputs and targets, as units of a fit."""
    columns = []
    for array in regression(frame, log):
        columns += [np.mean(array, axis=0), np.maximum(np.std(array, axis=0), FLOOR)]
    return Statistics(*(jnp.asarray(column, jnp.float32) for column in columns))


def ridge_car(log: CarLog, past: int, strength: float) -> RidgeCar:
    """The ridge on a log that remembers `past` actions."""
    frame = CarBodyFrame(past=past)
    return RidgeCar(frame, fit_ridge(*regression(frame, log), strength))


def standing_car(log: CarLog, past: int) -> StandingCar:
    """Persistence, as uncertain as the log."""
    frame = CarBodyFrame(past=past)
    std = np.sqrt(np.mean(regression(frame, log)[1] ** 2, axis=0))
    return StandingCar(frame, jnp.asarray(std, jnp.float32))


def simulated_car(log: CarLog, simulator: CarSimulator, frame: CarBodyFrame) -> SimulatedCar:
    """The nominal car of a simulator, as uncertain as it is wrong on the log."""
    inputs, targets = regression(frame, log)
    nominal = DEFAULTS[simulator.fidelity, simulator.car]
    found = jax.vmap(lambda x: simulator(nominal, x))(jnp.asarray(inputs, jnp.float32))
    std = np.sqrt(np.mean((np.asarray(found) - targets) ** 2, axis=0))
    return SimulatedCar(frame, simulator, jnp.asarray(std, jnp.float32))


@eqx.filter_jit
def _fit(learner: AbstractLearner, state: Any, replay: Any, key: Key[Array, ""]) -> Any:
    return learner.fit(state, replay, key=key)[0]


def fit_until_worse(
    learner: AbstractLearner,
    wrap: Any,
    log: CarLog,
    *,
    rows: Any = None,
    capacity: int,
    rounds: int,
    patience: int,
    key: Key[Array, ""],
) -> tuple[AbstractCarModel, int]:
    """The best model of up to `rounds` calls of `fit`, and after how many calls it was the best.

    It is judged by the latest fifth of the log, on which it is not trained; `patience` calls without a better one end
    the search. `wrap` makes a car model of a posterior, `rows` records of transitions (default: themselves), and
    `capacity` is the size of the buffer, so that one program does for all sizes of log.
    """
    init_key, fit_key = jr.split(key)
    early, late = log.split(HELD_OUT)
    records = early.transitions()
    replay = replay_of(records if rows is None else rows(records), capacity)
    state = learner.init(key=init_key)
    best, least, at = wrap(learner.dynamics(state)), np.inf, 0
    for n in range(1, rounds + 1):
        state = _fit(learner, state, replay, jr.fold_in(fit_key, n))
        model = wrap(learner.dynamics(state))
        loss = held_out_nll(model, late)
        if loss < least:
            best, least, at = model, loss, n
        if n - at >= patience:
            break
    return best, at
