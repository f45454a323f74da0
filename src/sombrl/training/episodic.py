"""SOMBRL's loop, the paper's Algorithm 1: fit the model, imagine, improve, act; for n = 0, 1, 2, …

No algorithm is named in here. `improve` is everything that is learned in an iteration, `collect` everything that is
done in the environment, `iterate` one iteration of both.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sombrl.controllers.base import AbstractController, Watch
from sombrl.dynamics.base import AbstractLearner
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.guards import refuse_end
from sombrl.exploration.base import Exploration, ImaginedMDP
from sombrl.records import Transition
from sombrl.replay import Replay
from sombrl.seeds import role_keys
from sombrl.settings import Setting
from sombrl.training import bounds
from sombrl.training.base import Committed, OnDecision, Proposal, Report, ignore
from sombrl.training.clock import Clock
from sombrl.training.compiled import ROLES, Compiled, LoopState, initial_state, refuse_nan, renewal_due
from sombrl.training.imagined import foretell
from sombrl.training.parts import ControllerPolicy, Parts, PartsTrainer
from sombrl.training.random_actions import random_actions
from sombrl.training.safety import CostBook


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What was collected between two updates, [seeds, time, ...]; rows after an episode's end are not valid."""

    transitions: Transition
    valid: np.ndarray
    returns: np.ndarray  # [seeds], summed in float64
    last_obs: np.ndarray  # [seeds, obs]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChunkReport(Report):
    """One iteration of parts, with what it was made of."""

    state: LoopState
    mdp: ImaginedMDP
    """What was planned with in this iteration."""
    chunk: Chunk


@dataclasses.dataclass(frozen=True)
class Improved:
    """What one iteration has learned from all data so far, ready to act with."""

    learner: Any
    controller: Any
    mdp: ImaginedMDP
    metrics: dict[str, Any]


def run(
    envs: AbstractEnvs,
    learner: AbstractLearner,
    exploration: Exploration,
    controller: AbstractController,
    setting: Setting,
    *,
    seeds: Sequence[int],
    num_iterations: int,
    capacity: int,
    resume: tuple[int, LoopState] | None = None,
    compiled: Compiled | None = None,
    on_decision: OnDecision = ignore,
) -> Iterator[ChunkReport]:
    """Yield a report per iteration, so that the caller can log, save or stop as it likes.

    `resume` = (iterations done, state) of an earlier report continues exactly there; `compiled` = the parts as an
    earlier call compiled them.
    """
    parts = Parts(learner, exploration, controller, capacity)
    compiled = compiled or Compiled.of(envs, learner, exploration, controller, setting)
    first, state = resume or (0, initial_state(envs, compiled, seeds, capacity))
    for n in range(first, num_iterations):
        report = iterate(envs, compiled, parts, setting, seeds, n, state, on_decision)
        state = report.state
        yield report


def iterate(
    envs: AbstractEnvs,
    compiled: Compiled,
    parts: Parts,
    setting: Setting,
    seeds: Sequence[int],
    n: int,
    state: LoopState,
    on_decision: OnDecision = ignore,
    given: np.ndarray | int = 0,
) -> ChunkReport:
    """Iteration n: learn from all data, then act for one chunk and add what was seen.

    `given` transitions of the replay were there before the first iteration.
    """
    clock = Clock()
    if n == 0 and parts.start_point:
        state = dataclasses.replace(state, replay=start_replay(envs, compiled, state.replay))
    new = improve(compiled, parts, state.learner, state.controller, state.replay, n=n, seeds=seeds, clock=clock)
    book = None
    if parts.safety is not None and state.costs is not None:
        book = CostBook(parts.safety, dataclasses.replace(state.costs, episode=np.zeros(len(seeds))), setting.longest)
    with clock("collect"):
        chunk, controller_state = collect(
            *(envs, compiled, new.learner, new.mdp, new.controller, setting, role_keys(seeds, n, ROLES)["act"]),
            iteration=n,
            random=n < parts.random_episodes,
            book=book,
            obs=None if setting.resets or n == 0 else state.obs,
            on_decision=on_decision,
        )
    replay = compiled.add(state.replay, chunk.transitions, chunk.valid)
    visited = compiled.diagnose(new.learner, new.mdp, chunk.transitions, chunk.valid)

    total_reward = state.total_reward + chunk.returns
    episode = np.full(len(seeds), n + 1)
    after = LoopState(
        *(new.learner, controller_state, replay, chunk.last_obs, total_reward, episode, np.zeros(len(seeds))),
        None if book is None else book.count(),
    )
    metrics = {name: np.asarray(value) for name, value in (new.metrics | visited).items()}
    refuse_nan(metrics, seeds, n)
    lengths, decisions = chunk.valid.sum(axis=1), np.asarray(replay.added) - given
    return ChunkReport(
        iteration=n,
        returns=chunk.returns,
        decisions=decisions,
        taken=lengths,
        columns={"rollout/ep_len_mean": lengths}
        | setting_columns(envs, setting, after, chunk, decisions)
        | (book.columns() if book is not None else {}),
        metrics=metrics,
        seconds=clock.seconds(),
        state=after,
        mdp=new.mdp,
        chunk=chunk,
    )


