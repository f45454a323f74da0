"""The constructors of agents, with every setting, its type and its default, for editors and type checkers.

Written by tools/make_constructors.py; a test compares it with the configurations. `constructs` replaces each function
by one that gives what it was given to `make`, so that a wrong name or value is refused in a sentence.
"""

# mypy: disable-error-code="empty-body"
# ruff: noqa: B008

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from sombrl.agent.agent import Agent
from sombrl.agent.make import constructs
from sombrl.algorithms.gp_icem import GPICEMConfig
from sombrl.algorithms.mbpo import MBPOConfig
from sombrl.algorithms.model_free import MaxInfoSACConfig, SACAlgorithmConfig
from sombrl.algorithms.sim_fsvgd import SimFSVGDConfig
from sombrl.controllers.horizon_value import HorizonValueConfig
from sombrl.controllers.icem import ICEMConfig
from sombrl.controllers.mppi import MPPIConfig
from sombrl.controllers.planned_policy import PlanConfig
from sombrl.controllers.policy_search import PolicySearchConfig
from sombrl.controllers.sac_config import SACConfig
from sombrl.dreamer.config import DreamerConfig
from sombrl.dynamics.ensemble import EnsembleConfig
from sombrl.dynamics.gp import GPConfig
from sombrl.dynamics.grey_box import GreyBoxConfig
from sombrl.dynamics.particle_config import ParticleConfig
from sombrl.exploration.weight import TheoryConfig
from sombrl.training.safety import SafetyConfig


class TheorySettings(TypedDict, total=False):
    """Fields of TheoryConfig, by name."""

    factor: float
    delta: float
    norm_bound: float
    reward_max: float
    constant: float
    noise: Literal["gaussian", "sub-gaussian"]
    reward_lipschitz: float
    policy_lipschitz: float
    dynamics_lipschitz: float


class GPSettings(TypedDict, total=False):
    """Fields of GPConfig, by name."""

    kernel: Literal["rbf", "matern52", "linear"]
    capacity: int
    rank: int
    tolerance: float
    noise_std: float
    learn_noise: bool
    lengthscale: float
    lengthscale_prior_std: float
    fit_points: int
    fit_steps: int
    fit_learning_rate: float
    refit_every: int
    draw_features: int
    norm_bound: float | None
    normalise: bool
    least_action: float


class ICEMSettings(TypedDict, total=False):
    """Fields of ICEMConfig, by name."""

    num_samples: int
    num_elites: int
    iterations: int
    horizon: int
    particles: int
    init_std: float
    momentum: float
    noise_exponent: float
    keep_fraction: float
    shift_elites: bool
    population_decay: float
    execute: Literal["best", "mean"]


class MPPISettings(TypedDict, total=False):
    """Fields of MPPIConfig, by name."""

    num_samples: int
    iterations: int
    horizon: int
    particles: int
    init_std: float
    noise_exponent: float
    temperature: float
    std_update: float


class HorizonValueSettings(TypedDict, total=False):
    """Fields of HorizonValueConfig, by name."""

    anchors: int
    actions: int
    discount: float | None


class SafetySettings(TypedDict, total=False):
    """Fields of SafetyConfig, by name."""

    budget: float | None
    weight: float
    cost: Literal["reported", "termination"]
    cost_model: Literal["auto", "known", "learned"]
    horizon: int
    random_size: float


class EnsembleSettings(TypedDict, total=False):
    """Fields of EnsembleConfig, by name."""

    members: int
    hidden: Sequence[int]
    learn_std: bool
    noise_floor: float
    target: Literal["delta", "absolute"]
    learn_termination: bool
    reward_loss_weight: float
    bootstrap: bool
    batch_size: int
    steps_per_fit: int | None
    learning_rate: float
    weight_decay: float
    gradient_clip: float | None
    soft_reset_every: int | None
    soft_reset_mix: float


class SACSettings(TypedDict, total=False):
    """Fields of SACConfig, by name."""

    hidden: Sequence[int]
    actor_hidden: Sequence[int] | None
    actor: Literal["plain", "bro", "simba", "bronet"]
    critic: Literal["plain", "bro", "simba", "bronet"]
    first_norm: bool
    normalise_observations: bool
    critics: Literal["two-min", "two-mean", "one"]
    critic_output: Literal["value", "bins"]
    batch_size: int
    updates_per_call: int
    imagined: Literal["one-step", "branched", "none"]
    imagined_action: Literal["stored", "policy"]
    imagined_weight: Literal["equal", "certainty"]
    rollout_length: int
    rollout_stop: float | None
    mix: Literal["separate", "concatenated", "half"]
    real_every: int
    policy_every: int
    critic_expansion: int
    actor_expansion: int
    learning_starts: int
    discount: float
    tau: float
    actor_lr: float
    critic_lr: float
    temperature_lr: float
    bonus_weight_lr: float
    init_temperature: float
    target_entropy_factor: float
    gradient_clip: float | None
    weight_decay: float
    project_weights: bool
    bonus_enters: Literal["target", "reward"]
    bonus_scale: Literal["z-score", "scale", "none"]
    bonus_memory: int
    bonus_floor: float
    bonus_rows: int | None
    soft_reset_every: int | None
    reset_mix: float
    reset_policy: bool


class PlanSettings(TypedDict, total=False):
    """Fields of PlanConfig, by name."""

    horizon: int
    num_samples: int
    iterations: int
    proposals: int
    init_std: float
    temperature: float
    particles: int


class ParticleSettings(TypedDict, total=False):
    """Fields of ParticleConfig, by name."""

    inference: Literal["fsvgd", "svgd", "ensemble"]
    particles: int
    hidden: Sequence[int]
    activation: Literal["leaky-relu", "silu", "tanh"]
    learning_rate: float
    weight_decay: float
    batch_size: int
    steps: int
    held_out: float
    check_every: int
    fresh: bool
    bandwidth: float | None
    repulsion: Literal["textbook", "legacy"]
    measurement_points: int
    neighbourhood_share: float
    visited_share: float
    neighbourhood_width: float
    functions: int
    score: Literal["gp", "ssge", "nu-method", "kde", "gp+nu-method"]
    resolution: float
    prior_scaling: Literal["full", "legacy"]
    likelihood_exponent: float
    learn_noise: bool
    prior_lengthscale: float
    prior_scale: float
    additive_lengthscale: float
    additive_scales: Sequence[float] | None
    draw_additive: bool
    weight_prior_std: float
    bias_prior_std: float


