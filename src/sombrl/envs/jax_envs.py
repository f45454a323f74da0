"""Pure-JAX worlds behind the loop's interface: one compiled decision, run for each seed."""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree, UInt

from sombrl.envs.action_cost import ActionCost, norm
from sombrl.envs.base import ENDLESS, AbstractEnvs, AbstractWorld, EnvSpec, Step
from sombrl.envs.guards import (
    check_cost,
    check_count,
    check_episode,
    check_seeds,
    check_step_inputs,
    refuse_end,
    require_finite,
)
from sombrl.records import SombrlError

STREAM = 0x656E76  # "env": keeps these keys apart from whatever else is derived from the same seed


class JaxEnvs(AbstractEnvs):
    """One copy of `world` per seed. Keys come from (seed, episode, decision), so no generator state is kept.

    Each seed calls the same single-row program instead of sharing one `vmap`: XLA rounds differently at
    different batch sizes, and then a seed's bits would depend on how many run beside it.
    """

    def __init__(
        self,
        world: AbstractWorld,
        seeds: Sequence[int],
        *,
        name: str,
        action_repeat: int = 1,
        episode_length: int | None = None,
        action_cost: float = 0.0,
        action_bound: float = 1.0,
    ):
        """`episode_length` in decisions; `action_cost` K takes K‖u‖₂ a frame, u = `action_bound` · action."""
        self.world = world
        self.seeds = check_seeds(seeds)
        repeat = check_count(action_repeat, "action_repeat")
        self._cost = check_cost(action_cost)
        self._bound = float(action_bound)
        if episode_length is None:
            self._frames = world.episode_frames
        else:
            self._frames = check_count(episode_length, "episode_length") * repeat
        if episode_length == ENDLESS and world.can_end():
            raise refuse_end(name)
        length = -(-self._frames // repeat)  # a last decision may have fewer frames
        optimal = world.optimal_average()
        optimal = None if optimal is None else repeat * optimal
        self.spec = EnvSpec(name, world.obs_dim, world.action_dim, length, repeat, optimal)
        self.task = world.task(repeat)
        self.downstream = world.downstream(repeat)
        if self._cost > 0:
            bound = (self._bound,) * world.action_dim
            self.task = ActionCost(self.task, self._cost, tuple(-b for b in bound), bound, repeat)
        self._start, self._decide = _programs(world, repeat, self._cost, self._bound)
        self._template = jax.eval_shape(self._start, np.zeros(2, np.uint32))
        if self._template[1].shape != (world.obs_dim,) or self._template[1].dtype != jnp.float32:
            got = f"{self._template[1].dtype}{list(self._template[1].shape)}"
            raise SombrlError(f"{name}: observe must return float32[{world.obs_dim}] (obs_dim), not {got}.")
        self._episode = -1
        self._states: list[PyTree] = []
        self._obs = np.zeros((len(self.seeds), world.obs_dim), np.float32)
        self._decisions = np.zeros(len(self.seeds), np.int64)
        self._over = np.ones(len(self.seeds), bool)

    def reset(self, episode: int) -> np.ndarray:
        """Start episode number `episode` on every seed; the observations, [seeds, obs]."""
        self._episode = check_episode(episode)
        starts = [self._start(np.array([seed, episode], np.uint32)) for seed in self.seeds]
        self._states = [state for state, _ in starts]
        self._obs = np.stack([np.asarray(obs) for _, obs in starts])
        self._decisions = np.zeros(len(self.seeds), np.int64)
        self._over = np.zeros(len(self.seeds), bool)
        for row, obs in enumerate(self._obs):
            self._require_finite(row, obs, "observation")
        return self._obs.copy()

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """Execute `actions` in [-1, 1] on the rows that are active."""
        self._require_reset()
        actions, active = check_step_inputs(self.spec, self.seeds, self._over, actions, active)
        repeat = self.spec.action_repeat
        pending = {}
        for row in np.flatnonzero(active).tolist():
            self._require_finite(row, actions[row], "action")
            done = self._decisions[row]
            frames = min(repeat, self._frames - done * repeat)
            counters = np.array([self.seeds[row], self._episode, done, frames], np.uint32)
            pending[row] = self._decide(self._states[row], actions[row], counters)
        reward = np.zeros(len(self.seeds), np.float64)
        terminated = np.zeros(len(self.seeds), bool)
        for row, (state, obs, total, ended) in pending.items():  # all dispatched before the first is awaited
            self._states[row], self._obs[row] = state, np.asarray(obs)
            reward[row], terminated[row] = float(total), bool(ended)
            self._require_finite(row, self._obs[row], "observation")
            self._require_finite(row, reward[row], "reward")
        self._decisions[active] += 1
        truncated = active & ~terminated & (self._decisions >= self.spec.episode_length)
        self._over |= terminated | truncated
        return Step(self._obs.copy(), reward, terminated, truncated)

    def physical(self, actions: np.ndarray) -> np.ndarray:
        """`actions` as the world takes them: in [-1, 1] already."""
        return np.clip(actions, -1.0, 1.0)

    def get_state(self) -> dict[str, np.ndarray]:
        """The world states leaf by leaf, and the counters."""
        rows = [[np.array(leaf) for leaf in jax.tree.leaves(state)] for state in self._states]
        leaves = {f"state{i}": np.stack(leaf) for i, leaf in enumerate(zip(*rows, strict=True))}
        counters = {"episode": np.array(self._episode), "decisions": self._decisions.copy()}
        return leaves | counters | {"obs": self._obs.copy(), "over": self._over.copy()}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `get_state`."""
        try:
            episode = int(state["episode"])
            shapes, treedef = jax.tree.flatten(self._template[0])
            leaves = [state[f"state{i}"] for i in range(len(shapes) if episode >= 0 else 0)]
            fits = all(x.shape == (len(self.seeds), *s.shape) for x, s in zip(leaves, shapes, strict=False))
            obs, decisions, over = state["obs"], state["decisions"], state["over"]
        except KeyError as missing:
            raise SombrlError(f"This is not a saved state of {self.spec.name}: it has no {missing}.") from None
        if not fits or obs.shape != self._obs.shape or decisions.shape != self._decisions.shape:
            raise SombrlError(
                f"The saved state does not fit {self.spec.name} with {len(self.seeds)} seeds; resume with "
                "the environment and seeds it was saved with."
            )
        self._episode, self._states = episode, []
        for row in range(len(self.seeds) if episode >= 0 else 0):
            row_leaves = [jnp.asarray(x[row], s.dtype) for x, s in zip(leaves, shapes, strict=True)]
            self._states.append(jax.tree.unflatten(treedef, row_leaves))
        self._obs, self._decisions, self._over = obs.copy(), decisions.copy(), over.copy()

    def render(self, row: int) -> np.ndarray:
        """The world's own drawing, uint8 [320, 480, 3]."""
        self._require_reset()
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError:
            raise SombrlError("Drawing needs matplotlib; pip install 'sombrl[video]'.") from None
        figure = Figure(figsize=(4.8, 3.2), dpi=100)
        canvas = FigureCanvasAgg(figure)
        self.world.draw(self._states[row], figure.add_axes((0.0, 0.0, 1.0, 1.0)))
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()

    def _require_reset(self) -> None:
        if self._episode < 0:
            raise SombrlError(f"{self.spec.name} has not been started; call reset first.")

    def _require_finite(self, row: int, values: object, what: str) -> None:
        place = {"seed": self.seeds[row], "episode": self._episode, "step": int(self._decisions[row])}
        require_finite(values, what, env=self.spec.name, **place)


def _row_keys(seed: UInt[Array, ""], episode: UInt[Array, ""]) -> tuple[Key[Array, ""], Key[Array, ""]]:
    """The key of the start and the key of the noise, of one episode of one seed."""
    start_key, noise_key = jr.split(jr.fold_in(jr.fold_in(jr.key(seed), STREAM), episode))
    return start_key, noise_key


def _programs(world: AbstractWorld, repeat: int, cost: float, bound: float) -> tuple[Callable, Callable]:
    """`_compile`, shared between equal worlds (training and evaluation) where worlds can be compared."""
    try:
        hash(world)
    except TypeError:  # it holds arrays
        return _compile.__wrapped__(world, repeat, cost, bound)
    return _compile(world, repeat, cost, bound)


@functools.lru_cache(maxsize=32)
def _compile(world: AbstractWorld, repeat: int, cost: float, bound: float) -> tuple[Callable, Callable]:
    """The start and the decision of one row: closures; modules as arguments cost more than the physics."""

    @jax.jit
    def start(counters: UInt[Array, " 2"]) -> tuple[PyTree, Float[Array, " obs"]]:
        """From (seed, episode)."""
        start_key, _ = _row_keys(counters[0], counters[1])
        state = world.reset(key=start_key)
        return state, world.observe(state)

    @jax.jit
    def decide(
        state: PyTree, action: Float[Array, " action"], counters: UInt[Array, " 4"]
    ) -> tuple[PyTree, Float[Array, " obs"], Float[Array, ""], Bool[Array, ""]]:
        """From (seed, episode, decision, frames): the next state, its observation, the reward, the end."""
        _, noise_key = _row_keys(counters[0], counters[1])
        keys = jr.split(jr.fold_in(noise_key, counters[2]), repeat)
        price = cost * norm(bound * action)

        def frame(carry, inputs):
            state, total, ended = carry
            index, key = inputs
            runs = (index < counters[3]) & ~ended
            moved, reward, ends = world.step(state, action, key=key)
            state = jax.tree.map(lambda new, old: jnp.where(runs, new, old), moved, state)
            total = total + jnp.where(runs, reward - price, 0.0)
            return (state, total, ended | (runs & ends)), None

        begin = (state, jnp.zeros((), jnp.float32), jnp.zeros((), bool))
        indices = jnp.arange(repeat, dtype=jnp.uint32)
        (state, total, ended), _ = jax.lax.scan(frame, begin, (indices, keys))
        return state, world.observe(state), total, ended

    return start, decide
