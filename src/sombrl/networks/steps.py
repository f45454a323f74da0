"""A network as a list of steps, each of which changes one vector: for files, for NumPy, and for other programs.

| kind         | what it does to x                        | arrays       |
| `normalise`  | clip((x - mean)/std, ± `limit`)          | mean, std    |
| `linear`     | x W + b                                  | weight, bias |
| `layer-norm` | (x - mean(x))/std(x) · scale + shift     | scale, shift |
| `remember`   | nothing; puts a copy of x aside          |              |
| `add`        | adds what was last put aside             |              |

After a linear step or a layer norm comes the step's `activation`. `as_steps.py` makes the list; this file needs NumPy
alone.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

Kind = Literal["normalise", "linear", "layer-norm", "remember", "add"]

ARRAYS: dict[Kind, tuple[str, ...]] = {
    "normalise": ("mean", "std"),
    "linear": ("weight", "bias"),
    "layer-norm": ("scale", "shift"),
    "remember": (),
    "add": (),
}
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0),
    "silu": lambda x: x / (1.0 + np.exp(-np.maximum(x, -80.0))),  # e^80 is finite also in float32
    "tanh": np.tanh,
}
"""As in `mlp.py`."""
LAYER_NORM_EPS = 1e-6  # added to the variance, as in Flax
LIMIT = 10.0  # a column that never moved in training may move by any number of its stds later


@dataclasses.dataclass(frozen=True)
class Step:
    """One step, with its arrays in float32."""

    kind: Kind
    arrays: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    activation: str = "none"

    @staticmethod
    def of(kind: Kind, part: Any, activation: str = "none") -> "Step":
        """From anything that has the arrays as attributes."""
        return Step(kind, {name: np.asarray(getattr(part, name), np.float32) for name in ARRAYS[kind]}, activation)


def run(steps: Iterable[Step], x: np.ndarray) -> np.ndarray:
    """The value of the network at one vector."""
    aside: list[np.ndarray] = []
    for step in steps:
        match step.kind:
            case "normalise":
                x = np.clip((x - step.arrays["mean"]) / step.arrays["std"], np.float32(-LIMIT), np.float32(LIMIT))
            case "linear":
                x = x @ step.arrays["weight"] + step.arrays["bias"]
            case "layer-norm":
                centred = x - np.mean(x)
                x = (
                    centred / np.sqrt(np.mean(centred**2) + np.float32(LAYER_NORM_EPS)) * step.arrays["scale"]
                    + step.arrays["shift"]
                )
            case "remember":
                aside.append(x)
            case "add":
                x = x + aside.pop()
        x = ACTIVATIONS[step.activation](x)
    return x