class GreyBoxSettings(TypedDict, total=False):
    """Fields of GreyBoxConfig, by name."""

    steps: int
    learning_rate: float
    batch_size: int
    residual: bool


class PolicySearchSettings(TypedDict, total=False):
    """Fields of PolicySearchConfig, by name."""

    rounds: int
    rollouts: int
    unroll: int
    updates: int
    horizon: int
    start_share: float
    capacity: int
    reward_scale: float
    snapshots: int
    judged_rollouts: int
    judged_horizon: int
    fresh: bool
    tries: int


@constructs("gp-icem")
def GPICEM(
    env: Any,
    *,
    config: GPICEMConfig | None = None,
    preset: Literal["light", "pendulum", "mountain-car", "paper", "authors"] | None = None,
    env_kwargs: Sequence[str] | Mapping[str, Any] = (),
    action_repeat: int | None = None,
    action_cost: float = 0.0,
    env_workers: int = 0,
    episode_length: int | None = None,
    setting: Literal["finite-horizon", "discounted", "non-episodic", "unsupervised"] = "finite-horizon",
    downstream: Sequence[str] = (),
    discount: float = 0.99,
    growing_horizon: bool = True,
    horizon_floor: int = 10,
    update_every: int = 10,
    update_rule: Literal["fixed", "one-bit", "uncertainty"] = "fixed",
    update_threshold: float = 1.0,
    update_minimum: int = 1,
    offline: str | None = None,
    offline_seed: int | None = None,
    offline_order: Literal["all", "recorded"] = "all",
    held_out: float = 0.1,
    random_episodes: int | None = None,
    episodes: int = 10,
    eval_every: int = 0,
    eval_episodes: int = 5,
    record_bounds: bool = False,
    stop_when_gap: float | None = None,
    seed: int = 0,
    seeds: int = 1,
    explore: Literal[
        "greedy", "pets", "thompson", "hucrl", "optimistic", "unsupervised", "pessimistic", "neorl", "nepets", "nemean"
    ] = "optimistic",
    bonus_weight: float = 0.1,
    bonus_weight_units: Literal["reward", "range"] = "range",
    schedule: Literal["constant", "linear", "exponential", "theoretical", "calibrated"] = "constant",
    bonus_weight_end: float | None = None,
    bonus_weight_steps: int = 10,
    bonus: Literal["norm", "mean", "information-gain", "mean-information-gain"] = "norm",
    sigma_units: Literal["normalised", "physical"] = "normalised",
    imagine_by: Literal["mean", "noise", "samples"] = "mean",
    beta: float = 2.0,
    theory: TheoryConfig | TheorySettings = TheoryConfig(),
    model: Literal["gp", "true"] = "gp",
    reward: Literal["auto", "known", "learned"] = "auto",
    start_point: bool = False,
    controller: Literal["icem", "cem", "mppi"] = "icem",
    horizon_value: Literal["fitted", "none"] = "fitted",
    start_from: str | None = None,
    gp: GPConfig | GPSettings = GPConfig(),
    icem: ICEMConfig | ICEMSettings = ICEMConfig(init_std=1.0, noise_exponent=2.0),
    mppi: MPPIConfig | MPPISettings = MPPIConfig(),
    value: HorizonValueConfig | HorizonValueSettings = HorizonValueConfig(),
    replay_window: int | None = None,
    safety: SafetyConfig | SafetySettings = SafetyConfig(),
) -> Agent:
    """GP dynamics of bounded rank, planned with iCEM (small state spaces).

    Args:
        env: A name of `sombrl list envs`, a gymnasium.Env, or a function that makes one.
        config: All of the algorithm's own settings.
        preset: Values of several settings at once, which the others override; `sombrl list presets` shows them.
        env_kwargs: Its options as name=value, such as reward=sparse.
        action_repeat: Frames per decision; rewards are summed. Default: as published, 2 for dmc: and 4 for
            atari:, else 1.
        action_cost: K of the cost K‖u‖₂, in reward, charged for the physical action on every frame.
        env_workers: Processes that step the environments of the seeds; 0: all in this process, in turn
            (docs/environments.md).
        episode_length: Decisions per episode; default: the environment's own limit.
        setting: What an episode is. Of fixed length; discounted ones that grow; one trajectory that is never
            reset; or episodes that explore without a task, before the tasks of --downstream.
        downstream: Unsupervised: tasks to plan for afterwards, zero-shot (an unknown name lists those of the
            environment).
        discount: γ of the discounted setting.
        growing_horizon: Discounted: episodes of T(n) = -ln n/ln γ decisions (the theory's), or all of the full
            length.
        horizon_floor: Discounted: the shortest of the growing episodes (T(1) would be 0).
        update_every: Non-episodic: decisions between updates of the model; for the other rules the most of
            them; 0: any number.
        update_rule: Non-episodic: update every update_every decisions; once the model would have learned one
            bit (the proofs); or once the sum of ‖σ‖ exceeds update_threshold (the paper's main text).
        update_threshold: Non-episodic: the C of that rule, in normalised units.
        update_minimum: Non-episodic: at least so many decisions between updates
            (sombrl.theory.lyapunov_minimum).
        offline: Learn from these data alone; no environment is stepped. A run's folder, a Minari dataset, or an
            .npz with obs, action, reward, next_obs, terminated and truncated (docs/offline.md).
        offline_seed: Offline, of a run: the data of this seed; default: of all, one after the other.
        offline_order: Offline: learn from all data from the first update on; or hand them out one by one, so
            that every update sees what it would have seen when they were recorded.
        held_out: Offline: share of the episodes that nothing is learned from. They say how wrong the model is,
            and calibrate λ.
        random_episodes: First episodes of random actions, so that the model has something to start from; non-
            episodic: updates. Default: 1 for gp-icem, else 0.
        episodes: Episodes per seed; non-episodic: updates of the model.
        eval_every: Decisions between evaluations; 0: none. They are without exploring; `sombrl eval` evaluates
            afterwards.
        eval_episodes: Episodes per evaluation.
        record_bounds: Predict the return of every episode in the model before it is played, and record both
            (docs/bounds.md). Costs a planner as much as the episode; policies that learn at every decision
            predict evaluations (--eval-every).
        stop_when_gap: Planners: end once J⁺ of the optimistic plan and J⁻ of the greedy one are within this
            share of each other. Costs two more episodes of planning for each.
        seed: The first seed.
        seeds: Seeds to train together: seed, seed + 1, …
        explore: See `sombrl list explorations`.
        bonus_weight: λ, per decision and unit of ‖σ‖. The paper's GP experiments have 10. Where a policy learns
            at every decision the bonus is divided by its spread, and λ is in units of value; the penalty of
            pessimistic is not.
        bonus_weight_units: Units of λ. reward: reward per decision. range (planners): the range of the rewards
            seen so far, which fits tasks of all scales; 100 times as much while nothing was found that pays
            more than doing nothing. The theoretical λ is in reward.
        schedule: How λₙ changes. Not at all; on its way to bonus_weight_end; from the theorems (--theory.*);
            tuned from bonus_weight on, so that the policy's bonus matches that of its target (EMA) policy; or
            (decoupled, mbpo) tuned so for a second policy, which takes turns with one for the task alone.
            calibrated (--offline): the smallest λ with which the model's returns on held-out data err by at
            most λΣσ, nine times in ten; what auto means for pessimistic offline.
        bonus_weight_end: Linear, exponential: where λ ends.
        bonus_weight_steps: Linear, exponential: λ ends after so many iterations; for algorithms that learn at
            every decision (mbpo, sac, maxinfo-sac), after so many decisions.
        bonus: ‖σ‖; the mean of σ, the learned reward's included; Σ log(1 + σ²/noise²) (OPAX); or its mean
            (MaxInfoRL).
        sigma_units: Units of σ in the norm: divided by the spread of the training targets, or physical.
        imagine_by: How imagined states move for greedy, optimistic and unsupervised: by the mean; by the mean
            plus the model's noise (as the paper defines its objective); or by samples of the posterior, as pets
            always does. Planners need particles for the last two, so they cost as much as pets.
        beta: hucrl: the planner chooses the most favourable dynamics within ± this many standard deviations.
        theory: The constants of the theorems, which are not known in practice; in the normalised units of the
            GP.
        model: What is planned with. true: sombrl's own world itself, nothing learned; its return is the
            reference J(π*).
        reward: Plan with the environment's own reward and termination, or with learned ones; auto: known where
            it is.
        start_point: Begin with one point of data, as the authors' GP script does: without an action the first
            state stays as it is. For tasks that start at rest.
        controller: The planner. cem is icem without its improvements.
        horizon_value: What a plan is worth beyond its horizon: a value that is fitted inside the model
            (--value.*), or nothing.
        start_from: Begin with what another run of this algorithm has learned, and with its data; or with data
            alone, of a run of another algorithm, a Minari dataset or an .npz. The environment must be the same
            (docs/offline.md).
        gp: The GP. Lengthscales and noise are in units of normalised data (mean 0, std 1).
        icem: The knobs of iCEM. The defaults are the `light` preset: two CPU cores.
        mppi: The knobs of MPPI. The defaults cost as much as the `light` preset of iCEM.
        value: The value beyond the horizon of a planner.
        replay_window: Learn from the last so many transitions alone, for a world that drifts (SW-OMBRL).
        safety: A cost beside the reward, and how much of it is allowed. Off unless there is a budget.

    Example:
        agent = sombrl.GPICEM("MountainCarContinuous-v0", action_repeat=5, episode_length=40).learn(400)
    """
    ...


