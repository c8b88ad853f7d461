"""The web server of the page: viser's, at one address, with checked requests, without tunnels."""

import contextlib
import io
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

import websockets.asyncio.server
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from stringline.datasets.command.installation import optional_library
from stringline.datasets.contract.argument_checks import PORTS
from stringline.policies.remote.access import ServerAccess, connection_log

logger = logging.getLogger(__name__)
connections = connection_log(f"{__name__}.connections")
connections.setLevel(logging.WARNING)  # A browser opens and closes many.

COOKIE = "stringline_token"
QUERY = "token"
# Bytes; visitors send poses and texts.
LARGEST_MESSAGE = 2**20
Handler = Callable[[ServerConnection], Awaitable[None]]
Check = Callable[[ServerConnection, Request], Response | None]


def open_server(host: str, port: int, access: ServerAccess | None = None) -> Any:
    """Starts a `viser.ViserServer` at an address of this machine; port 0 chooses a free one.

    Pages of other origins are refused; for the rest see `ServerAccess`.

    Raises:
        ValueError: The port is in use or not allowed, the address is not this machine's, a token
            would be sent unencrypted, or viser is not installed.
        RuntimeError: The requests cannot be checked with this version of viser.
    """
    viser = optional_library("viser", extra="teleop")
    access = access or ServerAccess()
    port = _free_port(host, port)
    access.check_address(host)
    os.environ.pop("_VISER_PORT_OVERRIDE", None)  # It would override the port.
    # The command prints the address.
    with contextlib.redirect_stdout(io.StringIO()), _checked_requests(access) as starts:
        server = viser.ViserServer(host=host, port=port, label="stringline-teleop", verbose=False)
    if not starts:
        close_server(server)
        raise RuntimeError(
            "The requests of the page cannot be checked with this version of viser; allowed: "
            "1.1.1, and others that call websockets.asyncio.server.serve."
        )
    server.request_share_url = _refuse_to_share
    if server.get_port() != port:  # viser takes the next free port instead.
        close_server(server)
        raise ValueError(_in_use(host, port))
    return server


def address_of(host: str, port: int, access: ServerAccess) -> str:
    """Returns the address of the page for a browser; a token is to be added by the user."""
    scheme = "http" if access.tls is None else "https"
    token = "" if access.token is None else f"/?{QUERY}=TOKEN (that of {access.token_file})"
    return f"{scheme}://{host}:{port}{token}"


@contextlib.contextmanager
def _checked_requests(access: ServerAccess) -> Iterator[list[str]]:
    """Lets a server of viser that starts meanwhile check all requests.

    viser passes its own options to `websockets` and has none for this, so they are completed here.

    Yields:
        The addresses of servers that started with checks.
    """
    original = websockets.asyncio.server.serve
    starts: list[str] = []

    def serve(
        handler: Handler, host: str, port: int, *, process_request: Check, **options: Any
    ) -> Any:
        starts.append(f"{host}:{port}")
        check = partial(_answered, access, process_request)
        ours = {"max_size": LARGEST_MESSAGE, "ssl": access.tls, "logger": connections}
        return original(handler, host, port, process_request=check, **options | ours)

    websockets.asyncio.server.serve = serve  # type: ignore[assignment, misc]
    try:
        yield starts
    finally:
        websockets.asyncio.server.serve = original  # type: ignore[misc]


def _answered(
    access: ServerAccess, serve_file: Check, connection: ServerConnection, request: Request
) -> Response | None:
    """Answers a request for a file, or refuses a request; None accepts a connection."""
    query = parse_qs(urlsplit(request.path).query).get(QUERY)
    cookie = SimpleCookie("; ".join(request.headers.get_all("Cookie"))).get(COOKIE)
    sent = None if cookie is None else cookie.value
    if query:
        sent = query[0]
    if (refusal := access.refusal(request.headers, sent, page=True)) is not None:
        logger.warning("A request for the page was refused. %s", refusal[1])
        return connection.respond(*refusal)
    response = serve_file(connection, request)
    if response is not None and query and access.token is not None:
        # Files and connections of the page follow without the query.
        secure = "" if access.tls is None else "; Secure"
        response.headers["Set-Cookie"] = (
            f"{COOKIE}={access.token}; HttpOnly; SameSite=Strict; Path=/{secure}"
        )
    return response


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
