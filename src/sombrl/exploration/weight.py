"""λₙ, the weight of the bonus: an array under jit, logged, and saved with the run."""

import abc
import dataclasses
import math
from typing import Annotated, Literal

import equinox as eqx
import jax.numpy as jnp
from annotated_types import Ge, Gt, Interval
from jaxtyping import Array, ArrayLike, Float, Int

from sombrl.config.check import Configuration
from sombrl.dynamics.base import AbstractDynamics, AbstractInformed
from sombrl.records import SombrlError
from sombrl.settings import Discounted, NonEpisodic, Setting, Unsupervised
from sombrl.theory import bonus_weight as forms
from sombrl.theory.confidence import beta


class AbstractWeight(eqx.Module):
    """λₙ as a function of the iteration n and of the model to plan with."""

    @abc.abstractmethod
    def __call__(self, iteration: Int[Array, ""], dynamics: AbstractDynamics) -> Float[Array, ""]:
        """λₙ."""


class Constant(AbstractWeight):
    """The same λ throughout (the paper's GP experiments: λ = 10)."""

    value: Float[Array, ""]

    def __init__(self, value: ArrayLike):
        self.value = jnp.asarray(value, jnp.float32)

    def __call__(self, iteration: Int[Array, ""], dynamics: AbstractDynamics) -> Float[Array, ""]:
        """λ."""
        return self.value


class Linear(AbstractWeight):
    """From `start` at n = 0 to `end` at n = `steps` on a line, then constant."""

    start: Float[Array, ""]
    end: Float[Array, ""]
    steps: Float[Array, ""]

    def __init__(self, start: ArrayLike, end: ArrayLike, steps: ArrayLike):
        self.start, self.end, self.steps = (jnp.asarray(x, jnp.float32) for x in (start, end, steps))

    def __call__(self, iteration: Int[Array, ""], dynamics: AbstractDynamics) -> Float[Array, ""]:
        """λₙ on the line."""
        done = jnp.clip(iteration.astype(jnp.float32) / self.steps, 0.0, 1.0)
        return self.start + (self.end - self.start) * done


class Exponential(AbstractWeight):
    """From `start` at n = 0 to `end` at n = `steps` by the same factor every time, then constant."""

    start: Float[Array, ""]
    end: Float[Array, ""]
    steps: Float[Array, ""]

    def __init__(self, start: ArrayLike, end: ArrayLike, steps: ArrayLike):
        self.start, self.end, self.steps = (jnp.asarray(x, jnp.float32) for x in (start, end, steps))

    def __call__(self, iteration: Int[Array, ""], dynamics: AbstractDynamics) -> Float[Array, ""]:
        """start · (end/start)^(n/steps)."""
        done = jnp.clip(iteration.astype(jnp.float32) / self.steps, 0.0, 1.0)
        return self.start * (self.end / self.start) ** done


@dataclasses.dataclass(frozen=True)
class TheoryConfig(Configuration, prefix="theory"):
    """The constants of the theorems, which are not known in practice; in the normalised units of the GP."""

    factor: Annotated[float, Gt(0)] = 1.0
    """Multiplies the theoretical λₙ, which is loose by orders of magnitude."""
    delta: Annotated[float, Interval(gt=0, lt=1)] = 0.1
    """δ: the bound may fail with this probability."""
    norm_bound: Annotated[float, Gt(0)] = 1.0
    """B, the largest RKHS norm of a coordinate of the dynamics."""
    reward_max: Annotated[float, Gt(0)] = 1.0
    """R_max: rewards of one decision lie in [0, R_max] (a shift does not matter)."""
    constant: Annotated[float, Gt(0)] = 1.0
    """Non-episodic: D₄, how much one wrong step can change the bias of the average reward."""
    noise: Literal["gaussian", "sub-gaussian"] = "gaussian"
    """Finite horizon: which theorem; sub-gaussian needs the Lipschitz constants and --gp.norm-bound."""
    reward_lipschitz: Annotated[float, Gt(0)] = 1.0
    """Sub-Gaussian: L_r."""
    policy_lipschitz: Annotated[float, Ge(0)] = 0.0
    """Sub-Gaussian: L_π."""
    dynamics_lipschitz: Annotated[float, Ge(0)] = 1.0
    """Sub-Gaussian: L_*, at least 1 is taken."""


class Theoretical(AbstractWeight):
    """λₙ = scale · βₙ(δ) (over the noise for Gaussian noise), βₙ from the information gain of the data so far.

    With several outputs the largest βₙⱼ and the smallest noise are taken. Both are in normalised units, as the bonus.
    """

    scale: Float[Array, ""]  # all but βₙ and the noise; see `theoretical`
    norm_bound: Float[Array, ""]
    delta: Float[Array, ""]
    over_noise: bool = eqx.field(static=True)

    def __call__(self, iteration: Int[Array, ""], dynamics: AbstractDynamics) -> Float[Array, ""]:
        """λₙ."""
        if not isinstance(dynamics, AbstractInformed):
            raise SombrlError(
                f"the theoretical λ needs a model that counts its information gain, and {type(dynamics).__name__} "
                "does not: use --schedule constant."
            )
        gain, noise = dynamics.information_gain(), dynamics.noise_std()
        width = beta(
            gain,
            norm_bound=self.norm_bound,
            noise_std=noise,
            delta=self.delta,
            state_dim=gain.shape[0],
            model_noise_std=noise,
        )
        return self.scale * jnp.max(width) / (jnp.min(noise) if self.over_noise else 1.0)


def theoretical(setting: Setting, theory: TheoryConfig, state_dim: int) -> Theoretical:
    """The λₙ of the setting's theorem times the user's factor, for a kernel with k(z, z) = 1."""
    unit, c_max = jnp.ones((), jnp.float32), max(theory.reward_max, math.sqrt(state_dim))
    base = setting.base if isinstance(setting, Unsupervised) else setting
    sub_gaussian = theory.noise == "sub-gaussian"
    if sub_gaussian and isinstance(base, Discounted | NonEpisodic):
        raise SombrlError("--theory.noise sub-gaussian has a theorem for --setting finite-horizon only: use that one.")
    if isinstance(base, NonEpisodic):
        scale = forms.nonepisodic(unit, constant=theory.constant)
    elif isinstance(base, Discounted):
        scale = forms.discounted(unit, discount=base.discount, state_dim=state_dim, noise_std=1.0, c_max=c_max)
    elif sub_gaussian:
        scale = forms.sub_gaussian(
            unit,
            horizon=base.horizon,
            state_dim=state_dim,
            reward_lipschitz=theory.reward_lipschitz,
            policy_lipschitz=theory.policy_lipschitz,
            dynamics_lipschitz=theory.dynamics_lipschitz,
        )
    else:
        scale = forms.finite_horizon(unit, horizon=base.horizon, state_dim=state_dim, noise_std=1.0, c_max=c_max)
    scale = jnp.asarray(theory.factor, jnp.float32) * scale
    if not math.isfinite(float(scale)):
        raise SombrlError(
            "the theoretical λ is too large for a float: the sub-Gaussian bound is exponential in the horizon, so "
            "shorten --episode-length or lower the Lipschitz constants."
        )
    number = {name: jnp.asarray(getattr(theory, name), jnp.float32) for name in ("norm_bound", "delta")}
    return Theoretical(scale, **number, over_noise=not (sub_gaussian or isinstance(base, NonEpisodic)))