@constructs("mbpo")
def MBPO(
    env: Any,
    *,
    config: MBPOConfig | None = None,
    preset: Literal["light", "pendulum", "mountain-car", "paper", "authors", "strong"] | None = None,
    env_kwargs: Sequence[str] | Mapping[str, Any] = (),
    action_repeat: int | None = None,
    action_cost: float = 0.0,
    env_workers: int = 0,
    episode_length: int | None = None,
    setting: Literal["finite-horizon", "discounted", "non-episodic", "unsupervised"] = "finite-horizon",
    downstream: Sequence[str] = (),
    discount: float = 0.99,
    growing_horizon: bool = True,
    horizon_floor: int = 10,
    update_every: int = 10,
    update_rule: Literal["fixed", "one-bit", "uncertainty"] = "fixed",
    update_threshold: float = 1.0,
    update_minimum: int = 1,
    offline: str | None = None,
    offline_seed: int | None = None,
    offline_order: Literal["all", "recorded"] = "all",
    held_out: float = 0.1,
    random_episodes: int | None = None,
    episodes: int = 10,
    decisions: int | None = None,
    report_every: int = 500,
    eval_every: int = 0,
    eval_episodes: int = 5,
    record_bounds: bool = False,
    stop_when_gap: float | None = None,
    seed: int = 0,
    seeds: int = 1,
    explore: Literal[
        "greedy", "pets", "thompson", "hucrl", "optimistic", "unsupervised", "pessimistic", "neorl", "nepets", "nemean"
    ] = "optimistic",
    bonus_weight: float = 1.0,
    bonus_weight_units: Literal["reward", "range"] = "reward",
    schedule: Literal["constant", "linear", "exponential", "auto", "decoupled", "calibrated"] = "auto",
    bonus_weight_end: float | None = None,
    bonus_weight_steps: int = 10,
    bonus: Literal["norm", "mean", "information-gain", "mean-information-gain"] = "mean",
    sigma_units: Literal["normalised", "physical"] = "normalised",
    imagine_by: Literal["mean", "noise", "samples"] = "mean",
    beta: float = 2.0,
    controller: Literal["sac", "sac-mppi", "sac-icem", "icem", "mppi"] = "sac",
    horizon_value: Literal["fitted", "none"] = "fitted",
    capacity: int = 1000000,
    start_from: str | None = None,
    ensemble: EnsembleConfig | EnsembleSettings = EnsembleConfig(steps_per_fit=None, soft_reset_every=500000),
    sac: SACConfig | SACSettings = SACConfig(
        hidden=(128, 128, 128),
        actor_hidden=(128, 128),
        actor="simba",
        critic="simba",
        normalise_observations=True,
        critics="one",
        updates_per_call=2,
        imagined_action="policy",
        imagined_weight="certainty",
        mix="half",
        policy_every=1,
        init_temperature=0.05,
        target_entropy_factor=0.5,
        gradient_clip=None,
        weight_decay=0.01,
        bonus_rows=64,
        soft_reset_every=None,
    ),
    icem: ICEMConfig | ICEMSettings = ICEMConfig(),
    value: HorizonValueConfig | HorizonValueSettings = HorizonValueConfig(),
    plan: PlanConfig | PlanSettings = PlanConfig(),
    replay_window: int | None = None,
    safety: SafetyConfig | SafetySettings = SafetyConfig(),
) -> Agent:
    """An ensemble and a policy that learns from it (SAC), or plans in it (iCEM).

    Args:
        env: A name of `sombrl list envs`, a gymnasium.Env, or a function that makes one.
        config: All of the algorithm's own settings.
        preset: Values of several settings at once, which the others override; `sombrl list presets` shows them.
        env_kwargs: Its options as name=value, such as reward=sparse.
        action_repeat: Frames per decision; rewards are summed. Default: as published, 2 for dmc: and 4 for
            atari:, else 1.
        action_cost: K of the cost K‖u‖₂, in reward, charged for the physical action on every frame.
        env_workers: Processes that step the environments of the seeds; 0: all in this process, in turn
            (docs/environments.md).
        episode_length: Decisions per episode; default: the environment's own limit.
        setting: What an episode is. Of fixed length; discounted ones that grow; one trajectory that is never
            reset; or episodes that explore without a task, before the tasks of --downstream.
        downstream: Unsupervised: tasks to plan for afterwards, zero-shot (an unknown name lists those of the
            environment).
        discount: γ of the discounted setting.
        growing_horizon: Discounted: episodes of T(n) = -ln n/ln γ decisions (the theory's), or all of the full
            length.
        horizon_floor: Discounted: the shortest of the growing episodes (T(1) would be 0).
        update_every: Non-episodic: decisions between updates of the model; for the other rules the most of
            them; 0: any number.
        update_rule: Non-episodic: update every update_every decisions; once the model would have learned one
            bit (the proofs); or once the sum of ‖σ‖ exceeds update_threshold (the paper's main text).
        update_threshold: Non-episodic: the C of that rule, in normalised units.
        update_minimum: Non-episodic: at least so many decisions between updates
            (sombrl.theory.lyapunov_minimum).
        offline: Learn from these data alone; no environment is stepped. A run's folder, a Minari dataset, or an
            .npz with obs, action, reward, next_obs, terminated and truncated (docs/offline.md).
        offline_seed: Offline, of a run: the data of this seed; default: of all, one after the other.
        offline_order: Offline: learn from all data from the first update on; or hand them out one by one, so
            that every update sees what it would have seen when they were recorded.
        held_out: Offline: share of the episodes that nothing is learned from. They say how wrong the model is,
            and calibrate λ.
        random_episodes: First episodes of random actions, so that the model has something to start from; non-
            episodic: updates. Default: 1 for gp-icem, else 0.
        episodes: Episodes per seed; non-episodic: updates of the model.
        decisions: Decisions per seed; default: those of `episodes` full episodes.
        report_every: Decisions between two reports (and checkpoints).
        eval_every: Decisions between evaluations; 0: none. They are without exploring; `sombrl eval` evaluates
            afterwards.
        eval_episodes: Episodes per evaluation.
        record_bounds: Predict the return of every episode in the model before it is played, and record both
            (docs/bounds.md). Costs a planner as much as the episode; policies that learn at every decision
            predict evaluations (--eval-every).
        stop_when_gap: Planners: end once J⁺ of the optimistic plan and J⁻ of the greedy one are within this
            share of each other. Costs two more episodes of planning for each.
        seed: The first seed.
        seeds: Seeds to train together: seed, seed + 1, …
        explore: See `sombrl list explorations`.
        bonus_weight: λ, per decision and unit of ‖σ‖. The paper's GP experiments have 10. Where a policy learns
            at every decision the bonus is divided by its spread, and λ is in units of value; the penalty of
            pessimistic is not.
        bonus_weight_units: Units of λ. reward: reward per decision. range (planners): the range of the rewards
            seen so far, which fits tasks of all scales; 100 times as much while nothing was found that pays
            more than doing nothing. The theoretical λ is in reward.
        schedule: How λₙ changes. Not at all; on its way to bonus_weight_end; from the theorems (--theory.*);
            tuned from bonus_weight on, so that the policy's bonus matches that of its target (EMA) policy; or
            (decoupled, mbpo) tuned so for a second policy, which takes turns with one for the task alone.
            calibrated (--offline): the smallest λ with which the model's returns on held-out data err by at
            most λΣσ, nine times in ten; what auto means for pessimistic offline.
        bonus_weight_end: Linear, exponential: where λ ends.
        bonus_weight_steps: Linear, exponential: λ ends after so many iterations; for algorithms that learn at
            every decision (mbpo, sac, maxinfo-sac), after so many decisions.
        bonus: ‖σ‖; the mean of σ, the learned reward's included; Σ log(1 + σ²/noise²) (OPAX); or its mean
            (MaxInfoRL).
        sigma_units: Units of σ in the norm: divided by the spread of the training targets, or physical.
        imagine_by: How imagined states move for greedy, optimistic and unsupervised: by the mean; by the mean
            plus the model's noise (as the paper defines its objective); or by samples of the posterior, as pets
            always does. Planners need particles for the last two, so they cost as much as pets.
        beta: hucrl: the planner chooses the most favourable dynamics within ± this many standard deviations.
        controller: Learn a policy and act by it (sac: MBPO), or by short plans around it (sac-mppi, in short
            mppi; sac-icem; --plan.*); or plan alone (icem: PETS).
        horizon_value: icem: what a plan is worth beyond its horizon. A value that is fitted inside the model
            (--value.*), or nothing.
        capacity: Transitions kept per seed; the oldest are overwritten.
        start_from: Begin with what another run of this algorithm has learned, and with its data; or with data
            alone, of a run of another algorithm, a Minari dataset or an .npz. The environment must be the same
            (docs/offline.md).
        ensemble: The ensemble. The defaults are those of the authors' MBPO; noise is in units of normalised
            data.
        sac: Soft actor-critic. The defaults are MBPO's; `MODEL_FREE` has those of SAC and MaxInfoSAC.
        icem: The knobs of iCEM. The defaults are the `light` preset: two CPU cores.
        value: The value beyond the horizon of a planner.
        plan: Short plans around a policy. The defaults cost about two updates of a small SAC.
        replay_window: Learn from the last so many transitions alone, for a world that drifts (SW-OMBRL).
        safety: A cost beside the reward, and how much of it is allowed. Off unless there is a budget.

    Example:
        agent = sombrl.MBPO("dmc:walker-run", seeds=5, sac={"batch_size": 128}).learn(50_000)
    """
    ...


