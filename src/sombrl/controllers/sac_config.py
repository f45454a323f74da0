"""The knobs of soft actor-critic, for MBPO (the defaults) and for the model-free algorithms."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Interval, MinLen

from sombrl.config.check import Configuration
from sombrl.config.kinds import Advice
from sombrl.controllers.sac_losses import BonusScale
from sombrl.records import SombrlError


@dataclass(frozen=True)
class SACConfig(Configuration, prefix="sac"):
    """Soft actor-critic. The defaults are MBPO's; `MODEL_FREE` has those of SAC and MaxInfoSAC."""

    hidden: Annotated[tuple[Annotated[int, Ge(1)], ...], MinLen(1)] = (256, 256)
    """Widths of the hidden layers, actor and critics (512 512 for humanoid, quadruped and dog)."""
    critic: Literal["bro", "plain"] = "bro"
    """The critics: residual blocks with LayerNorm (BroNet), or an MLP like the actor."""
    batch_size: Annotated[int, Ge(1)] = 256
    """Transitions per update."""
    updates_per_call: Annotated[int, Ge(1)] = 5
    """Updates per improvement, that is per decision where the model is updated at every decision (UTD)."""
    imagined: Literal["one-step", "branched", "none"] = "one-step"
    """Data from the model: the next state of stored transitions; rollouts of the policy; or none (model-free)."""
    rollout_length: Annotated[int, Ge(1)] = 5
    """Branched: steps from a stored state on. The rollouts of one improvement are not kept for the next."""
    mix: Literal["separate", "concatenated"] = "separate"
    """Real data get critic steps of their own, or are one half of every batch (real_every is then not used)."""
    real_every: Annotated[int, Ge(1)] = 5
    """Separate: every so many updates there is a critic step on real data too."""
    policy_every: Annotated[int, Ge(1)] = 5
    """Every so many updates there is a step of the actor, of the temperature and of λ."""
    learning_starts: Annotated[int, Ge(1)] = 1
    """Nothing is learned before so many transitions are stored."""
    discount: Annotated[float, Interval(ge=0, lt=1), Advice("at 1 the critics' values have no bound")] = 0.99
    """γ where the setting has none (finite-horizon); a setting with its own discount overrules it."""
    tau: Annotated[float, Interval(ge=0, le=1)] = 0.005
    """How far the target critics and the target actor move towards the learned ones in a step."""
    actor_lr: Annotated[float, Ge(0)] = 3e-4
    """Learning rate of the actor (Adam, as the others)."""
    critic_lr: Annotated[float, Ge(0)] = 3e-4
    """Learning rate of the critics."""
    temperature_lr: Annotated[float, Ge(0)] = 3e-4
    """Learning rate of log α; 0 keeps α."""
    bonus_weight_lr: Annotated[float, Ge(0)] = 3e-4
    """Learning rate of log λ; 0 keeps λ as the exploration strategy gives it."""
    init_temperature: Annotated[float, Gt(0)] = 1.0
    """α at the start."""
    target_entropy_factor: Annotated[float, Ge(0)] = 1.0
    """α is tuned until the policy's entropy is minus this times the number of actions."""
    gradient_clip: Annotated[float, Gt(0)] | None = 0.5
    """Largest global norm of a gradient, per optimiser; None for no limit."""
    bonus_enters: Literal["target", "reward"] = "target"
    """λI is part of the critic's target and the actor's objective, like the entropy; or is added to the reward."""
    bonus_scale: BonusScale = "z-score"
    """I as it is, divided by its running std, or its running mean subtracted too (it can then be negative)."""
    soft_reset_every: Annotated[int, Ge(1)] | None = 500_000
    """Updates between two soft resets of the critics, rounded up to whole improvements; None for never."""
    reset_mix: Annotated[float, Interval(ge=0, le=1)] = 0.2
    """The share of fresh parameters in a soft reset."""
    reset_policy: bool = False
    """Whether soft resets include the actor."""

    def refuse_combinations(self) -> None:
        """Residual blocks add what they are given, so all layers are equally wide."""
        if self.critic == "bro" and len(set(self.hidden)) > 1:
            raise SombrlError(f"--sac.critic bro needs equal widths in --sac.hidden, not {self.hidden}: use plain.")


MODEL_FREE = SACConfig(
    critic="plain",
    updates_per_call=1,
    imagined="none",
    policy_every=1,
    gradient_clip=None,
    soft_reset_every=None,
)
"""SAC and MaxInfoSAC: plain critics, one update of everything per decision, no clipping and no resets."""
