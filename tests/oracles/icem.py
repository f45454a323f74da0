"""iCEM once more, in numpy and float64, fed with given noise: what `sombrl.controllers` must reproduce."""

import numpy as np


class NumpyICEM:
    """One episode. `score` maps a plan [horizon, plan] to its return; noise is [samples, horizon, plan]."""

    def __init__(self, config, action_dim):
        self.config = config
        self.plan = np.zeros((config.horizon, action_dim))
        self.elites = []

    def act(self, score, noises):
        config = self.config
        mean, variance = self.plan, np.full_like(self.plan, config.init_std**2)
        best, best_score = None, -np.inf
        carried = self.elites if config.shift_elites else []
        for noise in noises:
            plans = [np.clip(mean + np.sqrt(variance) * one, -1, 1) for one in noise] + list(carried)
            scores = np.array([score(plan) for plan in plans])
            order = np.argsort(-scores, kind="stable")[: config.num_elites]
            elites = np.array([plans[i] for i in order])
            a = config.momentum
            mean = a * mean + (1 - a) * elites.mean(axis=0)
            variance = a * variance + (1 - a) * elites.var(axis=0)
            carried = elites[: int(config.keep_fraction * config.num_elites + 1e-9)]
            if scores[order[0]] > best_score:
                best, best_score = elites[0], scores[order[0]]
        plan = best if config.execute == "best" else mean

        def later(plan):
            return np.array([*plan[1:], plan[-1]])

        self.plan = later(plan)
        self.elites = [later(elite) for elite in carried]
        return plan[0], best_score
