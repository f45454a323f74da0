"""Dreamer as a trainer: an iteration is so many records of every environment, with the updates they are due."""

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import numpy as np

from sombrl.config.run import RunConfig
from sombrl.dreamer.calibration import calibration
from sombrl.dreamer.config import DreamerConfig
from sombrl.dreamer.dreamer import Dreamer
from sombrl.dreamer.foresight import CONTEXT, coloured, film, foresee
from sombrl.dreamer.imagined import latent_imagination
from sombrl.dreamer.loop import DreamerLoop, DreamerLoopState, DreamerPrograms, as_sequences
from sombrl.dreamer.policy import LatentPolicy
from sombrl.dreamer.replay import GIB, check_memory, least_records
from sombrl.dreamer.start import check_source, same_world, take_networks
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.maker import EnvMaker
from sombrl.errors import SombrlError
from sombrl.records import AbstractTask
from sombrl.seeds import over_seeds
from sombrl.training.base import Committed, Mode, OnDecision, Policy, Proposal, Snapshot, Trainer
from sombrl.training.bounds import check_evaluated
from sombrl.training.imagined import ImaginedEnvs

FILMED = 4  # sequences beside each other
FILMED_FRAMES = 500  # of an episode, its last ones
SEED_STRIDE = 1000  # environment e of seed s has the seed s + SEED_STRIDE e
NETWORK = 2  # raised when the same weights come to mean another network; before 2, --cnn paper pooled
ATARI_RATIO = {"atari100k": 256.0, "atari200m": 32.0}  # published


