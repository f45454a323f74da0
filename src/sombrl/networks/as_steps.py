"""Networks as lists of the steps of `steps.py`."""

from collections.abc import Iterable

from sombrl.networks.mlp import MLP, BroNet, LayerNorm, Linear, ResidualBlock
from sombrl.networks.normaliser import Normalised
from sombrl.networks.residual import Body, PublishedBroNet, SimBa
from sombrl.networks.steps import Step


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
