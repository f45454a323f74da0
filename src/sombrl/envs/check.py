"""Check an environment before a long run: problems are findings of one sentence, never a stack trace."""

import contextlib
import dataclasses
import re
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env as gymnasium_check_env

from sombrl.envs.adapters.factories import EnvSource, make_many
from sombrl.envs.adapters.gymnasium import GymnasiumEnvs
from sombrl.envs.adapters.spaces import check_spaces, to_physical
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.interface import EnvSpec
from sombrl.envs.layout import Part
from sombrl.envs.registry import make_envs, read_kwargs
from sombrl.records import RunFault, SombrlError

WIDE_SCALES = 1e3  # a ratio of standard deviations worth mentioning
PICTURE_SIDE = 16  # fewer rows or columns are hardly a picture
# We rescale actions, normalise observations whatever their bounds, and render rarely.
NOT_OUR_CONCERN = ("symmetric and normalized", "alternative render modes", "value is -infinity", "value is infinity")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One sentence about an environment; `level` is "ok", "warning" or "error"."""

    level: str
    sentence: str


@dataclasses.dataclass(frozen=True)
class Tried:
    """An environment that was tried; what it is, and what was found."""

    findings: list[Finding]
    envs: AbstractEnvs | None = None
    """None where it could not be made."""
    rewards: np.ndarray | None = None
    """Of the random decisions; None where one of them failed."""
    ready: bool = False

    def close(self) -> None:
        """Close it, unless it was made by the caller."""
        if self.envs is not None and not self.ready:
            with contextlib.suppress(Exception):
                self.envs.close()


def check_env(env: EnvSource, *, seed: int = 0, steps: int = 200, **options: Any) -> list[Finding]:
    """What is wrong with `env`, without what it means for the algorithms (`sombrl.algorithms.check`)."""
    tried = try_env(env, seed=seed, steps=steps, **options)
    tried.close()
    return list(dict.fromkeys(tried.findings))


def try_env(env: EnvSource, *, seed: int = 0, steps: int = 200, **options: Any) -> Tried:
    """Try `env` with random actions for at most `steps` decisions; `options` are those of `make_envs`."""
    try:
        envs = make_envs(env, [seed], **options)
    except Exception as error:
        return Tried([Finding("error", _sentence(error))])
    rewards: list[np.ndarray] = []

    def check_rollout(envs: AbstractEnvs, steps: int, options: dict[str, Any]) -> list[Finding]:
        found, seen = _check_rollout(envs, steps)
        rewards.append(seen)
        return found

    checks: list[Callable[..., list[Finding]]] = [_describe, check_rollout]
    checks += [_check_raw] if isinstance(envs, GymnasiumEnvs) else []
    findings: list[Finding] = []
    for check in checks:
        try:
            findings += check(envs, steps, options)
        except Exception as error:
            findings.append(Finding("error", _sentence(error)))
    if isinstance(envs, GymnasiumEnvs):
        findings += _run_gymnasium_checker(env, read_kwargs(options.get("env_kwargs")))
    return Tried(findings, envs, rewards[0] if rewards else None, isinstance(env, gymnasium.Env))


def _describe(envs: AbstractEnvs, steps: int, options: dict[str, Any]) -> list[Finding]:
    """Sizes, episode length, and whether the reward is known."""
    spec = envs.spec
    actions = f"a choice of {spec.action_dim} actions" if spec.discrete else f"actions of {spec.action_dim}"
    sizes = f"{spec.name}: observations of {_describe_obs(spec)}, {actions}."
    length = f"Episodes last at most {spec.episode_length} decisions of {spec.action_repeat} frame(s)."
    reward = "The reward is not known to sombrl and will be learned from data."
    if envs.task is not None:
        reward = "The reward and the end of the task are known, and planning uses them."
    findings = [Finding("ok", sentence) for sentence in (sizes, length, reward)]
    asked = options.get("episode_length")
    if asked is not None and asked > spec.episode_length:
        limit = f"episode_length {asked} is more than the environment's own limit of {spec.episode_length}."
        findings.append(Finding("warning", limit))
    return findings


def _describe_obs(spec: EnvSpec) -> str:
    """The parts of an observation in words."""
    parts = spec.obs_layout.parts
    if [(part.name, part.kind) for part in parts] == [("obs", "vector")]:
        return f"{spec.obs_dim} number(s)"
    return " and ".join(f"{part.name!r} ({_describe_part(part)})" for part in parts)


def _describe_part(part: Part) -> str:
    if part.kind == "image":
        return f"{'×'.join(map(str, part.shape))} image"
    return f"{part.shape[0]} number(s)" if part.kind == "vector" else f"one of {part.size}"


def _check_rollout(envs: AbstractEnvs, steps: int) -> tuple[list[Finding], np.ndarray]:
    """The same episode twice: finite, repeatable, informative; and the rewards."""
    obs, rewards, terminated = _rollout(envs, steps)
    again, rewards_again, _ = _rollout(envs, steps)
    findings = [Finding("ok", f"Observations and rewards were finite in {len(rewards)} random decisions.")]
    if not np.array_equal(obs[0], again[0]):
        text = "reset(seed=...) does not fix the start: the same seed gave two; call super().reset(seed=seed)."
        findings.append(Finding("error", text))
    elif not (np.array_equal(obs, again) and np.array_equal(rewards, rewards_again)):
        text = (
            "The same seed and actions gave two trajectories: draw all randomness from self.np_random, or "
            "runs cannot be repeated or resumed mid-episode."
        )
        findings.append(Finding("error", text))
    else:
        findings.append(Finding("ok", "The same seed and actions give the same trajectory."))
    findings += _check_information(envs.spec, obs)
    if np.ptp(rewards) == 0:
        findings.append(Finding("ok", _constant(float(rewards[0]), terminated)))
    return findings, rewards


def _constant(reward: float, terminated: bool) -> str:
    """What a reward that never changed says."""
    text = f"The reward was {reward:g} throughout under random actions"
    if reward == 0:
        return f"{text}: sparse, so exploration matters."
    if terminated:
        return f"{text}, and the episode ended early: what is paid is how long it lasts."
    return f"{text}: what earns another one was not met, so exploration matters; if nothing does, nothing is learned."


def _check_information(spec: EnvSpec, obs: np.ndarray) -> list[Finding]:
    """Observations that never change, and very different scales; `obs` is [time, obs]."""
    findings, parts = [], spec.obs_layout.split(obs)
    for part in spec.obs_layout.parts:
        if part.kind == "image" and np.ptp(parts[part.name], axis=0).max() == 0:
            text = f"The image {part.name!r} never changed under random actions; it carries no information."
            findings.append(Finding("warning", text))
    if not any(part.kind == "vector" for part in spec.obs_layout.parts):
        return findings
    obs = np.concatenate([parts[part.name] for part in spec.obs_layout.parts if part.kind == "vector"], axis=1)
    constant = np.flatnonzero(np.ptp(obs, axis=0) == 0)
    if constant.size:
        which = ", ".join(map(str, constant[:8])) + (", …" if constant.size > 8 else "")
        text = f"Observation {which} never changed under random actions; a constant carries no information."
        findings.append(Finding("warning", text))
    scales = np.std(obs, axis=0, dtype=np.float64)
    scales = scales[scales > 0]
    if scales.size and scales.max() / scales.min() > WIDE_SCALES:
        ratio = scales.max() / scales.min()
        text = f"Observation scales differ by a factor of {ratio:.0f}, which normalisation corrects."
        findings.append(Finding("ok", text))
    return findings


def _rollout(envs: AbstractEnvs, steps: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Observations [time + 1, obs] and rewards [time] of an episode of random actions; whether it terminated."""
    terminated = False
    rng = np.random.default_rng(0)
    obs, rewards = [envs.reset(0)[0]], []
    for _ in range(min(steps, envs.spec.episode_length)):
        step = envs.step(rng.uniform(-1, 1, (1, envs.spec.action_dim)), np.ones(1, bool))
        obs.append(step.obs[0])
        rewards.append(step.reward[0])
        terminated = bool(step.terminated[0])
        if terminated or step.truncated[0]:
            break
    return np.stack(obs), np.array(rewards), terminated


