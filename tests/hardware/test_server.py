"""The car's side of a socket: who drives, who may stop, and what stops the car whatever drives it."""

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from sombrl.hardware import server as server_module
from sombrl.hardware.backend import Observation
from sombrl.hardware.remote import RemoteBackend, stop
from sombrl.hardware.server import MOST_CALLERS, Server, serve
from sombrl.hardware.sim_backend import SimBackend, SimConfig
from sombrl.hardware.supervisor import SupervisorConfig
from sombrl.records import RunFault, SombrlError
from tests.hardware.parts import ROOT, Recorded, remote, served
from tests.waiting import wait_for

NEUTRAL = (0.0, 0.0)
FREE = {"field_x": (-1e3, 1e3), "field_y": (-1e3, 1e3)}
PATIENT = {"stale_after": 30.0}
"""Where time is not what is tested, a busy machine may take its."""
CALM = SupervisorConfig(**PATIENT)


def still(**options):
    """A car that only the server can stop, and that takes what a busy machine delays."""
    return Recorded(SimConfig(**{"watchdog": 1e6, "start_spread": 0.0, "late_limit": 1e6, **options}))


def last(car):
    return car.sent[-1][1:]


def drive(backend, throttle=0.3, steer=0.1):
    return backend.command(steer, throttle, time.monotonic())


CONTROLLERS: list[RemoteBackend] = []


@pytest.fixture(autouse=True)
def hang_up():
    yield
    while CONTROLLERS:
        CONTROLLERS.pop().close()


def begin(address, car, **options):
    """A controller whose car drives; hung up at the end of the test."""
    backend = RemoteBackend(address, patience=options.pop("patience", 20.0))
    CONTROLLERS.append(backend)
    backend.connect()
    backend.reset("teleport")
    wait_for(lambda: drive(backend, **options).accepted and last(car)[1] != 0.0)
    return backend


class Caller:
    """Lines as they are."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(address)
        self.lines = self.socket.makefile("rb")

    def ask(self, **question):
        self.socket.sendall(json.dumps({"id": 5, **question}).encode() + b"\n")
        return json.loads(self.lines.readline())

    def hung_up(self):
        try:
            return self.lines.readline() == b""
        except ConnectionResetError:
            return True

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.lines.close()
        self.socket.close()


# -------------------------------------------------------------------------------------------- who drives


def test_one_drives_and_the_others_may_look(tmp_path):
    address = str(tmp_path / "car")
    car = served(address, still(), CALM)
    backend = begin(address, car)
    with Caller(address) as other:
        assert other.ask(call="observe")["observation"]["valid"]
        assert other.ask(call="health")["health"]["commands"] == 1
        before = len(car.sent)
        for question in (
            {"call": "command", "steer": 0.0, "throttle": 0.4, "age": 0.0},
            {"call": "reset", "mode": "teleport", "episode": 0},
        ):
            assert other.ask(**question) == {"id": 5, "error": "only who drives may ask for that."}
        assert "another controller drives" in other.ask(call="drive")["error"]
        assert all(command[1:] == NEUTRAL for command in car.sent[before:])
    with pytest.raises(SombrlError, match="another controller drives this car: end it, or stop the car first"):
        RemoteBackend(address, patience=2.0).connect()
    assert drive(backend).accepted  # the others hung up, and it drives on
    backend.close()
    assert last(car) == NEUTRAL
    begin(address, car).close()  # the next one may


def test_a_driver_that_says_nothing_loses_the_wheel_to_who_asks(tmp_path, monkeypatch):
    monkeypatch.setattr(server_module, "SILENCE", 0.2)
    address = str(tmp_path / "car")
    car = served(address, still(), CALM)
    backend = begin(address, car)
    time.sleep(0.3)
    with remote(address) as other:
        assert last(car) == NEUTRAL
        other.reset("teleport")
        assert drive(other).accepted
        sent = len(car.sent)
        assert not drive(backend, throttle=-0.2).accepted  # it was hung up on
        backend.close()
        assert drive(other).accepted and not any(command[2] == -0.2 for command in car.sent[sent:])


# -------------------------------------------------------------------------------------------- who stops


def test_anybody_stops_the_car_at_once_and_ends_the_drive(tmp_path, capfd):
    address = str(tmp_path / "car")
    car = served(address, still(), CALM)
    backend, stopped = begin(address, car), threading.Event()

    def shout():  # 30 Hz would do
        while not stopped.is_set():
            drive(backend)

    shouting = threading.Thread(target=shout)
    shouting.start()
    try:
        time.sleep(0.1)
        stop(address)
        wait_for(lambda: last(car) == NEUTRAL)
        wait_for(lambda: "a stop from somebody else ended the drive" in capfd.readouterr().err)
        sent = len(car.sent)
        time.sleep(0.3)
        assert all(command[1:] == NEUTRAL for command in car.sent[sent:])
    finally:
        stopped.set()
        shouting.join()
    with pytest.raises(RunFault, match="stopped from elsewhere"):
        backend.reset("teleport")
    backend.close()
    begin(address, car).close()


class Held(Recorded):
    """A car one of whose methods does not return before it is let go."""

    def __init__(self, name):
        super().__init__(SimConfig(watchdog=1e6))
        self.entered, self.go = threading.Event(), threading.Event()
        method = getattr(self, name)

        def held(*args, **options):
            self.entered.set()
            assert self.go.wait(30)
            return method(*args, **options)

        self.hold = lambda: setattr(self, name, held)


@pytest.mark.parametrize("name", ["observe", "command", "reset", "health"])
def test_a_stop_waits_for_no_other_call(name, tmp_path):
    """Neither for the driver's, nor for a lock that it holds; and a command on its way is followed by another stop."""
    address = str(tmp_path / "car")
    car = served(address, Held(name), CALM)
    backend = begin(address, car, patience=30.0)
    car.hold()
    calls = {"command": lambda: drive(backend), "reset": lambda: backend.reset("teleport")}

    def ask():
        with contextlib.suppress(RunFault):
            calls.get(name, getattr(backend, name))()

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        assert car.entered.wait(10)
        before, began = len(car.sent), time.monotonic()
        stop(address)
        assert time.monotonic() - began < 10.0 and car.sent[before][1:] == NEUTRAL
    finally:
        car.go.set()
        asking.join()
    backend.close()
    wait_for(lambda: last(car) == NEUTRAL)
    time.sleep(0.1)
    assert last(car) == NEUTRAL


