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
    by_lower = {choice.lower(): choice for choice in choices}
    see = see or LISTINGS.get(what)
    where = f" (see: {see})" if see else ""
    # Case is forgiven in the comparison because it is the commonest slip.
    close = difflib.get_close_matches(word.lower(), list(by_lower), n=1)
    if close:
        return SombrlError(f'unknown {what} "{word}": did you mean "{by_lower[close[0]]}"?{where}')
    if 0 < len(by_lower) <= 8:
        return SombrlError(f'unknown {what} "{word}": choose one of {", ".join(by_lower.values())}{where}')
    return SombrlError(f'unknown {what} "{word}"{where}')
