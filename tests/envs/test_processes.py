"""Worker processes: the same bits as without, every failure a sentence, and nothing left behind."""

import functools
import gc
import os
import signal
import subprocess
import sys
import time

import gymnasium
import numpy as np
import pytest

from sombrl.envs.adapters.gymnasium import GymnasiumEnvs
from sombrl.envs.adapters.processes import ProcessEnvs
from sombrl.envs.joined import JoinedEnvs
from sombrl.envs.registry import make_envs
from sombrl.records import RunFault, SombrlError

from .tiny import Gallery, Tiny

ON = np.ones(3, bool)


def pool(fault=None, workers=2, seeds=(5, 6, 7), **options):
    """Three rows in two processes; what goes wrong does so on the third step."""
    kwargs = {"fault": fault}
    return make_envs(Tiny, seeds, env_kwargs=kwargs, episode_length=20, workers=workers, **options)


def pids(envs):
    return [worker.process.pid for worker in envs._workers]


def gone(pid):
    """Ended and waited for: not even a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def dmc_or_skip():
    pytest.importorskip("dm_control", reason="dm_control is not installed: pip install 'sombrl[dmc]'")


def test_rows_are_those_of_one_process_and_states_are_exchanged():
    dmc_or_skip()
    name, rng = "dmc:humanoid-walk", np.random.default_rng(0)
    serial, apart = (make_envs(name, range(3), action_repeat=2, workers=workers) for workers in (0, 3))
    assert isinstance(apart, ProcessEnvs) and apart.spec == serial.spec and not apart._workers
    np.testing.assert_array_equal(serial.reset(1), apart.reset(1))
    for t in range(8):
        actions, active = rng.uniform(-1, 1, (3, 21)), np.array([True, t % 2 == 0, t != 3])
        one, two = serial.step(actions, active), apart.step(actions, active)
        for field in ("obs", "reward", "terminated", "truncated"):
            left, right = getattr(one, field), getattr(two, field)
            assert left.tobytes() == right.tobytes() and left.dtype == right.dtype
    saved, other = serial.get_state(), apart.get_state()
    assert saved.keys() == other.keys()
    assert all(saved[k].tobytes() == other[k].tobytes() and saved[k].dtype == other[k].dtype for k in saved)
    actions = rng.uniform(-1, 1, (3, 21))
    after = serial.step(actions, ON)
    apart.step(-actions, ON)
    apart.set_state(saved)
    assert apart.step(actions, ON).obs.tobytes() == after.obs.tobytes()
    serial.set_state(other)
    assert serial.step(actions, ON).obs.tobytes() == after.obs.tobytes()
    np.testing.assert_array_equal(serial.physical(actions), apart.physical(actions))
    apart.close()


def test_workers_do_without_jax_and_without_pictures():
    dmc_or_skip()
    envs, ours = make_envs("dmc:cartpole-swingup", [0], workers=1), pool(workers=1, seeds=[0])
    for each in (envs, ours):
        each.reset(0)
        with open(f"/proc/{pids(each)[0]}/maps") as file:
            maps = file.read()
        assert "numpy" in maps and "jaxlib" not in maps and "libEGL" not in maps
        each.close()


def importing_sombrl():
    """As a user's environment might."""
    import sombrl

    assert issubclass(sombrl.SombrlError, Exception) and sombrl.__version__
    return Tiny()


def test_workers_can_import_the_package():
    envs, serial = (make_envs(importing_sombrl, [0], episode_length=5, workers=workers) for workers in (1, 0))
    np.testing.assert_array_equal(envs.reset(0), serial.reset(0))
    envs.close()


def test_histories_of_different_lengths_are_joined():
    envs, serial = pool(), pool(workers=0)
    for each in (envs, serial):
        each.reset(0)
        each.step(np.zeros((3, 2)), ON)
        each.reset_rows(np.array([True, False, False]), np.array([4, 0, 0]))
        each.step(np.zeros((3, 2)), np.array([False, False, True]))
    left, right = envs.get_state(), serial.get_state()
    assert all(np.array_equal(left[key], right[key]) for key in right) and left.keys() == right.keys()
    envs.close()


