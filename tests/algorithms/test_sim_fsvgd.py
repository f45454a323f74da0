"""SimFSVGD-Optimistic as an algorithm: its parts, its strategies, exact resume, and what it refuses."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.agent.make import load, make
from sombrl.algorithms.sim_fsvgd import SimFSVGDConfig
from sombrl.dynamics.grey_box import GreyBoxLearner
from sombrl.dynamics.rc_car_prior import CarBodyFrame, CarWorldFrame
from sombrl.exploration.bonus import EpistemicNorm, NoBonus
from sombrl.exploration.propagation import NoisyMean, Resampled
from sombrl.paper.experiments.rccar import SIZES
from sombrl.records import SombrlError
from sombrl.storage.run_folder import RunFolder

TINY = SIZES["smoke"] | {"episode_length": 5, "episodes": 3}


def car(**settings):
    return make("sim-fsvgd", "rc-car", **(TINY | settings))


def columns(rows):
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


@pytest.fixture(scope="module")
def trained():
    """Three episodes of an agent, and its rows."""
    agent = car(seeds=1)
    rows = [row for report in agent.iterations(3) for row in columns(agent.rows(report))]
    return agent, rows


@pytest.mark.thorough
def test_lambda_falls_on_the_published_line(trained):
    _, rows = trained
    np.testing.assert_allclose([row["explore/bonus_weight"] for row in rows], [0.5, 0.45, 0.4], rtol=1e-6)


@pytest.mark.thorough
def test_resumes_to_the_bit(trained, tmp_path):
    agent = car(seeds=1)
    for _ in agent.iterations(2):
        pass
    agent.save_checkpoint(RunFolder.create(tmp_path / "run", agent.to_json(), ["test"]))
    again = load(tmp_path / "run")
    assert again.iteration == 2
    rows = [row for report in again.iterations(3) for row in columns(again.rows(report))]
    assert rows == trained[1][2:]


@pytest.mark.thorough
def test_policy_is_kept_for_evaluation(trained):
    """`predict` is the mode of the learned actor, and evaluating trains nothing."""
    agent, _ = trained
    obs = np.linspace(-0.5, 0.5, 13).astype(np.float32)
    action, _ = agent.predict(obs)
    actor = jax.tree.map(lambda leaf: leaf[0], agent.state.controller.actor)
    np.testing.assert_allclose(action, np.tanh(actor(jnp.asarray(obs))[:2]), atol=1e-6)
    before = jax.tree.leaves(agent.state)
    assert agent.evaluate(1).shape == (1, 1)
    assert all(np.array_equal(a, b) for a, b in zip(before, jax.tree.leaves(agent.state), strict=True))


@pytest.mark.parametrize(
    ("settings", "propagation", "bonus"),
    [
        ({}, NoisyMean, EpistemicNorm),
        ({"explore": "greedy"}, NoisyMean, NoBonus),
        ({"explore": "pets"}, Resampled, NoBonus),
        ({"imagine_by": "samples"}, Resampled, EpistemicNorm),
    ],
)
def test_two_by_two(settings, propagation, bonus):
    exploration = car(**settings).trainer.parts.exploration
    assert type(exploration.propagation) is propagation and type(exploration.bonus) is bonus


def test_parts_of_the_priors():
    learner = car().trainer.parts.learner
    assert learner.simulator.fidelity == "low" and isinstance(learner.coordinates, CarWorldFrame)
    assert learner.config.additive_scales == pytest.approx((0.008, 0.008, 0.01, 0.01, 0.08, 0.08, 0.5))
    high = car(prior="high-fidelity", frame="body").trainer.parts.learner
    assert high.simulator.fidelity == "high" and isinstance(high.coordinates, CarBodyFrame)
    assert high.config.additive_scales == pytest.approx((0.008, 0.008, 0.009, 0.05, 0.05, 0.2))
    assert car(prior_gap=False).trainer.parts.learner.config.additive_scales is None
    none = car(prior="none").trainer.parts.learner
    assert none.simulator is None and none.domain_of is not None
    grey, system = car(use="grey-box").trainer.parts.learner, car(use="system-id").trainer.parts.learner
    assert isinstance(grey, GreyBoxLearner) and grey.system.residual and not system.system.residual
    assert car(prior_integrator="legacy").trainer.parts.learner.simulator.integrator == "legacy"


def test_the_published_numbers_are_the_defaults_but_for_three():
    config = SimFSVGDConfig()
    model = dataclasses.asdict(config.model)
    published = {"particles": 10, "hidden": (64, 64, 64), "learning_rate": 1e-3, "weight_decay": 1e-3, "batch_size": 32}
    published |= {"steps": 40_000, "measurement_points": 16, "functions": 512, "bandwidth": 0.2, "score": "gp"}
    published |= {"likelihood_exponent": 0.5, "learn_noise": True, "additive_lengthscale": 5.0, "fresh": True}
    assert published.items() <= model.items()
    # Ours. The authors' points are all from the domain, repulsion is divided by N twice, their priors are weighed.
    assert (config.model.neighbourhood_share, config.model.visited_share) == (0.25, 0.25)
    assert (config.model.repulsion, config.model.prior_scaling) == ("textbook", "full")
    assert config.sac.hidden == (64, 64) and config.sac.discount == 0.99 and config.search.reward_scale == 10.0


@pytest.mark.parametrize(
    ("env", "settings", "says"),
    [
        ("pendulum", {}, "add --prior none"),
        ("pendulum", {"prior": "none", "frame": "body"}, "--frame body is for rc-car"),
        ("rc-car", {"schedule": "auto", "bonus_weight_end": None}, "--schedule auto is for policies that learn"),
        ("rc-car", {"explore": "hucrl"}, "use --explore optimistic"),
        ("rc-car", {"action_repeat": 2}, "leave out --action-repeat"),
        ("rc-car", {"capacity": 3}, "does not fit --capacity 3"),
        ("rc-car", {"prior": "none", "use": "grey-box"}, "--use grey-box needs a simulator"),
        ("rc-car", {"model": TINY["model"] | {"inference": "ensemble"}}, "has a prior of weights, not a simulator"),
        ("Pendulum-v1", {"action_repeat": 3}, None),
    ],
)
def test_refuses(env, settings, says):
    if says is None:  # a known task without a simulator is not a mistake
        assert make("sim-fsvgd", env, prior="none", **(TINY | settings)).trainer.parts.learner.simulator is None
        return
    with pytest.raises(SombrlError, match=says):
        make("sim-fsvgd", env, **(TINY | settings))


@pytest.mark.thorough
@pytest.mark.optimised
def test_its_data_in_their_order_give_the_same_policy(tmp_path):
    """--offline, with a replay of the same size: model and policy are those of the run, bit for bit."""
    agent = car(seeds=1, capacity=15).learn(15)
    agent.save(tmp_path / "run")
    replayed = car(seeds=1, capacity=15, offline=str(tmp_path / "run"), offline_order="recorded").learn(15)
    for part in ("learner", "controller"):
        ours, theirs = (jax.tree.leaves(getattr(one.state, part)) for one in (replayed, agent))
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)), part
