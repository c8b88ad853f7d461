"""The web server of the page: viser's, on the address that is asked for and no other, and without a way to make it public."""

import contextlib
import io
import logging
import os
import socket
from typing import Any

from stringline.datasets.contract.arguments import PORTS
from stringline.datasets.formats.libraries import optional_library

logger = logging.getLogger(__name__)

LOCAL = ("127.0.0.1", "::1", "localhost")


def open_server(host: str, port: int) -> Any:
    """Starts a server of viser.

    Args:
        host: Address of this machine to listen at.
        port: 0 takes any that is free.

    Returns:
        The `viser.ViserServer`.

    Raises:
        ValueError: The port is in use or not allowed, the address is not this machine's, or viser
            is not installed.
    """
    viser = optional_library("viser", extra="teleop")
    port = _free_port(host, port)
    if host not in LOCAL:
        logger.warning(
            "Everybody who reaches %s:%d may move the arms and write into the store.", host, port
        )
    os.environ.pop("_VISER_PORT_OVERRIDE", None)  # The port is the one that was asked for.
    with contextlib.redirect_stdout(io.StringIO()):  # What is to be said, the command says.
        server = viser.ViserServer(host=host, port=port, label="stringline-teleop", verbose=False)
    server.request_share_url = _refuse_to_share
    if server.get_port() != port:  # It would take the next one, which nobody would look at.
        close_server(server)
        raise ValueError(_in_use(host, port))
    return server


def close_server(server: Any) -> None:
    """Ends it."""
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()


def _refuse_to_share(verbose: bool = True) -> None:
    """Stands where viser would open a tunnel through its makers' machine for any visitor who asks for it."""
    logger.warning("A visitor asked for a public address of this page, which is refused.")


def _free_port(host: str, port: int) -> int:
    """Returns the port, if this program may listen there.

    Raises:
        ValueError: It may not.
    """
    if port not in PORTS:
        raise ValueError(f"The port is {port}; allowed: 1 to 65535, or 0 for any that is free.")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            free: int = probe.getsockname()[1]
            return free
    except (socket.gaierror, UnicodeError) as error:
        raise ValueError(
            f"There is no address {host!r} ({error}); this machine alone: host=127.0.0.1"
        ) from error
    except PermissionError as error:
        raise ValueError(
            f"Port {port} of {host} is not for this user; take one from 1024 on: port=8080"
        ) from error
    except OSError as error:
        raise ValueError(f"{_in_use(host, port)} ({error.strerror})") from error


def _in_use(host: str, port: int) -> str:
    return (
        f"Port {port} of {host} cannot be had, perhaps another program listens there; take "
        f"another: port={port % 65535 + 1}"
    )
