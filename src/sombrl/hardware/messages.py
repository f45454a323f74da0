"""What a controller and a served car say to each other: lines of strict JSON, each value of its type and in bounds.

A question is {"id": 7, "call": "command", "steer": 0.1, "throttle": 0.2, "age": 0.001}; its answer has the same id. A
line with anything missing, added, repeated or out of bounds is `Malformed`, and nothing of it is used. Ages travel
instead of stamps, because two machines have two clocks.
"""

import abc
import dataclasses
import json
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from sombrl.hardware.backend import Ack, Health, Observation, ResetMode

LONGEST_LINE = 4096
"""Bytes."""
LONGEST_AGE = 1e6
"""Seconds; what is older is that old."""
FAR = 1e6
"""Metres, and the same of the other numbers of an observation, beyond which it is not an observation."""


class Malformed(Exception):
    """A line that is not what it should be."""


class AbstractKind(abc.ABC):
    """What a value may be."""

    @abc.abstractmethod
    def read(self, value: Any) -> Any:
        """The value; `Malformed` if it is another kind of thing."""


@dataclasses.dataclass(frozen=True)
class Number(AbstractKind):
    """A number within bounds; NaN is within none."""

    low: float
    high: float

    def read(self, value: Any) -> float:
        """A number; True and "1" are not."""
        if type(value) not in (int, float) or not self.low <= value <= self.high:
            raise Malformed(f"not a number between {self.low:g} and {self.high:g}")
        return float(value)


@dataclasses.dataclass(frozen=True)
class Whole(AbstractKind):
    """A whole number within bounds."""

    low: int
    high: int = 2**53

    def read(self, value: Any) -> int:
        """A whole number; 1.0 is not."""
        if type(value) is not int or not self.low <= value <= self.high:
            raise Malformed(f"not a whole number between {self.low} and {self.high}")
        return value


@dataclasses.dataclass(frozen=True)
class Flag(AbstractKind):
    """True or false."""

    def read(self, value: Any) -> bool:
        """1 is neither."""
        if type(value) is not bool:
            raise Malformed("neither true nor false")
        return value


@dataclasses.dataclass(frozen=True)
class Choice(AbstractKind):
    """One of some words."""

    words: tuple[str, ...]

    def read(self, value: Any) -> str:
        """As it is written."""
        if type(value) is not str or value not in self.words:
            raise Malformed(f"none of {', '.join(self.words)}")
        return value


@dataclasses.dataclass(frozen=True)
class Three(AbstractKind):
    """Three numbers."""

    each: Number

    def read(self, value: Any) -> list[float]:
        """As a list."""
        if type(value) is not list or len(value) != 3:
            raise Malformed("not three numbers")
        return [self.each.read(item) for item in value]


@dataclasses.dataclass(frozen=True)
class Record(AbstractKind):
    """These names, all of them and no others."""

    fields: Mapping[str, AbstractKind]

    def read(self, value: Any) -> dict[str, Any]:
        """As a dictionary."""
        if type(value) is not dict or value.keys() != self.fields.keys():
            raise Malformed(f"not an object of {', '.join(self.fields)}")
        return {name: kind.read(value[name]) for name, kind in self.fields.items()}


ID = Whole(0)
AGE = Number(0.0, LONGEST_AGE)
QUESTIONS: Mapping[str, Mapping[str, AbstractKind]] = {
    "drive": {},  # be the one whose commands count
    "observe": {},
    "reset": {"mode": Choice(get_args(ResetMode)), "episode": Whole(0)},
    "command": {"steer": Number(-1.0, 1.0), "throttle": Number(-1.0, 1.0), "age": AGE},
    "health": {},
    "stop": {},
}
"""What may be asked, and with what."""
OBSERVATION = Record(
    {
        "age": AGE,
        "pose": Three(Number(-FAR, FAR)),
        "twist": Three(Number(-FAR, FAR)),
        "frame_id": Whole(-(2**53)),
        "valid": Flag(),
    }
)
ACK = Record({"accepted": Flag(), "late_by": Number(-LONGEST_AGE, LONGEST_AGE)})
HEALTH = Record({field.name: Whole(0) for field in dataclasses.fields(Health)})
NOTHING_SEEN = {"age": LONGEST_AGE, "pose": [0.0] * 3, "twist": [0.0] * 3, "frame_id": -1, "valid": False}


def parse(line: bytes) -> dict[str, Any]:
    """A line as a dictionary. NaN and repeated names are not JSON here."""
    if not line.endswith(b"\n"):
        raise Malformed("a line that is cut off" if len(line) <= LONGEST_LINE else f"more than {LONGEST_LINE} bytes")
    try:
        found = json.loads(line.decode("ascii"), parse_constant=_refuse_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise Malformed("not JSON in ASCII") from error
    if type(found) is not dict:
        raise Malformed("not an object")
    return found


def _refuse_constant(word: str) -> float:
    raise Malformed(f"{word} is not a number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Malformed("a name twice")
    return found


def read_question(line: bytes) -> dict[str, Any]:
    """Its id, its call, and what goes with that."""
    found = parse(line)
    call = found.get("call")
    if type(call) is not str or call not in QUESTIONS:
        raise Malformed("not a known call")
    return Record({"id": ID, "call": Choice((call,)), **QUESTIONS[call]}).read(found)


def write(message: Mapping[str, Any]) -> bytes:
    """A line."""
    return json.dumps(message, allow_nan=False).encode("ascii") + b"\n"


def from_observation(seen: Observation, now: float) -> dict[str, Any]:
    """As it travels; one with an impossible number is not an observation."""
    plain = {
        "age": min(max(now - seen.stamp, 0.0), LONGEST_AGE),
        "pose": np.asarray(seen.pose, float).tolist(),
        "twist": np.asarray(seen.twist, float).tolist(),
        "frame_id": int(seen.frame_id),
        "valid": bool(seen.valid),
    }
    try:
        return OBSERVATION.read(plain)
    except Malformed:
        return NOTHING_SEEN


def to_observation(value: Any, now: float) -> Observation:
    """The inverse, by this side's clock."""
    plain = OBSERVATION.read(value)
    pose, twist = np.array(plain["pose"]), np.array(plain["twist"])
    return Observation(now - plain["age"], pose, twist, plain["frame_id"], plain["valid"])


def from_ack(ack: Ack) -> dict[str, Any]:
    """As it travels."""
    return {"accepted": ack.accepted, "late_by": ack.late_by}


def to_ack(value: Any) -> Ack:
    """The inverse."""
    return Ack(**ACK.read(value))


def to_health(value: Any) -> Health:
    """Counters as they came."""
    return Health(**HEALTH.read(value))


def to_sentence(value: Any) -> str:
    """What went wrong on the other side, fit for a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value)[:500])
