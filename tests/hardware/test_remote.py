"""A car behind a socket: the same episode, silence that becomes invalid frames, and a car that outlives its driver."""

import contextlib
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
from sombrl.hardware.remote import RemoteBackend, answer_line, serve
from sombrl.hardware.sim_backend import SimBackend, SimConfig
from sombrl.hardware.supervisor import Supervisor
from sombrl.records import RunFault, SombrlError
from tests.hardware.parts import ROOT, Car, constant


class Recorded(Car):
    """Remembers what it was sent."""

    def __init__(self, config):
        self.sent = []
        super().__init__(config)

    def _send(self, now, steer, throttle):
        self.sent.append((now, steer, throttle))
        super()._send(now, steer, throttle)


def served(address, stop_on_hang_up=False, **options):
    """A car in this process that others can drive."""
    car, ready = Recorded(SimConfig(**options)), threading.Event()
    flags = {"stop_on_hang_up": stop_on_hang_up, "ready": ready}
    threading.Thread(target=serve, args=(car, address), kwargs=flags, daemon=True).start()
    assert ready.wait(5)
    return car


def test_an_episode_over_a_socket(tmp_path):
    address = str(tmp_path / "car")
    car = served(address, start_spread=0.0)
    backend = RemoteBackend(address)
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


def answering(address, answer):
    """A server for one controller, which answers its n-th line with answer(n, line)."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()

    def run():
        with listener:
            connection, _ = listener.accept()
        with connection, connection.makefile("rb") as lines, contextlib.suppress(OSError):
            for number, line in enumerate(lines, start=1):
                connection.sendall(answer(number, line))

    threading.Thread(target=run, daemon=True).start()


@contextlib.contextmanager
def connected(address, **options):
    with contextlib.closing(RemoteBackend(address, **options)) as backend:
        backend.connect()
        yield backend


def test_silence_is_an_invalid_frame_and_late_answers_are_thrown_away(tmp_path):
    """A server that holds its first answer back: the loop does not wait for it."""
    car, held, address = SimBackend(SimConfig()), threading.Event(), str(tmp_path / "car")
    answering(address, lambda number, line: held.wait(30) and answer_line(car, line))
    with connected(address, patience=0.02) as backend:
        assert not backend.observe().valid and not held.is_set()
        held.set()
        backend.patience = 30.0
        seen = backend.observe()
        assert seen.valid and seen.frame_id == 2 and backend.health().requested_frames == 2


MALFORMED = [b"[]", b"{}", b"no JSON", b'{"call": "observe"}', b'{"id": 1, "call": "command"}']


@pytest.mark.parametrize("line", MALFORMED)
def test_a_malformed_line_stops_the_car_and_the_next_controller_is_answered(line, tmp_path, capfd):
    address = str(tmp_path / "car")
    car = served(address, stop_on_hang_up=True, watchdog=100.0)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(10)
        stranger.connect(address)
        car.command(0.0, 0.4, time.monotonic())
        stranger.sendall(line + b"\n")
        assert stranger.recv(1) == b""  # hung up
    with connected(address, patience=10.0) as backend:
        assert backend.observe().valid
    assert [command[1:] for command in car.sent][:2] == [(0.0, 0.4), (0.0, 0.0)]
    assert "hung up after" in capfd.readouterr().err


@pytest.mark.parametrize("what", ["[]", '{"x": 1}', '{"id": ID, "observation": {}}', '{"id": ID, "ack": {"evil": 1}}'])
def test_answers_that_make_no_sense_are_silence(what, tmp_path):
    address = str(tmp_path / "car")
    answering(address, lambda number, line: what.replace("ID", str(number)).encode() + b"\n")
    with connected(address, patience=0.05) as backend:
        assert not backend.observe().valid and not backend.command(0.0, 0.4, time.monotonic()).accepted
        assert backend.health() == Health()


def test_a_file_in_the_place_of_a_socket_is_kept(tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    with pytest.raises(SombrlError, match="cannot listen at"):
        serve(SimBackend(SimConfig()), str(precious))
    assert precious.read_text() == "mine"


def test_no_server_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(SombrlError, match="no car answers at"):
        RemoteBackend(str(tmp_path / "nobody")).connect()


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


def test_a_car_whose_controller_is_frozen_or_killed_stops_by_itself(tmp_path):
    """Its own watchdog does it: nothing else is left (the server is told not to help)."""
    address = str(tmp_path / "car")
    car = served(address, noise=0.0)
    script = textwrap.dedent(DRIVER.format(root=str(ROOT), address=address))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "driving\n"
        for number, name in enumerate(("SIGSTOP", "SIGKILL"), start=1):
            wait_until(lambda: car.throttle() == pytest.approx(0.24))  # 0.6 of the scale 0.4
            process.send_signal(getattr(signal, name))
            time.sleep(0.35)  # the radio's 0.1 s, the watchdog's 0.1 s, and a busy machine
            assert car.throttle() == 0.0 and car.health().watchdog_stops >= number
            before = car.truth()[3]
            time.sleep(0.3)
            assert 0 <= car.truth()[3] < before
            process.send_signal(signal.SIGCONT)  # drives on, if it can
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
