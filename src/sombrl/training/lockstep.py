"""Trainers that differ in how they explore, trained side by side in one program: three strategies for the price of one.

Each stays a trainer of its own, with its environments, checkpoints and evaluations; only the dispatches are shared.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sombrl.envs.joined import JoinedEnvs
from sombrl.errors import SombrlError
from sombrl.exploration.shared import share
from sombrl.seeds import take
from sombrl.training.base import OnDecision, Proposal, Report, Trainer, ignore
from sombrl.training.compiled import LoopState
from sombrl.training.episodic import Chunk, ChunkReport
from sombrl.training.online import OnlineTrainer, reward_size, spread, window


@runtime_checkable
class HasTrainer(Protocol):
    """An agent."""

    trainer: Trainer[Any]


def learn_together(agents: Sequence[HasTrainer], total_decisions: int) -> None:
    """Train agents that learn at every decision side by side, for `total_decisions` more decisions per seed."""
    trainers = [agent.trainer for agent in agents]
    until = trainers[0].iteration + math.ceil(total_decisions / trainers[0].window)
    lockstep = Lockstep(trainers)
    _online(trainers)
    while trainers[0].iteration < until:
        lockstep.iterate()


class Lockstep:
    """One trainer, or several in one program; they are at the same iteration after each call."""

    def __init__(self, trainers: Sequence[Trainer[Any]]):
        self.trainers = list(trainers)
        for other in _online(trainers)[1:] if len(trainers) > 1 else []:
            _require_alike(_online(trainers)[0], other)

    @property
    def exact_rewind(self) -> bool:
        """Whether an iteration that was abandoned leaves no trace at all."""
        return all(trainer.exact_rewind for trainer in self.trainers)

    def rewind(self) -> None:
        """Forget an iteration that did not come to its end."""
        for trainer in self.trainers:
            trainer.rewind()

    def iterate(self, on_decision: OnDecision = ignore) -> list[Report]:
        """Train for one iteration; a report per trainer."""
        if len(self.trainers) == 1:
            return [self.trainers[0].iterate(on_decision)]
        trainers = _online(self.trainers)
        first, parts = trainers[0], share([trainer.parts.exploration for trainer in trainers])
        for trainer in trainers:
            trainer.place()
        joined = window(
            JoinedEnvs([trainer.envs for trainer in trainers]),
            *(first.programs, first.parts, spread(parts, len(first.seeds)), first.setting),
            [seed for trainer in trainers for seed in trainer.seeds],
            *(first.iteration, _joined([trainer.state for trainer in trainers]), first.window, first.background),
            on_decision,
            np.concatenate([trainer.given for trainer in trainers]),
        )
        ends = np.cumsum([0, *(len(trainer.seeds) for trainer in trainers)]).tolist()
        reports = [_part(joined, slice(start, end)) for start, end in itertools.pairwise(ends)]
        simulators = [trainer.envs.get_state() for trainer in trainers]
        for trainer, report, where in zip(trainers, reports, simulators, strict=True):
            trainer.commit(Proposal(report, trainer.after(report, where)))
        return list(reports)


def _online(trainers: Sequence[Trainer[Any]]) -> list[OnlineTrainer]:
    for trainer in trainers:
        if not isinstance(trainer, OnlineTrainer):
            raise SombrlError(
                "only mbpo, sac and maxinfo-sac can be trained in one program: call `learn` of each agent by itself."
            )
    return [trainer for trainer in trainers if isinstance(trainer, OnlineTrainer)]


def _require_alike(one: OnlineTrainer, other: OnlineTrainer) -> None:
    """Everything that is compiled must be the same."""
    for name, ours, theirs in (
        ("configuration", type(one.config), type(other.config)),
        ("environment", one.envs.spec, other.envs.spec),
        ("setting", one.setting, other.setting),
        ("number of seeds", len(one.seeds), len(other.seeds)),
        ("window", one.window, other.window),
        ("capacity", one.capacity, other.capacity),
        ("iteration", one.iteration, other.iteration),
        ("limit of costs", getattr(one.config, "safety", None), getattr(other.config, "safety", None)),
    ):
        if ours != theirs:
            raise SombrlError(f"agents trained in one program need the same {name}, not {ours} and {theirs}.")
    for name, part in (("model", "learner"), ("controller", "controller")):
        if not eqx.tree_equal(getattr(one.parts, part), getattr(other.parts, part)):
            raise SombrlError(f"agents trained in one program need the same settings of the {name}.")


def _joined(states: Sequence[LoopState]) -> LoopState:
    joined: LoopState = jax.tree.map(_concatenate, *states)
    return joined


def _concatenate(*leaves: Any) -> Any:
    return (np if isinstance(leaves[0], np.ndarray) else jnp).concatenate(leaves)


def _part(report: ChunkReport, rows: slice) -> ChunkReport:
    """The rows of one trainer."""
    chunk = report.chunk
    chunk = Chunk(take(chunk.transitions, rows), chunk.valid[rows], chunk.returns[rows], chunk.last_obs[rows])
    return ChunkReport(
        iteration=report.iteration,
        returns=report.returns[rows],
        decisions=report.decisions[rows],
        taken=report.taken[rows],
        columns={name: values[rows] for name, values in report.columns.items()},
        metrics={name: values[rows] for name, values in report.metrics.items()},
        seconds=report.seconds,
        reward_size=reward_size(chunk),
        state=take(report.state, rows),
        mdp=take(report.mdp, rows),
        chunk=chunk,
    )
