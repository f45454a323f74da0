"""An exploration strategy is a pair: how the imagined state moves × what bonus is added. This file joins them."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sombrl.dynamics.base import AbstractDynamics
from sombrl.exploration.weight import AbstractWeight
from sombrl.numerics import safe_sqrt
from sombrl.records import AbstractCost, AbstractTask, Prediction, State


class AbstractPropagation(eqx.Module):
    """How the imagined state moves."""

    stochastic: eqx.AbstractClassVar[bool]  # False: every particle would be the same, so one is enough

    @abc.abstractmethod
    def prepare(self, dynamics: AbstractDynamics, *, key: Key[Array, ""]) -> AbstractDynamics:
        """Refuse a model that cannot be used this way; draw a function if that is the strategy."""

    @abc.abstractmethod
    def extra_actions(self, state_dim: int) -> int:
        """How many controls the planner gets beyond the environment's."""

    @abc.abstractmethod
    def __call__(
        self, dynamics: AbstractDynamics, state: State, action: Float[Array, " plan"], *, key: Key[Array, ""]
    ) -> State:
        """The next imagined state."""


class AbstractBonus(eqx.Module):
    """The bonus for uncertainty, before it is multiplied by λₙ."""

    @abc.abstractmethod
    def __call__(self, prediction: Prediction) -> Float[Array, ""]:
        """The bonus at one (state, action)."""


class Limit(eqx.Module):
    """What a plan may cost: Σ c + λc ‖σ‖ along it, an upper bound of its true cost, is to stay within the budget."""

    cost: AbstractCost
    weight: Float[Array, ""]  # λc
    budget: Float[Array, ""]  # what is left of an episode's

    def bound(
        self,
        dynamics: AbstractDynamics,
        state: State,
        action: Float[Array, " action"],
        next_state: State,
    ) -> Float[Array, ""]:
        """c + λc (‖σ‖ + σ of the cost) of one decision, ‖σ‖ in normalised units."""
        prediction = dynamics.predict(state, action)
        sigma = safe_sqrt(jnp.sum((prediction.epistemic_std / prediction.scale) ** 2))
        return self.cost(state, action, next_state) + self.weight * (sigma + self.cost.std(state, action))


class ImaginedMDP(eqx.Module):
    """The whole interface of a controller: step, reward, discount, whatever the model and the strategy are."""

    dynamics: AbstractDynamics
    task: AbstractTask
    propagation: AbstractPropagation
    bonus: AbstractBonus
    bonus_weight: Float[Array, ""]  # λₙ
    task_weight: Float[Array, ""]  # 1, or 0 when unsupervised
    discount: Float[Array, ""]
    env_action_dim: int = eqx.field(static=True)
    action_dim: int = eqx.field(static=True)  # what the planner optimises: extra controls included
    stochastic: bool = eqx.field(static=True)
    limit: Limit | None = None

    def within(self, budget: Float[Array, "*seeds"]) -> "ImaginedMDP":
        """The same problem with so much of the budget left."""
        return self if self.limit is None else eqx.tree_at(lambda mdp: mdp.limit.budget, self, budget)

    def env_action(self, action: Float[Array, " plan"]) -> Float[Array, " action"]:
        """The part of a planned action that the environment executes."""
        return action[: self.env_action_dim]

    def reward(self, state: State, action: Float[Array, " plan"], next_state: State) -> Float[Array, ""]:
        """r + λₙ‖σₙ‖ under the imagined dynamics: the whole of SOMBRL."""
        action = self.env_action(action)
        bonus = self.bonus(self.dynamics.predict(state, action))
        task_reward = self.task.reward(state, action, next_state)
        return self.task_weight * task_reward + self.bonus_weight * bonus

    def step(
        self, state: State, action: Float[Array, " plan"], *, key: Key[Array, ""]
    ) -> tuple[State, Float[Array, ""], Float[Array, ""]]:
        """One imagined decision: the next state, its reward, and the discount (0 once the task has ended)."""
        next_state = self.propagation(self.dynamics, state, action, key=key)
        reward = self.reward(state, action, next_state)
        ended = self.task.terminated(state, self.env_action(action), next_state)
        return next_state, reward, jnp.where(ended, jnp.zeros_like(self.discount), self.discount)


class Exploration(eqx.Module):
    """Propagation × bonus, with the weight λₙ of the bonus and the weight of the task."""

    propagation: AbstractPropagation
    bonus: AbstractBonus
    bonus_weight: AbstractWeight
    task_weight: float = eqx.field(default=1.0, static=True)
    relative: bool = eqx.field(default=False, static=True)  # λ is in units of `reward_scale`
    calibrated: bool = eqx.field(default=False, static=True)  # λ is that of `calibrated_weight`, from held-out data

    def imagine(
        self,
        dynamics: AbstractDynamics,
        task: AbstractTask,
        *,
        state_dim: int,
        action_dim: int,
        iteration: Int[Array, ""],
        discount: float,
        task_weight: float = 1.0,
        reward_scale: Float[Array, ""] | None = None,
        limit: Limit | None = None,
        key: Key[Array, ""],
    ) -> ImaginedMDP:
        """The problem a controller solves in iteration n; the setting's `task_weight` is 0 when it is unsupervised."""
        bonus_weight = self.bonus_weight(iteration, dynamics)
        if self.calibrated and reward_scale is not None:
            bonus_weight = reward_scale
        elif self.relative and reward_scale is not None:
            bonus_weight = bonus_weight * reward_scale
        return ImaginedMDP(
            dynamics=self.propagation.prepare(dynamics, key=key),
            task=task,
            propagation=self.propagation,
            bonus=self.bonus,
            bonus_weight=bonus_weight,
            task_weight=jnp.asarray(self.task_weight * task_weight, jnp.float32),
            discount=jnp.asarray(discount, jnp.float32),
            env_action_dim=action_dim,
            action_dim=action_dim + self.propagation.extra_actions(state_dim),
            stochastic=self.propagation.stochastic,
            limit=limit,
        )
