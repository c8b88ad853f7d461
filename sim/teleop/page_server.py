"""The web server of the page: viser's, at one fixed address, without its public tunnels."""

import contextlib
import io
import logging
import os
import socket
from typing import Any

from stringline.datasets.contract.argument_checks import PORTS
from stringline.datasets.formats.libraries import optional_library

logger = logging.getLogger(__name__)

LOCAL = ("127.0.0.1", "::1", "localhost")


def open_server(host: str, port: int) -> Any:
    """Starts a `viser.ViserServer` at an address of this machine; port 0 chooses a free one.

    Raises:
        ValueError: The port is in use or not allowed, the address is not this machine's, or viser
            is not installed.
    """
    viser = optional_library("viser", extra="teleop")
    port = _free_port(host, port)
    if host not in LOCAL:
        logger.warning(
            "Anyone who can reach %s:%d can move the arms and write to the store.",
            host,
            port,
        )
    os.environ.pop("_VISER_PORT_OVERRIDE", None)  # It would override the port.
    with contextlib.redirect_stdout(io.StringIO()):  # The command prints the address.
        server = viser.ViserServer(host=host, port=port, label="stringline-teleop", verbose=False)
    server.request_share_url = _refuse_to_share
    if server.get_port() != port:  # viser takes the next free port instead.
        close_server(server)
        raise ValueError(_in_use(host, port))
    return server


def close_server(server: Any) -> None:
    """Stops a server."""
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()


def _refuse_to_share(verbose: bool = True) -> None:
    """Replaces viser's function that opens a public tunnel on a visitor's request."""
    logger.warning("A visitor has requested a public address of this page; it was refused.")


def _free_port(host: str, port: int) -> int:
    """Returns the port if it is free, or a free one for port 0."""
    if port not in PORTS:
        raise ValueError(f"The port is {port}; allowed: 1 to 65535, or 0 for any free port.")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            free: int = probe.getsockname()[1]
            return free
    except (socket.gaierror, UnicodeError) as error:
        raise ValueError(
            f"There is no address {host!r} ({error}); for this machine only: host=127.0.0.1"
        ) from error
    except PermissionError as error:
        raise ValueError(
            f"Port {port} of {host} needs privileges; choose one from 1024 on: port=8080"
        ) from error
    except OSError as error:
        raise ValueError(f"{_in_use(host, port)} ({error.strerror})") from error


def _in_use(host: str, port: int) -> str:
    return (
        f"Port {port} of {host} is not available, perhaps another program listens there; choose "
        f"another one: port={port % 65535 + 1}"
    )
