"""The command line."""

from sombrl.cli.app import main as main
