"""Dreamer's encoder: images through convolutions, everything else through an MLP, side by side in one vector.

An observation is a dict of parts: images (uint8), vectors (float32, any units) and discrete values (integers). The
parts are taken in the order of their names, whatever the order they come in.
"""

import math
from collections.abc import Iterable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, Shaped

from sombrl.dreamer.blocks import MLP, RMSNorm
from sombrl.dreamer.convolution import Conv, fold
from sombrl.dreamer.sizes import Size
from sombrl.envs.layout import Part
from sombrl.networks.symlog import symlog
from sombrl.records import SombrlError

CnnName = Literal["head", "paper"]

MULTIPLIERS: dict[str, tuple[int, ...]] = {"head": (2, 3, 4, 4), "paper": (1, 2, 3, 4, 4)}
"""Channels of each stage, from the image inwards, in units of `depth`; `paper`'s first stage keeps the resolution."""

Halving = Literal["pool", "stride", "none"]
HALVING: dict[str, Halving] = {"head": "pool", "paper": "stride"}

HALVINGS = 4  # both have as many
SMALL = 32  # images of at most this are halved once less: the innermost map would be mostly border
SMALLEST, LARGEST = 3, 16  # side of the innermost map: smaller ones are mostly border, larger ones have too many tokens

LAYERS = 3


def named_parts(spec: Iterable[Part], *kinds: str) -> tuple[Part, ...]:
    """The parts of those kinds, by name."""
    return tuple(sorted((part for part in spec if part.kind in kinds), key=lambda part: part.name))


def numbers_in(part: Part) -> int:
    """The length of a part that is not an image in a vector: of itself, or one-hot."""
    return math.prod(part.shape) * (part.size or 1)


def halvings(images: Iterable[Part]) -> int:
    """How often images are halved."""
    return HALVINGS - (min(min(part.shape[:2]) for part in images) <= SMALL)


def multipliers(cnn: CnnName, images: Iterable[Part]) -> tuple[int, ...]:
    """Those of the stages; what is halved less often lacks the outermost one."""
    return MULTIPLIERS[cnn][HALVINGS - halvings(images) :]


def innermost(images: Iterable[Part]) -> tuple[int, int]:
    """Height and width that the images have left after all halvings."""
    images = tuple(images)
    shapes = {part.name: tuple(part.shape) for part in images}
    if len({shape[:2] for shape in shapes.values()}) > 1:
        raise SombrlError(f"Dreamer stacks images, so all need one height and width, not {shapes}; resize them.")
    name, (height, width, _) = next(iter(shapes.items()))
    factor = 2 ** halvings(images)
    if any(side % factor or not SMALLEST <= side // factor <= LARGEST for side in (height, width)):
        most = 2**HALVINGS
        raise SombrlError(
            f"Image {name!r} is {height} x {width}; Dreamer halves images {HALVINGS} times, so resize it: both sides "
            f"must be multiples of {most} from {SMALLEST * most} to {LARGEST * most}; or 24 or 32, which are halved "
            f"{HALVINGS - 1} times."
        )
    return height // factor, width // factor


def max_pool(image: Float[Array, "height width 4 channel"]) -> Float[Array, "height width 1 channel"]:
    """The largest pixel of every square."""
    # Pairwise: the gradient of a reduction is 0/0 where XLA recomputes its input with other rounding.
    pairs = jnp.maximum(image[:, :, :2], image[:, :, 2:])
    return jnp.maximum(pairs[:, :, :1], pairs[:, :, 1:])


class ConvStage(eqx.Module):
    """Convolution, norm, SiLU; the resolution is halved by the convolution's stride, by pooling after it, or not."""

    convolution: Conv
    norm: RMSNorm
    halving: Halving = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, halving: Halving, *, key: Key[Array, ""]):
        self.convolution = Conv(inputs, outputs, key=key)
        self.norm = RMSNorm(outputs)
        self.halving = halving

    def __call__(
        self, image: Float[Array, "height width square input"]
    ) -> Float[Array, "height2 width2 square2 output"]:
        """The stage's value."""
        image = self.convolution(image, "half" if self.halving == "stride" else "same")
        if self.halving == "pool":
            image = max_pool(image if image.shape[2] == 4 else fold(image))
        return jax.nn.silu(self.norm(image))


class Encoder(eqx.Module):
    """One observation to one vector of tokens."""

    stages: tuple[ConvStage, ...]  # empty without images
    mlp: MLP | None  # None without vectors and discrete values
    images: tuple[Part, ...] = eqx.field(static=True)
    vectors: tuple[Part, ...] = eqx.field(static=True)
    tokens: int = eqx.field(static=True)
    """Numbers in the vector."""

    def __init__(self, spec: Iterable[Part], size: Size, *, cnn: CnnName = "head", key: Key[Array, ""]):
        """`spec`: the observation's parts."""
        parts = tuple(spec)
        self.images, self.vectors = named_parts(parts, "image"), named_parts(parts, "vector", "discrete")
        if not parts:
            raise SombrlError("Dreamer needs an observation with at least one part; this environment's has none.")
        image_key, vector_key = jr.split(key)
        self.stages, self.mlp, self.tokens = (), None, 0
        if self.images:
            depths = [multiplier * size.depth for multiplier in multipliers(cnn, self.images)]
            inputs = [sum(part.shape[2] for part in self.images), *depths[:-1]]
            halved = halvings(self.images)
            outer: list[Halving] = ["none"] * (len(depths) - halved)
            ways = [*outer, *[HALVING[cnn]] * halved]
            keys = jr.split(image_key, len(depths))
            self.stages = tuple(
                ConvStage(*sizes, halving, key=k)
                for sizes, halving, k in zip(zip(inputs, depths, strict=True), ways, keys, strict=True)
            )
            self.tokens += math.prod(innermost(self.images)) * depths[-1]
        if self.vectors:
            self.mlp = MLP(sum(map(numbers_in, self.vectors)), size.units, LAYERS, key=vector_key)
            self.tokens += size.units

    def __call__(self, obs: dict[str, Shaped[Array, "..."]]) -> Float[Array, " token"]:
        """The tokens, in the type of the parameters: those of the vectors, then those of the images."""
        tokens = []
        if self.mlp is not None:
            x = jnp.concatenate([_numbers(part, obs[part.name]) for part in self.vectors])
            tokens.append(self.mlp(x.astype(self.mlp.layers[0].linear.weight.dtype)))
        if self.stages:
            pixels = jnp.concatenate([obs[part.name] for part in self.images], axis=-1)
            image = (pixels.astype(jnp.float32) / 255.0 - 0.5).astype(self.stages[0].convolution.weight.dtype)
            image = fold(image[:, :, None])  # three channels are too few
            for stage in self.stages:
                image = stage(image)
            tokens.append(jnp.reshape(image, -1))
        return jnp.concatenate(tokens)


def _numbers(part: Part, value: Shaped[Array, "..."]) -> Float[Array, " number"]:
    """A part as float32 numbers of moderate size."""
    if part.kind == "discrete":
        return jnp.reshape(jax.nn.one_hot(value, part.size or 1, dtype=jnp.float32), -1)
    return jnp.reshape(symlog(value.astype(jnp.float32)), -1)