def test_a_command_that_waits_for_its_turn_is_not_sent_after_a_stop(tmp_path):
    """Somebody looks, the driver's command waits for that, and a third one stops the car meanwhile."""
    address = str(tmp_path / "car")
    car = served(address, Held("observe"), CALM)
    backend = begin(address, car, patience=30.0)
    car.hold()
    with Caller(address) as looking:
        asking = threading.Thread(target=lambda: looking.ask(call="observe"))
        asking.start()
        assert car.entered.wait(10)
        driving = threading.Thread(target=lambda: drive(backend, throttle=-0.3))
        driving.start()
        time.sleep(0.3)
        stop(address)
        car.go.set()
        asking.join()
        driving.join()
    backend.close()
    assert not any(throttle == -0.3 for _, _, throttle in car.sent) and last(car) == NEUTRAL


def test_who_comes_last_is_heard_though_all_places_are_taken(tmp_path):
    address = str(tmp_path / "car")
    car = served(address, still(), CALM)
    backend = begin(address, car)
    threads = threading.active_count()
    with contextlib.ExitStack() as callers:
        for _ in range(3 * MOST_CALLERS):
            callers.enter_context(Caller(address))
        assert drive(backend).accepted  # the driver keeps its place
        stop(address)
        assert last(car) == NEUTRAL
        wait_for(lambda: threading.active_count() < threads + MOST_CALLERS)
    backend.close()


def test_without_a_server_a_stop_says_so(tmp_path):
    with pytest.raises(RunFault, match="use the switch"):
        stop(str(tmp_path / "nobody"))


# -------------------------------------------------------------------------------------------- its supervisor


def test_lost_heartbeat(tmp_path):
    """After 100 ms without a command, of a car that would drive forever."""
    address = str(tmp_path / "car")
    car = served(address, still())
    backend = begin(address, car)
    sent, at = len(car.sent), car.sent[-1][0]
    wait_for(lambda: len(car.sent) > sent)
    assert last(car) == NEUTRAL and 0.1 <= car.sent[sent][0] - at < 1.0
    backend.close()


@pytest.mark.parametrize("how", ["hangs up", "dies"])
def test_a_driver_that_is_gone(how, tmp_path):
    address = str(tmp_path / "car")
    car = served(address, still(), CALM)  # the heartbeat is not what does it
    backend = begin(address, car)
    if how == "dies":
        backend._socket.sendall(b'{"id": 1, "call": "comm')  # in the middle of a line
    backend._hang_up()
    wait_for(lambda: last(car) == NEUTRAL)


def test_speed(tmp_path):
    """Nothing that pushes on beyond the cap; braking is let through. The controller has no rule of its own here."""
    address = str(tmp_path / "car")
    car = served(address, still(noise=0.0), SupervisorConfig(speed_cap=0.5, **FREE, **PATIENT))
    backend = begin(address, car, throttle=0.4, steer=0.0)
    wait_for(lambda: not (time.sleep(0.02), drive(backend, throttle=0.4, steer=0.0))[1].accepted)
    assert car.truth()[3] > 0.5 and last(car)[1] == 0.0
    assert drive(backend, throttle=-0.1, steer=0.0).accepted and last(car)[1] == -0.1
    backend.close()


