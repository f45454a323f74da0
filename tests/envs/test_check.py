"""`check_env` finds what is wrong, says so in a sentence, and never raises."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete

from sombrl.envs.check import check_env

from .tiny import Gallery, Tiny


def sentences(findings, level):
    return " | ".join(finding.sentence for finding in findings if finding.level == level)


@pytest.mark.parametrize("name", ["pendulum", "mountain-car", "Pendulum-v1", "MountainCarContinuous-v0"])
def test_good_environments_pass(name):
    findings = check_env(name)
    assert {finding.level for finding in findings} == {"ok"}
    assert "are known" in sentences(findings, "ok")
    assert "the same trajectory" in sentences(findings, "ok")


def test_a_users_environment_passes():
    findings = check_env("sombrl-tests/Tiny-v0")
    assert not sentences(findings, "error")
    assert "will be learned" in sentences(findings, "ok")


@pytest.mark.parametrize(
    "fault, level, told",
    [
        ("unseeded", "error", "does not fix the start"),
        ("random steps", "error", "two trajectories"),
        ("nan observation", "error", "observation[1] is nan"),
        ("inf reward", "error", "reward is inf"),
        ("raises", "error", "the arm"),
        ("int flag", "error", "int for terminated; return a bool"),
        ("old step", "error", "step must return"),
        ("old reset", "error", "reset must return"),
        ("no reward", "error", "single number"),
    ],
)
def test_faults_are_found(fault, level, told):
    findings = check_env(Tiny, env_kwargs={"fault": fault}, episode_length=20)
    assert told in sentences(findings, level)
    assert all("\n" not in finding.sentence and "\x1b" not in finding.sentence for finding in findings)
    assert len(set(findings)) == len(findings)


def test_warnings():
    narrow = {"obs_space": Box(-0.1, 0.1, (2, 2), np.float64)}
    assert "outside the declared" in sentences(check_env(Tiny, env_kwargs=narrow, episode_length=20), "warning")
    frozen = {"noise": 0.0, "action_space": Box(0.0, 0.0, (2,))}
    assert "never changed" in sentences(check_env(Tiny, env_kwargs=frozen, episode_length=20), "warning")
    assert "own limit of 7" in sentences(check_env("sombrl-tests/Tiny-v0", episode_length=90), "warning")


def test_parts_and_choices_are_told():
    findings = check_env(Gallery, episode_length=20)
    told = sentences(findings, "ok")
    assert "'frame' (2×3×3 image) and 'place' (one of 3) and 'walk' (2 number(s)), a choice of 3 actions" in told
    assert "the same trajectory" in told and not sentences(findings, "error")
    assert "a choice of 2 actions" in sentences(check_env("CartPole-v1"), "ok")


class Blind(Gallery):
    def see(self):
        return {**super().see(), "frame": np.zeros((2, 3, 3), np.uint8)}


def test_a_picture_that_never_changes():
    assert "The image 'frame' never changed" in sentences(check_env(Blind, episode_length=20), "warning")
    assert "never changed" not in sentences(check_env(Gallery, episode_length=20), "warning")


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_a_grey_picture_of_floats_is_told(dtype):
    """In colour it is refused."""
    space = Box(0, 1 if dtype == np.float32 else 255, (16, 16), dtype)

    class Grey(Tiny):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return space.low.copy(), {}

        def step(self, action):
            return self.np_random.integers(2, size=space.shape).astype(dtype), 0.0, False, False, {}

    told = "read as 256 numbers: if it is a picture, give it as uint8"
    findings = check_env(lambda: Grey(obs_space=space), episode_length=20)
    assert not sentences(findings, "error")
    assert (told in sentences(findings, "warning")) == (dtype == np.float32)
    colour = check_env(lambda: Tiny(obs_space=Box(0, 1, (16, 16, 3))), episode_length=20)
    assert "looks like images; give those as uint8" in sentences(colour, "error")


def test_ready_environments_stay_open():
    env = gymnasium.make("Pendulum-v1")
    assert "known" in sentences(check_env(env), "ok")
    env.reset(seed=0)


@pytest.mark.parametrize(
    "env, options",
    [
        (Tiny, {"env_kwargs": {"action_space": MultiDiscrete([2, 3])}, "episode_length": 9}),
        ("nope", {}),
        ("nope:nope", {}),
        (3, {}),
        (Tiny, {}),  # no time limit
        ("pendulum", {"nonsense": 1}),
        ("pendulum", {"action_repeat": -1}),
    ],
)
def test_what_cannot_be_made_is_one_error(env, options):
    findings = check_env(env, **options)
    assert [finding.level for finding in findings] == ["error"]
