"""Dreamer behind the verbs of every agent: learn, predict, evaluate, save, load."""

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from sombrl.agent.agent import EVALUATION_EPISODES, Agent
from sombrl.agent.make import load
from sombrl.config.run import RunConfig
from sombrl.dreamer.config import DreamerConfig
from sombrl.dreamer.dreamer import Dreamer
from sombrl.dreamer.foresight import CONTEXT, coloured, film, foresee
from sombrl.dreamer.loop import (
    DreamerLoop,
    DreamerLoopState,
    DreamerPrograms,
    DreamerReport,
    as_sequences,
    executed,
)
from sombrl.dreamer.replay import GIB, check_memory, least_records
from sombrl.dreamer.rssm import Latent
from sombrl.dreamer.start import check_source, same_world, take_networks
from sombrl.envs.base import AbstractEnvs
from sombrl.records import AbstractTask, SombrlError
from sombrl.seeds import cut
from sombrl.storage import checkpoint
from sombrl.storage.program_cache import keep_programs
from sombrl.storage.run_folder import RunFolder

FILMED = 4  # sequences beside each other
FILMED_FRAMES = 500  # of an episode, its last ones
SEED_STRIDE = 1000  # environment e of seed s has the seed s + SEED_STRIDE e
NOISE_STRIDE = 30_000  # decisions that an episode may have before its noise is that of the next; Atari's have 27000
NETWORK = 2  # raised when the same weights come to mean another network; before 2, --cnn paper pooled
ATARI_RATIO = {"atari100k": 256.0, "atari200m": 32.0}  # published


@dataclasses.dataclass(frozen=True)
class Remembered:
    """What `predict` carries from one call to the next."""

    latent: Latent
    action: np.ndarray
    decision: int
    stream: int  # of random numbers: another for every episode


