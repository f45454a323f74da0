"""How well a model predicts a recorded car: likelihood, errors, calibration, and ten steps without looking.

A prediction is a mixture of Gaussians over the change of (x, y, θ, vx, vy, ω) seen from the car (`CarBodyFrame`). It
is judged, as published, by the change of the seven observed numbers (x, y, sin θ, cos θ, vx, vy, ω), in physical units.
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sombrl.dynamics.rc_car_prior import CarBodyFrame
from sombrl.envs.rc_car_dynamics import angle
from sombrl.paper.recordings.rc_car_logs import CarLog
from sombrl.records import SombrlError

NAMES = ("x", "y", "sin", "cos", "vx", "vy", "omega")
LEVELS = tuple(level / 20.0 for level in range(1, 20))
STEPS = 10  # a third of a second
LOST = 100.0  # m, rad, m/s or rad/s: a model that runs away is that far off and no farther
AT_ONCE = 1024  # rows


class Mixture(eqx.Module):
    """Equally likely Gaussians at one input."""

    mean: Float[Array, "components target"]
    std: Float[Array, "components target"]

    @property
    def centre(self) -> Float[Array, " target"]:
        """The mean of all."""
        return jnp.mean(self.mean, axis=0)

    def log_density(self, y: Float[Array, " target"]) -> Float[Array, ""]:
        """log p(y), outputs independent within a component."""
        z = (y[None, :] - self.mean) / self.std
        each = -0.5 * jnp.sum(z**2, axis=1) - jnp.sum(jnp.log(self.std), axis=1)
        constant = 0.5 * y.shape[0] * math.log(2.0 * math.pi) + math.log(self.mean.shape[0])
        return jax.scipy.special.logsumexp(each) - constant

    def below(self, y: Float[Array, " target"]) -> Float[Array, " target"]:
        """P(Y <= y) of every output by itself: uniform in [0, 1] if the mixture is right."""
        return jnp.mean(jax.scipy.stats.norm.cdf(y[None, :], self.mean, self.std), axis=0)


class AbstractCarModel(eqx.Module):
    """Anything that predicts the car's change."""

    frame: eqx.AbstractVar[CarBodyFrame]

    @abc.abstractmethod
    def __call__(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Mixture:
        """The change at one observation and action."""


def observed_mixture(
    mixture: Mixture, target: Float[Array, " 6"], obs: Float[Array, " obs"]
) -> tuple[Mixture, Float[Array, " 7"]]:
    """The same prediction, and the truth, of the seven observed numbers, vectors still seen from the car.

    Turning a vector does not change densities. An error of the heading moves (sin θ, cos θ) along the circle, where a
    density of both does not exist; so its std is shared out alike, σ/√2 each, which gains nothing from the circle.
    """
    heading = angle(obs[2], obs[3])

    def seven(change: Array) -> Array:
        turned = jnp.stack([jnp.sin(heading + change[2]), jnp.cos(heading + change[2])])
        return jnp.concatenate([change[:2], turned, change[3:]])

    shared = mixture.std[:, 2:3] / math.sqrt(2.0)
    std = jnp.concatenate([mixture.std[:, :2], shared, shared, mixture.std[:, 3:]], axis=1)
    return Mixture(jax.vmap(seven)(mixture.mean), std), seven(target)


class Scores(eqx.Module):
    """What a model says about one transition, or about several."""

    log_density: Float[Array, ""]
    six: Float[Array, ""]
    error: Float[Array, " 7"]
    below: Float[Array, " 6"]


@eqx.filter_jit
def _judge(model: AbstractCarModel, obs: Array, action: Array, next_obs: Array) -> Scores:
    def one(obs: Array, action: Array, next_obs: Array) -> Scores:
        mixture, target = model(obs, action), model.frame.targets(obs, action, next_obs)
        observed, truth = observed_mixture(mixture, target, obs)
        error = next_obs[:7] - model.frame.next_obs(obs, action, mixture.centre)[:7]
        return Scores(observed.log_density(truth), mixture.log_density(target), error, mixture.below(target))

    found: Scores = jax.vmap(one)(obs, action, next_obs)
    return found


def judge(model: AbstractCarModel, log: CarLog) -> dict[str, float]:
    """All one-step scores over a log.

    `nll` and `rmse` are summed over the seven numbers; `nll/six` is the density of the six that exist, `calibration`
    the expected calibration error of `calibration_error`, a mean over outputs.
    """
    rows = _judged(model, log)
    rmse = np.sqrt(np.mean(rows.error**2, axis=0))
    scores = {
        "nll": -float(np.mean(rows.log_density)),
        "nll/six": -float(np.mean(rows.six)),
        "rmse": float(np.sqrt(np.sum(rmse**2))),
        "calibration": float(np.mean([calibration_error(np.asarray(column)) for column in rows.below.T])),
    }
    return scores | {f"rmse/{name}": float(value) for name, value in zip(NAMES, rmse, strict=True)}


def constant_nll(model: AbstractCarModel, train: CarLog, log: CarLog) -> float:
    """The NLL of one Gaussian around the mean, with the std of the seven errors on `train`, the same everywhere.

    In the frame of the world; the model's own uncertainty is ignored. Earlier ridge regressions on these recordings
    were judged by this number.
    """
    std = np.sqrt(np.mean(_judged(model, train).error ** 2, axis=0))
    error = _judged(model, log).error
    return float(np.mean(np.sum(0.5 * (error / std) ** 2 + np.log(std) + 0.5 * math.log(2.0 * math.pi), axis=1)))


def held_out_nll(model: AbstractCarModel, log: CarLog) -> float:
    """The NLL per row that stops a fit."""
    return -float(np.mean(_judged(model, log).six))


def _judged(model: AbstractCarModel, log: CarLog) -> Scores:
    """In pieces of one size, so that one program serves logs of every length."""
    pieces = []
    for start in range(0, len(log), AT_ONCE):
        which = np.arange(start, start + AT_ONCE)
        piece = log.take(np.minimum(which, len(log) - 1))
        found = _judge(model, jnp.asarray(piece.obs), jnp.asarray(piece.action), jnp.asarray(piece.next_obs))
        pieces.append(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64)[which < len(log)], found))  # noqa: B023
    whole: Scores = jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
    return whole


