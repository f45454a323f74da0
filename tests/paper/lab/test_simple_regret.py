"""The simple-regret lemma along a run, and the optimism lemma with λₙ scaled."""

import numpy as np
import pytest

from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.held import held
from sombrl.paper.lab.noise import Gaussian
from sombrl.paper.lab.rows import curves, select
from sombrl.paper.lab.settings import ExactDiscounted, ExactFiniteHorizon, ExactNonEpisodic
from sombrl.paper.lab.simple_regret import simple_regret
from sombrl.paper.lab.systems import GridWorld, random_system
from sombrl.records import SombrlError

WORLD = GridWorld(Grid(1, 15, 5), noise=Gaussian(0.3), contraction=0.4, norm_bound=1.5)
SETTINGS = [ExactFiniteHorizon(6), ExactDiscounted(0.8), ExactNonEpisodic()]


def each_setting(quick):
    """All settings, all but one of them in `make test-thorough`."""
    rest = [pytest.param(one, marks=pytest.mark.thorough) for one in SETTINGS if one != quick]
    return pytest.mark.parametrize("setting", [quick, *rest], ids=lambda s: s.name)


def values(rows, metric, method):
    return curves(select(rows, metric=f"lab/simple_regret{metric}", method=method))[1]


@each_setting(SETTINGS[0])
def test_the_lemma_holds_at_the_theorys_weight_and_fails_far_below(setting):
    methods = {"theory": 1.0, "tiny": 1e-7}
    rows = simple_regret(setting, WORLD, "random", methods=methods, systems=4, episodes=5)
    regret, bound = values(rows, "", "theory"), values(rows, "_bound", "theory")
    assert np.all(regret >= -1e-9) and np.all(regret <= bound)
    assert np.all(values(rows, "_before", "theory") <= bound)  # each line of the proof is weaker than the one before
    assert np.all(values(rows, "_held", "theory") == 1.0)
    assert np.all(values(rows, "_factor_worst", "theory") < 1.0)
    assert np.any(values(rows, "_held", "tiny") == 0.0)  # it can fail
    needed, kept = values(rows, "_factor_worst", "tiny"), values(rows, "_held", "tiny")
    assert np.array_equal(needed <= 1e-7, kept == 1.0)  # the factor says exactly when


@each_setting(SETTINGS[1])
def test_a_scaled_weight_is_optimistic_or_not(setting):
    rows = held(setting, WORLD, random_system, "random", factors=(1e-9, 1.0), systems=3, episodes=4, policies=6)
    shares = {}
    for metric in ("lemma_held", "lemma_held_regret"):
        for method in ("sombrl x1e-09", "sombrl x1"):
            shares[metric, method] = curves(select(rows, metric=f"lab/{metric}", method=method))[1]
    assert np.all(shares["lemma_held", "sombrl x1"] == 1.0)
    assert np.any(shares["lemma_held", "sombrl x1e-09"] == 0.0)
    for method in ("sombrl x1e-09", "sombrl x1"):  # fewer policies, fewer failures
        assert np.all(shares["lemma_held_regret", method] >= shares["lemma_held", method])


def test_nothing_to_do_is_refused():
    with pytest.raises(SombrlError, match="at least one of each"):
        simple_regret(SETTINGS[0], WORLD, "x", methods={"a": 1.0}, systems=0, episodes=2)
    with pytest.raises(SombrlError, match="factor must be positive"):
        simple_regret(SETTINGS[0], WORLD, "x", methods={"a": 0.0}, systems=1, episodes=2)
    with pytest.raises(SombrlError, match="at least one of each"):
        held(SETTINGS[0], WORLD, random_system, "x", factors=(1.0,), systems=1, episodes=0)
