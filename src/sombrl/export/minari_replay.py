"""Replays to and from Minari datasets: episodes in the environment's own units, that other libraries read.

An episode ends where the environment said so, or where the next decision began elsewhere (a chunk of the discounted
setting is cut short without the environment knowing). What had not ended when the run stopped, or was cut, is marked
truncated. A ring buffer that has begun to overwrite itself has lost the start of its oldest episode, which is left out.
Episodes of different seeds never meet; the info `seed` says whose one is.
"""

import contextlib
import dataclasses
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete

from sombrl.agent.agent import Agent
from sombrl.agent.make import load_with
from sombrl.dreamer.loop import executed
from sombrl.dreamer.replay import SequenceReplay
from sombrl.dreamer.trainer import DreamerTrainer
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.layout import Part
from sombrl.envs.recorded import unit_actions
from sombrl.envs.trust import NO_WORD, Word
from sombrl.optional import require
from sombrl.records import RunFault, SombrlError, Transition
from sombrl.replay import Replay
from sombrl.storage.files import sync_folder
from sombrl.storage.provenance import versions
from sombrl.training.parts import PartsTrainer

METADATA = "namespace_metadata.json"


@dataclasses.dataclass(frozen=True)
class Episode:
    """An episode of one seed: `length` decisions, and one more observation than that."""

    seed: int
    obs: dict[str, np.ndarray]  # by part, [length + 1, ...]
    action: np.ndarray  # [length, ...], the environment's units
    reward: np.ndarray  # [length]
    terminated: bool
    truncated: bool


