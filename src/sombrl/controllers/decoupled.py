"""Two policies from the same data: one for the task alone and one that is curious too (Whitney et al., 2021).

They act in turn, an episode each, beginning with the curious one. So either has half of the data that it would have
alone, and all of the other's; what is evaluated and exported is the policy for the task, which no λ distracts.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key

from sombrl.controllers.base import AbstractController
from sombrl.controllers.sac import SAC, SACState
from sombrl.controllers.sac_batches import Policy
from sombrl.exploration.base import ImaginedMDP
from sombrl.exploration.bonus import NoBonus
from sombrl.records import State
from sombrl.replay import Replay


class DecoupledState(eqx.Module):
    """Both policies, and which of them acts."""

    task: SACState
    curious: SACState
    exploring: Bool[Array, ""]


class Decoupled(AbstractController):
    """Learns both with the same settings, and acts by one of them; without noise by the one for the task."""

    sac: SAC

    @property
    def learns(self) -> bool:
        """Its state has a policy."""
        return True

    def for_evaluation(self) -> "Decoupled":
        """The policy for the task, without its noise."""
        return Decoupled(self.sac.for_evaluation())

    def init(self, mdp: ImaginedMDP, *, key: Key[Array, ""]) -> DecoupledState:
        """Two untrained policies."""
        task_key, curious_key = jr.split(key)
        task, curious = self.sac.init(_task(mdp), key=task_key), self.sac.init(mdp, key=curious_key)
        return DecoupledState(task, curious, jnp.ones((), bool))

    def actor(self, state: DecoupledState) -> Policy:
        """The task's."""
        return self.sac.actor(state.task)

    def begin_episode(self, state: DecoupledState, mdp: ImaginedMDP) -> DecoupledState:
        """Nothing belongs to an episode: whose turn it is, `improve` sees in the data."""
        return state

    def act(
        self, state: DecoupledState, mdp: ImaginedMDP, belief: State, *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " plan"], DecoupledState]:
        """What the policy does whose turn it is."""
        acting = state.task
        if not self.sac.deterministic:
            acting = jax.tree.map(lambda a, b: jnp.where(state.exploring, a, b), state.curious, state.task)
        return self.sac.act(acting, mdp, belief, key=key)[0], state

    def improve(
        self, state: DecoupledState, mdp: ImaginedMDP, replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[DecoupledState, dict[str, Float[Array, ""]]]:
        """Both learn, from batches of their own; the metrics are the curious policy's. After an episode they change."""
        task_key, curious_key = jr.split(key)
        task, _ = self.sac.improve(state.task, _task(mdp), replay, key=task_key)
        curious, metrics = self.sac.improve(state.curious, mdp, replay, key=curious_key)
        last = replay.last
        over = (last.terminated | last.truncated) & (replay.count > 0)
        return DecoupledState(task, curious, state.exploring ^ over), metrics

    @property
    def renew_every(self) -> int | None:
        """That of each policy."""
        return self.sac.renew_every

    def renew(self, state: DecoupledState, mdp: ImaginedMDP, *, key: Key[Array, ""]) -> DecoupledState:
        """Both forget."""
        task_key, curious_key = jr.split(key)
        task = self.sac.renew(state.task, _task(mdp), key=task_key)
        curious = self.sac.renew(state.curious, mdp, key=curious_key)
        return DecoupledState(task, curious, state.exploring)


def _task(mdp: ImaginedMDP) -> ImaginedMDP:
    """The same problem without a bonus."""
    return dataclasses.replace(mdp, bonus=NoBonus(), bonus_weight=jax.lax.full_like(mdp.bonus_weight, 0.0))
