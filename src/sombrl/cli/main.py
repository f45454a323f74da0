"""Where the entry point of scripts was that are already installed; it is in `sombrl.cli.app`."""

from sombrl.cli.app import COMMANDS as COMMANDS
from sombrl.cli.app import main as main
