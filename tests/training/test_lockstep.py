"""Strategies side by side in one program: each is what it is alone."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.agent.agent import Agent
from sombrl.agent.make import make
from sombrl.dynamics.none import NoDynamics
from sombrl.exploration import Constant, greedy, hucrl, optimistic, pets
from sombrl.exploration.shared import share
from sombrl.paper.experiments.mbpo import decisions_of, mbpo_config
from sombrl.records import SombrlError
from sombrl.runs.cell import Evaluation, TrainCell
from sombrl.runs.cell_folder import CellFolder
from sombrl.runs.train import Run, run_training
from sombrl.storage.run_folder import RunFolder
from sombrl.training.lockstep import learn_together
from sombrl.training.online import spread
from tests.training.test_episodic import leaves
from tests.training.test_online import agent


def actions(trained):
    return np.asarray(trained.state.replay.data.action)


@pytest.mark.slow
def test_three_strategies_are_what_they_are_alone():
    names, noisy = ("optimistic", "greedy", "pets"), {"ensemble": {"noise_floor": 0.5}}
    beside = [agent(explore=name, **noisy) for name in names]
    learn_together(beside, 40)
    alone = [agent(explore=name, **noisy).learn(40) for name in names]
    error = max(np.abs(actions(a) - actions(b)).max() for a, b in zip(beside, alone, strict=True))
    contrast = min(np.abs(actions(a) - actions(b)).max() for a, b in itertools.combinations(beside, 2))
    assert error < 0.05 * contrast
    assert all(ours.iteration == 2 and int(ours.state.replay.added[0]) == 40 for ours in beside)


@pytest.mark.thorough
def test_other_numbers_change_no_bit():
    beside = [agent(bonus_weight=weight) for weight in (1.0, 0.5)]
    learn_together(beside, 40)
    for weight, ours in zip((1.0, 0.5), beside, strict=True):
        for a, b in zip(leaves(ours), leaves(agent(bonus_weight=weight).learn(40)), strict=True):
            assert np.array_equal(a, b)


def test_one_form():
    forms = share([optimistic(Constant(3.0)), greedy(), pets()])
    assert len({jax.tree.structure(form) for form in forms}) == 1
    zero = jnp.zeros((), jnp.int32)
    assert [float(form.bonus_weight(zero, NoDynamics())) for form in forms] == [3.0, 0.0, 0.0]
    assert [float(form.propagation.resampled) for form in forms] == [0.0, 0.0, 1.0]
    assert spread(forms, 2).bonus_weight.factor.tolist() == [1, 1, 0, 0, 0, 0]
    with pytest.raises(SombrlError, match="one program"):
        share([optimistic(Constant(1.0)), hucrl(1.0)])


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"env": "pendulum"}, "environment"),
        ({"seeds": 2}, "number of seeds"),
        ({"report_every": 30}, "window"),
        ({"ensemble": {"members": 2}}, "model"),
        ({"sac": {"tau": 0.5}}, "controller"),
    ],
)
def test_only_those_who_are_alike(other, what):
    with pytest.raises(SombrlError, match=what):
        learn_together([agent(), agent(**other)], 20)


def test_dreamer_has_a_loop_of_its_own():
    tiny = {"size": "tiny", "envs": 1, "batch_size": 2, "batch_length": 4, "capacity": 100, "episode_length": 5}
    with pytest.raises(SombrlError, match="`learn` of each agent"):
        learn_together([make("dreamer", "Pendulum-v1", **tiny)], 20)


@pytest.mark.thorough
def test_who_was_killed_behind_the_others_catches_up(tmp_path):
    cells = [
        TrainCell(
            *(method, method, "pendulum", decisions_of("pendulum", "smoke"), mbpo_config(method, "pendulum", "smoke")),
            algorithm="mbpo",
            metrics=("policy/bonus_weight",),
            evaluation=Evaluation(1),
            group="pendulum",
        )
        for method in ("optimistic", "greedy")
    ]
    ahead, behind = (CellFolder(tmp_path / cell.name, "mbpo-state", cell) for cell in cells)
    first = Agent("mbpo", cells[0].config, cells[0].run)
    (tmp_path / "optimistic").mkdir()
    ahead._begin()
    folder = RunFolder.create(tmp_path / "optimistic" / "run", first.to_json(), ["test"])
    run_training([Run(first, folder, False)], 1, 1, tensorboard=False)
    (tmp_path / "greedy").mkdir()
    ahead.complete(["test"], [behind])
    for cell in (ahead, behind):
        decisions = [row.decisions for row in cell.rows() if row.metric == "policy/bonus_weight" and row.seed == 0]
        assert decisions == [20, 40] and cell.record()["cells in one program"] == 2
        assert any(row.metric == "eval/ep_rew_mean" for row in cell.rows())
