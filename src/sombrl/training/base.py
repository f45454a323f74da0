"""The contract of training: a trainer proposes iterations and commits them, a policy acts. Nothing is trained here.

An agent knows a `Trainer` and nothing behind it. `iterate` trains for one iteration: episodes for planners, windows of
decisions for algorithms that learn at every decision. A subclass writes `propose`, which leaves the last committed
iteration alone; one assignment commits what it returns. So an exception anywhere, a signal included, leaves a trainer
that stands at the end of its last iteration.
"""

import abc
import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

import equinox as eqx
import jax
import numpy as np

from sombrl.config.run import RunConfig
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.maker import EnvMaker
from sombrl.errors import SombrlError
from sombrl.records import AbstractTask, Transition
from sombrl.settings import Setting
from sombrl.training.imagined import ImaginedEnvs, foretell
from sombrl.training.origin import Origin
from sombrl.training.play import OnStep, play

S = TypeVar("S")
OnDecision = Callable[[int, int], None]
"""Called with (t, length) after decision t of an iteration. It may raise, which abandons the iteration."""
Mode = Literal["explore", "task", "uncertainty"] | AbstractTask
"""What a policy is for: to explore as in training, the task alone, σ alone, or another task in the same dynamics."""
EVALUATION_EPISODES = 1_000_000
"""The number of the first episode of an evaluation: its starts are never trained on."""


