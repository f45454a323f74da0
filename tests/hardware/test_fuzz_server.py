"""Thousands of malformed messages, each while the car drives: it is stopped every time, and the server lives on.

Seeds are fixed, so a message that breaks something is the same tomorrow; `python -m tests.hardware.test_fuzz_server
SEED NUMBER` prints some.
"""

import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from sombrl.hardware.messages import QUESTIONS
from sombrl.hardware.remote import RemoteBackend
from sombrl.hardware.sim_backend import SimConfig
from sombrl.hardware.supervisor import SupervisorConfig
from tests.hardware.parts import ROOT, Recorded, remote, served
from tests.waiting import wait_for

WIDE = SupervisorConfig(stale_after=30.0, field_x=(-1e3, 1e3), field_y=(-1e3, 1e3))
"""The heartbeat and the field are not what stops the car here."""

VALUES = [
    *(math.nan, math.inf, -math.inf, 1e308, -1e9, 10**400, -1.0000001, 2**64, 1e6 + 1),
    *(True, False, None, "", "0.1", "NaN", "\x00", "\ud800", "a" * 500, [], [0.1], {}, {"a": {"b": []}}),
]
"""No field may be any of them: not a number, out of bounds, not whole."""


def question(rng):
    """A right one, at random."""
    call = str(rng.choice(list(QUESTIONS)))
    extra = {
        "command": {"steer": rng.uniform(-1, 1), "throttle": rng.uniform(-0.4, 0.4), "age": rng.uniform(0, 0.01)},
        "reset": {"mode": str(rng.choice(["teleport", "manual", "auto"])), "episode": int(rng.integers(100))},
    }
    return {"id": int(rng.integers(1000)), "call": call, **extra.get(call, {})}


def text(message):
    return json.dumps(message).encode()


def wrong_value(rng):
    message = question(rng)
    name = str(rng.choice(list(message)))
    value = VALUES[rng.integers(len(VALUES))]
    return text({**message, name: value})


def missing(rng):
    message = question(rng)
    del message[str(rng.choice(list(message)))]
    return text(message)


def added(rng):
    return text({**question(rng), str(rng.choice(["x", "", "Call", "steer ", "__class__", "pose"])): 0.1})


def repeated(rng):
    return text(question(rng))[:-1] + b', "id": 1}'


def cut(rng):
    line = text(question(rng))
    return line[: rng.integers(len(line))]


def noise(rng):
    return rng.bytes(int(rng.integers(1, 200))).replace(b"\n", b"?")


def printable(rng):
    return bytes(rng.integers(32, 127, int(rng.integers(1, 200))).tolist())


def other_type(rng):
    return text([[], {}, None, True, 3, 0.5, "stop", [question(rng)], {"question": question(rng)}][rng.integers(9)])


def deep(rng):
    return [b"[", b'{"id": ', b'{"id": [', b'[{"call": '][rng.integers(4)] * int(rng.integers(1, 500))


def long(rng):
    return text(question(rng))[:-1] + b" " * int(rng.integers(5_000, 50_000)) + b"}"


def two(rng):
    return text(question(rng)) + b" " + text(question(rng))


def encoded(rng):
    return text(question(rng)).decode().encode(str(rng.choice(["utf-16", "utf-32", "utf-8-sig", "utf-7"]))) + b"\xff"


def protocol(rng):
    others = [
        b"GET / HTTP/1.1\r",
        b"POST /command HTTP/1.1\r",
        b"SSH-2.0-OpenSSH_9.6\r",
        b"\x16\x03\x01\x02\x00",
        b"*1\r",
    ]
    return others[rng.integers(len(others))]


KINDS = [
    *(wrong_value, wrong_value, wrong_value, missing, added, repeated, cut, noise, printable, other_type, deep, long),
    *(two, encoded, protocol),
]


def bent(rng):
    """A right one with some bytes changed; it may still be right."""
    line = bytearray(text(question(rng)))
    for at in rng.integers(len(line), size=rng.integers(1, 4)):
        line[at] = rng.integers(32, 127)
    return bytes(line)


def send(connection, data, rng):
    """In one piece or in several. What came before a connection was closed has been read."""
    cuts = np.sort(rng.integers(len(data) + 1, size=rng.integers(0, 4))).tolist()
    try:
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            connection.sendall(data[start:end])
    except (BrokenPipeError, ConnectionResetError):
        pass


