"""The command line."""

from sombrl.cli.main import main as main
