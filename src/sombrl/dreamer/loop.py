"""Dreamer's loop: move the environments, act, record, and update as often as the records are to be replayed.

A tick is one record of every environment: the answer to its last action, or, where an episode is over, a new start. A
record has what came before the action (observation, reward, flags) and the action chosen after it. Environments in
worker processes move while the updates of the tick before are made.

Each seed has `envs` environments, one replay, and networks of its own. On an accelerator the seeds are one program,
unless they see large images; on a CPU they are one after the other, so that no bit of a seed depends on its neighbours.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, UInt

from sombrl.dreamer.dreamer import Dreamer, DreamerState, Networks, Posteriors, Sequences
from sombrl.dreamer.encoder import SMALL
from sombrl.dreamer.replay import Batch, LatentSpec, SequenceReplay, UpdateRatio
from sombrl.dreamer.rssm import Latent
from sombrl.envs.base import AbstractEnvs, Step
from sombrl.records import SombrlError
from sombrl.seeds import concat, keyed_by, over_shard, shards_of, take
from sombrl.training.base import OnDecision, Report
from sombrl.training.clock import Clock
from sombrl.training.compiled import refuse_nan

_key = keyed_by(("init", "act", "learn", "evaluate"))
Metrics = dict[str, Float[Array, "*seeds"]]
UPDATE_OPTIONS = {"xla_gpu_dot_merger_threshold_mb": 0}
"""For the compiler: on a GPU it would join products that share their weights, and copy large activations to do so."""


class Streams(eqx.Module):
    """Where the environments are; every leaf has a leading axis of rows, `envs` of them for each seed."""

    latent: Latent
    action: np.ndarray  # the last one, before the environment clipped it
    last: np.ndarray  # whether the last record ended an episode
    episode: np.ndarray  # the number of the episode each row is in
    episode_return: np.ndarray
    episode_length: np.ndarray  # decisions in it so far
    total_reward: np.ndarray
    decisions: np.ndarray  # since the start


class DreamerLoopState(eqx.Module):
    """All that a run must remember but for its replays and simulators."""

    learned: DreamerState  # a leading axis of seeds
    streams: Streams
    ticks: int


def compiled_update(learn: Callable[..., Any]) -> Callable[..., Any]:
    """An update, compiled on first use. It gives its first argument's memory up."""
    return jax.jit(learn, donate_argnums=0, compiler_options=UPDATE_OPTIONS)


