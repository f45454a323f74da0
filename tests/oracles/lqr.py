"""The finite-horizon linear-quadratic regulator: what a planner must find when it may act freely.

Minimise Σ_{t<H} (x_{t+1}ᵀ Q x_{t+1} + u_tᵀ R u_t) with x_{t+1} = A x_t + B u_t, in float64.
"""

import numpy as np


def riccati(A, B, Q, R, horizon):
    """Gains K_t (u = -K_t x), first decision first, and the matrix of the whole cost: x₀ᵀ P x₀."""
    P = np.zeros_like(Q)  # nothing is paid after the last next state
    gains = []
    for _ in range(horizon):
        W = Q + P  # what the next state costs, now and later
        K = np.linalg.solve(R + B.T @ W @ B, B.T @ W @ A)
        P = A.T @ W @ (A - B @ K)
        gains.append(K)
    return gains[::-1], P


def optimal_plan(A, B, Q, R, start, horizon):
    """The optimal open-loop actions from `start`, and their cost."""
    gains, P = riccati(A, B, Q, R, horizon)
    state, actions = start, []
    for K in gains:
        actions.append(-K @ state)
        state = A @ state + B @ actions[-1]
    return np.array(actions), float(start @ P @ start)


def cost(A, B, Q, R, start, actions):
    """The cost of given actions, step by step."""
    total, state = 0.0, start
    for action in actions:
        state = A @ state + B @ action
        total += state @ Q @ state + action @ R @ action
    return total
