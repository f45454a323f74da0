"""An algorithm of sombrl as a trainer: `loop.run`, with the car where it would collect.

Iteration n is fit, imagine, improve with the keys of (seed, n), on a replay of the episodes before n; then its actor
drives. What the learner and the controller remember from iteration n - 1 is a checkpoint in the learner's folder. It
is only a shortcut: without it, or with one of another history, iterations 0 … n - 1 are done again.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sombrl.agent.agent import Agent
from sombrl.agent.make import make
from sombrl.hardware.backends import read_options
from sombrl.hardware.campaign import CampaignConfig
from sombrl.hardware.encoding import ACTION_DIM, OBS_DIM
from sombrl.hardware.episode import Episode
from sombrl.hardware.policy import Actor
from sombrl.networks.mlp import MLP
from sombrl.records import SombrlError, Transition
from sombrl.replay import Replay
from sombrl.storage import checkpoint
from sombrl.training.compiled import Compiled, initial_state
from sombrl.training.episodic import improve
from sombrl.training.parts import Parts, PartsTrainer

ENV = "rc-car"
PIECE = 128  # lengths of episodes are rounded up to multiples of this, so that few of them are compiled for


class Memory(eqx.Module):
    """What goes from one iteration to the next, apart from the data."""

    learner: Any
    controller: Any


class Built(NamedTuple):
    """An agent and its compiled parts."""

    agent: Agent
    parts: Parts
    compiled: Compiled
    start: Memory
    empty: Replay


def train_agent(
    algorithm: str, episodes: Sequence[Episode], config: CampaignConfig, number: int, seed: int, scratch: Path
) -> tuple[Actor, dict[str, float]]:
    """The actor after iteration `number`."""
    built = _build(algorithm, config, seed)
    rewards = _options(config)[1]
    replays = _replays(built, episodes[:number], rewards)
    history = [episode.meta.get("digest") for episode in episodes]
    first, memory = _remembered(built, number, history, scratch)
    metrics: dict[str, Any] = {}
    for n in range(first, number + 1):
        memory, metrics = _iterate(built, memory, replays[n], n, seed)
        if n >= number - 1:  # the one before as well, for a kill between this line and the policy's file
            meta = {"iteration": n + 1, "history": history[:n]}
            checkpoint.save(scratch / "checkpoints", n + 1, memory, meta, keep=2)
    return actor_of(memory.controller, algorithm), {name: float(np.asarray(v)[0]) for name, v in metrics.items()}


def check_agent(algorithm: str, config: CampaignConfig) -> None:
    """Refuse options that the algorithm has not, and environments that are not like the car."""
    agent = _agent(algorithm, config, config.seed)
    if not agent.trainer.learns_policy:
        raise _plans(algorithm)
    spec = agent.envs.spec
    if (spec.obs_dim, spec.action_dim) != (OBS_DIM, ACTION_DIM):
        raise SombrlError(
            f"{spec.name} has {spec.obs_dim} observations and {spec.action_dim} actions, and the car {OBS_DIM} and "
            f"{ACTION_DIM}: use --trainer-options env={ENV}."
        )


def actor_of(controller_state: Any, algorithm: str) -> Actor:
    """The first seed's policy, wherever in the controller's state it is."""
    found = _find_actor(controller_state)
    if found is None:
        raise _plans(algorithm)
    return Actor.of(jax.tree.map(lambda leaf: np.asarray(leaf)[0], found))


def _plans(algorithm: str) -> SombrlError:
    return SombrlError(f"{algorithm} plans instead of learning a policy: use --trainer sim-fsvgd or mbpo.")


def _find_actor(tree: Any) -> MLP | None:
    """A field called `actor` that is an MLP, at any depth."""
    if isinstance(getattr(tree, "actor", None), MLP):
        return tree.actor
    if isinstance(tree, eqx.Module):
        parts = [getattr(tree, name) for name in tree.__dataclass_fields__]
    elif isinstance(tree, dict):
        parts = list(tree.values())
    else:
        parts = list(tree) if isinstance(tree, list | tuple) else []
    return next((actor for actor in map(_find_actor, parts) if actor is not None), None)


def _options(config: CampaignConfig) -> tuple[dict[str, Any], str]:
    """Settings for `make`, and whose rewards are learned from."""
    settings = read_options(config.trainer_options, "--trainer-options")
    rewards = settings.pop("rewards", "task")
    if rewards not in ("task", "recorded"):
        raise SombrlError(
            f"--trainer-options rewards={rewards}: use task (the environment's, where known) or recorded."
        )
    settings.setdefault("env", ENV)
    settings.setdefault("episode_length", config.steps)
    if settings["env"] == ENV:  # the car is paid as the campaign says
        settings["env_kwargs"] = {"margin_factor": config.margin_factor, **settings.get("env_kwargs", {})}
    return settings, rewards


def _agent(algorithm: str, config: CampaignConfig, seed: int) -> Agent:
    settings, _ = _options(config)
    return make(algorithm, settings.pop("env"), **settings, seed=seed)


@functools.lru_cache(maxsize=1)
def _build(algorithm: str, config: CampaignConfig, seed: int) -> Built:
    agent = _agent(algorithm, config, seed)
    trainer = agent.trainer
    assert isinstance(trainer, PartsTrainer), "check_agent has refused the others"
    parts = trainer.parts
    compiled = trainer.compiled("explore")
    state = initial_state(agent.envs, compiled, [seed], parts.capacity)
    return Built(agent, parts, compiled, Memory(state.learner, state.controller), state.replay)


def _remembered(built: Built, number: int, history: list[Any], scratch: Path) -> tuple[int, Memory]:
    """The newest iteration that need not be done again, and what it left."""
    for path in checkpoint.available(scratch / "checkpoints"):
        try:
            memory, meta = checkpoint.load(path, built.start)
        except SombrlError:  # damaged, or of another configuration: it is only a shortcut
            continue
        n = int(meta["iteration"])
        if n <= number and meta["history"] == history[: n - 1]:
            return n, memory
    return 0, built.start


def _replays(built: Built, episodes: Sequence[Episode], rewards: str) -> list[Replay]:
    """What each iteration learns from: entry n holds the episodes before n."""
    replays = [built.empty]
    longest = max((episode.length for episode in episodes), default=1)
    length = -(-longest // PIECE) * PIECE
    for episode in episodes:
        rows, valid = _rows(episode, length)
        if rewards == "task" and (task := built.agent.envs.task) is not None:
            paid = jax.vmap(jax.vmap(task.reward))(rows.obs, rows.action, rows.next_obs)
            rows = eqx.tree_at(lambda r: r.reward, rows, paid)
        replays.append(built.compiled.add(replays[-1], rows, valid))
    return replays


def _rows(episode: Episode, length: int) -> tuple[Transition, jax.Array]:
    """An episode as [1, length, ...]; what is not certain, or not there, is not valid."""

    def padded(array: np.ndarray) -> jax.Array:
        missing = [(0, length - len(array))] + [(0, 0)] * (array.ndim - 1)
        return jnp.asarray(np.pad(array, missing)[None])

    last = np.zeros(episode.length, bool)
    last[-1:] = True
    columns = (
        episode.obs[:-1].astype(np.float32),
        episode.action.astype(np.float32),
        episode.reward.astype(np.float32),
        episode.next_obs.astype(np.float32),
        np.zeros(episode.length, bool),
        last,
    )
    return Transition(*map(padded, columns)), padded(episode.valid)


def _iterate(built: Built, memory: Memory, replay: Replay, n: int, seed: int) -> tuple[Memory, dict[str, Any]]:
    """Iteration n of the episodic loop, without the part that acts."""
    new = improve(built.compiled, built.parts, memory.learner, memory.controller, replay, n=n, seeds=[seed])
    controller = built.compiled.begin_episode(new.controller, new.mdp)
    return jax.block_until_ready(Memory(new.learner, controller)), new.metrics
