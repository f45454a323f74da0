"""Checks that all environments share: bad numbers, bad shapes, simulators that return NaN."""

import math
from collections.abc import Sequence

import numpy as np

from sombrl.envs.interface import EnvSpec
from sombrl.errors import RunFault, SombrlError


def check_cost(value: object, name: str = "action_cost") -> float:
    """A finite number ≥ 0 as a float."""
    good = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or value < 0:  # type: ignore[arg-type,operator]
        raise SombrlError(f"{name} must be a finite number ≥ 0, not {value!r}.")
    return float(value)  # type: ignore[arg-type]


def check_count(value: object, name: str) -> int:
    """An integer ≥ 1."""
    good = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not good or value < 1:  # type: ignore[operator]
        raise SombrlError(f"{name} must be an integer ≥ 1, not {value!r}.")
    return int(value)  # type: ignore[call-overload,no-any-return]


def check_choice(value: object, name: str, choices: Sequence[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise SombrlError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}.")
    return value


def check_seeds(seeds: Sequence[int]) -> list[int]:
    """At least one seed, each in [0, 2³¹)."""
    seeds = list(seeds)
    if not seeds:
        raise SombrlError("seeds is empty; give at least one integer.")
    for seed in seeds:
        good = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
        if not good or not 0 <= seed < 2**31:  # what JAX keys and every simulator accept
            raise SombrlError(f"A seed must be an integer from 0 to 2³¹ − 1, not {seed!r}.")
    return [int(seed) for seed in seeds]


def refuse_end(name: str) -> SombrlError:
    """The error for an environment that terminates in the non-episodic setting."""
    return SombrlError(
        f"{name} terminates, and the non-episodic setting never resets: choose a variant that does not (such "
        "as mountain-car), wrap the environment so that it continues, or use another --setting."
    )


def require_vectors(spec: EnvSpec, algorithm: str) -> None:
    """Refuse images, discrete observations and discrete actions, for an algorithm that learns from vectors."""
    odd = sorted({part.kind for part in spec.obs_layout.parts} - {"vector"})
    if odd:
        what = {"image": "images", "discrete": "Discrete observations"}
        raise SombrlError(
            f"{spec.name} shows {' and '.join(what[kind] for kind in odd)}, and {algorithm} learns from vectors: use "
            "sombrl train dreamer, or an environment with state vectors."
        )
    if spec.discrete:
        raise SombrlError(
            f"{spec.name} has Discrete({spec.action_dim}) actions, and {algorithm} needs continuous ones: use sombrl "
            "train dreamer, or a continuous variant."
        )


def refuse_cost(name: str) -> SombrlError:
    """The error for an action cost with discrete actions."""
    return SombrlError(f"{name} has discrete actions, which have no size to charge for: use action_cost 0.")


def check_step_inputs(
    spec: EnvSpec, seeds: Sequence[int], over: np.ndarray, actions: np.ndarray, active: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The inputs of one `step`, checked: actions as float32, clipped to [-1, 1], zero on inactive rows.

    Discrete actions are not clipped: clipping would make two large numbers equal.
    """
    actions, active = np.asarray(actions), np.asarray(active)
    if actions.shape != (len(seeds), spec.action_dim):
        wanted = (len(seeds), spec.action_dim)
        raise SombrlError(f"{spec.name}: actions have shape {actions.shape}; give [seeds, action] = {wanted}.")
    if active.shape != (len(seeds),) or active.dtype != bool:
        raise SombrlError(f"{spec.name}: active must be {len(seeds)} booleans, one per seed.")
    if np.any(active & over):
        seed = seeds[int(np.argmax(active & over))]
        raise SombrlError(f"{spec.name}: the episode of seed {seed} is over; call reset, or leave it inactive.")
    actions = np.where(active[:, None], actions, 0).astype(np.float32)
    return (actions if spec.discrete else np.clip(actions, -1, 1)), active


def require_finite(values: object, what: str, *, env: str, seed: int, episode: int, step: int) -> None:
    """Stop the run when `what` (the observation, the reward or the action) holds a NaN or an infinity."""
    array = np.asarray(values)
    finite = np.isfinite(array)
    if finite.all():
        return
    where = "" if array.ndim == 0 else str([int(i) for i in np.argwhere(~finite)[0]])
    value = array[~finite].flat[0] if array.ndim else array[()]
    raise RunFault(
        f"{env} (seed {seed}, episode {episode}, step {step}): {what}{where} is {value}, not a finite number; "
        f"{_where_to_look(what)}."
    )


def _where_to_look(what: str) -> str:
    """What usually makes such a number; going on without a change would only meet it again."""
    if what == "action":
        return "the model or the policy gave it, so look at model/rmse and the losses in the metrics"
    where = "reward" if what == "reward" else "observation"
    return (
        f"in the environment's {where}, look for a division by zero, a root or logarithm of a negative number, and a "
        "simulator that has become unstable"
    )
