"""Several lots of environments of the same kind, stepped as one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sombrl.envs.base import AbstractEnvs
from sombrl.envs.interface import Step
from sombrl.errors import SombrlError
from sombrl.numerics import join_rows


class JoinedEnvs(AbstractEnvs):
    """The rows of all lots, one lot after the other; closing stays with the lots."""

    def __init__(self, lots: Sequence[AbstractEnvs]):
        if len({lot.spec for lot in lots}) != 1:
            raise SombrlError(f"environments of different kinds cannot be stepped as one: {[x.spec for x in lots]}.")
        self.lots, self.spec, self.task = list(lots), lots[0].spec, lots[0].task
        self.seeds = [seed for lot in lots for seed in lot.seeds]
        self._ends = np.cumsum([len(lot.seeds) for lot in lots])[:-1]

    def reset_rows(self, rows: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        """See `AbstractEnvs`."""
        return np.concatenate(self._each(lambda lot, *cut: lot.reset_rows(*cut), rows, episodes))

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """See `AbstractEnvs`."""
        # All are asked before any is waited for: the worker processes of different lots work side by side.
        steps = [wait() for wait in self._each(lambda lot, *cut: lot.begin_step(*cut), actions, active)]
        fields = ("obs", "reward", "terminated", "truncated")
        return Step(*(np.concatenate([getattr(step, field) for step in steps]) for field in fields))

    def physical(self, actions: np.ndarray) -> np.ndarray:
        """See `AbstractEnvs`."""
        return self.lots[0].physical(actions)

    def get_state(self) -> dict[str, np.ndarray]:
        """See `AbstractEnvs`."""
        states = [lot.get_state() for lot in self.lots]
        return {name: join_rows([state[name] for state in states]) for name in states[0]}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """See `AbstractEnvs`."""
        cuts = {name: np.split(values, self._ends) for name, values in state.items()}
        for i, lot in enumerate(self.lots):
            lot.set_state({name: parts[i] for name, parts in cuts.items()})

    def render(self, row: int) -> np.ndarray:
        """See `AbstractEnvs`."""
        lot = int(np.searchsorted(self._ends, row, side="right"))
        return self.lots[lot].render(row - int([0, *self._ends][lot]))

    def _each(self, call: Callable[..., Any], *arrays: np.ndarray) -> list[Any]:
        cuts = zip(*(np.split(np.asarray(array), self._ends) for array in arrays), strict=True)
        return [call(lot, *cut) for lot, cut in zip(self.lots, cuts, strict=True)]
