"""SOMBRL's loop: fit the model, imagine, improve, act; for n = 0, 1, 2, … No algorithm is named in here."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from sombrl.controllers.base import AbstractController
from sombrl.dynamics.base import AbstractLearner
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.guards import refuse_end
from sombrl.exploration.base import Exploration, ImaginedMDP
from sombrl.exploration.bonus import EpistemicNorm, InformationGain
from sombrl.records import AbstractTask, RunFault, Transition
from sombrl.replay import Replay
from sombrl.seeds import over_seeds, role_keys
from sombrl.settings import Setting
from sombrl.training.diagnostics import diagnose

ROLES = ("init", "fit", "imagine", "improve", "act", "start", "renew_learner", "renew_controller")


class LoopState(eqx.Module):
    """All that a run must remember between iterations; every leaf has a leading seed axis. This is the checkpoint."""

    learner: Any
    controller: Any
    replay: Replay
    obs: np.ndarray  # where the environments are, [seeds, obs]
    total_reward: np.ndarray  # [seeds], float64
    episode: np.ndarray  # [seeds], the number of the episode each seed is in (online.py)
    episode_return: np.ndarray  # [seeds], what it has earned in it so far


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What was collected between two updates, [seeds, time, ...]; rows after an episode's end are not valid."""

    transitions: Transition
    valid: np.ndarray
    returns: np.ndarray  # [seeds], summed in float64
    last_obs: np.ndarray  # [seeds, obs]


@dataclasses.dataclass(frozen=True)
class Report:
    """One iteration, as the caller sees it."""

    iteration: int
    state: LoopState
    mdp: ImaginedMDP  # what was planned with in this iteration
    chunk: Chunk
    metrics: dict[str, np.ndarray]  # [seeds] each
    seconds: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """The parts, compiled for the seed axis. Building one is cheap; compilation happens on first use."""

    init: Callable
    fit: Callable
    imagine: Callable
    start: Callable
    begin_episode: Callable
    improve: Callable
    renew_learner: Callable
    renew_controller: Callable
    act: Callable
    gather: Callable
    add: Callable
    diagnose: Callable

    @staticmethod
    def of(
        envs: AbstractEnvs,
        learner: AbstractLearner,
        exploration: Exploration,
        controller: AbstractController,
        setting: Setting,
        task: AbstractTask | None = None,
    ) -> "Compiled":
        """Compile the parts for one environment and setting; `task` instead of the environment's own."""
        imagined = imagination(envs, learner, setting, task)

        def imagine(learner_state, iteration, key):
            return imagined(learner_state, exploration, iteration, key)

        def act(state, mdp, obs, key, decision, active):
            observe_key, act_key = jr.split(jr.fold_in(key, decision))
            belief = mdp.dynamics.observe(None, None, obs, key=observe_key)
            action, new_state = controller.act(state, mdp, belief, key=act_key)
            if new_state is state:  # a policy's: not to be copied at every decision
                return mdp.env_action(action), None
            # A seed that waits for others must not go on planning.
            state = jax.tree.map(lambda new, old: jnp.where(active, new, old), new_state, state)
            return mdp.env_action(action), state

        compiled_act = over_seeds(act)

        def act_and_keep(state, *rest):
            action, new_state = compiled_act(state, *rest)
            return action, state if new_state is None else new_state

        measure = EpistemicNorm() if setting.rule == "uncertainty" else InformationGain()

        def gather(learner_state, obs, action):
            return measure(learner.dynamics(learner_state).predict(obs, action))

        double = learner.double_precision
        return Compiled(
            init=over_seeds(lambda key: learner.init(key=key), double_precision=double),
            fit=over_seeds(lambda state, replay, key: learner.fit(state, replay, key=key), double_precision=double),
            imagine=over_seeds(imagine),
            start=over_seeds(lambda mdp, key: controller.init(mdp, key=key)),
            begin_episode=over_seeds(controller.begin_episode),
            improve=over_seeds(lambda state, mdp, replay, key: controller.improve(state, mdp, replay, key=key)),
            renew_learner=over_seeds(lambda state, key: learner.renew(state, key=key), double_precision=double),
            renew_controller=over_seeds(lambda state, mdp, key: controller.renew(state, mdp, key=key)),
            act=act_and_keep,
            gather=over_seeds(gather),
            add=over_seeds(lambda replay, rows, valid: replay.add(rows, valid)),
            diagnose=over_seeds(lambda state, mdp, rows, valid: diagnose(learner.dynamics(state), mdp, rows, valid)),
        )


