"""Access to a server: foreign pages and names, tokens, TLS, and the rights of files."""

import logging
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.policies.remote.served import Drift, Running, observation
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from stringline.policies.remote.access import ServerAccess, read_token, token_for
from stringline.policies.remote.client import RemotePolicy
from stringline.policies.remote.protocol import RemoteError, RemoteUnavailableError

TOKEN = "a-token-of-32-characters-or-more"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(f"{TOKEN}\n")
    return file


def refusal(address: str, **headers: str) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as failed:
        connect(address, proxy=None, additional_headers=headers).close()
    response = failed.value.response
    return response.status_code, (response.body or b"").decode()


def test_pages_of_other_origins_are_refused(running: Callable[..., Running]) -> None:
    address = running(Drift(), access=ServerAccess(origins=("https://lab.example",))).address
    for origin in ("https://evil.example", "null", address.replace("ws:", "http:")):
        status, reason = refusal(address, Origin=origin)
        assert (status, reason) == (
            403,
            f"The Origin is '{origin}'; allowed: https://lab.example. Add it to access.origins.",
        )
    with connect(address, proxy=None, origin="https://lab.example") as allowed:  # type: ignore[arg-type]
        assert allowed.recv(timeout=5)
    assert RemotePolicy(address).digest == "d1"  # Programs send no Origin.


def test_names_of_other_hosts_are_refused(running: Callable[..., Running]) -> None:
    """A page whose name was rebound to this machine sends its own name."""
    address = running(Drift(), access=ServerAccess(hosts=("gpu.lab.example",))).address
    port = address.rpartition(":")[2]
    for host in (f"evil.example:{port}", "127.0.0.1.evil.example", "[::1", ""):
        raw = Handshake(port, host)
        assert raw.status == 403, host
        assert "allowed: IP addresses, localhost, gpu.lab.example" in raw.body
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "[::1]:80", "gpu.lab.example"):
        assert Handshake(port, host).status == 101, host


class Handshake:
    """The answer to a handshake with a chosen Host."""

    def __init__(self, port: str, host: str) -> None:
        lines = (
            "GET / HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
            "Sec-WebSocket-Version: 13",
        )
        with socket.create_connection(("127.0.0.1", int(port)), timeout=5) as raw:
            raw.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            answer = raw.recv(4096).decode(errors="replace")
        head, _, self.body = answer.partition("\r\n\r\n")
        self.status = int(head.split()[1])


def test_a_token_is_required_and_sent(
    running: Callable[..., Running], token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = running(Drift(), access=ServerAccess(token_file)).address
    with pytest.raises(RemoteError, match=r"refuses the connection: The request has no token"):
        RemotePolicy(address)
    monkeypatch.setenv("STRINGLINE_TOKEN_FILE", str(token_file))
    with RemotePolicy(address).session(0) as session:
        assert len(session.plan(observation(0, 1.0)).time) == 5
    token_file.write_text("b" * 40)
    with pytest.raises(RemoteError, match=r"The request has another token") as failed:
        RemotePolicy(address)
    assert not isinstance(failed.value, RemoteUnavailableError)
    assert refusal(address, Authorization=f"Basic {TOKEN}")[0] == 401


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606, 0o620])
def test_a_token_file_that_others_can_use_is_refused(token_file: Path, mode: int) -> None:
    token_file.chmod(mode)
    with pytest.raises(ValueError, match=rf"has mode {mode:04o}, so other users can use it; allow"):
        ServerAccess(token_file)
    token_file.chmod(0o400)
    assert read_token(token_file) == TOKEN


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root can give a file away.")
def test_a_token_file_of_another_user_is_refused(token_file: Path) -> None:
    os.chown(token_file, 12345, 12345)
    with pytest.raises(ValueError, match="belongs to user 12345; allowed: your user"):
        read_token(token_file)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has 0 characters; allowed: one token of at least 32"),
        ("short", "has 5 characters"),
        ("two tokens of thirty-two characters", "without spaces"),
        ("tökens-of-thirty-two-characters-o", "cannot be read"),
    ],
)
def test_invalid_tokens_are_refused(token_file: Path, text: str, words: str) -> None:
    token_file.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_token(token_file)


def test_a_missing_token_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"token file .*none cannot be read: No such file"):
        ServerAccess(tmp_path / "none")


def test_tokens_are_not_sent_unencrypted(
    token_file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("STRINGLINE_TOKEN_FILE", str(token_file))
    with pytest.raises(ValueError, match=r"unencrypted to ws://192\.0\.2\.1:1; allowed: .* wss://"):
        token_for("ws://192.0.2.1:1")
    assert token_for("wss://192.0.2.1:1") == token_for("ws://localhost:1") == TOKEN
    with pytest.raises(ValueError, match=r"unencrypted to 0\.0\.0\.0; allowed: access\.certifica"):
        ServerAccess(token_file).check_address("0.0.0.0")
    ServerAccess(token_file).check_address("127.0.0.1")
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        ServerAccess().check_address("0.0.0.0")
    assert "Anyone who can reach 0.0.0.0 can use this server" in caplog.text


def test_a_server_with_tls_is_used_by_its_certificate(
    running: Callable[..., Running],
    token_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    certificate, key = self_signed(tmp_path)
    address = running(Drift(), access=ServerAccess(token_file, certificate, key)).address
    address = address.replace("ws:", "wss:")
    monkeypatch.setenv("STRINGLINE_TOKEN_FILE", str(token_file))
    with pytest.raises(RemoteError, match="certificate verify failed"):
        RemotePolicy(address)
    with pytest.raises(RemoteError, match="no policy server"):
        RemotePolicy(address.replace("wss:", "ws:"), timeout_s=5)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with RemotePolicy(address).session(0) as session:
        assert len(session.plan(observation(0, 1.0)).time) == 5


def test_certificate_and_key_are_checked(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    with pytest.raises(ValueError, match="access.private_key is None; allowed: both files"):
        ServerAccess(certificate=certificate)
    (folder := tmp_path / "other").mkdir()
    _, foreign = self_signed(folder)
    with pytest.raises(ValueError, match="Allowed: PEM files that fit each other"):
        ServerAccess(certificate=certificate, private_key=foreign)
    key.chmod(0o644)
    with pytest.raises(ValueError, match="private key .* has mode 0644, so other users can use it"):
        ServerAccess(certificate=certificate, private_key=key)


@pytest.mark.parametrize("origin", ["lab.example", "https://lab.example/", "file:///tmp"])
def test_invalid_origins_are_refused(origin: str) -> None:
    with pytest.raises(ValueError, match=rf"contains '{origin}'; allowed: origins such as"):
        ServerAccess(origins=(origin,))


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Returns a certificate for 127.0.0.1 and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    line = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*line.split(), *names, *files], check=True, capture_output=True)
    key.chmod(0o600)
    return certificate, key
