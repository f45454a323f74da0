"""`check_env` says which algorithms fit, what rewards are to λ, and with which command to begin."""

import shlex

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

import sombrl
from sombrl.algorithms import ALGORITHMS
from sombrl.algorithms.check import MOST_COORDINATES, advice, check_env
from sombrl.envs.check import try_env
from sombrl.envs.registry import make_envs
from tests.envs.tiny import Gallery, Tiny

WIDE = "sombrl-tests/Wide-v0"


class Paid(Tiny):
    """Pays `size` or nothing."""

    def __init__(self, size=1.0, always=False, **options):
        super().__init__(**options)
        self.size, self.always = size, always

    def step(self, action):
        obs, _, terminated, truncated, info = super().step(action)
        paid = 1.0 if self.always else float(self.np_random.integers(2))
        return obs, self.size * paid, terminated, truncated, info


class Wide(gymnasium.Env):
    """A walk in so many coordinates that Gaussian processes are not for it."""

    observation_space = Box(-np.inf, np.inf, (MOST_COORDINATES + 1,), np.float64)
    action_space = Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.normal(size=self.observation_space.shape)
        return self.state, {}

    def step(self, action):
        self.state = self.state + float(action[0])
        return self.state, float(self.state[0]), False, False, {}


if WIDE not in gymnasium.registry:
    gymnasium.register(WIDE, Wide, max_episode_steps=9)


def said(env, **options):
    return {finding.sentence: finding.level for finding in check_env(env, **options)}


def one(found, word):
    (sentence,) = [sentence for sentence in found if word in sentence]
    return sentence, found[sentence]


@pytest.mark.parametrize(
    ("env", "fit"),
    [
        ("Pendulum-v1", ["gp-icem", "mbpo", "sac", "maxinfo-sac", "dreamer"]),
        ("rc-car", list(ALGORITHMS)),
        ("CartPole-v1", ["dreamer"]),
    ],
)
def test_the_algorithms_that_fit_are_those_that_can_be_made(env, fit):
    sentence, level = one(said(env), "Algorithms that fit")
    assert (sentence, level) == (f"Algorithms that fit: {', '.join(fit)}.", "ok")
    for name in ALGORITHMS:
        if name in fit:
            sombrl.make(name, env)
        else:
            with pytest.raises(sombrl.SombrlError):
                sombrl.make(name, env)


def test_pictures_and_choices_are_for_dreamer():
    found = said(Gallery, episode_length=20)
    assert one(found, "Algorithms that fit")[0] == "Algorithms that fit: dreamer."
    assert "learns from vectors: use sombrl train dreamer" in one(found, "Not gp-icem, mbpo, sac")[0]


@pytest.mark.parametrize("size", [1e4, 1.0, 1e-3])
def test_lambda_is_in_units_of_the_range_of_rewards(size):
    tried = try_env(lambda: Paid(size), episode_length=50)
    sentence, level = one(said(lambda: Paid(size), episode_length=50), "in units of that range")
    assert f"range over {np.ptp(tried.rewards):.3g}," in sentence and level == "ok"


def test_the_command_to_begin_with_is_one():
    found = said("Pendulum-v1", env_kwargs={"g": "9.81"}, episode_length=50)
    words = shlex.split(one(found, "To begin with: ")[0].removeprefix("To begin with: "))
    assert words == shlex.split("sombrl train gp-icem --env Pendulum-v1 --env-kwargs g=9.81 --episode-length 50")
    assert "mbpo" in one(said(WIDE), "To begin with")[0]


def test_an_observation_outside_its_space_is_a_warning_and_no_error():
    """It is normalised whatever its bounds, so algorithms learn from it; Gymnasium's checker says it as well."""
    found = said(lambda: Tiny(obs_space=Box(-0.1, 0.1, (2, 2), np.float64)), episode_length=20)
    assert "error" not in found.values() and "warning" in found.values()
    assert any("Algorithms that fit" in sentence for sentence in found)


@pytest.mark.parametrize(
    ("size", "told"),
    [(0.0, "sparse, so exploration matters"), (1.0, "what earns another one was not met")],
)
def test_a_constant_reward_is_sparse_only_where_nothing_is_paid(size, told):
    assert told in one(said(lambda: Paid(size, always=True), episode_length=20), "throughout")[0]
    assert "what is paid is how long it lasts" in one(said("CartPole-v1"), "throughout")[0]


def test_no_advice_where_something_is_wrong():
    found = said(Tiny, env_kwargs={"fault": "nan observation"}, episode_length=20)
    assert not any("To begin with" in sentence or "Algorithms that fit" in sentence for sentence in found)


def test_gp_icem_is_for_small_states():
    small, wide = make_envs("Pendulum-v1", [0]).spec, make_envs(WIDE, [0]).spec
    assert wide.obs_dim > MOST_COORDINATES
    assert advice("gp-icem", small) == [] == advice("mbpo", wide)
    (sentence,) = advice("gp-icem", wide)
    assert f"has {wide.obs_dim} coordinates" in sentence and "mbpo" in sentence
