"""What a strategy did in the demo, episode by episode, and the table that compares the strategies."""

import dataclasses
import io
import math
import statistics
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sombrl.agent.agent import Agent
from sombrl.dynamics.base import AbstractDynamics
from sombrl.envs.mountain_car import MAX_POSITION, MAX_SPEED, MIN_POSITION
from sombrl.exploration.bonus import EpistemicNorm
from sombrl.storage.files import write_whole
from sombrl.training.episodic import ChunkReport

GRID = 41  # points of the σ map along each axis
LAST = 3  # episodes that a seed's final return is the median of
EVALUATION_EPISODES = 3
HEADINGS = (
    *("strategy", "found the reward", "first in episode"),
    *(f"return, last {LAST} episodes", "evaluated", "seconds"),
)


@dataclasses.dataclass
class Story:
    """What one strategy did: the run's metrics, and what only a hook sees while it trains."""

    strategy: str
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    visited: list[list[np.ndarray]] = dataclasses.field(default_factory=list)  # [episode][seed] → [time, 2]
    sigma: list[np.ndarray] = dataclasses.field(default_factory=list)  # [episode] → [velocity, position]
    seconds: float = 0.0
    evaluated: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))
    """Returns after training, planned for the task alone: [episodes, seeds]."""

    @property
    def returns(self) -> np.ndarray:
        """[episodes, seeds], as in metrics.jsonl."""
        seeds = sorted({row["seed"] for row in self.rows})
        columns = [[row["rollout/ep_rew_mean"] for row in self.rows if row["seed"] == seed] for seed in seeds]
        return np.array(columns).T

    def watch(self, agent: Agent, report: ChunkReport) -> None:
        """Keep what the page shows of an episode. `report.mdp` is what was planned with: it knows earlier ones only."""
        obs, valid = np.asarray(report.chunk.transitions.obs), report.chunk.valid
        self.visited.append([rows[mask] for rows, mask in zip(obs, valid, strict=True)])
        arrays, static = eqx.partition(report.mdp.dynamics, eqx.is_array)
        first_seed = eqx.combine(jax.tree.map(lambda leaf: leaf[0], arrays), static)
        self.sigma.append(np.asarray(sigma_map(first_seed)))

    def save(self, path: Path) -> None:
        """Write what the hook saw, and the seconds."""
        states: dict[str, Any] = {
            f"visited/{n}/{i}": seen for n, episode in enumerate(self.visited) for i, seen in enumerate(episode)
        }
        content = io.BytesIO()
        states |= {"sigma": np.array(self.sigma), "evaluated": self.evaluated, "seconds": np.array(self.seconds)}
        np.savez(content, **states)
        write_whole(path, content.getvalue())

    @classmethod
    def load(cls, strategy: str, path: Path, rows: list[dict[str, Any]]) -> "Story":
        """The inverse of `save`, with the run's metrics."""
        with np.load(path, allow_pickle=False) as file:
            sigma = list(file["sigma"])
            seeds = len({row["seed"] for row in rows})
            visited = [[file[f"visited/{n}/{i}"] for i in range(seeds)] for n in range(len(sigma))]
            return cls(strategy, rows, visited, sigma, float(file["seconds"]), file["evaluated"])


@eqx.filter_jit
def sigma_map(dynamics: AbstractDynamics) -> Float[Array, "velocity position"]:
    """‖σ‖ in normalised units over the state space, for action 0: √2 where nothing is known."""
    positions = jnp.linspace(MIN_POSITION, MAX_POSITION, GRID)
    velocities = jnp.linspace(-MAX_SPEED, MAX_SPEED, GRID)

    def sigma(velocity: Float[Array, ""], position: Float[Array, ""]) -> Float[Array, ""]:
        return EpistemicNorm()(dynamics.predict(jnp.stack([position, velocity]), jnp.zeros(1)))

    return jax.vmap(jax.vmap(sigma, in_axes=(None, 0)), in_axes=(0, None))(velocities, positions)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A line of the comparison: on how many seeds a strategy found the reward, when, and how well it ended."""

    strategy: str
    found: int
    seeds: int
    first: float | None
    """The episode of the first reward, the median over the seeds that found it."""
    median: float
    """The final return, the median over seeds; below, those of the worst and the best seed."""
    worst: float
    best: float
    evaluated: tuple[float, float, float]
    """After training, without exploring: the median seed, the worst and the best."""
    seconds: float

    @classmethod
    def of(cls, story: Story) -> "Outcome":
        """From the returns of every episode and seed."""
        returns = story.returns
        firsts = [int(np.argmax(column > 0)) + 1 for column in returns.T if (column > 0).any()]
        final = np.median(returns[-LAST:], axis=0)
        kept = story.evaluated.mean(axis=0) if story.evaluated.size else np.full(returns.shape[1], np.nan)
        return cls(
            strategy=story.strategy,
            found=len(firsts),
            seeds=len(final),
            first=float(statistics.median(firsts)) if firsts else None,
            median=float(np.median(final)),
            worst=float(final.min()),
            best=float(final.max()),
            evaluated=(float(np.median(kept)), float(kept.min()), float(kept.max())),
            seconds=story.seconds,
        )

    @property
    def cells(self) -> tuple[str, ...]:
        """As text, in the order of HEADINGS."""
        return (
            self.strategy,
            f"{self.found}/{self.seeds} seeds",
            "–" if self.first is None else f"{self.first:g}",
            _interval(self.median, self.worst, self.best),
            _interval(*self.evaluated),
            f"{self.seconds:.0f}",
        )


def text_table(outcomes: list[Outcome]) -> str:
    """The comparison for a terminal."""
    lines = [HEADINGS, *(outcome.cells for outcome in outcomes)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("─" * width for width in widths))
    text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    text.append("returns: median over seeds [worst seed, best seed]; episode: median over the seeds that found it")
    text.append(f"evaluated: {EVALUATION_EPISODES} episodes after training, planned for the task alone")
    return "\n".join(text)


def _interval(median: float, worst: float, best: float) -> str:
    return "–" if math.isnan(median) else f"{_round(median)} [{_round(worst)}, {_round(best)}]"


def _round(value: float) -> str:
    return (f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}").replace("-", "−")
