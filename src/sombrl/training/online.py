"""The same loop for algorithms that learn at every decision.

An iteration is a window of `report_every` decisions, after which there is a report and possibly a checkpoint; it has
nothing to do with episodes, which end for every seed by themselves. A decision is two dispatches: `act`, and `learn`,
which is everything else. The environments move while the device learns, so what is learned at decision t
uses the transitions up to t - 1, exactly, and the action of decision t those up to t - 2.
"""

import concurrent.futures
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sombrl.controllers.base import AbstractController, Watch
from sombrl.dynamics.base import AbstractLearner
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.guards import refuse_end
from sombrl.exploration.base import Exploration, ImaginedMDP
from sombrl.records import Transition
from sombrl.replay import Replay
from sombrl.seeds import concat, keyed_by, over_shard, shards_of, take
from sombrl.settings import Setting
from sombrl.training.base import Committed, OnDecision, Proposal, ignore
from sombrl.training.clock import Clock
from sombrl.training.columns import Columns, join_seen, store
from sombrl.training.compiled import ROLES, LoopState, imagination, refuse_nan, renewal_due
from sombrl.training.diagnostics import diagnose
from sombrl.training.episodic import Chunk, ChunkReport, setting_columns
from sombrl.training.parts import Parts, PartsTrainer
from sombrl.training.random_actions import random_actions
from sombrl.training.safety import CostBook, CostCount, Safety

Metrics = dict[str, Any]
Background = Callable[[Callable[[], Any]], Callable[[], Any]]
"""Starts a call and returns what waits for its result."""
_key = keyed_by(ROLES)  # with decisions for iterations


class ReplayRow(Replay):
    """One seed's view of the buffers of all seeds: sampling gathers from them, and nothing is copied."""

    row: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """The number of rows of one seed."""
        return self.data.reward.shape[1]

    @property
    def at_least(self) -> int:
        """Nothing is learned before the first transition."""
        return 1

    @property
    def last(self) -> Transition:
        """The latest transition of this seed."""
        latest: Transition = jax.tree.map(lambda leaf: leaf[self.row, (self.added - 1) % self.capacity], self.data)
        return latest

    def sample(self, number: int, *, key: Key[Array, ""]) -> Transition:
        """`number` transitions of this seed, uniformly with replacement: those that `Replay.sample` would draw."""
        rows = jr.randint(key, (number,), 0, jnp.maximum(self.count, 1))
        sampled: Transition = jax.tree.map(lambda leaf: leaf[self.row, rows], self.data)
        return sampled


class Learned(eqx.Module):
    """What lives on the device between decisions; every leaf but the clock has a leading seed axis."""

    learner: Any
    controller: Any
    replay: Replay
    now: Int[Array, ""]  # decisions since the start