class DreamerAgent(Agent):
    """Dreamer on an environment, for one or several seeds."""

    checkpoint_every = 10  # each holds the whole replay
    rewinds = False  # latents that updates have written stay in it

    def __init__(self, algorithm: str, config: DreamerConfig, run_config: RunConfig, env: Any = None):
        keep_programs()
        if run_config.setting not in ("finite-horizon", "unsupervised"):
            raise SombrlError(
                f"dreamer learns from episodes with a discount of its own: leave out --setting {run_config.setting}."
            )
        if run_config.setting == "unsupervised" and config.explore.explore != "unsupervised":
            raise SombrlError("--setting unsupervised has no task to be optimistic about: add --explore unsupervised.")
        if run_config.downstream:
            raise SombrlError(
                "dreamer knows no --downstream tasks: explore without them, then train for each with --start-from RUN."
            )
        self.algorithm, self.run_config = algorithm, run_config
        self._env = env
        self.seeds = run_config.seed_list
        if env is None and run_config.env.startswith("atari:") and config.ratio is None:
            protocol = run_config.env_options.get("protocol", "atari100k")
            config = dataclasses.replace(config, ratio=ATARI_RATIO.get(protocol))
        if config.start_from is not None:  # whoever resumes may do so from another folder
            config = dataclasses.replace(config, start_from=str(Path(config.start_from).expanduser().resolve()))
        self.config = config
        self._taken = 0  # records per seed from another run
        self.envs = self.make_envs()
        spec = self.envs.spec
        self.setting = run_config.make_setting(spec.episode_length)
        self.layout = self.envs.spec.obs_layout
        self.dreamer = Dreamer(config, self.layout.parts, spec.action_dim, spec.discrete)
        self._sampler = DreamerPrograms.of(self.dreamer)
        self._chooser = DreamerPrograms.of(self.dreamer, sample=False)
        self._foresee = jax.jit(functools.partial(foresee, self.dreamer))
        self.loop = DreamerLoop(self.dreamer, self._sampler, self.envs, self.seeds, self.capacity)
        check_memory(len(self.seeds) * self.loop.replays[0].nbytes_full)
        self.loop.starts_at  # noqa: B018  (refuses a capacity that never suffices)
        self._env_state: dict[str, np.ndarray] | None = None
        self.iteration = 0
        self.notes: list[str] = []
        self._learned: DreamerLoopState | None = None
        self._shown: np.ndarray | None = None
        self._prepared = config.start_from is None
        self._zero_shot: np.ndarray | None = None
        self._streams = 0  # of random numbers, that `predict` has begun

    # ------------------------------------------------------------------------------------------ learn

    @property
    def opening(self) -> list[str]:
        """What to know before it starts: how large it is, when it learns, and the memory it will take."""
        config, replay = self.dreamer.config, self.loop.replays[0]
        networks = jax.eval_shape(lambda: self.dreamer.init(key=jax.random.key(0))).networks
        number = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(networks) if hasattr(leaf, "shape"))
        starts, planned = self.loop.starts_at, self._planned_decisions
        full = len(self.seeds) * replay.nbytes_full / GIB
        updates = max(0, planned - starts) * (config.ratio or 0.0) / (config.batch_size * config.batch_length)
        never = f", which this run of {planned} decisions does not reach" if starts > planned else ""
        return [
            f"size {config.size}, {number / 1e6:.1f} million parameters per seed; replay ratio {config.ratio:g}, "
            f"about {updates:.0f} updates, {config.envs} environments per seed",
            f"learning starts after {starts} records per seed{never}; a full replay takes {full:.1f} GiB",
        ] + ([f"{self._taken} records per seed are those of {self.config.start_from}"] if self._taken else [])

    @property
    def online(self) -> bool:
        """It learns while an episode goes on."""
        return True

    def iterations(  # type: ignore[override]
        self, until: int, on_decision: Callable[[int, int], None] = lambda decision, length: None
    ) -> Iterator[DreamerReport]:
        """Train up to iteration `until`, a report at a time; the agent is at the end of that iteration."""
        self.prepare()
        if self.iteration == 0 and self.config.start_updates and self._zero_shot is None:
            self._learned = self.loop.practise(self.state, self.config.start_updates)
            self._zero_shot = self.evaluate(self.run_config.eval_episodes).mean(axis=0)
        self.place_envs()
        while self.iteration < until:
            self.take_back()
            now = self.iteration  # one at a time: between two of them an evaluation may have cost an episode
            report = self.loop.iteration(now, self.state, self.ticks, on_decision)
            at, simulators = now + 1, self.envs.get_state()
            # One statement: a signal that comes in between would leave the replay newer than the rest, or older.
            self._learned, self.iteration, self._env_state, self.loop.marks = report.state, at, simulators, []
            yield report

    def place_envs(self) -> None:
        """Bring the environments to where the last iteration left them.

        An episode that an evaluation has interrupted and that cannot be replayed is abandoned, and the next one begins.
        """
        try:
            super().place_envs()
        except SombrlError:
            if not self._lent:
                raise
            over = np.ones_like(self.state.streams.last)
            self._learned = eqx.tree_at(lambda s: s.streams.last, self.state, over)
            self._env_state, self._lent = None, False
            print(
                f"sombrl: {self.envs.spec.name} was moved by an evaluation and cannot be put back, so its episode is "
                "abandoned and the next one begins: give a function that makes environments instead of a ready one.",
                file=sys.stderr,
            )

    def prepare(self) -> None:
        """Take over what `start_from` has, before the first iteration."""
        path = self.config.start_from
        if path is None or self._prepared:
            return
        source = load(path)
        try:
            if not isinstance(source, DreamerAgent):
                raise SombrlError(f"{path} is a run of {source.algorithm}: --start-from needs one of dreamer.")
            check_source(self, source, path)
            same = same_world(self, source)
            if self.config.start_updates and not same:
                raise SombrlError(f"{path} has records of another environment: leave out --start-updates.")
            state, number = self.loop.initial(), len(self.seeds)
            networks = take_networks(state.learned.networks, source.state.learned.networks, number, same)
            if same:
                replays = source.loop.replays[:number]
                self._taken = (replays[0].added - replays[0].oldest) * self.config.envs
                self._grow()
                for ours, theirs in zip(self.loop.replays, replays, strict=True):
                    ours.adopt(theirs)
        finally:
            source.envs.close()
        self._learned, self._prepared = eqx.tree_at(lambda s: s.learned.networks, state, networks), True

    def _grow(self) -> None:
        for replay in self.loop.replays:
            replay.grow(self.capacity)
        check_memory(len(self.seeds) * self.loop.replays[0].nbytes_full)

    @property
    def has_policy(self) -> bool:
        """It learns one."""
        return True

    @property
    def trained(self) -> str:
        """How long it was trained, in words."""
        return f"{self.state.streams.decisions.reshape(len(self.seeds), -1).sum(axis=1).max()} decisions"

    @property
    def ticks(self) -> int:
        """Records of every environment in an iteration."""
        return max(1, self.run_config.report_every // self.config.envs)

    @property
    def window(self) -> int:
        """Decisions of a seed in an iteration, at most: those that begin episodes are none."""
        return self.ticks * self.config.envs

    @property
    def capacity(self) -> int:
        """Records per seed: no more than the run can fill, but enough to learn from."""
        config = self.config
        least = least_records(config.envs, config.batch_size, config.batch_length)
        return min(config.capacity, max(least, self._taken + self.planned_iterations * self.window))

    def rows(self, report: DreamerReport) -> list[dict[str, Any]]:  # type: ignore[override]
        """One metrics row per seed. Everything but the `time/` fields is reproducible."""
        streams, repeat = report.state.streams, self.envs.spec.action_repeat
        zero_shot = self._zero_shot if report.iteration == 0 else None
        decisions = streams.decisions.reshape(len(self.seeds), -1).sum(axis=1)
        earned = streams.total_reward.reshape(len(self.seeds), -1).sum(axis=1)
        seconds = sum(report.seconds.values())
        return [
            {
                "iteration": report.iteration,
                "seed": seed,
                "decisions": int(decisions[i]),
                "env_frames": int(decisions[i]) * repeat,
                "rollout/ep_rew_mean": float(report.returns[i]),
                "rollout/ep_len_mean": float(report.lengths[i]),
                **({} if zero_shot is None else {"eval/zero_shot": float(zero_shot[i])}),
                "rollout/average_reward": float(earned[i] / max(decisions[i], 1)),
                **{name: float(values[i]) for name, values in report.metrics.items()},
                "time/fps": float(report.decisions.sum() / seconds),
                **{f"time/{stage}_s": value for stage, value in report.seconds.items()},
            }
            for i, seed in enumerate(self.seeds)
        ]

    def reward_warning(self, report: DreamerReport) -> str | None:  # type: ignore[override]
        """Two-hot targets bear any scale, so there is nothing to warn of."""
        return None

    def summary(self, report: DreamerReport) -> dict[str, Any]:  # type: ignore[override]
        """What the progress line shows. Where no episode ended since the last one, the return before that stays."""
        names = {
            "bonus_weight": "explore/bonus_weight",
            "mean_std": "explore/mean_std",
            "bonus_share": "explore/bonus_share",
            "model_loss": "model/loss",
        }
        return {
            "iteration": report.iteration,
            "return": self.latest_returns(report.returns),
            **{name: report.metrics[metric] for name, metric in names.items() if metric in report.metrics},
            "decisions_per_s": report.decisions.sum() / sum(report.seconds.values()),
        }

    # -------------------------------------------------------------------------------------------- act

    def predict(  # type: ignore[override]
        self,
        observation: Any,
        state: Remembered | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, Remembered]:
        """The action (in the environment's own units) of the first seed's agent, as in Stable-Baselines3.

        `observation`: what the environment gives, one or a batch of them. Dreamer remembers what it saw: hand `state`
        back with the next call, and say where episodes start. `deterministic` takes the likeliest action.
        """
        obs, single = self.layout.rows(observation)
        rows = len(obs)
        if state is None or len(state.action) != rows:
            self._streams += not deterministic
            state, first = self._fresh(rows, 0 if deterministic else self._streams), np.ones(rows, bool)
        else:
            first = np.zeros(rows, bool) if episode_start is None else np.asarray(episode_start, bool)
        programs = self._chooser if deterministic else self._sampler
        one = jax.tree.map(lambda leaf: leaf[:1], self.state.learned.networks)
        action, state = self._choose(programs, one, self.seeds[:1], state, obs, first)
        scaled = self.envs.physical(executed(action, self.envs.spec.discrete))
        return (scaled[0, ...] if single else scaled), state

    def evaluate(
        self,
        episodes: int,
        *,
        explore: bool = False,
        task: str | AbstractTask | None = None,
        on_step: Callable[[AbstractEnvs, int], None] | None = None,
    ) -> np.ndarray:
        """Returns of whole episodes, [episodes, seeds], on fresh environments and starts never trained on.

        The likeliest actions, or sampled ones, as in training, when `explore`.
        """
        if episodes < 1:
            raise SombrlError(f"evaluate needs at least 1 episode, not {episodes}.")
        if task is not None:
            raise SombrlError("dreamer's policy is for the task it was trained on: leave out the task.")
        programs = self._sampler if explore else self._chooser
        envs = self._make(self.seeds, render=on_step is not None)
        self.lend(envs)
        networks, found = self.state.learned.networks, []
        try:
            for stream in range(episodes):
                state, total = self._fresh(len(self.seeds), stream), np.zeros(len(self.seeds))
                obs = envs.reset(EVALUATION_EPISODES + stream)
                first, active = np.ones(len(self.seeds), bool), np.ones(len(self.seeds), bool)
                while active.any():
                    action, state = self._choose(programs, networks, self.seeds, state, obs, first)
                    step = envs.step(executed(action, envs.spec.discrete), active)
                    total += np.where(active, step.reward, 0.0)
                    active &= ~(step.terminated | step.truncated)
                    obs, first = step.obs, np.zeros_like(first)
                    if on_step:
                        on_step(envs, state.decision - 1)
                found.append(total)
        finally:
            if self._env is None:
                envs.close()
        return np.stack(found)

    def max_uncertainty(self, episodes: int) -> np.ndarray:
        """Refused: it takes a planner."""
        raise SombrlError(
            "max_uncertainty plans for σ alone, and dreamer does not plan: train with --explore unsupervised, and read "
            "explore/imagined_std in the metrics."
        )

    def films(self) -> dict[str, list[np.ndarray]]:
        """What the first seed's first environment saw in its last episode, and `foresight`; empty without images."""
        image = self._image
        seen = None if image is None else self.loop.replays[0].last_episode(image, FILMED_FRAMES)
        films = {"episode": None if seen is None else list(coloured(seen)), "foresight": self.foresight()}
        return {name: frames for name, frames in films.items() if frames}

    def foresight(self) -> list[np.ndarray] | None:
        """Frames of what the first seed's model expects, beside what was recorded last; None without images.

        Nothing of the training is touched.
        """
        image, length = self._image, self.config.batch_length
        if image is None or length <= CONTEXT or self.loop.replays[0].added <= length:
            return None
        batch = self.loop.replays[0].latest(FILMED, CONTEXT)
        sequences = jax.tree.map(lambda leaf: leaf[0], as_sequences([batch]))
        networks = jax.tree.map(lambda leaf: leaf[0], self.state.learned.networks)
        expected = self._foresee(networks, sequences, key=jax.random.key(self.seeds[0]))
        return film(batch.obs[image][:, 1:], np.asarray(expected[image]))

    @property
    def _image(self) -> str | None:
        """The first part of an observation that is a picture."""
        return next((part.name for part in self.layout.parts if part.kind == "image"), None)

    def _fresh(self, rows: int, stream: int) -> Remembered:
        nothing = np.zeros((rows, self.envs.spec.action_dim), np.float32)
        return Remembered(self.dreamer.initial_latents(rows), nothing, 0, stream)

    def _choose(
        self,
        programs: DreamerPrograms,
        networks: Any,
        seeds: list[int],
        state: Remembered,
        obs: np.ndarray,
        first: np.ndarray,
    ) -> tuple[np.ndarray, Remembered]:
        """Actions of `len(obs)` rows, the same number for every seed."""
        given = state.latent, state.action, self.layout.split(obs), first
        by_lot = [cut(networks, lot) for lot in programs.lots(len(seeds))]
        now = (EVALUATION_EPISODES + state.stream * NOISE_STRIDE + state.decision) % 2**31
        chosen, latent, _, _ = programs.choose(by_lot, seeds, now, given)
        return chosen, Remembered(latent, chosen, state.decision + 1, state.stream)

    # ------------------------------------------------------------------------------------ save and load

    @property
    def state(self) -> DreamerLoopState:  # type: ignore[override]
        """All that was learned, but for the replay."""
        if self._learned is None:
            self._learned = self.loop.initial()
        return self._learned

    def save_checkpoint(self, folder: RunFolder) -> None:
        """Commit the state after the last finished iteration, the replay and the simulators in it."""
        self.loop.rewind()
        free = self.loop.replay_state()
        free |= {f"envs/{name}": value for name, value in (self._env_state or {}).items()}
        meta = {"iteration": self.iteration, "taken": self._taken, "network": NETWORK}
        checkpoint.save(folder.checkpoints, self.iteration, self.state, meta, free=free)

    def restore(self, folder: RunFolder) -> "DreamerAgent":
        """Take over the newest whole checkpoint of a run; what was damaged is told in `notes`."""
        self._learned, meta, self.notes = folder.load_latest(self.state)
        if meta.get("network", 1) != NETWORK and self._image is not None and self.dreamer.config.cnn == "paper":
            raise SombrlError(
                f"{folder.path} has a network that pools images where --cnn paper has strides now, so its weights mean "
                "nothing here: train it anew, or use the version of sombrl that made it."
            )
        self.iteration, free, self._prepared = meta["iteration"], meta["free"], True
        self._taken = meta.get("taken", 0)
        simulators = {name[5:]: free.pop(name) for name in list(free) if name.startswith("envs/")}
        self._env_state = simulators or None
        rows, ring, _ = free["replay/0/shape"].tolist()
        for replay in self.loop.replays:
            replay.grow(rows * ring)  # it may have taken over the records of another run
        self.loop.restore_replay(free)
        return self

    def make_envs(self, render: bool = False, endless: bool | None = None) -> AbstractEnvs:
        """Environments for training, `envs` of them for each seed."""
        seeds = [seed + SEED_STRIDE * e for seed in self.seeds for e in range(self.config.envs)]
        workers = self.run_config.env_workers
        return self._make(seeds, render=render, workers=workers, restart=workers > 0)

    @property
    def _action_repeat(self) -> int | None:
        """As given; the protocol `head` does not repeat in the Control Suite."""
        head = self.config.protocol == "head" and self._env is None and self.run_config.env.startswith("dmc")
        return 1 if head and self.run_config.action_repeat is None else self.run_config.action_repeat
