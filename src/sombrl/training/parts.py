"""What the planners' loop and the online loop share: parts that are swapped freely, and policies made of them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sombrl.config.run import RunConfig
from sombrl.config.suggestions import nearest
from sombrl.controllers.base import AbstractController
from sombrl.dynamics.base import AbstractLearner
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.maker import EnvMaker
from sombrl.exploration import greedy, unsupervised
from sombrl.exploration.base import Exploration, ImaginedMDP
from sombrl.records import AbstractTask, SombrlError, Transition
from sombrl.replay import Replay
from sombrl.seeds import role_keys
from sombrl.settings import Setting, Unsupervised
from sombrl.storage.run_folder import is_run
from sombrl.training.base import EVALUATION_EPISODES, Mode, Policy, Trainer, refuse_plan
from sombrl.training.compiled import ROLES, Compiled, LoopState, initial_state
from sombrl.training.origin import Origin, digest, replay_with, require_same_world, rows_of_file, rows_of_run


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
    start_point: bool = False  # begin with one transition: at rest without an action, nothing changes


class PartsTrainer(Trainer[LoopState]):
    """Trains parts; what is left to subclasses is the loop."""

    def __init__(
        self, config: Any, run: RunConfig, maker: EnvMaker, envs: AbstractEnvs, setting: Setting, parts: Parts
    ):
        super().__init__(config, run, maker, envs, setting)
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
        return initial_state(self.envs, self.compiled("explore"), self.seeds, self.capacity)

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
        compiled = Compiled.of(self.envs, self.parts.learner, exploration, controller, setting, task)
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
        restarted = first & (decision > 0)
        if restarted.any():
            decision = np.where(restarted, np.int32(0), decision)
            if controller is not None:
                controller = _choose(restarted, ready.warm_start, controller)
        action, state = self._compiled.act(
            ready.learned if controller is None else controller,
            *(ready.mdp, jnp.asarray(obs), memory.key, jnp.asarray(decision), jnp.ones(len(obs), bool)),
        )
        kept = None if controller is None else state
        return np.asarray(action), ControllerMemory(kept, decision + np.int32(1), memory.key)

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


def take_over(controller: AbstractController, ours: LoopState, theirs: LoopState, seeds: int, path: str) -> Any:
    """What the first `seeds` of another run have learned, learner and controller; the strategy's own begins anew."""
    learned = _rows((theirs.learner, theirs.controller), np.arange(seeds))
    fresh = ours.learner, ours.controller
    ours_shape, theirs_shape = (_shapes(one) for one in (fresh, learned))
    if ours_shape != theirs_shape:
        raise SombrlError(
            f"what {path} has learned does not fit the settings of this run: give those of its config.json, the widths "
            "of networks above all."
        )
    return learned[0], controller.take_over(learned[1], fresh[1])


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(where): leaf.shape for where, leaf in leaves}


def _rows(tree: Any, rows: np.ndarray) -> Any:
    with jax.enable_x64(True):  # float64 leaves stay so
        return jax.tree.map(lambda leaf: leaf[rows], tree)


def _choose(rows: np.ndarray, new: Any, old: Any) -> Any:
    chosen = jnp.asarray(rows)
    return jax.tree.map(lambda a, b: jnp.where(jnp.reshape(chosen, (-1, *[1] * (b.ndim - 1))), a, b), new, old)
