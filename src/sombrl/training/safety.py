"""A cost beside the reward: where it comes from, how much of it an episode may have, and how it is counted.

The lemma behind optimism bounds the cost of any policy as it does its return: J_c(π) <= J_c,n(π) + λc Σₙ(π). Planners
and shields keep that bound, of what they look ahead, within what is left of an episode's budget.
"""

import dataclasses
import functools
import math
from typing import Annotated, Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Interval, Le

from sombrl.config.check import Configuration
from sombrl.config.kinds import Advice
from sombrl.controllers.base import Watch
from sombrl.dynamics.base import AbstractLearner
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.interface import Step
from sombrl.envs.jax_envs import JaxEnvs
from sombrl.exploration.base import Limit
from sombrl.exploration.config import ExploreConfig
from sombrl.records import VIOLATION, AbstractCost, SombrlError, TerminationCost
from sombrl.seeds import over_seeds
from sombrl.settings import Setting

Source = Literal["reported", "termination"]
NO_BOUND = ("thompson", "hucrl")


@dataclasses.dataclass(frozen=True)
class SafetyConfig(Configuration, prefix="safety"):
    """A cost beside the reward, and how much of it is allowed. Off unless there is a budget."""

    budget: Annotated[float, Ge(0), Le(math.inf), Advice("leave it out to look at no costs")] | None = None
    """What an episode may cost; below 1 it may have no violation. inf: costs are counted, and nothing is avoided. None:
    they are not looked at."""
    weight: Annotated[float, Ge(0)] = 0.2
    """λc of the upper bound c + λc‖σ‖, per decision and unit of ‖σ‖ (normalised)."""
    cost: Source = "reported"
    """What costs. reported: the world's own function, or info["cost"]; termination: 1 when the task ends."""
    cost_model: Literal["auto", "known", "learned"] = "auto"
    """Plan with the cost as a known function, or learn it as one more output of the model; auto: known where it is."""
    horizon: Annotated[int, Ge(1)] = 10
    """Policies: decisions that the shield looks ahead. Planners look as far ahead as they plan."""
    random_size: Annotated[float, Interval(ge=0, le=1)] = 1.0
    """Largest action of the random episodes that a run begins with, which no model watches: one known to be safe."""

    def build(self, envs: AbstractEnvs, setting: Setting, explore: ExploreConfig) -> "Safety | None":
        """The cost of an environment; refuses one that has none."""
        if self.budget is None:
            return None
        if not setting.resets:
            raise SombrlError("--safety.budget is for an episode, and --setting non-episodic has none: leave it out.")
        if math.isfinite(self.budget) and explore.explore in NO_BOUND:
            raise SombrlError(
                f"--explore {explore.explore} plans in a world that it has chosen, whose cost bounds nothing: use "
                "--explore optimistic, greedy or pets with --safety.budget."
            )
        known = _known(self.cost, envs)
        if self.cost_model == "known" and known is None:
            raise SombrlError(
                f"the cost of {envs.spec.name} is not known as a function: use --safety.cost-model learned (or auto)."
            )
        if self.cost == "reported" and known is None:
            _require_report(envs)
        learned = math.isfinite(self.budget) and (known is None or self.cost_model == "learned")
        return Safety(self, known, learned)


@dataclasses.dataclass(frozen=True)
class Safety:
    """The costs of a run."""

    config: SafetyConfig
    known: AbstractCost | None
    learned: bool
    """Whether the model learns the cost."""

    @property
    def budget(self) -> float:
        """Of an episode."""
        return math.inf if self.config.budget is None else self.config.budget

    @property
    def constrains(self) -> bool:
        """Whether anything is avoided; with a budget of inf costs are only counted."""
        return math.isfinite(self.budget)

    def limit(self, learner: AbstractLearner, state: Any) -> Limit | None:
        """What a model's plans may cost."""
        cost = learner.cost(state) or self.known
        if not self.constrains or cost is None:
            return None
        return Limit(cost, jnp.asarray(self.config.weight, jnp.float32), jnp.asarray(self.budget, jnp.float32))

    def costs(self, obs: np.ndarray, actions: np.ndarray, step: Step, active: np.ndarray) -> np.ndarray:
        """What a decision of every row did cost, [seeds]."""
        if self.config.cost == "termination":
            costs = np.where(step.terminated, VIOLATION, 0.0)
        elif self.known is not None:
            rows = (np.asarray(row, np.float32) for row in (obs, actions, step.obs))
            costs = np.asarray(self._judge(*map(jnp.asarray, rows)), np.float64)
        else:
            costs = np.full(len(active), np.nan) if step.cost is None else step.cost
            if np.isnan(costs[active]).any():
                raise SombrlError(
                    'a step reported no cost, and others did: info["cost"] must be there at every step, 0 where '
                    "nothing happened."
                )
        return np.where(active, costs, 0.0)

    @functools.cached_property
    def _judge(self) -> Any:
        known = self.known
        assert known is not None
        return over_seeds(lambda obs, action, next_obs: known(obs, action, next_obs))


