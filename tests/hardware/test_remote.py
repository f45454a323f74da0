"""The controller's end of a socket: the same episode; silence and nonsense are invalid frames."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from sombrl.hardware.backend import Health
from sombrl.hardware.control_loop import run_episode
from sombrl.hardware.registry import make_backend
from sombrl.hardware.remote import RemoteBackend
from sombrl.hardware.supervisor import Supervisor
from sombrl.records import RunFault, SombrlError
from tests.hardware.parts import ROOT, constant, remote, served
from tests.waiting import wait_for


def test_an_episode_over_a_socket(tmp_path):
    address = str(tmp_path / "car")
    car = served(address, start_spread=0.0)
    backend = RemoteBackend(address, patience=0.1)  # the other side's threads share this process and a busy machine
    backend.connect()
    start = backend.reset("teleport", episode=2)
    np.testing.assert_allclose(start.pose[:2], [1.42, -1.04], atol=0.01)
    episode = run_episode(backend, constant(0.1, 0.5), Supervisor(backend), steps=20)
    assert episode.end == "completed" and episode.valid.sum() >= 10
    np.testing.assert_allclose(episode.pose[-1, :2], car.truth()[:2], atol=0.1)
    assert backend.health() == car.health() and car.health().commands == 20
    assert np.median(episode.work) < 0.02
    car.reset = lambda mode, episode: (_ for _ in ()).throw(SombrlError(f"cannot reset by {mode}"))
    with pytest.raises(RunFault, match="cannot reset by manual"):  # the other side's sentence
        backend.reset("manual")
    backend.close()
    assert not backend.observe().valid and not backend.command(0.0, 1.0, time.monotonic()).accepted


def relay(near, far):
    """What `ssh -N -L near:far` is for a connection: bytes both ways, as they come."""
    listener = socket.create_server(("127.0.0.1", near))

    def copy(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def run():
        with listener:
            caller, _ = listener.accept()
        with caller, socket.socket(socket.AF_UNIX) as called:
            called.connect(far)
            other = threading.Thread(target=copy, args=(called, caller), daemon=True)
            other.start()
            copy(caller, called)
            other.join()

    threading.Thread(target=run, daemon=True).start()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_an_episode_through_a_tunnel(tmp_path):
    """The near end is a port of loopback, the car's a Unix socket; a tunnel that breaks stops the car."""
    far, near = str(tmp_path / "car"), free_port()
    car = served(far, watchdog=100.0)
    relay(near, far)
    with remote(f"127.0.0.1:{near}", patience=0.1) as backend:
        backend.reset("teleport")
        assert run_episode(backend, constant(0.1, 0.5), Supervisor(backend), steps=10).end == "completed"
        assert backend.command(0.0, 0.3, time.monotonic()).accepted and car.sent[-1][1:] == (0.0, 0.3)
        backend._hang_up()  # without a word
        wait_for(lambda: car.sent[-1][1:] == (0.0, 0.0))


