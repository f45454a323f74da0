"""The actor in NumPy: u = tanh(μ(obs)), the mode of the tanh-Gaussian policy that `controllers/sac.py` learns."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.errors import SombrlError
from sombrl.hardware.backend import START
from sombrl.hardware.files import Damaged, read_arrays, write_arrays

Policy = Callable[[np.ndarray], np.ndarray]
"""An action in [-1, 1] for one encoded observation."""

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "silu": lambda x: x / (1.0 + np.exp(-np.maximum(x, -80.0))),  # e^80 is finite also in float32
    "tanh": np.tanh,
}
"""As in `networks/mlp.py`."""

MOST = 0.6  # of steering and throttle, on the way home


@dataclasses.dataclass(frozen=True)
class Actor:
    """Linear layers in float32; the last one has two heads, of which the mean is the first."""

    weights: tuple[np.ndarray, ...]  # [input, output] each
    biases: tuple[np.ndarray, ...]
    activation: str = "relu"

    def __post_init__(self) -> None:
        """Refuse layers that do not fit each other, and parameters that are not finite."""
        if not self.weights or len(self.weights) != len(self.biases) or self.activation not in ACTIVATIONS:
            raise SombrlError(
                f"a policy needs as many biases as weights and an activation of {', '.join(ACTIVATIONS)}, not "
                f"{len(self.weights)} weights, {len(self.biases)} biases and {self.activation!r}."
            )
        width = self.weights[0].shape[0]
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if weight.ndim != 2 or bias.shape != weight.shape[1:] or weight.shape[0] != width:
                raise SombrlError(f"the layers of a policy do not fit: {[w.shape for w in self.weights]}.")
            if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
                raise SombrlError("a policy has parameters that are not finite: it must not drive anything.")
            width = weight.shape[1]
        if width % 2:
            raise SombrlError(f"the last layer of a policy has a mean and a log-std per action, not {width} outputs.")

    @property
    def obs_dim(self) -> int:
        """Numbers of an observation."""
        return int(self.weights[0].shape[0])

    @property
    def action_dim(self) -> int:
        """Numbers of an action."""
        return int(self.weights[-1].shape[1]) // 2

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The action in [-1, 1] for one observation."""
        x, activation = obs, ACTIVATIONS[self.activation]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = activation(x @ weight + bias)
        action: np.ndarray = np.tanh((x @ self.weights[-1] + self.biases[-1])[: self.action_dim])
        return action

    @staticmethod
    def of(network: Any) -> "Actor":
        """From anything with `layers`, each of them with `weight` and `bias`, and an `activation`: `networks.MLP`."""
        weights = tuple(np.asarray(layer.weight, np.float32) for layer in network.layers)
        biases = tuple(np.asarray(layer.bias, np.float32) for layer in network.layers)
        return Actor(weights, biases, network.activation)

    def save(self, path: Path, meta: dict[str, Any] | None = None) -> None:
        """One npz file with a JSON entry, complete or not there."""
        arrays = {f"weight_{i}": weight for i, weight in enumerate(self.weights)}
        arrays |= {f"bias_{i}": bias for i, bias in enumerate(self.biases)}
        write_arrays(path, arrays, {**(meta or {}), "kind": "policy", "activation": self.activation})

    @staticmethod
    def load(path: Path) -> tuple["Actor", dict[str, Any]]:
        """The policy and its metadata."""
        arrays, meta = read_arrays(path, "policy")
        number = len(arrays) // 2
        try:
            weights = tuple(arrays[f"weight_{i}"] for i in range(number))
            biases = tuple(arrays[f"bias_{i}"] for i in range(number))
            return Actor(weights, biases, meta["activation"]), meta
        except KeyError:
            raise Damaged(path, "it does not have the arrays of a policy") from None


def drive_home(policy: Policy) -> Policy:
    """A policy that can park, driving to the start pose: it sees the start where it was taught to park."""
    x, y, theta = START
    s, c = np.sin(theta), np.cos(theta)
    turn = np.array([[c, s], [-s, c]])  # by -θ of the start

    def act(obs: np.ndarray) -> np.ndarray:
        seen = obs.copy()
        seen[:2] = turn @ (obs[:2] - np.array((x, y)))
        seen[2:4] = obs[2] * c - obs[3] * s, obs[3] * c + obs[2] * s  # sin and cos of θ - θ of the start
        seen[4:6] = turn @ obs[4:6]
        return np.clip(policy(seen), -MOST, MOST)

    return act