def test_field(tmp_path):
    """Half a metre ahead of the start the field ends. The car is stopped there, and not driven off."""
    address = str(tmp_path / "car")
    car = served(address, still(noise=0.0), SupervisorConfig(field_x=(0.9, 2.0), **PATIENT))
    backend = begin(address, car, throttle=0.4, steer=0.0)
    wait_for(lambda: not (time.sleep(0.02), drive(backend, throttle=0.4, steer=0.0))[1].accepted)
    assert car.truth()[0] < 0.9 and last(car) == NEUTRAL
    assert drive(backend, throttle=0.0, steer=0.0).accepted and not drive(backend, throttle=-0.4).accepted
    assert last(car) == NEUTRAL
    backend.reset("teleport")  # a person has put it back
    assert drive(backend).accepted
    backend.close()


def test_frames_that_are_lost(tmp_path):
    """No good frame for 100 ms, seen by the server itself: the controller does not ask for one."""
    address = str(tmp_path / "car")
    car = served(address, still(noise=0.0), SupervisorConfig(**FREE))
    backend = begin(address, car)
    car.blackout(0.0, 1e9)
    deadline = time.monotonic() + 60
    while drive(backend).accepted:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert last(car) == NEUTRAL
    backend.close()


def test_a_command_that_is_late_or_too_strong(tmp_path, capfd):
    address = str(tmp_path / "car")
    car = served(address, still(late_limit=0.9), CALM)
    backend = begin(address, car)
    ack = backend.command(0.0, 0.2, time.monotonic() - 1.0)
    assert not ack.accepted and ack.late_by == pytest.approx(1.0, abs=0.5) and last(car) == NEUTRAL
    assert drive(backend, throttle=0.4).accepted
    assert not drive(backend, throttle=0.41).accepted and last(car) == NEUTRAL
    wait_for(lambda: "beyond this server's supervisor.throttle_scale" in capfd.readouterr().err)
    backend.close()


@pytest.mark.parametrize("name", ["observe", "command", "reset", "health"])
def test_a_driver_of_the_car_that_raises(name, tmp_path, capfd):
    address = str(tmp_path / "car")
    car = served(address, still(), CALM)
    backend = begin(address, car)

    def broken(*args, **options):
        raise OSError("cable")

    setattr(car, name, broken)
    calls = {"command": lambda: drive(backend), "reset": lambda: backend.reset("teleport")}
    with contextlib.suppress(RunFault):
        calls.get(name, getattr(backend, name))()
    assert last(car) == NEUTRAL
    delattr(car, name)
    backend.close()
    begin(address, car).close()  # the server lives
    deadline, said = time.monotonic() + 60, ""
    while "hung up after the car failed in" not in said:
        said += capfd.readouterr().err
        assert time.monotonic() < deadline
    assert "OSError: cable" in said and "Traceback" not in said


def test_a_stop_that_raises_is_tried_again(tmp_path):
    address = str(tmp_path / "car")
    car = served(address, still())
    backend, sent, failed = begin(address, car), len(car.sent), []
    proper = car.stop

    def flaky():
        if len(failed) < 3:
            failed.append(1)
            raise OSError("cable")
        proper()

    car.stop = flaky
    wait_for(lambda: len(car.sent) > sent)  # of the watching thread
    assert last(car) == NEUTRAL and len(failed) == 3
    backend.close()


@pytest.mark.parametrize(
    "seen",
    [
        Observation(0.0, np.full(3, np.nan), np.zeros(3), 1, True),
        Observation(0.0, np.zeros(2), np.zeros(3), 1, True),
        Observation(0.0, np.zeros(3), np.array([0.0, 0.0, np.inf]), 1, True),
        None,
    ],
)
def test_a_frame_that_cannot_be_drives_nothing(seen, tmp_path):
    address = str(tmp_path / "car")
    car = still()
    car.observe = lambda: seen if seen is None else dataclasses.replace(seen, stamp=time.monotonic())
    served(address, car)
    with remote(address) as backend:
        assert not backend.observe().valid
        assert not drive(backend).accepted and all(command[1:] == NEUTRAL for command in car.sent)


def test_a_clock_that_stands_cannot_be_served():
    with pytest.raises(SombrlError, match="needs a clock that moves"):
        Server(SimBackend(SimConfig(clock="simulated")))


# -------------------------------------------------------------------------------------------- nonsense, and ends


MALFORMED = [
    b"[]\n",
    b'{"call": "observe"}\n',
    b'{"id": 1, "call": "command"}\n',
    b'{"id": 1, "call": "command", "steer": NaN, "throttle": 1e9, "age": -1e9}\n',
    b'{"id": 1, "call": "command", "steer": 0, "throttle": NaN, "age": 0}\n',
    b"x" * 5000,
    b"GET / HTTP/1.1\r\n\r\n",
]


