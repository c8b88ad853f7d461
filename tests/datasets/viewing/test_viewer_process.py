"""rerun's viewer is reached from this machine only, and bears attacks there.

There is no display: the tests start the same program with the same port, but without its window.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import rerun

from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.viewing import rerun_recording, viewer_process
from stringline.datasets.viewing.rerun_recording import Recorder
from stringline.datasets.viewing.viewer_process import Viewer, open_viewer

SERVICE = "/rerun.sdk_comms.v1alpha1.MessageProxyService"
HALF_OPEN = 1500
IN_TIME_S = 5.0
GROWTH_MB = 64
LISTENING = "0A"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Viewer]]:
    """Viewers without a window, which end with the test."""
    monkeypatch.setattr(viewer_process, "OPTIONS", ("--serve-grpc",))
    viewers: list[Viewer] = []
    yield viewers
    for viewer in viewers:
        os.killpg(viewer.process.pid, signal.SIGKILL)
        viewer.process.wait()


@pytest.fixture
def viewer(started: list[Viewer]) -> Viewer:
    started.append(open_viewer())
    return started[0]


def port_of(viewer: Viewer) -> int:
    return int(viewer.address.rpartition(":")[2].partition("/")[0])


def program(viewer: Viewer) -> int:
    """Returns the process of the program itself."""
    children = Path(f"/proc/{viewer.process.pid}/task/{viewer.process.pid}/children")
    return int(children.read_text().split()[0])


def memory_mb(viewer: Viewer) -> float:
    text = Path(f"/proc/{program(viewer)}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def listening(port: int) -> set[str]:
    """Returns the addresses, IPv4 and IPv6, at which this machine listens on a port."""
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            local, _, state = row.split()[1:4]
            address, _, number = local.partition(":")
            if state == LISTENING and int(number, 16) == port:
                words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
                found.add(socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words)))
    return found


def connection(viewer: Viewer, data: bytes = b"") -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", port_of(viewer)), timeout=IN_TIME_S)
    opened.sendall(data)
    return opened


def asked(viewer: Viewer, method: str, call: str, *headers: str, body: bytes = b"") -> bytes:
    """Sends a request of gRPC-Web, as a page in a browser does, and returns the answer's begin."""
    head = [f"{method} {SERVICE}/{call} HTTP/1.1", f"Host: 127.0.0.1:{port_of(viewer)}", *headers]
    with connection(viewer, "\r\n".join([*head, "\r\n"]).encode() + body) as opened:
        return opened.recv(1 << 16)


def sends(viewer: Viewer) -> float:
    """Sends a recording as this project does; returns the time that it took."""
    start = time.monotonic()
    stream = rerun.RecordingStream("test")
    stream.connect_grpc(viewer.address)
    stream.log("said", rerun.TextDocument("a word"))
    stream.flush(timeout_sec=20.0)
    stream.disconnect()
    return time.monotonic() - start


def shown(viewer: Viewer) -> bytes:
    """Returns the begin of what the viewer has received."""
    answer = asked(
        viewer,
        "POST",
        "ReadMessages",
        "Content-Type: application/grpc-web+proto",
        "Content-Length: 5",
        body=bytes(5),
    )
    assert answer.startswith(b"HTTP/1.1 200")
    return answer


def test_a_viewer_listens_on_this_machine_only(viewer: Viewer) -> None:
    assert listening(port_of(viewer)) == {"127.0.0.1"}


def test_other_addresses_only_if_they_are_asked_for(
    started: list[Viewer], caplog: pytest.LogCaptureFixture
) -> None:
    started.append(open_viewer("0.0.0.0"))
    assert listening(port_of(started[0])) == {"0.0.0.0"}
    assert "Anyone who can reach 0.0.0.0 can see the recording and add to it" in caplog.text
    assert started[0].address.startswith("rerun+http://127.0.0.1:")


@pytest.mark.parametrize("host", ["localhost", "lab.example", "", "127.0.0.1:9876"])
def test_an_address_that_is_none_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="host is .*; allowed: an IP address of this machine"):
        open_viewer(host)


