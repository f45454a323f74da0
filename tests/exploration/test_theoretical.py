"""λₙ from the theorems: the paper's formulas worked by hand, on the information gain of a real posterior."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

from sombrl.exploration import TheoryConfig, theoretical
from sombrl.exploration.config import ExploreConfig
from sombrl.records import SombrlError
from sombrl.settings import Discounted, FiniteHorizon, NonEpisodic, Unsupervised
from tests.dynamics.data import fit, learner, replay_of, wave
from tests.small import small

NOISE, ROWS = 0.1, wave(30)
ITERATION = jnp.zeros((), jnp.int32)


@pytest.fixture(scope="module")
def dynamics():
    gp = learner(rank=64, fit_steps=0, noise_std=NOISE, tolerance=1e-6)
    return gp.dynamics(fit(gp, replay_of(ROWS))[0])


def widest_beta(delta, norm_bound):
    """B + √(2(γ + ln(d/δ))) with γ by NumPy's determinant of scikit-learn's Gram matrix; both outputs share inputs."""
    rows = np.concatenate([np.asarray(ROWS.obs), np.asarray(ROWS.action)], axis=1).astype(np.float64)
    gram = RBF()((rows - rows.mean(0)) / rows.std(0))
    gain = 0.5 * np.linalg.slogdet(np.eye(len(gram)) + gram / NOISE**2)[1]
    return norm_bound + math.sqrt(2 * (gain + math.log(2 / delta)))


@pytest.mark.parametrize(
    ("setting", "theory", "scale"),
    [
        (FiniteHorizon(7), {"reward_max": 5.0}, 5.0 * 7 * (1 + math.sqrt(2)) / NOISE),
        (FiniteHorizon(7), {"reward_max": 0.1, "factor": 0.5}, 0.5 * math.sqrt(2) * 7 * (1 + math.sqrt(2)) / NOISE),
        (Unsupervised(FiniteHorizon(7)), {"reward_max": 5.0}, 5.0 * 7 * (1 + math.sqrt(2)) / NOISE),
        (Discounted(0.9, 50), {"reward_max": 5.0}, 5.0 * 9 * (1 + math.sqrt(2)) / NOISE),
        (NonEpisodic(), {"constant": 3.0, "delta": 0.01, "norm_bound": 2.0}, 3.0),
        (
            FiniteHorizon(3),
            {"noise": "sub-gaussian", "reward_lipschitz": 2.0, "policy_lipschitz": 0.5, "dynamics_lipschitz": 1.5},
            (1 + 2) * 2.0 * 1.5 * (1.5 * 1.5) ** 2 * 3,
        ),
    ],
)
def test_lambda_is_the_theorems(dynamics, setting, theory, scale):
    theory = TheoryConfig(**theory)
    value = float(theoretical(setting, theory, 2)(ITERATION, dynamics))
    np.testing.assert_allclose(value, scale * widest_beta(theory.delta, theory.norm_bound), rtol=1e-3)


@pytest.mark.thorough
def test_it_grows_with_the_data_of_a_run():
    agent = small(explore="optimistic", schedule="theoretical", theory={"factor": 1e-3})
    weights = []
    agent.learn(18, callback=lambda agent, report: weights.append(float(report.metrics["explore/bonus_weight"][0])))
    assert weights == sorted(weights) and weights[0] < weights[-1]


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (lambda: TheoryConfig(norm_bound=0.0), "--theory.norm-bound must be positive"),
        (lambda: TheoryConfig(factor=-1.0), "--theory.factor"),
        (lambda: TheoryConfig(reward_max=float("nan")), "--theory.reward-max"),
        (
            lambda: TheoryConfig(policy_lipschitz=-0.1),
            "--theory.policy-lipschitz must be a finite number of at least 0",
        ),
        (lambda: TheoryConfig(delta=1.0), "--theory.delta must be strictly between 0 and 1"),
        (lambda: theoretical(NonEpisodic(), TheoryConfig(noise="sub-gaussian"), 2), "finite-horizon only"),
        (
            lambda: theoretical(FiniteHorizon(200), TheoryConfig(noise="sub-gaussian", policy_lipschitz=1.0), 2),
            "exponential in the horizon",
        ),
        (lambda: small(explore="optimistic", schedule="theoretical", gp={"kernel": "linear"}), "bounded kernel"),
        (lambda: small(explore="neorl"), "neorl is hucrl on a trajectory that is never reset"),
    ],
)
def test_what_no_theorem_covers(bad, sentence):
    with pytest.raises(SombrlError, match=sentence):
        bad()


def test_a_model_without_information_gain_is_refused():
    agent = small(model="true", explore="optimistic", schedule="theoretical")
    with pytest.raises(SombrlError, match="use --schedule constant"):
        agent.learn(6)


@pytest.mark.parametrize(("name", "plain"), [("neorl", "hucrl"), ("nepets", "pets"), ("nemean", "greedy")])
def test_the_names_without_resets(name, plain):
    ours, theirs = (ExploreConfig(explore=explore).build(NonEpisodic(), 3) for explore in (name, plain))
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