@pytest.mark.parametrize("line", MALFORMED)
@pytest.mark.parametrize("who", ["driver", "stranger"])
def test_a_malformed_line_of_any_sender_stops_the_car(who, line, tmp_path, capfd):
    address = str(tmp_path / "car")
    car = served(address, still(), CALM)
    backend, sent = begin(address, car), len(car.sent)
    if who == "driver":
        backend._socket.sendall(line)
    else:
        with Caller(address) as stranger:
            stranger.socket.sendall(line)
            assert stranger.hung_up()
    wait_for(lambda: last(car) == NEUTRAL)
    assert not drive(backend).accepted  # the drive is over
    backend.close()
    assert all(command[1:] == NEUTRAL for command in car.sent[sent:])
    begin(address, car).close()
    wait_for(lambda: "stopped the car and hung up after a line that is not a question" in capfd.readouterr().err)


def test_whatever_ends_the_server_stops_the_car(tmp_path):
    car, address = still(), tmp_path / "car"

    class Listener(socket.socket):
        def accept(self):
            car.command(0.0, 0.4, time.monotonic())
            raise ZeroDivisionError

    server = Server(car)
    with Listener() as listener, pytest.raises(ZeroDivisionError):
        server.run(listener)
    assert last(car) == NEUTRAL
    address.write_text("mine")
    with pytest.raises(SombrlError, match="cannot listen at"):
        serve(car, str(address))
    assert address.read_text() == "mine"


LOUD = """
import sys
from sombrl.hardware import remote
from tests.hardware.parts import Recorded
from sombrl.hardware.sim_backend import SimConfig

class Loud(Recorded):
    def _send(self, now, steer, throttle):
        super()._send(now, steer, throttle)
        print("sent", steer, throttle, flush=True)

    def close(self):
        super().close()
        print("closed", flush=True)

sys.modules["loud"] = sys.modules["__main__"]
def car() -> Loud:
    return Loud(SimConfig(watchdog=1e6))

remote.main([sys.argv[1], "loud:car", "supervisor.speed_cap=1"])
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_stops_the_car_and_removes_the_socket(name, tmp_path):
    address = str(tmp_path / "car")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    number = getattr(signal, name)
    before = signal.signal(number, signal.default_int_handler)  # a suite in the background, or under nohup, ignores it
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    try:
        process = subprocess.Popen([sys.executable, "-c", LOUD, address], env=environment, **pipes)
    finally:
        signal.signal(number, before)
    try:
        assert process.stdout is not None and process.stdout.readline() == f"serving loud:car at {address}\n"
        backend = RemoteBackend(address, patience=5.0)
        CONTROLLERS.append(backend)
        backend.connect()
        backend.reset("teleport")
        wait_for(lambda: drive(backend).accepted)
        process.send_signal(getattr(signal, name))
        process.send_signal(getattr(signal, name))  # once more, while it stops
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    lines = out.splitlines()
    moving = max(number for number, line in enumerate(lines) if line == "sent 0.1 0.3")
    assert lines[moving + 1] == "sent 0.0 0.0" and lines[-2:] == ["sent 0.0 0.0", "closed"]
    assert process.returncode == 0 and "Traceback" not in err and not os.path.lexists(address)
    backend.close()


@pytest.mark.parametrize(
    ("argv", "code", "sentence"),
    [
        ([], 2, "give ADDRESS and BACKEND"),
        (["0.0.0.0:5001", "sim"], 2, "make an SSH tunnel"),
        (["lab:5001", "stop"], 2, "make an SSH tunnel"),
        (["precious.txt", "sim"], 2, "cannot listen at precious.txt: it is there and no socket"),
        (["car", "smi"], 2, 'did you mean "sim"'),
        (["car", "sim", "clock=simulated"], 2, "needs a clock that moves"),
        (["car", "sim", "supervisor.speed_cpa=1"], 2, "speed_cpa"),
        (["car", "sim", "supervisor.speed_cap=-1"], 2, "speed_cap' must be positive"),
        (["car", "sim", "supervisor.field_x=[2,1]"], 2, "two rising numbers"),
        (["car", "sim", "supervisor=1"], 2, "option of the backend sim"),
        (["nobody", "stop"], 1, "use the switch"),
    ],
)
def test_the_command_refuses_in_one_sentence(argv, code, sentence, tmp_path, monkeypatch, capsys):
    from sombrl.hardware.remote import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(SystemExit) as caught:
        main(argv)
    err = capsys.readouterr().err
    assert caught.value.code == code and sentence in err and err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]
    assert (tmp_path / "precious.txt").read_text() == "mine"
