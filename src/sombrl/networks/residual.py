"""The networks that strong model-free agents share: residual blocks in which every layer sees normalised input.

SimBa (Lee et al., 2025) normalises before each block and at the end, BroNet (Nauman et al., 2024) after every layer.
Both have one layer and then a block for every further entry of `hidden`, like `mlp.BroNet`, which is the lighter one of
the authors' MBPO code.
"""

import math
from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sombrl.networks.mlp import MLP, BroNet, LayerNorm, Linear, ResidualBlock, gaussians_of, heads_of, one_width

WIDENING = 4
"""How many times as wide the inside of a block of SimBa is."""


class SimBa(eqx.Module):
    """A linear layer, blocks x ↦ x + W₂ relu(W₁ norm(x) + b₁) + b₂, four times as wide inside, a norm, then heads."""

    first: Linear
    blocks: tuple[ResidualBlock, ...]
    norm: LayerNorm
    last: Linear

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int | Sequence[int],
        *,
        gain: float = math.sqrt(2),
        output_gain: float = 1.0,
        key: Key[Array, ""],
    ):
        """`gain` is that of the blocks; the first layer has none, as published."""
        width, blocks = one_width("SimBa", hidden), len(hidden) - 1
        inside = [(width, WIDENING * width), (WIDENING * width, width)] * blocks
        heads = [(width, head) for head in heads_of(outputs)]
        gaussians = gaussians_of([(inputs, width), *inside, *heads], key=key)
        self.first = Linear(1.0, gaussians[0])
        self.blocks = tuple(ResidualBlock(gain, *gaussians[i : i + 2]) for i in range(1, 2 * blocks, 2))
        self.norm = LayerNorm(width)
        self.last = Linear(output_gain, *gaussians[2 * blocks + 1 :])

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, " output"]:
        """The network's value."""
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(self.norm(x))


class NormedLayer(eqx.Module):
    """x ↦ norm(W x + b)."""

    linear: Linear
    norm: LayerNorm

    def __init__(self, gain: float, gaussian: Float[Array, "input output"]):
        """W from a matrix of Gaussians."""
        self.linear, self.norm = Linear(gain, gaussian), LayerNorm(gaussian.shape[1])

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, " output"]:
        """The layer's value."""
        return self.norm(self.linear(x))


class PublishedBroNet(eqx.Module):
    """relu(norm(W x + b)), then blocks x ↦ x + norm(W₂ relu(norm(W₁ x + b₁)) + b₂), then heads."""

    first: NormedLayer
    blocks: tuple[tuple[NormedLayer, NormedLayer], ...]
    last: Linear

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int | Sequence[int],
        *,
        gain: float = math.sqrt(2),
        output_gain: float = 1.0,
        key: Key[Array, ""],
    ):
        """`gain` is that of all layers but the heads."""
        width, inside = one_width("BroNet", hidden), 2 * len(hidden) - 1
        heads = [(width, head) for head in heads_of(outputs)]
        gaussians = gaussians_of([(inputs, width), *[(width, width)] * (inside - 1), *heads], key=key)
        layers = [NormedLayer(gain, gaussian) for gaussian in gaussians[:inside]]
        self.first, self.blocks = layers[0], tuple(zip(layers[1::2], layers[2::2], strict=True))
        self.last = Linear(output_gain, *gaussians[inside:])

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, " output"]:
        """The network's value."""
        x = jax.nn.relu(self.first(x))
        for first, second in self.blocks:
            x = x + second(jax.nn.relu(first(x)))
        return self.last(x)


Body = MLP | BroNet | SimBa | PublishedBroNet
"""A network of an actor or a critic."""
BodyName = Literal["plain", "bro", "simba", "bronet"]
RESIDUAL = ("bro", "simba", "bronet")
"""All hidden layers of these are equally wide."""


def make_body(
    name: BodyName,
    inputs: int,
    hidden: Sequence[int],
    outputs: int | Sequence[int],
    *,
    output_gain: float | None = None,
    first_norm: bool = False,
    key: Key[Array, ""],
) -> Body:
    """A new network by its name; `first_norm` is for those that do not normalise anyhow."""
    match name:
        case "simba" | "bronet":
            residual = SimBa if name == "simba" else PublishedBroNet
            return residual(inputs, hidden, outputs, output_gain=1.0 if output_gain is None else output_gain, key=key)
        case _:
            make = BroNet if name == "bro" else MLP
            return make(inputs, hidden, outputs, output_gain=output_gain, first_norm=first_norm, key=key)


def keep_norms(before: Body, after: Body) -> Body:
    """`after` with every weight matrix but the heads' as large as in `before`: a step turns them, and no more.

    The size is Frobenius' norm, which stays that of the initialisation then: the effective learning rate of a layer
    before a norm falls as the weights grow, and here they do not.
    """

    def is_linear(node: object) -> bool:
        return isinstance(node, Linear)

    old, _ = jax.tree.flatten(before, is_leaf=is_linear)
    new, structure = jax.tree.flatten(after, is_leaf=is_linear)
    hidden = [i for i, node in enumerate(new) if is_linear(node)][:-1]  # the heads come last in every network
    for i in hidden:
        new[i] = eqx.tree_at(lambda layer: layer.weight, new[i], _as_large(old[i].weight, new[i].weight))
    kept: Body = jax.tree.unflatten(structure, new)
    return kept


def _as_large(old: Float[Array, "*stack input output"], new: Float[Array, "*stack input output"]) -> Array:
    size = [jnp.sqrt(jnp.sum(weight**2, axis=(-2, -1), keepdims=True)) for weight in (old, new)]
    return new * (size[0] / size[1])
