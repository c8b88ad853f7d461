"""Addresses and ports of the page, and the errors for others."""

import urllib.request
from typing import Any

import pytest

from stringline.sim.teleop.page_server import close_server, open_server


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