@pytest.mark.thorough
def test_lots_work_side_by_side():
    lots, alone = [pool(), pool(seeds=(8, 9))], pool(seeds=(8, 9))
    joined, owed = JoinedEnvs(lots), []
    begin = lots[1].begin_step

    def watched(*given):
        owed.append([worker.owes for worker in lots[0]._workers])
        return begin(*given)

    lots[1].begin_step = watched
    joined.reset(0), alone.reset(0)
    actions = np.linspace(-1, 1, 10, dtype=np.float32).reshape(5, 2)
    both, last = joined.step(actions, np.ones(5, bool)), alone.step(actions[3:], np.ones(2, bool))
    assert owed == [[1, 1]]  # asked, and nothing has waited for the answers yet
    np.testing.assert_array_equal(both.obs[3:], last.obs)
    for envs in (*lots, alone):
        envs.close()


def test_rows_are_spread_evenly():
    spans = ProcessEnvs(GymnasiumEnvs, "Pendulum-v1", range(5), workers=2)._spans
    assert [last - first for first, last in spans] in ([2, 3], [3, 2])
    assert len(ProcessEnvs(GymnasiumEnvs, "Pendulum-v1", range(2), workers=9)._spans) == 2


@pytest.mark.parametrize(
    "fault, kind, told",
    [
        ("nan observation", RunFault, r"Tiny \(seed 5, episode 2, step 2\): observation\[1\] is nan"),
        ("no reward", SombrlError, "single number"),
    ],
)
def test_failures_arrive_as_they_would_without_processes(fault, kind, told):
    envs = pool(fault)
    envs.reset(2)
    for _ in range(2):
        envs.step(np.zeros((3, 2)), ON)
    with pytest.raises(kind, match=told):
        envs.step(np.zeros((3, 2)), ON)
    with pytest.raises(RunFault, match=r"seed 7, episode 0, step 0\): action\[1\] is nan"):  # they still answer
        envs.reset(0)
        envs.step(np.array([[0, 0], [0, 0], [0, np.nan]]), ON)
    envs.close()


def test_a_failure_to_make_one_comes_at_once():
    with pytest.raises(SombrlError, match="infinite bounds"):
        make_envs(Tiny, [0], env_kwargs={"action_space": gymnasium.spaces.Box(-np.inf, 1, (2,))}, workers=1)


def test_an_id_that_only_this_process_knows():
    envs = make_envs("sombrl-tests/Tiny-v0", [0], workers=1)  # registered by the test, not by a module of its own
    with pytest.raises(SombrlError, match='unknown environment "sombrl-tests/Tiny-v0"'):
        envs.reset(0)
    envs.close()
    named = make_envs(f"{Tiny.__module__}:sombrl-tests/Tiny-v0", [0], workers=1)
    named.reset(0)
    named.close()


@pytest.mark.parametrize("source", [lambda: Tiny(), Tiny()], ids=["lambda", "ready"])
def test_what_cannot_move_to_a_process(source):
    with pytest.raises(SombrlError, match="env_workers 0") as error:
        make_envs(source, [0], episode_length=5, workers=1)
    assert "\n" not in str(error.value)


def test_a_killed_worker_is_a_fault_and_not_a_hang():
    envs = pool()
    envs.reset(0)
    children = pids(envs)
    os.kill(children[1], signal.SIGKILL)
    start = time.monotonic()
    for _ in range(2):  # also when asked again
        with pytest.raises(RunFault, match=r"the worker process of seeds? .*7 ended \(killed by signal 9\)"):
            envs.step(np.zeros((3, 2)), ON)
    assert time.monotonic() - start < 5
    envs.close()
    envs.close()
    assert all(map(gone, children))
    with pytest.raises(SombrlError, match="was closed"):
        envs.reset(0)