class CostCount(eqx.Module):
    """What was counted, [seeds]; saved with the run."""

    episode: np.ndarray  # what the episode at hand has cost so far
    violations: np.ndarray  # since the start
    decisions: np.ndarray  # since the start

    @staticmethod
    def none(seeds: int) -> "CostCount":
        """Before the first decision."""
        return CostCount(np.zeros(seeds), np.zeros(seeds, np.int64), np.zeros(seeds, np.int64))


class CostBook:
    """The costs of one iteration, on top of what was counted before."""

    def __init__(self, safety: Safety, before: CostCount, length: int):
        seeds = len(before.episode)
        self.safety = safety
        self.spent = before.episode.copy()
        self.costs = np.zeros((seeds, length))  # of every decision
        self._before = before
        self._active = np.zeros(seeds, np.int64)
        self._bounds, self._foreseen, self._interventions = np.zeros(seeds), np.zeros(seeds), np.zeros(seeds)

    @property
    def left(self) -> np.ndarray:
        """What is left of the budget, never less than nothing."""
        return np.maximum(self.safety.budget - self.spent, 0.0).astype(np.float32)

    def note(
        self,
        t: int,
        obs: np.ndarray,
        actions: np.ndarray,
        step: Step,
        active: np.ndarray,
        seen: Watch | None = None,
        random: np.ndarray | None = None,
    ) -> None:
        """Decision t: what it cost, and what was foreseen of it, but for rows whose actions were `random`."""
        self.costs[:, t] = self.safety.costs(obs, actions, step, active)
        self.spent += self.costs[:, t]
        self._active += active
        if seen is not None:
            foreseen = active if random is None else active & ~random
            self._bounds += np.where(foreseen, np.asarray(seen.bound, np.float64), 0.0)
            self._foreseen += foreseen
            self._interventions += foreseen & np.asarray(seen.intervened)

    def restart(self, rows: np.ndarray) -> None:
        """New episodes begin on some rows."""
        self.spent[rows] = 0.0

    def count(self) -> CostCount:
        """All that was counted so far."""
        violations = self._before.violations + np.sum(self.costs >= VIOLATION, axis=1)
        return CostCount(self.spent.copy(), violations, self._before.decisions + self._active)

    def columns(self) -> dict[str, np.ndarray]:
        """Metrics of the iteration."""
        after = self.count()
        columns = {
            "safety/violations": (after.violations - self._before.violations).astype(float),
            "safety/cost": self.costs.sum(axis=1),
            "safety/violations_per_1000": 1000.0 * after.violations / np.maximum(after.decisions, 1),
        }
        if self.safety.constrains:
            columns["safety/interventions"] = self._interventions
            columns["safety/bound"] = np.where(self._foreseen > 0, self._bounds / np.maximum(self._foreseen, 1), np.nan)
        return columns


def _known(source: Source, envs: AbstractEnvs) -> AbstractCost | None:
    """The cost as a function, where there is one."""
    if source == "reported":
        if envs.cost is not None and not isinstance(envs.cost, AbstractCost):
            raise SombrlError(f"the cost_function of {envs.spec.name} must be a sombrl.records.AbstractCost.")
        return envs.cost
    if isinstance(envs, JaxEnvs) and not envs.world.can_end():
        raise SombrlError(f"{envs.spec.name} never ends by itself, so --safety.cost termination avoids nothing.")
    return None if envs.task is None else TerminationCost(envs.task)


def _require_report(envs: AbstractEnvs) -> None:
    """Refuse an environment whose first step says nothing of a cost."""
    everyone = np.ones(len(envs.seeds), bool)
    envs.reset(0)
    cost = envs.step(np.zeros((len(envs.seeds), envs.spec.action_dim), np.float32), everyone).cost
    if cost is None or np.isnan(cost).any():
        raise SombrlError(
            f'{envs.spec.name} reports no cost: let its steps have info["cost"], choose a limit (--env pendulum '
            "--env-kwargs speed_limit=6), use --safety.cost termination, or leave --safety.budget out."
        )
