"""Policy search in the model: soft actor-critic on many imagined rollouts in parallel (SimFSVGD, appendix D.2).

Between two real episodes the model does not change, so it serves as an environment: rollouts of the policy fill a
buffer of imagined transitions with rewards r + λₙ‖σₙ‖, and SAC learns from the buffer as if they were real. Half of the
rollouts begin where real episodes do, half at visited states. Of all snapshots of the policy, and of all tries, the one
with the highest Jₙ in the model is executed.
"""

import dataclasses
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from annotated_types import Ge, Gt, Interval
from jaxtyping import Array, Bool, Float, Int, Key

from sombrl.config.check import Configuration
from sombrl.controllers.base import AbstractController
from sombrl.controllers.initial_states import AbstractInitialStates
from sombrl.controllers.sac import SAC, SACState
from sombrl.controllers.sac_batches import Policy
from sombrl.controllers.sac_config import SACConfig
from sombrl.controllers.sac_losses import gaussian, sample_actions
from sombrl.exploration.base import ImaginedMDP
from sombrl.exploration.bonus import NoBonus
from sombrl.records import SombrlError, State, Transition
from sombrl.replay import Replay
from sombrl.seeds import side_by_side


@dataclasses.dataclass(frozen=True)
class PolicySearchConfig(Configuration, prefix="search"):
    """Soft actor-critic in the model."""

    rounds: Annotated[int, Ge(1)] = 240
    """Every round is `unroll` decisions of all rollouts and then `updates` updates of SAC."""
    rollouts: Annotated[int, Ge(1)] = 256
    """Imagined rollouts side by side."""
    unroll: Annotated[int, Ge(1)] = 16
    """Decisions of each rollout in a round."""
    updates: Annotated[int, Ge(1)] = 128
    """Updates of SAC in a round (published: one per imagined decision, with batches of 64)."""
    horizon: Annotated[int, Ge(1)] = 100
    """Decisions after which a rollout begins anew, somewhere else; its value goes on behind that."""
    start_share: Annotated[float, Interval(ge=0, le=1)] = 0.5
    """Share of rollouts that begin where real episodes do; the others where data have been."""
    capacity: Annotated[int, Ge(1)] = 50_000
    """Imagined transitions that are kept, the newest ones."""
    reward_scale: Annotated[float, Gt(0)] = 10.0
    """Rewards are multiplied by this before SAC sees them: its temperature has no unit of its own."""
    snapshots: Annotated[int, Ge(1)] = 20
    """How often the policy is judged; the best one is driven."""
    judged_rollouts: Annotated[int, Ge(1)] = 128
    """Imagined episodes, from real starts and without the policy's noise, that a snapshot is judged by."""
    judged_horizon: Annotated[int, Ge(1)] = 100
    """Decisions of each of them."""
    fresh: bool = True
    """Every search begins with a new policy; otherwise with the last search's."""
    tries: Annotated[int, Ge(1)] = 1
    """Searches side by side, each of which goes on from its own last one unless all begin anew; the best policy is
    driven. For rewards so sparse that a search may miss them altogether."""

    def refuse_combinations(self) -> None:
        """A snapshot per round at most, and room for a round."""
        if self.snapshots > self.rounds:
            raise SombrlError(
                f"--search.snapshots must not exceed --search.rounds = {self.rounds}, not {self.snapshots}."
            )
        if self.capacity < self.rollouts * self.unroll:
            raise SombrlError(
                f"--search.capacity must hold a round, {self.rollouts * self.unroll} transitions, not {self.capacity}: "
                "raise it, or lower --search.rollouts."
            )


SEARCH_SAC = SACConfig(
    hidden=(64, 64),
    critic="plain",
    batch_size=256,
    imagined="none",
    policy_every=1,
    actor_lr=1e-3,
    critic_lr=1e-3,
    temperature_lr=1e-3,
    gradient_clip=5.0,
    target_entropy_factor=0.0,
    soft_reset_every=None,
    bonus_weight_lr=0.0,
)
"""SAC inside the model: fewer and larger updates than published (batches of 64, learning rates of 3e-4, half a million
updates), and a policy that stays more random while it learns."""


class SearchState(eqx.Module):
    """The policy that is executed, and the networks that the next searches may begin with."""

    actor: Policy
    sac: SACState  # of every try, in a leading axis


class Rollouts(eqx.Module):
    """The current states of imagined rollouts."""

    obs: Float[Array, "rollouts obs"]
    age: Int[Array, " rollouts"]  # decisions since each began


class ImaginedReplay(Replay):
    """A buffer of imagined transitions, which is filled before it is first sampled."""

    @property
    def at_least(self) -> int:
        """The first round fills some."""
        return 1


class Search(eqx.Module):
    """What changes during a search."""

    sac: SACState
    rollouts: Rollouts
    replay: ImaginedReplay
    best: Policy
    best_value: Float[Array, ""]


