"""What turns the episodes so far into the next policy: nothing at all, or an algorithm of sombrl.

A policy is a function of (episodes before it, configuration, number, seed) and of nothing else, so a training that was
killed gives the same policy when it is done again.

An algorithm learns as in `training/episodic.py`, with the car where that would collect: iteration n is `improve` with
the keys of (seed, n), on a replay of the episodes before n; then its actor drives. What the learner and
the controller remember from iteration n - 1 is a checkpoint in the learner's folder. It is only a shortcut: without it,
or with one of another history, iterations 0 … n - 1 are done again.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sombrl.agent.make import make
from sombrl.errors import SombrlError
from sombrl.hardware.campaign import CampaignConfig
from sombrl.hardware.encoding import ACTION_DIM, OBS_DIM
from sombrl.hardware.episode import Episode
from sombrl.hardware.policy import Actor
from sombrl.hardware.registry import check_options, read_options
from sombrl.records import Transition
from sombrl.replay import Replay
from sombrl.storage import checkpoint
from sombrl.training.episodic import improve
from sombrl.training.parts import PartsTrainer

ENV = "rc-car"
PIECE = 128  # lengths of episodes are rounded up to multiples of this, so that few of them are compiled for

Trainer = Callable[[Sequence[Episode], CampaignConfig, int, int, Path], tuple[Actor, Mapping[str, float]]]
"""(episodes before it, configuration, number, seed, a folder for what can be computed again) → (policy, metrics)."""


@dataclasses.dataclass(frozen=True)
class TrainerPart:
    """A trainer, and what refuses its options before anything is written."""

    train: Trainer
    check: Callable[[CampaignConfig], None] = lambda config: None


def train_random(
    episodes: Sequence[Episode], config: CampaignConfig, number: int, seed: int, scratch: Path
) -> tuple[Actor, dict[str, float]]:
    """A policy of random weights, learned from nothing: to try a car and its safety rules."""
    width = read_options(config.trainer_options, "--trainer-options").get("width", 16)
    rng = np.random.default_rng([seed, number])
    shapes = [(OBS_DIM, width), (width, 2 * ACTION_DIM)]
    weights = tuple((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32) for shape in shapes)
    return Actor.mlp(weights, tuple(np.zeros(shape[1], np.float32) for shape in shapes)), {}


def check_random(config: CampaignConfig) -> None:
    """Refuse anything but a positive width."""
    options = read_options(config.trainer_options, "--trainer-options")
    check_options(options, ["width"], "trainer random")
    width = options.get("width", 16)
    if not (isinstance(width, int) and width >= 1):
        raise SombrlError(f"the width of a random policy must be at least 1, not {width!r}.")


TRAINERS: dict[str, TrainerPart] = {"random": TrainerPart(train_random, check_random)}
"""Trainers that are not algorithms, by name."""


# ----------------------------------------------------------------------------------------------- an algorithm


class Memory(eqx.Module):
    """What goes from one iteration to the next, apart from the data."""

    learner: Any
    controller: Any


def train_agent(
    algorithm: str, episodes: Sequence[Episode], config: CampaignConfig, number: int, seed: int, scratch: Path
) -> tuple[Actor, dict[str, float]]:
    """The actor after iteration `number`."""
    trainer = _untrained(algorithm, config, seed)
    replays = _replays(trainer, episodes[:number], _options(config)[1])
    history = [episode.meta.get("digest") for episode in episodes]
    first, memory = _remembered(trainer, number, history, scratch)
    metrics: dict[str, Any] = {}
    for n in range(first, number + 1):
        memory, metrics = _iterate(trainer, memory, replays[n], n)
        if n >= number - 1:  # the one before as well, for a kill between this line and the policy's file
            meta = {"iteration": n + 1, "history": history[:n]}
            checkpoint.save(scratch / "checkpoints", n + 1, memory, meta, keep=2)
    return actor_of(trainer, memory.controller), {name: float(np.asarray(v)[0]) for name, v in metrics.items()}


def check_agent(algorithm: str, config: CampaignConfig) -> None:
    """Refuse options that the algorithm does not have, and environments that are not like the car."""
    spec = _trainer(algorithm, config, config.seed).envs.spec
    if (spec.obs_dim, spec.action_dim) != (OBS_DIM, ACTION_DIM):
        raise SombrlError(
            f"{spec.name} has {spec.obs_dim} observations and {spec.action_dim} actions, and the car {OBS_DIM} and "
            f"{ACTION_DIM}: use --trainer-options env={ENV}."
        )


def actor_of(trainer: PartsTrainer, controller_state: Any) -> Actor:
    """The first seed's policy."""
    network = trainer.parts.controller.actor(controller_state)
    assert network is not None, "planners are refused before anything is trained"
    return Actor.of(jax.tree.map(lambda leaf: np.asarray(leaf)[0], network))


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


