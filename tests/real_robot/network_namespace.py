"""An isolated network for tests of multicast, which ends with the test."""

import ctypes
import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of Linux.
# LCM's own library needs a route, and the loopback interface of a new namespace is down.
_SETTINGS = ("link set lo up", "link set lo multicast on", "route add 224.0.0.0/4 dev lo")


@contextmanager
def own_network() -> Iterator[None]:
    """Moves the calling thread, and the processes that it starts meanwhile, to a new network.

    Sockets stay in the network in which they were made. Other threads, and so their sockets, stay
    where they are.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open(Path("/proc/thread-self/ns/net"), os.O_RDONLY)
    try:
        if libc.unshare(_NEW_NETWORK):
            _refuse()
        try:
            for setting in _SETTINGS:
                subprocess.run(["ip", *setting.split()], check=True, timeout=10)
            yield
        finally:
            if libc.setns(before, _NEW_NETWORK):
                raise OSError(
                    ctypes.get_errno(), "The test cannot return to the network that it came from."
                )
    finally:
        os.close(before)


def _refuse() -> None:
    error = ctypes.get_errno()
    if error == errno.EPERM:
        pytest.skip(
            "Tests of multicast need a network namespace, and so the right to make one "
            "(CAP_SYS_ADMIN, as root has)."
        )
    raise OSError(error, "No network namespace could be made.")
