"""`sombrl demo`: optimistic against greedy on sparse MountainCar; a table, a picture and a page."""

import dataclasses
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sombrl.agent.agent import Agent
from sombrl.algorithms.gp_icem import GPICEMConfig
from sombrl.config.run import RunConfig
from sombrl.controllers.icem import ICEMConfig
from sombrl.dynamics.base import AbstractDynamics
from sombrl.dynamics.gp import GPConfig
from sombrl.envs.mountain_car import MAX_POSITION, MAX_SPEED, MIN_POSITION
from sombrl.exploration.bonus import EpistemicNorm
from sombrl.exploration.config import ExploreConfig
from sombrl.records import RunFault, SombrlError
from sombrl.runs.plots import drawing
from sombrl.runs.train import train
from sombrl.storage.run_folder import RunFolder
from sombrl.training.episodic import ChunkReport

STRATEGIES = ("optimistic", "greedy")
MARKER = ".sombrl-demo"
GRID = 41  # points of the σ map along each axis
CONFIG = GPICEMConfig(
    # Less than the defaults where that is enough for two coordinates and a few hundred transitions.
    gp=GPConfig(capacity=1024, rank=64, fit_points=128, fit_steps=40),
    # 30 decisions are 150 frames; the way up takes about 100, so 20 decisions now and then just miss it.
    icem=ICEMConfig(horizon=30),
)


@dataclasses.dataclass
class Story:
    """What one strategy did: the run's metrics, and what only the hook sees while it runs."""

    strategy: str
    rows: list[dict] = dataclasses.field(default_factory=list)
    visited: list[list[np.ndarray]] = dataclasses.field(default_factory=list)  # [episode][seed] → [time, 2]
    sigma: list[np.ndarray] = dataclasses.field(default_factory=list)  # [episode] → [velocity, position]
    seconds: float = 0.0

    @property
    def returns(self) -> np.ndarray:
        """[episodes, seeds], as in metrics.jsonl."""
        seeds = sorted({row["seed"] for row in self.rows})
        columns = [[r["rollout/ep_rew_mean"] for r in self.rows if r["seed"] == seed] for seed in seeds]
        return np.array(columns).T

    def watch(self, agent: Agent, report: ChunkReport) -> None:
        """Keep what the page shows. `report.mdp` is what was planned with: it knows earlier episodes only."""
        obs, valid = np.asarray(report.chunk.transitions.obs), report.chunk.valid
        self.visited.append([rows[mask] for rows, mask in zip(obs, valid, strict=True)])
        arrays, static = eqx.partition(report.mdp.dynamics, eqx.is_array)
        first_seed = eqx.combine(jax.tree.map(lambda leaf: leaf[0], arrays), static)
        self.sigma.append(np.asarray(sigma_map(first_seed)))


def demo(out: Path, *, seeds: int, episodes: int) -> None:
    """Train both strategies in `out`, print the comparison and write demo.png and index.html there."""
    from sombrl.demo.page import write_page  # here, because both are made of our stories
    from sombrl.demo.picture import draw_picture

    out = Path(out)
    settings = run_config(seeds, episodes)  # refuses impossible numbers before anything is touched
    with drawing("the demo"):
        pass  # without matplotlib it would fail after the training
    _make_room(out)
    command = ["sombrl", "demo", "--out", str(out), "--seeds", str(seeds), "--episodes", str(episodes)]
    stories = []
    for strategy in STRATEGIES:
        config = dataclasses.replace(CONFIG, explore=ExploreConfig(explore=strategy, bonus_weight=10.0))
        story, start = Story(strategy), time.perf_counter()
        train("gp-icem", config, settings, out / strategy, command=command, tensorboard=False, hook=story.watch)
        story.seconds = time.perf_counter() - start
        story.rows = RunFolder.open(out / strategy).rows()
        stories.append(story)
        print()
    comparison = compare(stories)
    print(text_table(comparison))
    picture, page = out / "demo.png", out / "index.html"
    try:
        draw_picture(picture, stories, comparison)
        write_page(page, stories, comparison, command, settings, CONFIG)
    except OSError as error:
        raise RunFault(f"cannot write in {out}: {error.strerror or error}.") from error
    print(f"\npicture  {picture.resolve()}\npage     {page.resolve()}")


def run_config(seeds: int, episodes: int) -> RunConfig:
    """Sparse MountainCar: 40 decisions of 5 frames, +100 a frame at the goal, otherwise only costs."""
    return RunConfig(env="mountain-car", action_repeat=5, episode_length=40, episodes=episodes, seeds=seeds)


@eqx.filter_jit
def sigma_map(dynamics: AbstractDynamics) -> Float[Array, "velocity position"]:
    """‖σ‖ in normalised units over the state space, for action 0: √2 where nothing is known."""
    positions = jnp.linspace(MIN_POSITION, MAX_POSITION, GRID)
    velocities = jnp.linspace(-MAX_SPEED, MAX_SPEED, GRID)

    def sigma(velocity: Float[Array, ""], position: Float[Array, ""]) -> Float[Array, ""]:
        return EpistemicNorm()(dynamics.predict(jnp.stack([position, velocity]), jnp.zeros(1)))

    return jax.vmap(jax.vmap(sigma, in_axes=(None, 0)), in_axes=(0, None))(velocities, positions)


def compare(stories: list[Story]) -> list[dict[str, Any]]:
    """A row per strategy: who found the reward, when, and how well the last episodes went."""
    rows = []
    for story in stories:
        returns = story.returns
        firsts = [int(np.argmax(column > 0)) + 1 for column in returns.T if (column > 0).any()]
        last = np.median(returns[-3:], axis=0)  # per seed
        rows.append(
            {
                "strategy": story.strategy,
                "found": len(firsts),
                "seeds": returns.shape[1],
                "first": statistics.median(firsts) if firsts else None,
                "median": float(np.median(last)),
                "min": float(last.min()),
                "max": float(last.max()),
                "seconds": story.seconds,
            }
        )
    return rows


HEADINGS = ("strategy", "found the reward", "first in episode", "return, last 3 episodes", "seconds")


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row of `compare` as text, in the order of HEADINGS."""
    return (
        row["strategy"],
        f"{row['found']}/{row['seeds']} seeds",
        "–" if row["first"] is None else f"{row['first']:g}",
        f"{_round(row['median'])} [{_round(row['min'])}, {_round(row['max'])}]",
        f"{row['seconds']:.0f}",
    )


def text_table(comparison: list[dict[str, Any]]) -> str:
    """The comparison for a terminal."""
    lines = [HEADINGS, *(cells(row) for row in comparison)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(
        [
            *text,
            "return: median over seeds [worst seed, best seed]; episode: median over the seeds that found it",
        ]
    )


def _round(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}"


def _make_room(out: Path) -> None:
    """An old demo goes; anything else is not ours to delete. What else lies in an old demo's folder stays."""
    try:
        if out.exists() and not out.is_dir():
            raise SombrlError(f"{out} is a file: choose another --out.")
        if out.exists() and any(out.iterdir()) and not (out / MARKER).is_file():
            raise SombrlError(f"{out} is not empty and no old demo: choose another --out.")
        out.mkdir(parents=True, exist_ok=True)
        (out / MARKER).write_text("Made by `sombrl demo`, which may replace what it wrote here.\n")
        for strategy in STRATEGIES:
            if (out / strategy / "manifest.json").is_file():
                with RunFolder.open(out / strategy).lock():  # refuses while another process trains in it
                    shutil.rmtree(out / strategy)
        for name in ("demo.png", "index.html"):
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        raise RunFault(f"cannot use {out}: {error.strerror or error}.") from error