@dataclasses.dataclass(frozen=True)
class Programs:
    """The parts of a decision, compiled for the seed axis; the strategies have one too, so seeds may differ in them."""

    act: Callable[[Learned, Exploration, Array, Array], tuple[Float[Array, "seeds action"], Watch | None]]
    learn: Callable[[Learned, Exploration, Array, Array], tuple[Learned, dict[str, Float[Array, " seeds"]]]]
    store: Callable[[Replay, Array], Replay]
    renew_learner: Callable[[Learned, Array], Learned]
    renew_controller: Callable[[Learned, Exploration, Array], Learned]
    imagine: Callable[[Any, Array, Exploration, Array], ImaginedMDP]
    diagnose: Callable[..., dict[str, Float[Array, " seeds"]]]

    @staticmethod
    def of(
        envs: AbstractEnvs,
        learner: AbstractLearner,
        controller: AbstractController,
        setting: Setting,
        safety: Safety | None = None,
    ) -> "Programs":
        """Compilation happens on first use. `learn` and `store` give their arguments' memory up."""
        spec, imagine = envs.spec, imagination(envs, learner, setting, safety=safety)

        def act(learned: Learned, explorations: Exploration, seeds: Array, packet: Array) -> tuple[Array, Any]:
            def one(row: Any) -> Any:
                learner_state, controller_state, exploration, seed, obs, left = row
                mdp = imagine(learner_state, exploration, learned.now, _key(seed, learned.now, "imagine"))
                observe_key, act_key = jr.split(_key(seed, learned.now, "act"))
                belief = mdp.dynamics.observe(None, None, obs, key=observe_key)
                if mdp.limit is None:
                    action, _ = controller.act(controller_state, mdp, belief, key=act_key)
                    return mdp.env_action(action), None
                action, _, seen = controller.act_watched(controller_state, mdp.within(left), belief, key=act_key)
                return mdp.env_action(action), seen

            obs, left = packet[:, -spec.obs_dim :], packet[:, -spec.obs_dim - 1]
            rows = learned.learner, learned.controller, explorations, seeds, obs, left
            acted: tuple[Array, Any] = over_shard(one, rows)
            return acted

        def learn(learned: Learned, explorations: Exploration, seeds: Array, packet: Array) -> tuple[Learned, Metrics]:
            replay = store(learned.replay, packet)

            def one(row: Any) -> Any:
                learner_state, controller_state, exploration, seed, added, index = row
                view = ReplayRow(replay.data, added, index)
                learner_state, fit_metrics = learner.fit(learner_state, view, key=_key(seed, learned.now, "fit"))
                mdp = imagine(learner_state, exploration, learned.now, _key(seed, learned.now, "imagine"))
                controller_state, metrics = controller.improve(
                    controller_state, mdp, view, key=_key(seed, learned.now, "improve")
                )
                return learner_state, controller_state, fit_metrics | metrics

            index = jnp.arange(packet.shape[0], dtype=jnp.int32)
            rows = learned.learner, learned.controller, explorations, seeds, replay.added, index
            learner_state, controller_state, metrics = over_shard(one, rows)
            return Learned(learner_state, controller_state, replay, learned.now + 1), metrics

        def renew_learner(learned: Learned, seeds: Array) -> Learned:
            def one(row: Any) -> Any:
                return learner.renew(row[0], key=_key(row[1], learned.now, "renew_learner"))

            return dataclasses.replace(learned, learner=over_shard(one, (learned.learner, seeds)))

        def renew_controller(learned: Learned, explorations: Exploration, seeds: Array) -> Learned:
            def one(row: Any) -> Any:
                learner_state, controller_state, exploration, seed = row
                mdp = imagine(learner_state, exploration, learned.now, _key(seed, learned.now, "imagine"))
                return controller.renew(controller_state, mdp, key=_key(seed, learned.now, "renew_controller"))

            rows = learned.learner, learned.controller, explorations, seeds
            return dataclasses.replace(learned, controller=over_shard(one, rows))

        def imagine_all(learner_states: Any, now: Int[Array, ""], explorations: Exploration, seeds: Array) -> Any:
            def one(row: Any) -> Any:
                learner_state, exploration, seed = row
                return imagine(learner_state, exploration, now, _key(seed, now, "imagine"))

            return over_shard(one, (learner_states, explorations, seeds))

        def diagnose_all(learner_state: Any, mdp: ImaginedMDP, chunk: Transition, valid: Array) -> Any:
            return over_shard(
                lambda row: diagnose(learner.dynamics(row[0]), *row[1:]), (learner_state, mdp, chunk, valid)
            )

        return Programs(
            act=jax.jit(act),
            learn=jax.jit(learn, donate_argnums=0),
            store=jax.jit(store, donate_argnums=0),
            renew_learner=jax.jit(renew_learner, donate_argnums=0),
            renew_controller=jax.jit(renew_controller, donate_argnums=0),
            imagine=jax.jit(imagine_all),
            diagnose=jax.jit(diagnose_all),
        )


