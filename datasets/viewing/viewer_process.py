"""Starts rerun's viewer with a port that only this machine reaches, unless the user wants others.

`rerun.spawn` and the command `rerun` listen on all addresses, without a password: everybody in
the network can read what is shown, and add to it. docs/data.md names what rerun cannot refuse.
"""

import ipaddress
import logging
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

from stringline.datasets.command.installation import optional_library
from stringline.datasets.contract.argument_checks import PORTS

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
START_S = 30.0  # The first start reads the program from the disk.
OPTIONS = ("--expect-data-soon",)


@dataclass(frozen=True)
class Viewer:
    """A running viewer, which outlives this process.

    Attributes:
        address: Where it takes recordings, for `RecordingStream.connect_grpc`.
    """

    address: str
    process: "subprocess.Popen[bytes]"


def open_viewer(host: str = LOOPBACK, port: int = 0, *, memory_limit: str = "75%") -> Viewer:
    """Starts a viewer that listens at an address of this machine; port 0 chooses a free one.

    Raises:
        ValueError: The address is not one of this machine's IP addresses, the port is in use or not
            allowed, rerun is not installed, or the viewer does not start.
    """
    optional_library("rerun_cli", package="rerun-sdk", extra="view")
    address = _address(host)
    port = _free_port(host, port)
    if not address.is_loopback:
        logger.warning(
            "Anyone who can reach %s can see the recording and add to it: rerun's viewer has no "
            "password.",
            host,
        )
    command = [sys.executable, "-m", "rerun_cli", "--bind", host, "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--memory-limit", memory_limit, "--server-memory-limit", "1GiB", *OPTIONS],
        env={"RUST_LOG": "warn", "RERUN_APP_ONLY": "true"} | os.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # It would keep a pipe of this command open.
        start_new_session=True,
    )
    if address.is_unspecified:
        address = ipaddress.ip_address("::1" if address.version == 6 else LOOPBACK)
    _wait_for(process, str(address), port)
    shown = f"[{address}]" if address.version == 6 else str(address)
    return Viewer(f"rerun+http://{shown}:{port}/proxy", process)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(host)
    except ValueError as error:
        raise ValueError(
            f"host is {host!r}; allowed: an IP address of this machine, such as {LOOPBACK}."
        ) from error


def _free_port(host: str, port: int) -> int:
    """Returns the port if it is free, or a free one for port 0.

    At a port in use, rerun would send the recording to whoever listens there.
    """
    PORTS.check(port=port)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            free: int = probe.getsockname()[1]
            return free
    except OSError as error:
        raise ValueError(
            f"The viewer cannot listen on port {port} of {host} ({error.strerror}); for any free "
            f"port of this machine: host={LOOPBACK} port=0"
        ) from error


def _wait_for(process: "subprocess.Popen[bytes]", host: str, port: int) -> None:
    """Waits until the viewer listens."""
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((host, port), timeout=1.0).close()
        except OSError:
            time.sleep(0.05)
            continue
        if process.poll() is None:
            return
    process.terminate()
    raise ValueError(
        f"rerun's viewer did not start within {START_S:.0f} s or has ended; its messages are above."
    )
