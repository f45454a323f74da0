"""Pure-JAX worlds behind the loop's interface: one compiled decision, run for each seed."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree, UInt

from sombrl.envs.action_cost import ActionCost, norm
from sombrl.envs.base import ENDLESS, AbstractEnvs, AbstractWorld, EnvSpec, Step
from sombrl.envs.guards import check_cost, check_count, check_seeds, refuse_end
from sombrl.envs.rows import Rows
from sombrl.optional import require
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
        self.spec = EnvSpec(name, world.obs_dim, world.action_dim, length, repeat, optimal, world.layout)
        self.task = world.task(repeat)
        self.downstream = world.downstream(repeat)
        self.cost = world.cost(repeat)
        if self.task is not None and self._cost > 0:
            bound = (self._bound,) * world.action_dim
            self.task = ActionCost(self.task, self._cost, tuple(-b for b in bound), bound, repeat)
        self._start, self._decide = _programs(world, repeat, self._cost, self._bound)
        self._template = jax.eval_shape(self._start, np.zeros(2, np.uint32))
        wanted = self.spec.obs_dtype
        if self._template[1].shape != (world.obs_dim,) or self._template[1].dtype != wanted:
            got = f"{self._template[1].dtype}{list(self._template[1].shape)}"
            raise SombrlError(f"{name}: observe must return {wanted}[{world.obs_dim}] (obs_dim), not {got}.")
        self._device = None if world.layout is None else _processor()
        self._rows = Rows(self.spec, self.seeds)
        blank = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), self._template[0])
        self._states: list[PyTree] = [blank] * len(self.seeds)
        self._trails: list[list[PyTree]] = [[] for _ in self.seeds]  # what was drawn of the episode so far

    def reset_rows(self, rows: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        """Start the given episode on the given rows; where all of them are, [seeds, obs]."""
        pairs = self._rows.check_reset(rows, episodes)
        with jax.default_device(self._device):
            starts = [self._start(np.array([self.seeds[row], episode], np.uint32)) for row, episode in pairs]
        for (row, episode), (state, obs) in zip(pairs, starts, strict=True):
            self._rows.begin(row, episode)
            self._states[row], self._trails[row] = state, []
            self._rows.see(row, np.asarray(obs))
        return self._rows.obs.copy()

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """Execute `actions` in [-1, 1] on the rows that are active."""
        at = self._rows
        actions, active = at.check_step(actions, active)
        repeat = self.spec.action_repeat
        pending = {}
        for row in np.flatnonzero(active).tolist():
            at.require_finite(row, actions[row], "action")
            done = at.decisions[row]
            frames = min(repeat, self._frames - done * repeat)
            counters = np.array([self.seeds[row], at.episodes[row], done, frames], np.uint32)
            with jax.default_device(self._device):
                pending[row] = self._decide(self._states[row], actions[row], counters)
        reward = np.zeros(len(self.seeds), np.float64)
        terminated = np.zeros(len(self.seeds), bool)
        for row, (state, obs, total, ended) in pending.items():  # all dispatched before the first is awaited
            self._states[row] = state
            reward[row], terminated[row] = float(total), bool(ended)
            at.see(row, np.asarray(obs))
            at.require_finite(row, reward[row], "reward")
        at.decisions[active] += 1
        truncated = active & ~terminated & (at.decisions >= self.spec.episode_length)
        at.over |= terminated | truncated
        return Step(at.obs.copy(), reward, terminated, truncated)

    def physical(self, actions: np.ndarray) -> np.ndarray:
        """`actions` as the world takes them: in [-1, 1] already."""
        return np.asarray(np.clip(actions, -1.0, 1.0))

    def get_state(self) -> dict[str, np.ndarray]:
        """The world states leaf by leaf, and the counters."""
        rows = [[np.array(leaf) for leaf in jax.tree.leaves(state)] for state in self._states]
        leaves = {f"state{i}": np.stack(leaf) for i, leaf in enumerate(zip(*rows, strict=True))}
        return leaves | self._rows.get_state()

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `get_state`."""
        shapes, treedef = jax.tree.flatten(self._template[0])
        self._rows.check_state(state, {f"state{i}": leaf.shape for i, leaf in enumerate(shapes)})
        with jax.default_device(self._device):
            for row in range(len(self.seeds)):
                leaves = [jnp.asarray(state[f"state{i}"][row], leaf.dtype) for i, leaf in enumerate(shapes)]
                self._states[row] = jax.tree.unflatten(treedef, leaves)
        self._rows.set_state(state)

    def render(self, row: int) -> np.ndarray:
        """The world's own drawing, uint8 [320, 480, 3]."""
        self._rows.require_started(row)
        missing = "Drawing needs matplotlib; pip install 'sombrl[video]'."
        FigureCanvasAgg = require("matplotlib.backends.backend_agg", "matplotlib", missing).FigureCanvasAgg
        Figure = require("matplotlib.figure", "matplotlib", missing).Figure
        figure = Figure(figsize=(4.8, 3.2), dpi=100)
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self._trails[row].append(self._states[row])
        self.world.draw(self._states[row], axes)
        self.world.draw_trail(self._trails[row], axes)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _processor() -> jax.Device | None:
    """Where pictures are drawn: a replay in the host's memory takes them, and they are too little work for a GPU."""
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:  # JAX was told to see the accelerator alone
        return None


