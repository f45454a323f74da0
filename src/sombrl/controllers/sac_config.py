"""The knobs of soft actor-critic, for MBPO (the defaults) and for the model-free algorithms."""

import math
from dataclasses import dataclass
from typing import Literal

from sombrl.controllers.icem import check_count, check_range
from sombrl.controllers.sac_losses import BonusScale
from sombrl.records import SombrlError


@dataclass(frozen=True)
class SACConfig:
    """Soft actor-critic. The defaults are MBPO's; `MODEL_FREE` has those of SAC and MaxInfoSAC."""

    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers, actor and critics (512 512 for humanoid, quadruped and dog)."""
    critic: Literal["bro", "plain"] = "bro"
    """The critics: residual blocks with LayerNorm (BroNet), or an MLP like the actor."""
    batch_size: int = 256
    """Transitions per update."""
    updates_per_call: int = 5
    """Updates per improvement, that is per decision where the model is updated at every decision (UTD)."""
    imagined: Literal["one-step", "branched", "none"] = "one-step"
    """Data from the model: the next state of stored transitions; rollouts of the policy; or none (model-free)."""
    rollout_length: int = 5
    """Branched: steps from a stored state on. The rollouts of one improvement are not kept for the next."""
    mix: Literal["separate", "concatenated"] = "separate"
    """Real data get critic steps of their own, or are one half of every batch (real_every is then not used)."""
    real_every: int = 5
    """Separate: every so many updates there is a critic step on real data too."""
    policy_every: int = 5
    """Every so many updates there is a step of the actor, of the temperature and of λ."""
    learning_starts: int = 1
    """Nothing is learned before so many transitions are stored."""
    discount: float = 0.99
    """γ where the setting has none (finite-horizon); a setting with its own discount overrules it."""
    tau: float = 0.005
    """How far the target critics and the target actor move towards the learned ones in a step."""
    actor_lr: float = 3e-4
    """Learning rate of the actor (Adam, as the others)."""
    critic_lr: float = 3e-4
    """Learning rate of the critics."""
    temperature_lr: float = 3e-4
    """Learning rate of log α; 0 keeps α."""
    bonus_weight_lr: float = 3e-4
    """Learning rate of log λ; 0 keeps λ as the exploration strategy gives it."""
    init_temperature: float = 1.0
    """α at the start."""
    target_entropy_factor: float = 1.0
    """α is tuned until the policy's entropy is minus this times the number of actions."""
    gradient_clip: float | None = 0.5
    """Largest global norm of a gradient, per optimiser; None for no limit."""
    bonus_enters: Literal["target", "reward"] = "target"
    """λI is part of the critic's target and the actor's objective, like the entropy; or is added to the reward."""
    bonus_scale: BonusScale = "z-score"
    """I as it is, divided by its running std, or its running mean subtracted too (it can then be negative)."""
    soft_reset_every: int | None = 500_000
    """Updates between two soft resets of the critics, rounded up to whole improvements; None for never."""
    reset_mix: float = 0.2
    """The share of fresh parameters in a soft reset."""
    reset_policy: bool = False
    """Whether soft resets include the actor."""

    def __post_init__(self):
        """Refuse what cannot be learned with."""
        if not isinstance(self.hidden, tuple) or not self.hidden:
            raise SombrlError(f"--sac.hidden must be at least one width, such as 256 256, not {self.hidden!r}.")
        for width in self.hidden:
            check_count("--sac.hidden", width)
        counts = ("batch_size", "updates_per_call", "rollout_length", "real_every", "policy_every", "learning_starts")
        for name in (*counts, *(["soft_reset_every"] if self.soft_reset_every is not None else [])):
            check_count(_flag(name), getattr(self, name))
        for name in ("discount", "tau", "reset_mix"):
            check_range(_flag(name), getattr(self, name), 0.0, 1.0)
        if self.discount == 1:
            raise SombrlError("--sac.discount must be below 1, or the critics' values have no bound.")
        for name in ("actor_lr", "critic_lr", "temperature_lr", "bonus_weight_lr", "target_entropy_factor"):
            check_range(_flag(name), getattr(self, name), 0.0)
        for name in ("init_temperature", *(["gradient_clip"] if self.gradient_clip is not None else [])):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise SombrlError(f"{_flag(name)} must be positive and finite, not {value!r}.")
        for name, choices in (
            ("critic", ("bro", "plain")),
            ("imagined", ("one-step", "branched", "none")),
            ("mix", ("separate", "concatenated")),
            ("bonus_enters", ("target", "reward")),
            ("bonus_scale", ("z-score", "scale", "none")),
            ("reset_policy", (True, False)),
        ):
            if getattr(self, name) not in choices:
                listed = ", ".join(str(choice) for choice in choices)
                raise SombrlError(f"{_flag(name)} must be one of {listed}, not {getattr(self, name)!r}.")
        if self.critic == "bro" and len(set(self.hidden)) > 1:
            raise SombrlError(f"--sac.critic bro needs equal widths in --sac.hidden, not {self.hidden}: use plain.")


def _flag(name: str) -> str:
    return "--sac." + name.replace("_", "-")


MODEL_FREE = SACConfig(
    critic="plain",
    updates_per_call=1,
    imagined="none",
    policy_every=1,
    gradient_clip=None,
    soft_reset_every=None,
)
"""SAC and MaxInfoSAC: plain critics, one update of everything per decision, no clipping and no resets."""
