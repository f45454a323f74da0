"""A car behind a socket: the same episode, silence that becomes invalid frames, and a car that outlives its driver."""

import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from sombrl.hardware.control_loop import run_episode
from sombrl.hardware.remote import RemoteBackend, answer_line, serve
from sombrl.hardware.sim_backend import SimBackend, SimConfig
from sombrl.hardware.supervisor import Supervisor
from sombrl.records import RunFault, SombrlError
from tests.hardware.parts import ROOT, Car, constant


def served(address, **options):
    """A car in this process that others can drive."""
    car, ready = Car(SimConfig(**options)), threading.Event()
    flags = {"stop_on_hang_up": False, "ready": ready}
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


def test_silence_is_an_invalid_frame_and_late_answers_are_thrown_away(tmp_path):
    """A server that sleeps before its first answer: the loop does not wait for it."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "car"))
    listener.listen()
    car = SimBackend(SimConfig())

    def answer():
        connection, _ = listener.accept()
        for number, line in enumerate(connection.makefile("rb")):
            time.sleep(0.1 if number == 0 else 0.0)
            connection.sendall(answer_line(car, line))

    threading.Thread(target=answer, daemon=True).start()
    backend = RemoteBackend(str(tmp_path / "car"), patience=0.02)
    backend.connect()
    start = time.monotonic()
    assert not backend.observe().valid
    assert time.monotonic() - start < 0.08
    time.sleep(0.15)
    assert backend.observe().valid and backend.health().requested_frames == 2


def test_nobody_there_is_a_sentence(tmp_path):
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


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGSTOP"])
def test_a_car_whose_controller_is_killed_or_frozen_stops_by_itself(signal_name, tmp_path):
    """Its own watchdog does it: nobody else is left (the server is told not to help)."""
    address = str(tmp_path / "car")
    car = served(address, noise=0.0)
    script = textwrap.dedent(DRIVER.format(root=str(ROOT), address=address))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "driving\n"
        deadline = time.monotonic() + 10
        while car.throttle() == 0.0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert car.throttle() == pytest.approx(0.24)  # 0.6 of the scale 0.4
        process.send_signal(getattr(signal, signal_name))
        time.sleep(0.35)  # the radio's 0.1 s, the watchdog's 0.1 s, and a busy machine
        assert car.throttle() == 0.0 and car.health().watchdog_stops >= 1
        before = car.truth()[3]
        time.sleep(0.5)
        assert 0 <= car.truth()[3] < before
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
