"""The Python API, with the verbs people know: learn, predict, evaluate, save, load.

agent = sombrl.GPICEM("Pendulum-v1", explore="optimistic", seed=0)
agent.learn(2000, progress=True)
action, state = agent.predict(obs)
agent.save("runs/pendulum");  agent = sombrl.load("runs/pendulum")
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sombrl.algorithms import ALGORITHMS
from sombrl.config.json import to_json
from sombrl.config.run import RunConfig
from sombrl.config.suggestions import nearest
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.registry import make_envs
from sombrl.exploration import greedy, unsupervised
from sombrl.records import AbstractTask, SombrlError
from sombrl.seeds import role_keys
from sombrl.settings import FiniteHorizon, Unsupervised
from sombrl.storage import checkpoint
from sombrl.storage.program_cache import keep_programs
from sombrl.storage.run_folder import RunFolder
from sombrl.training.episodic import ROLES, Chunk, Compiled, LoopState, Report, collect, initial_state, run
from sombrl.training.lockstep import iterate
from sombrl.training.online import Programs
from sombrl.training.progress import Progress

REWARD_SCALE = (1e-4, 1e3)
"""The largest reward of a decision should be above the first, the root mean square below the second."""
EVALUATION_EPISODES = 1_000_000  # evaluation meets starts that no training episode has


class PredictState(eqx.Module):
    """What `predict` carries from one call to the next: a planner's warm start per environment."""

    controller: Any
    decision: jax.Array