def ignore(t: int, length: int) -> None:
    """Nothing happens at a decision."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """One iteration, as the caller sees it. Arrays are [seeds]."""

    iteration: int
    returns: np.ndarray
    """Of episodes, exploring; the mean where several ended, NaN where none did."""
    decisions: np.ndarray
    """Since the start."""
    taken: np.ndarray
    """Decisions in this iteration."""
    columns: dict[str, np.ndarray]
    """What is reported of the episodes, beside their returns."""
    metrics: dict[str, np.ndarray]
    seconds: dict[str, float]
    """Wall-clock seconds by stage."""
    reward_size: tuple[float, float] | None = None
    """The largest reward of a decision and the root mean square, where critics learn from them."""


@dataclasses.dataclass(frozen=True)
class Committed(Generic[S]):
    """Where training stands between iterations. There is one of these, and it is only ever replaced as a whole."""

    iteration: int
    state: S | None
    """None until it is asked for: building an agent is cheap."""
    simulators: dict[str, np.ndarray] | None
    """`AbstractEnvs.get_state`, where an iteration may end in the middle of an episode."""


@dataclasses.dataclass(frozen=True)
class Proposal(Generic[S]):
    """An iteration that came to its end, and where training stands after it."""

    report: Report
    after: Committed[S]


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """What a checkpoint holds. `free` may be views of what training writes to: save it before the next iteration."""

    tree: Any
    meta: dict[str, Any]
    free: dict[str, np.ndarray] | None
    """Arrays whose shapes are not known beforehand."""


class Policy(abc.ABC):
    """Acts for one or several seeds. What it remembers from one decision to the next is passed in and out."""

    mode: Mode

    @abc.abstractmethod
    def begin(self, copies: int = 1, *, stream: int | None = None) -> Any:
        """The memory before the first decision of `copies` environments per seed, the copies of a seed side by side.

        Evaluations give `stream`, the number of the episode: with it randomness is a function of (seed, episode).
        """

    @abc.abstractmethod
    def act(self, memory: Any, obs: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, Any]:
        """Actions in [-1, 1] for a row of observations each, and the new memory. Rows that are `first` start over."""

    @abc.abstractmethod
    def assess(self, rows: Transition, valid: np.ndarray) -> dict[str, np.ndarray]:
        """What the model says about transitions, [seeds, time]; see `diagnose`."""

    @abc.abstractmethod
    def returns(self, rewards: np.ndarray) -> np.ndarray:
        """The return of each row of rewards, [rows, time], of an episode."""


class Trainer(abc.ABC, Generic[S]):
    """What an algorithm is to an agent: it trains, hands out policies, and says what a checkpoint must hold."""

    exact_rewind: ClassVar[bool] = True
    """Whether an iteration that was abandoned leaves no trace at all."""
    checkpoint_every: ClassVar[int] = 1
    """Iterations between checkpoints, unless a run says otherwise."""
    counts: ClassVar[Literal["episodes", "decisions"]]
    """What a run of this algorithm is measured in."""
    learns_policy: bool
    """Whether it acts by a policy that it learned, instead of planning."""
    origin: Origin | None = None
    """Where the transitions are from that it began with, if it did."""

    def __init__(self, config: Any, run: RunConfig, maker: EnvMaker, envs: AbstractEnvs, setting: Setting):
        self.config, self.run, self.maker, self.envs, self.setting = config, run, maker, envs, setting
        self.seeds = run.seed_list
        self._now: Committed[S] = Committed(0, None, None)
        self._undo: Callable[[], None] | None = None  # takes an open proposal back
        self._placed = True  # whether the environments stand where `_now` says
        self._moved = False  # whether an evaluation has moved them

    # ------------------------------------------------------------------------------------ where it stands

    @property
    def iteration(self) -> int:
        """Finished iterations."""
        return self._now.iteration

    @property
    def state(self) -> S:
        """All that was learned; untrained at first."""
        if self._now.state is None:
            self._now = dataclasses.replace(self._now, state=self._initial())
        state = self._now.state
        assert state is not None
        return state

    def replace_state(self, state: S) -> None:
        """Go on from another state of the same form, for example one whose replay was filled from a file."""
        self._now = dataclasses.replace(self._now, state=state)

    @property
    @abc.abstractmethod
    def window(self) -> int:
        """Decisions of a seed in an iteration, at most."""

    @abc.abstractmethod
    def _initial(self) -> S:
        """The state before any training."""

    # ------------------------------------------------------------------------------------------- training

    def iterate(self, on_decision: OnDecision = ignore) -> Report:
        """Train for one iteration."""
        self.rewind()
        self.place()
        proposal = self.propose(on_decision)
        self.commit(proposal)
        return proposal.report

    @abc.abstractmethod
    def propose(self, on_decision: OnDecision) -> Proposal[S]:
        """Train for one iteration without committing it. What is written in place sets `_undo` beforehand."""

    def commit(self, proposal: Proposal[S]) -> None:
        """Be at the end of the proposed iteration."""
        # One statement without a call in it: a signal comes before all of it, or after.
        self._now, self._undo, self._placed = proposal.after, None, True

    def rewind(self) -> None:
        """Forget an iteration that did not come to its end."""
        if self._undo is not None:
            self._undo()
            self._undo = None

    def place(self) -> None:
        """Put the environments where the last iteration left them; they are about to move."""
        if not self._placed and self._now.simulators is not None:
            try:
                self.envs.set_state(self._now.simulators)
            except SombrlError as error:
                if not self._moved:
                    raise
                self._now = self.envs_lost(error)
        self._placed = self._moved = False

    def envs_may_have_moved(self) -> None:
        """Put the environments back before the next iteration: they are public, and anyone may have stepped them."""
        self._placed = False

    def envs_lost(self, error: SombrlError) -> Committed[S]:
        """Where to go on when an evaluation has moved an environment that cannot be put back: nowhere."""
        raise SombrlError(
            f"{str(error).rstrip('.')}; evaluate has moved it, so give a function that makes environments instead "
            "of a ready one."
        ) from error

    def prepare(self, open_run: "Callable[[str], Trainer[Any]]") -> None:
        """Do what comes before the first iteration and can be refused; `open_run` loads the trainer of a run."""

    # --------------------------------------------------------------------------------------- how long it is

    @property
    def planned_iterations(self) -> int:
        """How many iterations the run is to have."""
        if self.counts == "decisions":
            return math.ceil(self.planned_decisions / self.window)
        if self.run.decisions is not None:
            raise SombrlError("this algorithm learns between episodes: give --episodes, not --decisions.")
        return self.run.episodes

    @property
    def planned_decisions(self) -> int:
        """How many decisions of a seed the run is to have."""
        given = self.run.decisions
        return self.run.episodes * self.envs.spec.episode_length if given is None else given

    def reserve(self, iterations: int) -> None:
        """Plan for so many iterations where fewer were planned; a replay of the planned size grows."""
        if self.counts == "decisions" and iterations > self.planned_iterations:
            self.run = dataclasses.replace(self.run, decisions=iterations * self.window)
            self._grow()

    def _grow(self) -> None:
        """Have a replay of the size that is planned now."""

    @property
    @abc.abstractmethod
    def trained(self) -> str:
        """How long it was trained, in words."""

    def opening(self) -> list[str]:
        """Lines to print when a run starts."""
        return []

    # ------------------------------------------------------------------------------------------- acting

    @abc.abstractmethod
    def policy(self, mode: Mode = "task", rows: Sequence[int] | None = None) -> Policy:
        """The policy after the last iteration, for some rows of the seed axis; None: all."""

    @property
    def plan(self) -> str | None:
        """The short plans that its policy acts by, "none" where it could and does not; None where it cannot."""
        return None

    def planned_policy(self, plan: str, mode: Mode = "task", rows: Sequence[int] | None = None) -> Policy:
        """The policy acting by the short plans of that name."""
        raise refuse_plan()

    def returns(
        self, mode: Mode, episodes: int, *, on_step: OnStep | None = None, plan: str | None = None
    ) -> np.ndarray:
        """Returns of whole episodes, [episodes, seeds], on fresh environments and starts never trained on.

        With a task for a mode, these are what that task pays. `plan`: see `planned_policy`; default: as trained.
        """
        policy = self.policy(mode) if plan is None else self.planned_policy(plan, mode)
        return self._returns_of(policy, episodes, on_step)

    def _returns_of(self, policy: Policy, episodes: int, on_step: OnStep | None = None) -> np.ndarray:
        task = policy.mode if isinstance(policy.mode, AbstractTask) else None
        options: dict[str, Any] = {"record": task is not None, "on_step": on_step}
        with self._evaluation_envs(render=on_step is not None) as envs:
            episodes_played = play(policy, envs, first_episode=EVALUATION_EPISODES, episodes=episodes, **options)
            return np.stack(
                [policy.returns(p.rewards) if task is None else paid(task, p.rows, p.valid) for p in episodes_played]
            )

    def uncertainty(self, episodes: int) -> np.ndarray:
        """Σ‖σ‖ of whole episodes, [episodes, seeds]: of a planner's plans for σ alone, or of the trained policy."""
        policy = self.policy("uncertainty")
        with self._evaluation_envs(render=False) as envs:
            episodes_played = play(policy, envs, first_episode=EVALUATION_EPISODES, episodes=episodes, record=True)
            return np.stack([policy.assess(p.rows, p.valid)["explore/uncertainty"] for p in episodes_played])

    def foretell(self, policy: Policy | None, episodes: int) -> tuple[np.ndarray, np.ndarray]:
        """J and Σ‖σ‖ of a policy in the learned model, [episodes, seeds] each; None: the trained one, for the task.

        Episodes begin where those of `returns` do.
        """
        with self._evaluation_envs(render=False) as envs:
            acting, imagined = self.imagined(envs, policy)
            numbers = {"first_episode": EVALUATION_EPISODES, "episodes": episodes}
            return foretell(acting, imagined, **numbers, discount=self.setting.discount)

    def calibration(self, episodes: int) -> dict[str, np.ndarray]:
        """How σ ranks the errors of one step on held-out episodes: metrics, [1, seeds] each."""
        raise SombrlError("how σ ranks errors of one step is measured for dreamer alone.")

    def imagined(self, envs: AbstractEnvs, policy: Policy | None) -> tuple[Policy, ImaginedEnvs]:
        """The learned model as environments that begin where `envs` do, and the policy as it acts there."""
        raise refuse_model()

    def bound_weight(self, origin: Literal["run", "theory"]) -> np.ndarray:
        """λ of |J(π) - Jₙ(π)| <= λ Σ‖σ‖, [seeds], in reward: the one it explores with, or the theorem's."""
        raise refuse_model()

    @contextlib.contextmanager
    def _evaluation_envs(self, *, render: bool) -> Iterator[AbstractEnvs]:
        """Environments with a time limit, one per seed."""
        envs = self._open_evaluation_envs(render)
        if self.maker.same_simulator(self.envs, envs):
            self._placed, self._moved = False, True
        try:
            yield envs
        finally:
            if not self.maker.is_object:  # an object is the user's, and may be shared
                self._close_evaluation_envs(envs)

    def _open_evaluation_envs(self, render: bool) -> AbstractEnvs:
        return self.maker.make(self.seeds, render=render)

    def _close_evaluation_envs(self, envs: AbstractEnvs) -> None:
        envs.close()

    def films(self) -> dict[str, list[np.ndarray]]:
        """Films of the training by name, where there are pictures to see."""
        return {}

    def foresight(self) -> list[np.ndarray] | None:
        """Frames of what the model expects beside what was seen, where it predicts pictures; None elsewhere."""
        return None

    # ------------------------------------------------------------------------------------ save and restore

    def snapshot(self) -> Snapshot:
        """The end of the last iteration."""
        self.rewind()
        meta = {"iteration": self.iteration} | ({} if self.origin is None else {"origin": self.origin.to_json()})
        return Snapshot(self.state, meta, self._now.simulators)

    def expect(self, meta: dict[str, Any]) -> None:
        """Know from a checkpoint's metadata what decides its shapes, before anything is made for it."""
        if (origin := meta.get("origin")) is not None:
            self.origin = Origin.from_json(origin)

    def outline(self) -> Any:
        """A tree with the shapes of `state`, for which nothing is allocated; None where a part cannot be traced."""
        try:
            return eqx.filter_eval_shape(self._initial)
        except (jax.errors.JAXTypeError, TypeError):  # a part of the user's that computes with NumPy
            return None

    def restore(self, load: Callable[[Callable[[], Any]], tuple[Any, dict[str, Any]]]) -> None:
        """Go on from a checkpoint; `load` takes what makes a tree like the saved one, and returns that and metadata."""
        state, meta = load(lambda: self.state)
        self._now, self._placed = Committed(meta["iteration"], state, meta.get("free")), False


def refuse_plan() -> SombrlError:
    """Of agents that cannot act by short plans."""
    return SombrlError(
        "--plan needs a policy with critics and a model that knows what is paid, as mbpo learns them (--controller "
        "sac): leave it out."
    )


def refuse_model() -> SombrlError:
    """Of agents without a model to imagine episodes in."""
    return SombrlError(
        "bounds are what a learned model says, and this agent has none: use gp-icem, mbpo, sim-fsvgd or dreamer."
    )


def paid(task: AbstractTask, rows: Transition, valid: np.ndarray) -> np.ndarray:
    """What `task` pays for transitions, [rows, time], in all."""
    rewards = jax.vmap(jax.vmap(task.reward))(rows.obs, rows.action, rows.next_obs)
    return np.asarray(np.sum(np.asarray(rewards, np.float64) * valid, axis=1))
