"""The configuration of a run, and its way to JSON and back."""

import dataclasses
from typing import Literal

from sombrl.config.suggestions import check_choices
from sombrl.records import SombrlError
from sombrl.settings import Discounted, FiniteHorizon, NonEpisodic, Setting, Unsupervised, UpdateRule

SEEDS = 2**31  # what JAX's keys and every simulator take
TOGETHER = 10_000  # seeds: far more than any device has room for
ADVICE = {"seeds": "it is how many to train, from --seed on", "report_every": "it is in decisions, 500 if left out"}


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """The environment, the seeds and the length of a run."""

    env: str = "Pendulum-v1"
    """An environment of sombrl (`sombrl list envs`), a Gymnasium id, or module:Id-v0."""
    env_kwargs: tuple[str, ...] = ()
    """Options of the environment as name=value, e.g. reward=sparse."""
    action_repeat: int | None = None
    """Frames per decision; rewards are summed. Default: as published, 2 for dmc: and 4 for atari:, else 1."""
    action_cost: float = 0.0
    """K of the cost K‖u‖₂ charged for the physical action on every frame."""
    env_workers: int = 0
    """Processes that step the environments of the seeds; 0: this one, in turn (docs/environments.md)."""
    episode_length: int | None = None
    """Decisions per episode; default: the environment's own limit."""
    setting: Literal["finite-horizon", "discounted", "non-episodic", "unsupervised"] = "finite-horizon"
    """Episodes of fixed length; discounted ones that grow; one trajectory that is never reset; or episodes of
    exploring for its own sake, before the tasks of --downstream."""
    downstream: tuple[str, ...] = ()
    """Unsupervised: tasks to plan for afterwards, zero-shot (an unknown name lists those of the environment)."""
    discount: float = 0.99
    """γ of the discounted setting."""
    growing_horizon: bool = True
    """Discounted: episodes of T(n) = -ln n/ln γ decisions (the theory's), or all of the full length."""
    horizon_floor: int = 10
    """Discounted: the shortest of the growing episodes (T(1) would be 0)."""
    update_every: int = 10
    """Non-episodic: decisions between updates of the model; the most of them for the other rules."""
    update_rule: UpdateRule = "fixed"
    """Non-episodic: every update_every decisions; once the model would have learned one bit (the proofs); or once
    the sum of ‖σ‖ exceeds update_threshold (the paper's main text)."""
    update_threshold: float = 1.0
    """Non-episodic: that C, in normalised units."""
    update_minimum: int = 1
    """Non-episodic: never sooner than this (the Lyapunov constant's: sombrl.theory.lyapunov_minimum)."""
    episodes: int = 10
    """Episodes per seed; non-episodic: updates. Algorithms that learn at every decision: see decisions."""
    decisions: int | None = None
    """Decisions per seed, for algorithms that learn at every decision; default: those of `episodes` full episodes."""
    report_every: int = 500
    """Algorithms that learn at every decision: decisions between two reports (and checkpoints)."""
    eval_every: int = 0
    """Evaluate after every so many decisions, without exploring; 0: never (`sombrl eval` does it afterwards)."""
    eval_episodes: int = 5
    """Episodes per evaluation."""
    seed: int = 0
    """The first seed."""
    seeds: int = 1
    """How many seeds to train together: seed, seed + 1, …"""

    def __post_init__(self):
        """Refuse unknown names and impossible numbers."""
        check_choices(self)
        if self.decisions is not None and self.decisions < 1:
            raise SombrlError(
                f"--decisions must be at least 1, not {self.decisions}: leave it out to train for --episodes."
            )
        if self.eval_every < 0:
            raise SombrlError(f"--eval-every must be 0 or more decisions, not {self.eval_every}; 0 never evaluates.")
        for name in ("episodes", "seeds", "action_repeat", "report_every", "eval_episodes"):
            if (getattr(self, name) or 0) < 1 and (name, getattr(self, name)) != ("action_repeat", None):
                flag, advice = name.replace("_", "-"), ADVICE.get(name, "leave it out for its default")
                raise SombrlError(f"--{flag} must be at least 1, not {getattr(self, name)}: {advice}.")
        if self.env_workers < 0:
            raise SombrlError(
                f"--env-workers must be 0 or more processes, not {self.env_workers}; 0 steps the environments in turn."
            )
        if not 0 <= self.seed < SEEDS:
            raise SombrlError(f"--seed must be from 0 to {SEEDS - 1}, not {self.seed}.")
        if self.seeds > TOGETHER or self.seed + self.seeds > SEEDS:
            raise SombrlError(
                f"--seeds {self.seeds} from --seed {self.seed} on are too many: train at most {TOGETHER} together, the "
                f"last of them below {SEEDS}."
            )
        if self.downstream and self.setting != "unsupervised":
            raise SombrlError("--downstream tasks come after exploring without one: use --setting unsupervised.")
        self.make_setting(episode_length=1)  # refuses an impossible γ or update_every now

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