class PolicySearch(AbstractController):
    """Improving is a whole training of SAC; acting is one pass through the best actor found, without noise."""

    sac: SAC
    initial_states: AbstractInitialStates
    config: PolicySearchConfig = eqx.field(static=True, default_factory=PolicySearchConfig)

    def __init__(
        self,
        obs_dim: int,
        initial_states: AbstractInitialStates,
        config: PolicySearchConfig,
        sac: SACConfig = SEARCH_SAC,
    ):
        if sac.imagined != "none" or sac.expansion:
            raise SombrlError(
                "policy search learns from imagined data alone: leave --sac.imagined none, and the expansions 0."
            )
        self.sac = SAC(obs_dim, dataclasses.replace(sac, updates_per_call=config.updates), deterministic=True)
        self.initial_states, self.config = initial_states, config

    @property
    def learns(self) -> bool:
        """Its state is a policy."""
        return True

    def init(self, mdp: ImaginedMDP, *, key: Key[Array, ""]) -> SearchState:
        """Untrained networks."""
        sac = jax.vmap(lambda key: self.sac.init(self._task_alone(mdp), key=key))(self._keys(key))
        return SearchState(jax.tree.map(lambda leaf: leaf[0], self.sac.actor(sac)), sac)

    def actor(self, state: SearchState) -> Policy:
        """The policy's."""
        return state.actor

    def begin_episode(self, state: SearchState, mdp: ImaginedMDP) -> SearchState:
        """A policy has nothing that belongs to an episode."""
        return state

    def act(
        self, state: SearchState, mdp: ImaginedMDP, belief: State, *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " plan"], SearchState]:
        """The mode of the policy."""
        return jnp.tanh(gaussian(state.actor, belief)[0]), state

    def improve(
        self, state: SearchState, mdp: ImaginedMDP, replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[SearchState, dict[str, Float[Array, ""]]]:
        """`tries` searches, and the best policy of them all."""
        search = lambda row: self._search(row[0], mdp, replay, key=row[1])  # noqa: E731
        actors, sac, metrics = side_by_side(search, (state.sac, self._keys(key)))
        best = jnp.argmax(metrics["policy/imagined_return"])
        actor, metrics = jax.tree.map(lambda leaf: leaf[best], (actors, metrics))
        return SearchState(actor, sac), metrics

    def _keys(self, key: Key[Array, ""]) -> Key[Array, " tries"]:
        """A key for every try; a single try uses the key itself."""
        return key[None] if self.config.tries == 1 else jr.split(key, self.config.tries)

    def _search(
        self, last: SACState, mdp: ImaginedMDP, replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[Policy, SACState, dict[str, Float[Array, ""]]]:
        """`rounds` rounds in the model: the best of `snapshots` snapshots, the state of SAC, and metrics."""
        config = self.config
        init_key, start_key, age_key, judge_key, search_key = jr.split(key, 5)
        alone = self._task_alone(mdp)
        sac = self.sac.init(alone, key=init_key) if config.fresh else last
        obs = self._begin(replay, config.rollouts, key=start_key)
        # Of all ages from the first round on, so that they do not all restart at once.
        age = jr.randint(age_key, (config.rollouts,), 0, config.horizon)
        imagined = Replay.empty(config.capacity, obs.shape[1], mdp.action_dim)
        search = Search(
            sac=sac,
            rollouts=Rollouts(obs, age),
            replay=ImaginedReplay(imagined.data, imagined.added),
            best=self.sac.actor(sac),
            best_value=jnp.asarray(-jnp.inf, jnp.float32),
        )
        judged = jr.key_data(judge_key)  # the same episodes for every snapshot

        def one_round(search: Search, key: Key[Array, ""]) -> tuple[Search, dict[str, Float[Array, ""]]]:
            rollout_key, learn_key = jr.split(key)
            rollouts, imagined = self._unroll(search, mdp, replay, key=rollout_key)
            sac, metrics = self.sac.improve(search.sac, alone, imagined, key=learn_key)
            where = lambda s: (s.sac, s.rollouts, s.replay)  # noqa: E731
            return eqx.tree_at(where, search, (sac, rollouts, imagined)), metrics

        def one_snapshot(search: Search, keys: Key[Array, " rounds"]) -> tuple[Search, Any]:
            search, metrics = jax.lax.scan(one_round, search, keys)
            actor = self.sac.actor(search.sac)
            value = self._judge(actor, mdp, key=jr.wrap_key_data(judged))
            better = value > search.best_value  # false for NaN
            best = jax.tree.map(lambda new, old: jnp.where(better, new, old), actor, search.best)
            best_value = jnp.where(better, value, search.best_value)
            search = eqx.tree_at(lambda s: (s.best, s.best_value), search, (best, best_value))
            return search, (value, jax.tree.map(lambda leaf: leaf[-1], metrics))

        per_snapshot = -(-config.rounds // config.snapshots)  # rounded up
        keys = jr.split(search_key, (config.snapshots, per_snapshot))
        search, (values, metrics) = jax.lax.scan(one_snapshot, search, keys)
        metrics = {name: leaf[-1] for name, leaf in metrics.items() if name != "policy/bonus_weight"}
        metrics |= {
            "policy/imagined_return": search.best_value,
            "policy/last_imagined_return": values[-1],
            "policy/best_snapshot": jnp.argmax(values).astype(jnp.float32),
        }
        return search.best, search.sac, metrics

    def _unroll(
        self, search: Search, mdp: ImaginedMDP, replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[Rollouts, ImaginedReplay]:
        """`unroll` decisions of every rollout with the policy's noise, and the buffer with them in it."""
        config = self.config

        def decide(rollouts: Rollouts, key: Key[Array, ""]) -> tuple[Rollouts, Transition]:
            noise_key, step_key, start_key = jr.split(key, 3)
            noise = jr.normal(noise_key, (config.rollouts, mdp.action_dim), jnp.float32)
            action, _ = sample_actions(self.sac.actor(search.sac), rollouts.obs, noise)
            next_obs, reward, ended = _step(mdp, rollouts.obs, action, key=step_key)
            rows = Transition(
                rollouts.obs, action, config.reward_scale * reward, next_obs, ended, jnp.zeros_like(ended)
            )
            age = rollouts.age + 1
            # A rollout that is not finite restarts as well: a model may diverge far from its data.
            over = ended | (age >= config.horizon) | ~jnp.all(jnp.isfinite(next_obs), axis=1)
            begun = self._begin(replay, config.rollouts, key=start_key)
            obs = jnp.where(over[:, None], begun, next_obs)
            return Rollouts(obs, jnp.where(over, jnp.zeros_like(age), age)), rows

        rollouts, rows = jax.lax.scan(decide, search.rollouts, jr.split(key, config.unroll))
        rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)
        finite = jnp.all(jnp.isfinite(rows.next_obs), axis=1) & jnp.isfinite(rows.reward)
        imagined = search.replay.add(rows, finite)
        return rollouts, ImaginedReplay(imagined.data, imagined.added)

    def _begin(self, replay: Replay, number: int, *, key: Key[Array, ""]) -> Float[Array, "number obs"]:
        """Where rollouts begin: real initial states, or visited states once there are any."""
        choice_key, start_key, visited_key = jr.split(key, 3)
        fresh = jax.vmap(lambda key: self.initial_states(key=key))(jr.split(start_key, number))
        visited = replay.sample(number, key=visited_key).obs
        real = jr.uniform(choice_key, (number,), jnp.float32) < self.config.start_share
        return jnp.where((real | (replay.count == 0))[:, None], fresh, visited)

    def _judge(self, actor: Policy, mdp: ImaginedMDP, *, key: Key[Array, ""]) -> Float[Array, ""]:
        """Jₙ of the policy's mode: the mean return of imagined episodes from real starts, the bonus in it."""
        config = self.config
        start_key, step_key = jr.split(key)
        obs = jax.vmap(lambda key: self.initial_states(key=key))(jr.split(start_key, config.judged_rollouts))
        running = jnp.ones(config.judged_rollouts, jnp.float32)

        def decide(carry: tuple[Array, Array, Array], key: Key[Array, ""]) -> tuple[Any, None]:
            obs, running, total = carry
            action = jax.vmap(lambda obs: jnp.tanh(gaussian(actor, obs)[0]))(obs)
            next_obs, reward, ended = _step(mdp, obs, action, key=key)
            return (next_obs, jnp.where(ended, 0.0, running), total + running * reward), None

        keys = jr.split(step_key, config.judged_horizon)
        (_, _, total), _ = jax.lax.scan(decide, (obs, running, jnp.zeros_like(running)), keys)
        return jnp.mean(total)

    def _task_alone(self, mdp: ImaginedMDP) -> ImaginedMDP:
        """The MDP for SAC: imagined rewards include the bonus and the task's weight already."""
        one, zero = jnp.ones((), jnp.float32), jnp.zeros((), jnp.float32)
        where = lambda m: (m.bonus, m.bonus_weight, m.task_weight)  # noqa: E731
        alone: ImaginedMDP = eqx.tree_at(where, mdp, (NoBonus(), zero, one), is_leaf=lambda leaf: leaf is mdp.bonus)
        return alone


def _step(
    mdp: ImaginedMDP, obs: Float[Array, "batch obs"], action: Float[Array, "batch plan"], *, key: Key[Array, ""]
) -> tuple[Float[Array, "batch obs"], Float[Array, " batch"], Bool[Array, " batch"]]:
    """One imagined decision of every rollout: next observations, rewards with the bonus, and which tasks have ended."""

    def step(obs: Array, action: Array, key: Key[Array, ""]) -> tuple[State, Array, Array]:
        return mdp.step(obs, action, key=key)

    next_obs, reward, discount = jax.vmap(step)(obs, action, jr.split(key, obs.shape[0]))
    return next_obs, reward, discount == 0
