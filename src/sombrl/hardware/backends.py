"""Backends by the names of the command line."""

import dataclasses
import importlib
import json
from collections.abc import Callable
from typing import Any

from sombrl.config.suggestions import nearest
from sombrl.errors import SombrlError
from sombrl.hardware.backend import CarBackend
from sombrl.hardware.remote import RemoteBackend
from sombrl.hardware.replay_backend import ReplayBackend
from sombrl.hardware.sim_backend import SimBackend, SimConfig


def _sim(**options: Any) -> CarBackend:
    reals = {field.name for field in dataclasses.fields(SimConfig) if field.type is float}
    given: dict[str, Any] = {name: float(value) if name in reals else value for name, value in options.items()}
    return SimBackend(SimConfig(**given))


BACKENDS: dict[str, tuple[Callable[..., CarBackend], tuple[str, ...]]] = {
    "sim": (_sim, tuple(field.name for field in dataclasses.fields(SimConfig))),
    "replay": (ReplayBackend, ("log", "clock")),
    "remote": (RemoteBackend, ("address", "patience")),
}
"""What makes each, and its options. Others are module:name, anything that can be called for a `CarBackend`."""


def make_backend(name: str, options: tuple[str, ...] = ()) -> CarBackend:
    """The backend of that name, with options as name=value."""
    given = read_options(options, "--backend-options")
    if name in BACKENDS:
        make, allowed = BACKENDS[name]
        for option in given:
            if option not in allowed:
                raise nearest(option, allowed, f"option of the backend {name}", see="docs/hardware.md")
    else:
        make = imported(name, "backend", BACKENDS)
    try:
        backend = make(**given)
    except (TypeError, ValueError) as error:  # an unknown option, a word where a number should be
        raise SombrlError(f"the backend {name} does not take these --backend-options: {error}.") from None
    if not isinstance(backend, CarBackend):
        raise SombrlError(f"{name} must make a CarBackend, not a {type(backend).__name__}.")
    return backend


def imported(name: str, what: str, known: Any) -> Callable[..., Any]:
    """What `module:name` means, or the sentence for a name that does not exist."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise nearest(name, [*known, "module:name"], what, see="docs/hardware.md")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise SombrlError(f"cannot import {module} for the {what} {name}: {error}.") from error
    except AttributeError:
        raise SombrlError(f"{module} has no {attribute} for the {what} {name}.") from None
    if not callable(found):
        raise SombrlError(f"{name} is no {what}: it cannot be called.")
    return found


def read_options(options: tuple[str, ...], flag: str) -> dict[str, Any]:
    """name=value as a dictionary; values that read as JSON are, lists become tuples, a.b=1 is {"a": {"b": 1}}."""
    found: dict[str, Any] = {}
    for text in options:
        name, equals, value = text.partition("=")
        *groups, last = name.split(".")
        if not equals or not all((*groups, last)):
            raise SombrlError(f"{flag} takes name=value, not {text!r}.")
        place = found
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                raise SombrlError(f"{flag} has {group} as a value and as a group of values.")
        place[last] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)
    return tuple(value) if isinstance(value, list) else value
