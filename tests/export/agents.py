"""Agents to export, as small as they come; most have data but were never trained, which is enough for a policy."""

from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from sombrl.agent.agent import Agent
from sombrl.agent.make import make
from sombrl.export import seed_replay
from sombrl.networks.normaliser import RunningNormaliser
from sombrl.records import Transition
from tests.envs import tiny as tiny

NETS = {"hidden": (16, 16), "batch_size": 4}
STRONG_NETS = NETS | {"actor": "simba", "critic": "simba", "critics": "one", "normalise_observations": True}
"""Networks with norms, residual blocks and normalised observations."""
DREAMER = {
    "size": "tiny",
    "envs": 2,
    "batch_size": 2,
    "batch_length": 9,
    "horizon": 2,
    "capacity": 2000,
    "report_every": 24,
    "episode_length": 7,
    "hidden": (8,),
    "members": 2,
}


def rows(agent: Agent, number: int = 20) -> Transition:
    """Transitions that fit an agent's environment."""
    rng, spec = np.random.default_rng(0), agent.envs.spec
    obs = rng.normal(size=(number + 1, spec.obs_dim)).astype(np.float32)
    no = jnp.zeros(number, bool)
    action = jnp.asarray(rng.uniform(-1, 1, (number, spec.action_dim)).astype(np.float32))
    reward = jnp.asarray(rng.normal(size=number).astype(np.float32))
    return Transition(jnp.asarray(obs[:-1]), action, reward, jnp.asarray(obs[1:]), no, no)


def with_data(algorithm: str, env: str, **settings) -> Agent:
    """An agent whose parameters are all different from each other and from those of other seeds, as after training."""
    agent = make(algorithm, env, **settings)
    seed_replay(agent, rows(agent))
    if agent.trainer.learns_policy:
        state = agent.state
        actor = disturbed(state.controller.actor, agent)
        state = eqx.tree_at(lambda s: s.controller.actor, state, actor)
        if getattr(state.controller, "normaliser", None) is not None:  # a search has none of its own
            seen = jax.vmap(RunningNormaliser.update)(state.controller.normaliser, 3.0 + 2.0 * state.replay.data.obs)
            state = eqx.tree_at(lambda s: s.controller.normaliser, state, seen)
        agent.trainer.replace_state(state)
    return agent


def disturbed(networks: Any, agent: Agent) -> Any:
    """Biases that are not 0 and norms that are not 1: by numbers of the seed alone."""

    def add(leaf):
        noise = [np.random.default_rng(seed).normal(size=leaf.shape[1:]) for seed in agent.seeds]
        return leaf + jnp.asarray(0.1 * np.stack(noise), leaf.dtype)

    return jax.tree.map(add, networks)


def recorded(env, **settings) -> Agent:
    """A Dreamer with 12 records of every environment."""
    agent = make("dreamer", env, **(DREAMER | settings))
    for seed, replay in zip(agent.seeds, agent.trainer.loop.replays, strict=True):
        for number in range(12):
            replay.add(record(agent, np.random.default_rng([seed, number]), number))
    return agent


def dreamer(env, **settings) -> Agent:
    """With records, and disturbed: at first the actions of a Dreamer are all near 0."""
    agent = recorded(env, **settings)
    state = agent.state
    networks = disturbed(state.learned.networks, agent)
    agent.trainer.replace_state(eqx.tree_at(lambda s: s.learned.networks, state, networks))
    return agent


def record(agent: Agent, rng: np.random.Generator, number: int) -> dict:
    """The next record of all streams: episodes of 4 records in the first, of 6 in the others; the second ones end."""
    replay, length = agent.trainer.loop.replays[0], np.array([4] + [6] * (agent.config.envs - 1))
    values = {
        name: rng.integers(0, 3, (replay.rows, *field.shape)).astype(field.dtype)
        if field.dtype.kind in "iu"
        else rng.normal(size=(replay.rows, *field.shape)).astype(field.dtype)
        for name, field in replay.fields.items()
    }
    if agent.envs.spec.discrete:
        values["action"] = np.eye(agent.envs.spec.action_dim, dtype=np.float32)[rng.integers(0, 3, replay.rows)]
    last = number % length == length - 1
    flags = {"first": number % length == 0, "last": last, "terminal": last & (number // length == 1)}
    obs = {name.removeprefix("obs/"): values.pop(name) for name in list(values) if name.startswith("obs/")}
    return values | flags | {"obs": obs}


class Sights(gymnasium.Env):
    """A walk on a line, seen as a picture, as a vector and as one of 2, 3 and 4; actions 5, 6 and 7."""

    observation_space = Dict(
        walk=Box(-np.inf, np.inf, (2,), np.float32),
        place=Discrete(3, start=2),
        frame=Box(0, 255, (48, 48, 2), np.uint8),
    )
    action_space = Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.normal(size=2)
        return self.see(), {}

    def step(self, action):
        self.state = self.state + (int(action) - 6) + self.np_random.normal(size=2)
        return self.see(), float(self.state[0]), bool(abs(self.state[0]) > 3), False, {}

    def see(self):
        ramp = np.arange(48 * 48 * 2) * (1 + np.abs(self.state[0]))
        place = int(np.clip(np.rint(self.state[1]), -1, 1)) + 3
        frame = ramp.astype(np.int64).astype(np.uint8).reshape(48, 48, 2)
        return {"frame": frame, "walk": self.state.astype(np.float32), "place": np.int64(place)}
