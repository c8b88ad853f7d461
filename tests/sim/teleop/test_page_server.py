"""Addresses and ports of the page, and the errors for others."""

import http.client
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import viser
import websockets.datastructures
import websockets.exceptions
from tests.policies.remote.test_access import self_signed
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from stringline.policies.remote.access import ServerAccess
from stringline.sim.teleop.page_server import address_of, close_server, open_server


def test_a_port_in_use_is_refused_and_a_free_one_taken(caplog: pytest.LogCaptureFixture) -> None:
    server = open_server("127.0.0.1", 0)
    port = server.get_port()
    try:
        with pytest.raises(
            ValueError,
            match=rf"Port {port} of 127.0.0.1 is not available, .*another one: port={port + 1}",
        ):
            open_server("127.0.0.1", port)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as page:
            assert page.status == 200
        assert server.request_share_url() is None
        assert "it was refused" in caplog.text
    finally:
        close_server(server)


def test_addresses_and_ports_that_do_not_exist() -> None:
    strange: tuple[Any, ...] = (70000, 80.5)
    for port in strange:
        with pytest.raises(ValueError, match=f"The port is {port}; allowed: 1 to 65535, or 0"):
            open_server("127.0.0.1", port)
    for host in ("a..b", "::1%none"):
        with pytest.raises(ValueError, match=f"There is no address '{host}'.*host=127.0.0.1"):
            open_server(host, 0)
    with pytest.raises(ValueError, match=r"Port 8080 of 192.0.2.1 is not available.*Cannot assign"):
        open_server("192.0.2.1", 8080)


@pytest.mark.parametrize("visited", [False, True])
@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTT", b"\x16\x03\x01\x00\xee\n\n", b"POST / HTTP/1.1\r\n\r\n"]
)
def test_a_connection_that_ends_early_is_one_line_of_the_log(
    sent: bytes, caplog: pytest.LogCaptureFixture, *, visited: bool
) -> None:
    server = open_server("127.0.0.1", 0)
    port = server.get_port()
    try:
        if visited:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as page:
                assert page.status == 200
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as raw:
                raw.sendall(sent)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(1024):
                    pass
        deadline = time.monotonic() + 5.0
        while len(caplog.records) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(caplog.text.strip().splitlines()) == 3
        assert all("ended before its handshake" in message for message in caplog.messages)
    finally:
        close_server(server)


TOKEN = "a-token-of-32-characters-or-more"


@contextmanager
def page(access: ServerAccess | None = None) -> Iterator[str]:
    server = open_server("127.0.0.1", 0, access)
    try:
        yield f"127.0.0.1:{server.get_port()}"
    finally:
        close_server(server)


def status(address: str, path: str = "/", **headers: str) -> int:
    """Returns the status of the handshake of a visitor of viser."""
    version = Subprotocol(f"viser-v{viser.__version__}")
    try:
        with connect(
            f"ws://{address}{path}",
            proxy=None,
            subprotocols=[version],
            additional_headers=headers,
            max_size=None,
        ) as visitor:
            assert visitor.recv(timeout=10)
        return 101
    except InvalidStatus as error:
        return error.response.status_code


def test_only_pages_of_the_own_origin_are_connected() -> None:
    with page() as address:
        assert status(address) == 101
        assert status(address, Origin=f"http://{address}") == 101
        for origin in ("https://evil.example", "http://127.0.0.1:1", "null"):
            assert status(address, Origin=origin) == 403
    with page(ServerAccess(origins=("https://lab.example",))) as address:
        assert status(address, Origin="https://lab.example") == 101


def test_a_name_that_was_rebound_to_this_machine_is_refused() -> None:
    with page() as address:
        request = urllib.request.Request(f"http://{address}/", headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request, timeout=5)


def test_a_token_opens_the_page_once_and_its_cookie_then(tmp_path: Path) -> None:
    (file := tmp_path / "token").touch(mode=0o600)
    file.write_text(TOKEN)
    access = ServerAccess(file)
    with page(access) as address:
        for query in ("", "?token=another"):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"http://{address}/{query}", timeout=5)
            assert status(address, f"/{query}") == 401
        with urllib.request.urlopen(f"http://{address}/?token={TOKEN}", timeout=5) as answer:
            assert answer.status == 200
            cookie = answer.headers["Set-Cookie"]
        assert cookie.endswith("; HttpOnly; SameSite=Strict; Path=/")
        assert status(address, Cookie=cookie.partition(";")[0]) == 101
        assert status(address, Cookie="stringline_token=another") == 401
        port = int(address.rpartition(":")[2])
        assert address_of("127.0.0.1", port, access).startswith(f"http://{address}/?token=TOKEN (")
        assert TOKEN not in address_of("127.0.0.1", port, access)


def test_a_page_with_tls_is_opened_by_its_certificate(tmp_path: Path) -> None:
    (file := tmp_path / "token").touch(mode=0o600)
    file.write_text(TOKEN)
    certificate, key = self_signed(tmp_path)
    access = ServerAccess(file, certificate, key)
    known = ssl.create_default_context(cafile=str(certificate))
    version = Subprotocol(f"viser-v{viser.__version__}")
    with page(access) as address:
        url = f"https://{address}/?token={TOKEN}"
        with urllib.request.urlopen(url, timeout=5, context=known) as answer:
            assert answer.status == 200
            cookie = answer.headers["Set-Cookie"]
        assert cookie.endswith("; HttpOnly; SameSite=Strict; Path=/; Secure")
        with connect(
            f"wss://{address}/",
            proxy=None,
            ssl=known,
            subprotocols=[version],
            additional_headers={"Cookie": cookie.partition(";")[0]},
            max_size=None,
        ) as visitor:
            assert visitor.recv(timeout=10)
        with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
            urllib.request.urlopen(url, timeout=5, context=ssl.create_default_context())
        with pytest.raises((urllib.error.URLError, ConnectionError, http.client.HTTPException)):
            urllib.request.urlopen(url.replace("https", "http"), timeout=5)
        port = int(address.rpartition(":")[2])
        assert address_of("127.0.0.1", port, access).startswith(f"https://{address}/?token=TOKEN")


def test_a_server_whose_requests_are_not_checked_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of viser that has imported the function itself."""
    server = SimpleNamespace(serve=serve, ServerConnection=ServerConnection)
    others = {"exceptions": websockets.exceptions, "datastructures": websockets.datastructures}
    imported = SimpleNamespace(asyncio=SimpleNamespace(server=server), **others)
    monkeypatch.setattr("viser.infra._infra.websockets", imported)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(RuntimeError, match="cannot be checked with this version of viser"):
        open_server("127.0.0.1", port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
