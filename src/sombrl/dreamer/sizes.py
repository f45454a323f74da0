"""The sizes that DreamerV3 comes in, named after their parameters in millions."""

import dataclasses

from sombrl.records import SombrlError


@dataclasses.dataclass(frozen=True)
class Size:
    """The widths of a Dreamer. The published ones scale together: deter = 8 hidden, units = hidden."""

    deter: int
    """Recurrent state."""
    hidden: int
    """Layers inside the sequence model."""
    classes: int
    """Values that each latent variable can take."""
    depth: int
    """Channels of the convolutions, times a multiplier per stage."""
    units: int
    """Layers of encoder, decoder and heads."""
    ensemble: int = 512
    """Layers of the ensemble: the SOMBRL paper's at 12m; wide as that, it would outweigh a smaller model."""
    latents: int = 32
    """Latent variables, each one of `classes`."""
    blocks: int = 8
    """Parts that the recurrent state is cut into; its matrices connect nothing between them."""

    def __post_init__(self) -> None:
        """Refuse widths that do not divide."""
        for name, value in dataclasses.asdict(self).items():
            if value < 1:
                raise SombrlError(f"A Dreamer's {name} must be at least 1, not {value}.")
        for name, value in (("deter", self.deter), ("depth x 4", 4 * self.depth)):
            if value % self.blocks:
                raise SombrlError(f"A Dreamer's {name} must be a multiple of its {self.blocks} blocks, not {value}.")

    @property
    def stoch(self) -> int:
        """Numbers in the one-hot latents."""
        return self.latents * self.classes

    @property
    def features(self) -> int:
        """Numbers that the heads read: the recurrent state and the latents."""
        return self.deter + self.stoch


SIZES = {
    "tiny": Size(deter=64, hidden=16, classes=4, depth=2, units=16, ensemble=16, latents=4),  # for tests
    "1m": Size(deter=512, hidden=64, classes=4, depth=4, units=64, ensemble=64),
    "12m": Size(deter=2048, hidden=256, classes=16, depth=16, units=256),  # the paper prints 1024, its author says 2048
    "25m": Size(deter=3072, hidden=384, classes=24, depth=24, units=384),
    "50m": Size(deter=4096, hidden=512, classes=32, depth=32, units=512),
    "100m": Size(deter=6144, hidden=768, classes=48, depth=48, units=768),
    "200m": Size(deter=8192, hidden=1024, classes=64, depth=64, units=1024),
    "400m": Size(deter=12288, hidden=1536, classes=96, depth=96, units=1536),
}
