"""SAC of SBX and of Stable-Baselines3, block by block: a JSON line in, a JSON line out. `benchmarks/sac.py` asks.

Runs in `.venv-peers` and must not import sombrl. The replay buffer is filled before anything is timed. SBX samples
the batches of all gradient steps on the host, then runs them as one compiled program; SB3 does one after the other.
Both read their losses at the end, so a call has finished when it returns.
"""

import importlib.metadata
import json
import os
import sys
import time

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

from typing import Any

import gymnasium
import numpy as np
import sbx
import stable_baselines3
import torch
from stable_baselines3.common.logger import configure

LIBRARIES = {"sbx": sbx.SAC, "sb3": stable_baselines3.SAC}
VERSIONS = ("sbx-rl", "stable-baselines3", "torch", "jax", "jaxlib", "flax", "optax", "numpy")


class Spaces(gymnasium.Env):
    """An environment that is asked for its spaces only."""

    def __init__(self, obs_dim: int, action_dim: int):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (obs_dim,), np.float32)
        self._nothing = np.zeros(obs_dim, np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (action_dim,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Never stepped."""
        return self._nothing, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Never stepped."""
        return self._nothing, 0.0, False, False, {}


def agent(library: str, obs_dim: int, action_dim: int, width: int, transitions: int) -> Any:
    """SAC as the library has it, with a full replay buffer of random transitions."""
    model = LIBRARIES[library](
        "MlpPolicy",
        Spaces(obs_dim, action_dim),
        buffer_size=transitions,
        policy_kwargs={"net_arch": [width, width]},
        seed=0,
        device="cpu",
    )
    model.set_logger(configure(None, []))
    generator, replay = np.random.default_rng(0), model.replay_buffer
    for column in (replay.observations, replay.next_observations, replay.rewards):
        column[:] = generator.standard_normal(column.shape)
    replay.actions[:] = generator.uniform(-1.0, 1.0, replay.actions.shape)
    replay.full = True
    return model


def main() -> None:
    """Answer until there are no more questions."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    all_threads = torch.get_num_threads()
    hello = {name: importlib.metadata.version(name) for name in VERSIONS} | {"torch threads": all_threads}
    print(json.dumps(hello), file=answers, flush=True)
    agents: dict[Any, Any] = {}
    for line in sys.stdin:
        ask = json.loads(line)
        name = ask["library"], *(ask[part] for part in ("obs_dim", "action_dim", "width", "transitions"))
        if name not in agents:
            agents[name] = agent(*name)
        torch.set_num_threads(ask.get("threads") or all_threads)
        wall, cpu = time.perf_counter(), time.process_time()
        agents[name].train(gradient_steps=ask["gradient_steps"], batch_size=ask["batch_size"])
        answer = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