@constructs("sac")
def SAC(
    env: Any,
    *,
    config: SACAlgorithmConfig | None = None,
    preset: Literal["strong"] | None = None,
    env_kwargs: Sequence[str] | Mapping[str, Any] = (),
    action_repeat: int | None = None,
    action_cost: float = 0.0,
    env_workers: int = 0,
    episode_length: int | None = None,
    setting: Literal["finite-horizon", "discounted", "non-episodic", "unsupervised"] = "finite-horizon",
    downstream: Sequence[str] = (),
    discount: float = 0.99,
    growing_horizon: bool = True,
    horizon_floor: int = 10,
    update_every: int = 10,
    update_rule: Literal["fixed", "one-bit", "uncertainty"] = "fixed",
    update_threshold: float = 1.0,
    update_minimum: int = 1,
    random_episodes: int | None = None,
    episodes: int = 10,
    decisions: int | None = None,
    report_every: int = 500,
    eval_every: int = 0,
    eval_episodes: int = 5,
    seed: int = 0,
    seeds: int = 1,
    explore: Literal["greedy", "nemean"] = "greedy",
    capacity: int = 1000000,
    sac: SACConfig | SACSettings = SACConfig(
        critic="plain", updates_per_call=1, imagined="none", policy_every=1, gradient_clip=None, soft_reset_every=None
    ),
) -> Agent:
    """Soft actor-critic, model-free.

    Args:
        env: A name of `sombrl list envs`, a gymnasium.Env, or a function that makes one.
        config: All of the algorithm's own settings.
        preset: Values of several settings at once, which the others override; `sombrl list presets` shows them.
        env_kwargs: Its options as name=value, such as reward=sparse.
        action_repeat: Frames per decision; rewards are summed. Default: as published, 2 for dmc: and 4 for
            atari:, else 1.
        action_cost: K of the cost K‖u‖₂, in reward, charged for the physical action on every frame.
        env_workers: Processes that step the environments of the seeds; 0: all in this process, in turn
            (docs/environments.md).
        episode_length: Decisions per episode; default: the environment's own limit.
        setting: What an episode is. Of fixed length; discounted ones that grow; one trajectory that is never
            reset; or episodes that explore without a task, before the tasks of --downstream.
        downstream: Unsupervised: tasks to plan for afterwards, zero-shot (an unknown name lists those of the
            environment).
        discount: γ of the discounted setting.
        growing_horizon: Discounted: episodes of T(n) = -ln n/ln γ decisions (the theory's), or all of the full
            length.
        horizon_floor: Discounted: the shortest of the growing episodes (T(1) would be 0).
        update_every: Non-episodic: decisions between updates of the model; for the other rules the most of
            them; 0: any number.
        update_rule: Non-episodic: update every update_every decisions; once the model would have learned one
            bit (the proofs); or once the sum of ‖σ‖ exceeds update_threshold (the paper's main text).
        update_threshold: Non-episodic: the C of that rule, in normalised units.
        update_minimum: Non-episodic: at least so many decisions between updates
            (sombrl.theory.lyapunov_minimum).
        random_episodes: First episodes of random actions, so that the model has something to start from; non-
            episodic: updates. Default: 1 for gp-icem, else 0.
        episodes: Episodes per seed; non-episodic: updates of the model.
        decisions: Decisions per seed; default: those of `episodes` full episodes.
        report_every: Decisions between two reports (and checkpoints).
        eval_every: Decisions between evaluations; 0: none. They are without exploring; `sombrl eval` evaluates
            afterwards.
        eval_episodes: Episodes per evaluation.
        seed: The first seed.
        seeds: Seeds to train together: seed, seed + 1, …
        explore: See `sombrl list explorations`.
        capacity: Transitions kept per seed; the oldest are overwritten.
        sac: Soft actor-critic. The defaults are MBPO's; `MODEL_FREE` has those of SAC and MaxInfoSAC.

    Example:
        agent = sombrl.SAC("Pendulum-v1", preset="strong").learn(5_000)
    """
    ...


