"""Lines of strict JSON: what is right comes back as it was, everything else is malformed."""

import json
import math

import numpy as np
import pytest

from sombrl.hardware.backend import Ack, Health, Observation
from sombrl.hardware.messages import (
    HEALTH,
    LONGEST_AGE,
    Malformed,
    from_ack,
    from_observation,
    read_question,
    to_ack,
    to_observation,
    to_sentence,
    write,
)

COMMAND = {"id": 3, "call": "command", "steer": -0.5, "throttle": 0.25, "age": 0.01}


def test_questions_come_back_as_they_were():
    for question in (COMMAND, {"id": 0, "call": "stop"}, {"id": 9, "call": "reset", "mode": "auto", "episode": 4}):
        assert read_question(write(question)) == question
    whole = read_question(write({**COMMAND, "steer": 1, "throttle": -1, "age": 0}))
    assert [type(whole[name]) for name in ("steer", "throttle", "age")] == [float] * 3


WRONG = [math.nan, math.inf, -math.inf, 1.0000001, -1.1, 1e308, 10**400, True, None, "0.1", [0.1], {}, {"a": 0.1}]


@pytest.mark.parametrize("name", ["steer", "throttle"])
@pytest.mark.parametrize("value", WRONG)
def test_a_command_is_two_numbers_within_one(name, value):
    with pytest.raises(Malformed):
        read_question(json.dumps({**COMMAND, name: value}).encode() + b"\n")


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e9, -1e-9, 1.1e6, True, "0", None])
def test_an_age_is_a_number_of_seconds(value):
    with pytest.raises(Malformed):
        read_question(json.dumps({**COMMAND, "age": value}).encode() + b"\n")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"[]\n",
        b"{}\n",
        b"null\n",
        b"no JSON\n",
        b'{"call": "observe"}\n',
        b'{"id": 1}\n',
        b'{"id": 1, "call": "command"}\n',
        b'{"id": 1, "call": "observe"}',  # no end
        b'{"id": 1, "call": "observe", "more": 1}\n',
        b'{"id": 1, "id": 2, "call": "observe"}\n',
        b'{"id": true, "call": "observe"}\n',
        b'{"id": 1.0, "call": "observe"}\n',
        b'{"id": -1, "call": "observe"}\n',
        b'{"id": 1, "call": "close"}\n',
        b'{"id": 1, "call": ["observe"]}\n',
        b'{"id": 1, "call": "reset", "mode": "fly", "episode": 1}\n',
        b'{"id": 1, "call": "reset", "mode": "auto", "episode": 1e300}\n',
        b'{"id": 1, "call": "reset", "mode": ["auto"], "episode": 1}\n',
        b'{"id": 1, "call": "observe"} {"id": 2, "call": "observe"}\n',
        b"[" * 4000 + b"\n",
        b'{"id": ' + b"9" * 4000 + b', "call": "observe"}\n',
        '{"id": 1, "call": "observe", "ä": 1}\n'.encode(),
        '{"id": 1, "call": "observe"}\n'.encode("utf-16"),
        b'\xef\xbb\xbf{"id": 1, "call": "observe"}\n',
        b"\xff\xfe\x00\n",
        b"GET / HTTP/1.1\r\n",
    ],
)
def test_everything_else_is_malformed(line):
    with pytest.raises(Malformed):
        read_question(line)


def test_a_frame_keeps_its_age_and_its_bits():
    seen = Observation(99.5, np.array([0.1, -2.0, math.pi]), np.array([1e-300, 0.3, -7.0]), 12, True)
    plain = json.loads(json.dumps(from_observation(seen, now=100.0)))
    back = to_observation(plain, now=1.0)
    assert (back.stamp, back.frame_id, back.valid) == (0.5, 12, True)
    np.testing.assert_array_equal([*back.pose, *back.twist], [*seen.pose, *seen.twist])


@pytest.mark.parametrize(
    "seen",
    [
        Observation(0.0, np.array([math.nan, 0.0, 0.0]), np.zeros(3), 1, True),
        Observation(0.0, np.zeros(3), np.array([0.0, math.inf, 0.0]), 1, True),
        Observation(0.0, np.zeros(2), np.zeros(3), 1, True),
        Observation(math.nan, np.zeros(3), np.zeros(3), 1, True),
        Observation(0.0, np.array([2e6, 0.0, 0.0]), np.zeros(3), 1, True),
    ],
)
def test_a_frame_that_cannot_be_is_sent_as_an_invalid_one(seen):
    back = to_observation(json.loads(write(from_observation(seen, now=1.0))), now=0.0)
    assert not back.valid and back.stamp == -LONGEST_AGE and not back.pose.any()


def test_a_frame_that_never_was_is_as_old_as_can_be():
    """A vendor's driver has one at minus infinity before the first, and JSON has no infinity."""
    never = Observation(-math.inf, np.zeros(3), np.zeros(3), -1, False)
    assert json.loads(write(from_observation(never, 5.0)))["age"] == LONGEST_AGE


def test_answers_are_read_as_strictly():
    assert to_ack(from_ack(Ack(True, -0.25))) == Ack(True, -0.25)
    assert HEALTH.read(Health(commands=3).__dict__)["commands"] == 3
    for wrong in ({"accepted": 1, "late_by": 0.0}, {"accepted": True}, {"accepted": True, "late_by": "0"}, []):
        with pytest.raises(Malformed):
            to_ack(wrong)
    assert to_sentence("a\nb\x1b[2J\ud800") == "a?b?[2J?" and len(to_sentence("x" * 10_000)) == 500
