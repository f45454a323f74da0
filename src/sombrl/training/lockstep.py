"""Agents that differ in how they explore, trained side by side in one program: three strategies for the price of one.

Each stays an agent of its own, with its environments, checkpoints and evaluations; only the dispatches are shared.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sombrl.envs.joined import JoinedEnvs
from sombrl.exploration.shared import share
from sombrl.records import SombrlError
from sombrl.training.episodic import Chunk, LoopState, Report
from sombrl.training.online import run_online, spread

if TYPE_CHECKING:
    from sombrl.agent.agent import Agent


def learn_together(agents: "Sequence[Agent]", total_decisions: int) -> None:
    """Train all of them for `total_decisions` more decisions per seed."""
    until = agents[0].iteration + math.ceil(total_decisions / agents[0].window)
    for _ in iterate(agents, until):
        pass


def iterate(
    agents: "Sequence[Agent]",
    until: int,
    on_decision: Callable[[int, int], None] = lambda decision, length: None,
) -> "Iterator[list[Report]]":
    """Train agents that learn at every decision up to iteration `until`, with a report each at a time."""
    first = agents[0]
    for agent in agents:
        if not hasattr(agent, "parts"):
            raise SombrlError(f"{agent.algorithm} has a loop of its own: call `learn` of each agent by itself.")
    for other in agents[1:]:
        _require_alike(first, other)
    for agent in agents:
        agent.place_envs()
    envs = first.envs if len(agents) == 1 else JoinedEnvs([agent.envs for agent in agents])
    bounds = np.cumsum([0, *(len(agent.seeds) for agent in agents)]).tolist()
    reports = run_online(
        envs,
        first.programs,
        first.parts.learner,
        spread(share([agent.parts.exploration for agent in agents]), len(first.seeds)),
        first.parts.controller,
        first.setting,
        seeds=[seed for agent in agents for seed in agent.seeds],
        first=first.iteration,
        state=_joined([agent.state for agent in agents]),
        num_iterations=until,
        report_every=first.window,
        on_decision=on_decision,
    )
    for report in reports:
        parts = [_part(report, start, end) for start, end in itertools.pairwise(bounds)]
        for agent, part in zip(agents, parts, strict=True):
            agent.advance(part)
        yield parts
        for agent in agents if first.iteration < until else []:
            agent.take_back()


def _require_alike(one: "Agent", other: "Agent") -> None:
    """Everything that is compiled must be the same."""
    if not (one.online and other.online):
        raise SombrlError("only algorithms that learn at every decision can be trained in one program.")
    for name, ours, theirs in (
        ("algorithm", one.algorithm, other.algorithm),
        ("environment", one.envs.spec, other.envs.spec),
        ("setting", one.setting, other.setting),
        ("number of seeds", len(one.seeds), len(other.seeds)),
        ("window", one.window, other.window),
        ("capacity", one.capacity, other.capacity),
        ("iteration", one.iteration, other.iteration),
    ):
        if ours != theirs:
            raise SombrlError(f"agents trained in one program need the same {name}, not {ours} and {theirs}.")
    for name, parts in (("model", "learner"), ("controller", "controller")):
        if not eqx.tree_equal(getattr(one.parts, parts), getattr(other.parts, parts)):
            raise SombrlError(f"agents trained in one program need the same settings of the {name}.")


def _joined(states: Sequence[LoopState]) -> LoopState:
    return states[0] if len(states) == 1 else jax.tree.map(_concatenate, *states)


def _concatenate(*leaves: Any) -> Any:
    return (np if isinstance(leaves[0], np.ndarray) else jnp).concatenate(leaves)


def _part(report: Report, start: int, end: int) -> Report:
    """The rows of one agent."""
    if start == 0 and end == len(report.chunk.returns):
        return report

    def cut(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[start:end] if eqx.is_array(leaf) else leaf, tree)

    chunk = report.chunk
    chunk = Chunk(cut(chunk.transitions), chunk.valid[start:end], chunk.returns[start:end], chunk.last_obs[start:end])
    metrics = {name: values[start:end] for name, values in report.metrics.items()}
    return Report(report.iteration, cut(report.state), cut(report.mdp), chunk, metrics, report.seconds)
