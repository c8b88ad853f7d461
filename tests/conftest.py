"""What holds for all tests."""

import logging
import os
import signal
from collections.abc import Iterator

import pytest

# Tests run in several processes; threads that wait for each other's processors would make each of them slower.
os.environ["OMP_NUM_THREADS"] = "1"

# Begun in the background of a shell, this process ignores Ctrl-C, and so would every command that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Device processes keep deadlines of milliseconds, and a Ray cluster takes all processors while it starts: one after the other,
# and whatever runs beside them gives way.
ONE_AFTER_THE_OTHER = (
    "tests/real_robot/",
    "tests/benchmarks/test_soak.py",
    "tests/sim/test_ray_cluster.py",
    "tests/sim/test_losses.py",
    "tests/sim/test_launchers.py",
)
IN_TURN = "in turn"
GIVES_WAY = 10


@pytest.fixture(autouse=True)
def logging_ends_with_its_test() -> Iterator[None]:
    """A command logs to the standard error of its test, which is closed afterwards; threads that end later would find it so."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    for handler in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows what long tests have to say (`record_property("says", ...)`), in whichever process they ran."""
    for report in terminalreporter.getreports("passed"):
        for name, words in report.user_properties:
            if name == "says":
                terminalreporter.write_line(str(words))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Groups tests for `--dist loadgroup`: those of a file stay together, and those that disturb each other run in turn."""
    for item in items:
        file = item.path.relative_to(config.rootpath).as_posix()
        item.add_marker(pytest.mark.xdist_group(IN_TURN if file.startswith(ONE_AFTER_THE_OTHER) else file))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lowers the priority of a worker for good once it takes other tests; the largest group, those in turn, comes first."""
    group = item.get_closest_marker("xdist_group")
    beside = "PYTEST_XDIST_WORKER" in os.environ and group is not None and group.args != (IN_TURN,)
    if beside and (missing := GIVES_WAY - os.nice(0)) > 0:
        os.nice(missing)
