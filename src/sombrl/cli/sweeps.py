"""`sombrl sweep`: sweeps, and campaigns, which are cells of the paper's experiments."""

from sombrl.paper.campaign.run import run_campaign
from sombrl.sweep import commands


def sweep(argv: list[str]) -> None:
    """Run what the words after `sombrl sweep` ask for."""
    commands.sweep(argv, run_campaign)