@dataclasses.dataclass(frozen=True)
class DreamerPrograms:
    """The parts of a tick, compiled. States, seeds and batches have a leading axis of seeds, what `act` takes and gives
    one of rows, as many of every seed."""

    init: Callable[[UInt[Array, " seeds"]], DreamerState]
    act: Callable[..., tuple[Float[Array, "row action"], Latent, Array, Array]]
    learn: Callable[..., tuple[DreamerState, Posteriors, Metrics]]
    apart: bool  # seeds one after the other: networks side by side would share no convolution

    @staticmethod
    @functools.lru_cache(maxsize=8)
    def of(dreamer: Dreamer, *, sample: bool = True) -> "DreamerPrograms":
        """Compilation happens on first use; agents that compute the same share what was compiled."""

        def init(seeds: Array) -> DreamerState:
            states: DreamerState = over_shard(
                lambda row: dreamer.init(key=_key(row[0], jnp.zeros((), jnp.int32), "init")), (seeds,)
            )
            return states

        def act(
            networks: Networks, seeds: Array, now: Array, latent: Latent, action: Array, obs: Any, first: Array
        ) -> tuple[Array, Latent, Array, Array]:
            def one(row: Any) -> Any:
                networks, seed, latent, action, obs, first = row
                keys = jr.split(_key(seed, now, "act" if sample else "evaluate"), first.shape[0])
                choose = functools.partial(dreamer.act, networks, sample=sample)
                return jax.vmap(lambda *row: choose(*row[:-1], key=row[-1]))(latent, action, obs, first, keys)

            by_seed = jax.tree.map(
                lambda leaf: jnp.reshape(leaf, (seeds.shape[0], -1, *leaf.shape[1:])), (latent, action, obs, first)
            )
            chosen = over_shard(one, (networks, seeds, *by_seed))
            action, latent = jax.tree.map(lambda leaf: jnp.reshape(leaf, (-1, *leaf.shape[2:])), chosen)
            stoch = jnp.argmax(latent.stoch, axis=-1).astype(jnp.int32)
            return action, latent, latent.deter.astype(jnp.float16), stoch

        def learn(state: DreamerState, seeds: Array, batch: Sequences) -> Any:
            def one(row: Any) -> Any:
                state, seed, batch = row
                return dreamer.learn(state, batch, key=_key(seed, state.updates, "learn"))

            return over_shard(one, (state, seeds, batch))

        # Small images cost little beside the sequences, which the seeds share.
        large = any(part.kind == "image" and min(part.shape[:2]) > SMALL for part in dreamer.parts)
        return DreamerPrograms(jax.jit(init), jax.jit(act), compiled_update(learn), large)

    def shards(self, seeds: int) -> list[slice]:
        """The seeds of each dispatch."""
        return shards_of(seeds, self.apart)

    def choose(
        self,
        networks: Sequence[Networks],
        seeds: Sequence[int],
        now: int,
        given: tuple[Latent, np.ndarray, dict[str, np.ndarray], np.ndarray],
    ) -> tuple[np.ndarray, Latent, np.ndarray, np.ndarray]:
        """`act` for rows, as many of every seed; `given` are latents, last actions, observations and first flags.

        `networks` are those of each shard. Returns rows: actions, latents, and of these what a replay stores.
        """
        who, per_seed = np.asarray(seeds, np.uint32), len(given[3]) // len(seeds)
        results, shards = [], self.shards(len(seeds))
        for of_shard, shard in zip(networks, shards, strict=True):
            own = slice(shard.start * per_seed, shard.stop * per_seed)
            rows = given if len(shards) == 1 else jax.tree.map(lambda leaf: leaf[own], given)  # noqa: B023
            results.append(self.act(of_shard, who[shard], np.int32(now), *rows))
        action, latent, deter, stoch = concat(results)
        _fetch((action, deter, stoch))
        return np.array(action), latent, np.asarray(deter), np.asarray(stoch)


