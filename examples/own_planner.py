"""A planner of your own: gradient ascent on the imagined return, from a few starts, beside iCEM.

A planner sees an imagined MDP and returns an action in [-1, 1]. The model is differentiable, so a plan can climb. It
climbs to the next hilltop only, which is why iCEM is the default.

    python examples/own_planner.py [--quick]
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import sombrl
from sombrl.controllers import ICEM, AbstractController, ICEMConfig
from sombrl.controllers.rollout import imagined_return, score_candidates
from sombrl.dynamics.gp import GPConfig, GPLearner
from sombrl.envs.registry import make_envs
from sombrl.exploration import optimistic
from sombrl.exploration.weight import Constant
from sombrl.settings import FiniteHorizon


class Climber(AbstractController):
    """The best of the last plan and a few random ones, after some steps uphill from each."""

    horizon: int = eqx.field(static=True, default=20)
    starts: int = eqx.field(static=True, default=8)
    steps: int = eqx.field(static=True, default=15)
    step_size: float = 0.1

    def init(self, mdp, *, key):
        """The state is the plan, and the first one does nothing. Sizes are the MDP's: hucrl has extra controls."""
        return jnp.zeros((self.horizon, mdp.action_dim), jnp.float32)

    def begin_episode(self, state, mdp):
        """A new episode starts elsewhere: the old plan is worth nothing there."""
        return jnp.zeros_like(state)

    def improve(self, state, mdp, replay, *, key):
        """A policy would learn here; a planner has nothing to do between episodes."""
        return state, {}

    def act(self, state, mdp, belief, *, key):
        """Climb, then take the first action of the best plan; the rest, shifted, is where the next call starts."""
        start_key, climb_key, score_key = jr.split(key, 3)
        random = jr.uniform(start_key, (self.starts - 1, *state.shape), jnp.float32, -1.0, 1.0)
        slope = jax.grad(lambda plan: imagined_return(mdp, belief, plan, key=climb_key))

        def climb(plan, _):
            gradient = jax.vmap(slope)(plan)
            gradient = jnp.where(jnp.isfinite(gradient), gradient, 0.0)  # ‖σ‖ has no slope where it is 0
            size = jnp.sqrt(jnp.sum(gradient**2, axis=(1, 2), keepdims=True)) + 1e-8
            return jnp.clip(plan + self.step_size * self.horizon**0.5 * gradient / size, -1.0, 1.0), None

        plans, _ = jax.lax.scan(climb, jnp.concatenate([state[None], random]), length=self.steps)
        scores = score_candidates(mdp, belief, plans, particles=1, key=score_key)  # what is not finite scores -inf
        best = plans[jnp.argmax(scores)]
        return best[0], jnp.concatenate([best[1:], jnp.zeros_like(best[:1])])


def main() -> None:
    """The same model and bonus under both planners, on Pendulum."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    quick = parser.parse_args().quick

    gp = GPConfig(capacity=256, rank=16, fit_steps=5, fit_points=32) if quick else GPConfig(capacity=512)
    planners: dict[str, AbstractController] = {"climber": Climber(horizon=5, starts=2, steps=2) if quick else Climber()}
    if not quick:
        planners["iCEM"] = ICEM(ICEMConfig())
    for name, planner in planners.items():
        envs = make_envs("pendulum", seeds=[0], action_repeat=5, episode_length=8 if quick else 40)
        learner = GPLearner(envs.spec.obs_dim, envs.spec.action_dim, learn_task=False, config=gp)
        reports = sombrl.run(
            *(envs, learner, optimistic(Constant(10.0)), planner, FiniteHorizon(envs.spec.episode_length)),
            seeds=[0],
            num_iterations=2 if quick else 8,
            capacity=gp.capacity,
        )
        print(name, "returns:", "  ".join(f"{report.chunk.returns[0]:.1f}" for report in reports))


if __name__ == "__main__":
    main()