def _check_raw(envs: GymnasiumEnvs, steps: int, options: dict[str, Any]) -> list[Finding]:
    """The values that the simulator itself returns, before sombrl converts them."""
    env, rng = envs.envs[0], np.random.default_rng(0)
    findings = _check_pictures(env.observation_space)
    obs, _ = env.reset(seed=0)
    _, action_space = check_spaces(env, envs.spec.name)
    for _ in range(min(steps, 50)):
        if _lies_outside(obs, env.observation_space):
            findings.append(Finding("warning", "An observation lies outside the declared observation space."))
        action = rng.uniform(-1, 1, envs.spec.action_dim)
        obs, _, terminated, truncated, _ = env.step(to_physical(action, action_space))
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                text = f"step returns a {type(flag).__name__} for {name}; return a bool."
                findings.append(Finding("error", text))
        if terminated or truncated:
            break
    bools = all("return a bool" not in finding.sentence for finding in findings)
    return [*findings, *([Finding("ok", "terminated and truncated are booleans.")] if bools else [])]


def _check_pictures(space: gymnasium.Space[Any]) -> list[Finding]:
    """Grey pictures given as floats, which cannot be told from other tables of numbers."""
    boxes = space.spaces.values() if isinstance(space, gymnasium.spaces.Dict) else [space]
    return [
        Finding(
            "warning",
            f"Box{box.shape} of {box.dtype} is read as {int(np.prod(box.shape))} numbers: if it is a picture, give it "
            "as uint8 from 0 to 255.",
        )
        for box in boxes
        if isinstance(box, gymnasium.spaces.Box) and box.dtype != np.uint8
        if len(box.shape) == 2 and min(box.shape) >= PICTURE_SIDE
        if np.all(box.low == 0) and np.all((box.high == 1) | (box.high == 255))
    ]


