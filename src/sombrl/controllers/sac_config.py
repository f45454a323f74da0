"""The knobs of soft actor-critic, for MBPO (the defaults) and for the model-free algorithms."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Interval, MinLen

from sombrl.config.check import Configuration
from sombrl.config.kinds import Advice
from sombrl.controllers.sac_losses import COUNT_CAP, STD_FLOOR, BonusScale, Critics
from sombrl.networks.residual import RESIDUAL, BodyName
from sombrl.records import SombrlError


@dataclass(frozen=True)
class SACConfig(Configuration, prefix="sac"):
    """Soft actor-critic. The defaults are MBPO's; `MODEL_FREE` has those of SAC and MaxInfoSAC."""

    hidden: Annotated[tuple[Annotated[int, Ge(1)], ...], MinLen(1)] = (256, 256)
    """Widths of the hidden layers, actor and critics (512 512 for humanoid, quadruped and dog). In a residual network
    the first one is a layer, and every further one adds a block."""
    actor_hidden: Annotated[tuple[Annotated[int, Ge(1)], ...], MinLen(1)] | None = None
    """Widths of the actor, where they are others."""
    actor: BodyName = "plain"
    """The actor: an MLP; or residual blocks as in `critic`."""
    critic: BodyName = "bro"
    """The critics: an MLP (plain); residual blocks with LayerNorm, as in the authors' MBPO code (bro); SimBa's, four
    times as wide inside, with a norm at the end; or BroNet as published, with a norm after every layer."""
    first_norm: bool = False
    """LayerNorm after the first layer of plain and bro networks too."""
    normalise_observations: bool = False
    """Actor and critics see observations less their running mean, divided by their running std, within ±10."""
    critics: Critics = "two-min"
    """Two critics, of which the smaller value counts, or their mean; or a single one."""
    critic_output: Literal["value", "bins"] = "value"
    """Critics give the value itself and learn by its squared error; or a distribution over 101 bins whose mean it is,
    and learn by cross-entropy (TD-MPC2), so that values of any size are learned alike."""
    batch_size: Annotated[int, Ge(1)] = 256
    """Transitions per update."""
    updates_per_call: Annotated[int, Ge(1)] = 5
    """Updates per improvement, that is per decision where the model is updated at every decision (UTD)."""
    imagined: Literal["one-step", "branched", "none"] = "one-step"
    """Data from the model: the next state of stored transitions; rollouts of the policy; or none (model-free)."""
    imagined_action: Literal["stored", "policy"] = "stored"
    """One-step: imagine what the stored action leads to; or the policy's, with the reward as the model has it. Where
    the stored transition ended the task, the imagined one does so too."""
    imagined_weight: Literal["equal", "certainty"] = "equal"
    """What an imagined transition counts for the critics: as much as a real one; or 1/(1 + σ), the mean σ of the next
    state and the reward in normalised units (after WIMLE)."""
    rollout_length: Annotated[int, Ge(1)] = 5
    """Branched: steps from a stored state on. The rollouts of one improvement are not kept for the next."""
    rollout_stop: Annotated[float, Interval(gt=0, le=1)] | None = None
    """Branched: a rollout ends, and its last step counts for nothing, where σ exceeds this quantile of that of stored
    transitions (the mean σ of the next state and the reward); None: it goes on however unsure the model is."""
    mix: Literal["separate", "concatenated", "half"] = "separate"
    """Real data get critic steps of their own; or every batch has as many imagined transitions besides; or its second
    half is replaced by imagined ones (real_every is for the first alone)."""
    real_every: Annotated[int, Ge(1)] = 5
    """Separate: every so many updates there is a critic step on real data too."""
    policy_every: Annotated[int, Ge(1)] = 5
    """Every so many updates there is a step of the actor, of the temperature and of λ."""
    critic_expansion: Annotated[int, Ge(0)] = 0
    """Steps of the policy in the model before the target critics take over: what the model pays on the way is part of
    the critics' target (value expansion). With expansions λ = 0 equals greedy up to rounding, without them bit for bit:
    XLA fuses sums along the way differently where a bonus could enter."""
    actor_expansion: Annotated[int, Ge(0)] = 0
    """The same in the actor's objective, whose gradient then goes through the model."""
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
    weight_decay: Annotated[float, Ge(0)] = 0.0
    """AdamW's, of actor and critics; per step a weight loses this share times the learning rate."""
    project_weights: bool = False
    """Weight matrices of actor and critics, but for the last layers', keep their norm: scaled back after every step."""
    bonus_enters: Literal["target", "reward"] = "target"
    """λI is part of the critic's target and the actor's objective, like the entropy; or is added to the reward."""
    bonus_scale: BonusScale = "z-score"
    """I as it is, divided by its running std, or its running mean subtracted too (it can then be negative)."""
    bonus_memory: Annotated[int, Ge(1)] = COUNT_CAP
    """Rows that the running mean and std of I reach back, about; the fewer, the less they remember of an untrained
    model, whose σ is many times as large."""
    bonus_floor: Annotated[float, Gt(0)] = STD_FLOOR
    """The least std that I is divided by."""
    bonus_rows: Annotated[int, Ge(1)] | None = None
    """Rows of a batch whose bonus a policy step looks at, for the actor's objective, for λ and for the bonus's scale:
    some dozens do, and are cheaper; None: all."""
    soft_reset_every: Annotated[int, Ge(1)] | None = 500_000
    """Updates between two soft resets of the critics, rounded up to whole improvements; None for never."""
    reset_mix: Annotated[float, Interval(ge=0, le=1)] = 0.2
    """The share of fresh parameters in a soft reset."""
    reset_policy: bool = False
    """Whether soft resets include the actor."""

    @property
    def expansion(self) -> int:
        """Steps of the policy in the model, where there are any."""
        return max(self.critic_expansion, self.actor_expansion)

    def refuse_combinations(self) -> None:
        """Residual blocks add what they are given, so all layers are equally wide."""
        for flag, name, where, widths in (
            ("critic", self.critic, "hidden", self.hidden),
            (
                "actor",
                self.actor,
                *(("hidden", self.hidden) if self.actor_hidden is None else ("actor-hidden", self.actor_hidden)),
            ),
        ):
            if name in RESIDUAL and len(set(widths)) > 1:
                raise SombrlError(f"--sac.{flag} {name} needs equal widths in --sac.{where}, not {widths}: use plain.")
        if self.rollout_stop is not None and self.imagined != "branched":
            raise SombrlError("--sac.rollout-stop ends rollouts of several steps: add --sac.imagined branched.")
        if self.mix == "half" and self.batch_size < 2:
            raise SombrlError("--sac.mix half needs two rows in a batch: raise --sac.batch-size.")


MODEL_FREE = SACConfig(
    critic="plain",
    updates_per_call=1,
    imagined="none",
    policy_every=1,
    gradient_clip=None,
    soft_reset_every=None,
)
"""SAC and MaxInfoSAC: plain critics, one update of everything per decision, no clipping and no resets."""

STRONG_NETWORKS: dict[str, Any] = {
    "sac.normalise_observations": True,
    "sac.actor": "simba",
    "sac.actor_hidden": (128, 128),
    "sac.critic": "simba",
    "sac.hidden": (128, 128, 128),
    "sac.critics": "one",
    "sac.weight_decay": 1e-2,
    "sac.gradient_clip": None,
    "sac.target_entropy_factor": 0.5,
    "sac.init_temperature": 0.05,
    "sac.updates_per_call": 2,
    "sac.policy_every": 1,
    "sac.soft_reset_every": None,
}
"""What strong agents share, as options of `sombrl train`: small SimBa networks that see normalised observations."""