def to_minari(run: Agent | str | Path, dataset: str, *, seed: int | None = None, word: Word = NO_WORD) -> Path:
    """Write the replay of an agent or a run as the new Minari dataset `dataset`; its folder.

    Of all seeds, or of one. It is there whole or not at all, in Minari's own folder (MINARI_DATASETS_PATH). `word` is
    what the user has said about code that the run names.
    """
    minari = _minari()
    root, final = _place(dataset)
    agent = run if isinstance(run, Agent) else load_with(word, run)
    for note in [] if agent is run else agent.notes:  # of a damaged checkpoint: the replay is then an older one
        print(note, file=sys.stderr)
    if seed is not None:
        agent.row_of(seed)  # refuses one that is not there
    episodes = [episode for episode in episodes_of(agent) if seed in (None, episode.seed)]
    if not episodes:
        raise SombrlError("the replay has no whole episode yet: train longer.")
    parts, spec = agent.envs.spec.obs_layout.parts, agent.envs.spec
    description = (
        f"Replay of {agent.label} in sombrl {versions('sombrl')['sombrl']}: {agent.iteration} iterations, seeds "
        f"{', '.join(map(str, agent.seeds if seed is None else [seed]))}; a step is a decision of {spec.action_repeat} "
        "frames, and its reward their sum."
    )
    aside = root / f".tmp-{os.getpid()}"
    try:
        with _datasets_in(aside):
            minari.create_dataset_from_buffers(
                dataset,
                [_buffer(minari, number, episode, parts) for number, episode in enumerate(episodes)],
                algorithm_name=f"sombrl {agent.algorithm} {agent.config.explore.explore}",
                description=description,
                observation_space=_observation_space(parts),
                action_space=_action_space(agent.envs),
                jpeg_encoding=False,  # its default loses pixels
            )
        _publish(aside, root, dataset)
    except OSError as error:
        raise RunFault(f"cannot write the dataset {dataset}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return final


def from_minari(dataset: Any, agent: Agent) -> Transition:
    """The episodes of a Minari dataset, one after the other, as the rows that `agent` would have stored: [rows, ...].

    `dataset`: its name, or a `MinariDataset`. Actions are rescaled from the environment's bounds to [-1, 1].
    """
    minari = _minari()
    if isinstance(agent.trainer, DreamerTrainer) or agent.envs.spec.discrete:
        raise SombrlError("a dataset is read for agents that learn from vectors and continuous actions: sac, mbpo, …")
    if isinstance(dataset, str):
        try:
            dataset = minari.load_dataset(dataset)
        except (FileNotFoundError, ValueError) as error:
            raise SombrlError(
                f"there is no Minari dataset {dataset} ({error}): `minari list local` has them."
            ) from error
    episodes = [_columns(episode, agent.envs) for episode in dataset.iterate_episodes()]
    if not episodes:
        raise SombrlError("this Minari dataset has no episodes.")
    return Transition(*(jnp.asarray(np.concatenate(column)) for column in zip(*episodes, strict=True)))


def seed_replay(agent: Agent, rows: Transition) -> None:
    """Put rows (`from_minari`) into the replay of every seed of an agent that has not begun: it learns from them.

    They count as its own in every metric, rewards and decisions, and are the first to be overwritten.
    """
    trainer = agent.trainer
    if not isinstance(trainer, PartsTrainer):
        raise SombrlError("dreamer's replay holds its latent states, which a dataset does not have.")
    if agent.iteration:
        raise SombrlError(f"this agent has {agent.iteration} iterations already: seed the replay of a new one.")
    number = rows.reward.shape[0]
    if number > trainer.capacity:
        raise SombrlError(
            f"{number} transitions do not fit the replay of {trainer.capacity}: raise --capacity (and "
            "--decisions, which limits it), or give fewer."
        )
    valid = jnp.ones(number, bool)
    state = agent.state
    replay = jax.vmap(lambda replay: replay.add(rows, valid))(state.replay)
    earned = state.total_reward + np.asarray(rows.reward, np.float64).sum()
    trainer.replace_state(eqx.tree_at(lambda s: (s.replay, s.total_reward), state, (replay, earned)))


def episodes_of(agent: Agent) -> Iterator[Episode]:
    """What the replay of an agent holds, seed by seed, oldest first."""
    for row, seed in enumerate(agent.seeds):
        if isinstance(agent.trainer, DreamerTrainer):
            yield from _of_sequences(agent.trainer.loop.replays[row], seed, agent.envs)
        else:
            replay = jax.tree.map(lambda leaf: leaf[row], agent.state.replay)  # noqa: B023
            yield from _of_transitions(replay, seed, agent.envs, agent.trainer.setting.resets)


def _of_transitions(replay: Replay, seed: int, envs: AbstractEnvs, resets: bool) -> Iterator[Episode]:
    added, capacity, count = int(replay.added), replay.capacity, int(replay.count)
    order = (added - count + np.arange(count)) % capacity  # oldest first
    rows = jax.tree.map(lambda leaf: np.asarray(leaf)[order], replay.data)
    if count == 0:
        return
    ends = rows.terminated | rows.truncated
    ends[:-1] |= (rows.next_obs[:-1] != rows.obs[1:]).any(axis=1)
    ends[-1] = True
    stops = np.flatnonzero(ends) + 1
    lost = added > capacity and resets
    for start, stop in zip([0, *stops[:-1]], stops, strict=True):
        if start == 0 and lost:
            continue
        cut = slice(start, stop)
        obs = np.concatenate([rows.obs[cut], rows.next_obs[stop - 1 : stop]])
        terminated = bool(rows.terminated[stop - 1])
        parts = envs.spec.obs_layout.split(obs)
        yield Episode(seed, parts, envs.physical(rows.action[cut]), rows.reward[cut], terminated, not terminated)


def _of_sequences(replay: SequenceReplay, seed: int, envs: AbstractEnvs) -> Iterator[Episode]:
    """A record is an observation, the reward that came with it, and the action after it."""
    for row in range(replay.rows if replay.added else 0):
        records = _stream(replay, row)
        firsts = np.flatnonzero(records["first"])
        for start, stop in zip(firsts, [*firsts[1:], len(records["first"])], strict=True):
            if stop - start < 2:  # begun, and nothing done yet
                continue
            obs = {
                part.name: part.counted(records[f"obs/{part.name}"][start:stop]) for part in envs.spec.obs_layout.parts
            }
            action = envs.physical(executed(records["action"][start : stop - 1], envs.spec.discrete))
            terminated = bool(records["terminal"][stop - 1])
            yield Episode(seed, obs, action, records["reward"][start + 1 : stop], terminated, not terminated)


def _stream(replay: SequenceReplay, row: int) -> dict[str, np.ndarray]:
    """The records of one environment by field, oldest first."""
    order = np.arange(replay.oldest, replay.added) % replay.ring
    chunks: dict[str, list[np.ndarray]] = {name: [] for name in replay.fields}
    for name, array in sorted(replay.state().items()):
        if name.startswith("records/"):
            chunks[name.split("/", 2)[2]].append(array[row])
    return {name: np.concatenate(pieces)[order] for name, pieces in chunks.items() if pieces}


def _columns(episode: Any, envs: AbstractEnvs) -> tuple[np.ndarray, ...]:
    """An episode of a dataset as the columns of a `Transition`."""
    length, spec = len(episode.rewards), envs.spec
    given = episode.observations
    columns = [given[name] for name in sorted(given)] if isinstance(given, dict) else [given]
    obs = np.concatenate([np.asarray(column, np.float32).reshape(length + 1, -1) for column in columns], axis=1)
    action = np.asarray(episode.actions).reshape(length, -1)
    if obs.shape[1] != spec.obs_dim or action.shape[1] != spec.action_dim:
        raise SombrlError(
            f"the dataset has {obs.shape[1]} numbers in an observation and {action.shape[1]} in an action, and "
            f"{spec.name} {spec.obs_dim} and {spec.action_dim}: give a dataset of that environment."
        )
    ends = np.asarray(episode.terminations, bool), np.asarray(episode.truncations, bool)
    unit = unit_actions(action, envs, "the dataset")
    return obs[:-1], unit, np.asarray(episode.rewards, np.float32), obs[1:], *ends


def _buffer(minari: Any, number: int, episode: Episode, parts: tuple[Part, ...]) -> Any:
    length = len(episode.reward)
    last = np.arange(length) == length - 1
    obs = episode.obs if len(parts) > 1 else episode.obs[parts[0].name]
    return minari.data_collector.EpisodeBuffer(
        id=number,
        observations=obs,
        actions=episode.action,
        rewards=episode.reward,
        terminations=last & episode.terminated,
        truncations=last & episode.truncated,
        infos={"seed": np.full(length + 1, episode.seed)},
    )


def _observation_space(parts: tuple[Part, ...]) -> gymnasium.Space[Any]:
    spaces = {part.name: _space(part) for part in parts}
    return gymnasium.spaces.Dict(spaces) if len(parts) > 1 else spaces[parts[0].name]


def _space(part: Part) -> gymnasium.Space[Any]:
    if part.kind == "discrete":
        return Discrete(part.size or 1, start=part.start)
    if part.kind == "image":
        return Box(0, 255, part.shape, np.uint8)
    return Box(-np.inf, np.inf, part.shape, np.float32)


def _action_space(envs: AbstractEnvs) -> gymnasium.Space[Any]:
    size = envs.spec.action_dim
    if envs.spec.discrete:
        choices = envs.physical(np.eye(size, dtype=np.float32))
        return Discrete(int(choices.max() - choices.min()) + 1, start=int(choices.min()))
    low, high = envs.physical(np.stack([-np.ones(size, np.float32), np.ones(size, np.float32)]))
    return Box(low, high, low.shape, low.dtype.type)


def _minari() -> Any:
    for module, package in (("h5py", "h5py"), ("minari.data_collector", "minari")):
        require(module, package, f"Minari datasets need {package}: pip install 'sombrl[minari]'.")
    return require("minari", "minari", "Minari datasets need minari: pip install 'sombrl[minari]'.")


def _place(dataset: str) -> tuple[Path, Path]:
    """Minari's folder, and where the dataset goes in it."""
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.storage import get_dataset_path

    try:
        parse_dataset_id(dataset)
    except (ValueError, TypeError):  # the second, of a name without a version
        raise SombrlError(f"a Minari dataset is called like pendulum/replay-v0, not {dataset!r}.") from None
    final = Path(get_dataset_path(dataset))
    if final.exists():
        raise SombrlError(f"the Minari dataset {dataset} is there already ({final}): choose another --out.")
    return Path(get_dataset_path()), final


@contextlib.contextmanager
def _datasets_in(folder: Path) -> Iterator[None]:
    """Minari writes in there, and keeps its advice on authors and links to itself."""
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        if before is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = before


def _publish(aside: Path, root: Path, dataset: str) -> None:
    """Move a complete dataset to its place, and what Minari wrote about its namespaces with it."""
    (root / dataset).parent.mkdir(parents=True, exist_ok=True)
    for namespace in Path(dataset).parents:
        about, place = aside / namespace / METADATA, root / namespace / METADATA
        if about.exists() and not place.exists():
            os.rename(about, place)
    os.rename(aside / dataset, root / dataset)
    sync_folder((root / dataset).parent)
