"""Several groups of environments of the same kind, stepped as one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from sombrl.envs.base import AbstractEnvs
from sombrl.envs.interface import Step
from sombrl.errors import SombrlError
from sombrl.numerics import join_rows


class JoinedEnvs(AbstractEnvs):
    """The rows of all shards, one shard after the other. It does not close them."""

    def __init__(self, shards: Sequence[AbstractEnvs]):
        if len({shard.spec for shard in shards}) != 1:
            raise SombrlError(f"environments of different kinds cannot be stepped as one: {[x.spec for x in shards]}.")
        self.shards, self.spec, self.task = list(shards), shards[0].spec, shards[0].task
        self.cost = shards[0].cost
        self.seeds = [seed for shard in shards for seed in shard.seeds]
        self._ends = np.cumsum([len(shard.seeds) for shard in shards])[:-1]

    @override
    def reset_rows(self, rows: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        return np.concatenate(self._each(lambda shard, *cut: shard.reset_rows(*cut), rows, episodes))

    @override
    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        # All are asked before any is waited for: the worker processes of different shards work in parallel.
        steps = [wait() for wait in self._each(lambda shard, *cut: shard.begin_step(*cut), actions, active)]
        fields = ("obs", "reward", "terminated", "truncated", *(("cost",) if steps[0].cost is not None else ()))
        return Step(*(np.concatenate([getattr(step, field) for step in steps]) for field in fields))

    @override
    def physical(self, actions: np.ndarray) -> np.ndarray:
        return self.shards[0].physical(actions)

    @override
    def get_state(self) -> dict[str, np.ndarray]:
        states = [shard.get_state() for shard in self.shards]
        return {name: join_rows([state[name] for state in states]) for name in states[0]}

    @override
    def set_state(self, state: dict[str, np.ndarray]) -> None:
        cuts = {name: np.split(values, self._ends) for name, values in state.items()}
        for i, shard in enumerate(self.shards):
            shard.set_state({name: parts[i] for name, parts in cuts.items()})

    @override
    def render(self, row: int) -> np.ndarray:
        shard = int(np.searchsorted(self._ends, row, side="right"))
        return self.shards[shard].render(row - int([0, *self._ends][shard]))

    def _each(self, call: Callable[..., Any], *arrays: np.ndarray) -> list[Any]:
        cuts = zip(*(np.split(np.asarray(array), self._ends) for array in arrays), strict=True)
        return [call(shard, *cut) for shard, cut in zip(self.shards, cuts, strict=True)]