def test_a_killed_worker_is_replaced_where_that_was_asked_for(caplog):
    envs, serial = pool(restart=True), pool(workers=0)
    start = envs.reset(0)
    np.testing.assert_array_equal(start, serial.reset(0))
    zeros, first, children = np.zeros((3, 2)), slice(*envs._spans[0]), pids(envs)
    before = envs.step(zeros, ON)
    serial.step(zeros, ON)
    os.kill(children[1], signal.SIGKILL)
    mine, theirs = envs.step(zeros, ON), serial.step(zeros, ON)
    lost = slice(*envs._spans[1])
    assert mine.truncated[lost].all() and not mine.terminated.any() and not mine.truncated[first].any()
    assert (mine.reward[lost] == 0).all() and np.array_equal(mine.obs[lost], before.obs[lost])
    np.testing.assert_array_equal(mine.obs[first], theirs.obs[first])
    np.testing.assert_array_equal(mine.reward[first], theirs.reward[first])
    assert "killed by signal 9" in caplog.text and "episodes are cut short" in caplog.text
    with pytest.raises(SombrlError, match="is over; call reset"):
        envs.step(zeros, ON)
    new = pids(envs)
    assert new[0] == children[0] and new[1] != children[1] and gone(children[1])
    over = mine.truncated
    np.testing.assert_array_equal(  # the next episode is what it would have been, and the others stay where they are
        envs.reset_rows(over, np.full(3, 4)), serial.reset_rows(over, np.full(3, 4))
    )
    for _ in range(2):
        mine, theirs = envs.step(zeros, ON), serial.step(zeros, ON)
        assert mine.obs.tobytes() == theirs.obs.tobytes() and mine.reward.tobytes() == theirs.reward.tobytes()
    left, right = envs.get_state(), serial.get_state()
    assert all(np.array_equal(left[key], right[key]) for key in right)
    envs.close()
    assert all(map(gone, new))


def test_signals_to_all_are_for_the_parent_alone():
    """A scheduler sends them to every process of a job, and the parent has a report to finish."""
    envs = pool()
    envs.reset(0)
    children = pids(envs)
    for pid in children:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    assert not envs.step(np.zeros((3, 2)), ON).truncated.any() and pids(envs) == children
    envs.close()
    assert all(map(gone, children))


def test_rows_that_were_resting_learn_of_it_when_they_wake():
    envs = pool(restart=True, workers=1)
    seen = envs.reset(0)
    only = np.array([True, False, False])
    os.kill(pids(envs)[0], signal.SIGKILL)
    step = envs.step(np.zeros((3, 2)), only)
    assert step.truncated.tolist() == [True, False, False] and np.array_equal(step.obs, seen)
    now = envs.reset_rows(only, np.full(3, 1))
    assert np.array_equal(now[1:], seen[1:]) and not np.array_equal(now[0], seen[0])
    step = envs.step(np.zeros((3, 2)), np.array([True, True, False]))
    assert step.truncated.tolist() == [False, True, False] and np.array_equal(step.obs[1:], seen[1:])
    envs.close()


def test_a_death_between_decisions_costs_a_reset_nothing():
    envs, serial = pool(restart=True, workers=1), pool(workers=0)
    envs.reset(0)
    os.kill(pids(envs)[0], signal.SIGKILL)
    np.testing.assert_array_equal(envs.reset(1), serial.reset(1))
    step = envs.step(np.zeros((3, 2)), ON)
    assert step.obs.tobytes() == serial.step(np.zeros((3, 2)), ON).obs.tobytes() and not step.truncated.any()
    envs.close()


def dying(parent):
    """Ends its process when made in one: in the parent it is only looked at."""
    if os.getpid() != parent:
        os._exit(3)
    return Tiny()


@pytest.mark.thorough
def test_a_worker_that_cannot_live_is_a_fault_all_the_same():
    envs = make_envs(functools.partial(dying, os.getpid()), [0], episode_length=5, workers=1, restart=True)
    with pytest.raises(RunFault, match=r"ended \(exit code 3\)"):
        envs.reset(0)
    envs.close()
    envs = pool(restart=True, workers=1)
    envs.reset(0)
    os.kill(pids(envs)[0], signal.SIGKILL)
    envs.step(np.zeros((3, 2)), ON)
    os.kill(pids(envs)[0], signal.SIGKILL)  # again, before a single decision
    with pytest.raises(RunFault, match="killed by signal 9"):
        envs.reset(1)
    envs.close()


