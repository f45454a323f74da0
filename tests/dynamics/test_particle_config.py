"""The settings of particle models: what cannot work is refused, and none does nothing."""

import functools

import jax
import jax.random as jr
import numpy as np
import pytest

from sombrl.dynamics.measurement import Rows
from sombrl.dynamics.particle_config import ParticleConfig
from sombrl.dynamics.particle_learner import ParticleLearner
from sombrl.records import SombrlError
from tests.dynamics.toy import TINY, Curve, Sines, curve, fast_jit

X = np.random.default_rng(0).uniform(-2, 2, 40)
DATA = curve(X, np.sin(2 * X) + 0.2)


def learner(**settings) -> ParticleLearner:
    return ParticleLearner(Curve(), ParticleConfig(**(TINY | settings)), Sines())


@functools.cache
def initial():
    return fast_jit(lambda key: learner().init(key=key))(jr.key(0))


@functools.cache
def fit(**settings):
    ours = learner(**settings)
    return fast_jit(lambda state, key: ours.fit(state, DATA, key=key))(initial(), jr.key(1))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("particles", 0),
        ("hidden", (8, 0)),
        ("batch_size", 0),
        ("steps", 0),
        ("check_every", 0),
        ("measurement_points", 0),
        ("functions", 1),
        ("learning_rate", float("nan")),
        ("weight_decay", -1.0),
        ("held_out", 0.6),
        ("bandwidth", 0.0),
        ("neighbourhood_share", 1.1),
        ("visited_share", -0.1),
        ("neighbourhood_width", float("inf")),
        ("resolution", 0.0),
        ("likelihood_exponent", 0.0),
        ("prior_lengthscale", -1.0),
        ("prior_scale", 0.0),
        ("additive_lengthscale", 0.0),
        ("additive_scales", (-0.1,)),
        ("weight_prior_std", 0.0),
        ("bias_prior_std", 0.0),
    ],
)
def test_impossible_settings_are_refused_in_a_sentence(setting, value):
    with pytest.raises(SombrlError, match=f"--model.{setting.replace('_', '-')}"):
        ParticleConfig(**{setting: value})


@pytest.mark.parametrize("setting", ["inference", "activation", "repulsion", "score", "prior_scaling"])
def test_unknown_words_are_refused_in_a_sentence(setting):
    config = ParticleConfig()
    object.__setattr__(config, setting, "guess")  # the tests' own type check would be first
    with pytest.raises(SombrlError, match=f"--model.{setting.replace('_', '-')} must be one of .*'guess'"):
        config.__post_init__()


def test_scales_must_fit_the_outputs():
    with pytest.raises(SombrlError, match="one number per output, 1, not 2"):
        learner(additive_scales=(0.1, 0.2))


def test_phases():
    assert ParticleConfig(steps=100).phases == (("gp", 100),)
    assert ParticleConfig(steps=100, score="gp+nu-method").phases == (("gp", 75), ("nu-method", 25))
    assert ParticleConfig(steps=1, score="gp+nu-method").phases == (("gp", 1),)
    assert ParticleConfig(held_out=0.2).period == 5 and ParticleConfig(held_out=0.0).period is None


SEEN_AT_THE_START = {"particles": 2, "hidden": (5,), "activation": "tanh"}
SEEN_IN_A_BATCH = {
    "batch_size": 4,
    "measurement_points": 7,
    "neighbourhood_share": 0.5,
    "visited_share": 0.0,
    "neighbourhood_width": 0.3,
    "held_out": 0.5,
}
SEEN_IN_A_GRADIENT = {
    "inference": "svgd",
    "bandwidth": 0.5,
    "repulsion": "legacy",
    "functions": 7,
    "score": "kde",
    "resolution": 0.1,
    "likelihood_exponent": 1.0,
    "additive_lengthscale": 1.0,
    "additive_scales": None,
    "draw_additive": True,
}
OTHERWISE = {  # only for other inferences and priors
    "weight_prior_std": (1.0, {"inference": "svgd"}),
    "bias_prior_std": (1.0, {"inference": "svgd"}),
    "prior_scaling": ("legacy", {"inference": "svgd"}),
}
WITHOUT_A_SIMULATOR = {"prior_lengthscale": 1.0, "prior_scale": 0.5}
HELD_TO_A_TEST = {
    "steps",
    "check_every",
    "fresh",
    "learn_noise",
    "learning_rate",
    "weight_decay",
}  # in test_particle_learner.py


def test_every_setting_is_listed():
    listed = {*SEEN_AT_THE_START, *SEEN_IN_A_BATCH, *SEEN_IN_A_GRADIENT, *OTHERWISE, *WITHOUT_A_SIMULATOR}
    assert listed | HELD_TO_A_TEST == set(ParticleConfig.__dataclass_fields__)


def differs(a, b):
    a, b = jax.tree.leaves(a), jax.tree.leaves(b)
    return len(a) != len(b) or any(x.shape != y.shape or not np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.thorough
@pytest.mark.parametrize("setting", list(SEEN_AT_THE_START))
def test_no_setting_of_the_networks_is_dead(setting):
    changed = learner(**{setting: SEEN_AT_THE_START[setting]})
    state = fast_jit(lambda key: changed.init(key=key))(jr.key(0))
    assert differs(jax.vmap(state.particles)(DATA.data.obs[:4]), jax.vmap(initial().particles)(DATA.data.obs[:4]))


def batch_of(**settings):
    ours = learner(**settings)
    sampler = ours.sampler(initial().particles.statistics)
    return sampler(Rows.of(DATA, Curve(), ours.config.period), key=jr.key(1))


@pytest.mark.thorough
@pytest.mark.parametrize("setting", list(SEEN_IN_A_BATCH))
def test_no_setting_of_the_batch_is_dead(setting):
    assert differs(batch_of(**{setting: SEEN_IN_A_BATCH[setting]}), batch_of())


@functools.cache
def gradient_of(simulated=True, **settings):
    state, ours = initial().particles, learner(**settings)
    if not simulated:
        ours = ParticleLearner(Curve(), ours.config)
    inference, batch = ours.inference(ours.config.phases[0][0], state.statistics), batch_of()
    return inference.gradient(state.networks, state.raw_noise, batch, key=jr.key(2))[:2]


@pytest.mark.thorough
@pytest.mark.parametrize("setting", [*SEEN_IN_A_GRADIENT, *OTHERWISE, *WITHOUT_A_SIMULATOR])
def test_no_setting_of_the_gradient_is_dead(setting):
    if setting in WITHOUT_A_SIMULATOR:
        pair = gradient_of(False), gradient_of(False, **{setting: WITHOUT_A_SIMULATOR[setting]})
    else:
        value, others = OTHERWISE.get(setting, (SEEN_IN_A_GRADIENT.get(setting), {}))
        pair = gradient_of(**others), gradient_of(**{setting: value}, **others)
    assert differs(*pair)


def test_an_ensemble_is_svgd_whose_particles_do_not_meet():
    """With a kernel that reaches no other particle only 1/N of the attraction is left."""
    networks, noise = gradient_of(inference="ensemble")
    apart, same_noise = gradient_of(inference="svgd", bandwidth=1e-6)
    assert np.array_equal(noise, same_noise)
    for ours, theirs in zip(jax.tree.leaves(networks), jax.tree.leaves(apart), strict=True):
        np.testing.assert_allclose(ours, learner().config.particles * theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_fit_can_change_its_estimator():
    assert differs(fit(score="gp+nu-method")[0], fit()[0])
