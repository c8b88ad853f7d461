"""Jobs run commands, skip what has ended, and end with the process that started them."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from stringline import LocalCluster, RayCluster, SlurmCluster
from stringline.sim.rollout.jobs import FINISHED, LOG, Job, run_locally

HELP = ("stringline-collect", "--help")
WRONG = ("stringline-collect", "episodez=2")
# A collection that takes long, of which nothing is written into the folder of the job.
LONG = (
    "stringline-collect",
    "episodes=100000",
    "workers=1",
    "task.cameras=[overhead]",
    "task.image_size=16",
    "output=store",
)


def job(folder: Path, *commands: tuple[str, ...]) -> Job:
    return Job("it", commands, folder / "job", folder)


@pytest.mark.slow
def test_a_failed_command_ends_its_job_and_is_run_again(tmp_path: Path) -> None:
    """The reason is the command's own message; what has ended is not run again."""
    first = job(tmp_path, HELP, WRONG)
    assert not first.finished
    ((ended, reason),) = run_locally([first], 1)
    assert ended is first
    assert reason.startswith("stringline-collect: There is no option 'episodez'. Did you mean")
    assert json.loads((first.folder / FINISHED).read_text()) == [list(HELP)]
    written = (first.folder / LOG).read_text()
    assert written.startswith("stringline-collect [group=name ...]")
    again = job(tmp_path, HELP)
    assert again.finished
    assert list(LocalCluster().run_jobs([again], 1)) == [(again, "")]
    assert (first.folder / LOG).read_text() == written


@pytest.mark.slow
def test_the_end_of_the_iteration_ends_running_jobs(tmp_path: Path) -> None:
    long, short = (
        Job(name, commands, tmp_path / name, tmp_path)
        for name, commands in (("long", (LONG,)), ("short", (HELP,)))
    )
    with closing(run_locally([long, short], 2)) as ended:
        assert next(ended) == (short, "")
        assert running(tmp_path)
    assert not running(tmp_path)
    assert not long.finished


def test_a_killed_parent_takes_its_commands_along(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from stringline.sim.rollout.jobs import Job; "
        f"Job('it', ({LONG!r},), Path(sys.argv[1]), Path(sys.argv[1])).run()"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=environment)
    wait_until(lambda: bool(running(tmp_path)))
    parent.kill()
    parent.wait()
    wait_until(lambda: not running(tmp_path))


def running(folder: Path) -> list[psutil.Process]:
    """Processes of the long collection in a folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        info = process.info
        if info["cwd"] == str(folder) and "episodes=100000" in (info["cmdline"] or ()):
            found.append(process)
    return found


def wait_until(holds: object) -> None:
    end = time.monotonic() + 60
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_reason_of_a_killed_command(tmp_path: Path) -> None:
    killer = threading.Thread(target=kill_when_running, args=[tmp_path])
    killer.start()
    reason = job(tmp_path, LONG).run()
    killer.join()
    assert reason == "stringline-collect was ended by SIGKILL; memory may have run out."


def kill_when_running(folder: Path) -> None:
    wait_until(lambda: bool(running(folder)))
    for process in running(folder):
        process.send_signal(signal.SIGKILL)


@pytest.mark.slow
def test_jobs_through_submitit(tmp_path: Path) -> None:
    """Its local variant stands for Slurm."""
    good, bad = (
        Job(name, (command,), tmp_path / name, tmp_path)
        for name, command in (("good", HELP), ("bad", WRONG))
    )
    cluster = SlurmCluster(submit="local", cpus_per_job=1, memory_gb=1)
    outcomes = {job.name: reason for job, reason in cluster.run_jobs([good, bad], 2)}
    assert outcomes["good"] == ""
    assert outcomes["bad"].startswith("stringline-collect: There is no option 'episodez'")


def test_settings_of_clusters() -> None:
    with pytest.raises(ValueError, match=r"'slum'. Did you mean 'slurm'"):
        SlurmCluster(submit="slum")
    with pytest.raises(ValueError, match="hours must be a number above 0"):
        SlurmCluster(hours=0)
    with pytest.raises(ValueError, match="cluster=slurm is for stringline-experiment"):
        SlurmCluster().open(lambda: None, 1, 1)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match=r"gpus_per_job must be a number of at least 0 \(got -1\)"):
        RayCluster(gpus_per_job=-1)
