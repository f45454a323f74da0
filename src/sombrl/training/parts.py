"""What the planners' loop and the online loop share: parts that are swapped freely, and policies made of them."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sombrl.config.run import RunConfig
from sombrl.config.suggestions import nearest
from sombrl.controllers.base import AbstractController
from sombrl.dynamics.base import AbstractInformed, AbstractLearner
from sombrl.dynamics.none import NoLearner
from sombrl.envs.base import AbstractEnvs, EnvSpec
from sombrl.envs.maker import EnvMaker
from sombrl.errors import SombrlError
from sombrl.exploration import EpistemicNorm, greedy, theoretical, unsupervised
from sombrl.exploration.base import Exploration, ImaginedMDP
from sombrl.records import AbstractTask, Transition
from sombrl.replay import Replay
from sombrl.seeds import over_seeds, role_keys
from sombrl.settings import Setting, Unsupervised
from sombrl.storage.run_folder import is_run
from sombrl.training.base import EVALUATION_EPISODES, Mode, Policy, Trainer, refuse_model, refuse_plan
from sombrl.training.bounds import check_evaluated
from sombrl.training.compiled import ROLES, Compiled, LoopState, Program, initial_state
from sombrl.training.imagined import ImaginedEnvs, Moved, Starts
from sombrl.training.origin import (
    Origin,
    digest,
    replay_with,
    require_same_world,
    rows_of_file,
    rows_of_run,
    take_over,
)
from sombrl.training.safety import Safety


@dataclasses.dataclass(frozen=True)
class Parts:
    """What the loops run."""

    learner: AbstractLearner
    exploration: Exploration
    controller: AbstractController
    capacity: int  # rows of replay per seed
    online: bool = False  # learns at every decision (online.py) instead of between episodes (episodic.py)
    random_episodes: int = 0  # the first ones, with random actions
    plans: Mapping[str, AbstractController] = dataclasses.field(default_factory=dict)
    """Controllers with the same state that may act in place of the one that is trained, by their name for --plan."""
    safety: Safety | None = None  # where costs are looked at
    start_point: bool = False  # begin with one transition: at rest without an action, nothing changes


class PartsTrainer(Trainer[LoopState]):
    """Trains parts; what is left to subclasses is the loop."""

    def __init__(
        self, config: Any, run: RunConfig, maker: EnvMaker, envs: AbstractEnvs, setting: Setting, parts: Parts
    ):
        super().__init__(config, run, maker, envs, setting)
        check_bounds(run, parts)
        self.parts = parts
        self.learns_policy = parts.controller.learns
        self._compiled: dict[Any, Compiled] = {}
        self._fitted_at: tuple[int, Any] | None = None
        self._policy_at: tuple[Any, ControllerPolicy] | None = None
        self._evaluators: AbstractEnvs | None = None  # worker processes stay from one evaluation to the next
        self._prepared = False

    @property
    def capacity(self) -> int:
        """Rows of replay per seed."""
        return self.parts.capacity

    @property
    def given(self) -> np.ndarray:
        """Transitions of the replay, per seed, that were there before the first iteration."""
        return np.array(self.origin.rows if self.origin else [0] * len(self.seeds))

    def prepare(self, open_run: Callable[[str], Trainer[Any]]) -> None:
        """Take over what `--start-from` names, before the first iteration."""
        path = getattr(self.config, "start_from", None)
        if path is not None and not self._prepared and self.iteration == 0:
            self._start_from(path, open_run)
        self._prepared = True

    def _start_from(self, path: str, open_run: Callable[[str], Trainer[Any]]) -> None:
        """The data of a run or a file; of a run of the same algorithm what it has learned as well."""
        source: PartsTrainer | None = None
        if is_run(path):
            source = self.source(path, open_run)
            source.envs.close()
            rows = rows_of_run(source)
            if len(rows) < len(self.seeds):
                raise SombrlError(f"{path} has {len(rows)} seeds, too few for --seeds {len(self.seeds)}.")
            rows = rows[: len(self.seeds)]
        else:
            rows = [rows_of_file(path, self, self.parts.capacity)] * len(self.seeds)
        numbers = tuple(one.number for one in rows)
        if max(numbers) > self.parts.capacity:
            raise SombrlError(
                f"{path} has {max(numbers)} transitions, more than the {self.parts.capacity} there is room for: raise "
                "--capacity (--gp.capacity)."
            )
        self.origin = Origin(path, digest(rows), numbers)
        self._now = dataclasses.replace(self._now, state=None)  # its replay has another size now
        state = dataclasses.replace(self.state, replay=replay_with(rows, self.capacity, numbers))
        if source is not None and type(source.config) is type(self.config):
            learned = take_over(self.parts.controller, state, source.state, len(self.seeds), path)
            state = dataclasses.replace(state, learner=learned[0], controller=learned[1])
        self.replace_state(state)

    def source(self, path: str, open_run: Callable[[str], Trainer[Any]]) -> "PartsTrainer":
        """The trainer of another run on the same environment."""
        source = open_run(path)
        if not isinstance(source, PartsTrainer):
            source.envs.close()
            raise SombrlError(f"{path} is a run of dreamer, whose records are of another kind: export-replay it first.")
        require_same_world(self, source, path)
        return source

    def restore(self, load: Callable[[Callable[[], Any]], tuple[Any, dict[str, Any]]]) -> None:
        """Go on from a checkpoint, which has in it what the run began with."""
        super().restore(load)
        self._prepared = True

    def opening(self) -> list[str]:
        """What it begins with."""
        if self.origin is None:
            return []
        held = f", of which {self.origin.held_out} are held out" if self.origin.held_out else ""
        return [f"begins with {max(self.origin.rows)} transitions per seed of {self.origin.path}{held}"]

    def _initial(self) -> LoopState:
        return initial_state(self.envs, self.compiled("explore"), self.seeds, self.capacity, self.parts.safety)

    @property
    def plan(self) -> str | None:
        """The name of its own controller among the plans."""
        return next((name for name, one in self.parts.plans.items() if one is self.parts.controller), None)

    def compiled(self, mode: Mode, plan: str | None = None) -> Compiled:
        """The parts, compiled for a mode; kept, but for a task that is not the environment's.

        `plan` names the controller, where that is not the trained one.
        """
        known = isinstance(mode, str) or any(mode is task for task in self.envs.downstream.values())
        name = mode if isinstance(mode, str) else id(mode)
        if known and (name, plan) in self._compiled:
            return self._compiled[name, plan]
        task = mode if isinstance(mode, AbstractTask) else None
        exploration, setting = self.parts.exploration, self.setting
        controller = self.parts.controller if plan is None else self.parts.plans[plan]
        if name != "explore":
            exploration = unsupervised() if name == "uncertainty" else greedy()
            controller = controller.for_evaluation()
        if name not in ("explore", "uncertainty") and isinstance(setting, Unsupervised):
            setting = setting.base
        safety = self.parts.safety
        compiled = Compiled.of(self.envs, self.parts.learner, exploration, controller, setting, task, safety)
        if known:
            self._compiled[name, plan] = compiled
        return compiled

    def policy(self, mode: Mode = "task", rows: Sequence[int] | None = None) -> "ControllerPolicy":
        """Plans with the model fitted to all data, or acts by the policy that was learned."""
        return self._policy(mode, rows, None)

    def planned_policy(self, plan: str, mode: Mode = "task", rows: Sequence[int] | None = None) -> "ControllerPolicy":
        """The policy that was learned, with short plans or without, however it was trained."""
        if not self.parts.plans:
            raise refuse_plan()
        if plan not in self.parts.plans:
            raise nearest(plan, self.parts.plans, "plan")
        return self._policy(mode, rows, None if plan == self.plan else plan)

    def _policy(self, mode: Mode, rows: Sequence[int] | None, plan: str | None) -> "ControllerPolicy":
        of_rows = None if rows is None else tuple(rows)
        wanted = (mode if isinstance(mode, str) else id(mode), of_rows, plan, self.iteration)
        if self._policy_at is None or self._policy_at[0] != wanted:
            learner, controller, replay, seeds = self._fitted(), None, None, self.seeds
            compiled = self.compiled(mode, plan)
            scale = compiled.scale(learner, self.state.replay)
            if self.learns_policy:
                controller = self.state.controller
            elif self.parts.controller.learns_from_data:
                replay = self.state.replay
            if rows is not None:
                seeds = [self.seeds[row] for row in rows]
                learner, controller, replay, scale = _rows((learner, controller, replay, scale), np.asarray(rows))
            made = ControllerPolicy(mode, compiled, learner, controller, seeds, self.iteration, scale, replay)
            self._policy_at = wanted, made
        return self._policy_at[1]

    def _fitted(self) -> Any:
        """The learner's state with the last episode's data in it, as the next iteration will have it."""
        if self.learns_policy:
            return self.state.learner  # the one that the policy was learned with
        if self._fitted_at is None or self._fitted_at[0] != self.iteration:
            key = role_keys(self.seeds, self.iteration, ROLES)["fit"]
            fitted, _ = self.compiled("explore").fit(self.state.learner, self.state.replay, key)
            self._fitted_at = self.iteration, fitted
        return self._fitted_at[1]

    # ------------------------------------------------------------------------------------------- imagining

    def imagined(self, envs: AbstractEnvs, policy: Policy | None) -> tuple[Policy, ImaginedEnvs]:
        """The model as the next iteration will have it."""
        if isinstance(self.parts.learner, NoLearner):
            raise refuse_model()
        learner, iteration = self._fitted(), self.iteration
        acting = self.policy("task") if policy is None else policy
        return acting, self.imagined_with(learner, iteration, envs.spec, envs.reset_rows)

    def imagined_with(self, learner: Any, iteration: int, spec: EnvSpec, starts: Starts) -> ImaginedEnvs:
        """A model as environments."""
        number = jnp.full(len(self.seeds), iteration, jnp.int32)
        key = role_keys(self.seeds, EVALUATION_EPISODES, ("imagine",))["imagine"]
        mdp = self.compiled("task").imagine(learner, number, key, None)

        def move(obs: np.ndarray, actions: np.ndarray, episodes: np.ndarray, decisions: np.ndarray) -> Moved:
            return Moved(*map(np.asarray, self._move(mdp, jnp.asarray(obs), jnp.asarray(actions))))

        return ImaginedEnvs(spec, self.seeds, starts, move)

    @functools.cached_property
    def _move(self) -> Program:
        """One decision by the mean of the posterior."""

        def move(mdp: ImaginedMDP, obs: jax.Array, action: jax.Array) -> tuple[jax.Array, ...]:
            prediction = mdp.dynamics.predict(obs, action)
            there = obs, action, prediction.mean
            return prediction.mean, mdp.task.reward(*there), mdp.task.terminated(*there), EpistemicNorm()(prediction)

        return over_seeds(move)

    def bound_weight(self, origin: Literal["run", "theory"]) -> np.ndarray:
        """λₙ as it is planned with, or of the setting's theorem (--theory.*), for the model fitted to all data."""
        learner, iteration = self._fitted(), jnp.full(len(self.seeds), self.iteration, jnp.int32)
        if origin == "run":
            weight = self._run_weight(learner, iteration)
            if weight is None or not (weight > 0).all():
                raise SombrlError(
                    "this run explores without a λ in reward per unit of ‖σ‖: give factor, theory or calibrated "
                    "(--factor 1, --theory, --calibrated 0.9)."
                )
            return weight
        first = jax.tree.map(lambda leaf: leaf[0], learner)
        if not isinstance(self.parts.learner.dynamics(first), AbstractInformed):
            raise SombrlError(
                "the theorem's λ needs a model that counts its information gain, as gp-icem's does: give factor or "
                "calibrated (--factor 1, --calibrated 0.9)."
            )
        weigh = theoretical(self.setting, self.config.explore.theory, self.envs.spec.obs_dim)
        of_all = over_seeds(lambda state, number: weigh(number, self.parts.learner.dynamics(state)))
        return np.asarray(of_all(learner, iteration))

    def _run_weight(self, learner: Any, iteration: jax.Array) -> np.ndarray | None:
        if self.parts.online or not optimistic_norm(self.parts.exploration):
            return None
        compiled = self.compiled("explore")
        key = role_keys(self.seeds, EVALUATION_EPISODES, ("imagine",))["imagine"]
        scale = compiled.scale(learner, self.state.replay)
        return np.asarray(compiled.imagine(learner, iteration, key, scale).bonus_weight)

    # --------------------------------------------------------------------------------------- environments

    def _open_evaluation_envs(self, render: bool) -> AbstractEnvs:
        workers = 0 if render else self.run.env_workers
        if not workers or self.maker.is_object:
            return self.maker.make(self.seeds, render=render, workers=workers)
        if self._evaluators is None:
            self._evaluators = self.maker.make(self.seeds, workers=workers)
        return self._evaluators

    def _close_evaluation_envs(self, envs: AbstractEnvs) -> None:
        if envs is not self._evaluators:
            envs.close()


