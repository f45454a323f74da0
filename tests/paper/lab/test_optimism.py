"""The lemma holds at the theory's λₙ in every setting, with room to spare, and fails without the bonus."""

import math

import numpy as np
import pytest

from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.noise import Gaussian, Rademacher
from sombrl.paper.lab.optimism import optimism
from sombrl.paper.lab.rows import KEYS, curves, select
from sombrl.paper.lab.settings import ExactDiscounted, ExactFiniteHorizon, ExactNonEpisodic
from sombrl.paper.lab.sub_gaussian import sub_gaussian_optimism
from sombrl.paper.lab.summary import lemma_table
from sombrl.paper.lab.systems import GridWorld
from sombrl.records import SombrlError

WORLDS = {
    dim: GridWorld(grid, noise=Gaussian(0.3), contraction=0.4, norm_bound=1.5)
    for dim, grid in {1: Grid(1, 15, 5), 2: Grid(2, 5, 3)}.items()
}
SIZES = {"systems": 4, "episodes": 3, "policies": 8}


def values(rows, metric):
    return curves(select(rows, metric=f"lab/{metric}"))[1]


@pytest.mark.parametrize(
    ("setting", "dim"),
    [
        (ExactFiniteHorizon(6), 1),
        (ExactDiscounted(0.8), 2),
        pytest.param(ExactNonEpisodic(), 1, marks=pytest.mark.thorough),
    ],
    ids=["finite-horizon", "discounted-2d", "non-episodic"],
)
def test_lemma_holds_with_the_margin_of_its_proof(setting, dim):
    rows = optimism(setting, WORLDS[dim], "random", **SIZES)
    (line,) = lemma_table(rows)
    assert line.pairs == line.systems.value == line.both_sides.value == line.calibrated.value == 1.0
    # Two Gaussians at distance e differ by e/2σ in total variation, so where β covers, the (1 + √d) of λₙ is
    # more than was needed by that much and a factor 2.
    spare = 1.0 if isinstance(setting, ExactNonEpisodic) else 2 * (1 + math.sqrt(dim))
    assert 0.0 < line.worst_factor <= 1.0 / spare


def test_lemma_fails_without_the_bonus():
    """The check can fail: at factor 0 the mean model alone is not optimistic."""
    rows = optimism(ExactFiniteHorizon(6), WORLDS[1], "random", factor=0.0, **SIZES)
    assert all(tuple(row) == KEYS for row in rows)
    assert {row["decisions"] for row in rows} == {0, 6, 18}
    assert {row["seed"] for row in rows} == {0, 1, 2, 3}
    assert np.any(values(rows, "lemma_holds") < 1.0)
    assert np.mean(values(rows, "lemma_holds_planned")) < 1.0
    assert lemma_table(rows)[0].systems.value < 1.0
    assert lemma_table(rows)[0].calibrated.value == 1.0  # it is not the model's fault


def test_sub_gaussian_lemma_holds_under_the_projected_mean():
    world = GridWorld(Grid(1, 15, 5), noise=Rademacher(0.3), contraction=0.4, norm_bound=1.5)
    rows = sub_gaussian_optimism(ExactFiniteHorizon(4), world, "random", **SIZES)
    (line,) = lemma_table(rows)
    assert line.setting == "sub-gaussian"
    assert line.systems.value == line.both_sides.value == line.calibrated.value == 1.0
    assert 0.0 < line.worst_factor < 0.1


@pytest.mark.parametrize("wrong", [{"systems": 0}, {"episodes": 0}, {"policies": 0}])
def test_nothing_to_do_is_refused(wrong):
    with pytest.raises(SombrlError, match="at least one of each"):
        optimism(ExactFiniteHorizon(3), WORLDS[1], "random", **SIZES | wrong)
    with pytest.raises(SombrlError, match="factor"):
        optimism(ExactFiniteHorizon(3), WORLDS[1], "random", factor=-1.0, **SIZES)
