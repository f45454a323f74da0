"""The closed form of fₙ against SciPy's solver of the same program, its limits, and the theorem about it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from sombrl.records import SombrlError
from sombrl.theory import project, projected_mean, rkhs_norm
from sombrl.theory.kernels import rbf
from tests.theory.gp import posterior, rbf_gram

solve = jax.jit(project)


def problem(seed: int, number: int = 6, noise_std: float = 0.2):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (number, 1))
    gram = rbf_gram(x, x)
    y = np.sin(2 * x[:, 0]) + rng.normal(size=number)
    return x, y, gram, np.linalg.solve(gram + noise_std**2 * np.eye(number), y)


def norm(gram, alpha):
    return np.sqrt(alpha @ gram @ alpha)


def objective(gram, alpha, start, noise_std):
    d = alpha - start
    return d @ gram @ (d + gram @ d / noise_std**2)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fraction", [0.2, 0.9])
def test_equals_scipy(seed, fraction, x64):
    noise_std = [0.2, 1.0][seed % 2]
    _, _, gram, alpha = problem(seed, noise_std=noise_std)
    bound = fraction * norm(gram, alpha)
    ours = np.asarray(solve(jnp.asarray(gram), jnp.asarray(alpha), noise_std, bound))
    # The oracle works on g = K^{1/2}α, where the constraint is a ball and the scaling is kind.
    values, vectors = np.linalg.eigh(gram)
    root = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    metric = np.eye(6) + gram / noise_std**2
    start = root @ alpha
    theirs = minimize(
        lambda g: (g - start) @ metric @ (g - start),
        fraction * start,
        jac=lambda g: 2 * metric @ (g - start),
        constraints={"type": "ineq", "fun": lambda g: bound**2 - g @ g, "jac": lambda g: -2 * g},
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert theirs.success
    np.testing.assert_allclose(norm(gram, ours), bound, rtol=1e-9)  # the constraint is active, so met exactly
    np.testing.assert_allclose(objective(gram, ours, alpha, noise_std), theirs.fun, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(root @ ours, theirs.x, atol=1e-4)


def test_inactive_constraint_returns_alpha_itself(x64):
    _, _, gram, alpha = problem(0)
    for bound in (norm(gram, alpha) * 1.0001, 1e6, np.inf):
        assert np.array_equal(solve(jnp.asarray(gram), jnp.asarray(alpha), 0.2, bound), alpha)


def test_norm_grows_with_the_bound_and_a_tiny_one_gives_zero(x64):
    _, _, gram, alpha = problem(1, number=40)  # forty points in one dimension: numerically singular
    full = norm(gram, alpha)
    norms = []
    for bound in full * np.array([1e-6, 0.1, 0.5, 0.99, 2.0]):
        f = solve(jnp.asarray(gram), jnp.asarray(alpha), 0.2, bound)
        norms.append(float(rkhs_norm(jnp.asarray(gram), f)))
        assert norms[-1] <= bound * (1 + 1e-6)
    assert np.all(np.diff(norms) > 0)
    np.testing.assert_allclose(norms[-1], full, rtol=1e-9)


def test_in_float32():
    _, _, gram, alpha = problem(2)
    f = solve(jnp.asarray(gram, jnp.float32), jnp.asarray(alpha, jnp.float32), jnp.float32(0.2), jnp.float32(0.5))
    assert f.dtype == jnp.float32
    np.testing.assert_allclose(norm(gram, np.asarray(f, np.float64)), 0.5, rtol=1e-3)


def test_the_theorem_holds_with_beta_and_not_only_two_beta(x64):
    """‖fₙ - μₙ‖_{kₙ} <= ‖f* - μₙ‖_{kₙ} for every f* with ‖f*‖ <= B: the factor 2 of the paper's proof is not needed."""
    rng = np.random.default_rng(3)
    noise_std = 0.3
    for _ in range(50):
        x, centers = rng.uniform(-2, 2, (8, 1)), rng.uniform(-3, 3, (5, 1))
        weights = rng.normal(size=5)
        bound = norm(rbf_gram(centers, centers), weights)  # ‖f*‖ for f* = Σ w k(c, ·)
        gram, cross = rbf_gram(x, x), rbf_gram(x, centers)
        y = cross @ weights + 4 * noise_std * rng.choice([-1.0, 1.0], 8)  # noise large enough for the bound to bind
        alpha = np.linalg.solve(gram + noise_std**2 * np.eye(8), y)
        ours = np.asarray(solve(jnp.asarray(gram), jnp.asarray(alpha), noise_std, bound))
        # ‖f* - μ‖²_{kₙ} = ‖f* - μ‖²_k + σ⁻² Σ (f*(xᵢ) - μ(xᵢ))²
        apart = bound**2 - 2 * weights @ cross.T @ alpha + alpha @ gram @ alpha
        apart += np.sum((cross @ weights - gram @ alpha) ** 2) / noise_std**2
        assert objective(gram, ours, alpha, noise_std) <= apart * (1 + 1e-9)


def test_projected_mean_is_the_posterior_mean_when_the_bound_is_loose(x64):
    x, y, gram, alpha = problem(4)
    q = np.linspace(-2, 2, 9)[:, None]
    expected = posterior(x, q, 0.2)[0] @ y
    tight = 0.5 * norm(gram, alpha)

    @jax.jit
    def evaluate(x, y, q, bound):
        return jax.vmap(projected_mean(rbf, x, y, 0.2, bound))(q)

    data = jnp.asarray(x), jnp.asarray(y), jnp.asarray(q)
    np.testing.assert_allclose(evaluate(*data, jnp.inf), expected, rtol=1e-8)
    shrunk = rbf_gram(q, x) @ np.asarray(solve(jnp.asarray(gram), jnp.asarray(alpha), 0.2, tight))
    np.testing.assert_allclose(evaluate(*data, tight), shrunk, atol=1e-9)
    assert np.max(np.abs(shrunk - expected)) > 0.05
    both = jax.vmap(lambda y: projected_mean(rbf, data[0], y, 0.2, tight).coefficients)(jnp.stack([data[1], -data[1]]))
    np.testing.assert_allclose(both[0], -both[1], atol=1e-12)  # outputs by vmap


@pytest.mark.parametrize("bound", [0.0, -1.0, np.nan])
def test_impossible_bound_is_refused(bound):
    with pytest.raises(SombrlError, match="bound must be positive"):
        project(jnp.eye(2), jnp.ones(2), 0.1, bound)