def _lies_outside(obs: Any, space: gymnasium.Space[Any]) -> bool:
    if isinstance(space, gymnasium.spaces.Dict):
        return any(_lies_outside(obs[key], one) for key, one in space.spaces.items())
    if isinstance(space, gymnasium.spaces.Box):
        return bool(np.any(np.asarray(obs) < space.low) or np.any(np.asarray(obs) > space.high))
    return not space.contains(obs)


def _run_gymnasium_checker(env: EnvSource, kwargs: dict[str, Any]) -> list[Finding]:
    """Gymnasium's own opinion, on a fresh environment where one can be made."""
    findings = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            made = make_many(env, 1, kwargs, render=False)[0]
            gymnasium_check_env(made.unwrapped, skip_render_check=True)
        except AssertionError as error:
            # Observations are normalised whatever their bounds: what lies outside is learned from all the same.
            level = "warning" if "within the observation space" in str(error) else "error"
            findings.append(Finding(level, f"Gymnasium's checker: {_sentence(error)}"))
        except Exception as error:
            findings.append(Finding("error", f"Gymnasium's checker: {_sentence(error)}"))
    for warning in caught:
        text = _sentence(warning.message)
        if issubclass(warning.category, UserWarning) and not any(skip in text for skip in NOT_OUR_CONCERN):
            findings.append(Finding("warning", f"Gymnasium's checker: {text}"))
    return findings or [Finding("ok", "Gymnasium's checker found no problem.")]


def _sentence(problem: Warning | Exception | str) -> str:
    """The text of an error or warning on one line, without colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(problem))
    text = re.sub(r"\s+", " ", text).strip().removeprefix("WARN: ")
    known = isinstance(problem, SombrlError | RunFault | Warning | AssertionError)
    return text if known and text else f"{type(problem).__name__}: {text}"
