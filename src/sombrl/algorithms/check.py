"""What an environment means for the algorithms: which of them fit, what its rewards are to λ, and how to begin."""

import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from sombrl.algorithms import ALGORITHMS
from sombrl.config.run import RunConfig
from sombrl.envs.adapters.factories import EnvSource
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.check import Finding, Tried, try_env
from sombrl.envs.interface import EnvSpec
from sombrl.errors import SombrlError

MOST_COORDINATES = 12
"""Of a state that Gaussian processes are for: one is fitted per coordinate, and each has to be planned through."""


def check_env(env: EnvSource, *, seed: int = 0, steps: int = 200, **options: Any) -> list[Finding]:
    """Try `env` with random actions for at most `steps` decisions; `options` are those of `make_envs`.

    Says what is wrong with it, which algorithms fit, and with which command to begin.
    """
    tried = try_env(env, seed=seed, steps=steps, **options)
    findings = [*tried.findings]
    if tried.envs is not None and not any(finding.level == "error" for finding in findings):
        findings += _algorithms(tried, env, options)
    tried.close()
    return list(dict.fromkeys(findings))


def advice(algorithm: str, spec: EnvSpec) -> list[str]:
    """What to say before a run begins that will disappoint."""
    if algorithm == "gp-icem" and spec.obs_dim > MOST_COORDINATES:
        return [
            f"gp-icem is for small states, and {spec.name} has {spec.obs_dim} coordinates, each with a Gaussian "
            "process of its own: compiling and planning take long; mbpo is made for this size."
        ]
    return []


def _algorithms(tried: Tried, env: EnvSource, options: Mapping[str, Any]) -> list[Finding]:
    envs = tried.envs
    assert envs is not None
    fit, refusals = _fitting(envs, options)
    spec = envs.spec
    findings = [Finding("ok", f"Algorithms that fit: {', '.join(fit)}.")]
    findings += [Finding("ok", f"Not {', '.join(names)}: {why}") for names, why in _grouped(refusals)]
    first = _first(fit, spec)
    if first is not None and tried.rewards is not None:
        findings += _reward(first, tried.rewards)
    if first is not None and isinstance(env, str):
        findings.append(Finding("ok", f"To begin with: {_command(first, env, options)}"))
    return findings


def _fitting(envs: AbstractEnvs, options: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The algorithms that take an environment, and the sentences of those that refuse it."""
    setting = RunConfig().make_setting(envs.spec.episode_length)
    fit, refusals = [], {}
    for name, algorithm in ALGORITHMS.items():
        try:
            if algorithm.build is not None:
                algorithm.build(algorithm.config(), envs, setting)
            fit.append(name)
        except SombrlError as error:
            refusals[name] = str(error)
    return fit, refusals


def _grouped(refusals: Mapping[str, str]) -> list[tuple[list[str], str]]:
    """Sentences that differ in the algorithm's name alone, once; with the names."""
    groups: dict[str, tuple[list[str], str]] = {}
    for name, why in refusals.items():
        groups.setdefault(why.replace(name, ""), ([], why))[0].append(name)
    return list(groups.values())


def _first(fit: list[str], spec: EnvSpec) -> str | None:
    """The one to begin with."""
    order = ["gp-icem", "mbpo"] if spec.obs_dim <= MOST_COORDINATES else ["mbpo"]
    return next((name for name in [*order, "dreamer", *fit] if name in fit), None)


def _reward(algorithm: str, rewards: np.ndarray) -> list[Finding]:
    """What the size of the rewards means for λ and for learning."""
    size = float(np.mean(np.abs(rewards)))
    if size == 0 or algorithm == "dreamer":  # which scales rewards by itself
        return []
    if algorithm == "gp-icem":
        text = f"Rewards of random decisions range over {np.ptp(rewards):.3g}, and gp-icem has λ in units of that range"
        return [Finding("ok", f"{text}: it fits as it is.")]
    fine = 1e-4 < size < 1e3
    text = f"Rewards are {size:.3g} in size (mean of a random decision): critics learn best between 0.01 and 10"
    return [Finding("ok", f"{text}.") if fine else Finding("warning", f"{text}, so scale them.")]


def _command(algorithm: str, env: str, options: Mapping[str, Any]) -> str:
    words = ["sombrl", "train", algorithm, "--env", env]
    if kwargs := options.get("env_kwargs"):
        words += ["--env-kwargs", *(f"{name}={value}" for name, value in kwargs.items())]
    if (length := options.get("episode_length")) is not None:
        words += ["--episode-length", str(length)]
    return shlex.join(words)
