"""The Python API, with the verbs people know: learn, predict, evaluate, save, load.

agent = sombrl.GPICEM("Pendulum-v1", explore="optimistic", seed=0)
agent.learn(2000, progress=True)
action, state = agent.predict(obs)
agent.save("runs/pendulum");  agent = sombrl.load("runs/pendulum")
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.algorithms import ALGORITHMS
from sombrl.config.binding import LENGTH, OF_A_PART, require_same
from sombrl.config.check import shown
from sombrl.config.json import to_json
from sombrl.config.run import RunConfig
from sombrl.config.suggestions import nearest
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.maker import EnvMaker
from sombrl.envs.trust import NO_WORD, Word
from sombrl.errors import SombrlError
from sombrl.optional import first_line
from sombrl.records import AbstractTask
from sombrl.storage import checkpoint
from sombrl.storage.program_cache import keep_programs
from sombrl.storage.run_folder import RunFolder
from sombrl.training import report as reports
from sombrl.training.base import Mode, OnDecision, Report, Trainer, ignore
from sombrl.training.play import OnStep
from sombrl.training.progress import Progress

SETTINGS = "settings"
"""Where a checkpoint's metadata have the configuration that it belongs to."""


@dataclasses.dataclass(frozen=True)
class PredictState:
    """What `predict` carries from one call to the next."""

    mode: Mode
    rows: int
    memory: Any
    """The policy's own: a planner's warm start, or what a recurrent model has seen."""

    @property
    def decision(self) -> Any:
        """How many decisions each environment is in its episode."""
        return self.memory.decision


