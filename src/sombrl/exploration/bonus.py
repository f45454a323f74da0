"""The bonus for uncertainty: none, ‖σₙ‖, or the information gained; or a penalty, the same with the sign turned."""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from sombrl.exploration.base import AbstractBonus
from sombrl.numerics import safe_sqrt
from sombrl.records import Prediction

Units = Literal["normalised", "physical"]
"""Where σ is measured. `normalised`: divided by the spread of the training targets, so that a coordinate that moves
by 1e-3 a step counts as much as one that moves by 10 (the public code; MountainCar's bonus vanishes without it).
`physical`: as the paper writes it."""


class NoBonus(AbstractBonus):
    """No bonus."""

    def __call__(self, prediction: Prediction) -> Float[Array, ""]:
        """0."""
        return jnp.zeros((), prediction.mean.dtype)


class EpistemicNorm(AbstractBonus):
    """‖σₙ‖₂ over the coordinates of the state (SOMBRL)."""

    units: Units = eqx.field(default="normalised", static=True)

    def __call__(self, prediction: Prediction) -> Float[Array, ""]:
        """‖σₙ‖₂."""
        return safe_sqrt(jnp.sum(_sigma(prediction, self.units) ** 2))


class Penalty(AbstractBonus):
    """Another bonus with the sign turned: what is unsure costs (MOPO's r - λσ)."""

    bonus: AbstractBonus

    def __call__(self, prediction: Prediction) -> Float[Array, ""]:
        """-I."""
        return -self.bonus(prediction)


class EpistemicMean(AbstractBonus):
    """The mean of σ over the coordinates and the learned reward, normalised units (the authors' MBPO code)."""

    def __call__(self, prediction: Prediction) -> Float[Array, ""]:
        """Meanⱼ σⱼ."""
        return jnp.mean(jnp.concatenate([_sigma(prediction, "normalised"), prediction.task_std]))


class MeanInformationGain(AbstractBonus):
    """meanⱼ log(1 + σⱼ²/noise²) over the coordinates and the learned reward, normalised units (MaxInfoRL)."""

    floor: float = eqx.field(default=1e-3, static=True)  # of the noise std

    def __call__(self, prediction: Prediction) -> Float[Array, ""]:
        """The mean gain of an output."""
        noise = jnp.maximum(prediction.aleatoric_std / prediction.scale, self.floor)
        task_noise = jnp.full_like(prediction.task_std, self.floor)
        sigma = jnp.concatenate([_sigma(prediction, "normalised"), prediction.task_std])
        return jnp.mean(jnp.log1p((sigma / jnp.concatenate([noise, task_noise])) ** 2))


class InformationGain(AbstractBonus):
    """Σⱼ log(1 + σₙⱼ²/noiseⱼ²): twice the information gain of an observation here, in nats (OPAX). Has no units."""

    floor: float = eqx.field(default=1e-4, static=True)  # of the noise std, in normalised units

    def __call__(self, prediction: Prediction) -> Float[Array, ""]:
        """The gain of one observation, independent outputs."""
        noise = jnp.maximum(prediction.aleatoric_std, self.floor * prediction.scale)
        return jnp.sum(jnp.log1p((prediction.epistemic_std / noise) ** 2))


def _sigma(prediction: Prediction, units: Units) -> Float[Array, " state"]:
    return prediction.epistemic_std / prediction.scale if units == "normalised" else prediction.epistemic_std