def start_replay(envs: AbstractEnvs, compiled: Compiled, replay: Replay) -> Replay:
    """The replay with one transition of the first state to itself, without an action and a reward."""
    obs = jnp.asarray(envs.reset(0), jnp.float32)[:, None]
    zero, no = jnp.zeros(obs.shape[:2], jnp.float32), jnp.zeros(obs.shape[:2], bool)
    action = jnp.zeros((*obs.shape[:2], envs.spec.action_dim), jnp.float32)
    cost = None if replay.data.cost is None else zero
    started: Replay = compiled.add(replay, Transition(obs, action, zero, obs, no, no, cost), ~no)
    return started


def improve(
    compiled: Compiled,
    parts: Parts,
    learner_state: Any,
    controller_state: Any,
    replay: Replay,
    *,
    n: int,
    seeds: Sequence[int],
    clock: Clock | None = None,
) -> Improved:
    """Iteration n without acting: fit the model to all data, imagine with it, let the controller learn from that."""
    clock = Clock() if clock is None else clock
    key = role_keys(seeds, n, ROLES)
    with clock("fit"):
        learner_state, fit_metrics = jax.block_until_ready(compiled.fit(learner_state, replay, key["fit"]))
    if renewal_due(parts.learner.renew_every, n + 1):
        learner_state = compiled.renew_learner(learner_state, key["renew_learner"])
    with clock("imagine"):
        iteration, scale = jnp.full(len(seeds), n, jnp.int32), compiled.scale(learner_state, replay)
        mdp = jax.block_until_ready(compiled.imagine(learner_state, iteration, key["imagine"], scale))
    with clock("improve"):
        improved = compiled.improve(controller_state, mdp, replay, key["improve"])
        controller_state, improve_metrics = jax.block_until_ready(improved)
    if renewal_due(parts.controller.renew_every, n + 1):
        controller_state = compiled.renew_controller(controller_state, mdp, key["renew_controller"])
    return Improved(learner_state, controller_state, mdp, fit_metrics | improve_metrics)


def collect(
    envs: AbstractEnvs,
    compiled: Compiled,
    learner_state: Any,
    mdp: ImaginedMDP,
    controller_state: Any,
    setting: Setting,
    key: jax.Array,
    *,
    iteration: int,
    random: bool = False,
    book: CostBook | None = None,
    obs: np.ndarray | None = None,
    on_decision: OnDecision = ignore,
) -> tuple[Chunk, Any]:
    """Act in the real environments for one chunk: one compiled dispatch per decision, for all seeds.

    From where they are (`obs`), or from a fresh start if that is None; with `random` actions, or as planned. The `book`
    is told what it cost.
    """
    num_seeds, spec, start = key.shape[0], envs.spec, obs
    obs = np.zeros((num_seeds, setting.longest + 1, spec.obs_dim), np.float32)
    next_obs = np.zeros((num_seeds, setting.longest, spec.obs_dim), np.float32)
    action = np.zeros((num_seeds, setting.longest, spec.action_dim), np.float32)
    reward = np.zeros((num_seeds, setting.longest))
    terminated, truncated, valid = np.zeros((3, num_seeds, setting.longest), bool)
    gathered = np.zeros(num_seeds)  # since the last update

    if start is None:
        start = envs.reset(iteration)
        controller_state = compiled.begin_episode(controller_state, mdp)
    last_obs = obs[:, 0] = start
    active = np.ones(num_seeds, bool)
    length = setting.chunk_length(iteration)
    for t in range(length):
        now, decision = jnp.asarray(obs[:, t]), jnp.full(num_seeds, t, jnp.int32)
        seen: list[Watch] = []
        if random:
            size = 1.0 if book is None else book.safety.config.random_size
            action[:, t] = random_actions(envs.seeds, np.full(num_seeds, iteration), t, spec.action_dim, size)
        else:
            within = mdp if book is None else mdp.within(jnp.asarray(book.left))
            rest = now, key, decision, jnp.asarray(active)
            action[:, t], controller_state, *seen = compiled.act(controller_state, within, *rest)
        step = envs.step(action[:, t], active)
        if book is not None:
            book.note(t, obs[:, t], action[:, t], step, active, seen[0] if seen else None)
        last_obs = next_obs[:, t] = obs[:, t + 1] = step.obs
        reward[:, t] = np.where(active, step.reward, 0.0)
        terminated[:, t], truncated[:, t], valid[:, t] = step.terminated, step.truncated, active
        if not setting.resets and step.terminated.any():
            raise refuse_end(spec.name)
        if setting.rule != "fixed":
            gained = compiled.gather(learner_state, now, jnp.asarray(action[:, t]))
            gathered += np.where(active, np.asarray(gained), 0.0)
        enough = np.array([setting.update_due(amount, t + 1) for amount in gathered.tolist()])
        active = active & ~step.terminated & ~step.truncated & ~enough
        on_decision(t, length)
        if not active.any():
            break

    columns = [obs[:, :-1], action, reward.astype(np.float32), next_obs, terminated, truncated]
    if book is not None and book.safety.learned:
        columns.append(book.costs.astype(np.float32))
    rows = Transition(*map(jnp.asarray, columns))
    return Chunk(rows, valid, reward.sum(axis=1), last_obs.copy()), controller_state


