"""The value of what is planned for beyond a planner's horizon, found inside the model.

A number of visited states, the anchors, form a small decision problem. From each of them one may hold an action for a
few imagined decisions of the mean model, or do what was really done there. Where that ends, the value is an average of
the values of the anchors nearby. A problem of this form has one solution whatever the model is (Ormoneit & Sen 2002),
and policy iteration finds it exactly in a few rounds, however far away the reward is.
"""

import dataclasses
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from annotated_types import Ge, Interval
from jaxtyping import Array, Bool, Float, Int, Key

from sombrl.config.check import Configuration
from sombrl.controllers.best_episodes import BestEpisodes
from sombrl.controllers.rollout import AbstractPlanValue
from sombrl.exploration.base import ImaginedMDP
from sombrl.replay import Replay
from sombrl.settings import Setting

DURATIONS = (1, 2, 4, 8)
"""Decisions for which an action is held: short ones for precision, long ones to get away from the anchor."""
BANDWIDTH = 0.5
"""Width of the averages, as a share of the mean distance from an anchor to the nearest other one."""
ROUNDS = 30
"""Most rounds of policy iteration; it needs five to fifteen."""
MOST_DECISIONS = 1000
"""Of a long episode only so many are kept as a plan."""
GROWTH = 0.1
"""The value is fitted again when there are so many more data than the last time, as a share."""


@dataclasses.dataclass(frozen=True)
class HorizonValueConfig(Configuration, prefix="value"):
    """The value beyond the horizon of a planner."""

    anchors: Annotated[int, Ge(8)] = 256
    """Visited states that carry a value. More of them are more precise and cost more."""
    actions: Annotated[int, Ge(2)] = 7
    """Actions tried in every one of them: evenly spread where there is one control, drawn at random where there are
    more."""
    discount: Annotated[float, Interval(gt=0, lt=1)] | None = None
    """γ of the value. Default: the setting's own, or 1 - 1/T for episodes of T decisions, between 0.9 and 0.99."""

    def build(self, setting: Setting, obs_dim: int, action_dim: int) -> "ValueFit":
        """How to fit it in a setting."""
        usual = setting.discount if setting.discount < 1 else 1.0 - 1.0 / setting.longest if setting.resets else 0.99
        limit = setting.longest if setting.resets and setting.discount == 1 else None
        discount, longest = self.discount or min(max(usual, 0.9), 0.99), min(setting.longest, MOST_DECISIONS)
        return ValueFit(self, discount, limit, longest, obs_dim, action_dim)


class HorizonValue(AbstractPlanValue):
    """V(x) as an average over anchors, and what is best to do in each of them."""

    center: Float[Array, " obs"]
    scale: Float[Array, " obs"]
    anchors: Float[Array, "anchor obs"]  # normalised
    used: Bool[Array, " anchor"]
    bandwidth: Float[Array, ""]
    values: Float[Array, " anchor"]
    actions: Float[Array, "anchor action"]  # the first action of the best option
    episodes: BestEpisodes
    fitted_on: Int[Array, ""]  # transitions
    decision: Int[Array, ""]  # since the episode began
    discount: float = eqx.field(static=True)
    limit: int | None = eqx.field(static=True)  # decisions of an episode; None: it has no end that counts

    def __call__(self, state: Float[Array, " obs"], horizon: int) -> Float[Array, ""]:
        """V(x), as far as the decisions that are left of the episode can still earn it."""
        return self.share(horizon) * jnp.sum(self.weights(state) * self.values)

    def share(self, horizon: int) -> Float[Array, ""]:
        """How much of V can still be earned after a plan of `horizon` decisions.

        (1 - γ)V is an average reward, and V that of 1/(1 - γ) decisions. An agent that acts on beyond the length of its
        episodes has no end that counts.
        """
        if self.limit is None:
            return jnp.ones((), jnp.float32)
        left = (self.limit - self.decision - horizon).astype(jnp.float32)
        share = jnp.clip((1.0 - self.discount) * left, 0.0, 1.0)
        return jnp.where(self.decision < self.limit, share, 1.0)

    def begin_episode(self) -> "HorizonValue":
        """The same value at the first decision."""
        return dataclasses.replace(self, decision=jnp.zeros_like(self.decision))

    def after_decision(self) -> "HorizonValue":
        """The same value one decision later."""
        return dataclasses.replace(self, decision=self.decision + 1)

    def weights(self, state: Float[Array, " obs"]) -> Float[Array, " anchor"]:
        """How much each anchor counts at a state: a softmax of squared distances, so the nearest one always does."""
        distance = self._distances(state) / (2.0 * self.bandwidth**2)
        weights = jnp.where(self.used, jnp.exp(jnp.min(distance) - distance), 0.0)
        return weights / jnp.maximum(jnp.sum(weights), 1e-30)

    def act(self, state: Float[Array, " obs"]) -> Float[Array, " action"]:
        """What is best to do in the nearest anchor."""
        return self.actions[jnp.argmin(self._distances(state))]

    def propose(
        self, mdp: ImaginedMDP, state: Float[Array, " obs"], horizon: int
    ) -> Float[Array, "plans horizon plan"]:
        """In every imagined state what is best in the nearest anchor; and what was done in the best episodes.

        No hallucinated control is used.
        """

        def step(state: Array, _: None) -> tuple[Array, Array]:
            action = self.act(state)
            after = mdp.dynamics.predict(state, action).mean
            return jnp.where(jnp.isfinite(after), after, state), action

        _, actions = jax.lax.scan(step, state, length=horizon)
        plans = jnp.concatenate([actions[None], self.episodes.plans(state, self.scale, horizon)])
        return jnp.pad(plans, ((0, 0), (0, 0), (0, mdp.action_dim - mdp.env_action_dim)))

    def _distances(self, state: Float[Array, " obs"]) -> Float[Array, " anchor"]:
        squares = (self.anchors - ((state - self.center) / self.scale)[None, :]) ** 2
        return jnp.where(self.used, jnp.sum(squares, axis=1), 1e30)


