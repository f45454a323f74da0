"""`sombrl bounds`: what the model of a trained agent says its policy will earn, and how past predictions came out."""

import math
import sys
from pathlib import Path

import numpy as np

from sombrl.agent.agent import Agent
from sombrl.agent.make import load_with
from sombrl.envs.trust import NO_WORD, Word
from sombrl.training.bounds import Bounds, require_factor


def bounds_of_run(
    run: Path,
    *,
    episodes: int,
    factor: float | None = None,
    theory: bool = False,
    calibrated: float | None = None,
    word: Word = NO_WORD,
) -> None:
    """Print J⁻, J and J⁺ of the trained policy; nothing is written."""
    require_factor(factor, theory, calibrated)
    agent = load_with(word, run)
    for note in agent.notes:
        print(note, file=sys.stderr)
    print(table(agent, agent.bounds(episodes=episodes, factor=factor, theory=theory, calibrated=calibrated)))


def table(agent: Agent, bounds: Bounds) -> str:
    """Means over episodes, a line per seed; then λ, and how often such bounds have held."""
    count = len(bounds.value)
    heads = ("J⁻", "J", "J⁺", "Σ‖σ‖", "λ")
    lines = [
        f"{agent.label} · after {agent.trainer.trained} of training",
        f"{count} episode{'s' * (count != 1)} per seed in the learned model, without exploring",
        "",
        f"{'seed':>6}  {'  '.join(f'{head:>10}' for head in heads)}",
    ]
    columns = [bounds.low, bounds.value, bounds.high, bounds.uncertainty, bounds.factor[None]]
    for seed, numbers in zip(agent.seeds, np.stack([column.mean(axis=0) for column in columns]).T, strict=True):
        returns, rest = numbers[:3], numbers[3:]
        texts = [*(f"{value:>10.2f}" for value in returns), *(f"{value:>10.4g}" for value in rest)]
        lines.append(f"{seed:>6}  {'  '.join(texts)}")
    lines += ["", f"J ± λ Σ‖σ‖; λ, in reward per unit of Σ‖σ‖, is {bounds.origin}", _held(bounds)]
    return "\n".join(lines)


def _held(bounds: Bounds) -> str:
    number = bounds.past.episodes
    if number == 0:
        return "no predictions of past episodes were recorded (--record-bounds): how often this holds is not known"
    if math.isnan(bounds.covered):
        return f"{number} past episodes are too few to say how often this holds"
    how = "each judged by the episodes before it" if bounds.origin.startswith("calibrated") else "with this λ"
    return f"{bounds.covered:.0%} of {number} past episodes were inside, {how}"
