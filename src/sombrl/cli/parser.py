"""The options of a command from a function's signature, read by tyro; what it refuses is one sentence."""

import contextlib
import contextvars
import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import tyro

from sombrl.config.check import require
from sombrl.config.hints import unknown
from sombrl.config.kinds import Kind, kind_of
from sombrl.errors import SombrlError

_known: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("known", default=())
"""The names of the options that are being read, to find what was meant by an unknown one."""


def call(function: Callable[..., None], argv: Sequence[str], prog: str) -> None:
    """Run a function with the options of a command line."""
    token = _known.set(tuple(inspect.signature(function).parameters))
    try:
        tyro.cli(function, args=argv, prog=prog)
    finally:
        _known.reset(token)


def refuse_unknown(argv: Sequence[str], known: Collection[str], see: str) -> None:
    """Refuse flags that there are not, with the one that was meant."""
    for name in flags(argv):
        if name not in known and name.removeprefix("no_") not in known:
            raise unknown(_as_flag(name), known, "option", _as_flag, see)


def flags(argv: Sequence[str]) -> Iterator[str]:
    """The flags of a command line as the names of fields: gp.fit_steps for --gp.fit-steps=3."""
    for word in argv:
        if word == "--":
            return
        if word.startswith("--"):
            yield word[2:].partition("=")[0].replace("-", "_")


def take(argv: Sequence[str], flag: str) -> tuple[str | None, list[str]]:
    """A flag whose value decides the defaults of others, so that it must be read before them; None if not there."""
    rest: list[str] = []
    value: str | None = None
    words = iter(argv)
    for word in words:
        if word == flag:
            value = next(words, "")
        elif word.startswith(flag + "="):
            value = word.partition("=")[2]
        else:
            rest.append(word)
    return value, rest


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Inside, what tyro refuses is a `SombrlError` instead of a box on stderr."""
    try:
        from tyro import _errors
    except ImportError:  # a tyro before 1.0.16 has no such hook
        yield
        return
    with _errors.on_parse_error(_refuse):
        yield


def _refuse(event: Any) -> None:
    """Raise the sentence for an event of tyro's; one that is not known stays a box."""
    prog, short = event.prog, event.prog.removeprefix("sombrl ")
    if strange := [*getattr(event, "tokens", ()), *getattr(event, "unrecognized_tokens", ())]:
        word = str(strange[0])
        if word.startswith("-"):
            raise unknown(word.partition("=")[0], _known.get(), "option", _as_flag, f"{prog} --help")
        raise SombrlError(f"{short} does not take {word!r} here (see: {prog} --help).")
    match type(event).__name__:
        case "MissingArgs":
            missing = [found.arg for found in event.missing_arguments]
            names = [_name(one) for one in missing]
            raise SombrlError(f"{short} needs {' and '.join(names)} (see: {prog} --help).")
        case "MissingSubcommand":
            names = list(event.subcommand_spec.parser_from_name)
            raise SombrlError(f"{short} needs one of {', '.join(names)} (see: {prog} --help).")
        case "BadValue":
            raise SombrlError(f"{_name(event.argument)} needs a value (see: {prog} --help).")
        case "InvalidChoice":
            kind = _kind(event.argument)
            kind = kind if kind.choices else Kind(str, choices=tuple(map(str, event.choices)))
            require(_name(event.argument), kind, event.value)
        case "InstantiationFailure" if event.argument is not None:
            kind, message = _kind(event.argument), str(event.message)
            if kind.base is tuple and (words := re.search(r"(?:arguments:|from) \[(.*?)\](?:\. Got|\.?$)", message)):
                given = " ".join(word.strip("'\"") for word in words[1].split(", "))
                advice = "put spaces between them, as in 64 64" if "," in given else kind.advice
                require(_name(event.argument), dataclasses.replace(kind, advice=advice), given)
            if value := re.search(r"'([^']*)'\s*$", message):
                require(_name(event.argument), kind, value[1])
            raise SombrlError(f"{_name(event.argument)}: {message.rstrip('.')}.")


def _kind(argument: Any) -> Kind:
    """What an argument may be."""
    field = argument.field
    return kind_of(getattr(field, "type", field.type_stripped))


def _name(argument: Any) -> str:
    """An argument as the help shows it."""
    if not argument.is_positional():
        return str(argument.lowered.name_or_flags[0])
    return str(argument.lowered.metavar or argument.display_name()).strip("[]").split(" ")[0].strip("[]")


def _as_flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def run_of(path: Path, command: str) -> Path:
    """The folder of one run; where there are several inside, refuses with their names."""
    if path.is_dir() and not (path / "config.json").is_file():
        inside = sorted(one.parent.name for one in path.glob("*/config.json"))
        if inside:
            names = " and ".join(f"{name}/" for name in inside[:6])
            raise SombrlError(
                f"{path} is not a run, but a folder with the runs {names} inside: choose one, as in sombrl {command} "
                f"{path / inside[0]}."
            )
    return path
