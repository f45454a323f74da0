"""H-UCRL on a grid: greedy without its intervals, optimistic with them, for tables and for a class of policies."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.paper.lab.gp import Evidence, posterior
from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.hucrl import ETAS, hallucinate, plausible
from sombrl.paper.lab.lipschitz import _best_worlds, policy_class
from sombrl.paper.lab.noise import Gaussian
from sombrl.paper.lab.regret import Method, choose
from sombrl.paper.lab.settings import ExactDiscounted, ExactFiniteHorizon, ExactNonEpisodic
from sombrl.paper.lab.systems import GridWorld, random_system
from sombrl.paper.lab.tables import confidence, truth
from sombrl.records import SombrlError

WORLD = GridWorld(Grid(1, 15, 5), noise=Gaussian(0.2))
SETTINGS = [ExactFiniteHorizon(6), ExactDiscounted(0.8), ExactNonEpisodic()]


def known(seed):
    """A system and a few observations of it."""
    true = truth(WORLD, random_system(WORLD, key=jr.key(seed)))
    places = jr.randint(jr.key(seed + 1), (4,), 0, WORLD.grid.num_inputs, jnp.int32)
    noise = WORLD.noise.sample((4, 1), key=jr.key(seed + 2))
    basis = WORLD.basis
    evidence = Evidence.none(basis.shape[1], 1)
    return true, basis, evidence.add(basis, places, true.residual[places] + noise, jnp.ones(4, bool), WORLD.noise.size)


def chosen(chooser, setting, factor, true, basis, evidence):
    method = Method(jnp.asarray(factor), jnp.asarray(False))
    return chooser(setting, WORLD, true, jnp.ones(()), basis, method, evidence, key=jr.key(0))


@pytest.mark.thorough
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_without_its_intervals_it_is_greedy(setting, x64):
    true, basis, evidence = known(0)
    kinds = true.reward[:, :, None]

    @jax.jit
    def worth(true, evidence):
        plans = [chosen(chooser, setting, 0.0, true, basis, evidence) for chooser in (hallucinate, choose)]
        model = WORLD.transition(plans[0][1].mean)
        return [(plan[0], setting.performance(WORLD, model, kinds, plan[0])[0]) for plan in plans]

    (policy, ours), (_, theirs) = worth(true, evidence)
    np.testing.assert_allclose(policy.sum(axis=-1), 1.0)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)  # means are rounded to a fine grid


@pytest.mark.thorough
def test_the_best_world_promises_more_than_the_truth_holds(x64):
    """f* is among the plausible worlds, so for every policy J(π, f*) <= max over η, up to the spacing of η."""
    setting = ExactFiniteHorizon(6)

    @jax.jit
    def compare(true, evidence, basis):
        now = posterior(basis, evidence)
        policies = policy_class(WORLD.grid, key=jr.key(5))
        promises = _best_worlds(setting, WORLD, true, now, confidence(WORLD, now), policies)
        mean = _best_worlds(setting, WORLD, true, now, jnp.zeros(()), policies)

        def under(where):
            kinds = true.reward[:, :, None]
            return jax.vmap(lambda policy: setting.performance(WORLD, where, kinds, policy)[0])(policies)

        return promises, mean, under(true.transition), under(WORLD.transition(now.mean))

    short = []
    for seed in range(3):
        true, basis, evidence = known(seed)
        promises, mean, worth, modelled = compare(true, evidence, basis)
        assert np.all(promises >= worth - 0.01)
        short.append(np.any(mean < worth))
        np.testing.assert_allclose(mean, modelled, rtol=0.01)  # no interval: the mean world itself
    assert any(short)  # the mean alone is not optimistic


def test_plausible_worlds_are_worlds(x64):
    _, basis, evidence = known(1)
    worlds = jax.jit(lambda: plausible(WORLD, posterior(basis, evidence), jnp.asarray(2.0)).worlds)()
    assert worlds.shape == (15, 5, ETAS, 15)
    np.testing.assert_allclose(worlds.sum(axis=-1), 1.0, atol=1e-12)
    means = worlds @ WORLD.grid.axis
    assert np.all(np.diff(means, axis=2) >= -1e-12)  # η up, mean up
    two = GridWorld(Grid(2, 3, 3), noise=Gaussian(0.2))
    with pytest.raises(SombrlError, match="one state dimension, not 2"):
        plausible(two, posterior(basis, evidence), jnp.asarray(2.0))