class DreamerLoop:
    """Dreamer on environments, a row per environment."""

    def __init__(
        self, dreamer: Dreamer, programs: DreamerPrograms, envs: AbstractEnvs, seeds: Sequence[int], capacity: int
    ):
        self.dreamer, self.programs, self.envs, self.seeds = dreamer, programs, envs, list(seeds)
        config, size = dreamer.config, dreamer.size
        self.per_seed = config.envs
        self.layout = envs.spec.obs_layout
        latent = LatentSpec(size.deter, size.latents, size.classes)
        self.replays = [
            SequenceReplay(
                self.per_seed,
                capacity,
                self.layout.parts,
                envs.spec.action_dim,
                latent,
                config.batch_length,
                seed=seed,
            )
            for seed in self.seeds
        ]
        self.ratio = UpdateRatio(config.ratio or 0.0, config.batch_size, config.batch_length)
        self._shards = programs.shards(len(self.seeds))
        self._who = [jnp.asarray(self.seeds[shard], jnp.uint32) for shard in self._shards]

    def initial(self) -> DreamerLoopState:
        """Untrained, and every environment about to begin."""
        rows = len(self.seeds) * self.per_seed
        learned = concat([self.programs.init(who) for who in self._who])
        zeros = np.zeros(rows)
        streams = Streams(
            latent=self.dreamer.initial_latents(rows),
            action=np.zeros((rows, self.envs.spec.action_dim), np.float32),
            last=np.ones(rows, bool),
            episode=np.full(rows, -1),
            episode_return=zeros,
            episode_length=np.zeros(rows, np.int64),
            total_reward=zeros,
            decisions=np.zeros(rows, np.int64),
        )
        return DreamerLoopState(learned, streams, 0)

    @property
    def starts_at(self) -> int:
        """Records per seed after which learning starts."""
        return self.replays[0].needed(self.dreamer.config.batch_size)

    def mark(self) -> Callable[[], None]:
        """What takes records and updates from now on back. Latents that updates have written stay in the replay."""
        done, marks = self.ratio.state(), [replay.mark() for replay in self.replays]

        def undo() -> None:
            for way_back in marks:
                way_back()
            self.ratio.restore(done)

        return undo

    def practise(self, state: DreamerLoopState, updates: int) -> DreamerLoopState:
        """So many updates on what is recorded, without moving."""
        if not self.replays[0].ready(self.dreamer.config.batch_size):
            raise SombrlError(f"there are too few records to learn from: {self.starts_at} per seed are needed.")
        session = _Session(self, state.learned, new_clock())
        for _ in range(updates):
            session.make_one()
        learned, totals, _ = session.finish()
        refuse_nan({name: np.asarray(values) for name, values in totals.items()}, self.seeds, 0)
        practised: DreamerLoopState = eqx.tree_at(lambda s: s.learned, state, learned)
        return practised

    def iteration(
        self, n: int, state: DreamerLoopState, ticks: int, on_decision: OnDecision
    ) -> tuple[DreamerLoopState, Report]:
        """`ticks` ticks; the replays are written to."""
        clock = new_clock()
        session = _Session(self, state.learned, clock)
        streams = jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, state.streams)
        before, ended = streams.decisions.copy(), []
        answers = self._begin(streams)
        for t in range(ticks):
            with clock("collect"):
                streams, record = self._move(streams, answers)
            with clock("act"):
                streams = self._act(session.learned, state.ticks + t, streams, record)
            if t + 1 < ticks:  # between reports the environments rest: they may be saved there
                answers = self._begin(streams)
            for row in np.flatnonzero(record["last"]):
                ended.append((int(row), float(streams.episode_return[row]), int(streams.episode_length[row])))
            session.update()
            on_decision(t, ticks)
        ended_with, totals, updates = session.finish()
        metrics = {name: np.asarray(values) / max(updates, 1) for name, values in totals.items()}
        metrics["time/updates"] = np.full(len(self.seeds), float(updates))
        refuse_nan(metrics, self.seeds, n)
        metrics = divided(metrics)
        returns, lengths = self._ended(ended)
        taken = self.per_seed_sum(streams.decisions - before)
        decisions, earned = self.per_seed_sum(streams.decisions), self.per_seed_sum(streams.total_reward)
        report = Report(
            iteration=n,
            returns=returns,
            decisions=decisions,
            taken=taken,
            columns={"rollout/ep_len_mean": lengths, "rollout/average_reward": earned / np.maximum(decisions, 1)},
            metrics=metrics,
            seconds=clock.seconds("improve"),
        )
        return DreamerLoopState(ended_with, streams, state.ticks + ticks), report

    def per_seed_sum(self, rows: np.ndarray) -> np.ndarray:
        """Numbers of the environments, summed over those of each seed."""
        return np.asarray(rows.reshape(len(self.seeds), -1).sum(axis=1))

    def _begin(self, streams: Streams) -> Callable[[], Step] | None:
        """Let worker processes set out with the last actions; None where all episodes are over."""
        if streams.last.all():
            return None
        return self.envs.begin_step(executed(streams.action, self.envs.spec.discrete), ~streams.last)

    def _move(self, streams: Streams, answers: Callable[[], Step] | None) -> tuple[Streams, dict[str, Any]]:
        """The next record of every row, but for the action: an answer, or a new start where an episode is over."""
        over, active = streams.last, ~streams.last
        rows = len(over)
        reward, terminal, last = np.zeros(rows), np.zeros(rows, bool), np.zeros(rows, bool)
        obs = None
        if answers is not None:
            step = answers()
            obs = step.obs
            reward = np.where(active, step.reward, 0.0)
            terminal = active & step.terminated
            last = active & (step.terminated | step.truncated)
        episode = streams.episode + over
        if over.any():
            obs = self.envs.reset_rows(over, episode)
        record = {
            "obs": self.layout.split(np.asarray(obs)),
            "reward": reward.astype(np.float32),
            "first": over.copy(),
            "last": last,
            "terminal": terminal,
        }
        streams = Streams(
            latent=streams.latent,
            action=streams.action,
            last=last,
            episode=episode,
            episode_return=np.where(over, 0.0, streams.episode_return) + reward,
            episode_length=np.where(over, 0, streams.episode_length + 1),
            total_reward=streams.total_reward + reward,
            decisions=streams.decisions + active,
        )
        return streams, record

    def _act(self, learned: Sequence[DreamerState], tick: int, streams: Streams, record: dict[str, Any]) -> Streams:
        """Choose the actions after a record, and store it."""
        given = streams.latent, streams.action, record["obs"], record["first"]
        networks = [of_shard.networks for of_shard in learned]
        chosen, latent, deter, stoch = self.programs.choose(networks, self.seeds, tick, given)
        chosen[record["last"]] = 0.0  # nothing follows from it
        rows = record | {"action": chosen, "deter": deter, "stoch": stoch}
        for i, replay in enumerate(self.replays):
            own = slice(i * self.per_seed, (i + 1) * self.per_seed)
            replay.add(jax.tree.map(lambda leaf: leaf[own], rows))  # noqa: B023
        after: Streams = eqx.tree_at(lambda s: (s.latent, s.action), streams, (latent, chosen))
        return after

    def _ended(self, ended: list[tuple[int, float, int]]) -> tuple[np.ndarray, np.ndarray]:
        """Means over the episodes of each seed."""
        found: list[list[tuple[float, int]]] = [[] for _ in self.seeds]
        for row, earned, length in ended:
            found[row // self.per_seed].append((earned, length))
        means = [np.mean(pairs, axis=0) if pairs else np.full(2, np.nan) for pairs in found]
        returns, lengths = np.stack(means, axis=1)
        return returns, lengths

    def replay_state(self) -> dict[str, np.ndarray]:
        """Replays and the count of updates, as plain arrays."""
        arrays = {
            f"replay/{i}/{name}": value
            for i, replay in enumerate(self.replays)
            for name, value in replay.state().items()
        }
        return arrays | {"ratio": self.ratio.state()}

    def restore_replay(self, state: dict[str, np.ndarray]) -> None:
        """Go on from `replay_state`, which is used up."""
        for i, replay in enumerate(self.replays):
            prefix = f"replay/{i}/"
            names = [name for name in state if name.startswith(prefix)]
            replay.restore({name[len(prefix) :]: state.pop(name) for name in names})
        self.ratio.restore(state["ratio"])


class _Session:
    """The updates of one iteration: states on the device, and posteriors on their way back into the replays."""

    def __init__(self, loop: DreamerLoop, learned: DreamerState, clock: Clock):
        self._loop, self._clock = loop, clock
        # Copied, because the caller still holds the last report, and `learn` gives its memory up.
        self.learned = [jax.tree.map(jnp.copy, take(learned, shard)) for shard in loop._shards]
        self._totals: list[Metrics] = []
        self._pending: list[tuple[list[Batch], list[Posteriors]]] = []
        self._updates = 0

    def update(self) -> None:
        """As many updates as are due. Their posteriors are written back one update late, while the next one runs."""
        loop, config = self._loop, self._loop.dreamer.config
        if not loop.replays[0].ready(config.batch_size):
            return
        for _ in range(loop.ratio(loop.replays[0].added * loop.per_seed)):
            self.make_one()

    def make_one(self) -> None:
        """One update of every seed."""
        loop = self._loop
        with self._clock("replay"):
            batches = [replay.sample(loop.dreamer.config.batch_size) for replay in loop.replays]
            sequences = [as_sequences(batches[shard]) for shard in loop._shards]
        results = [
            loop.programs.learn(state, who, own)
            for state, who, own in zip(self.learned, loop._who, sequences, strict=True)
        ]
        _fetch([fresh for _, fresh, _ in results])
        self.learned = [state for state, _, _ in results]
        metrics = [of_shard for _, _, of_shard in results]
        self._totals = _sum(self._totals, metrics) if self._totals else metrics
        self._pending.append((batches, [fresh for _, fresh, _ in results]))
        with self._clock("replay"):
            self._write(keep=1)
        self._updates += 1

    def finish(self) -> tuple[DreamerState, Metrics, int]:
        """Everything written back; the states, the summed metrics and the number of updates."""
        self._write(keep=0)
        totals = concat(self._totals) if self._totals else {}
        return concat(self.learned), totals, self._updates

    def _write(self, keep: int) -> None:
        while len(self._pending) > keep:
            batches, fresh = self._pending.pop(0)
            rows = [
                row for shard in fresh for row in zip(np.asarray(shard.deter), np.asarray(shard.stoch), strict=True)
            ]
            for replay, batch, (deter, stoch) in zip(self._loop.replays, batches, rows, strict=True):
                replay.write_latents(batch, deter, stoch)


def new_clock() -> Clock:
    """The stages of an iteration: environments, acting (and waiting for networks), the replay; the rest is learning.

    What the device does meanwhile is in none of them by itself.
    """
    return Clock("collect", "act", "replay")


def _fetch(arrays: Any) -> None:
    """Let copies to the host begin as soon as the arrays are there, while the device goes on."""
    for leaf in jax.tree.leaves(arrays):
        leaf.copy_to_host_async()


@jax.jit
def _sum(totals: list[Metrics], metrics: list[Metrics]) -> list[Metrics]:
    summed: list[Metrics] = jax.tree.map(jnp.add, totals, metrics)
    return summed


def divided(metrics: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`sum/NAME` over `count/NAME` as `loss/NAME`, NaN where there was nothing to count."""
    names = [name.removeprefix("sum/") for name in metrics if name.startswith("sum/")]
    found = {name: values for name, values in metrics.items() if not name.startswith(("sum/", "count/"))}
    for name in names:
        total, count = metrics[f"sum/{name}"], metrics[f"count/{name}"]
        found[f"loss/{name}"] = np.where(count > 0, total / np.maximum(count, 1e-12), np.nan)
    return found


def executed(actions: np.ndarray, discrete: bool) -> np.ndarray:
    """Actions as environments take them: in [-1, 1]."""
    return actions if discrete else np.clip(actions, -1.0, 1.0)


def as_sequences(batches: Sequence[Batch]) -> Sequences:
    """Batches of several seeds as one, without the context record but for what starts from it."""

    # Images of one seed are not copied once more: a batch of them is 12 MB.
    def together(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)

    def stack(name: str) -> np.ndarray:
        return together([getattr(batch, name) for batch in batches])

    arrays = {
        "obs": {name: together([batch.obs[name][:, 1:] for batch in batches]) for name in batches[0].obs},
        "action": stack("action"),
        **{name: stack(name)[:, :, 1:] for name in ("reward", "first", "last", "terminal")},
        "deter": stack("deter"),
        "stoch": stack("stoch").astype(np.int32),
        "new": stack("new"),
        "positions": stack("positions").astype(np.int32),
    }
    return Sequences(**jax.device_put(arrays))
