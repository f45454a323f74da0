"""`Configuration`, the base of all configurations: frozen dataclasses that are checked by their types when made."""

from typing import Any, ClassVar

from sombrl.config.kinds import Kind, from_plain, kinds_of, misfit
from sombrl.config.suggestions import closest
from sombrl.errors import SombrlError


class Configuration:
    """A frozen dataclass with bounds and choices beside its types, which are checked for Python and JSON alike.

    `prefix` is what comes before its fields on the command line: gp for --gp.rank.
    """

    prefix: ClassVar[str] = ""

    def __init_subclass__(cls, *, prefix: str = "", **rest: Any):
        super().__init_subclass__(**rest)
        cls.prefix = prefix

    def __post_init__(self) -> None:
        """Refuse, in a sentence that names the flag, what no run can have."""
        for name, kind in kinds_of(type(self)).items():
            value = getattr(self, name)
            if isinstance(value, list):
                object.__setattr__(self, name, value := from_plain(kind, value))
            require(self.flag(name), kind, value)
        self.refuse_combinations()

    def refuse_combinations(self) -> None:
        """Refuse values that are possible one by one but not together."""

    @classmethod
    def flag(cls, name: str) -> str:
        """A field's name on the command line."""
        return "--" + ".".join([cls.prefix] * bool(cls.prefix) + [name]).replace("_", "-")


def require(name: str, kind: Kind, value: Any) -> None:
    """Refuse a value that does not fit; `name` comes first in the sentence."""
    if (wanted := misfit(kind, value)) is not None:
        near = closest(value, kind.choices + kind.also) if isinstance(value, str) else None
        advice = f': did you mean "{near}"?' if near else f": {kind.advice}." if kind.advice else "."
        raise SombrlError(f"{name} must be {wanted}, not {shown(value)}{advice}")


def shown(value: Any) -> str:
    """A bad value in a sentence; long ones are cut."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}…"
