"""Packages of the optional extras: one sentence where one is missing, another where it is there but broken."""

import importlib
import importlib.util
from typing import Any

from sombrl.errors import SombrlError


def bring(module: str, package: str, missing: str) -> Any:
    """Import `module` of `package`, or refuse: by the sentence `missing`, or with what its import has to say."""
    root = module.partition(".")[0]
    try:
        if not _there(module):
            raise ModuleNotFoundError(name=root)
        return importlib.import_module(module)
    except Exception as error:  # a broken package raises anything: ImportError of a library, OSError, its own
        if isinstance(error, ModuleNotFoundError) and error.name == root:
            raise SombrlError(missing) from None
        raise broken(package, error) from error


def _there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # somebody put it among the imported ones by hand
        return True


def broken(package: str, error: Exception | str) -> SombrlError:
    """The error for a package that is there and cannot be imported."""
    why = error if isinstance(error, str) else first_line(error)
    return SombrlError(
        f"{package} is installed but broken ({why}): mend that, or install it again with pip install --force-reinstall "
        f"{package}."
    )


def first_line(error: Exception) -> str:
    """An exception in one line."""
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