def window(
    envs: AbstractEnvs,
    programs: Programs,
    parts: Parts,
    explorations: Exploration,
    setting: Setting,
    seeds: Sequence[int],
    n: int,
    state: LoopState,
    length: int,
    background: Background,
    on_decision: OnDecision = ignore,
    given: np.ndarray | int = 0,
) -> ChunkReport:
    """Iteration n: `length` decisions, with learning at each. `explorations` has a leading seed axis (`spread`).

    `given` transitions of the replay were there before the first decision.
    """
    clock, everyone = Clock("collect"), np.ones(len(seeds), bool)
    if n == 0:
        state = eqx.tree_at(lambda s: s.obs, state, envs.reset(0))
    book, size = None, 1.0
    if parts.safety is not None and state.costs is not None:
        book, size = CostBook(parts.safety, state.costs, length), parts.safety.config.random_size
    learning = Learning(programs, parts, explorations, seeds)
    columns = Columns(len(seeds), length, envs, learns_cost=state.replay.data.cost is not None)
    learned = learning.begin(state, n * length)
    obs, episode = state.obs, state.episode.copy()
    episode_return, total = state.episode_return.copy(), state.total_reward.copy()
    metrics: list[Metrics] = []
    for t in range(length):
        packet = columns.packet(t, obs, None if book is None else book.left)
        packets = learning.split(packet)
        chosen = [programs.act(*row) for row in zip(learned, *zip(*learning.who, strict=True), packets, strict=True)]
        finish = background(functools.partial(learning.learn, n * length + t, learned, packets))
        try:
            actions = np.concatenate([np.asarray(action) for action, _ in chosen])  # waits for `act`, not for `learn`
            if (random := episode < parts.random_episodes).any():
                drawn = random_actions(seeds, episode, n * length + t, envs.spec.action_dim, size)
                actions = np.where(random[:, None], drawn, actions)
            with clock("collect"):
                step = envs.step(actions, everyone)
                over = step.terminated | step.truncated
                if not setting.resets and step.terminated.any():
                    raise refuse_end(envs.spec.name)
                if book is not None:
                    book.note(t, obs, actions, step, everyone, join_seen(chosen), random)
                columns.store(t, obs, actions, step, book)
                total += step.reward
                episode_return += step.reward
                columns.finish(over, episode_return)
                episode_return[over] = 0.0
                episode += over
                if book is not None:
                    book.restart(over)
                obs = envs.reset_rows(over, episode) if over.any() else step.obs
            on_decision(t, length)
        finally:  # a window that is abandoned leaves nothing running
            learned, metrics = finish()
    chunk = columns.chunk(obs)
    where = (obs.copy(), total, episode, episode_return, None if book is None else book.count())
    after, mdp, rows = learning.end(learned, metrics, columns.packet(length, obs), chunk, where)
    refuse_nan(rows, seeds, n)
    decisions = np.asarray(after.replay.added) - given
    return ChunkReport(
        iteration=n,
        returns=chunk.returns,
        decisions=decisions,
        taken=chunk.valid.sum(axis=1),
        columns=setting_columns(envs, setting, after, chunk, decisions) | (book.columns() if book is not None else {}),
        metrics=rows,
        seconds=clock.seconds("improve"),
        reward_size=reward_size(chunk),
        state=after,
        mdp=mdp,
        chunk=chunk,
    )


class Learning:
    """What is learned in a window, dispatch by dispatch; whether somebody acts meanwhile is not its business."""

    def __init__(self, programs: Programs, parts: Parts, explorations: Exploration, seeds: Sequence[int]):
        self._programs, self._learner, self._controller = programs, parts.learner, parts.controller
        self._shards = shards_of(len(seeds))
        numbers = jnp.asarray(list(seeds), jnp.uint32)
        self.who = [(take(explorations, shard), take(numbers, shard)) for shard in self._shards]
        """The strategies and the seeds of every dispatch."""

    def begin(self, state: LoopState, now: int) -> list[Learned]:
        """The state of every dispatch, `now` decisions after the start."""
        # Copied, because the committed state stays valid, and `learn` gives its memory up.
        before = jax.tree.map(jnp.copy, (state.learner, state.controller, state.replay))
        learned = []
        for shard in self._shards:
            learner_state, controller_state, replay = take(before, shard)
            learned.append(Learned(learner_state, controller_state, replay, jnp.asarray(now, jnp.int32)))
        return learned

    def split(self, packet: np.ndarray) -> list[Array]:
        """A packet (`Columns.packet`) on the device, by dispatch."""
        return [jnp.asarray(packet[shard]) for shard in self._shards]

    def learn(self, decision: int, learned: list[Learned], packets: list[Array]) -> tuple[list[Learned], list[Metrics]]:
        """What is learned at a decision."""
        if decision == 0:  # before the first transition there is nothing to learn from
            return [dataclasses.replace(shard, now=shard.now + 1) for shard in learned], [{} for _ in learned]
        programs, who = self._programs, self.who
        results = [
            programs.learn(shard, *own, packet) for shard, own, packet in zip(learned, who, packets, strict=True)
        ]
        learned = [shard for shard, _ in results]
        if renewal_due(self._learner.renew_every, decision):
            learned = [programs.renew_learner(shard, seeds) for shard, (_, seeds) in zip(learned, who, strict=True)]
        if renewal_due(self._controller.renew_every, decision):
            learned = [programs.renew_controller(shard, *own) for shard, own in zip(learned, who, strict=True)]
        return learned, [metrics for _, metrics in results]

    def end(
        self,
        learned: list[Learned],
        metrics: list[Metrics],
        packet: np.ndarray,
        chunk: Chunk,
        where: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, CostCount | None],
    ) -> tuple[LoopState, ImaginedMDP, dict[str, np.ndarray]]:
        """The state with the last transition stored, what was imagined in, and metrics of that on a chunk of data."""
        programs = self._programs
        replays, mdps, numbers = [], [], []
        for shard, own, ours, latest in zip(self._shards, self.who, learned, metrics, strict=True):
            mdp = programs.imagine(ours.learner, ours.now, *own)
            if "policy/bonus_weight" in latest:  # λ as the policy has tuned it
                mdp = eqx.tree_at(lambda mdp: mdp.bonus_weight, mdp, latest["policy/bonus_weight"])
            rows, valid = take(chunk.transitions, shard), jnp.asarray(chunk.valid[shard])
            visited = programs.diagnose(ours.learner, mdp, rows, valid)
            replays.append(programs.store(ours.replay, jnp.asarray(packet[shard])))
            mdps.append(mdp)
            numbers.append(jax.tree.map(np.asarray, visited | latest))
        learner_state, controller_state = concat([(ours.learner, ours.controller) for ours in learned])
        after = LoopState(learner_state, controller_state, concat(replays), *where)
        rows = {name: np.concatenate([shard[name] for shard in numbers]) for name in numbers[0]}
        return after, concat(mdps), rows