@constructs("maxinfo-sac")
def MaxInfoSAC(
    env: Any,
    *,
    config: MaxInfoSACConfig | None = None,
    preset: Literal["strong"] | None = None,
    env_kwargs: Sequence[str] | Mapping[str, Any] = (),
    action_repeat: int | None = None,
    action_cost: float = 0.0,
    env_workers: int = 0,
    episode_length: int | None = None,
    setting: Literal["finite-horizon", "discounted", "non-episodic", "unsupervised"] = "finite-horizon",
    downstream: Sequence[str] = (),
    discount: float = 0.99,
    growing_horizon: bool = True,
    horizon_floor: int = 10,
    update_every: int = 10,
    update_rule: Literal["fixed", "one-bit", "uncertainty"] = "fixed",
    update_threshold: float = 1.0,
    update_minimum: int = 1,
    random_episodes: int | None = None,
    episodes: int = 10,
    decisions: int | None = None,
    report_every: int = 500,
    eval_every: int = 0,
    eval_episodes: int = 5,
    record_bounds: bool = False,
    seed: int = 0,
    seeds: int = 1,
    explore: Literal[
        "greedy", "pets", "thompson", "hucrl", "optimistic", "unsupervised", "neorl", "nepets", "nemean"
    ] = "optimistic",
    bonus_weight: float = 1.0,
    bonus_weight_units: Literal["reward"] = "reward",
    schedule: Literal["constant", "linear", "exponential", "auto"] = "auto",
    bonus_weight_end: float | None = None,
    bonus_weight_steps: int = 10,
    bonus: Literal["norm", "mean", "information-gain", "mean-information-gain"] = "mean-information-gain",
    sigma_units: Literal["normalised", "physical"] = "normalised",
    imagine_by: Literal["mean", "noise", "samples"] = "mean",
    beta: float = 2.0,
    capacity: int = 1000000,
    ensemble: EnsembleConfig | EnsembleSettings = EnsembleConfig(steps_per_fit=1, gradient_clip=None),
    sac: SACConfig | SACSettings = SACConfig(
        critic="plain", updates_per_call=1, imagined="none", policy_every=1, gradient_clip=None, soft_reset_every=None
    ),
) -> Agent:
    """Soft actor-critic with a bonus for information, model-free.

    Args:
        env: A name of `sombrl list envs`, a gymnasium.Env, or a function that makes one.
        config: All of the algorithm's own settings.
        preset: Values of several settings at once, which the others override; `sombrl list presets` shows them.
        env_kwargs: Its options as name=value, such as reward=sparse.
        action_repeat: Frames per decision; rewards are summed. Default: as published, 2 for dmc: and 4 for
            atari:, else 1.
        action_cost: K of the cost K‖u‖₂, in reward, charged for the physical action on every frame.
        env_workers: Processes that step the environments of the seeds; 0: all in this process, in turn
            (docs/environments.md).
        episode_length: Decisions per episode; default: the environment's own limit.
        setting: What an episode is. Of fixed length; discounted ones that grow; one trajectory that is never
            reset; or episodes that explore without a task, before the tasks of --downstream.
        downstream: Unsupervised: tasks to plan for afterwards, zero-shot (an unknown name lists those of the
            environment).
        discount: γ of the discounted setting.
        growing_horizon: Discounted: episodes of T(n) = -ln n/ln γ decisions (the theory's), or all of the full
            length.
        horizon_floor: Discounted: the shortest of the growing episodes (T(1) would be 0).
        update_every: Non-episodic: decisions between updates of the model; for the other rules the most of
            them; 0: any number.
        update_rule: Non-episodic: update every update_every decisions; once the model would have learned one
            bit (the proofs); or once the sum of ‖σ‖ exceeds update_threshold (the paper's main text).
        update_threshold: Non-episodic: the C of that rule, in normalised units.
        update_minimum: Non-episodic: at least so many decisions between updates
            (sombrl.theory.lyapunov_minimum).
        random_episodes: First episodes of random actions, so that the model has something to start from; non-
            episodic: updates. Default: 1 for gp-icem, else 0.
        episodes: Episodes per seed; non-episodic: updates of the model.
        decisions: Decisions per seed; default: those of `episodes` full episodes.
        report_every: Decisions between two reports (and checkpoints).
        eval_every: Decisions between evaluations; 0: none. They are without exploring; `sombrl eval` evaluates
            afterwards.
        eval_episodes: Episodes per evaluation.
        record_bounds: Predict the return of every episode in the model before it is played, and record both
            (docs/bounds.md). Costs a planner as much as the episode; policies that learn at every decision
            predict evaluations (--eval-every).
        seed: The first seed.
        seeds: Seeds to train together: seed, seed + 1, …
        explore: See `sombrl list explorations`.
        bonus_weight: λ, per decision and unit of ‖σ‖. The paper's GP experiments have 10. Where a policy learns
            at every decision the bonus is divided by its spread, and λ is in units of value; the penalty of
            pessimistic is not.
        bonus_weight_units: Units of λ. reward: reward per decision. range (planners): the range of the rewards
            seen so far, which fits tasks of all scales; 100 times as much while nothing was found that pays
            more than doing nothing. The theoretical λ is in reward.
        schedule: How λₙ changes. Not at all; on its way to bonus_weight_end; from the theorems (--theory.*);
            tuned from bonus_weight on, so that the policy's bonus matches that of its target (EMA) policy; or
            (decoupled, mbpo) tuned so for a second policy, which takes turns with one for the task alone.
            calibrated (--offline): the smallest λ with which the model's returns on held-out data err by at
            most λΣσ, nine times in ten; what auto means for pessimistic offline.
        bonus_weight_end: Linear, exponential: where λ ends.
        bonus_weight_steps: Linear, exponential: λ ends after so many iterations; for algorithms that learn at
            every decision (mbpo, sac, maxinfo-sac), after so many decisions.
        bonus: ‖σ‖; the mean of σ, the learned reward's included; Σ log(1 + σ²/noise²) (OPAX); or its mean
            (MaxInfoRL).
        sigma_units: Units of σ in the norm: divided by the spread of the training targets, or physical.
        imagine_by: How imagined states move for greedy, optimistic and unsupervised: by the mean; by the mean
            plus the model's noise (as the paper defines its objective); or by samples of the posterior, as pets
            always does. Planners need particles for the last two, so they cost as much as pets.
        beta: hucrl: the planner chooses the most favourable dynamics within ± this many standard deviations.
        capacity: Transitions kept per seed; the oldest are overwritten.
        ensemble: The ensemble. The defaults are those of the authors' MBPO; noise is in units of normalised
            data.
        sac: Soft actor-critic. The defaults are MBPO's; `MODEL_FREE` has those of SAC and MaxInfoSAC.

    Example:
        agent = sombrl.MaxInfoSAC("MountainCarContinuous-v0").learn(25_000)
    """
    ...


