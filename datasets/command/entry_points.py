"""The console scripts: each imports the module of its command only to run it.

So `--help` and `--version` load neither torch nor the simulation, processes that a command spawns
import only what they use, and Ctrl-C during the imports ends the command in one line. Before the
imports, two settings of the process are made: how OpenMP threads wait for their next work, and how
malloc treats arrays of some MB that are made and dropped at every step.
"""

import ctypes
import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from stringline.datasets.command.installation import (
    graphics_error,
    installed_version,
    missing_package,
)

_POLICY = "OMP_WAIT_POLICY"
_SPINS = "GOMP_SPINCOUNT"

# Seconds per step of a KUKA training on two virtual cores: one training alone, compiled and not
# compiled; two trainings at the same time, not compiled. On a busy host, a step of
# the demonstration took 1.27, 1.17 and 1.29 s with no spins, 1,000 and active waiting.
#
#   passive (0 spins)   1.5    0.80    2.0
#   1,000 spins         0.53   0.77    2.05
#   10,000 spins        0.48   0.69    2.5
#   libgomp's default   not measured   2.9
#   active              0.45   0.65    not measured
_BRIEF = 1000


def wait_briefly() -> None:
    """Makes OpenMP threads spin for some microseconds and then sleep.

    Threads that sleep at once must be woken for each of the thousands of short operations of a
    training step, which is slow on virtual machines. Threads that spin for long take the processor
    from other programs. libgomp reads the number of spins; other implementations of OpenMP do not
    know it, so their threads sleep at once.

    Must be called before torch is imported. Variables of the environment that the user has set
    have priority.
    """
    if _POLICY in os.environ or _SPINS in os.environ:
        return
    os.environ[_POLICY] = "PASSIVE"
    os.environ[_SPINS] = str(_BRIEF)


# Parameters of mallopt(3) and the variables from which glibc reads them at the start of a process.
_TRIM = (-1, "MALLOC_TRIM_THRESHOLD_")
_MMAP = (-3, "MALLOC_MMAP_THRESHOLD_")

_KEPT_BYTES = 2**31 - 1  # The largest number that mallopt takes.
_BLOCK_BYTES = (2**30, 2**25)  # Versions of glibc before 2.35 refuse more than 32 MiB.


def keep_freed_memory() -> bool:
    """Makes malloc keep freed memory for later allocations, here and in child processes.

    By default, glibc returns large blocks to the system and fetches them again page by page. On two
    cores this took 15 % of a training step, and most of the time in which a batch is loaded.
    Variables of the environment that the user has set have priority.

    Returns:
        Whether malloc has been set: glibc has these settings, macOS and musl do not.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(name in os.environ for _, name in (_TRIM, _MMAP)):
        return False
    trim, trim_name = _TRIM
    mmap, mmap_name = _MMAP
    accepted = next((size for size in _BLOCK_BYTES if mallopt(mmap, size)), None)
    if accepted is None or not mallopt(trim, _KEPT_BYTES):
        return False
    os.environ[mmap_name] = str(accepted)
    os.environ[trim_name] = str(_KEPT_BYTES)
    return True


# As in application.py, whose import needs Hydra.
USER_ERROR = 2
INTERRUPTED = 130

COMMANDS = {
    "collect": "stringline.sim.collect",
    "compare": "stringline.sim.compare",
    "data": "stringline.datasets.data",
    "demo": "stringline.real_robot.demo",
    "deploy": "stringline.real_robot.deploy",
    "eval": "stringline.sim.evaluate",
    "experiment": "stringline.sim.experiment",
    "incident": "stringline.real_robot.incident",
    "perceive": "stringline.encoders.perceive",
    "replay": "stringline.sim.replay",
    "scenes": "stringline.sim.generate",
    "serve": "stringline.policies.serve",
    "teleop": "stringline.sim.teleoperate",
    "train": "stringline.sim.train",
    "view": "stringline.datasets.view",
}
"""The module of each command, which has a function `main`. Its configuration has the same name."""

RECORDINGS = "stringline.sim.evaluate_recordings"
"""The module of `stringline-eval dataset=STORE`, which needs no simulation."""
OPTIONS_OF_VERBS = "data"


def start(command: str) -> None:
    """Runs a command.

    Args:
        command: A name in `COMMANDS`.
    """
    wait_briefly()
    keep_freed_memory()
    try:
        _run(command)
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped.\n")
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        message = _of_import(error)
        if message is None:
            raise
        sys.stderr.write(f"{Path(sys.argv[0]).name}{message}\n")
        raise SystemExit(USER_ERROR) from None


def _of_import(error: Exception) -> str | None:
    """Returns the message for a missing package or driver; None for other errors."""
    missing = missing_package(error) if isinstance(error, ImportError) else None
    if missing is not None:
        return f" needs {missing}"
    no_driver = graphics_error(error)
    return None if no_driver is None else f": {no_driver}"


def _run(command: str) -> None:
    arguments = set(sys.argv[1:])
    if "--version" in arguments:
        sys.stdout.write(f"stringline {installed_version()}\n")
    elif {"--help", "-h"} & arguments and command != OPTIONS_OF_VERBS:
        from stringline.datasets.command.application import show_help

        show_help(command)
    else:
        on_recordings = command == "eval" and any(
            argument.startswith(("dataset=", "dataset.path=")) for argument in arguments
        )
        import_module(RECORDINGS if on_recordings else COMMANDS[command]).main()


collect = partial(start, "collect")
compare = partial(start, "compare")
data = partial(start, "data")
demo = partial(start, "demo")
deploy = partial(start, "deploy")
evaluate = partial(start, "eval")
experiment = partial(start, "experiment")
incident = partial(start, "incident")
perceive = partial(start, "perceive")
replay = partial(start, "replay")
scenes = partial(start, "scenes")
serve = partial(start, "serve")
teleoperate = partial(start, "teleop")
train = partial(start, "train")
view = partial(start, "view")