@dataclasses.dataclass(frozen=True)
class ValueFit:
    """How a planner gets the value beyond its horizon."""

    config: HorizonValueConfig
    discount: float
    limit: int | None
    """Decisions of an episode whose end counts; None: what comes after it counts as much."""
    longest: int
    """Decisions of an episode that are kept, at most."""
    obs_dim: int
    action_dim: int

    def init(self) -> HorizonValue:
        """Before any data: V = 0."""
        number = self.config.anchors
        return HorizonValue(
            center=jnp.zeros(self.obs_dim, jnp.float32),
            scale=jnp.ones(self.obs_dim, jnp.float32),
            anchors=jnp.zeros((number, self.obs_dim), jnp.float32),
            used=jnp.zeros(number, bool),
            bandwidth=jnp.ones((), jnp.float32),
            values=jnp.zeros(number, jnp.float32),
            actions=jnp.zeros((number, self.action_dim), jnp.float32),
            episodes=BestEpisodes.none(self.longest, self.obs_dim, self.action_dim),
            fitted_on=jnp.zeros((), jnp.int32),
            decision=jnp.zeros((), jnp.int32),
            discount=self.discount,
            limit=self.limit,
        )

    def improve(self, value: HorizonValue, mdp: ImaginedMDP, replay: Replay, *, key: Key[Array, ""]) -> HorizonValue:
        """Fit again where there are enough new data."""
        due = replay.added.astype(jnp.float32) > (1.0 + GROWTH) * value.fitted_on.astype(jnp.float32)
        improved: HorizonValue = jax.lax.cond(
            due,
            lambda: fit(self.config, self.discount, value, mdp, replay, key=key),
            lambda: dataclasses.replace(value),
        )
        return improved


def fit(
    config: HorizonValueConfig,
    discount: float,
    value: HorizonValue,
    mdp: ImaginedMDP,
    replay: Replay,
    *,
    key: Key[Array, ""],
) -> HorizonValue:
    """The value of what is planned for, bonus included, under the mean of the model, from all data."""
    value, rows = _place_anchors(value, replay)
    states = replay.data.obs[rows]
    actions = _try_actions(config, mdp.env_action_dim, key)

    ends, rewards, discounts = jax.vmap(
        lambda state: jax.vmap(lambda action: _hold(mdp, state, action, discount))(actions)
    )(states)  # [anchor, action, duration, …]
    number = states.shape[0]

    def flat(leaf: Array) -> Array:
        return leaf.reshape(number, -1, *leaf.shape[3:])

    ends, rewards, discounts = flat(ends), flat(rewards), flat(discounts)
    weights = jax.vmap(jax.vmap(value.weights))(ends)
    followed = _follow(config, mdp, replay, rows, value.used, discount)
    first = jnp.repeat(actions, len(DURATIONS), axis=0)
    values, best = _solve(rewards, discounts, weights, followed)
    return dataclasses.replace(
        value,
        values=jnp.where(value.used, values, 0.0),
        actions=jnp.where(
            (best < first.shape[0])[:, None], first[jnp.minimum(best, first.shape[0] - 1)], replay.data.action[rows]
        ),
        episodes=value.episodes.found_in(replay),
        fitted_on=replay.added,
    )


