"""λₙ against numbers worked out by hand, and the growing horizon."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.records import SombrlError
from sombrl.theory import bonus_weight, discounted_horizon

BETA = jnp.float32(2.0)
WORLD = {"state_dim": 4, "noise_std": 0.5, "c_max": 3.0}
LIPSCHITZ = {"reward_lipschitz": 2.0, "policy_lipschitz": 0.5, "dynamics_lipschitz": 2.0}


def test_formulas_by_hand():
    assert float(bonus_weight.finite_horizon(BETA, horizon=10, **WORLD)) == pytest.approx(3 * 10 * 3 * 2 / 0.5)
    assert float(bonus_weight.discounted(BETA, discount=0.9, **WORLD)) == pytest.approx(9 * 3 * 3 * 2 / 0.5, rel=1e-5)
    assert float(bonus_weight.nonepisodic(BETA, constant=7.0)) == pytest.approx(14.0)
    ours = bonus_weight.sub_gaussian(BETA, horizon=3, state_dim=4, **LIPSCHITZ)
    assert float(ours) == pytest.approx(5 * 2 * 1.5 * (2 * 1.5) ** 2 * 3 * 2)


def test_contracting_dynamics_count_as_one():
    weights = [
        float(bonus_weight.sub_gaussian(BETA, horizon=5, state_dim=1, **(LIPSCHITZ | {"dynamics_lipschitz": l})))
        for l in (0.0, 0.3, 1.0)
    ]
    assert weights[0] == weights[1] == weights[2] > 0


@pytest.mark.parametrize("x64_on", [False, True])
def test_under_jit_the_dtype_is_that_of_beta(x64_on):
    with jax.enable_x64(x64_on):
        beta = jnp.ones(())
        compiled = jax.jit(lambda b, s: bonus_weight.finite_horizon(b, horizon=3, state_dim=1, noise_std=s, c_max=1.0))
        assert compiled(beta, jnp.float32(0.5)).dtype == beta.dtype
        assert float(compiled(beta, jnp.float32(0.5))) == pytest.approx(12.0)


@pytest.mark.parametrize("discount", [0.2, 0.5, 0.9, 0.99])
def test_horizon_makes_the_tail_one_over_n(discount):
    assert discounted_horizon(1, discount) == 1
    assert discounted_horizon(2, discount, floor=500) == 500
    for n in (2, 5, 25, 125, 1000):
        steps = discounted_horizon(n, discount)
        assert discount**steps <= (1 + 1e-9) / n < discount ** (steps - 1) * (1 + 1e-8)
    assert discounted_horizon(125, 0.2) == 3  # exactly -ln n/ln γ, which floating point puts above 3
    assert discounted_horizon(8, 0.5) == 3


def test_bad_input_is_refused():
    for discount in (0.0, 1.0, 1.5, np.nan):
        with pytest.raises(SombrlError, match="discount"):
            discounted_horizon(3, discount)
        with pytest.raises(SombrlError, match="discount"):
            bonus_weight.discounted(BETA, discount=discount, **WORLD)
    with pytest.raises(SombrlError, match="count both from 1"):
        discounted_horizon(0, 0.9)
    with pytest.raises(SombrlError, match="horizon"):
        bonus_weight.finite_horizon(BETA, horizon=0, **WORLD)
    with pytest.raises(SombrlError, match="constant"):
        bonus_weight.nonepisodic(BETA, constant=-1.0)
    with pytest.raises(SombrlError, match="policy_lipschitz"):
        bonus_weight.sub_gaussian(BETA, horizon=3, state_dim=1, **(LIPSCHITZ | {"policy_lipschitz": -1.0}))