def imagination(
    envs: AbstractEnvs, learner: AbstractLearner, setting: Setting, given_task: AbstractTask | None = None
) -> Callable[[Any, Exploration, jax.Array, jax.Array], ImaginedMDP]:
    """What turns a learner's state and a strategy into an MDP, in iteration n; `given_task` instead of its own."""
    spec, known_task = envs.spec, envs.task

    def imagine(learner_state: Any, exploration: Exploration, iteration: jax.Array, key: jax.Array) -> ImaginedMDP:
        task = given_task or learner.task(learner_state) or known_task
        assert task is not None, "a learner without a task needs an environment with one"
        return exploration.imagine(
            learner.dynamics(learner_state),
            task,
            state_dim=spec.obs_dim,
            action_dim=spec.action_dim,
            iteration=iteration,
            discount=setting.discount,
            task_weight=1.0 if given_task else setting.task_weight,
            key=key,
        )

    return imagine


def run(
    envs: AbstractEnvs,
    learner: AbstractLearner,
    exploration: Exploration,
    controller: AbstractController,
    setting: Setting,
    *,
    seeds: Sequence[int],
    num_iterations: int,
    capacity: int,
    resume: tuple[int, LoopState] | None = None,
    compiled: Compiled | None = None,
    on_decision: Callable[[int, int], None] = lambda decision, length: None,
) -> Iterator[Report]:
    """Yield a report per iteration, so that the caller can log, save or stop as it likes.

    `resume` = (iterations done, state) of an earlier report continues exactly there; `compiled` = the parts as an
    earlier call compiled them.
    """
    compiled = compiled or Compiled.of(envs, learner, exploration, controller, setting)
    first, state = resume or (0, initial_state(envs, compiled, seeds, capacity))

    for n in range(first, num_iterations):
        key = role_keys(seeds, n, ROLES)
        iteration = jnp.full(len(seeds), n, jnp.int32)
        clock = _Clock()

        learner_state, fit_metrics = clock("fit", compiled.fit, state.learner, state.replay, key["fit"])
        if renewal_due(learner.renew_every, n + 1):
            learner_state = compiled.renew_learner(learner_state, key["renew_learner"])
        mdp = clock("imagine", compiled.imagine, learner_state, iteration, key["imagine"])
        controller_state, improve_metrics = clock(
            "improve", compiled.improve, state.controller, mdp, state.replay, key["improve"]
        )
        if renewal_due(controller.renew_every, n + 1):
            controller_state = compiled.renew_controller(controller_state, mdp, key["renew_controller"])
        chunk, controller_state = clock(
            *("collect", collect, envs, compiled, learner_state, mdp, controller_state, setting, key["act"]),
            iteration=n,
            obs=None if setting.resets or n == 0 else state.obs,
            on_decision=on_decision,
        )
        replay = compiled.add(state.replay, chunk.transitions, chunk.valid)
        visited = compiled.diagnose(learner_state, mdp, chunk.transitions, chunk.valid)

        total_reward = state.total_reward + chunk.returns
        episode = np.full(len(seeds), n + 1)
        state = LoopState(
            *(learner_state, controller_state, replay, chunk.last_obs, total_reward, episode, np.zeros(len(seeds)))
        )
        metrics = {name: np.asarray(value) for name, value in (fit_metrics | improve_metrics | visited).items()}
        refuse_nan(metrics, seeds, n)
        yield Report(n, state, mdp, chunk, metrics, clock.seconds)