def test_a_simulator_that_raises_late_is_replaced(caplog, monkeypatch):
    """By accident, that is; one that raises soon is wrong, and says so."""
    monkeypatch.setattr("sombrl.envs.adapters.processes.ACCIDENT", 2)
    envs, zeros = pool("raises", workers=1, restart=True), np.zeros((3, 2))
    envs.reset(0)
    envs.step(zeros, ON)
    before = envs.step(zeros, ON)
    step = envs.step(zeros, ON)
    assert step.truncated.all() and not step.terminated.any() and np.array_equal(step.obs, before.obs)
    assert "step failed with" in caplog.text and "episodes are cut short" in caplog.text
    envs.reset(1)
    envs.step(zeros, ON)
    envs.close()
    monkeypatch.setattr("sombrl.envs.adapters.processes.ACCIDENT", 3)
    envs = pool("raises", workers=1, restart=True)
    envs.reset(0)
    envs.step(zeros, ON)
    envs.step(zeros, ON)
    with pytest.raises(RunFault, match="step failed with"):
        envs.step(zeros, ON)
    envs.close()


def test_bytes_and_choices_travel_too():
    serial, apart = (make_envs(Gallery, range(3), episode_length=9, workers=workers) for workers in (0, 3))
    assert np.array_equal(serial.reset(0), apart.reset(0))
    rng = np.random.default_rng(0)
    for _ in range(5):
        actions = rng.normal(size=(3, 3))
        one, two = serial.step(actions, ON), apart.step(actions, ON)
        assert one.obs.tobytes() == two.obs.tobytes() and two.obs.dtype == np.uint8
        assert one.reward.tobytes() == two.reward.tobytes()
    np.testing.assert_array_equal(apart.physical(actions), 5 + np.argmax(actions, axis=1))
    apart.close()


def test_workers_end_with_the_object():
    envs = pool()
    envs.start()
    children = pids(envs)
    assert len(children) == 2
    del envs
    gc.collect()
    assert all(map(gone, children))


PROGRAM = """
import signal
import numpy as np
from sombrl.envs.registry import make_envs
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
envs = make_envs("Pendulum-v1", [0, 1], workers=2)  # no `if __name__ == "__main__"` is needed
envs.reset(0)
print(*[worker.process.pid for worker in envs._workers], flush=True)
while True:
    envs.step(np.zeros((2, 1)), np.ones(2, bool))
    if envs.get_state()["over"].all():
        envs.reset(1)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(sent):
    parent = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    children = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(children) == 2
    parent.send_signal(sent)
    try:
        _, told = parent.communicate(timeout=60)
    finally:
        parent.kill()  # or a failure would keep a core busy for all tests after it
    assert told.count("Traceback") == (sent == signal.SIGINT)  # of the parent alone
    deadline = time.monotonic() + 20
    while not all(map(gone, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert all(map(gone, children))


def test_an_interrupt_loses_no_answer(monkeypatch):
    """Ctrl-C while a step is under way; then the run saves itself."""
    envs, serial = pool(), pool(workers=0)
    for each in (envs, serial):
        each.reset(0)
        each.step(np.zeros((3, 2)), ON)
    link = envs._workers[1].link
    read = link._read

    def interrupted():
        link._read = read
        raise KeyboardInterrupt

    link._read = interrupted
    with pytest.raises(KeyboardInterrupt):
        envs.step(np.zeros((3, 2)), ON)
    serial.step(np.zeros((3, 2)), ON)
    left, right = envs.get_state(), serial.get_state()
    assert all(np.array_equal(left[key], right[key]) for key in right)
    envs.close()


def test_pictures_come_from_the_worker():
    envs = pool(render=True, workers=1)
    envs.reset(0)
    assert envs.render(2).shape == (4, 6, 3)
    envs.close()