@constructs("sim-fsvgd")
def SimFSVGD(
    env: Any,
    *,
    config: SimFSVGDConfig | None = None,
    preset: Literal["authors"] | None = None,
    env_kwargs: Sequence[str] | Mapping[str, Any] = (),
    action_repeat: int | None = None,
    action_cost: float = 0.0,
    env_workers: int = 0,
    episode_length: int | None = None,
    setting: Literal["finite-horizon", "discounted", "non-episodic", "unsupervised"] = "finite-horizon",
    downstream: Sequence[str] = (),
    discount: float = 0.99,
    growing_horizon: bool = True,
    horizon_floor: int = 10,
    update_every: int = 10,
    update_rule: Literal["fixed", "one-bit", "uncertainty"] = "fixed",
    update_threshold: float = 1.0,
    update_minimum: int = 1,
    offline: str | None = None,
    offline_seed: int | None = None,
    offline_order: Literal["all", "recorded"] = "all",
    held_out: float = 0.1,
    random_episodes: int | None = None,
    episodes: int = 10,
    eval_every: int = 0,
    eval_episodes: int = 5,
    record_bounds: bool = False,
    stop_when_gap: float | None = None,
    seed: int = 0,
    seeds: int = 1,
    explore: Literal[
        "greedy", "pets", "thompson", "optimistic", "unsupervised", "pessimistic", "nepets", "nemean"
    ] = "optimistic",
    bonus_weight: float = 0.5,
    bonus_weight_units: Literal["reward", "range"] = "reward",
    schedule: Literal["constant", "linear", "exponential", "calibrated"] = "linear",
    bonus_weight_end: float | None = 0.0,
    bonus_weight_steps: int = 10,
    bonus: Literal["norm", "mean", "information-gain", "mean-information-gain"] = "norm",
    sigma_units: Literal["normalised", "physical"] = "normalised",
    imagine_by: Literal["mean", "noise", "samples"] = "noise",
    beta: float = 2.0,
    prior: Literal["low-fidelity", "high-fidelity", "none"] = "low-fidelity",
    use: Literal["prior", "grey-box", "system-id"] = "prior",
    prior_gap: bool = True,
    prior_integrator: Literal["rk4", "legacy"] = "rk4",
    frame: Literal["world", "body"] = "world",
    capacity: int = 10000,
    start_from: str | None = None,
    model: ParticleConfig | ParticleSettings = ParticleConfig(),
    system: GreyBoxConfig | GreyBoxSettings = GreyBoxConfig(),
    search: PolicySearchConfig | PolicySearchSettings = PolicySearchConfig(),
    sac: SACConfig | SACSettings = SACConfig(
        hidden=(64, 64),
        critic="plain",
        imagined="none",
        policy_every=1,
        actor_lr=0.001,
        critic_lr=0.001,
        temperature_lr=0.001,
        bonus_weight_lr=0.0,
        target_entropy_factor=0.0,
        gradient_clip=5.0,
        soft_reset_every=None,
    ),
) -> Agent:
    """Particles with a simulator as prior, and a policy found inside the model.

    Args:
        env: A name of `sombrl list envs`, a gymnasium.Env, or a function that makes one.
        config: All of the algorithm's own settings.
        preset: Values of several settings at once, which the others override; `sombrl list presets` shows them.
        env_kwargs: Its options as name=value, such as reward=sparse.
        action_repeat: Frames per decision; rewards are summed. Default: as published, 2 for dmc: and 4 for
            atari:, else 1.
        action_cost: K of the cost K‖u‖₂, in reward, charged for the physical action on every frame.
        env_workers: Processes that step the environments of the seeds; 0: all in this process, in turn
            (docs/environments.md).
        episode_length: Decisions per episode; default: the environment's own limit.
        setting: What an episode is. Of fixed length; discounted ones that grow; one trajectory that is never
            reset; or episodes that explore without a task, before the tasks of --downstream.
        downstream: Unsupervised: tasks to plan for afterwards, zero-shot (an unknown name lists those of the
            environment).
        discount: γ of the discounted setting.
        growing_horizon: Discounted: episodes of T(n) = -ln n/ln γ decisions (the theory's), or all of the full
            length.
        horizon_floor: Discounted: the shortest of the growing episodes (T(1) would be 0).
        update_every: Non-episodic: decisions between updates of the model; for the other rules the most of
            them; 0: any number.
        update_rule: Non-episodic: update every update_every decisions; once the model would have learned one
            bit (the proofs); or once the sum of ‖σ‖ exceeds update_threshold (the paper's main text).
        update_threshold: Non-episodic: the C of that rule, in normalised units.
        update_minimum: Non-episodic: at least so many decisions between updates
            (sombrl.theory.lyapunov_minimum).
        offline: Learn from these data alone; no environment is stepped. A run's folder, a Minari dataset, or an
            .npz with obs, action, reward, next_obs, terminated and truncated (docs/offline.md).
        offline_seed: Offline, of a run: the data of this seed; default: of all, one after the other.
        offline_order: Offline: learn from all data from the first update on; or hand them out one by one, so
            that every update sees what it would have seen when they were recorded.
        held_out: Offline: share of the episodes that nothing is learned from. They say how wrong the model is,
            and calibrate λ.
        random_episodes: First episodes of random actions, so that the model has something to start from; non-
            episodic: updates. Default: 1 for gp-icem, else 0.
        episodes: Episodes per seed; non-episodic: updates of the model.
        eval_every: Decisions between evaluations; 0: none. They are without exploring; `sombrl eval` evaluates
            afterwards.
        eval_episodes: Episodes per evaluation.
        record_bounds: Predict the return of every episode in the model before it is played, and record both
            (docs/bounds.md). Costs a planner as much as the episode; policies that learn at every decision
            predict evaluations (--eval-every).
        stop_when_gap: Planners: end once J⁺ of the optimistic plan and J⁻ of the greedy one are within this
            share of each other. Costs two more episodes of planning for each.
        seed: The first seed.
        seeds: Seeds to train together: seed, seed + 1, …
        explore: See `sombrl list explorations`.
        bonus_weight: λ, per decision and unit of ‖σ‖. The paper's GP experiments have 10. Where a policy learns
            at every decision the bonus is divided by its spread, and λ is in units of value; the penalty of
            pessimistic is not.
        bonus_weight_units: Units of λ. reward: reward per decision. range (planners): the range of the rewards
            seen so far, which fits tasks of all scales; 100 times as much while nothing was found that pays
            more than doing nothing. The theoretical λ is in reward.
        schedule: How λₙ changes. Not at all; on its way to bonus_weight_end; from the theorems (--theory.*);
            tuned from bonus_weight on, so that the policy's bonus matches that of its target (EMA) policy; or
            (decoupled, mbpo) tuned so for a second policy, which takes turns with one for the task alone.
            calibrated (--offline): the smallest λ with which the model's returns on held-out data err by at
            most λΣσ, nine times in ten; what auto means for pessimistic offline.
        bonus_weight_end: Linear, exponential: where λ ends.
        bonus_weight_steps: Linear, exponential: λ ends after so many iterations; for algorithms that learn at
            every decision (mbpo, sac, maxinfo-sac), after so many decisions.
        bonus: ‖σ‖; the mean of σ, the learned reward's included; Σ log(1 + σ²/noise²) (OPAX); or its mean
            (MaxInfoRL).
        sigma_units: Units of σ in the norm: divided by the spread of the training targets, or physical.
        imagine_by: How imagined states move for greedy, optimistic and unsupervised: by the mean; by the mean
            plus the model's noise (as the paper defines its objective); or by samples of the posterior, as pets
            always does. Planners need particles for the last two, so they cost as much as pets.
        beta: hucrl: the planner chooses the most favourable dynamics within ± this many standard deviations.
        prior: The simulator: kinematic, with tyres, or none.
        use: As a prior; fitted to the data, with networks for the rest; or fitted and taken as exact (then σ =
            0).
        prior_gap: Allow for what the simulator lacks by the published GP on top of it (--model.additive-scales:
            by another).
        prior_integrator: How the simulator integrates; legacy is the published one.
        frame: Coordinates of the car's model: as published; or relative to the car, which drives alike wherever
            it stands.
        capacity: Transitions kept per seed; the oldest are overwritten.
        start_from: Begin with what another run of this algorithm has learned, and with its data; or with data
            alone, of a run of another algorithm, a Minari dataset or an .npz. The environment must be the same
            (docs/offline.md).
        model: The particles and how they are trained. The defaults are the authors' for SimFSVGD on the RC car,
            but for three.
        system: How a simulator's parameters are fitted.
        search: Soft actor-critic in the model.
        sac: Soft actor-critic. The defaults are MBPO's; `MODEL_FREE` has those of SAC and MaxInfoSAC.

    Example:
        agent = sombrl.SimFSVGD("rc-car", frame="body", bonus_weight=0.1).learn(1_000)
    """
    ...