def initial_state(envs: AbstractEnvs, compiled: Compiled, seeds: Sequence[int], capacity: int) -> LoopState:
    """The prior, an untrained controller and no data."""
    key = role_keys(seeds, 0, ROLES)
    learner_state = compiled.init(key["init"])
    mdp = compiled.imagine(learner_state, jnp.zeros(len(seeds), jnp.int32), key["imagine"])
    replay = Replay.empty(capacity, envs.spec.obs_dim, envs.spec.action_dim)
    replay = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(seeds), *leaf.shape)), replay)
    obs, total_reward = np.zeros((len(seeds), envs.spec.obs_dim), np.float32), np.zeros(len(seeds))
    episode, episode_return = np.zeros(len(seeds), np.int64), np.zeros(len(seeds))
    controller_state = compiled.start(mdp, key["start"])
    return LoopState(learner_state, controller_state, replay, obs, total_reward, episode, episode_return)


def collect(
    envs: AbstractEnvs,
    compiled: Compiled,
    learner_state: Any,
    mdp: ImaginedMDP,
    controller_state: Any,
    setting: Setting,
    key: jax.Array,
    *,
    iteration: int,
    obs: np.ndarray | None = None,
    on_decision: Callable[[int, int], None] = lambda decision, length: None,
) -> tuple[Chunk, Any]:
    """Act in the real environments for one chunk: one compiled dispatch per decision, for all seeds.

    From where they are (`obs`), or from a fresh start if that is None.
    """
    num_seeds, spec, start = key.shape[0], envs.spec, obs
    obs = np.zeros((num_seeds, setting.longest + 1, spec.obs_dim), np.float32)
    next_obs = np.zeros((num_seeds, setting.longest, spec.obs_dim), np.float32)
    action = np.zeros((num_seeds, setting.longest, spec.action_dim), np.float32)
    reward = np.zeros((num_seeds, setting.longest))
    terminated, truncated, valid = np.zeros((3, num_seeds, setting.longest), bool)
    gathered = np.zeros(num_seeds)  # since the last update

    if start is None:
        start = envs.reset(iteration)
        controller_state = compiled.begin_episode(controller_state, mdp)
    last_obs = obs[:, 0] = start
    active = np.ones(num_seeds, bool)
    length = setting.chunk_length(iteration)
    for t in range(length):
        now, decision = jnp.asarray(obs[:, t]), jnp.full(num_seeds, t, jnp.int32)
        planned, controller_state = compiled.act(controller_state, mdp, now, key, decision, jnp.asarray(active))
        action[:, t] = planned
        step = envs.step(action[:, t], active)
        last_obs = next_obs[:, t] = obs[:, t + 1] = step.obs
        reward[:, t] = np.where(active, step.reward, 0.0)
        terminated[:, t], truncated[:, t], valid[:, t] = step.terminated, step.truncated, active
        if not setting.resets and step.terminated.any():
            raise refuse_end(spec.name)
        if setting.rule != "fixed":
            gained = compiled.gather(learner_state, now, jnp.asarray(action[:, t]))
            gathered += np.where(active, np.asarray(gained), 0.0)
        enough = np.array([setting.update_due(amount, t + 1) for amount in gathered.tolist()])
        active = active & ~step.terminated & ~step.truncated & ~enough
        on_decision(t, length)
        if not active.any():
            break

    columns = obs[:, :-1], action, reward.astype(np.float32), next_obs, terminated, truncated
    rows = Transition(*map(jnp.asarray, columns))
    return Chunk(rows, valid, reward.sum(axis=1), last_obs.copy()), controller_state


def renewal_due(every: int | None, calls: int) -> bool:
    """Whether it is time to forget something, after so many fits or improvements."""
    return every is not None and calls > 0 and calls % every == 0


class _Clock:
    """Wall-clock seconds per stage, results waited for."""

    def __init__(self):
        self.seconds: dict[str, float] = {}

    def __call__(self, stage: str, function: Callable, *args, **options):
        start = time.perf_counter()
        result = jax.block_until_ready(function(*args, **options))
        self.seconds[stage] = time.perf_counter() - start
        return result


def refuse_nan(metrics: dict[str, np.ndarray], seeds: Sequence[int], iteration: int) -> None:
    """Stop a run whose numbers are not numbers any more."""
    for name, values in metrics.items():
        if not np.all(np.isfinite(values)):
            broken = [seed for seed, value in zip(seeds, values, strict=True) if not np.isfinite(value)]
            raise RunFault(f"{name} is not finite for seed {broken[0]} in iteration {iteration}.")
