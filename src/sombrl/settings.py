"""The settings of the paper as plain data, read by the loop only."""

import dataclasses

from sombrl.records import SombrlError


@dataclasses.dataclass(frozen=True)
class FiniteHorizon:
    """Episodes of `horizon` decisions from fresh starts; the model is updated after each of them."""

    horizon: int
    resets: bool = True
    discount: float = 1.0

    def __post_init__(self):
        """An episode has at least one decision."""
        if self.horizon < 1:
            raise SombrlError(f"the episode length must be at least 1 decision, not {self.horizon}.")

    def chunk_length(self, iteration: int) -> int:
        """Decisions between two updates of the model."""
        return self.horizon


Setting = FiniteHorizon