class Agent:
    """An algorithm on an environment, for one or several seeds. `sombrl.GPICEM` and its siblings make these."""

    checkpoint_every = 1
    """Iterations between checkpoints, unless a run says otherwise."""
    rewinds = True
    """Whether an iteration that did not come to its end can be taken back to the bit."""
    _lent = False
    """Whether an evaluation has moved the training's own simulator: there is one ready environment only."""

    def __init__(self, algorithm: str, config: Any, run_config: RunConfig, env: Any = None):
        if algorithm not in ALGORITHMS:
            raise nearest(algorithm, ALGORITHMS, "algorithm")
        keep_programs()
        self.algorithm, self.config, self.run_config = algorithm, config, run_config
        self._env = env  # an object instead of a name: then `load` must be given it again
        self.seeds = run_config.seed_list
        self.envs = self.make_envs()
        self.setting = run_config.make_setting(self.envs.spec.episode_length)
        build = ALGORITHMS[algorithm].build
        if build is None:
            raise SombrlError(f"{algorithm} has agents of its own: make one with sombrl.make or sombrl.load.")
        self.parts = build(config, self.envs, self.setting)
        for name in run_config.downstream:
            self.downstream_task(name)
        self._env_state: dict[str, np.ndarray] | None = None  # where a trajectory without resets was left
        self.iteration = 0
        self.notes: list[str] = []
        self._state: LoopState | None = None
        self._compiled: dict[str, Compiled] = {}
        self._programs: Programs | None = None
        self._shown: np.ndarray | None = None  # the returns that the progress line has
        self._evaluators: AbstractEnvs | None = None
        self._predicting: tuple[tuple[str, int, int], Any] | None = None
        self._fitted_state: tuple[int, Any] | None = None

    # ------------------------------------------------------------------------------------------ learn

    def learn(
        self,
        total_decisions: int,
        *,
        progress: bool = False,
        callback: Callable[["Agent", Report], bool | None] | None = None,
    ) -> "Agent":
        """Train for `total_decisions` more decisions per seed, rounded up to whole episodes (or chunks).

        `callback(agent, report)` is called after every episode; training stops when it returns False.
        """
        if total_decisions < 1:
            raise SombrlError(f"learn needs at least 1 decision, not {total_decisions}.")
        until = self.iteration + math.ceil(total_decisions / self.window)
        self._make_room(until)
        with Progress(until, self.label, len(self.seeds)) if progress else _Silent() as shown:
            for report in self.iterations(until, on_decision=shown.decision):
                shown.iteration(self.summary(report))
                if callback is not None and callback(self, report) is False:
                    break
        return self

    def _make_room(self, until: int) -> None:
        """Plan for so many iterations, where fewer were planned: the replay is made for what is planned."""
        if not self.online or until <= self.planned_iterations:
            return
        self.run_config = dataclasses.replace(self.run_config, decisions=until * self.window)
        self._grow()

    def _grow(self) -> None:
        """Have a replay of the size that is planned now."""
        state = self._state
        if state is not None and state.replay.data.reward.shape[-1] < self.capacity:
            self._state = eqx.tree_at(lambda s: s.replay, state, state.replay.grown(self.capacity))

    def prepare(self) -> None:
        """Whatever a new run needs before its first iteration, and can be refused for."""

    def iterations(
        self, until: int, on_decision: Callable[[int, int], None] = lambda decision, length: None
    ) -> Iterator[Report]:
        """Train up to iteration `until`, a report at a time; the agent is at the end of that iteration."""
        if self.online:
            for (report,) in iterate([self], until, on_decision):
                yield report
            return
        self.place_envs()
        reports = run(
            *(self.envs, self.parts.learner, self.parts.exploration, self.parts.controller, self.setting),
            seeds=self.seeds,
            num_iterations=until,
            capacity=self.capacity,
            resume=None if self._state is None else (self.iteration, self._state),
            compiled=self._parts_for("explore"),
            on_decision=on_decision,
        )
        for report in reports:
            self.advance(report)
            yield report
            if self.iteration < until:
                self.take_back()

    def place_envs(self) -> None:
        """Bring the environments to where the last iteration left them."""
        if self._env_state is not None:
            self.envs.set_state(self._env_state)
        self._lent = False

    def take_back(self) -> None:
        """Go on with the environments where they were, whatever was evaluated since the last report."""
        if not self._lent:
            return
        try:
            self.place_envs()
        except SombrlError as error:
            raise SombrlError(
                f"{str(error).rstrip('.')}; evaluate has moved it, so give a function that makes environments instead "
                "of a ready one."
            ) from error

    def lend(self, envs: AbstractEnvs) -> None:
        """Note that an evaluation moves `envs`, which may be the training's own."""
        if self._env is None:
            return
        ours, theirs = ([env.unwrapped for env in getattr(lot, "envs", [])] for lot in (self.envs, envs))
        self._lent |= any(one is other for one in ours for other in theirs)

    def advance(self, report: Report) -> None:
        """Be at the end of the report's iteration."""
        # An episode that is saved half-way must be found there again.
        half_way = self.online or not self.setting.resets
        simulators = self.envs.get_state() if half_way else None
        # One statement: a signal that comes in between would leave one newer than the others.
        self._state, self.iteration, self._env_state = report.state, report.iteration + 1, simulators

    @property
    def programs(self) -> Programs:
        """The compiled parts of a decision, for algorithms that learn at every one."""
        if self._programs is None:
            self._programs = Programs.of(self.envs, self.parts.learner, self.parts.controller, self.setting)
        return self._programs

    @property
    def opening(self) -> list[str]:
        """Lines for whoever starts a run, where there is something to know beforehand."""
        return []

    @property
    def online(self) -> bool:
        """Whether it learns at every decision, instead of between episodes."""
        return self.parts.online

    @property
    def has_policy(self) -> bool:
        """Whether it acts by a policy that it learned, instead of planning."""
        return self.parts.controller.learns

    def row_of(self, seed: int) -> int:
        """Which of the agents side by side has this seed."""
        if seed not in self.seeds:
            raise SombrlError(f"there is no seed {seed} in this run: it has {', '.join(map(str, self.seeds))}.")
        return self.seeds.index(seed)

    @property
    def trained(self) -> str:
        """How long it was trained, in words."""
        return (
            _plural(int(np.max(self.state.replay.added)), "decision")
            if self.online
            else _plural(self.iteration, "episode")
        )

    @property
    def window(self) -> int:
        """Decisions of an iteration, at most."""
        return self.run_config.report_every if self.online else self.setting.longest

    @property
    def planned_iterations(self) -> int:
        """How many iterations the run is to have."""
        run_config = self.run_config
        if not self.online:
            if run_config.decisions is not None:
                raise SombrlError(f"{self.algorithm} learns between episodes: give --episodes, not --decisions.")
            return run_config.episodes
        return math.ceil(self._planned_decisions / self.window)

    @property
    def _planned_decisions(self) -> int:
        given = self.run_config.decisions
        return self.run_config.episodes * self.envs.spec.episode_length if given is None else given

    @property
    def capacity(self) -> int:
        """Rows of replay per seed: no more than the run can fill."""
        if not self.online:
            return self.parts.capacity
        return min(self.parts.capacity, self.planned_iterations * self.window)

    def evaluation_due(self) -> bool:
        """Whether the last iteration has crossed a multiple of `eval_every` decisions."""
        every = self.run_config.eval_every
        return every > 0 and self.iteration * self.window % every < self.window

    def rows(self, report: Report) -> list[dict[str, Any]]:
        """One metrics row per seed. Everything but the `time/` fields is reproducible."""
        decisions = np.asarray(report.state.replay.added)
        lengths = report.chunk.valid.sum(axis=1)
        seconds = sum(report.seconds.values())
        return [
            {
                "iteration": report.iteration,
                "seed": seed,
                "decisions": int(decisions[i]),
                "env_frames": int(decisions[i]) * self.envs.spec.action_repeat,
                "rollout/ep_rew_mean": float(report.chunk.returns[i]),
                **({} if self.online else {"rollout/ep_len_mean": int(lengths[i])}),
                "rollout/average_reward": float(report.state.total_reward[i] / max(decisions[i], 1)),
                **self._setting_row(report, i),
                **{name: float(values[i]) for name, values in report.metrics.items()},
                "time/fps": float(lengths.sum() / seconds),
                **{f"time/{stage}_s": value for stage, value in report.seconds.items()},
            }
            for i, seed in enumerate(self.seeds)
        ]

    def reward_warning(self, report: Report) -> str | None:
        """A sentence, where a policy is trained on rewards that critics cannot learn; None otherwise."""
        rewards = np.abs(np.asarray(report.chunk.transitions.reward)[report.chunk.valid])
        largest, typical = float(rewards.max()), float(np.sqrt(np.mean(rewards**2)))
        if not self.online or largest == 0 or (typical < REWARD_SCALE[1] and largest > REWARD_SCALE[0]):
            return None
        return (
            f"the rewards of {self.envs.spec.name} are {typical:.3g} in size (root mean square of a decision; largest "
            f"{largest:.3g}), and critics learn best between 0.01 and 10: scale them in the environment."
        )

    def _setting_row(self, report: Report, i: int) -> dict[str, float]:
        """What is reported in some settings only."""
        if self.setting.discount < 1:
            rewards = np.asarray(report.chunk.transitions.reward[i], np.float64) * report.chunk.valid[i]
            return {"rollout/discounted_return": float(rewards @ self.setting.discount ** np.arange(len(rewards)))}
        optimal = self.envs.spec.optimal_average
        if self.setting.resets or optimal is None:
            return {}
        decisions = int(report.state.replay.added[i])
        return {"rollout/regret": float(decisions * optimal - report.state.total_reward[i])}

    def summary(self, report: Report) -> dict[str, Any]:
        """What the progress line shows."""
        return {
            "iteration": report.iteration,
            "return": self.latest_returns(report.chunk.returns),
            "bonus_weight": report.metrics["explore/bonus_weight"],
            "mean_std": report.metrics["explore/mean_std"],
            "bonus_share": report.metrics["explore/bonus_share"],
            "model_loss": report.metrics["model/nll"],
            "decisions_per_s": report.chunk.valid.sum() / sum(report.seconds.values()),
        }

    def latest_returns(self, returns: np.ndarray) -> list[float]:
        """A number per seed for the progress line: where no episode ended since the last one, that before stays."""
        self._shown = np.where(np.isnan(returns), np.nan if self._shown is None else self._shown, returns)
        return self._shown.tolist()

    # -------------------------------------------------------------------------------------------- act

    def predict(
        self,
        observation: np.ndarray,
        state: PredictState | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, PredictState]:
        """The action (in the environment's own units) of the first seed's agent, as in Stable-Baselines3.

        `deterministic` plans for the task alone under the mean model; otherwise as in training. Takes one
        observation or a batch of them; hand `state` back with the next call so that plans are warm-started.
        """
        obs, single = self.envs.spec.obs_layout.rows(observation)
        compiled, mdp, fresh, keys = self._predictor("predict" if deterministic else "explore", len(obs))
        if state is None or state.decision.shape[0] != len(obs):
            state = fresh
        elif episode_start is not None and np.any(episode_start):
            starts = jnp.asarray(episode_start, bool)
            state = jax.tree.map(
                lambda new, old: jnp.where(jnp.reshape(starts, (-1, *[1] * (old.ndim - 1))), new, old), fresh, state
            )
        action, controller = compiled.act(
            state.controller, mdp, jnp.asarray(obs), keys, state.decision, jnp.ones(len(obs), bool)
        )
        state = PredictState(controller, state.decision + 1)
        scaled = self.envs.physical(np.asarray(action))
        return (scaled[0] if single else scaled), state

    def evaluate(
        self,
        episodes: int,
        *,
        explore: bool = False,
        task: str | AbstractTask | None = None,
        on_step: Callable[[AbstractEnvs, int], None] | None = None,
    ) -> np.ndarray:
        """Returns of whole episodes, [episodes, seeds], on fresh environments and starts never trained on.

        Plans for the task alone under the mean model, or with the exploration strategy when `explore`. A `task`, one
        of the environment's downstream tasks by name or any other, is planned for and paid instead of its own:
        zero-shot, because the model knows the dynamics already. Training state and randomness are not touched.
        `on_step(envs, decision)` sees the environments.
        """
        if episodes < 1:
            raise SombrlError(f"evaluate needs at least 1 episode, not {episodes}.")
        if explore and task is not None:
            raise SombrlError("a downstream task is planned for without exploring: leave out explore, or the task.")
        compiled = self._parts_for("explore" if explore else "predict", task)
        task = self.downstream_task(task) if isinstance(task, str) else task
        chunks = self._episodes(compiled, self._imagine(compiled), episodes, on_step)
        return np.stack([chunk.returns if task is None else _paid(task, chunk) for chunk in chunks])

    def films(self) -> dict[str, list[np.ndarray]]:
        """Films of the training by name, where there are pictures to see."""
        return {}

    def foresight(self) -> list[np.ndarray] | None:
        """Frames of what the model expects beside what was seen, where it predicts pictures; None elsewhere."""
        return None

    def max_uncertainty(self, episodes: int) -> np.ndarray:
        """Σ*_N, the largest Σ‖σ_N‖ that a policy meets in an episode, [episodes, seeds]: how much is left to learn.

        The policy is the planner's for ‖σ_N‖ alone, on the model fitted to all data; so this is a lower estimate.
        """
        if episodes < 1:
            raise SombrlError(f"max_uncertainty needs at least 1 episode, not {episodes}.")
        compiled = self._parts_for("uncertainty")
        mdp, learner_state = self._imagine(compiled), self._fitted()
        chunks = self._episodes(compiled, mdp, episodes)
        visited = [compiled.diagnose(learner_state, mdp, chunk.transitions, chunk.valid) for chunk in chunks]
        return np.stack([np.asarray(metrics["explore/uncertainty"]) for metrics in visited])

    def _episodes(
        self,
        compiled: Compiled,
        mdp: Any,
        episodes: int,
        on_step: Callable[[AbstractEnvs, int], None] | None = None,
    ) -> Iterator[Chunk]:
        """Whole episodes of the newest posterior, on fresh environments and starts never trained on."""
        envs = self._evaluation_envs(render=on_step is not None)
        self.lend(envs)
        setting, learner_state = FiniteHorizon(envs.spec.episode_length), self._fitted()
        start_key = role_keys(self.seeds, EVALUATION_EPISODES, ("start",))["start"]
        # A planner starts afresh; a policy is what was learned.
        controller = self.state.controller if self.parts.controller.learns else compiled.start(mdp, start_key)
        try:
            for episode in range(EVALUATION_EPISODES, EVALUATION_EPISODES + episodes):
                act_key = role_keys(self.seeds, episode, ("act",))["act"]
                watch = (lambda t, length: on_step(envs, t)) if on_step else (lambda t, length: None)
                chunk, controller = collect(
                    *(envs, compiled, learner_state, mdp, controller, setting, act_key),
                    iteration=episode,
                    on_decision=watch,
                )
                yield chunk
        finally:
            if self._env is None and envs is not self._evaluators:  # a ready environment is the user's, and shared
                envs.close()

    def _evaluation_envs(self, render: bool) -> AbstractEnvs:
        """Environments with a time limit. Worker processes are kept from one evaluation to the next."""
        if render or self._env is not None or not self.run_config.env_workers:
            return self.make_envs(render=render, endless=False)
        if self._evaluators is None:
            self._evaluators = self.make_envs(endless=False)
        return self._evaluators

    def _predictor(self, purpose: str, copies: int) -> tuple[Compiled, Any, PredictState, jax.Array]:
        """What `predict` needs for `copies` environments; kept until there is more data or another number of them."""
        wanted = (purpose, copies, self.iteration)
        if self._predicting is None or self._predicting[0] != wanted:
            compiled = self._parts_for(purpose)
            mdp = self._imagine(compiled, row=0, copies=copies)
            key = role_keys([self.seeds[0]] * copies, EVALUATION_EPISODES, ("start", "act"))
            if self.parts.controller.learns:
                controller = jax.tree.map(lambda leaf: jnp.repeat(leaf[:1], copies, axis=0), self.state.controller)
            else:
                controller = compiled.start(mdp, key["start"])
            fresh = PredictState(controller, jnp.zeros(copies, jnp.int32))
            self._predicting = wanted, (compiled, mdp, fresh, key["act"])
        return self._predicting[1]

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

    def _parts_for(self, purpose: str, task: str | AbstractTask | None = None) -> Compiled:
        """Compiled once per purpose and name: "explore" as in training, "predict" for a task, "uncertainty" for σ."""
        name = purpose if task is None else f"{purpose} {task}" if isinstance(task, str) else None
        if name in self._compiled:
            return self._compiled[name]
        task = self.downstream_task(task) if isinstance(task, str) else task
        purposes = {"explore": self.parts.exploration, "predict": greedy(), "uncertainty": unsupervised()}
        setting = self.setting
        if purpose == "predict" and isinstance(setting, Unsupervised):
            setting = setting.base
        learner, controller = self.parts.learner, self.parts.controller
        controller = controller if purpose == "explore" else controller.for_evaluation()
        compiled = Compiled.of(self.envs, learner, purposes[purpose], controller, setting, task)
        if name is not None:
            self._compiled[name] = compiled
        return compiled

    def _imagine(self, compiled: Compiled, row: int | None = None, copies: int = 1):
        """The newest posterior, fitted to all data, as an MDP: for all seeds, or `copies` of one row."""
        learner = self._fitted()
        seeds = self.seeds
        if row is not None:
            with jax.enable_x64(True):  # float64 leaves stay so
                learner = jax.tree.map(lambda leaf: jnp.repeat(leaf[row : row + 1], copies, axis=0), learner)
            seeds = [self.seeds[row]] * copies
        key = role_keys(seeds, EVALUATION_EPISODES, ("imagine",))["imagine"]
        return compiled.imagine(learner, jnp.full(len(seeds), self.iteration, jnp.int32), key)

    def _fitted(self):
        """The learner's state with the last episode's data in it, as the next iteration would have it."""
        if self.parts.controller.learns:
            return self.state.learner  # the one that the policy was learned with
        if self._fitted_state is None or self._fitted_state[0] != self.iteration:
            key = role_keys(self.seeds, self.iteration, ROLES)["fit"]
            fitted, _ = self._parts_for("explore").fit(self.state.learner, self.state.replay, key)
            self._fitted_state = self.iteration, fitted
        return self._fitted_state[1]

    # ------------------------------------------------------------------------------------ save and load

    @property
    def state(self) -> LoopState:
        """All that was learned; the prior before any training."""
        if self._state is None:
            self._state = initial_state(self.envs, self._parts_for("explore"), self.seeds, self.capacity)
        return self._state

    def save(self, path: str | Path) -> None:
        """Write a new run folder with this agent in it; `sombrl.load`, `sombrl resume` and `eval` read it."""
        self.prepare()  # what is loaded again is prepared
        self.save_checkpoint(RunFolder.create(Path(path), self.to_json(), ["Agent.save"]))

    def save_checkpoint(self, folder: RunFolder) -> None:
        """Commit the state after the last finished iteration."""
        meta = {"iteration": self.iteration}
        checkpoint.save(folder.checkpoints, self.iteration, self.state, meta, free=self._env_state)

    def restore(self, folder: RunFolder) -> "Agent":
        """Take over the newest whole checkpoint of a run; what was damaged is told in `notes`."""
        self._state, meta, self.notes = folder.load_latest(self.state)
        self.iteration, self._env_state = meta["iteration"], meta.get("free")
        return self

    def to_json(self) -> dict[str, Any]:
        """The resolved configuration, as in a run's config.json."""
        return {
            "algorithm": self.algorithm,
            "config": to_json(self.config),
            "run": to_json(self.run_config),
            "env_is_object": self._env is not None,
        }

    @property
    def label(self) -> str:
        """A line that says what this is."""
        explore = self.config.explore.explore
        return f"{self.algorithm} · {self.envs.spec.name} · {explore}"

    def make_envs(self, render: bool = False, endless: bool | None = None) -> AbstractEnvs:
        """Fresh environments like the training ones; `endless` overrides whether they have a time limit."""
        endless = self.run_config.endless if endless is None else endless
        workers = 0 if render else self.run_config.env_workers
        return self._make(self.seeds, render=render, endless=endless, workers=workers)

    def _make(self, seeds: list[int], **options: Any) -> AbstractEnvs:
        run_config = self.run_config
        return make_envs(
            run_config.env if self._env is None else self._env,
            seeds,
            env_kwargs=run_config.env_options,
            action_repeat=self._action_repeat,
            action_cost=run_config.action_cost,
            episode_length=run_config.episode_length,
            **options,
        )

    @property
    def _action_repeat(self) -> int | None:
        return self.run_config.action_repeat


def _plural(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _paid(task: AbstractTask, chunk: Chunk) -> np.ndarray:
    """What `task` pays for the decisions of a chunk, [seeds]."""
    rows = chunk.transitions
    rewards = jax.vmap(jax.vmap(task.reward))(rows.obs, rows.action, rows.next_obs)
    return np.sum(np.asarray(rewards, np.float64) * chunk.valid, axis=1)


class _Silent:
    """A progress display that shows nothing."""

    def __enter__(self) -> "_Silent":
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def decision(self, t: int, length: int) -> None:
        pass

    def iteration(self, summary: dict[str, Any]) -> None:
        pass
