"""One step of the RC car once more, in numpy and float64: the published equations, without a thought of derivatives."""

import math

import numpy as np


def oracle(p, state, action, integrator, dt=1 / 30, substeps=3):
    """The state (x, y, θ, vx, vy, ω) after one action; θ is not wrapped. `p` has the car's numbers as attributes."""
    steer, d = np.clip(action, -1, 1) * [p.steering_limit, 1.0]
    h = dt / substeps

    def slope(s):
        _, _, th, vx, vy, om = s
        th = th + (p.angle_offset if integrator == "rk4" else 0.0)
        pose = [vx * math.cos(th) - vy * math.sin(th), vx * math.sin(th) + vy * math.cos(th), om]
        F = p.c_m_1 * d - p.c_m_2**2 * vx - p.c_d**2 * vx * abs(vx)
        beta = math.atan(math.tan(steer) / (p.l_f + p.l_r))
        kinematic = [
            F / p.m * math.cos(beta),
            90 * (vx * math.sin(beta) * p.l_r - vy),
            90 * (vx * math.sin(beta) - om),
        ]
        share = float(np.clip((vx - p.blend_ratio_ub**2) / (p.blend_ratio_lb**2 + 1e-6), 0, 1))
        if p.use_blend < 0.5 or share == 0.0:
            return np.array([*pose, *kinematic])
        alpha_f = steer - math.atan((om * p.l_f + vy) / (vx + 1e-6))
        alpha_r = math.atan((om * p.l_r - vy) / (vx + 1e-6))
        Ff = p.d_f * 9.81 * math.sin(p.c_f * math.atan(p.b_f * alpha_f))
        Fr = p.d_r * 9.81 * math.sin(p.c_r * math.atan(p.b_r * alpha_r))
        dynamic = [
            (F - Ff * math.sin(steer) + p.m * vy * om) / p.m,
            (Fr + Ff * math.cos(steer) - p.m * vx * om) / p.m,
            (Ff * p.l_f * math.cos(steer) - Fr * p.l_r) / p.i_com,
        ]
        return np.array([*pose, *(share * np.array(dynamic) + (1 - share) * np.array(kinematic))])

    def turned(v, by):
        return [v[0] * math.cos(by) - v[1] * math.sin(by), v[0] * math.sin(by) + v[1] * math.cos(by)]

    s = np.array([*state[:3], *turned(state[3:5], -(state[2] + p.angle_offset)), state[5]])
    for _ in range(substeps):
        if integrator == "rk4":
            k0 = slope(s)
            k1 = slope(s + h / 2 * k0)
            k2 = slope(s + h / 2 * k1)
            k3 = slope(s + h * k2)
        else:
            k0, s1 = slope(s), s + h / 2 * slope(s)
            k1, s2 = slope(s1), s1 + h / 2 * slope(s1)
            k2, s3 = slope(s2), s2 + h * slope(s2)
            k3 = slope(s3)
        s = s + h * (k0 / 6 + k1 / 3 + k2 / 3 + k3 / 6)
    return np.array([*s[:3], *turned(s[3:5], s[2] + p.angle_offset), s[5]])