def setting_columns(
    envs: AbstractEnvs, setting: Setting, state: LoopState, chunk: Chunk, decisions: np.ndarray
) -> dict[str, np.ndarray]:
    """The average reward since the start, `decisions` ago, and what is reported in some settings only."""
    columns = {"rollout/average_reward": state.total_reward / np.maximum(decisions, 1)}
    optimal = envs.spec.optimal_average
    if setting.discount < 1:
        rewards = [
            np.asarray(reward, np.float64) * valid
            for reward, valid in zip(np.asarray(chunk.transitions.reward), chunk.valid, strict=True)
        ]
        discounted = [row @ setting.discount ** np.arange(len(row)) for row in rewards]
        columns["rollout/discounted_return"] = np.array(discounted)
    elif not setting.resets and optimal is not None:
        columns["rollout/regret"] = decisions * optimal - state.total_reward
    return columns


class EpisodicTrainer(PartsTrainer):
    """Learns between episodes, or between chunks of one trajectory: the planners."""

    counts: ClassVar[Literal["episodes", "decisions"]] = "episodes"

    @property
    def window(self) -> int:
        """Decisions of an episode or a chunk, at most."""
        return self.setting.longest

    def propose(self, on_decision: OnDecision) -> Proposal[LoopState]:
        """One iteration of Algorithm 1."""
        n, compiled = self.iteration, self.compiled("explore")
        report = iterate(
            self.envs, compiled, self.parts, self.setting, self.seeds, n, self.state, on_decision, self.given
        )
        if self.run.record_bounds or self.run.stop_when_gap is not None:
            clock = Clock()
            with clock("bounds"):
                expected = self.expected(report)
            seconds = report.seconds | clock.seconds()
            report = dataclasses.replace(report, metrics=report.metrics | expected, seconds=seconds)
        simulators = None if self.setting.resets else self.envs.get_state()  # in the middle of the trajectory
        return Proposal(report, Committed(n + 1, report.state, simulators))

    def expected(self, report: ChunkReport) -> dict[str, np.ndarray]:
        """What the model that planned an episode expected of it, from the same start. Training reads none of this."""
        n, learner = report.iteration, report.state.learner  # fitted to everything before the episode
        start = np.asarray(report.chunk.transitions.obs[:, 0])
        spec = dataclasses.replace(self.envs.spec, episode_length=self.setting.chunk_length(n))
        controller = report.state.controller if self.learns_policy else None
        replay = self.state.replay if self.parts.controller.learns_from_data else None

        def of(mode: Literal["explore", "task"]) -> tuple[np.ndarray, np.ndarray]:
            compiled = self.compiled(mode)
            scale = compiled.scale(learner, self.state.replay)
            policy = ControllerPolicy(mode, compiled, learner, controller, self.seeds, n, scale, replay)
            envs = self.imagined_with(learner, n, spec, lambda rows, episodes: start)
            value, sigma = foretell(policy, envs, first_episode=n, episodes=1, discount=self.setting.discount)
            return value[0], sigma[0]

        nothing = np.full(len(self.seeds), np.nan)
        found = {bounds.RETURN: nothing, bounds.UNCERTAINTY: nothing, bounds.REALISED: nothing}
        found |= {} if self.run.stop_when_gap is None else {bounds.GAP: nothing}
        if n < self.parts.random_episodes:  # random actions are no policy's
            return found
        (value, sigma), realised = of("explore"), report.columns.get("rollout/discounted_return", report.returns)
        found = {bounds.RETURN: value, bounds.UNCERTAINTY: sigma, bounds.REALISED: np.asarray(realised)}
        if self.run.stop_when_gap is None:
            return found
        weight, (greedy, doubt) = np.asarray(report.mdp.bonus_weight), of("task")
        return found | {bounds.GAP: bounds.gap(value + weight * sigma, greedy - weight * doubt)}

    @property
    def trained(self) -> str:
        """In episodes."""
        return f"{self.iteration} episode{'s' * (self.iteration != 1)}"