class OnlineTrainer(PartsTrainer):
    """Learns at every decision: the policies."""

    counts: ClassVar[Literal["episodes", "decisions"]] = "decisions"

    @functools.cached_property
    def programs(self) -> Programs:
        """The compiled parts of a decision."""
        return Programs.of(self.envs, self.parts.learner, self.parts.controller, self.setting, self.parts.safety)

    @functools.cached_property
    def background(self) -> Background:
        """Where learning is dispatched from."""
        return background_of_device()

    @property
    def window(self) -> int:
        """Decisions between two reports."""
        return self.run.report_every

    @property
    def capacity(self) -> int:
        """Rows of replay per seed: no more than the run can fill, and what it began with."""
        given: int = max(self.given.tolist())
        return min(self.parts.capacity, given + self.planned_iterations * self.window)

    def _grow(self) -> None:
        state = self._now.state
        if state is not None and state.replay.data.reward.shape[-1] < self.capacity:
            self.replace_state(eqx.tree_at(lambda s: s.replay, state, state.replay.grown(self.capacity)))

    def propose(self, on_decision: OnDecision) -> Proposal[LoopState]:
        """One window."""
        n, explorations = self.iteration, spread([self.parts.exploration], len(self.seeds))
        report = window(
            *(self.envs, self.programs, self.parts, explorations, self.setting, self.seeds, n, self.state),
            *(self.window, self.background, on_decision, self.given),
        )
        return Proposal(report, self.after(report, self.envs.get_state()))

    def after(self, report: ChunkReport, simulators: dict[str, np.ndarray]) -> Committed[LoopState]:
        """Where training stands after a window."""
        return Committed(report.iteration + 1, report.state, simulators)

    @property
    def trained(self) -> str:
        """In decisions."""
        decisions = int(np.max(np.asarray(self.state.replay.added) - self.given))
        return f"{decisions} decision{'s' * (decisions != 1)}"


def spread(explorations: Sequence[Exploration], rows: int) -> Exploration:
    """Strategies of the same form as one with a leading seed axis, each for `rows` seeds."""
    stacked: Exploration = jax.tree.map(lambda *leaves: jnp.repeat(jnp.stack(leaves), rows, axis=0), *explorations)
    return stacked


def background_of_device() -> Background:
    """What starts a call and returns what waits for its result.

    An accelerator's dispatch is hundreds of kernel launches, which take a thread as long as the device takes to work
    them off: it needs one of its own. A CPU's returns at once, and two threads can starve XLA's pool there.
    """
    if jax.default_backend() == "cpu":

        def inline(call: Callable[[], Any]) -> Callable[[], Any]:
            result = call()
            return lambda: result

        return inline
    thread = concurrent.futures.ThreadPoolExecutor(1)
    return lambda call: thread.submit(call).result


def reward_size(chunk: Chunk) -> tuple[float, float]:
    """The largest reward of a decision, and the root mean square: critics learn badly from extreme ones."""
    rewards = np.abs(np.asarray(chunk.transitions.reward)[chunk.valid])
    return float(rewards.max()), float(np.sqrt(np.mean(rewards**2)))