@constructs("dreamer")
def Dreamer(
    env: Any,
    *,
    config: DreamerConfig | None = None,
    preset: Literal["authors", "features"] | None = None,
    env_kwargs: Sequence[str] | Mapping[str, Any] = (),
    action_repeat: int | None = None,
    action_cost: float = 0.0,
    env_workers: int = 0,
    episode_length: int | None = None,
    setting: Literal["finite-horizon", "unsupervised"] = "finite-horizon",
    episodes: int = 10,
    decisions: int | None = None,
    report_every: int = 500,
    eval_every: int = 0,
    eval_episodes: int = 5,
    record_bounds: bool = False,
    seed: int = 0,
    seeds: int = 1,
    explore: Literal["greedy", "optimistic", "unsupervised"] = "optimistic",
    bonus_weight: float = 2.0,
    schedule: Literal["constant", "auto"] = "auto",
    bonus_weight_lr: float = 4e-05,
    bonus_weight_decay: float = 0.001,
    sigma: Literal["mean-std", "norm", "variance", "log"] = "mean-std",
    members: int = 5,
    hidden: Sequence[int] | None = None,
    ensemble_target: Literal["stoch", "deter", "embedding"] = "stoch",
    bootstrap: float = 1.0,
    ensemble_lr: float | None = None,
    bonus_scale: Literal["z-score", "scale", "none"] = "none",
    bonus_memory: int = 1000000,
    bonus_floor: float = 0.0001,
    protocol: Literal["paper", "head"] = "paper",
    size: Literal["tiny", "1m", "12m", "25m", "50m", "100m", "200m", "400m"] | None = None,
    ratio: float | None = None,
    cnn: Literal["head", "paper"] | None = None,
    envs: int = 4,
    batch_size: int = 16,
    batch_length: int = 64,
    horizon: int = 15,
    imagine_last: int | None = None,
    capacity: int = 1000000,
    learning_rate: float = 4e-05,
    warmup: int = 1000,
    slow_rate: float = 0.02,
    unimix: float = 0.01,
    start_from: str | None = None,
    start_updates: int = 0,
    precision: Literal["auto", "bfloat16", "float32"] = "auto",
) -> Agent:
    """A latent world model, and a policy trained inside it; images and vectors.

    Args:
        env: A name of `sombrl list envs`, a gymnasium.Env, or a function that makes one.
        config: All of the algorithm's own settings.
        preset: Values of several settings at once, which the others override; `sombrl list presets` shows them.
        env_kwargs: Its options as name=value, such as reward=sparse.
        action_repeat: Frames per decision; rewards are summed. Default: as published, 2 for dmc: and 4 for
            atari:, else 1.
        action_cost: K of the cost K‖u‖₂, in reward, charged for the physical action on every frame.
        env_workers: Processes that step the environments of the seeds; 0: all in this process, in turn
            (docs/environments.md).
        episode_length: Decisions per episode; default: the environment's own limit.
        setting: What an episode is. Of fixed length; discounted ones that grow; one trajectory that is never
            reset; or episodes that explore without a task, before the tasks of --downstream.
        episodes: Episodes per seed; non-episodic: updates of the model.
        decisions: Decisions per seed; default: those of `episodes` full episodes.
        report_every: Decisions between two reports (and checkpoints).
        eval_every: Decisions between evaluations; 0: none. They are without exploring; `sombrl eval` evaluates
            afterwards.
        eval_episodes: Episodes per evaluation.
        record_bounds: Predict the return of every episode in the model before it is played, and record both
            (docs/bounds.md). Costs a planner as much as the episode; policies that learn at every decision
            predict evaluations (--eval-every).
        seed: The first seed.
        seeds: Seeds to train together: seed, seed + 1, …
        explore: The task alone (DreamerV3); the task and the bonus; or the bonus alone (Plan2Explore).
        bonus_weight: λ of the optimistic strategy, where it starts.
        schedule: How λ changes. Not at all; or it is tuned so that the policy's bonus matches that of its
            target (EMA) policy.
        bonus_weight_lr: Auto: learning rate of log λ (LaProp).
        bonus_weight_decay: Auto: α of the term α λ that pulls λ down.
        sigma: σ from the members' spread: its mean over the latents; its norm (the paper, to the letter); the
            mean variance; or the logarithm of the mean, which is negative.
        members: Networks of the ensemble.
        hidden: Widths of their hidden layers; default: two as wide as the size says, 512 (published) from 12m
            on, 64 at 1m.
        ensemble_target: What they predict of the next record: the sampled latents; the recurrent state, which
            has no chance in it; or the encoder's features (Plan2Explore).
        bootstrap: Share of the records that each network learns from, always the same ones, drawn for each
            network; 1: all.
        ensemble_lr: Learning rate of the ensemble; default: --learning-rate.
        bonus_scale: σ as it is; divided by its running std (scale), so that λ has the unit of a reward whatever
            σ has shrunk to; or its running mean subtracted too (z-score), which can pay to end early.
        bonus_memory: Values of σ that the running mean and std reach back, about: two per record of a batch,
            2048 per update.
        bonus_floor: The least std that σ is divided by.
        protocol: Defaults of size, ratio, cnn and the action repeat on dmc: those of the published scores (12m,
            512, paper, 2), or those of the authors' newest code, with their 12m model (256 with images, 1024
            without; head; 1).
        size: Millions of parameters; default: the protocol's.
        ratio: Records trained on per record collected; default: the protocol's, on Atari 256, or 32 with
            protocol=atari200m.
        cnn: The convolutions; default: the protocol's.
        envs: Environments per seed, stepped together (published: 16, and 1 for Atari 100k).
        batch_size: Sequences per update.
        batch_length: Records of each.
        horizon: Decisions of an imagined trajectory; one starts at every record of a batch.
        imagine_last: Imagine from so many records at the end of every sequence only, and learn the value on
            these; None: from all.
        capacity: Records kept per seed, in the machine's memory (published: 5 million).
        learning_rate: Of everything but λ (LaProp).
        warmup: Updates over which it climbs from 0.
        slow_rate: How far the slow value and the slow policy move towards the learned ones in an update.
        unimix: Discrete actions: share of the uniform distribution in the policy, so that none is ever given
            up.
        start_from: A run of dreamer whose world model, and on the same environment whose records, this one
            begins with.
        start_updates: Updates on those records before the first decision: what comes out is evaluated as
            eval/zero_shot.
        precision: What networks compute in (losses and returns are float32 always); auto: bfloat16 on an
            accelerator.

    Example:
        agent = sombrl.Dreamer("dmc-vision:cartpole-swingup", explore="greedy", size="1m").learn(5_000)
    """
    ...
