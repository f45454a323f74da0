"""What a run does when it is told to stop: after this report, at the next decision, at once, or when it has saved."""

import gc
import os
import signal
import threading

import pytest

from sombrl.agent.make import load
from sombrl.runs import signals
from sombrl.runs.signals import Signals
from sombrl.runs.train import Interrupted, Run, run_training
from sombrl.storage.run_folder import RunFolder
from tests.small import reproducible_rows, small
from tests.waiting import wait_for


@pytest.fixture(autouse=True)
def handlers(monkeypatch):
    """A suite started in the background ignores Ctrl-C; two signals count as two; all is as it was afterwards."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    terminate = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(signals, "ONE_PRESS", 0.0)
    try:
        yield
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGTERM) is terminate and signal.set_wakeup_fd(-1) == -1
    finally:
        signal.signal(signal.SIGINT, old)


def send(number=signal.SIGINT):
    os.kill(os.getpid(), number)


@pytest.fixture
def said(monkeypatch):
    sentences = []
    monkeypatch.setattr(signals, "_tell", sentences.append)
    return sentences


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("rewinds", [True, False])
def test_one_signal_waits_for_a_place_to_stop_at(number, rewinds, said):
    reached = []
    with pytest.raises(KeyboardInterrupt), Signals(rewinds) as told:
        told.decision(0, 10)
        told.report()
        told.decision(0, 10)
        told.decision(1, 10)
        send(number)
        wait_for(lambda: said)
        told.decision(2, 10)
        reached.append("the end of the report")
        told.report()
        reached.append("the next one")
    assert reached == ([] if rewinds else ["the end of the report"])
    where = "stopping at the next decision" if rewinds else "stopping after this report, in about 0 s"
    assert len(said) == 1 and said[0].startswith(where)


def test_a_second_signal_stops_at_once(capsys):
    with pytest.raises(KeyboardInterrupt), Signals(False) as told:
        send()
        told.decision(0, 10)
        send()
        wait_for(lambda: False)
    assert "sombrl: stopping at once" in capsys.readouterr().err


def test_no_signal_is_lost_in_the_garbage_collector():
    """What is raised in its callbacks goes nowhere."""
    reached = []

    def callback(phase, info):
        if phase == "start" and not reached:
            reached.append("start")
            send()
            send()
            wait_for(lambda: told._twice)
            reached.append("end")

    gc.callbacks.append(callback)
    try:
        with pytest.raises(KeyboardInterrupt), Signals(False) as told:
            gc.collect()
            wait_for(lambda: False)
    finally:
        gc.callbacks.remove(callback)
    assert reached == ["start", "end"]


def test_no_signal_is_lost_in_a_finaliser():
    """What is raised there goes nowhere either."""
    reached = []

    class Slow:
        def __del__(self):
            send()
            send()
            wait_for(lambda: told._twice)
            reached.append("end")

    with pytest.raises(KeyboardInterrupt), Signals(False) as told:
        Slow()
        wait_for(lambda: False)
    assert reached == ["end"]


def test_a_signal_that_a_launcher_passes_on_is_not_a_second_one(monkeypatch, said):
    monkeypatch.setattr(signals, "ONE_PRESS", 60.0)
    with pytest.raises(KeyboardInterrupt), Signals(False) as told:
        send()
        send()
        wait_for(lambda: said)
        told.decision(0, 10)
        told.report()
    assert len(said) == 1


def test_who_is_terminated_has_little_time(monkeypatch):
    monkeypatch.setattr(signals, "PATIENCE", 0.01)
    with pytest.raises(KeyboardInterrupt), Signals(False):
        send(signal.SIGTERM)
        wait_for(lambda: False)


def test_what_is_held_comes_to_its_end():
    reached = []
    with pytest.raises(KeyboardInterrupt), Signals(False) as told:
        with told.held():
            send()
            send()
            wait_for(lambda: told._twice)
            reached.append("end")
        reached.append("beyond")
    assert reached == ["end"]


def test_a_signal_that_comes_too_late_is_not_lost():
    """Nothing is left to be stopped here, but the caller may have more to do."""
    with pytest.raises(KeyboardInterrupt), Signals(True):
        send()


def test_nohup_stays_nohup():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Signals(True) as told:
            send()
            told.decision(0, 1)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.thorough
def test_runs_of_another_thread_and_an_evaluation_that_was_broken_off(tmp_path):
    """In a thread there are no signals. In the main one, the report is kept without the number that was on its way."""
    whole, stopped = (small(seeds=1, eval_every=1, eval_episodes=1) for _ in range(2))
    folders = [RunFolder.create(tmp_path / name, whole.to_json(), ["test"]) for name in ("whole", "stopped")]
    thread = threading.Thread(target=run_training, args=([Run(whole, folders[0], False)], 3, 3, False))
    thread.start()
    thread.join()
    assert whole.iteration == 3 and load(folders[0].path).iteration == 3

    evaluate = stopped.evaluate

    def evaluated(episodes):
        if stopped.iteration < 2:
            return evaluate(episodes)
        send()
        send()
        return wait_for(lambda: False)

    stopped.evaluate = evaluated
    with pytest.raises(Interrupted, match="2 of 3 iterations are saved; continue with"):
        run_training([Run(stopped, folders[1], False)], 3, 3, tensorboard=False)
    assert load(folders[1].path).iteration == 2
    rows = reproducible_rows(folders[0].path)
    del rows[1]["eval/ep_rew_mean"]
    assert reproducible_rows(folders[1].path) == rows[:2]


@pytest.mark.thorough
def test_a_report_whose_metrics_are_not_written_yet_is_not_lost(tmp_path):
    """Stopped at once in between; of a checkpoint without its metrics, or of metrics without it, there is none."""
    trained = small(seeds=1)
    rows = trained.rows

    def interrupted(report):
        if report.iteration == 1:
            trained.rows = rows
            raise KeyboardInterrupt
        return rows(report)

    trained.rows = interrupted
    folder = RunFolder.create(tmp_path / "run", trained.to_json(), ["test"])
    with pytest.raises(Interrupted, match="2 of 3 iterations are saved"):
        run_training([Run(trained, folder, False)], 3, 3, tensorboard=False)
    assert load(folder.path).iteration == 2 and [row["iteration"] for row in folder.rows()] == [0, 1]


def test_a_last_report_leaves_nothing_to_continue(tmp_path):
    trained = small(seeds=1, episodes=1)
    folder = RunFolder.create(tmp_path / "run", trained.to_json(), ["test"])
    run = Run(trained, folder, False, hook=lambda agent, report: send())
    with pytest.raises(Interrupted, match=r"^1 of 1 iterations are saved$"):
        run_training([run], 1, 1, tensorboard=False)
