"""A trainer of your own: evolution of a linear policy, with nothing learned about the world.

Where the common loops do not fit, an algorithm brings a trainer. It proposes an iteration and says what a checkpoint
holds; `learn`, `evaluate`, `save`, `load` and an exact resume come from sombrl.

    python examples/own_trainer.py [--quick]
"""

import argparse
import dataclasses
from typing import Any

import numpy as np

import sombrl
from sombrl.algorithms import ALGORITHMS, Algorithm
from sombrl.exploration.config import ExploreConfig
from sombrl.training.base import Committed, Policy, Proposal, Report, Trainer
from sombrl.training.clock import Clock


@dataclasses.dataclass(frozen=True)
class EvolutionConfig:
    """Try changed weights for an episode, and keep them where they earn more."""

    explore: ExploreConfig = dataclasses.field(default_factory=lambda: ExploreConfig(explore="greedy"))
    step: float = 0.5
    """Standard deviation of a change."""


class LinearPolicy(Policy):
    """tanh of the weighted observation, one row of weights per seed."""

    def __init__(self, mode: Any, weights: np.ndarray):
        self.mode, self.weights = mode, weights

    def begin(self, copies: int = 1, *, stream: int | None = None) -> None:
        """It remembers nothing."""

    def act(self, memory: None, obs: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, None]:
        """A row of actions per row of observations."""
        weights = np.repeat(self.weights, len(obs) // len(self.weights), axis=0)
        return np.tanh(np.einsum("soa,so->sa", weights, obs)).astype(np.float32), None

    def assess(self, rows: Any, valid: np.ndarray) -> dict[str, np.ndarray]:
        """There is no model that could say anything."""
        raise sombrl.SombrlError("evolution has no model.")

    def returns(self, rewards: np.ndarray) -> np.ndarray:
        """The sum."""
        return rewards.sum(axis=1)


class EvolutionTrainer(Trainer[dict[str, np.ndarray]]):
    """An iteration is an episode of changed weights."""

    counts = "episodes"
    learns_policy = True

    @property
    def window(self) -> int:
        """Decisions of an episode."""
        return self.setting.longest

    @property
    def trained(self) -> str:
        """In episodes."""
        return f"{self.iteration} episodes"

    def _initial(self) -> dict[str, np.ndarray]:
        spec, number = self.envs.spec, len(self.seeds)
        weights = np.zeros((number, spec.obs_dim, spec.action_dim))
        return {"weights": weights, "best": np.full(number, -np.inf), "decisions": np.zeros(number, np.int64)}

    def propose(self, on_decision: Any) -> Proposal[dict[str, np.ndarray]]:
        """Change, play, and keep what is better. Random numbers are a function of (seed, iteration)."""
        n, old, clock = self.iteration, self.state, Clock()
        noise = [np.random.default_rng((seed, n)).normal(size=old["weights"].shape[1:]) for seed in self.seeds]
        tried = old["weights"] + self.config.step * np.stack(noise)
        policy, obs = LinearPolicy("explore", tried), self.envs.reset(n)
        active, earned, taken = (np.ones(len(self.seeds), bool), *np.zeros((2, len(self.seeds))))
        for t in range(self.window):
            step = self.envs.step(policy.act(None, obs, active)[0], active)
            earned, taken = earned + np.where(active, step.reward, 0.0), taken + active
            obs, active = step.obs, active & ~step.terminated & ~step.truncated
            on_decision(t, self.window)
            if not active.any():
                break
        better = earned > old["best"]
        new = {
            "weights": np.where(better[:, None, None], tried, old["weights"]),
            "best": np.where(better, earned, old["best"]),
            "decisions": old["decisions"] + taken.astype(np.int64),
        }
        numbers: dict[str, Any] = {"returns": earned, "decisions": new["decisions"], "taken": taken}
        report = Report(
            iteration=n, **numbers, columns={}, metrics={"policy/best": new["best"]}, seconds=clock.seconds("collect")
        )
        return Proposal(report, Committed(n + 1, new, None))

    def policy(self, mode: Any = "task", rows: Any = None) -> LinearPolicy:
        """The best weights so far, for some seeds or for all."""
        weights = self.state["weights"]
        return LinearPolicy(mode, weights if rows is None else weights[list(rows)])


def make_trainer(config: EvolutionConfig, run: Any, maker: Any) -> EvolutionTrainer:
    """What the row of the table names."""
    envs = maker.make(run.seed_list)
    return EvolutionTrainer(config, run, maker, envs, run.make_setting(envs.spec.episode_length))


ALGORITHMS["evolution"] = Algorithm("evolution", EvolutionConfig, None, "evolution of a linear policy", make_trainer)


def main() -> None:
    """Pendulum, for as long as evolution takes; compare with `sombrl train sac`, which learns from every decision."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    quick = parser.parse_args().quick

    agent = sombrl.make("evolution", "Pendulum-v1", seeds=3, step=1.0)
    agent.learn(200 * (5 if quick else 100))
    print("best returns in training:", agent.state["best"].round())
    print("evaluated:", agent.evaluate(3).mean(axis=0).round())


if __name__ == "__main__":
    main()
