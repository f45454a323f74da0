"""Recordings as the real car's are, made by our own simulator, with as many of their traps as one likes."""

from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from sombrl.envs.rc_car import RCCar
from sombrl.envs.rc_car_dynamics import decode


def drive(rows: int, seed: int = 0, steer_scale: float = 0.5) -> dict[str, np.ndarray]:
    """The arrays of a run: idle for 30 rows, then smooth random actions."""
    world = RCCar()
    random = np.random.default_rng(seed)
    times = np.arange(rows)[:, None]
    waves = np.sin(times * random.uniform(0.05, 0.3, 2) + random.uniform(0, 6, 2))
    action = np.where(times < 30, 0.0, 0.7 * waves + 0.1 * random.normal(size=(rows, 2)))
    sent = (action * [steer_scale, 1.0]).astype(np.float32)

    def step(state, inputs):
        action, key = inputs
        state, _, _ = world.step(state, action, key=key)
        return state, world.observe(state)

    start_key, step_key = jr.split(jr.key(seed))
    start = world.reset(key=start_key)
    obs = jax.lax.scan(step, start, (jnp.asarray(sent), jr.split(step_key, rows)))[1]
    obs = jnp.concatenate([world.observe(start)[None], obs])
    raw = np.concatenate([np.asarray(jax.vmap(decode)(obs[:, :7])), np.asarray(obs[:, 7:])], axis=1).astype(np.float64)
    raw[1:, 10:] = action * [steer_scale, 1.0]  # not rounded, as there
    raw[2:, 8:10], raw[3:, 6:8] = raw[1:-1, 10:], raw[1:-2, 10:]
    return {"observation": raw[:-1], "action": action, "next_observation": raw[1:]}


def spiked(arrays: dict[str, np.ndarray], state: int, value: float = -200.0) -> dict[str, np.ndarray]:
    """A yaw rate that leaps at one state."""
    arrays = {name: array.copy() for name, array in arrays.items()}
    arrays["observation"][state, 5] = arrays["next_observation"][state - 1, 5] = value
    return arrays


def save(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    np.savez(path, **arrays)
    return path