def _place_anchors(value: HorizonValue, replay: Replay) -> tuple[HorizonValue, Int[Array, " anchor"]]:
    """Visited states at even steps along the data, and their rows; all of them where there are few."""
    number, count = value.values.shape[0], replay.count
    index = jnp.arange(number, dtype=jnp.int32)
    spread = (index.astype(jnp.float32) * count.astype(jnp.float32) / number).astype(jnp.int32)
    rows = jnp.minimum(jnp.where(count > number, spread, index), replay.capacity - 1)
    used = index < count
    states, mask = replay.data.obs, replay.mask.astype(jnp.float32)[:, None]
    total = jnp.maximum(jnp.sum(mask), 1.0)
    center = jnp.sum(states * mask, axis=0) / total
    scale = jnp.sqrt(jnp.sum((states - center[None, :]) ** 2 * mask, axis=0) / total)
    scale = jnp.where(scale > 1e-6, scale, 1.0)
    anchors = (states[rows] - center[None, :]) / scale[None, :]
    gaps = jnp.sum((anchors[:, None, :] - anchors[None, :, :]) ** 2, axis=-1)
    others = used[None, :] & ~jnp.eye(number, dtype=bool)
    nearest = jnp.sqrt(jnp.min(jnp.where(others, gaps, jnp.inf), axis=1))
    nearest = jnp.where(used & jnp.isfinite(nearest), nearest, 0.0)
    gap = jnp.sum(nearest) / jnp.maximum(jnp.sum(used.astype(jnp.float32)), 1.0)
    bandwidth = jnp.maximum(BANDWIDTH * gap, 1e-2)
    placed = dataclasses.replace(value, center=center, scale=scale, anchors=anchors, used=used, bandwidth=bandwidth)
    return placed, rows


def _try_actions(config: HorizonValueConfig, action_dim: int, key: Key[Array, ""]) -> Float[Array, "tried action"]:
    """Actions to hold: the same for every anchor."""
    if action_dim == 1:
        return jnp.linspace(-1.0, 1.0, config.actions, dtype=jnp.float32)[:, None]
    number = config.actions * action_dim
    drawn = jr.uniform(key, (number, action_dim), jnp.float32, -1.0, 1.0)
    # Half of them on the border, where the fastest way usually is.
    largest = jnp.max(jnp.abs(drawn), axis=1, keepdims=True)
    drawn = jnp.where((jnp.arange(number, dtype=jnp.int32) % 2 == 0)[:, None], drawn / largest, drawn)
    return drawn.at[0].set(0.0)


def _hold(
    mdp: ImaginedMDP, state: Float[Array, " obs"], action: Float[Array, " action"], discount: float
) -> tuple[Float[Array, "duration obs"], Float[Array, " duration"], Float[Array, " duration"]]:
    """Where holding an action leads after each duration, what it earns until then, and the discount from there on."""

    def step(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], tuple[Array, ...]]:
        state, alive, total = carry
        after = mdp.dynamics.predict(state, action).mean
        reward = mdp.reward(state, action, after)
        total = total + jnp.where(alive > 0, alive * reward, 0.0)
        alive = jnp.where(mdp.task.terminated(state, action, after), 0.0, alive * discount)
        # A prediction that is not finite leads nowhere.
        fine = jnp.all(jnp.isfinite(after)) & jnp.isfinite(total)
        after, total = jnp.where(fine, after, state), jnp.where(fine, total, -1e6)
        return (after, alive, total), (after, total, alive)

    start = (state, jnp.ones((), jnp.float32), jnp.zeros((), jnp.float32))
    _, (states, totals, discounts) = jax.lax.scan(step, start, length=DURATIONS[-1])
    ends = jnp.asarray(DURATIONS, jnp.int32) - 1
    return states[ends], totals[ends], discounts[ends]