def calibration_error(below: Float[np.ndarray, " rows"]) -> float:
    """The mean over levels p of |share of rows inside the central interval of probability p - p|.

    `below` are the predicted P(Y <= y). 0 is calibrated; always certain and wrong, or never certain, gives 0.5.
    """
    inside = np.abs(2.0 * below - 1.0)  # in the central interval of probability p where this is at most p
    return float(np.mean([abs(np.mean(inside <= level) - level) for level in LEVELS]))


@eqx.filter_jit
def _drive(model: AbstractCarModel, obs: Array, actions: Array) -> Float[Array, "starts obs"]:
    """Observations after `actions` of the mean model, which sees no other observation than the first."""

    def step(obs: Array, action: Array) -> tuple[Array, None]:
        return model.frame.next_obs(obs, action, model(obs, action).centre), None

    reached: Array = jax.vmap(lambda start, plan: jax.lax.scan(step, start, plan)[0])(obs, actions)
    return reached


def open_loop(model: AbstractCarModel, log: CarLog, steps: int = STEPS) -> dict[str, float]:
    """Root mean square errors after `steps` recorded actions: metres, radians (the shorter way round), m/s, rad/s."""
    windows = log.windows(steps)
    if not len(windows):
        raise SombrlError(f"the recording has no stretch of {steps} rows without a gap: take a longer one.")
    starts, actions = jnp.asarray(log.obs[windows[:, 0]]), jnp.asarray(log.action[windows])
    reached = np.asarray(_drive(model, starts, actions), np.float64)
    true = log.next_obs[windows[:, -1]].astype(np.float64)
    turn = np.arctan2(reached[:, 2], reached[:, 3]) - np.arctan2(true[:, 2], true[:, 3])

    def rms(errors: Float[np.ndarray, "windows column"]) -> float:
        far = np.sqrt(np.sum(np.minimum(np.abs(errors), LOST) ** 2, axis=1))
        return float(np.sqrt(np.mean(np.where(far < LOST, far, LOST) ** 2)))  # NaN is lost too

    off = reached - true
    return {
        "open_loop/position": rms(off[:, :2]),
        "open_loop/heading": rms(np.arctan2(np.sin(turn), np.cos(turn))[:, None]),
        "open_loop/velocity": rms(off[:, 4:6]),
        "open_loop/yaw_rate": rms(off[:, 6:7]),
    }
