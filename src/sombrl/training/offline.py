"""Learning from recorded data: the iterations of both loops without acting. No environment is stepped.

All data are in the replay from the start, and how many count as added says how many there are to learn from: all but
the held-out ones, or, handed out as they were recorded, one more with every decision.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sombrl.errors import SombrlError
from sombrl.exploration.base import Exploration
from sombrl.exploration.weight import Constant
from sombrl.records import Transition
from sombrl.replay import Replay
from sombrl.storage.datasets import Rows
from sombrl.storage.run_folder import is_run
from sombrl.training.base import Committed, OnDecision, Proposal, Trainer
from sombrl.training.clock import Clock
from sombrl.training.compiled import LoopState, refuse_nan
from sombrl.training.episodic import Chunk, ChunkReport, improve
from sombrl.training.online import Learning, Metrics, Programs, reward_size, spread
from sombrl.training.origin import (
    Origin,
    concatenated,
    digest,
    hold_out,
    replay_with,
    rows_of_file,
    rows_of_run,
)
from sombrl.training.parts import PartsTrainer

MOST = 10_000_000
"""Transitions in a file."""
LOOKED_AT = 1000
"""Held-out transitions that metrics are computed on after every iteration, at most."""


class OfflineTrainer(PartsTrainer):
    """Learns from data alone. A decision, or an episode, is one in which there would have been time to learn."""

    @property
    def capacity(self) -> int:
        """Room for the data and nothing else."""
        return max(self.given.tolist()) if self.origin else 1

    def prepare(self, open_run: Callable[[str], Trainer[Any]]) -> None:
        """Put the data into the replay."""
        if self._prepared or self.iteration:
            return
        path, recorded = self.run.offline, self.run.offline_order == "recorded"
        assert path is not None, "this trainer is for --offline"
        rows = self._rows(path, open_run)
        if self.parts.safety is not None:
            raise SombrlError(
                "--safety.budget is about decisions that are made, and --offline makes none: leave it out."
            )
        if self.parts.start_point:
            raise SombrlError("--start-point is for runs that begin without data: leave it out.")
        rows, held_out = (rows, 0) if recorded else hold_out(rows, self.run.held_out)
        if self.parts.exploration.calibrated and held_out == 0:
            raise SombrlError(
                "λ is calibrated on held-out episodes, and there are none: raise --held-out, leave out --offline-order "
                "recorded, or give --schedule constant and a --bonus-weight."
            )
        number, seeds = rows.number, len(self.seeds)
        self.origin = Origin(path, digest([rows]), (number,) * seeds, held_out)
        self._now = dataclasses.replace(self._now, state=None)  # its replay has another size now
        learned_from = 0 if recorded else number - held_out
        replay = replay_with([rows] * seeds, number, [learned_from] * seeds)
        self.replace_state(dataclasses.replace(self.state, replay=replay))
        self._prepared = True

    def _rows(self, path: str, open_run: Callable[[str], Trainer[Any]]) -> Rows:
        """The data of a file, or of some or all seeds of a run."""
        if not is_run(path):
            if self.run.offline_seed is not None:
                raise SombrlError(f"--offline-seed is for the data of a run, and {path} is none: leave it out.")
            return rows_of_file(path, self, min(MOST, self.parts.capacity))
        source, seed = self.source(path, open_run), self.run.offline_seed
        source.envs.close()
        parts = rows_of_run(source)
        if seed is not None:
            if seed not in source.seeds:
                raise SombrlError(f"{path} has no seed {seed}: it has {', '.join(map(str, source.seeds))}.")
            parts = [parts[source.seeds.index(seed)]]
        rows = concatenated(parts)
        if not 0 < rows.number <= self.parts.capacity:
            raise SombrlError(
                f"{path} has {rows.number} transitions, and there is room for 1 to {self.parts.capacity}: train "
                "it, raise --capacity (--gp.capacity), or give --offline-seed."
            )
        return rows

    def seen(self) -> Chunk:
        """The data that metrics are about: those that nothing is learned from, or all if there are none."""
        assert self.origin is not None, "there are data once it is prepared"
        number, held_out = max(self.origin.rows), self.origin.held_out
        among = held_out or number
        shown = number - among + np.unique(np.linspace(0, among - 1, min(among, LOOKED_AT)).astype(int))
        rows: Transition = jax.tree.map(lambda leaf: leaf[:, shown], self.state.replay.data)
        valid = np.ones(rows.reward.shape, bool)
        return Chunk(rows, valid, np.full(len(self.seeds), np.nan), np.asarray(rows.next_obs[:, -1]))

    def report(
        self, after: LoopState, mdp: Any, metrics: dict[str, np.ndarray], seen: Chunk, clock: Clock
    ) -> Proposal[LoopState]:
        """An iteration in which nothing was decided; `decisions` are those in which there would have been time."""
        n, seeds = self.iteration, len(self.seeds)
        refuse_nan(metrics, self.seeds, n)
        report = ChunkReport(
            iteration=n,
            returns=seen.returns,
            decisions=np.full(seeds, (n + 1) * self.window),
            taken=np.full(seeds, self.window),
            columns={},
            metrics=metrics,
            seconds=clock.seconds("improve"),
            reward_size=reward_size(seen),
            state=after,
            mdp=mdp,
            chunk=seen,
        )
        return Proposal(report, Committed(n + 1, after, None))


class OfflineOnlineTrainer(OfflineTrainer):
    """As algorithms that learn at every decision."""

    counts: ClassVar[Literal["episodes", "decisions"]] = "decisions"

    @functools.cached_property
    def programs(self) -> Programs:
        """Those of the loop that acts."""
        return Programs.of(self.envs, self.parts.learner, self.parts.controller, self.setting)

    @property
    def window(self) -> int:
        """Decisions between two reports."""
        return self.run.report_every

    def explorations(self) -> Exploration:
        """The strategy of every seed, with λ from the held-out data where it is calibrated.

        In the first window it is 0: the model has learned nothing yet, and its errors say nothing of what it will know.
        """
        explorations = spread([self.parts.exploration], len(self.seeds))
        if not self.parts.exploration.calibrated:
            return explorations
        weight = self.compiled("explore").scale(self.state.learner, self.state.replay)
        assert weight is not None, "a calibrated λ comes from data"
        weight = weight if self.iteration else jnp.zeros_like(weight)
        if not np.isfinite(weight).all():
            raise SombrlError(
                "λ cannot be calibrated: the model is sure (σ = 0) where it is wrong, as a single member always is, so "
                "raise --ensemble.members, or give --schedule constant and a --bonus-weight."
            )
        calibrated: Exploration = eqx.tree_at(lambda e: e.bonus_weight, explorations, Constant(weight))
        return calibrated

    def propose(self, on_decision: OnDecision) -> Proposal[LoopState]:
        """One window of learning."""
        n, length, clock, recorded = self.iteration, self.window, Clock(), self.run.offline_order == "recorded"
        learning = Learning(self.programs, self.parts, self.explorations(), self.seeds)
        learned = learning.begin(self.state, n * length)
        metrics: list[Metrics] = []
        for t in range(length):
            decision = n * length + t
            packet = self._packet(decision - 1 if recorded and t > 0 else None)
            learned, metrics = learning.learn(decision, learned, learning.split(packet))
            jax.block_until_ready([shard.now for shard in learned])
            on_decision(t, length)
        last, seen, state = self._packet((n + 1) * length - 1 if recorded else None), self.seen(), self.state
        where = state.obs, state.total_reward, state.episode, state.episode_return, state.costs
        after, mdp, numbers = learning.end(learned, metrics, last, seen, where)
        return self.report(after, mdp, numbers, seen, clock)

    def _packet(self, row: int | None) -> np.ndarray:
        """One row of the data as the loop that acts would hand it over (`Columns.packet`), or none."""
        rows, spec = self._host, self.envs.spec
        there = row is not None and row < rows.reward.shape[1]
        at = row if there and row is not None else 0
        columns: list[Any] = [leaf[:, at] for leaf in (rows.obs, rows.action, rows.reward, rows.next_obs)]
        columns += [rows.terminated[:, at], rows.truncated[:, at], np.full(len(self.seeds), there)]
        columns.append(np.zeros((len(self.seeds), spec.obs_dim), np.float32))
        return np.concatenate([one if one.ndim == 2 else one[:, None] for one in columns], axis=1, dtype=np.float32)

    @functools.cached_property
    def _host(self) -> Transition:
        """The data on the host, [seeds, rows, ...]."""
        host: Transition = jax.tree.map(np.asarray, self.state.replay.data)
        return host

    @property
    def trained(self) -> str:
        """In decisions that might have been."""
        return f"{self.iteration * self.window} decisions' worth"


class OfflineEpisodicTrainer(OfflineTrainer):
    """As algorithms that learn between episodes."""

    counts: ClassVar[Literal["episodes", "decisions"]] = "episodes"

    @property
    def window(self) -> int:
        """Decisions of an episode, at most."""
        return self.setting.longest

    def propose(self, on_decision: OnDecision) -> Proposal[LoopState]:
        """Fit the model to the data, and let the controller improve in it."""
        n, state, clock, compiled = self.iteration, self.state, Clock(), self.compiled("explore")
        new = improve(
            compiled, self.parts, state.learner, state.controller, state.replay, n=n, seeds=self.seeds, clock=clock
        )
        seen, replay = self.seen(), state.replay
        visited = compiled.diagnose(new.learner, new.mdp, seen.transitions, seen.valid)
        if self.run.offline_order == "recorded":
            replay = Replay(replay.data, jnp.full(len(self.seeds), self._after(n), jnp.int32))
        on_decision(0, 1)
        after = dataclasses.replace(state, learner=new.learner, controller=new.controller, replay=replay)
        metrics = {name: np.asarray(value) for name, value in (new.metrics | visited).items()}
        return self.report(after, new.mdp, metrics, seen, clock)

    def _after(self, n: int) -> int:
        """How many transitions were recorded at the end of episode n."""
        data = self.state.replay.data
        columns = data.obs, data.action, data.reward, data.next_obs, data.terminated, data.truncated
        stops = np.flatnonzero(Rows(*(np.asarray(column[0]) for column in columns)).ends) + 1
        return int(stops[min(n, len(stops) - 1)])

    @property
    def trained(self) -> str:
        """In episodes that might have been."""
        return f"{self.iteration} episode{'s' * (self.iteration != 1)}' worth"
