"""A network as a list of steps, each of which changes one vector: for files, for NumPy, and for other programs.

| kind         | what it does to x                        | arrays       |
| `normalise`  | clip((x - mean)/std, ± `limit`)          | mean, std    |
| `linear`     | x W + b                                  | weight, bias |
| `layer-norm` | (x - mean(x))/std(x) · scale + shift     | scale, shift |
| `remember`   | nothing; puts a copy of x aside          |              |
| `add`        | adds what was last put aside             |              |

After a linear step or a layer norm comes the step's `activation`.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from sombrl.networks.mlp import LAYER_NORM_EPS, MLP, BroNet, LayerNorm, Linear, ResidualBlock
from sombrl.networks.normaliser import Normalised
from sombrl.networks.residual import Body, PublishedBroNet, SimBa

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
EPS, LIMIT = np.float32(LAYER_NORM_EPS), np.float32(Normalised.LIMIT)


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


def steps_of(network: Body | Normalised) -> list[Step]:
    """The steps of one network."""
    match network:
        case Normalised():
            return [Step.of("normalise", network.normaliser), *steps_of(network.network)]
        case MLP():
            first = _normed(network.layers[0], network.norm, network.activation)
            inside = [Step.of("linear", layer, network.activation) for layer in network.layers[1:-1]]
            return [*first, *inside, Step.of("linear", network.layers[-1])]
        case BroNet():
            steps = _normed(network.first, network.norm, "relu")
            return [*steps, *_flat(map(_residual, network.blocks)), Step.of("linear", network.last)]
        case SimBa():
            end = [Step.of("layer-norm", network.norm), Step.of("linear", network.last)]
            return [Step.of("linear", network.first), *_flat(map(_residual, network.blocks)), *end]
        case PublishedBroNet():
            steps = _normed(network.first.linear, network.first.norm, "relu")
            blocks = [
                _block(_normed(first.linear, first.norm, "relu"), _normed(second.linear, second.norm, "none"))
                for first, second in network.blocks
            ]
            return [*steps, *_flat(blocks), Step.of("linear", network.last)]


def run(steps: Iterable[Step], x: np.ndarray) -> np.ndarray:
    """The value of the network at one vector."""
    aside: list[np.ndarray] = []
    for step in steps:
        match step.kind:
            case "normalise":
                x = np.clip((x - step.arrays["mean"]) / step.arrays["std"], -LIMIT, LIMIT)
            case "linear":
                x = x @ step.arrays["weight"] + step.arrays["bias"]
            case "layer-norm":
                centred = x - np.mean(x)
                x = centred / np.sqrt(np.mean(centred**2) + EPS) * step.arrays["scale"] + step.arrays["shift"]
            case "remember":
                aside.append(x)
            case "add":
                x = x + aside.pop()
        x = ACTIVATIONS[step.activation](x)
    return x


def _normed(layer: Linear, norm: LayerNorm | None, activation: str) -> list[Step]:
    """A layer with a norm behind it, if there is one, and then the activation."""
    if norm is None:
        return [Step.of("linear", layer, activation)]
    return [Step.of("linear", layer), Step.of("layer-norm", norm, activation)]


def _residual(block: ResidualBlock) -> list[Step]:
    first = [Step.of("layer-norm", block.norm), Step.of("linear", block.first, "relu")]
    return _block(first, [Step.of("linear", block.second)])


def _block(first: list[Step], second: list[Step]) -> list[Step]:
    return [Step("remember"), *first, *second, Step("add")]


def _flat(lists: Iterable[list[Step]]) -> list[Step]:
    return [step for steps in lists for step in steps]
