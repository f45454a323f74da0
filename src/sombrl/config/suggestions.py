"""The sentence for a name that does not exist: what was meant, and where the names are listed."""

import difflib
from collections.abc import Iterable

from sombrl.errors import SombrlError

LISTINGS = {
    "environment": "sombrl list envs",
    "algorithm": "sombrl list algorithms",
    "exploration": "sombrl list explorations",
    "preset": "sombrl list presets",
    "experiment": "sombrl list experiments",
}
"""The command that lists each kind of thing."""


def nearest(word: str, choices: Iterable[str], what: str, see: str | None = None) -> SombrlError:
    """The error to raise for an unknown `word`, a `what`; `see` overrides the command of `LISTINGS`."""
    choices = list(choices)
    see = see or LISTINGS.get(what)
    where = f" (see: {see})" if see else ""
    if close := closest(word, choices):
        return SombrlError(f'unknown {what} "{word}": did you mean "{close}"?{where}')
    if 0 < len(choices) <= 8:
        return SombrlError(f'unknown {what} "{word}": choose one of {", ".join(choices)}{where}')
    return SombrlError(f'unknown {what} "{word}"{where}')


def closest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that is nearest to a word; None if none is near. Case is forgiven: it is the commonest slip."""
    by_lower = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word.lower(), list(by_lower), n=1)
    return by_lower[close[0]] if close else None
