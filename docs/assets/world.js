// The mathematics of optimism.html: a Gaussian process in one dimension, and exact plans under its mean.
// Plain JavaScript without dependencies; Node can require it, and tests/docs/test_interactive.py does.
"use strict";

const World = (() => {
  // An agent moves along a line from 0 to 10. A wind that it does not know is added to what it does.
  const low = 0, high = 10, start = 3;
  const cells = 200, horizon = 8, actionCost = 0.02;
  const actions = Array.from({ length: 21 }, (_, i) => -0.5 + 0.05 * i);
  const grid = Array.from({ length: cells + 1 }, (_, i) => low + ((high - low) * i) / cells);

  const bump = (x, centre, width) => Math.exp(-0.5 * ((x - centre) / width) ** 2);
  const wind = (x) => 0.32 * bump(x, 7, 0.7) - 0.3 * bump(x, 5, 0.7) + 0.12 * Math.sin(2 * x) * bump(x, 1, 1.2);
  const reward = (x) => 0.3 * bump(x, 2, 0.4) + bump(x, 9, 0.5);
  const clip = (x) => Math.min(high, Math.max(low, x));

  // k(a, b) = s² exp(-(a - b)² / 2l²)
  const kernel = (a, b, gp) => gp.signal ** 2 * Math.exp(-0.5 * ((a - b) / gp.lengthscale) ** 2);

  // Lower triangular L with L Lᵀ = K, in place of K.
  function cholesky(matrix) {
    const n = matrix.length;
    for (let j = 0; j < n; j++) {
      for (let k = 0; k < j; k++) matrix[j][j] -= matrix[j][k] ** 2;
      matrix[j][j] = Math.sqrt(matrix[j][j]);
      for (let i = j + 1; i < n; i++) {
        for (let k = 0; k < j; k++) matrix[i][j] -= matrix[i][k] * matrix[j][k];
        matrix[i][j] /= matrix[j][j];
      }
    }
    return matrix;
  }

  function forward(L, b) {
    const x = b.slice();
    for (let i = 0; i < x.length; i++) {
      for (let k = 0; k < i; k++) x[i] -= L[i][k] * x[k];
      x[i] /= L[i][i];
    }
    return x;
  }

  // Mean and standard deviation of the function at the points, given noisy values (xs, ys).
  function posterior(xs, ys, points, gp) {
    const K = xs.map((a, i) => xs.map((b, j) => kernel(a, b, gp) + (i === j ? gp.noise ** 2 : 0)));
    const L = cholesky(K);
    const white = forward(L, ys);
    const mean = [], std = [];
    for (const point of points) {
      const v = forward(L, xs.map((x) => kernel(x, point, gp)));
      mean.push(v.reduce((sum, each, i) => sum + each * white[i], 0));
      std.push(Math.sqrt(Math.max(0, gp.signal ** 2 - v.reduce((sum, each) => sum + each * each, 0))));
    }
    return { mean, std };
  }

  function interpolated(values, x) {
    const at = ((clip(x) - low) / (high - low)) * cells;
    const i = Math.min(cells - 1, Math.floor(at));
    return values[i] + (at - i) * (values[i + 1] - values[i]);
  }

  // The best plan from x for the sum of r + λσ/s over the horizon, if the wind is the mean of the model.
  // Dynamic programming backwards on the grid; σ is in units of its prior s, so that it begins at 1.
  function plan(x, model, lambda, gp) {
    const worth = grid.map((point, i) => reward(point) + (lambda * model.std[i]) / gp.signal);
    const best = (point, value) => {
      const drift = interpolated(model.mean, point);
      let choice = { total: -Infinity, action: 0 };
      // From the smallest action to the largest, so that doing nothing wins where nothing is to be gained.
      for (const action of [...actions].sort((a, b) => Math.abs(a) - Math.abs(b))) {
        const next = clip(point + action + drift);
        const total = interpolated(worth, next) - actionCost * action * action + interpolated(value, next);
        if (total > choice.total + 1e-9) choice = { total, action, next };
      }
      return choice;
    };
    const values = [grid.map(() => 0)];
    for (let h = 1; h < horizon; h++) values.push(grid.map((point) => best(point, values[h - 1]).total));
    const path = [x], chosen = [];
    let total = 0;
    for (let h = horizon - 1; h >= 0; h--) {
      const choice = best(path[path.length - 1], values[h]);
      if (h === horizon - 1) total = choice.total;
      path.push(choice.next);
      chosen.push(choice.action);
    }
    return { path, actions: chosen, total };
  }

  // What really happens: the next place and the wind that was felt there.
  function act(x, action) {
    const next = clip(x + action + wind(x));
    return { next, felt: wind(x), reward: reward(next) - actionCost * action * action };
  }

  return { low, high, start, horizon, grid, wind, reward, kernel, cholesky, posterior, plan, act, interpolated };
})();

if (typeof module !== "undefined") module.exports = World;
