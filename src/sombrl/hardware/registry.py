"""Backends and trainers by the names of the command line, and their options as name=value."""

import functools
import importlib
import inspect
import json
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sombrl.config.json import from_json
from sombrl.config.suggestions import nearest
from sombrl.errors import SombrlError
from sombrl.hardware.backend import CarBackend
from sombrl.hardware.episode import ReplayBackend
from sombrl.hardware.remote import RemoteBackend, RemoteConfig
from sombrl.hardware.sim_backend import SimBackend, SimConfig

if TYPE_CHECKING:
    from sombrl.envs.trust import Word
    from sombrl.hardware.campaign import CampaignConfig
    from sombrl.hardware.trainers import TrainerPart

SEE = "docs/hardware.md"


def _sim(**options: Any) -> SimBackend:
    return SimBackend(from_json(SimConfig, options, "--backend-options "))


def _remote(**options: Any) -> RemoteBackend:
    config = from_json(RemoteConfig, options, "--backend-options ")
    return RemoteBackend(config.address, config.patience)


BACKENDS: dict[str, tuple[Callable[..., CarBackend], Callable[..., Any]]] = {
    "sim": (_sim, SimConfig),
    "replay": (ReplayBackend, ReplayBackend),
    "remote": (_remote, RemoteConfig),
}
"""What makes each, and whose parameters are its options. Others are module:name, of what says that it makes one."""


def make_backend(name: str, options: tuple[str, ...] = ()) -> CarBackend:
    """The backend of that name, with options as name=value."""
    given = read_options(options, "--backend-options")
    if name in BACKENDS:
        make, takes = BACKENDS[name]
        check_options(given, inspect.signature(takes).parameters, f"backend {name}")
    else:
        make = _imported(name, "backend", BACKENDS)
        if not _makes_cars(make):
            raise SombrlError(
                f"{name} is not a backend: it must be a class of the kind CarBackend, or a function that says so, as "
                "in def car(**options) -> CarBackend."
            )
    try:
        backend = make(**given)
    except (TypeError, ValueError) as error:  # an unknown option, a word where a number should be
        raise SombrlError(f"the backend {name} does not take these --backend-options: {error}.") from None
    if not isinstance(backend, CarBackend):
        raise SombrlError(f"{name} must make a CarBackend, not a {type(backend).__name__}.")
    return backend


def find_trainer(name: str) -> "TrainerPart":
    """The trainer of that name: random, an algorithm, or module:function with the signature of `Trainer`."""
    from sombrl.algorithms import ALGORITHMS  # these bring JAX along, which a served backend does without
    from sombrl.hardware.trainers import TRAINERS, TrainerPart, check_agent, train_agent

    if name in TRAINERS:
        return TRAINERS[name]
    if name in ALGORITHMS:
        return TrainerPart(functools.partial(train_agent, name), functools.partial(check_agent, name))
    train = _imported(name, "trainer", [*TRAINERS, *ALGORITHMS])
    if not (inspect.isfunction(train) and _takes(train, 5)):
        raise SombrlError(
            f"{name} is not a trainer: it must be a function of (episodes, config, number, seed, scratch), as Trainer "
            "in sombrl/hardware/trainers.py."
        )
    return TrainerPart(train)


def require_word(config: "CampaignConfig", word: "Word") -> None:
    """Refuse code that a campaign's file names, unless the user has said that it may run."""
    from sombrl.algorithms import ALGORITHMS
    from sombrl.config.run import RunConfig
    from sombrl.envs.trust import require_word as require_env_word
    from sombrl.hardware.trainers import TRAINERS

    own: dict[str, Mapping[str, Any]] = {"backend": BACKENDS, "trainer": {**TRAINERS, **ALGORITHMS}}
    for part, known in own.items():
        name = getattr(config, part)
        if name not in known and not word.allows(name):
            raise SombrlError(
                f"its {part} {name} is code, and a file's word is not enough to run it: if you know it, name it again "
                f"(--{part} {name}) or trust the file (--trust)."
            )
    if config.trainer in ALGORITHMS:
        given = read_options(config.trainer_options, "--trainer-options")
        kwargs = given.get("env_kwargs", {})
        pairs = kwargs.items() if isinstance(kwargs, dict) else ()
        options = tuple(f"{name}={value}" for name, value in pairs)
        run = RunConfig(env=str(given.get("env", "rc-car")), env_kwargs=options)
        require_env_word(run, word, "--trainer-options env=")


def _makes_cars(make: Callable[..., Any]) -> bool:
    """Whether something says of itself that it makes a `CarBackend`: it is not called to find out."""
    made: Any = make
    if not inspect.isclass(make):
        try:
            made = typing.get_type_hints(make).get("return")
        except (TypeError, NameError, AttributeError):
            return False
    return inspect.isclass(made) and issubclass(made, CarBackend)


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except (TypeError, ValueError):
        return False
    return True


def _imported(name: str, what: str, known: Iterable[str]) -> Callable[..., Any]:
    """What `module:name` means, or the sentence for a name that does not exist."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise nearest(name, [*known, "module:name"], what, see=SEE)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise SombrlError(f"cannot import {module} for the {what} {name}: {error}.") from error
    except AttributeError:
        raise SombrlError(f"{module} has no {attribute} for the {what} {name}.") from None
    if not callable(found):
        raise SombrlError(f"{name} is not a {what}: it cannot be called.")
    return found  # type: ignore[no-any-return]


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


def check_options(given: Iterable[str], allowed: Iterable[str], what: str) -> None:
    """Refuse an option that a backend or trainer does not have."""
    allowed = list(allowed)
    for option in given:
        if option not in allowed:
            raise nearest(option, allowed, f"option of the {what}", see=SEE)


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)
    return tuple(value) if isinstance(value, list) else value
