"""The parts of an algorithm, compiled for the seed axis, and the state that they work on."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from sombrl.controllers.base import AbstractController, Watch
from sombrl.dynamics.base import AbstractLearner
from sombrl.envs.base import AbstractEnvs
from sombrl.exploration.base import Exploration, ImaginedMDP
from sombrl.exploration.bonus import EpistemicNorm, InformationGain
from sombrl.exploration.reward_scale import reward_scale
from sombrl.records import AbstractTask, RunFault
from sombrl.replay import Replay
from sombrl.seeds import over_seeds, role_keys
from sombrl.settings import Setting
from sombrl.training.calibration import calibrated_weight
from sombrl.training.diagnostics import diagnose
from sombrl.training.safety import CostCount, Safety

ROLES = ("init", "fit", "imagine", "improve", "act", "start", "renew_learner", "renew_controller")
"""What random numbers are for. The order decides the keys: append, never insert."""

Program = Callable[..., Any]
"""A compiled function; arguments and results have a leading seed axis."""


class LoopState(eqx.Module):
    """All that a run must remember between iterations; every leaf has a leading seed axis. This is the checkpoint."""

    learner: Any
    controller: Any
    replay: Replay
    obs: np.ndarray  # where the environments are, [seeds, obs]
    total_reward: np.ndarray  # [seeds], float64
    episode: np.ndarray  # [seeds], the number of the episode each seed is in (online.py)
    episode_return: np.ndarray  # [seeds], what it has earned in it so far
    costs: CostCount | None = None  # where costs are counted


@dataclasses.dataclass(frozen=True)
class Compiled:
    """The parts, compiled for the seed axis. Building one is cheap; compilation happens on first use."""

    init: Program
    fit: Program
    imagine: Program
    start: Program
    begin_episode: Program
    improve: Program
    renew_learner: Program
    renew_controller: Program
    act: Program  # the action, the state, and where costs are limited what was foreseen of them
    price: Program
    scale: Callable[[Any, Replay], Array | None]  # of the rewards, or λ itself; None where λ does not depend on data
    gather: Program
    add: Program
    diagnose: Program

    @staticmethod
    def of(
        envs: AbstractEnvs,
        learner: AbstractLearner,
        exploration: Exploration,
        controller: AbstractController,
        setting: Setting,
        task: AbstractTask | None = None,
        safety: Safety | None = None,
    ) -> "Compiled":
        """Compile the parts for one environment and setting; `task` instead of the environment's own."""
        imagined = imagination(envs, learner, setting, task, safety)

        def imagine(learner_state: Any, iteration: Array, key: Array, scale: Array | None = None) -> ImaginedMDP:
            return imagined(learner_state, exploration, iteration, key, scale)

        def act(state: Any, mdp: ImaginedMDP, obs: Array, key: Array, decision: Array, active: Array) -> Any:
            observe_key, act_key = jr.split(jr.fold_in(key, decision))
            belief = mdp.dynamics.observe(None, None, obs, key=observe_key)
            seen: list[Watch] = []
            if mdp.limit is None:
                action, new_state = controller.act(state, mdp, belief, key=act_key)
            else:
                action, new_state, *seen = controller.act_watched(state, mdp, belief, key=act_key)
            if new_state is state:  # a policy's: not to be copied at every decision
                return mdp.env_action(action), None, *seen
            # A seed that waits for others must not go on planning.
            state = jax.tree.map(lambda new, old: jnp.where(active, new, old), new_state, state)
            return mdp.env_action(action), state, *seen

        compiled_act = over_seeds(act)

        def act_and_keep(state: Any, *rest: Any) -> Any:
            action, new_state, *seen = compiled_act(state, *rest)
            return action, state if new_state is None else new_state, *seen

        measure = EpistemicNorm() if setting.rule == "uncertainty" else InformationGain()

        def gather(learner_state: Any, obs: Array, action: Array) -> Array:
            return measure(learner.dynamics(learner_state).predict(obs, action))

        def scale(learner_state: Any, replay: Replay) -> Array:
            given = task or learner.task(learner_state) or envs.task
            assert given is not None, "a learner without a task needs an environment with one"
            if exploration.calibrated:
                return calibrated_weight(learner.dynamics(learner_state), given, exploration.bonus, replay)
            return reward_scale(learner.dynamics(learner_state), given, replay, envs.spec.action_dim)

        double = learner.double_precision
        from_data = exploration.relative or exploration.calibrated
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
            price=over_seeds(lambda mdp, obs, action, next_obs: mdp.limit.cost(obs, action, next_obs)),
            scale=over_seeds(scale) if from_data else lambda learner_state, replay: None,
            gather=over_seeds(gather),
            add=over_seeds(lambda replay, rows, valid: replay.add(rows, valid)),
            diagnose=over_seeds(lambda state, mdp, rows, valid: diagnose(learner.dynamics(state), mdp, rows, valid)),
        )


def imagination(
    envs: AbstractEnvs,
    learner: AbstractLearner,
    setting: Setting,
    given_task: AbstractTask | None = None,
    safety: Safety | None = None,
) -> Callable[..., ImaginedMDP]:
    """What turns a learner's state and a strategy into an MDP, in iteration n; `given_task` instead of its own."""
    spec, known_task = envs.spec, envs.task

    def imagine(
        learner_state: Any,
        exploration: Exploration,
        iteration: jax.Array,
        key: jax.Array,
        scale: jax.Array | None = None,
    ) -> ImaginedMDP:
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
            reward_scale=scale,
            limit=None if safety is None else safety.limit(learner, learner_state),
            key=key,
        )

    return imagine


def initial_state(
    envs: AbstractEnvs, compiled: Compiled, seeds: Sequence[int], capacity: int, safety: Safety | None = None
) -> LoopState:
    """The prior, an untrained controller and no data."""
    key = role_keys(seeds, 0, ROLES)
    learner_state = compiled.init(key["init"])
    learns_cost = safety is not None and safety.learned
    replay = Replay.empty(capacity, envs.spec.obs_dim, envs.spec.action_dim, cost=learns_cost)
    replay = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(seeds), *leaf.shape)), replay)
    iteration = jnp.zeros(len(seeds), jnp.int32)
    mdp = compiled.imagine(learner_state, iteration, key["imagine"], compiled.scale(learner_state, replay))
    obs, total_reward = np.zeros((len(seeds), envs.spec.obs_dim), np.float32), np.zeros(len(seeds))
    episode, episode_return = np.zeros(len(seeds), np.int64), np.zeros(len(seeds))
    controller_state = compiled.start(mdp, key["start"])
    costs = None if safety is None else CostCount.none(len(seeds))
    return LoopState(learner_state, controller_state, replay, obs, total_reward, episode, episode_return, costs)


def renewal_due(every: int | None, calls: int) -> bool:
    """Whether it is time to forget something, after so many fits or improvements."""
    return every is not None and calls > 0 and calls % every == 0


def refuse_nan(metrics: dict[str, np.ndarray], seeds: Sequence[int], iteration: int) -> None:
    """Stop a run whose metrics are not finite."""
    for name, values in metrics.items():
        if not np.all(np.isfinite(values)):
            broken = [seed for seed, value in zip(seeds, values, strict=True) if not np.isfinite(value)]
            raise RunFault(f"{name} is not finite for seed {broken[0]} in iteration {iteration}.")
