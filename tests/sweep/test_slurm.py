"""The same sweep through submitit's local executor, its jobs preempted on the way; and SLURM's own commands, mimicked.

Needs the extra `slurm`.
"""

import functools
import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from tests.sweep.tiny import LEARNING, cells, checkpointed, events, finish, start, write
from tests.waiting import wait_for

pytest.importorskip("submitit", reason="needs the extra `slurm`")
pytestmark = pytest.mark.slow


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_preempted_jobs_go_back_to_the_queue_and_go_on(tmp_path):
    spec, sweep, whole = write(tmp_path), tmp_path / "sweep", tmp_path / "whole"
    command = ["sweep", spec, LEARNING, "explore=optimistic,greedy", "seed=0,2,4"]
    slurm = ["--backend", "slurm", "--slurm-local", "--workers", "2"]
    driver = start(*command, *slurm, "--out", sweep)
    wait_for(lambda: bool(cells(sweep)), driver)
    preempted = []
    for cell in cells(sweep)[:3]:
        wait_for(functools.partial(checkpointed, cell), driver)
        if not (cell / "rows.csv").exists():
            # The worker is a child of submitit's process, which SLURM warns like this before it takes the node away.
            os.kill(parent(events(cell, "started")[0]["pid"]), signal.SIGUSR2)
            preempted.append(cell)
    assert preempted
    finish(driver)
    for cell in preempted:
        before, after = events(cell, "started")
        assert before["iteration"] == 0 and after["iteration"] >= 1 and before["pid"] != after["pid"]
        assert events(cell, "broke") == []  # a preemption is not a failure
    finish(start(*command, "--workers", "2", "--out", whole, PJRT_NPROC="1"))
    assert (sweep / "results.csv").read_bytes() == (whole / "results.csv").read_bytes()


def test_the_driver_dies_and_the_jobs_go_on(tmp_path):
    spec, sweep, whole = write(tmp_path), tmp_path / "sweep", tmp_path / "whole"
    command = ["sweep", spec, LEARNING, "--backend", "slurm", "--slurm-local", "--workers", "1"]
    driver = start(*command, "--out", sweep)
    wait_for(lambda: bool(cells(sweep)), driver)
    first = cells(sweep)[0]
    wait_for(lambda: checkpointed(first), driver)
    driver.kill()
    driver.communicate()
    again = start(*command, "--out", sweep)
    out, _ = finish(again)
    assert len(events(first, "started")) == 1  # its job went on without a driver, and was waited for
    assert "is in the hands of another process" in out or "finished already" in out
    finish(start(*command, "--out", whole))
    assert (sweep / "results.csv").read_bytes() == (whole / "results.csv").read_bytes()


FAKE = {
    # What submitit calls, on a cluster of one node: a queue of folders, each an array's task.
    "srun": "#!/bin/sh\nexit 0\n",
    "sbatch": """#!{python}
import os, re, subprocess, sys
text = open(sys.argv[-1]).read()
tasks = int((re.search(r"--array=0-(\\d+)", text) or re.search(r"()", text)).group(1) or 0) + 1
number = str(1000 + len(os.listdir(os.environ["FAKE_SLURM"])))
os.mkdir(os.path.join(os.environ["FAKE_SLURM"], number))
open(os.path.join(os.environ["FAKE_SLURM"], number, "script"), "w").write(text)
print("Submitted batch job " + number)
""",
    "sacct": """#!{python}
import os
print("JobID|State|NodeList")
for number in os.listdir(os.environ["FAKE_SLURM"]):
    print(number + "_[0-1]|PENDING|None assigned")
""",
    "scancel": "#!/bin/sh\nexit 0\n",
}


def test_a_new_driver_finds_the_jobs_that_wait_in_the_queue(tmp_path):
    """The queue never moves here: what is tested is that nothing is submitted twice."""
    tools, queue, sweep = tmp_path / "bin", tmp_path / "queue", tmp_path / "sweep"
    tools.mkdir()
    queue.mkdir()
    for name, text in FAKE.items():
        (tools / name).write_text(text.replace("{python}", sys.executable))
        (tools / name).chmod(stat.S_IRWXU)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "FAKE_SLURM": str(queue)}
    options = ["--backend", "slurm", "--partition", "gpu", "--minutes", "60", "--memory", "4", "--cpus-per-cell", "2"]
    command = ["sweep", write(tmp_path), *options, "--out", sweep]
    driver = start(*command, **environment)
    assert "[1/2]" in driver.stdout.readline()
    driver.send_signal(signal.SIGINT)
    _, err = finish(driver, code=130)
    assert "2 jobs are queued or running and go on without this command" in err
    (script,) = [(path / "script").read_text() for path in queue.iterdir()]
    for line in ("array=0-1", "partition=gpu", "time=60", "mem=4GB", "cpus-per-task=2", "signal=USR2@90"):
        assert f"#SBATCH --{line}" in script, script
    driver = start(*command, **environment)
    assert "[1/2]" in driver.stdout.readline()
    driver.send_signal(signal.SIGINT)
    finish(driver, code=130)
    assert len(list(queue.iterdir())) == 1


def test_no_slurm_here(tmp_path):
    environment = {"PATH": "/nowhere"}
    command = ["sweep", write(tmp_path), "--backend", "slurm", "--out", tmp_path / "sweep"]
    _, err = finish(start(*command, **environment), code=2)
    assert "there is no SLURM here" in err and err.count("\n") == 1 and not (tmp_path / "sweep").exists()
    _, err = finish(start(*command, "--slurm-local", "--gpus-per-cell", "0.5"), code=2)
    assert "whole GPUs" in err