@dataclasses.dataclass(frozen=True)
class ControllerMemory:
    """A planner's warm start in every environment, and how far each is in its episode."""

    controller: Any
    """None for a learned policy, which remembers nothing."""
    decision: np.ndarray
    key: jax.Array
    spent: np.ndarray | None = None
    """What every episode has cost so far by the cost that is planned with, where there is a limit to that."""
    last: tuple[np.ndarray, np.ndarray] | None = None
    """The observation and the action before, where there is a limit."""


@dataclasses.dataclass(frozen=True)
class _Ready:
    """What acting in so many environments per seed takes."""

    mdp: ImaginedMDP
    learned: Any
    warm_start: Any
    """A planner's, before the first decision of an episode; None of a learned policy."""
    seeds: list[int]


class ControllerPolicy(Policy):
    """A controller on the imagined MDP of one mode."""

    def __init__(
        self,
        mode: Mode,
        compiled: Compiled,
        learner: Any,
        learned: Any,
        seeds: Sequence[int],
        iteration: int,
        scale: jax.Array | None,
        replay: Replay | None = None,
    ):
        """`learned` is the controller's state where that is a policy, None where it plans.

        A planner that learns something for each mode does so here, from `replay`.
        """
        self.mode, self.seeds = mode, list(seeds)
        self._compiled, self._learner, self._learned, self._iteration = compiled, learner, learned, iteration
        self._scale, self._replay = scale, replay
        self._ready: dict[int, _Ready] = {}

    def begin(self, copies: int = 1, *, stream: int | None = None) -> ControllerMemory:
        """Nothing planned yet."""
        ready = self._for(copies)
        if stream is None:
            key = role_keys(ready.seeds, EVALUATION_EPISODES, ("start", "act"))["act"]
        else:
            key = role_keys(ready.seeds, EVALUATION_EPISODES + stream, ("act",))["act"]
        controller = ready.warm_start
        return ControllerMemory(controller, np.zeros(len(ready.seeds), np.int32), key)

    def act(self, memory: ControllerMemory, obs: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, ControllerMemory]:
        """Plan, or ask the learned policy."""
        ready, controller, decision = self._for(len(obs) // len(self.seeds)), memory.controller, memory.decision
        mdp, spent = ready.mdp, None
        if mdp.limit is not None:
            spent = self._spent(memory, mdp, obs, first)
            mdp = mdp.within(jnp.maximum(mdp.limit.budget - jnp.asarray(spent), 0.0))
        restarted = first & (decision > 0)
        if restarted.any():
            decision = np.where(restarted, np.int32(0), decision)
            if controller is not None:
                controller = _choose(restarted, ready.warm_start, controller)
        action, state, *_ = self._compiled.act(
            ready.learned if controller is None else controller,
            *(mdp, jnp.asarray(obs), memory.key, jnp.asarray(decision), jnp.ones(len(obs), bool)),
        )
        kept, action = None if controller is None else state, np.asarray(action)
        last = None if spent is None else (obs, action)
        return action, ControllerMemory(kept, decision + np.int32(1), memory.key, spent, last)

    def _spent(self, memory: ControllerMemory, mdp: ImaginedMDP, obs: np.ndarray, first: np.ndarray) -> np.ndarray:
        if memory.last is None or memory.spent is None:
            return np.zeros(len(obs), np.float32)
        costs = self._compiled.price(mdp, *map(jnp.asarray, (*memory.last, obs)))
        return np.where(first, np.float32(0), memory.spent + np.asarray(costs))

    def assess(self, rows: Transition, valid: np.ndarray) -> dict[str, np.ndarray]:
        """Metrics of one chunk per seed under the model that is planned with."""
        metrics = self._compiled.diagnose(self._learner, self._for(1).mdp, rows, valid)
        return {name: np.asarray(values) for name, values in metrics.items()}

    def returns(self, rewards: np.ndarray) -> np.ndarray:
        """Summed pairwise, as a chunk's are."""
        return np.asarray(rewards.sum(axis=1))

    def _for(self, copies: int) -> _Ready:
        if copies not in self._ready:
            seeds = [seed for seed in self.seeds for _ in range(copies)]
            learner, learned, replay, scale = self._learner, self._learned, self._replay, self._scale
            if copies > 1:
                repeated = np.repeat(np.arange(len(self.seeds)), copies)
                learner, learned, replay, scale = _rows((learner, learned, replay, scale), repeated)
            key = role_keys(seeds, EVALUATION_EPISODES, ("imagine",))["imagine"]
            iteration = jnp.full(len(seeds), self._iteration, jnp.int32)
            mdp = self._compiled.imagine(learner, iteration, key, scale)
            warm_start = self._warm_start(mdp, replay, seeds) if learned is None else None
            # Only the latest is kept: a model may be large.
            self._ready = {copies: _Ready(mdp, learned, warm_start, seeds)}
        return self._ready[copies]

    def _warm_start(self, mdp: ImaginedMDP, replay: Replay | None, seeds: Sequence[int]) -> Any:
        state = self._compiled.start(mdp, role_keys(seeds, EVALUATION_EPISODES, ("start",))["start"])
        if replay is not None:
            key = role_keys(seeds, EVALUATION_EPISODES, ROLES)["improve"]
            state, _ = self._compiled.improve(state, mdp, replay, key)
        return self._compiled.begin_episode(state, mdp)


def check_bounds(run: RunConfig, parts: Parts) -> None:
    """Refuse to record what there is not."""
    if run.record_bounds and isinstance(parts.learner, NoLearner):
        raise refuse_model()
    if run.record_bounds and parts.online:
        check_evaluated(run)
    planner = not parts.controller.learns
    if run.stop_when_gap is not None and not (planner and optimistic_norm(parts.exploration)):
        raise SombrlError(
            "--stop-when-gap compares the plan for r + λ‖σ‖ with the greedy one: use a planner (gp-icem) with "
            "--explore optimistic --bonus norm --sigma-units normalised."
        )


def optimistic_norm(exploration: Exploration) -> bool:
    """Whether what is planned for is J + λ Σ‖σ‖ in normalised units, an upper bound by the theorems."""
    norm = isinstance(exploration.bonus, EpistemicNorm) and exploration.bonus.units == "normalised"
    return norm and exploration.task_weight == 1.0


def _rows(tree: Any, rows: np.ndarray) -> Any:
    with jax.enable_x64(True):  # float64 leaves stay so
        return jax.tree.map(lambda leaf: leaf[rows], tree)


def _choose(rows: np.ndarray, new: Any, old: Any) -> Any:
    chosen = jnp.asarray(rows)
    return jax.tree.map(lambda a, b: jnp.where(jnp.reshape(chosen, (-1, *[1] * (b.ndim - 1))), a, b), new, old)