Programs = tuple[Callable[..., Any], Callable[..., Any]]


def _row_keys(seed: UInt[Array, ""], episode: UInt[Array, ""]) -> tuple[Key[Array, ""], Key[Array, ""]]:
    """The key of the start and the key of the noise, of one episode of one seed."""
    start_key, noise_key = jr.split(jr.fold_in(jr.fold_in(jr.key(seed), STREAM), episode))
    return start_key, noise_key


def _programs(world: AbstractWorld, repeat: int, cost: float, bound: float) -> Programs:
    """`_compile`, shared between equal worlds (training and evaluation) where worlds can be compared."""
    try:
        hash(world)
    except TypeError:  # it holds arrays
        return _compile.__wrapped__(world, repeat, cost, bound)
    return _compile(world, repeat, cost, bound)


@functools.lru_cache(maxsize=32)
def _compile(world: AbstractWorld, repeat: int, cost: float, bound: float) -> Programs:
    """The start and the decision of one row: closures; modules as arguments cost more than the physics."""

    @jax.jit
    def start(counters: UInt[Array, " 2"]) -> tuple[PyTree, Array]:
        """From (seed, episode)."""
        start_key, _ = _row_keys(counters[0], counters[1])
        state = world.reset(key=start_key)
        return state, world.observe(state)

    @jax.jit
    def decide(
        state: PyTree, action: Float[Array, " action"], counters: UInt[Array, " 4"]
    ) -> tuple[PyTree, Array, Float[Array, ""], Bool[Array, ""]]:
        """From (seed, episode, decision, frames): the next state, its observation, the reward, the end."""
        _, noise_key = _row_keys(counters[0], counters[1])
        keys = jr.split(jr.fold_in(noise_key, counters[2]), repeat)
        price = cost * norm(bound * action)
        here = world.in_episode(counters[1])

        def frame(carry: tuple[PyTree, Array, Array], inputs: tuple[Array, Array]) -> tuple[Any, None]:
            state, total, ended = carry
            index, key = inputs
            runs = (index < counters[3]) & ~ended
            moved, reward, ends = here.step(state, action, key=key)
            state = jax.tree.map(lambda new, old: jnp.where(runs, new, old), moved, state)
            total = total + jnp.where(runs, reward - price, 0.0)
            return (state, total, ended | (runs & ends)), None

        begin = (state, jnp.zeros((), jnp.float32), jnp.zeros((), bool))
        indices = jnp.arange(repeat, dtype=jnp.uint32)
        (state, total, ended), _ = jax.lax.scan(frame, begin, (indices, keys))
        return state, world.observe(state), total, ended

    return start, decide
