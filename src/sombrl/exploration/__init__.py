"""Exploration strategies: propagation × bonus × λₙ."""

from sombrl.exploration.base import AbstractBonus, AbstractPropagation, Exploration, ImaginedMDP
from sombrl.exploration.bonus import EpistemicNorm, InformationGain, NoBonus, Penalty
from sombrl.exploration.propagation import DrawnOnce, Hallucinated, Mean, NoisyMean, Resampled
from sombrl.exploration.strategies import (
    STRATEGIES,
    greedy,
    hucrl,
    optimistic,
    pessimistic,
    pets,
    thompson,
    unsupervised,
)
from sombrl.exploration.weight import (
    AbstractWeight,
    Constant,
    Exponential,
    Linear,
    Theoretical,
    TheoryConfig,
    theoretical,
)

__all__ = [
    "STRATEGIES",
    "AbstractBonus",
    "AbstractPropagation",
    "AbstractWeight",
    "Constant",
    "DrawnOnce",
    "EpistemicNorm",
    "Exploration",
    "Exponential",
    "Hallucinated",
    "ImaginedMDP",
    "InformationGain",
    "Linear",
    "Mean",
    "NoBonus",
    "NoisyMean",
    "Penalty",
    "Resampled",
    "Theoretical",
    "TheoryConfig",
    "greedy",
    "hucrl",
    "optimistic",
    "pessimistic",
    "pets",
    "theoretical",
    "thompson",
    "unsupervised",
]
