"""The exploration strategies of the literature as recipes: how the state moves × what the bonus is.

| strategy     | propagation   | bonus      | extra controls | reference                        |
| greedy       | Mean          | –          | 0              | certainty equivalence            |
| pets         | Resampled     | –          | 0              | Chua et al., 2018                |
| thompson     | DrawnOnce     | –          | 0              | Osband & Van Roy, 2014           |
| hucrl        | Hallucinated  | –          | state          | Curi et al., 2020                |
| optimistic   | Mean          | λₙ‖σₙ‖     | 0              | SOMBRL, Sukhija et al., 2025     |
| unsupervised | Mean          | ‖σₙ‖ alone | 0              | SOMBRL with r = 0; OPAX          |
| pessimistic  | Mean          | -λₙ‖σₙ‖    | 0              | MOPO, Yu et al., 2020            |
"""

from collections.abc import Callable

from sombrl.exploration.base import AbstractBonus, Exploration
from sombrl.exploration.bonus import EpistemicNorm, NoBonus, Penalty
from sombrl.exploration.propagation import DrawnOnce, Hallucinated, Mean, Resampled
from sombrl.exploration.weight import AbstractWeight, Constant


def greedy() -> Exploration:
    """Certainty-equivalent planning: the task's reward under the mean model."""
    return Exploration(Mean(), NoBonus(), Constant(0.0))


def pets() -> Exploration:
    """The task's reward, averaged over sampled next states."""
    return Exploration(Resampled(), NoBonus(), Constant(0.0))


def thompson() -> Exploration:
    """Draw one sample of the posterior and plan in it."""
    return Exploration(DrawnOnce(), NoBonus(), Constant(0.0))


def hucrl(beta: float) -> Exploration:
    """Let the planner choose the most favourable dynamics within ±β standard deviations."""
    return Exploration(Hallucinated(beta), NoBonus(), Constant(0.0))


def optimistic(bonus_weight: AbstractWeight, bonus: AbstractBonus | None = None) -> Exploration:
    """SOMBRL: the mean dynamics, and the task reward plus λₙ‖σₙ‖."""
    return Exploration(Mean(), bonus or EpistemicNorm(), bonus_weight)


def unsupervised(bonus: AbstractBonus | None = None) -> Exploration:
    """Explore without a task: the bonus alone."""
    return Exploration(Mean(), bonus or EpistemicNorm(), Constant(1.0), task_weight=0.0)


def pessimistic(bonus_weight: AbstractWeight, bonus: AbstractBonus | None = None) -> Exploration:
    """The lower bound of the return in place of the upper one: the task reward minus λₙ‖σₙ‖, for learning from data."""
    return Exploration(Mean(), Penalty(bonus or EpistemicNorm()), bonus_weight)


STRATEGIES: dict[str, Callable[..., Exploration]] = {
    "greedy": greedy,
    "pets": pets,
    "thompson": thompson,
    "hucrl": hucrl,
    "optimistic": optimistic,
    "unsupervised": unsupervised,
    "pessimistic": pessimistic,
}
"""What `--explore` accepts, for every algorithm."""

NONEPISODIC_NAMES = {"neorl": "hucrl", "nepets": "pets", "nemean": "greedy"}
"""What strategies are called in papers when nothing is ever reset (NeoRL: Sukhija et al., 2024)."""

OF_STRATEGIES = {"bonus_weight": ("optimistic", "pessimistic"), "beta": ("hucrl", "neorl")}
"""Settings that only some strategies look at."""
