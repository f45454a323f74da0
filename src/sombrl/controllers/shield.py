"""A shield around a policy: what it wants to do is imagined first, and another acts where that may cost too much.

As in ActSafe and SOOPER (2024, 2026), a policy learns and explores as if nothing could happen, and a model watches: the
next decisions are imagined, the first with the action that is proposed. Where the upper bound of their cost is beyond
what is left of the budget, the fallback acts: by default a planner for cost alone.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.controllers.base import AbstractController, Watch
from sombrl.controllers.icem import ICEM, ICEMConfig
from sombrl.controllers.rollout import watch
from sombrl.exploration.base import ImaginedMDP
from sombrl.networks.normaliser import Normalised
from sombrl.networks.residual import Body
from sombrl.records import State
from sombrl.replay import Replay

FALLBACK = ICEMConfig(num_samples=64, num_elites=8, iterations=3, noise_exponent=1.0, init_std=0.8)
"""A search for the plan that costs least."""


class Shield(AbstractController):
    """Learns as the controller inside does, and acts as it does wherever that is foreseen to be within the budget."""

    controller: AbstractController
    ahead: AbstractController
    """Acts in imagination, with the same state: the controller itself, or a cheaper one than it."""
    fallback: AbstractController
    """Remembers nothing from one decision to the next."""
    horizon: int = eqx.field(static=True)

    @staticmethod
    def around(
        controller: AbstractController,
        horizon: int,
        *,
        ahead: AbstractController | None = None,
        fallback: AbstractController | None = None,
    ) -> "Shield":
        """With a planner for cost alone to fall back to."""
        planner = ICEM(dataclasses.replace(FALLBACK, horizon=horizon))
        return Shield(controller, ahead or controller, fallback or planner, horizon)

    @property
    def learns(self) -> bool:
        """Its state is that of the controller inside."""
        return self.controller.learns

    @property
    def learns_from_data(self) -> bool:
        """As without a shield."""
        return self.controller.learns_from_data

    def for_evaluation(self) -> "Shield":
        """A shield around the controller without its noise."""
        return dataclasses.replace(self, controller=self.controller.for_evaluation(), ahead=self.ahead.for_evaluation())

    def init(self, mdp: ImaginedMDP, *, key: Key[Array, ""]) -> Any:
        """As without a shield."""
        return self.controller.init(mdp, key=key)

    def actor(self, state: Any) -> Body | Normalised | None:
        """The network of the policy inside, which knows nothing of costs."""
        return self.controller.actor(state)

    def begin_episode(self, state: Any, mdp: ImaginedMDP) -> Any:
        """As without a shield."""
        return self.controller.begin_episode(state, mdp)

    def improve(
        self, state: Any, mdp: ImaginedMDP, replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[Any, dict[str, Float[Array, ""]]]:
        """As without a shield."""
        return self.controller.improve(state, mdp, replay, key=key)

    @property
    def renew_every(self) -> int | None:
        """As without a shield."""
        return self.controller.renew_every

    def renew(self, state: Any, mdp: ImaginedMDP, *, key: Key[Array, ""]) -> Any:
        """As without a shield."""
        return self.controller.renew(state, mdp, key=key)

    def act(
        self, state: Any, mdp: ImaginedMDP, belief: State, *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " plan"], Any]:
        """What the controller proposes, or what the fallback does; without a limit there is nothing to watch."""
        if mdp.limit is None:
            return self.controller.act(state, mdp, belief, key=key)
        return self.act_watched(state, mdp, belief, key=key)[:2]

    def act_watched(
        self, state: Any, mdp: ImaginedMDP, belief: State, *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " plan"], Any, Watch]:
        """The upper bound is that of the proposed action and what the policy would do after it."""
        act_key, ahead_key, watch_key, fallback_key = jr.split(key, 4)
        proposed, new = self.controller.act(state, mdp, belief, key=act_key)
        plan = self._followed(state, mdp, belief, proposed, ahead_key)
        seen = watch(mdp, belief, plan, particles=1, key=watch_key)

        def fall_back() -> Float[Array, " plan"]:
            start_key, search_key = jr.split(fallback_key)
            cheapest = _for_cost_alone(mdp)
            start = self.fallback.init(cheapest, key=start_key)
            return self.fallback.act(start, cheapest, belief, key=search_key)[0]

        return jax.lax.cond(seen.intervened, fall_back, lambda: proposed), new, seen

    def _followed(
        self, state: Any, mdp: ImaginedMDP, belief: State, first: Float[Array, " plan"], key: Key[Array, ""]
    ) -> Float[Array, "horizon plan"]:
        """The actions of the next decisions along the mean of the model: the first, then what the policy does."""
        policy = self.ahead.for_evaluation()

        def step(carry: tuple[State, Array], time: Array) -> tuple[tuple[State, Array], Array]:
            imagined, action = carry
            reached = mdp.dynamics.predict(imagined, mdp.env_action(action)).mean
            following, _ = policy.act(state, mdp, reached, key=jr.fold_in(key, time))
            return (reached, following), action

        times = jnp.arange(self.horizon, dtype=jnp.int32)
        _, actions = jax.lax.scan(step, (belief, first), times)
        return jnp.asarray(actions)


def _for_cost_alone(mdp: ImaginedMDP) -> ImaginedMDP:
    """The same world, where plans differ by the upper bound of their cost alone: none is within a budget below 0."""
    assert mdp.limit is not None
    return mdp.within(jnp.full_like(mdp.limit.budget, -1.0))
