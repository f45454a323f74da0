"""The simple-regret bound and its inverse, and H-UCRL's bound against a system that errs as much as it can."""

import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.records import SombrlError
from sombrl.theory import (
    bonus_weight,
    hallucinated_bound,
    hallucinated_growth,
    simple_regret_bound,
    simple_regret_factor,
)

SMOOTH = {"policy_lipschitz": 0.5, "dynamics_lipschitz": 1.2, "std_lipschitz": 0.7}


def test_the_factor_is_where_the_bound_is_tight(x64):
    rng = np.random.default_rng(0)
    regret, weight, uncertainty = (jnp.asarray(rng.uniform(0.1, 5.0, 50)) for _ in range(3))
    factor = simple_regret_factor(regret, weight, uncertainty)
    np.testing.assert_allclose(simple_regret_bound(factor * weight, uncertainty), regret, rtol=1e-12)
    assert np.array_equal(simple_regret_factor(-regret, weight, jnp.zeros(50)), np.zeros(50))  # nothing lost


@pytest.mark.parametrize("horizon", [1, 2, 5, 9])
def test_no_world_within_the_intervals_goes_farther(horizon, x64):
    """f*(x) = Lx, f̃ = f* + 2βσ, σ(x) = s + L_σ|x| and u = L_π x: every inequality of the derivation is an equality."""
    beta, base, policy, dynamics, std = 1.5, 0.3, *SMOOTH.values()
    x = imagined = 0.4
    apart, uncertainty = [], 0.0
    for _ in range(horizon):
        apart.append(imagined - x)
        sigma = base + std * (1.0 + policy) * abs(x)
        uncertainty += sigma
        wider = base + std * (1.0 + policy) * abs(imagined)
        imagined = dynamics * (1.0 + policy) * imagined + 2.0 * beta * wider
        x = dynamics * (1.0 + policy) * x
    lost = 2.0 * (1.0 + policy) * sum(apart)  # a reward of slope 2
    growth = float(hallucinated_growth(jnp.asarray(beta), **SMOOTH))
    np.testing.assert_allclose(growth, (1.2 + 2 * 1.5 * 0.7) * 1.5)
    if horizon > 1:  # the next difference is growth times the last, plus 2βσ at the real state
        np.testing.assert_allclose(imagined - x, growth * apart[-1] + 2.0 * beta * sigma, rtol=1e-9)
    bound = hallucinated_bound(
        jnp.asarray(beta), jnp.asarray(uncertainty), horizon=horizon, reward_lipschitz=2.0, **SMOOTH
    )
    assert lost <= float(bound)


def test_a_certain_model_grows_as_f_n_does(x64):
    """With L_σ = 0 the base is SOMBRL's L̄, so the two λ differ by the constant 2/(1 + d) alone, whatever T."""
    smooth = SMOOTH | {"std_lipschitz": 0.0}
    for horizon in (1, 3, 8):
        ours = bonus_weight.sub_gaussian(
            jnp.asarray(2.0), horizon=horizon, state_dim=3, reward_lipschitz=1.1, policy_lipschitz=0.5,
            dynamics_lipschitz=1.2,
        )  # fmt: skip
        theirs = hallucinated_bound(jnp.asarray(2.0), jnp.ones(()), horizon=horizon, reward_lipschitz=1.1, **smooth)
        np.testing.assert_allclose(theirs / ours, 2.0 / 4.0, rtol=1e-12)


def test_bad_numbers_are_refused():
    with pytest.raises(SombrlError, match="horizon must be positive"):
        hallucinated_bound(jnp.ones(()), jnp.ones(()), horizon=0, reward_lipschitz=1.0, **SMOOTH)
    with pytest.raises(SombrlError, match="std_lipschitz is -1"):
        hallucinated_growth(jnp.ones(()), **SMOOTH | {"std_lipschitz": -1.0})
