"""The interface of a planner or policy optimiser, which sees an `ImaginedMDP` and not the model behind it."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float, Key

from sombrl.exploration.base import ImaginedMDP
from sombrl.networks.normaliser import Normalised
from sombrl.networks.residual import Body
from sombrl.records import SombrlError, State
from sombrl.replay import Replay


class Watch(eqx.Module):
    """What was foreseen of the cost at one decision."""

    bound: Float[Array, ""]  # the upper bound of the cost of what is meant to be done
    intervened: Bool[Array, ""]  # whether it was beyond the budget: a shield took over, or a planner found no plan


class AbstractController(eqx.Module):
    """Chooses actions for an imagined MDP. Its state (a planner's warm start, a policy's weights) is passed along."""

    @abc.abstractmethod
    def init(self, mdp: ImaginedMDP, *, key: Key[Array, ""]) -> Any:
        """The state before anything was planned or learned."""

    def for_evaluation(self) -> "AbstractController":
        """The same controller without exploration noise; by default itself, as planners have none."""
        return self

    @property
    def learns(self) -> bool:
        """Whether its state is a policy that was learned; a planner's is only a warm start."""
        return False

    @property
    def learns_from_data(self) -> bool:
        """Whether `improve` does anything; a planner that has nothing to learn is ready as it is."""
        return self.learns

    def actor(self, state: Any) -> Body | Normalised | None:
        """The network of the learned policy: tanh of the first half of its output is the action. None of a planner."""
        return None

    @abc.abstractmethod
    def begin_episode(self, state: Any, mdp: ImaginedMDP) -> Any:
        """Forget what belongs to the last episode (a planner's warm start); keep what was learned."""

    @abc.abstractmethod
    def improve(
        self, state: Any, mdp: ImaginedMDP, replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[Any, dict[str, Float[Array, ""]]]:
        """Learn from the new model. Planners return their state unchanged."""

    @property
    def renew_every(self) -> int | None:
        """How many improvements lie between two calls of `renew`; None for never."""
        return None

    def renew(self, state: Any, mdp: ImaginedMDP, *, key: Key[Array, ""]) -> Any:
        """Forget some of what was learned, so that learning does not get stuck. By default it does nothing."""
        return state

    def take_over(self, state: Any, fresh: Any) -> Any:
        """What another run has learned, for another strategy; what was that strategy's own is as in `fresh`."""
        return state

    @abc.abstractmethod
    def act(
        self, state: Any, mdp: ImaginedMDP, belief: State, *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " plan"], Any]:
        """The planned action (hallucinated controls included) and the new state."""

    def act_watched(
        self, state: Any, mdp: ImaginedMDP, belief: State, *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " plan"], Any, Watch]:
        """`act` in an MDP with a limit to costs, and what was foreseen of them."""
        raise SombrlError(f"{type(self).__name__} looks at no costs: put a Shield around it.")
