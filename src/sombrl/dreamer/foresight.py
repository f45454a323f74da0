"""Predictions of a world model beside the recording: the model sees the first records and imagines the rest.

Imagination follows the recorded actions, so every difference is the model's. The film shows the recording on top, the
model below it, and their difference at the bottom. Training on images writes such films beside its checkpoints, and
`sombrl eval RUN --video film.gif` writes film-foresight.gif.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from sombrl.dreamer.dreamer import Dreamer, Networks, Sequences
from sombrl.dreamer.rssm import Latent

CONTEXT = 5  # records that the model is shown
BORDER = 2  # pixels, green while the model sees the records, red while it imagines
SEEN, IMAGINED = (0, 180, 0), (200, 0, 0)


def foresee(
    dreamer: Dreamer, networks: Networks, sequences: Sequences, context: int = CONTEXT, *, key: Key[Array, ""]
) -> dict[str, Float[Array, "batch time ..."]]:
    """Predictions of every part of the observations of a batch of one seed: after `context` records without looking."""
    observe_key, imagine_key = jr.split(key)
    rssm, obs, first = networks.rssm, sequences.obs, sequences.first
    start = Latent(
        sequences.deter.astype(jnp.float32), jax.nn.one_hot(sequences.stoch, dreamer.size.classes, dtype=jnp.float32)
    )
    tokens = jax.vmap(jax.vmap(networks.encoder))({name: part[:, :context] for name, part in obs.items()})
    seen, _, _ = rssm.observe_sequences(
        start, sequences.action[:, :context], tokens, first[:, :context], key=observe_key
    )

    def imagine(last: Latent, actions: Array, key: Array) -> Latent:
        def step(latent: Latent, inputs: tuple[Array, Array]) -> tuple[Latent, Latent]:
            latent = rssm.imagine(latent, inputs[0], key=jr.wrap_key_data(inputs[1]))
            return latent, latent

        numbers = jr.key_data(jr.split(key, actions.shape[0]))
        return jax.lax.scan(step, last, (actions, numbers))[1]

    last = jax.tree.map(lambda leaf: leaf[:, -1], seen)
    imagined = jax.vmap(imagine)(
        last, sequences.action[:, context : first.shape[1]], jr.split(imagine_key, first.shape[0])
    )
    latents = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), seen, imagined)
    return jax.vmap(jax.vmap(networks.decoder))(latents)


def film(truth: np.ndarray, model: np.ndarray, context: int = CONTEXT) -> list[np.ndarray]:
    """Frames, uint8 [height, width, 3], from uint8 images [batch, time, h, w, c] and predictions of them in [0, 1]."""
    predicted = np.clip(np.asarray(model, np.float32) * 255.0, 0.0, 255.0)
    error = np.clip((predicted - truth.astype(np.float32)) / 2.0 + 127.5, 0.0, 255.0)
    strips = [np.concatenate([coloured(row) for row in rows], axis=2) for rows in (truth, predicted, error)]
    frames = np.concatenate(strips, axis=1).astype(np.uint8)  # [time, 3 h, batch w, 3]
    for t, frame in enumerate(frames):
        frame[-BORDER:] = SEEN if t < context else IMAGINED
    return list(frames)


def coloured(images: np.ndarray) -> np.ndarray:
    """[time, h, w, 3] of one channel or three; of others, the first."""
    return images if images.shape[-1] == 3 else np.repeat(images[..., :1], 3, axis=-1)