def test_a_recording_is_never_sent_to_another_program_at_the_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=f"cannot listen on port {port} of 127.0.0.1"):
            open_viewer(port=port)
    with pytest.raises(ValueError, match="port must be an integer from 0 to 65535"):
        open_viewer(port=65536)


def test_a_viewer_that_does_not_start_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(viewer_process, "OPTIONS", ("--no-such-option",))
    with pytest.raises(ValueError, match="did not start within 30 s or has ended"):
        open_viewer()
    assert "--no-such-option" in capfd.readouterr().err


def test_the_episode_is_sent_to_the_viewer_that_was_started(
    episode: StoredEpisode, started: list[Viewer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(host: str, port: int) -> Viewer:
        started.append(open_viewer(host, port))
        return started[0]

    monkeypatch.setattr(rerun_recording, "open_viewer", opened)
    Recorder(episode, cameras=[], cloud_hz=0.1).show()
    assert listening(port_of(started[0])) == {"127.0.0.1"}
    assert episode.name.encode() in shown(started[0])


def test_the_viewer_outlives_the_command(tmp_path: Path) -> None:
    script = """
from stringline.datasets.viewing import viewer_process
viewer_process.OPTIONS = ("--serve-grpc",)
viewer = viewer_process.open_viewer()
print(viewer.process.pid, viewer.address, flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    process, address = done.stdout.split()
    try:
        port = int(address.rpartition(":")[2].partition("/")[0])
        assert listening(port) == {"127.0.0.1"}
    finally:
        os.killpg(int(process), signal.SIGKILL)


def test_pages_of_other_origins_can_neither_send_nor_read(viewer: Viewer) -> None:
    """Rerun answers them, but a browser hands the answer to nobody and sends no data."""
    asks = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type")
    for call in ("ReadMessages", "WriteMessages"):
        for origin in ("https://evil.example", "null", "http://127.0.0.1.evil.example"):
            answer = asked(viewer, "OPTIONS", call, f"Origin: {origin}", *asks)
            assert b"access-control-allow-origin" not in answer.lower()
        plain = ("Origin: https://evil.example", "Content-Type: text/plain", "Content-Length: 5")
        assert asked(viewer, "POST", call, *plain, body=bytes(5)).startswith(b"HTTP/1.1 4")


@pytest.mark.slow
def test_a_recording_is_taken_beside_1500_half_open_connections(
    viewer: Viewer, capfd: pytest.CaptureFixture[str]
) -> None:
    sends(viewer)
    before = memory_mb(viewer)
    with ExitStack() as stack:
        for number in range(HALF_OPEN):
            data = (b"", b"GET", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")[number % 3]
            stack.enter_context(connection(viewer, data))
        assert sends(viewer) < IN_TIME_S
        assert memory_mb(viewer) - before < GROWTH_MB
    assert sends(viewer) < IN_TIME_S
    assert len(capfd.readouterr().err.splitlines()) < HALF_OPEN / 10, "fills no terminal"


@pytest.mark.slow
def test_announced_gigabytes_take_only_the_memory_that_was_sent_and_until_their_end(
    viewer: Viewer,
) -> None:
    """Rerun bounds no message: 300 programs that announce 4 GB each cost nothing before they send.

    What they send is kept until they end.
    """
    sends(viewer)
    before = memory_mb(viewer)
    head = (
        f"POST {SERVICE}/WriteMessages HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        "Content-Type: application/grpc-web+proto\r\nContent-Length: 4294967300\r\n\r\n"
    ).encode() + b"\0\xff\xff\xff\xf0"
    sent_mb = 64
    with ExitStack() as stack:
        opened = [stack.enter_context(connection(viewer, head)) for _ in range(300)]
        assert sends(viewer) < IN_TIME_S
        assert memory_mb(viewer) - before < GROWTH_MB
        for _ in range(sent_mb):
            opened[0].sendall(bytes(1 << 20))
        assert sends(viewer) < IN_TIME_S
        assert memory_mb(viewer) - before < GROWTH_MB + 2 * sent_mb
    deadline = time.monotonic() + IN_TIME_S
    while memory_mb(viewer) - before > GROWTH_MB:
        assert time.monotonic() < deadline, "it gives back what they sent"
        time.sleep(0.1)
    assert sends(viewer) < IN_TIME_S
