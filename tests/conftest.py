"""What holds for all tests."""

import fcntl
import logging
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from stringline.datasets.command.entry_points import keep_freed_memory

# Tests run in several processes; threads that wait for each other's processors would make each of
# them slower.
os.environ["OMP_NUM_THREADS"] = "1"
keep_freed_memory()

# Begun in the background of a shell, this process ignores Ctrl-C, and so would every command that a
# test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Device processes keep deadlines of milliseconds, and a Ray cluster takes all processors while it
# starts: one after the other, and whatever runs beside them gives way.
ONE_AFTER_THE_OTHER = (
    "tests/real_robot/",
    "tests/benchmarks/test_soak.py",
    "tests/sim/rollout/test_ray_cluster.py",
    "tests/sim/rollout/test_dispatch.py",
    "tests/sim/test_launchers.py",
)
# Long ones among these that only compute, or go in lock-step.
BESIDE_OTHERS = (
    "tests/real_robot/test_boundaries.py",
    "tests/real_robot/calibration/test_calibration_settings.py",
    "tests/real_robot/calibration/test_calibration_solvers.py",
    "tests/real_robot/calibration/test_displaced_cameras.py",
    "tests/real_robot/drivers/dynamixel/test_protocol.py",
    "tests/real_robot/drivers/fri/test_fri_codec.py",
    "tests/real_robot/safety/test_filter_properties.py",
    "tests/real_robot/safety/test_adversarial_cells.py",
    "tests/real_robot/safety/test_keep_clear.py",
    "tests/real_robot/safety/test_filter.py",
    "tests/real_robot/safety/test_robot_stages.py",
)
GIVES_WAY = 10


@pytest.fixture(autouse=True)
def logging_ends_with_its_test() -> Iterator[None]:
    """Removes log handlers after each test, since its standard error is closed then."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    for handler in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the results that long tests report by `record_property("says", ...)`."""
    for report in terminalreporter.getreports("passed"):
        for name, words in report.user_properties:
            if name == "says":
                terminalreporter.write_line(str(words))


def goes_in_turn(nodeid: str) -> bool:
    """Whether a test must not run beside another one of its kind."""
    return nodeid.startswith(ONE_AFTER_THE_OTHER) and not nodeid.startswith(BESIDE_OTHERS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keeps tests of a file together with `--dist loadfile`, and sequential ones in one worker.

    Marks of groups would do, but with pytest 9.2 pytest-xdist 3.8 does not heed them (its issue
    1386).
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class InTurn(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "in turn" if goes_in_turn(nodeid) else super()._split_scope(nodeid)

    return InTurn(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Runs sequential tests one at a time, whatever the distribution; lowers others' priority."""
    if not goes_in_turn(item.nodeid):
        # The largest group, those in turn, comes first.
        if "PYTEST_XDIST_WORKER" in os.environ:
            os.nice(max(0, GIVES_WAY - os.nice(0)))
        return (yield)
    with open(__file__) as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        try:
            return (yield)
        finally:
            fcntl.flock(turn, fcntl.LOCK_UN)