def _trainer(algorithm: str, config: CampaignConfig, seed: int) -> PartsTrainer:
    settings, _ = _options(config)
    trainer = make(algorithm, settings.pop("env"), **settings, seed=seed).trainer
    if isinstance(trainer, PartsTrainer) and trainer.learns_policy:
        return trainer
    why = "learns from sequences" if trainer.learns_policy else "plans instead of learning a policy"
    raise SombrlError(f"{algorithm} {why}: use --trainer sim-fsvgd or mbpo.")


@functools.lru_cache(maxsize=1)
def _untrained(algorithm: str, config: CampaignConfig, seed: int) -> PartsTrainer:
    """One for all policies of a campaign: its programs are compiled once, and its state stays that of the start."""
    return _trainer(algorithm, config, seed)


def _remembered(trainer: PartsTrainer, number: int, history: list[Any], scratch: Path) -> tuple[int, Memory]:
    """The newest iteration that need not be done again, and what it left."""
    start = Memory(trainer.state.learner, trainer.state.controller)
    for path in checkpoint.available(scratch / "checkpoints"):
        try:
            memory, meta = checkpoint.load(path, start)
        except SombrlError:  # damaged, or of another configuration: it is only a shortcut
            continue
        n = int(meta["iteration"])
        if n <= number and meta["history"] == history[: n - 1]:
            return n, memory
    return 0, start


def _replays(trainer: PartsTrainer, episodes: Sequence[Episode], rewards: str) -> list[Replay]:
    """What each iteration learns from: entry n holds the episodes before n."""
    replays = [trainer.state.replay]
    longest = max((episode.length for episode in episodes), default=1)
    length = -(-longest // PIECE) * PIECE
    for episode in episodes:
        rows, valid = _rows(episode, length)
        if rewards == "task" and (task := trainer.envs.task) is not None:
            paid = jax.vmap(jax.vmap(task.reward))(rows.obs, rows.action, rows.next_obs)
            rows = eqx.tree_at(lambda r: r.reward, rows, paid)
        replays.append(trainer.compiled("explore").add(replays[-1], rows, valid))
    return replays


def _rows(episode: Episode, length: int) -> tuple[Transition, jax.Array]:
    """An episode as [1, length, ...]; what is not certain, or not there, is not valid."""

    def padded(array: np.ndarray) -> jax.Array:
        missing = [(0, length - len(array))] + [(0, 0)] * (array.ndim - 1)
        return jnp.asarray(np.pad(array, missing)[None])

    last = np.zeros(episode.length, bool)
    last[-1:] = True
    numbers = (episode.obs[:-1], episode.action, episode.reward, episode.obs[1:])
    columns = (*(array.astype(np.float32) for array in numbers), np.zeros(episode.length, bool), last)
    return Transition(*map(padded, columns)), padded(episode.valid)


def _iterate(trainer: PartsTrainer, memory: Memory, replay: Replay, n: int) -> tuple[Memory, dict[str, Any]]:
    """Iteration n of the episodic loop, without the part that acts."""
    compiled = trainer.compiled("explore")
    new = improve(compiled, trainer.parts, memory.learner, memory.controller, replay, n=n, seeds=trainer.seeds)
    return Memory(new.learner, compiled.begin_episode(new.controller, new.mdp)), new.metrics