def ended(connection):
    """Whether the other end hung up; what it had said before is thrown away."""
    connection.settimeout(60)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def drive(address):
    backend = RemoteBackend(address, patience=10.0)
    backend.connect()
    backend.reset("teleport")
    assert backend.command(0.1, 0.3, time.monotonic()).accepted
    return backend


def fuzz(address, car, seed, number):
    """Send them, some by who drives, some by a stranger; all the car gets in between is neutral."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        backend = drive(address)
        sent = len(car.sent)
        assert car.sent[-1][1:] == (0.1, 0.3)
        kind, by_driver, known = KINDS[rng.integers(len(KINDS))], rng.random() < 0.5, rng.random() < 0.85
        data = kind(rng) if known else bent(rng)
        if not known and not by_driver:
            data = data.replace(b"stop", b"st0p")  # the right thing to say, and another test's
        first = text({"id": 1, "call": "observe"}) + b"\n" if rng.random() < 0.2 else b""
        connection = backend._socket if by_driver else socket.socket(socket.AF_UNIX)
        try:
            if not by_driver:
                connection.connect(address)
            send(connection, first + data + b"\n", rng)
            if known:
                assert ended(connection), data
                wait_for(lambda: len(car.sent) > sent)  # noqa: B023
                assert {command[1:] for command in car.sent[sent:]} == {(0.0, 0.0)}, data
                assert not backend.command(0.1, 0.3, time.monotonic()).accepted, data
            else:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
                assert ended(connection)  # or it would be heard in the next round
        finally:
            connection.close()
            backend._hang_up()
        wait_for(lambda: car.sent[-1][1:] == (0.0, 0.0))


def check(tmp_path, seed, number, capfd):
    address = str(tmp_path / "car")
    car = served(address, Recorded(SimConfig(watchdog=1e6, late_limit=1e6)), WIDE)
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    fuzz(address, car, seed, number)
    commands = np.array([command[1:] for command in car.sent])
    assert np.isfinite(commands).all() and (np.abs(commands) <= [1.0, 0.4]).all() and len(commands) > 2 * number
    np.testing.assert_array_equal(commands[-1], 0.0)
    with remote(address, patience=10.0) as backend:  # it drives as ever
        backend.reset("teleport")
        wait_for(lambda: backend.command(0.1, 0.2, time.monotonic()).accepted and car.truth()[3] > 0.1)
        assert backend.observe().valid
    wait_for(lambda: threading.active_count() <= threads + 1)  # the supervisor's
    wait_for(lambda: len(os.listdir("/proc/self/fd")) <= files)
    assert "Traceback" not in capfd.readouterr().err


def test_some_malformed_messages(tmp_path, capfd):
    check(tmp_path, 0, 60, capfd)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_thousand_malformed_messages(seed, tmp_path, capfd):
    check(tmp_path, seed, 1000, capfd)


def flood(tmp_path, seed, number):
    """The command itself, on a port of loopback, from many callers at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "sombrl.hardware.remote", f"127.0.0.1:{port}", "sim"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=environment, cwd=tmp_path, **pipes)
    try:
        assert process.stdout is not None and process.stdout.readline().startswith("serving sim at")

        def shout(seed):
            rng = np.random.default_rng(seed)
            for _ in range(number):
                try:
                    with socket.create_connection(("127.0.0.1", port), timeout=10) as caller:
                        send(caller, KINDS[rng.integers(len(KINDS))](rng) + b"\n", rng)
                        if rng.random() < 0.5:
                            ended(caller)
                except (ConnectionResetError, BrokenPipeError):
                    pass

        shouting = [threading.Thread(target=shout, args=([seed, n],)) for n in range(4)]
        for thread in shouting:
            thread.start()
        for thread in shouting:
            thread.join()
        with remote(f"127.0.0.1:{port}", patience=10.0) as backend:
            wait_for(lambda: drives(backend))
        process.terminate()
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0 and "Traceback" not in err
    assert "stopped the car and hung up after a line that is not a question" in err and list(tmp_path.iterdir()) == []


def drives(backend) -> bool:
    """Whether the car takes a command after a reset: on a busy machine one may come too late, and ends the drive."""
    backend.reset("teleport")
    return bool(backend.command(0.0, 0.2, time.monotonic()).accepted)


def test_the_command_lives_through_a_flood(tmp_path):
    flood(tmp_path, 0, 25)


@pytest.mark.thorough
def test_the_command_lives_through_a_longer_flood(tmp_path):
    flood(tmp_path, 1, 500)


if __name__ == "__main__":
    generator = np.random.default_rng(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        print(KINDS[generator.integers(len(KINDS))](generator))