Followed = tuple[Float[Array, " anchor"], Float[Array, " anchor"], Bool[Array, " anchor"]]
"""What was earned from each anchor to the next one, the discount from there on, and whether there is a way."""


def _follow(
    config: HorizonValueConfig,
    mdp: ImaginedMDP,
    replay: Replay,
    rows: Int[Array, " anchor"],
    used: Bool[Array, " anchor"],
    discount: float,
) -> Followed:
    """Doing what was really done, from each anchor to the next one of the same episode."""
    data, starts, last = replay.data, replay.starts, replay.capacity - 1
    longest = -(-replay.capacity // config.anchors)

    def one(row: Array, target: Array, exists: Array) -> tuple[Array, Array, Array]:
        def step(carry: tuple[Array, Array, Array], offset: Array) -> tuple[tuple[Array, Array, Array], None]:
            total, alive, there = carry
            at = jnp.minimum(row + offset, last)
            inside = row + offset < target
            obs, action, after = data.obs[at], data.action[at], data.next_obs[at]
            reward = mdp.reward(obs, action, after)
            connected = ~starts[jnp.minimum(at + 1, last)]
            total = jnp.where(inside, total + alive * reward, total)
            alive = jnp.where(inside, alive * discount, alive)
            return (total, alive, there & (connected | ~inside)), None

        start = (jnp.zeros((), jnp.float32), jnp.ones((), jnp.float32), exists & (target > row))
        (total, alive, there), _ = jax.lax.scan(step, start, jnp.arange(longest, dtype=jnp.int32))
        return total, alive, there

    following = jnp.concatenate([rows[1:], rows[-1:]])
    exists = used & jnp.concatenate([used[1:], jnp.zeros(1, bool)])
    followed: Followed = jax.vmap(one)(rows, following, exists)
    return followed


def _solve(
    rewards: Float[Array, "anchor option"],
    discounts: Float[Array, "anchor option"],
    weights: Float[Array, "anchor option anchor"],
    followed: Followed,
) -> tuple[Float[Array, " anchor"], Int[Array, " anchor"]]:
    """Policy iteration: the values of the anchors, and their best option; the last option is to follow the data."""
    number, options = rewards.shape
    earned, kept, there = followed
    identity = jnp.eye(number, dtype=rewards.dtype)
    after = jnp.roll(identity, 1, axis=1)  # anchor i leads to anchor i + 1

    def evaluate(best: Array) -> Array:
        row = jnp.arange(number)
        held = jnp.minimum(best, options - 1)
        follows = best == options
        reward = jnp.where(follows, earned, rewards[row, held])
        moved = jnp.where(follows[:, None], kept[:, None] * after, discounts[row, held][:, None] * weights[row, held])
        solved: Array = jnp.linalg.solve(identity - moved, reward)
        return solved

    def improve(values: Array, old: Array) -> Array:
        held = rewards + discounts * jnp.einsum("aob,b->ao", weights, values, precision="highest")
        follow = jnp.where(there, earned + kept * jnp.roll(values, -1), -jnp.inf)
        gains = jnp.concatenate([held, follow[:, None]], axis=1)
        best = jnp.argmax(gains, axis=1).astype(jnp.int32)
        # The old choice stays where the new one is better by rounding only, so that the rounds end.
        gain = gains[jnp.arange(number), best] - gains[jnp.arange(number), old]
        return jnp.where(gain > 1e-5 * (1.0 + jnp.abs(values)), best, old)

    def unfinished(carry: tuple[Array, Array, Array, Array]) -> Array:
        _, _, changed, rounds = carry
        return changed & (rounds < ROUNDS)

    def turn(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        _, best, _, rounds = carry
        values = evaluate(best)
        new = improve(values, best)
        return values, new, jnp.any(new != best), rounds + 1

    best = improve(jnp.zeros(number, rewards.dtype), jnp.zeros(number, jnp.int32))
    start = (jnp.zeros(number, rewards.dtype), best, jnp.ones((), bool), jnp.zeros((), jnp.int32))
    values, best, _, _ = jax.lax.while_loop(unfinished, turn, start)
    return values, best
