"""Configurations: what a run is made of, how it is checked, and its way to JSON and back."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sombrl.config.run import RunConfig as RunConfig


def __getattr__(name: str) -> Any:
    """`RunConfig`, imported on demand: it loads JAX, which simulator processes that import this room do without."""
    if name != "RunConfig":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sombrl.config.run import RunConfig

    return RunConfig
