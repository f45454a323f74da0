"""The actor in NumPy: u = tanh(μ(obs)), the mode of the tanh-Gaussian policy that `controllers/sac.py` learns."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.errors import SombrlError
from sombrl.hardware.backend import START
from sombrl.hardware.files import Damaged, read_arrays, write_arrays
from sombrl.networks.steps import ACTIVATIONS, ARRAYS, Step, run

Policy = Callable[[np.ndarray], np.ndarray]
"""An action in [-1, 1] for one encoded observation."""

MOST = 0.6  # of steering and throttle, on the way home


@dataclasses.dataclass(frozen=True)
class Actor:
    """A network in float32, step by step; its last layer has two heads, of which the mean is the first."""

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        """Refuse steps that do not fit each other, and parameters that are not finite."""
        if unknown := {step.activation for step in self.steps} - set(ACTIVATIONS):
            raise SombrlError(f"a policy has an activation of {', '.join(ACTIVATIONS)}, not {min(unknown)!r}.")
        linear = [step for step in self.steps if step.kind == "linear"]
        if not linear or self.steps[-1].kind != "linear":
            raise SombrlError("a policy ends with a linear layer: this one does not.")
        width, aside = self.obs_dim, 0
        for step in self.steps:
            aside += {"remember": 1, "add": -1}.get(step.kind, 0)
            if aside < 0:
                raise SombrlError("a block of a policy adds what was never put aside.")
            shapes = {name: array.shape for name, array in step.arrays.items()}
            wanted = {name: (width,) for name in ARRAYS[step.kind]}
            if step.kind == "linear":
                out = shapes.get("bias", ())[-1:]
                wanted = {"weight": (width, *out), "bias": out}
            if shapes != wanted or any(len(shape) < 1 for shape in shapes.values()):
                raise SombrlError(
                    f"the layers of a policy do not fit: {[layer.arrays['weight'].shape for layer in linear]}."
                )
            if not all(np.isfinite(array).all() for array in step.arrays.values()):
                raise SombrlError("a policy has parameters that are not finite: it must not drive anything.")
            width = int(shapes["bias"][0]) if step.kind == "linear" else width
        if width % 2:
            raise SombrlError(f"the last layer of a policy has a mean and a log-std per action, not {width} outputs.")

    @property
    def weights(self) -> tuple[np.ndarray, ...]:
        """Of the linear layers, [input, output] each."""
        return tuple(step.arrays["weight"] for step in self.steps if step.kind == "linear")

    @property
    def biases(self) -> tuple[np.ndarray, ...]:
        """Of the linear layers."""
        return tuple(step.arrays["bias"] for step in self.steps if step.kind == "linear")

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
        action: np.ndarray = np.tanh(run(self.steps, obs)[: self.action_dim])
        return action

    @staticmethod
    def mlp(weights: Sequence[np.ndarray], biases: Sequence[np.ndarray], activation: str = "relu") -> "Actor":
        """Linear layers with an activation after each but the last."""
        if len(weights) != len(biases):
            raise SombrlError(
                f"a policy needs as many biases as weights, not {len(weights)} weights and {len(biases)} biases."
            )
        last = len(weights) - 1
        layers = enumerate(zip(weights, biases, strict=True))
        return Actor(
            tuple(Step("linear", {"weight": w, "bias": b}, "none" if i == last else activation) for i, (w, b) in layers)
        )

    @staticmethod
    def of(network: Any) -> "Actor":
        """From the network of a policy (`controllers.sac_batches.Policy`)."""
        from sombrl.networks.as_steps import steps_of  # it brings JAX along, which a car does without

        return Actor(tuple(steps_of(network)))

    def save(self, path: Path, meta: dict[str, Any] | None = None) -> None:
        """One npz file with a JSON entry, complete or not there."""
        arrays = {f"{i}/{name}": array for i, step in enumerate(self.steps) for name, array in step.arrays.items()}
        steps = [{"kind": step.kind, "activation": step.activation} for step in self.steps]
        write_arrays(path, arrays, {**(meta or {}), "kind": "policy", "steps": steps})

    @staticmethod
    def load(path: Path) -> tuple["Actor", dict[str, Any]]:
        """The policy and its metadata."""
        arrays, meta = read_arrays(path, "policy")
        try:
            if "steps" not in meta:  # written before policies had steps: an MLP
                number = len(arrays) // 2
                weights, biases = ([arrays[f"{name}_{i}"] for i in range(number)] for name in ("weight", "bias"))
                return Actor.mlp(weights, biases, meta["activation"]), meta
            steps = [
                Step(step["kind"], {name: arrays[f"{i}/{name}"] for name in ARRAYS[step["kind"]]}, step["activation"])
                for i, step in enumerate(meta["steps"])
            ]
            return Actor(tuple(steps)), meta
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
