"""Small networks for ensembles and policies: an MLP, the BroNet critic, stacks of either, and soft resets.

A network maps one vector to one vector. `jax.vmap` over a batch, and over the members of a `stacked` network, leaves
one matrix product per layer.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.networks.steps import LAYER_NORM_EPS
from sombrl.records import SombrlError

ActivationName = Literal["relu", "silu", "tanh"]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": jax.nn.relu, "silu": jax.nn.silu, "tanh": jnp.tanh}

Network = TypeVar("Network")


@jax.custom_batching.sequential_vmap  # type: ignore[untyped-decorator]
def _orthonormal(tall: Float[Array, "row column"]) -> Float[Array, "row column"]:
    """Orthonormal columns from independent Gaussians, uniform over all such (Mezzadri, 2007).

    One matrix after the other under vmap: several batched QRs in one program deadlock on a CPU
    with two cores (seen with jaxlib 0.10).
    """
    q, r = jnp.linalg.qr(tall)
    return q * jnp.sign(jnp.diagonal(r))[None, :]


def orthogonal(gaussian: Float[Array, "row column"]) -> Float[Array, "row column"]:
    """A random matrix whose singular values are all 1, from one of independent Gaussians."""
    rows, columns = gaussian.shape
    matrix: Array = _orthonormal(gaussian) if rows >= columns else _orthonormal(gaussian.T).T
    return matrix


def gaussians_of(shapes: Sequence[tuple[int, int]], *, key: Key[Array, ""]) -> list[Float[Array, "_ _"]]:
    """Matrices of independent Gaussians. One draw for all: each draw would take a tenth of a second to compile."""
    sizes = [rows * columns for rows, columns in shapes]
    numbers = jr.normal(key, (sum(sizes),), jnp.float32)
    pieces = jnp.split(numbers, [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)])
    return [jnp.reshape(piece, shape) for piece, shape in zip(pieces, shapes, strict=True)]


class Linear(eqx.Module):
    """x ↦ x W + b with W orthogonal times a gain (Saxe et al., 2014), and b = 0 at first."""

    weight: Float[Array, "input output"]
    bias: Float[Array, " output"]

    def __init__(self, gain: float, *gaussians: Float[Array, "input _"]):
        """W from a matrix of Gaussians; several are heads side by side, each orthogonal in itself."""
        self.weight = gain * jnp.concatenate([orthogonal(gaussian) for gaussian in gaussians], axis=1)
        self.bias = jnp.zeros(self.weight.shape[1], jnp.float32)

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, " output"]:
        """The affine map."""
        return x @ self.weight + self.bias


class LayerNorm(eqx.Module):
    """Mean 0 and variance 1 over the features of one vector, then a learned scale and shift."""

    scale: Float[Array, " feature"]
    shift: Float[Array, " feature"]

    def __init__(self, features: int):
        self.scale = jnp.ones(features, jnp.float32)
        self.shift = jnp.zeros(features, jnp.float32)

    def __call__(self, x: Float[Array, " feature"]) -> Float[Array, " feature"]:
        """(x - mean)/std · scale + shift."""
        centred = x - jnp.mean(x)
        return centred * jax.lax.rsqrt(jnp.mean(centred**2) + LAYER_NORM_EPS) * self.scale + self.shift


class MLP(eqx.Module):
    """Linear layers with an activation after each but the last.

    `outputs` may be several sizes: heads side by side in one vector, each with its own initialisation.
    """

    norm: LayerNorm | None  # after the first layer, before its activation
    layers: tuple[Linear, ...]
    activation: ActivationName = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int | Sequence[int],
        *,
        activation: ActivationName = "relu",
        gain: float = math.sqrt(2),
        output_gain: float | None = None,
        first_norm: bool = False,
        key: Key[Array, ""],
    ):
        """`gain` is that of every layer; the last one may have another, `output_gain`."""
        sizes = [inputs, *hidden]
        shapes = [*itertools.pairwise(sizes), *((sizes[-1], head) for head in heads_of(outputs))]
        gaussians = gaussians_of(shapes, key=key)
        body = [Linear(gain, gaussian) for gaussian in gaussians[: len(hidden)]]
        last = Linear(gain if output_gain is None else output_gain, *gaussians[len(hidden) :])
        self.norm = LayerNorm(hidden[0]) if first_norm else None
        self.layers = (*body, last)
        self.activation = activation

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, " output"]:
        """The network's value."""
        for i, layer in enumerate(self.layers[:-1]):
            x = layer(x)
            if i == 0 and self.norm is not None:
                x = self.norm(x)
            x = ACTIVATIONS[self.activation](x)
        return self.layers[-1](x)


