"""The episode and step counters that all environments share."""

from collections.abc import Mapping, Sequence

import numpy as np

from sombrl.envs.guards import check_step_inputs, require_finite
from sombrl.envs.interface import EnvSpec
from sombrl.errors import SombrlError


class Rows:
    """A row per seed: its episode (-1 before the first), decisions in it, whether it is over, the last observation."""

    def __init__(self, spec: EnvSpec, seeds: Sequence[int]):
        self.spec, self.seeds = spec, list(seeds)
        count = len(self.seeds)
        self.episodes = np.full(count, -1, np.int64)
        self.decisions = np.zeros(count, np.int64)
        self.over = np.zeros(count, bool)
        self.obs = np.zeros((count, spec.obs_dim), spec.obs_dtype)

    def check_reset(self, rows: np.ndarray, episodes: np.ndarray) -> list[tuple[int, int]]:
        """The inputs of `reset_rows`, checked, as (row, episode) pairs."""
        rows, episodes, count = np.asarray(rows), np.asarray(episodes), len(self.seeds)
        if rows.shape != (count,) or rows.dtype != bool:
            raise SombrlError(f"{self.spec.name}: rows must be {count} booleans, one per seed.")
        if episodes.shape != (count,) or not np.issubdtype(episodes.dtype, np.integer):
            raise SombrlError(f"{self.spec.name}: episodes must be {count} integers, one per seed.")
        pairs = [(row, int(episodes[row])) for row in np.flatnonzero(rows).tolist()]
        for _, episode in pairs:
            if not 0 <= episode < 2**31:
                raise SombrlError(f"An episode number must be an integer from 0 to 2³¹ − 1, not {episode!r}.")
        return pairs

    def begin(self, row: int, episode: int) -> None:
        """Set the counters of a row to the start of an episode."""
        self.episodes[row], self.decisions[row], self.over[row] = episode, 0, False

    def see(self, row: int, obs: np.ndarray) -> None:
        """A new observation of a row, refused unless finite."""
        self.obs[row] = obs
        layout = self.spec.layout
        if layout is None or layout.dtype == np.float32:
            self.require_finite(row, self.obs[row], "observation")
            return
        for name, part in layout.split(self.obs[row]).items():
            self.require_finite(row, part, f"observation {name!r}")

    def check_step(self, actions: np.ndarray, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inputs of `step`: actions as float32, clipped to [-1, 1] unless discrete, zero on inactive rows."""
        if (self.episodes < 0).all():
            raise SombrlError(f"{self.spec.name} has not been started; call reset first.")
        actions, active = check_step_inputs(self.spec, self.seeds, self.over, actions, active)
        for row in np.flatnonzero(active & (self.episodes < 0)).tolist():
            self.require_started(row)
        return actions, active

    def require_started(self, row: int) -> None:
        """Refuse to step or draw a row that was never reset."""
        if self.episodes[row] < 0:
            seed = self.seeds[row]
            raise SombrlError(f"{self.spec.name} has not been started for seed {seed}; call reset first.")

    def require_finite(self, row: int, values: object, what: str) -> None:
        """Stop the run, naming the place, when `values` holds a NaN or an infinity."""
        place = {"seed": self.seeds[row], "episode": int(self.episodes[row]), "step": int(self.decisions[row])}
        require_finite(values, what, env=self.spec.name, **place)

    def place(self, row: int) -> str:
        """The place of a row in words."""
        return f"seed {self.seeds[row]}, episode {self.episodes[row]}, step {self.decisions[row]}"

    def get_state(self) -> dict[str, np.ndarray]:
        """Copies of everything here."""
        counters = {"episode": self.episodes.copy(), "decisions": self.decisions.copy()}
        return counters | {"over": self.over.copy(), "obs": self.obs.copy()}

    def check_state(self, state: dict[str, np.ndarray], shapes: Mapping[str, tuple[int | None, ...]]) -> None:
        """Refuse a saved state without our keys and `shapes` (of one row; None is any length)."""
        ours = {"episode": (), "decisions": (), "over": (), "obs": (self.spec.obs_dim,)}
        for key, shape in {**ours, **shapes}.items():
            if key not in state:
                raise SombrlError(f"This is not a saved state of {self.spec.name}: it has no {key!r}.")
            got = np.shape(state[key])
            wanted = (len(self.seeds), *shape)
            if len(got) != len(wanted) or any(w not in (None, g) for g, w in zip(got, wanted, strict=True)):
                raise SombrlError(
                    f"The saved state does not fit {self.spec.name} with {len(self.seeds)} seeds; resume with "
                    "the environment and seeds it was saved with."
                )

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `get_state`."""
        self.episodes = np.array(state["episode"], np.int64)
        self.decisions = np.array(state["decisions"], np.int64)
        self.over, self.obs = np.array(state["over"], bool), np.array(state["obs"], self.spec.obs_dtype)
