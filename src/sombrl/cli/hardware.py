"""`sombrl hardware run | status | check`."""

from pathlib import Path
from typing import Annotated

import tyro

from sombrl.cli.parser import call


def hardware(argv: list[str]) -> None:
    """Run one of the three; `run` reads its own options, which depend on the campaign."""
    from sombrl.hardware import commands

    def status(campaign: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="CAMPAIGN")]) -> None:
        """What a campaign has done, and what comes next.

        Args:
            campaign: The campaign's folder.
        """
        commands.hardware(["status", str(campaign)])

    def check(episode: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="EPISODE.npz")]) -> None:
        """Whether a recorded episode says what it should: encoder, stack, period, frame and delay.

        Args:
            episode: The file, EPISODE.npz.
        """
        commands.hardware(["check", str(episode)])

    own = {"status": status, "check": check}
    if argv and argv[0] in own:
        call(own[argv[0]], argv[1:], f"sombrl hardware {argv[0]}")
    else:
        commands.hardware(argv)