class ResidualBlock(eqx.Module):
    """x ↦ x + W₂ relu(W₁ norm(x) + b₁) + b₂."""

    norm: LayerNorm
    first: Linear
    second: Linear

    def __init__(self, gain: float, first: Float[Array, "feature inside"], second: Float[Array, "inside feature"]):
        """W₁ and W₂ from matrices of Gaussians."""
        self.norm = LayerNorm(first.shape[0])
        self.first, self.second = Linear(gain, first), Linear(gain, second)

    def __call__(self, x: Float[Array, " feature"]) -> Float[Array, " feature"]:
        """The block's value."""
        return x + self.second(jax.nn.relu(self.first(self.norm(x))))


class BroNet(eqx.Module):
    """A critic that stays stable under many updates per decision (Nauman et al., 2024): residual blocks with LayerNorm.

    One layer, then a block for every further entry of `hidden`, then a linear output; nothing is normalised after the
    blocks, nor after the first layer (as in the authors' MBPO code) unless `first_norm` says so. `PublishedBroNet` has
    the layers of the publication.
    """

    first: Linear
    norm: LayerNorm | None  # after the first layer, before its activation
    blocks: tuple[ResidualBlock, ...]
    last: Linear

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int | Sequence[int],
        *,
        gain: float = math.sqrt(2),
        output_gain: float | None = None,
        first_norm: bool = False,
        key: Key[Array, ""],
    ):
        """`gain` is that of every layer; the last one may have another, `output_gain`."""
        width, inside = one_width("BroNet", hidden), 2 * len(hidden) - 1
        heads = [(width, head) for head in heads_of(outputs)]
        gaussians = gaussians_of([(inputs, width), *[(width, width)] * (inside - 1), *heads], key=key)
        self.first = Linear(gain, gaussians[0])
        self.norm = LayerNorm(width) if first_norm else None
        self.blocks = tuple(ResidualBlock(gain, *gaussians[i : i + 2]) for i in range(1, inside, 2))
        self.last = Linear(gain if output_gain is None else output_gain, *gaussians[inside:])

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, " output"]:
        """The network's value."""
        x = self.first(x)
        x = jax.nn.relu(x if self.norm is None else self.norm(x))
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def one_width(name: str, hidden: Sequence[int]) -> int:
    """The width of a residual network."""
    if not hidden or len(set(hidden)) > 1:
        raise SombrlError(f"{name} adds its layers up, so all need the same width, not {tuple(hidden)}.")
    return hidden[0]


def heads_of(outputs: int | Sequence[int]) -> Sequence[int]:
    """The sizes of the heads."""
    return [outputs] if isinstance(outputs, int) else outputs


def stacked(make: Callable[..., Network], number: int, *, key: Key[Array, ""]) -> Network:
    """`number` networks `make(key=...)`, each initialised on its own, as one whose every leaf has a leading axis.

    All of them at one x: `jax.vmap(lambda network: network(x))(networks)`.
    """
    networks: Network = eqx.filter_vmap(lambda k: make(key=k))(jr.split(key, number))
    return networks


def soft_reset(old: Network, fresh: Network, mix: float) -> Network:
    """(1 - mix) · old + mix · fresh, leaf by leaf: shrink and perturb (Ash & Adams, 2020)."""
    mixed: Network = jax.tree.map(lambda a, b: (1.0 - mix) * a + mix * b, old, fresh)
    return mixed