class Agent:
    """An algorithm on an environment, for one or several seeds. `sombrl.GPICEM` and its siblings make these."""

    def __init__(self, algorithm: str, config: Any, run_config: RunConfig, env: Any = None, *, word: Word = NO_WORD):
        """`env` is an object in place of the name in `run_config`; then `load` must be given it again.

        `word` is what the user has said about code that other runs name, which this one may begin from.
        """
        if algorithm not in ALGORITHMS:
            raise nearest(algorithm, ALGORITHMS, "algorithm")
        keep_programs()
        self.algorithm = algorithm
        # The caller who made this agent has named its environment; beside an object, the name is only a file's.
        named = {run_config.env} if env is None else frozenset[str]()
        self._word = dataclasses.replace(word, named=word.named | named)
        self.trainer: Trainer[Any] = ALGORITHMS[algorithm].make_trainer(
            config, run_config, EnvMaker.of(run_config, env)
        )
        for name in run_config.downstream:
            self.downstream_task(name)
        self.notes: list[str] = []
        """What was odd about the checkpoint that was loaded."""

    # ------------------------------------------------------------------------------------------ learn

    def learn(
        self,
        total_decisions: int,
        *,
        progress: bool = False,
        callback: Callable[["Agent", Any], bool | None] | None = None,
    ) -> "Agent":
        """Train for `total_decisions` more decisions per seed, rounded up to whole iterations.

        An iteration is an episode, or a chunk, of planners, and `report_every` decisions of the others.
        `callback(agent, report)` is called after each; training stops when it returns False.
        """
        _require_count("learn", "decisions", total_decisions)
        until = self.iteration + math.ceil(total_decisions / self.window)
        self.trainer.reserve(until)
        with contextlib.ExitStack() as stack:
            shown = stack.enter_context(Progress(until, self.label, len(self.seeds))) if progress else None
            for report in self.iterations(until, on_decision=shown.decision if shown else ignore):
                if shown:
                    shown.iteration(reports.summary([report]))
                if callback is not None and callback(self, report) is False:
                    break
        return self

    def iterations(self, until: int, on_decision: OnDecision = ignore) -> Iterator[Report]:
        """Train up to iteration `until`, a report at a time; the agent is at the end of that iteration."""
        self.prepare()
        self.trainer.envs_may_have_moved()
        while self.iteration < until:
            yield self.trainer.iterate(on_decision)

    def prepare(self) -> None:
        """Do what comes before the first iteration and can be refused."""
        from sombrl.agent.make import load_with

        self.trainer.prepare(lambda path: load_with(self._word, path).trainer)

    def rows(self, report: Report) -> list[dict[str, Any]]:
        """One row of metrics per seed. Everything but the `time/` fields is reproducible."""
        return reports.rows(report, self.seeds, self.envs.spec)

    # -------------------------------------------------------------------------------------------- act

    def predict(
        self,
        observation: Any,
        state: PredictState | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = True,
        plan: str | None = None,
    ) -> tuple[np.ndarray, PredictState]:
        """The action, in the environment's own units, of the first seed's agent, as in Stable-Baselines3.

        `deterministic` acts for the task alone, by the mean model or the policy's likeliest action; otherwise as in
        training. `plan` is mppi or icem for short plans from the policy of mbpo, none for the policy alone; default: as
        trained. Takes one observation or a batch of them. Hand `state` back with the next call, and say where
        episodes start: plans are warm-started, and recurrent models remember what they saw.
        """
        obs, single = self.envs.spec.obs_layout.rows(observation)
        mode: Mode = "task" if deterministic else "explore"
        policy = self.trainer.policy(mode, (0,)) if plan is None else self.trainer.planned_policy(plan, mode, (0,))
        first = np.zeros(len(obs), bool) if episode_start is None else np.asarray(episode_start, bool)
        if state is None or (state.mode, state.rows) != (policy.mode, len(obs)):
            state, first = PredictState(policy.mode, len(obs), policy.begin(len(obs))), np.ones(len(obs), bool)
        action, memory = policy.act(state.memory, obs, first)
        scaled = self.envs.physical(action)
        return (scaled[0, ...] if single else scaled), dataclasses.replace(state, memory=memory)

    def evaluate(
        self,
        episodes: int,
        *,
        explore: bool = False,
        task: str | AbstractTask | None = None,
        plan: str | None = None,
        on_step: OnStep | None = None,
    ) -> np.ndarray:
        """Returns of whole episodes, [episodes, seeds], on fresh environments and starts never trained on.

        Acts for the task alone, or as in training when `explore`. A `task`, one of the environment's downstream tasks
        by name or any other, is planned for and paid instead of its own: zero-shot, because the model knows the
        dynamics already. `plan` as for `predict`. Training is not touched. `on_step(envs, decision)` sees the
        environments.
        """
        _require_count("evaluate", "episodes", episodes)
        if explore and task is not None:
            raise SombrlError("a downstream task is planned for without exploring: leave out explore, or the task.")
        mode: Mode = "explore" if explore else "task"
        if task is not None:
            mode = self.downstream_task(task) if isinstance(task, str) else task
        return self.trainer.returns(mode, episodes, on_step=on_step, plan=plan)

    def max_uncertainty(self, episodes: int) -> np.ndarray:
        """Σ*_N, the largest Σ‖σ_N‖ that a policy meets in an episode, [episodes, seeds]: how much is left to learn.

        The policy is the planner's for ‖σ_N‖ alone, on the model fitted to all data, so this is a lower estimate; an
        agent that learns a policy plays that one.
        """
        _require_count("max_uncertainty", "episodes", episodes)
        return self.trainer.uncertainty(episodes)

    def downstream_task(self, name: str) -> AbstractTask:
        """The environment's downstream task of that name."""
        tasks = self.envs.downstream
        if not tasks:
            raise SombrlError(
                f"{self.envs.spec.name} has no downstream tasks: give evaluate(task=...) one of your own."
            )
        if name not in tasks:
            raise nearest(name, tasks, "downstream task")
        return tasks[name]

    # ------------------------------------------------------------------------------------ save and load

    def save(self, path: str | Path) -> None:
        """Write a new run folder with this agent in it; `sombrl.load`, `sombrl resume` and `eval` read it."""
        self.prepare()  # what is loaded again is prepared
        self.save_checkpoint(RunFolder.create(Path(path), self.to_json(), ["Agent.save"]))

    def save_checkpoint(self, folder: RunFolder) -> None:
        """Commit the state after the last finished iteration."""
        snapshot = self.trainer.snapshot()
        meta = snapshot.meta | {SETTINGS: self.to_json()}
        checkpoint.save(folder.checkpoints, self.iteration, snapshot.tree, meta, free=snapshot.free)

    def restore(self, folder: RunFolder, *, bound: bool = False) -> "Agent":
        """Go on from the newest whole checkpoint of a run; what was damaged is told in `notes`.

        `bound`: refuse one that was made with other settings than this agent's, as `load` does. Otherwise it is enough
        that the arrays fit: an agent that plans with more samples can take over what another has learned.
        """

        def accept(path: Path, meta: dict[str, Any]) -> None:
            if meta.get("iteration") != int(path.name[-8:]):  # somebody has signed it anew
                raise checkpoint.Damaged(path, f"manifest.json: its iteration is {shown(meta.get('iteration'))}")
            if bound:
                self.require_saved(folder.path, meta, of_a_part=bool(folder.parts))

        def load(make_like: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
            later = checkpoint.Later(make_like)
            tree, meta, self.notes = folder.load_latest(later, accept=accept, outline=self.trainer.outline())
            return tree, meta

        try:
            self.trainer.restore(load)
        except (KeyError, IndexError, ValueError, TypeError, OverflowError) as error:
            raise SombrlError(
                f"the checkpoint of {folder.path} does not hold what {self.algorithm} saves ({first_line(error)}): "
                "restore it from a copy."
            ) from error
        return self

    def require_saved(self, run: Path, meta: dict[str, Any], *, of_a_part: bool = False) -> None:
        """Refuse a checkpoint of a run, or of a part of one, that was made with other settings than this agent's."""
        if (saved := meta.get(SETTINGS)) is not None:  # checkpoints of earlier versions have none
            require_same(run, saved, self.to_json(), (*LENGTH, *(OF_A_PART if of_a_part else ())))

    def to_json(self) -> dict[str, Any]:
        """The resolved configuration, as in a run's config.json."""
        return {
            "algorithm": self.algorithm,
            "config": to_json(self.config),
            "run": to_json(self.run_config),
            "env_is_object": self.trainer.maker.is_object,
        }

    # ------------------------------------------------------------------------------------------ what it is

    @property
    def config(self) -> Any:
        """The algorithm's configuration."""
        return self.trainer.config

    @property
    def run_config(self) -> RunConfig:
        """The run's configuration; `learn` makes the run longer than planned where it must."""
        return self.trainer.run

    @property
    def envs(self) -> AbstractEnvs:
        """The environments of the training."""
        return self.trainer.envs

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order of every seed axis."""
        return self.trainer.seeds

    @property
    def state(self) -> Any:
        """All that was learned; untrained before any training. Every leaf has a leading seed axis."""
        return self.trainer.state

    @property
    def iteration(self) -> int:
        """Finished iterations."""
        return self.trainer.iteration

    @property
    def window(self) -> int:
        """Decisions of an iteration, at most."""
        return self.trainer.window

    @property
    def planned_iterations(self) -> int:
        """How many iterations the run is to have."""
        return self.trainer.planned_iterations

    @property
    def label(self) -> str:
        """A line that says what this is."""
        return f"{self.algorithm} · {self.envs.spec.name} · {self.config.explore.explore}"

    def row_of(self, seed: int) -> int:
        """Which row of the seed axis a seed has."""
        if seed not in self.seeds:
            raise SombrlError(f"there is no seed {seed} in this run: it has {', '.join(map(str, self.seeds))}.")
        return self.seeds.index(seed)


def _require_count(method: str, of: str, number: Any) -> None:
    if not isinstance(number, int | np.integer) or number < 1:
        raise SombrlError(f"{method} needs a whole number of {of}, at least 1, not {number!r}.")
