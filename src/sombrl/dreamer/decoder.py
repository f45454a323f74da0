"""Dreamer's decoder: the observation predicted from a latent state, and its loss."""

import math
from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, Shaped

from sombrl.dreamer.blocks import MLP, BlockLinear, Dense, Linear, RMSNorm
from sombrl.dreamer.convolution import Conv, Resolution, unfold
from sombrl.dreamer.encoder import LAYERS, CnnName, halvings, innermost, multipliers, named_parts, numbers_in
from sombrl.dreamer.rssm import Latent
from sombrl.dreamer.sizes import Size
from sombrl.envs.layout import Part
from sombrl.networks.symlog import symlog
from sombrl.records import SombrlError

ENLARGING: dict[str, Resolution] = {"head": "repeat", "paper": "zeros"}


class InnermostMap(eqx.Module):
    """The innermost map: block by block from the recurrent state, plus a small network of the latents.

    Every block of the recurrent state makes its own channels.
    """

    blocks: BlockLinear
    hidden: Dense
    output: Linear
    norm: RMSNorm
    shape: tuple[int, int, int] = eqx.field(static=True)

    def __init__(self, height: int, width: int, channels: int, size: Size, *, key: Key[Array, ""]):
        deter_key, hidden_key, output_key = jr.split(key, 3)
        self.shape = (height, width, channels)
        self.blocks = BlockLinear(size.deter, math.prod(self.shape), size.blocks, key=deter_key)
        self.hidden = Dense(size.stoch, 2 * size.units, key=hidden_key)
        self.output = Linear(2 * size.units, math.prod(self.shape), key=output_key)
        self.norm = RMSNorm(channels)

    def __call__(self, latent: Latent) -> Float[Array, "height width channel"]:
        """The map."""
        height, width, channels = self.shape
        blocks = self.blocks.weight.shape[0]
        memory = jnp.reshape(self.blocks(latent.deter), (blocks, height, width, channels // blocks))
        memory = jnp.reshape(jnp.transpose(memory, (1, 2, 0, 3)), self.shape)
        stoch = jnp.reshape(latent.stoch, -1)
        return jax.nn.silu(self.norm(memory + jnp.reshape(self.output(self.hidden(stoch)), self.shape)))


class ImageDecoder(eqx.Module):
    """All images of an observation, stacked: the innermost map, enlarged and convolved until it is large enough."""

    canvas: InnermostMap  # the name of the field is part of checkpoints
    convolutions: tuple[Conv, ...]
    norms: tuple[RMSNorm, ...]  # one less: the last convolution makes the image itself
    enlarging: Resolution = eqx.field(static=True)
    halvings: int = eqx.field(static=True)

    def __init__(self, images: tuple[Part, ...], size: Size, cnn: CnnName, *, key: Key[Array, ""]):
        stages = multipliers(cnn, images)
        canvas_key, *keys = jr.split(key, 1 + len(stages))
        depths = [multiplier * size.depth for multiplier in reversed(stages)]
        self.halvings = halvings(images)
        outputs = [*depths[1:], sum(part.shape[2] for part in images)]
        self.canvas = InnermostMap(*innermost(images), depths[0], size, key=canvas_key)
        self.convolutions = tuple(Conv(*sizes, key=k) for *sizes, k in zip(depths, outputs, keys, strict=True))
        self.norms = tuple(RMSNorm(channels) for channels in outputs[:-1])
        self.enlarging = ENLARGING[cnn]

    def __call__(self, latent: Latent) -> Float[Array, "height width channel"]:
        """Pixels in 0..1, float32."""
        image = self.canvas(latent)[:, :, None]
        for i, convolution in enumerate(self.convolutions):
            image = convolution(unfold(image), self.enlarging) if i < self.halvings else convolution(image)
            if i < len(self.norms):
                image = jax.nn.silu(self.norms[i](image))
        return jax.nn.sigmoid(unfold(image)[:, :, 0].astype(jnp.float32))


class Decoder(eqx.Module):
    """One latent state to a prediction of every part of the observation."""

    painter: ImageDecoder | None  # None without images; the name of the field is part of checkpoints
    mlp: MLP | None  # None without vectors and discrete values
    heads: tuple[Linear, ...]  # of the vectors and discrete values
    images: tuple[Part, ...] = eqx.field(static=True)
    vectors: tuple[Part, ...] = eqx.field(static=True)

    def __init__(self, spec: Iterable[Part], size: Size, *, cnn: CnnName = "head", key: Key[Array, ""]):
        """`spec`: the observation's parts, as for the encoder."""
        parts = tuple(spec)
        self.images, self.vectors = named_parts(parts, "image"), named_parts(parts, "vector", "discrete")
        if not parts:
            raise SombrlError("Dreamer needs an observation with at least one part; this environment's has none.")
        image_key, mlp_key, head_key = jr.split(key, 3)
        self.painter, self.mlp, self.heads = None, None, ()
        if self.images:
            self.painter = ImageDecoder(self.images, size, cnn, key=image_key)
        if self.vectors:
            self.mlp = MLP(size.features, size.units, LAYERS, key=mlp_key)
            keys = jr.split(head_key, len(self.vectors))
            widths = map(numbers_in, self.vectors)
            self.heads = tuple(Linear(size.units, width, key=k) for width, k in zip(widths, keys, strict=True))

    def __call__(self, latent: Latent) -> dict[str, Float[Array, "..."]]:
        """By name and in float32: images in 0..1, vectors in symlog's units, logits of discrete values."""
        predictions = {}
        if self.painter is not None:
            stack, channel = self.painter(latent), 0
            for part in self.images:
                predictions[part.name] = stack[:, :, channel : channel + part.shape[2]]
                channel += part.shape[2]
        if self.mlp is not None:
            # Latents first, unlike what the heads read: weights can then be carried over from the original.
            x = self.mlp(jnp.concatenate([jnp.reshape(latent.stoch, -1), latent.deter]))
            for part, head in zip(self.vectors, self.heads, strict=True):
                shape = (*part.shape, part.size) if part.kind == "discrete" else part.shape
                predictions[part.name] = jnp.reshape(head(x).astype(jnp.float32), shape)
        return predictions

    def losses(
        self, predictions: dict[str, Float[Array, "..."]], obs: dict[str, Shaped[Array, "..."]]
    ) -> dict[str, Float[Array, ""]]:
        """By name: the squared error, summed over all pixels or numbers, and the cross-entropy of discrete values."""
        losses = {}
        for part in (*self.images, *self.vectors):
            prediction, target = predictions[part.name], obs[part.name]
            if part.kind == "discrete":
                chances = jax.nn.log_softmax(prediction)
                losses[part.name] = -jnp.sum(chances * jax.nn.one_hot(target, part.size or 1, dtype=jnp.float32))
            else:
                target = target.astype(jnp.float32)
                target = target / 255.0 if part.kind == "image" else symlog(target)
                losses[part.name] = jnp.sum((prediction - target) ** 2)
        return losses
