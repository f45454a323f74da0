"""Layers of Dreamer's networks in NumPy and float64."""

import numpy as np


def silu(x):
    return x / (1.0 + np.exp(-x))


def norm(layer, x):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-4) * np.asarray(layer.scale, np.float64)