def answering(address, answer):
    """A server for one controller, which answers its n-th line with answer(n, question)."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()

    def run():
        with listener:
            connection, _ = listener.accept()
        with connection, connection.makefile("rb") as lines, contextlib.suppress(OSError):
            for number, line in enumerate(lines, start=1):
                if json.loads(line)["call"] == "drive":
                    connection.sendall(b'{"id": %d}\n' % number)
                else:
                    connection.sendall(answer(number))

    threading.Thread(target=run, daemon=True).start()


GOOD = {"age": 0.01, "pose": [1.0, 2.0, 3.0], "twist": [0.1, 0.2, 0.3], "frame_id": 7, "valid": True}


def observation(number, **changes):
    return json.dumps({"id": number, "observation": {**GOOD, **changes}}).encode() + b"\n"


def test_silence_is_an_invalid_frame_and_late_answers_are_thrown_away(tmp_path):
    """A server that holds its first answer back: the loop does not wait for it."""
    held, address = threading.Event(), str(tmp_path / "car")
    answering(address, lambda number: held.wait(30) and observation(number, frame_id=number))
    with remote(address, patience=0.02) as backend:
        assert not backend.observe().valid and not held.is_set()
        held.set()
        backend.patience = 30.0
        seen = backend.observe()
        assert seen.valid and seen.frame_id == 3  # drive, and the look that was not waited for


def test_a_flood_of_old_answers_does_not_hold_the_loop(tmp_path):
    address = str(tmp_path / "car")
    answering(address, lambda number: b'{"id": 0}\n' * 100_000)
    with remote(address, patience=0.05) as backend:
        began = time.monotonic()
        assert not backend.observe().valid and time.monotonic() - began < 1.0


def test_a_good_answer_is_taken_as_it_is(tmp_path):
    address = str(tmp_path / "car")
    answering(address, observation)
    with remote(address) as backend:
        seen = backend.observe()
        assert (seen.frame_id, seen.valid) == (7, True) and time.monotonic() - seen.stamp == pytest.approx(0.01, abs=1)
        np.testing.assert_array_equal([*seen.pose, *seen.twist], [1, 2, 3, 0.1, 0.2, 0.3])


NONSENSE = [
    lambda number: b"[]\n",
    lambda number: b'{"x": 1}\n',
    lambda number: b"\xff\xfe\n",
    lambda number: b'{"id": %d, "observation": {}}\n' % number,
    lambda number: b'{"id": %d, "ack": {"evil": 1}}\n' % number,
    lambda number: b'{"id": %d, "ack": {"accepted": 1, "late_by": 0}}\n' % number,
    lambda number: observation(number, age="x"),
    lambda number: observation(number, age=float("nan")),
    lambda number: observation(number, age=-1e9),
    lambda number: observation(number, pose=[1.0]),
    lambda number: observation(number, pose=[1.0, 2.0, float("inf")]),
    lambda number: observation(number, twist=[[1.0], [2.0], [3.0]]),
    lambda number: observation(number, frame_id=True),
    lambda number: observation(number, valid="yes"),
]


@pytest.mark.parametrize("answer", NONSENSE)
def test_answers_that_make_no_sense_are_silence(answer, tmp_path):
    address = str(tmp_path / "car")
    answering(address, answer)
    with remote(address, patience=0.05) as backend:
        assert not backend.observe().valid and not backend.command(0.0, 0.4, time.monotonic()).accepted
        assert backend.health() == Health()


def test_no_server_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(SombrlError, match="no car answers at"):
        RemoteBackend(str(tmp_path / "nobody")).connect()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("address=lab:5001",), "make an SSH tunnel"),
        (("address=5001",), "must be a text, not 5001"),
        (("address=/tmp/car", "patience=-1"), "patience' must be positive and finite"),
        (("address=/tmp/car", "patience=soon"), "patience' must be positive and finite"),
        (("address=/tmp/car", "patience=NaN"), "patience' must be positive and finite"),
    ],
)
def test_options_that_cannot_be(options, sentence):
    with pytest.raises(SombrlError, match=sentence):
        make_backend("remote", options)


DRIVER = """
import sys
sys.path.insert(0, {root!r})
from sombrl.hardware import Supervisor, run_episode
from sombrl.hardware.remote import RemoteBackend
import numpy as np
backend = RemoteBackend({address!r}, patience=0.1)
backend.connect()
backend.reset("teleport")
print("driving", flush=True)
run_episode(backend, lambda obs: np.array([0.0, 0.6]), Supervisor(backend), steps=10000)
"""


@pytest.mark.parametrize("by", ["the car", "the server"])
def test_a_car_whose_controller_is_frozen_or_killed_stops(by, tmp_path):
    """By the car's own watchdog where the server's stop does not reach it, and by the server where the car has none."""
    address = str(tmp_path / "car")
    car = served(address, noise=0.0, watchdog=0.1 if by == "the car" else 1000.0)
    if by == "the car":
        car.stop = lambda: None
    script = textwrap.dedent(DRIVER.format(root=str(ROOT), address=address))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "driving\n"
        for number, name in enumerate(("SIGSTOP", "SIGKILL"), start=1):
            wait_for(lambda: car.throttle() == pytest.approx(0.24))  # 0.6 of the scale 0.4
            process.send_signal(getattr(signal, name))
            time.sleep(0.4)  # the radio's 0.1 s, the watchdog's 0.1 s, and a busy machine
            assert car.throttle() == 0.0
            assert by == "the server" or car.health().watchdog_stops >= number
            before = car.truth()[3]
            time.sleep(0.3)
            assert 0 <= car.truth()[3] < before
            process.send_signal(signal.SIGCONT)  # drives on, if it can
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
