"""Packages of the optional extras: one sentence where a package is missing, another where it is broken."""

import importlib
from typing import Any

from sombrl.errors import SombrlError


def require(module: str, package: str, missing: str) -> Any:
    """Import `module` of `package`. One that is not installed is refused with the sentence `missing`."""
    root = module.partition(".")[0]
    try:
        importlib.import_module(root)
        return importlib.import_module(module)
    except Exception as error:  # a broken package raises anything: ImportError of a library, OSError, its own
        if isinstance(error, ModuleNotFoundError) and error.name == root:
            raise SombrlError(missing) from None
        raise broken(package, error) from error


def broken(package: str, error: Exception | str) -> SombrlError:
    """The error for a package that is installed and cannot be imported."""
    why = error if isinstance(error, str) else first_line(error)
    return SombrlError(
        f"{package} is installed but broken ({why}): fix that, or install it again with pip install --force-reinstall "
        f"{package}."
    )


def first_line(error: Exception) -> str:
    """An exception in one line."""
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
