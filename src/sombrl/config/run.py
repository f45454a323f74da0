"""The configuration of a run, and its way to JSON and back."""

import dataclasses
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Interval

from sombrl.config.check import Configuration
from sombrl.config.kinds import Advice, Before
from sombrl.records import SombrlError
from sombrl.settings import Discounted, FiniteHorizon, NonEpisodic, Setting, Unsupervised, UpdateRule

SEEDS = 2**31  # what JAX's keys and every simulator take
TOGETHER = 10_000  # seeds: far more than any device has room for


@dataclasses.dataclass(frozen=True)
class RunConfig(Configuration):
    """The environment, the seeds and the length of a run."""

    env: str = "Pendulum-v1"
    """A name of `sombrl list envs`, a Gymnasium id, or module:Id-v0."""
    env_kwargs: tuple[str, ...] = ()
    """Its options as name=value, such as reward=sparse."""
    action_repeat: Annotated[int, Ge(1), Advice("leave it out for its default")] | None = None
    """Frames per decision; rewards are summed. Default: as published, 2 for dmc: and 4 for atari:, else 1."""
    action_cost: Annotated[float, Ge(0)] = 0.0
    """K of the cost K‖u‖₂, in reward, charged for the physical action on every frame."""
    env_workers: Annotated[int, Ge(0), Advice("0 steps the environments in turn")] = 0
    """Processes that step the environments of the seeds; 0: all in this process, in turn (docs/environments.md)."""
    episode_length: Annotated[int, Ge(1)] | None = None
    """Decisions per episode; default: the environment's own limit."""
    setting: Literal["finite-horizon", "discounted", "non-episodic", "unsupervised"] = "finite-horizon"
    """What an episode is. Of fixed length; discounted ones that grow; one trajectory that is never reset; or episodes
    that explore without a task, before the tasks of --downstream."""
    downstream: tuple[str, ...] = ()
    """Unsupervised: tasks to plan for afterwards, zero-shot (an unknown name lists those of the environment)."""
    discount: Annotated[float, Interval(gt=0, lt=1)] = 0.99
    """γ of the discounted setting."""
    growing_horizon: bool = True
    """Discounted: episodes of T(n) = -ln n/ln γ decisions (the theory's), or all of the full length."""
    horizon_floor: Annotated[int, Ge(1)] = 10
    """Discounted: the shortest of the growing episodes (T(1) would be 0)."""
    update_every: Annotated[int, Ge(0)] = 10
    """Non-episodic: decisions between updates of the model; for the other rules the most of them; 0: any number."""
    update_rule: UpdateRule = "fixed"
    """Non-episodic: update every update_every decisions; once the model would have learned one bit (the proofs); or
    once the sum of ‖σ‖ exceeds update_threshold (the paper's main text)."""
    update_threshold: Annotated[float, Gt(0)] = 1.0
    """Non-episodic: the C of that rule, in normalised units."""
    update_minimum: Annotated[int, Ge(1)] = 1
    """Non-episodic: at least so many decisions between updates (sombrl.theory.lyapunov_minimum)."""
    offline: str | None = None
    """Learn from these data alone; no environment is stepped. A run's folder, a Minari dataset, or an .npz with obs,
    action, reward, next_obs, terminated and truncated (docs/offline.md)."""
    offline_seed: Annotated[int, Ge(0), Advice("leave it out for all seeds")] | None = None
    """Offline, of a run: the data of this seed; default: of all, one after the other."""
    offline_order: Literal["all", "recorded"] = "all"
    """Offline: learn from all data from the first update on; or hand them out one by one, so that every update sees
    what it would have seen when they were recorded."""
    held_out: Annotated[float, Interval(ge=0, lt=1), Advice("it is a share of the episodes")] = 0.1
    """Offline: share of the episodes that nothing is learned from. They say how wrong the model is, and calibrate λ."""
    random_episodes: Annotated[int, Ge(0), Advice("leave it out for its default"), Before(0)] | None = None
    """First episodes of random actions, so that the model has something to start from; non-episodic: updates. Default:
    1 for gp-icem, else 0."""
    episodes: Annotated[int, Ge(1)] = 10
    """Episodes per seed; non-episodic: updates of the model."""
    decisions: Annotated[int, Ge(1), Advice("leave it out to train for --episodes")] | None = None
    """Decisions per seed; default: those of `episodes` full episodes."""
    report_every: Annotated[int, Ge(1), Advice("it is in decisions, 500 if left out")] = 500
    """Decisions between two reports (and checkpoints)."""
    eval_every: Annotated[int, Ge(0), Advice("0 never evaluates")] = 0
    """Decisions between evaluations; 0: none. They are without exploring; `sombrl eval` evaluates afterwards."""
    eval_episodes: Annotated[int, Ge(1)] = 5
    """Episodes per evaluation."""
    record_bounds: bool = False
    """Predict the return of every episode in the model before it is played, and record both (docs/bounds.md). Costs a
    planner as much as the episode; policies that learn at every decision predict evaluations (--eval-every)."""
    stop_when_gap: Annotated[float, Interval(gt=0, lt=1), Advice("leave it out to train to the end")] | None = None
    """Planners: end once J⁺ of the optimistic plan and J⁻ of the greedy one are within this share of each other. Costs
    two more episodes of planning for each."""
    seed: Annotated[int, Interval(ge=0, le=SEEDS - 1)] = 0
    """The first seed."""
    seeds: Annotated[int, Ge(1), Advice("it is how many to train, from --seed on")] = 1
    """Seeds to train together: seed, seed + 1, …"""

    def refuse_combinations(self) -> None:
        """Seeds that there are, tasks only where they are used, and a setting that is possible."""
        if self.seeds > TOGETHER or self.seed + self.seeds > SEEDS:
            raise SombrlError(
                f"--seeds {self.seeds} from --seed {self.seed} on are too many: train at most {TOGETHER} together, the "
                f"last of them below {SEEDS}."
            )
        if self.downstream and self.setting != "unsupervised":
            raise SombrlError("--downstream tasks come after exploring without one: use --setting unsupervised.")
        of_bounds = self.record_bounds or self.stop_when_gap is not None
        flag = "--record-bounds" if self.record_bounds else "--stop-when-gap"
        if self.endless and of_bounds:
            raise SombrlError(f"{flag} is about whole episodes, and --setting non-episodic has none: leave it out.")
        if self.offline is None and (self.offline_seed is not None or self.offline_order != "all"):
            raise SombrlError("--offline-seed and --offline-order are about the data of --offline: name those too.")
        if self.offline is not None and self.setting in ("non-episodic", "unsupervised"):
            raise SombrlError(f"--offline learns a task from episodes: leave out --setting {self.setting}.")
        if self.offline is not None and of_bounds:
            raise SombrlError(f"{flag} is about episodes that are played, and --offline plays none: leave it out.")
        self.make_setting(episode_length=1)  # refuses an --update-minimum beyond --update-every

    @property
    def endless(self) -> bool:
        """Whether the environment must never end."""
        return self.setting == "non-episodic"

    def make_setting(self, episode_length: int) -> Setting:
        """The setting, for an environment with episodes of that length."""
        match self.setting:
            case "non-episodic":
                return NonEpisodic(self.update_every, self.update_rule, self.update_threshold, self.update_minimum)
            case "discounted":
                return Discounted(self.discount, episode_length, self.horizon_floor, self.growing_horizon)
            case "unsupervised":
                return Unsupervised(FiniteHorizon(episode_length))
            case _:
                return FiniteHorizon(episode_length)

    @property
    def seed_list(self) -> list[int]:
        """The seeds."""
        return list(range(self.seed, self.seed + self.seeds))

    @property
    def env_options(self) -> dict[str, str]:
        """`env_kwargs` as a dictionary of texts; the registry reads numbers and truth values in them."""
        return dict(_option(text) for text in self.env_kwargs)


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise SombrlError(f"--env-kwargs takes name=value, not {text!r}.")
    return name, value
