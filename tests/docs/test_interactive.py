"""docs/assets/optimism.html: it fetches nothing, and its Gaussian process and its plans are right."""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

ASSETS = Path(__file__).resolve().parents[2] / "docs" / "assets"
NODE = shutil.which("node")
GP = {"signal": 0.3, "lengthscale": 0.8, "noise": 0.03}

needs_node = pytest.mark.skipif(NODE is None, reason="needs Node")


def evaluated(expression: str):
    """The value of an expression of world.js."""
    script = f"const W = require({json.dumps(str(ASSETS / 'world.js'))}), gp = {json.dumps(GP)};"
    script += f"console.log(JSON.stringify({expression}))"
    done = subprocess.run([str(NODE), "-e", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_page_loads_its_own_script_and_nothing_else():
    page, script = ((ASSETS / name).read_text() for name in ("optimism.html", "world.js"))
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["data:,", "world.js"]
    for text in (page, script):
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|fetch\(|XMLHttpRequest|import\(|WebSocket", text)


def test_everything_can_be_reached_by_keyboard():
    page = (ASSETS / "optimism.html").read_text()
    assert ":focus-visible" in page and "onclick" not in page
    listened = set(re.findall(r'\$\("(\w+)"\)\.addEventListener\("click"', page))
    assert listened == set(re.findall(r'<button type="button" id="(\w+)"', page))


@needs_node
def test_the_posterior_is_that_of_scikit_learn():
    gaussian_process = pytest.importorskip("sklearn.gaussian_process")
    kernels = gaussian_process.kernels
    xs, ys, points = [3.0, 2.6, 2.1, 7.5, 2.6], [0.02, -0.05, 0.1, 0.3, -0.04], np.linspace(0, 10, 23)
    ours = evaluated(f"W.posterior({xs}, {ys}, {points.tolist()}, gp)")
    kernel = kernels.ConstantKernel(GP["signal"] ** 2) * kernels.RBF(GP["lengthscale"])
    theirs = gaussian_process.GaussianProcessRegressor(kernel, alpha=GP["noise"] ** 2, optimizer=None)
    mean, std = theirs.fit(np.array(xs)[:, None], ys).predict(points[:, None], return_std=True)
    np.testing.assert_allclose(ours["mean"], mean, atol=1e-10)
    np.testing.assert_allclose(ours["std"], std, atol=1e-8)
    prior = evaluated(f"W.posterior([], [], {points.tolist()}, gp)")
    assert set(prior["mean"]) == {0} and set(prior["std"]) == {GP["signal"]}


@needs_node
@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_plan_is_worth_what_it_says_and_no_plan_is_better(weight):
    """Beside plans that hold one action, then another: all pairs of seven actions, changed after four decisions."""
    grid = np.array(evaluated("W.grid"))
    model = "W.posterior([3, 2.6, 3.4], [0.02, -0.05, 0], W.grid, gp)"
    mean, std = (np.array(each) for each in evaluated(f"Object.values({model})"))
    worth = np.array(evaluated("W.grid.map(W.reward)")) + weight * std / GP["signal"]
    plan = evaluated(f"W.plan(3, {model}, {weight}, gp)")

    def total(actions) -> float:
        place, summed = 3.0, 0.0
        for action in actions:
            place = np.clip(place + action + np.interp(place, grid, mean), 0, 10)
            summed += np.interp(place, grid, worth) - 0.02 * action**2
        return summed

    assert total(plan["actions"]) == pytest.approx(plan["total"], abs=0.02)
    some = np.linspace(-0.5, 0.5, 7)
    assert plan["total"] > max(total([a] * 4 + [b] * 4) for a, b in itertools.product(some, some)) - 0.02


@needs_node
@pytest.mark.parametrize(
    ("weight", "lengthscale", "end"),
    [(0.0, 0.8, 2.0), (0.5, 0.8, 9.0), (2.0, 0.8, 9.0), (0.5, 1.2, 2.0), (1.0, 1.2, 9.0)],
)
def test_what_the_pages_say_about_λ(weight, lengthscale, end):
    """Without a bonus the small reward, with one the large; a model that is sure too soon needs more of it."""
    run = f"""(() => {{
      gp.lengthscale = {lengthscale};
      let x = W.start, xs = [], felt = [];
      for (let t = 0; t < 60; t++) {{
        const plan = W.plan(x, W.posterior(xs, felt, W.grid, gp), {weight}, gp), made = W.act(x, plan.actions[0]);
        xs.push(x); felt.push(made.felt); x = made.next;
      }}
      return x;
    }})()"""
    assert evaluated(run) == pytest.approx(end, abs=0.1)
