"""Short plans that begin with a learned policy and end in its critics, as in TD-MPC2 (Hansen et al., 2024).

The policy is learned as it always is. A decision is a search over a few steps of the model: it begins with what the
policy would do in the imagined states, tries changes of that, and values the state at the end as the critics do. Task
and bonus are those that the critics are trained with: the same γ, the same λσ. The entropy counts inside the critics
alone. Nothing is carried from one decision to the next, so an agent that was trained without plans can act by them.
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from annotated_types import Ge, Gt
from jaxtyping import Array, Float, Key

from sombrl.config.check import Configuration
from sombrl.controllers.base import AbstractController
from sombrl.controllers.icem import ICEM, ICEMConfig
from sombrl.controllers.mppi import MPPI, MPPIConfig
from sombrl.controllers.rollout import AbstractPlanValue, better_start
from sombrl.controllers.sac import SAC, SACState
from sombrl.controllers.sac_losses import gaussian, squash, twin_q, value_of
from sombrl.exploration.base import ImaginedMDP
from sombrl.networks.normaliser import Normalised
from sombrl.networks.residual import Body
from sombrl.records import State
from sombrl.replay import Replay

Search = Literal["mppi", "icem"]
ELITES = 0.1
"""Of iCEM's candidates, the share that its distribution is refitted to."""
NEARLY_ONE = 1.0 - 1e-6
"""What a planned action is at most before the policy's noise is added in front of the tanh."""


@dataclass(frozen=True)
class PlanConfig(Configuration, prefix="plan"):
    """Short plans around a policy. The defaults cost about two updates of a small SAC."""

    horizon: Annotated[int, Ge(0)] = 3
    """Decisions looked ahead; 0: the policy acts."""
    num_samples: Annotated[int, Ge(1)] = 128
    """Candidates per iteration."""
    iterations: Annotated[int, Ge(0)] = 3
    """Rounds of the search; 0: the best of what the policy proposes."""
    proposals: Annotated[int, Ge(0)] = 16
    """Plans that the search may begin with beside the policy's likeliest actions: samples of the policy."""
    init_std: Annotated[float, Ge(0)] = 0.3
    """Standard deviation of the noise at the start of a search; actions span [-1, 1]."""
    temperature: Annotated[float, Gt(0)] = 0.3
    """mppi: in standard deviations of the scores."""
    particles: Annotated[int, Ge(1)] = 5
    """Imagined futures per candidate; where imagination is deterministic it is always 1."""

    def search(self, name: Search) -> MPPI | ICEM:
        """The search of that name. It has white noise: there is no time for slow movements."""
        common = {name: getattr(self, name) for name in ("num_samples", "iterations", "horizon", "particles")}
        common |= {"init_std": self.init_std, "noise_exponent": 0.0}
        if name == "mppi":
            return MPPI(MPPIConfig(temperature=self.temperature, **common))
        return ICEM(ICEMConfig(num_elites=max(1, round(ELITES * self.num_samples)), **common))


class PolicyEnd(AbstractPlanValue):
    """What a plan is worth at its end by the critics of a policy; and plans that this policy proposes."""

    sac: SAC
    state: SACState
    mdp: ImaginedMDP  # as the critics see it
    noise: Float[Array, "plans horizon plan"]

    def __call__(self, state: State, horizon: int) -> Float[Array, ""]:
        """Q(x, u) at the policy's likeliest action, and λσ there where Q does not have it."""
        action = self.likeliest(state)
        obs = self.state.seen(state[None])
        value = value_of(twin_q(self.state.critic, obs, action[None]), self.sac.config.critics)[0]
        if self.sac.config.bonus_enters == "reward":
            return value
        return value + self.mdp.bonus_weight * self.mdp.bonus(self.mdp.dynamics.predict(state, action))

    def propose(self, mdp: ImaginedMDP, state: State, horizon: int) -> Float[Array, "plans horizon plan"]:
        """Samples of the policy along the mean of the model."""
        plans: Float[Array, "plans horizon plan"] = jax.vmap(lambda noise: self.follow(state, noise))(self.noise)
        return plans

    def likeliest(self, state: State) -> Float[Array, " plan"]:
        """The mode of the policy."""
        return jnp.tanh(gaussian(self.sac.actor(self.state), state)[0])

    def follow(self, state: State, noise: Float[Array, "horizon plan"]) -> Float[Array, "horizon plan"]:
        """What the policy does from a state on, with given noise."""
        policy = self.sac.actor(self.state)

        def step(state: Array, noise: Array) -> tuple[Array, Array]:
            action, _ = squash(*gaussian(policy, state), noise)
            return self.mdp.dynamics.predict(state, self.mdp.env_action(action)).mean, action

        _, actions = jax.lax.scan(step, state, noise)
        return jnp.asarray(actions)