class DreamerTrainer(Trainer[DreamerLoopState]):
    """Trains Dreamer for one or several seeds."""

    exact_rewind: ClassVar[bool] = False  # latents that updates have written stay in the replay
    checkpoint_every: ClassVar[int] = 10  # each holds the whole replay
    counts: ClassVar[Literal["episodes", "decisions"]] = "decisions"
    learns_policy = True

    def __init__(self, config: DreamerConfig, run: RunConfig, maker: EnvMaker):
        _check_run(config, run)
        config = _resolved(config, run, maker)
        control_suite = not maker.is_object and run.env.startswith("dmc")
        if config.protocol == "head" and control_suite and run.action_repeat is None:
            maker = dataclasses.replace(maker, action_repeat=1)  # this protocol does not repeat actions
        # Environment by environment, the seeds of all training environments.
        seeds = [seed + SEED_STRIDE * e for seed in run.seed_list for e in range(config.envs)]
        envs = maker.make(seeds, workers=run.env_workers, restart=run.env_workers > 0)
        super().__init__(config, run, maker, envs, run.make_setting(envs.spec.episode_length))
        self.layout = envs.spec.obs_layout
        self.dreamer = Dreamer(config, self.layout.parts, envs.spec.action_dim, envs.spec.discrete)
        self._taken = 0  # records per seed from another run
        self.loop = DreamerLoop(self.dreamer, DreamerPrograms.of(self.dreamer), envs, self.seeds, self.capacity)
        check_memory(len(self.seeds) * self.loop.replays[0].nbytes_full)
        self.loop.starts_at  # noqa: B018  (refuses a capacity that never suffices)
        self._foresee = jax.jit(functools.partial(foresee, self.dreamer))
        self._prepared = config.start_from is None
        self._streams = 0  # of random numbers, that `predict` has begun

    def _initial(self) -> DreamerLoopState:
        return self.loop.initial()

    # ------------------------------------------------------------------------------------------- training

    def propose(self, on_decision: OnDecision) -> Proposal[DreamerLoopState]:
        """So many ticks; the first iteration of a run that starts from another may practise beforehand."""
        n, state, zero_shot = self.iteration, self.state, None
        self._undo = self.loop.mark()
        if n == 0 and self.config.start_updates:
            state = self.loop.practise(state, self.config.start_updates)
            zero_shot = self._returns_of(self._policy("task", state), self.run.eval_episodes).mean(axis=0)
        state, report = self.loop.iteration(n, state, self.ticks, on_decision)
        if zero_shot is not None:
            lengths, *others = report.columns.items()
            columns = dict([lengths, ("eval/zero_shot", zero_shot), *others])
            report = dataclasses.replace(report, columns=columns)
        return Proposal(report, Committed(n + 1, state, self.envs.get_state()))

    def envs_lost(self, error: SombrlError) -> Committed[DreamerLoopState]:
        """Abandon the episode that was interrupted: the next one begins."""
        print(
            f"sombrl: {self.envs.spec.name} was moved by an evaluation and cannot be put back, so its episode is "
            "abandoned and the next one begins: give a function that makes environments instead of a ready one.",
            file=sys.stderr,
        )
        over = np.ones_like(self.state.streams.last)
        return Committed(self.iteration, eqx.tree_at(lambda s: s.streams.last, self.state, over), None)

    def prepare(self, open_run: Callable[[str], Trainer[Any]]) -> None:
        """Take over what `start_from` has, before the first iteration."""
        path = self.config.start_from
        if path is None or self._prepared:
            return
        source = open_run(path)
        try:
            if not isinstance(source, DreamerTrainer):
                raise SombrlError(f"{path} is not a run of dreamer: --start-from needs one.")
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
        self.replace_state(eqx.tree_at(lambda s: s.learned.networks, state, networks))
        self._prepared = True

    # ---------------------------------------------------------------------------------------- how long it is

    @property
    def ticks(self) -> int:
        """Records of every environment in an iteration."""
        return int(max(1, self.run.report_every // self.config.envs))

    @property
    def window(self) -> int:
        """Decisions of a seed in an iteration, at most: records that begin episodes have none."""
        return int(self.ticks * self.config.envs)

    @property
    def capacity(self) -> int:
        """Records per seed: no more than the run can fill, but enough to learn from."""
        config = self.config
        least = least_records(config.envs, config.batch_size, config.batch_length)
        return int(min(config.capacity, max(least, self._taken + self.planned_iterations * self.window)))

    def _grow(self) -> None:
        for replay in self.loop.replays:
            replay.grow(self.capacity)
        check_memory(len(self.seeds) * self.loop.replays[0].nbytes_full)

    @property
    def trained(self) -> str:
        """In decisions."""
        return f"{self.loop.per_seed_sum(self.state.streams.decisions).max()} decisions"

    def opening(self) -> list[str]:
        """How large it is, when it learns, and the memory it will take."""
        config, replay = self.dreamer.config, self.loop.replays[0]
        networks = jax.eval_shape(lambda: self.dreamer.init(key=jax.random.key(0))).networks
        number = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(networks) if hasattr(leaf, "shape"))
        starts, planned = self.loop.starts_at, self.planned_decisions
        full = len(self.seeds) * replay.nbytes_full / GIB
        updates = max(0, planned - starts) * (config.ratio or 0.0) / (config.batch_size * config.batch_length)
        never = f", which this run of {planned} decisions does not reach" if starts > planned else ""
        return [
            f"size {config.size}, {number / 1e6:.1f} million parameters per seed; replay ratio {config.ratio:g}, "
            f"about {updates:.0f} updates, {config.envs} environments per seed",
            f"learning starts after {starts} records per seed{never}; a full replay takes {full:.1f} GiB",
        ] + ([f"{self._taken} records per seed are those of {self.config.start_from}"] if self._taken else [])

    # ------------------------------------------------------------------------------------------- acting

    def policy(self, mode: Mode = "task", rows: Sequence[int] | None = None) -> LatentPolicy:
        """The likeliest actions for the task, or sampled ones, as in training, to explore."""
        if isinstance(mode, AbstractTask):
            raise SombrlError("dreamer's policy is for the task it was trained on: leave out the task.")
        if mode == "uncertainty":
            raise SombrlError(
                "max_uncertainty plans for σ alone, and dreamer does not plan: train with --explore unsupervised, and "
                "read explore/imagined_std in the metrics."
            )
        return self._policy(mode, self.state, rows)

    def imagined(self, envs: AbstractEnvs, policy: Policy | None) -> tuple[Policy, ImaginedEnvs]:
        """Latent imagination, with its own actor alone: there are no observations that another policy could see."""
        if policy is not None:
            raise SombrlError("dreamer imagines latent states, which another policy cannot see: leave out the policy.")
        if not self.config.explore.curious or self.config.explore.sigma == "log":
            raise SombrlError(
                "bounds need an ensemble that disagrees: train with --explore optimistic, and --sigma mean-std or norm."
            )
        return latent_imagination(self.dreamer, self.state.learned.networks, self.seeds, envs)

    def calibration(self, episodes: int) -> dict[str, np.ndarray]:
        """Rank correlations of σ with errors of one step, on episodes that nothing was learned from."""
        if not self.config.explore.curious:
            raise SombrlError("--explore greedy has no ensemble, so there is no σ to compare with errors.")
        policy = self._policy("explore", self.state)
        with self._evaluation_envs(render=False) as envs:
            return calibration(self.dreamer, self.state.learned.networks, policy, envs, episodes)

    def bound_weight(self, origin: Literal["run", "theory"]) -> np.ndarray:
        """λ as it is tuned now; there is no theorem for it."""
        if origin == "theory" or self.config.explore.explore != "optimistic":
            raise SombrlError(
                "dreamer has the λ of --explore optimistic and no theorem's: give factor or calibrated (--factor 1, "
                "--calibrated 0.9)."
            )
        weights = over_seeds(lambda state: self.dreamer.weights(state)[0])
        return np.asarray(weights(self.state.learned))

    def _policy(self, mode: Mode, state: DreamerLoopState, rows: Sequence[int] | None = None) -> LatentPolicy:
        networks, seeds = state.learned.networks, self.seeds
        if rows is not None:
            networks = jax.tree.map(lambda leaf: leaf[np.asarray(rows)], networks)
            seeds = [self.seeds[row] for row in rows]
        new_stream = self._new_stream if mode == "explore" else lambda: 0  # the likeliest action has no noise
        return LatentPolicy(mode, self.dreamer, self.layout, networks, seeds, new_stream)

    def _new_stream(self) -> int:
        self._streams += 1
        return self._streams

    def films(self) -> dict[str, list[np.ndarray]]:
        """What the first seed's first environment saw in its last episode, and `foresight`; empty without images."""
        image = self.image
        seen = None if image is None else self.loop.replays[0].last_episode(image, FILMED_FRAMES)
        films = {"episode": None if seen is None else list(coloured(seen)), "foresight": self.foresight()}
        return {name: frames for name, frames in films.items() if frames}

    def foresight(self) -> list[np.ndarray] | None:
        """Frames of what the first seed's model expects, beside what was recorded last; None without images.

        Nothing of the training is touched.
        """
        image, length = self.image, self.config.batch_length
        if image is None or length <= CONTEXT or self.loop.replays[0].added <= length:
            return None
        batch = self.loop.replays[0].latest(FILMED, CONTEXT)
        sequences = jax.tree.map(lambda leaf: leaf[0], as_sequences([batch]))
        networks = jax.tree.map(lambda leaf: leaf[0], self.state.learned.networks)
        expected = self._foresee(networks, sequences, key=jax.random.key(self.seeds[0]))
        return film(batch.obs[image][:, 1:], np.asarray(expected[image]))

    @property
    def image(self) -> str | None:
        """The first part of an observation that is a picture."""
        return next((part.name for part in self.layout.parts if part.kind == "image"), None)

    # ------------------------------------------------------------------------------------ save and restore

    def snapshot(self) -> Snapshot:
        """The end of the last iteration, the replay and the simulators in it."""
        self.rewind()
        free = self.loop.replay_state()
        free |= {f"envs/{name}": value for name, value in (self._now.simulators or {}).items()}
        meta = {"iteration": self.iteration, "taken": self._taken, "network": NETWORK}
        return Snapshot(self.state, meta, free)

    def restore(self, load: Callable[[Callable[[], Any]], tuple[Any, dict[str, Any]]]) -> None:
        """Go on from a checkpoint."""
        state, meta = load(lambda: self.state)
        if meta.get("network", 1) != NETWORK and self.image is not None and self.dreamer.config.cnn == "paper":
            raise SombrlError(
                "this checkpoint has a network that pools images where --cnn paper has strides now, so its weights "
                "mean nothing here: train it anew, or use the version of sombrl that made it."
            )
        free, self._taken, self._prepared = meta["free"], meta.get("taken", 0), True
        simulators = {name[5:]: free.pop(name) for name in list(free) if name.startswith("envs/")}
        rows, ring, _ = free["replay/0/shape"].tolist()
        for replay in self.loop.replays:
            replay.grow(rows * ring)  # it may have taken over the records of another run
        self.loop.restore_replay(free)
        self._now, self._placed = Committed(meta["iteration"], state, simulators or None), False


def _check_run(config: DreamerConfig, run: RunConfig) -> None:
    """Refuse settings that are not Dreamer's."""
    if run.setting not in ("finite-horizon", "unsupervised"):
        raise SombrlError(
            f"dreamer learns from episodes with a discount of its own: leave out --setting {run.setting}."
        )
    if run.record_bounds:
        check_evaluated(run)
    if run.setting == "unsupervised" and config.explore.explore != "unsupervised":
        raise SombrlError("--setting unsupervised has no task to be optimistic about: add --explore unsupervised.")
    if run.downstream:
        raise SombrlError(
            "dreamer knows no --downstream tasks: explore without them, then train for each with --start-from RUN."
        )


def _resolved(config: DreamerConfig, run: RunConfig, maker: EnvMaker) -> DreamerConfig:
    """With what the environment decides, and a path that holds from every folder."""
    if not maker.is_object and run.env.startswith("atari:") and config.ratio is None:
        config = dataclasses.replace(config, ratio=ATARI_RATIO.get(run.env_options.get("protocol", "atari100k")))
    if config.start_from is not None:
        config = dataclasses.replace(config, start_from=str(Path(config.start_from).expanduser().resolve()))
    return config
