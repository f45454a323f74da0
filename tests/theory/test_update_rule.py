"""The one-bit rule against a loop that reads like the paper, and the Lyapunov minimum."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.records import SombrlError
from sombrl.theory import ONE_BIT, information, lyapunov_minimum, update_due

due = jax.jit(functools.partial(update_due, minimum=1))


def naive(stds: np.ndarray, noise_std: float) -> int | None:
    """T̂ = 1 + the largest T whose sum stays within ln 2; one step if there is none; None if the data end before."""
    feasible = [0]
    for steps in range(1, len(stds) + 1):
        total = 0.0
        for k in range(steps):
            for j in range(stds.shape[1]):
                total += math.log(1 + stds[k, j] ** 2 / noise_std**2)
        if total <= math.log(2):
            feasible.append(steps)
    return max(feasible) + 1 if max(feasible) < len(stds) else None


def test_equals_the_naive_loop(x64):
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(40):
        stds = rng.exponential(rng.choice([0.01, 0.05, 0.1, 0.3]), (25, 3))
        flags = np.asarray(due(jnp.asarray(stds), 0.2))
        ours = int(np.argmax(flags)) + 1 if flags.any() else None
        assert ours == naive(stds, 0.2)
        assert np.all(np.diff(flags.astype(int)) >= 0)  # once due, always due
        seen.add(ours)
    assert {None, 1} < seen and len(seen) > 4


def test_first_step_beyond_a_bit_updates_after_one_step(x64):
    flags = due(jnp.full((4, 1), 1.01), 1.0)
    assert flags.all()
    assert not due(jnp.full((4, 1), 0.999), 1.0)[0]


def test_never_before_the_minimum(x64):
    assert update_due(jnp.full((4, 1), 5.0), 1.0, minimum=3).tolist() == [False, False, True, True]


def test_information_accumulates_to_the_rule(x64):
    stds, noise = jnp.asarray(np.random.default_rng(1).uniform(0, 0.2, (25, 2))), jnp.array([0.2, 0.4])
    step = jax.jit(information)
    total, flags = 0.0, []
    for std in stds:
        total += float(step(std, noise))
        flags.append(total > ONE_BIT)
    assert np.asarray(update_due(stds, noise)).tolist() == flags
    np.testing.assert_allclose(float(step(jnp.array([1.0, 3.0]), 1.0)), math.log(2) + math.log(10))


def test_lyapunov_minimum():
    rng = np.random.default_rng(2)
    for _ in range(100):
        upper, drift = rng.uniform(1.0, 50.0), rng.uniform(0.05, 0.99)
        steps = lyapunov_minimum(upper, 1.0, drift)
        assert steps >= 1 and upper * drift**steps < 1.0
        assert steps == 1 or upper * drift ** (steps - 1) >= 1.0
    assert lyapunov_minimum(2.0, 1.0, 0.9) == 7  # ⌈6.58⌉; as typeset, ⌈0.69⌉/0.105 = 9.49
    assert lyapunov_minimum(125.0, 1.0, 0.2) == 4  # 125 · 0.2³ is exactly 1, which does not contract
    assert lyapunov_minimum(3.0, 3.0, 0.5) == 1


def test_bad_input_is_refused():
    for wrong in ((0.5, 1.0, 0.9), (2.0, 0.0, 0.9), (2.0, 1.0, 1.0), (float("nan"), 1.0, 0.5)):
        with pytest.raises(SombrlError):
            lyapunov_minimum(*wrong)
    with pytest.raises(SombrlError, match="noise_std"):
        information(jnp.ones(2), jnp.array([0.1, 0.0]))