class PlannedPolicy(AbstractController):
    """Learns as SAC does, and acts by short plans from its policy."""

    sac: SAC
    config: PlanConfig = eqx.field(static=True, default_factory=PlanConfig)
    search: Search = eqx.field(static=True, default="mppi")

    @property
    def learns(self) -> bool:
        """Its state is that of the policy."""
        return True

    def for_evaluation(self) -> "PlannedPolicy":
        """The same plans, and no noise."""
        return dataclasses.replace(self, sac=self.sac.for_evaluation())

    def init(self, mdp: ImaginedMDP, *, key: Key[Array, ""]) -> SACState:
        """An untrained policy."""
        return self.sac.init(mdp, key=key)

    def actor(self, state: SACState) -> Body | Normalised:
        """The policy alone."""
        return self.sac.actor(state)

    def begin_episode(self, state: SACState, mdp: ImaginedMDP) -> SACState:
        """Nothing belongs to an episode."""
        return self.sac.begin_episode(state, mdp)

    def improve(
        self, state: SACState, mdp: ImaginedMDP, replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[SACState, dict[str, Float[Array, ""]]]:
        """As without plans."""
        return self.sac.improve(state, mdp, replay, key=key)

    @property
    def renew_every(self) -> int | None:
        """As without plans."""
        return self.sac.renew_every

    def renew(self, state: SACState, mdp: ImaginedMDP, *, key: Key[Array, ""]) -> SACState:
        """As without plans."""
        return self.sac.renew(state, mdp, key=key)

    def take_over(self, state: SACState, fresh: SACState) -> SACState:
        """As without plans."""
        return self.sac.take_over(state, fresh)

    def act(
        self, state: SACState, mdp: ImaginedMDP, belief: State, *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " plan"], SACState]:
        """The first action of the best plan; exploring, the noise that the policy would have here is added to it."""
        if self.config.horizon == 0:
            return self.sac.act(state, mdp, belief, key=key)
        plan_key, noise_key = jr.split(key)
        planned = self._plan(state, mdp, belief, plan_key)
        if self.sac.deterministic:
            return planned, state
        mean, log_std = gaussian(self.actor(state), belief)
        # Where the plan is what the policy does, its sample is the policy's, also beyond what arctanh can tell apart.
        before = jnp.where(planned == jnp.tanh(mean), mean, jnp.arctanh(jnp.clip(planned, -NEARLY_ONE, NEARLY_ONE)))
        return squash(before, log_std, jr.normal(noise_key, mean.shape, mean.dtype))[0], state

    def _plan(self, state: SACState, mdp: ImaginedMDP, belief: State, key: Key[Array, ""]) -> Float[Array, " plan"]:
        config, seen = self.config, self.sac.objective(state, mdp)
        draw_key, search_key = jr.split(key)
        shape = (config.proposals, config.horizon, mdp.action_dim)
        end = PolicyEnd(self.sac, state, seen, jr.normal(draw_key, shape, jnp.float32))
        first = end.follow(belief, jnp.zeros(shape[1:], jnp.float32))
        if config.iterations == 0:
            options: dict[str, Any] = {"particles": config.particles, "key": search_key}
            return better_start(seen, belief, first, end, **options)[0][0]
        search = config.search(self.search)
        start_key, act_key = jr.split(search_key)
        start: Any = dataclasses.replace(search.init(seen, key=start_key), plan=first, value=end)
        action, _ = search.act(start, seen, belief, key=act_key)
        return action
