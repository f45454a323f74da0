"""Configurations: what a run is made of, how it is checked, and its way to JSON and back."""

from sombrl.config.run import RunConfig as RunConfig
