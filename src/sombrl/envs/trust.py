"""Whose word it takes to run code. A file may name sombrl's own environments and installed Gymnasium ids, nothing else.

What a run's folder says may come from a stranger. Other code (`module:Id-v0`) runs only when the user has said so at
the call, by naming it again or by trusting the folder; the file's own word counts for nothing.
"""

import dataclasses
import os
import re
import sys
from typing import Any

from sombrl.config.run import RunConfig
from sombrl.envs.registry import PREFIXES, WORLDS
from sombrl.errors import SombrlError

BEYOND = re.compile(r"[:/\\]")
"""In an option of an environment: the name of a module or of a file, which some environments load."""


@dataclasses.dataclass(frozen=True)
class Word:
    """What the user has said about code that a file names."""

    trust: bool = False
    """All of it may run."""
    named: frozenset[str] = frozenset()
    """This may, because the user has named it."""

    @classmethod
    def of(cls, trust: bool, *names: str | None) -> "Word":
        """With the names that were given."""
        return cls(trust, frozenset(name for name in names if name is not None))

    def to_json(self) -> dict[str, Any]:
        """For another process."""
        return {"trust": self.trust, "named": sorted(self.named)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Word":
        """The inverse of `to_json`."""
        return cls(data.get("trust", False), frozenset(data.get("named", ())))

    def allows(self, name: str) -> bool:
        """Whether code of this name may run."""
        return self.trust or name in self.named


NO_WORD = Word()


def module_of(env: str) -> str | None:
    """The module that the name of an environment has imported; None where sombrl or Gymnasium knows the name."""
    module = env.rpartition(":")[0]
    if env in WORLDS or env.startswith(PREFIXES) or f"{module}.".startswith("sombrl."):
        return None
    return module or None


def require_word(run: RunConfig, word: Word, again: str = "--env ") -> None:
    """Refuse an environment out of a file that brings code of its own, unless the user has said that it may.

    `again` is how one names an environment in the command.
    """
    env = run.env
    if module := module_of(env):
        if not word.allows(env):
            raise SombrlError(
                f"its environment {env} runs code of the module {module}, and a file's word is not enough for that: if "
                f"you know the module, name it again ({again}{env}) or trust the file (--trust; in Python trust=True)."
            )
        return
    if word.trust or env in WORLDS or env.startswith(PREFIXES):
        return
    for name, value in run.env_options.items():
        if BEYOND.search(value):
            raise SombrlError(
                f"its option {name}={value} of {env} may name code or a file, and a file's word is not enough for "
                "that: if you know what it does, trust the file (--trust; in Python trust=True)."
            )


def again(env: str) -> str:
    """What a command that goes on with a run of this environment must say beside the run's folder."""
    return f" --env {env}" if module_of(env) else ""


def import_from_here() -> None:
    """Let modules of the current folder be imported, as in a script of the user's: for code that the user has named."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
