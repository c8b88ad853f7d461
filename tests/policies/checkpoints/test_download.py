"""Checkpoints from a web server and other addresses: verified, limited, complete or not there."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stringline.encoders.training.checkpoint import FILES, sha256_of
from stringline.policies.checkpoints.load import (
    SHIPPED,
    cache_folder,
    checkpoint_digest,
    fetch,
    open_policy,
    read_index,
    registered_checkpoint,
)

SIZE = 100_000


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; the first part of a path may change the answers."""

    requests: list[str]

    def log_message(self, format: str, *args: object) -> None:
        """Counts requests."""
        self.requests.append(self.path)

    def do_GET(self) -> None:
        """Serves a file, part of it, or more of it than announced."""
        kind = self.path.split("/")[1]
        if kind not in ("cut", "endless", "interrupted"):
            super().do_GET()
            return
        data = (Path(self.directory) / self.path.removeprefix(f"/{kind}/")).read_bytes()
        self.send_response(200)
        if kind == "endless":
            data = data * 50
        else:
            self.send_header("Content-Length", str(len(data)))
            data = data[: len(data) // 2]
        self.end_headers()
        self.wfile.write(data)
        if kind == "interrupted":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)

    def do_HEAD(self) -> None:
        """Tells the sizes of files; not those of endless ones."""
        kind = self.path.split("/")[1]
        if kind in ("cut", "interrupted"):
            self.path = self.path.removeprefix(f"/{kind}")
        if kind == "endless":
            self.send_response(200)
            self.end_headers()
            return
        super().do_HEAD()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of a checkpoint and one more."""
    place = tmp_path / "served" / "arm"
    place.mkdir(parents=True)
    (place / "checkpoint.yaml").write_text("format: 1\n")
    (place / "weights.safetensors").write_bytes(bytes(SIZE))
    (place / "optimiser.pt").write_bytes(b"pickled")
    return place


@pytest.fixture
def requests() -> list[str]:
    """The paths that were requested from the server."""
    return []


@pytest.fixture
def server(folder: Path, requests: list[str]) -> Iterator[str]:
    """A web server for the folder above the checkpoint."""
    handler = type("Counted", (Handler,), {"requests": requests})
    served = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder.parent)))
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{served.server_port}"
    finally:
        served.shutdown()
        thread.join()
        served.server_close()


def left(cache: Path) -> list[Path]:
    """Returns what is in the cache."""
    return list(cache.iterdir()) if cache.is_dir() else []


def test_a_checkpoint_is_fetched_once_and_used_offline(
    server: str, folder: Path, cache: Path, requests: list[str]
) -> None:
    sha256 = sha256_of(folder)
    for slash in ("", "/"):
        found = registered_checkpoint(f"{server}/arm{slash}@sha256:{sha256}", SHIPPED)
        assert found == cache / sha256
    assert sorted(path.name for path in found.iterdir()) == sorted(FILES)
    assert all((found / name).read_bytes() == (folder / name).read_bytes() for name in FILES)
    assert {line.rpartition("/")[2] for line in requests} == set(FILES), "other files are not read"
    seen = len(requests)
    assert fetch("http://127.0.0.1:1/arm", sha256) == found, "nobody listens on this port"
    assert len(requests) == seen


def test_a_damaged_copy_is_fetched_again(
    server: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = fetch(f"{server}/arm", sha256_of(folder))
    (found / "weights.safetensors").write_bytes(b"damaged")
    assert fetch(f"{server}/arm", sha256_of(folder)) == found
    assert sha256_of(found) == sha256_of(folder)
    assert any("is damaged; it is fetched again" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("path", "size", "error", "message"),
    [
        ("arm", None, ValueError, r"/arm has the SHA-256 [0-9a-f]{64}, but 0{64} was expected"),
        ("nowhere", None, ValueError, r"There is no file http.*/nowhere/checkpoint\.yaml\."),
        ("cut/arm", None, OSError, r"http.*/cut/arm/checkpoint\.yaml: Client"),
        ("arm", 50_000, OSError, r"weights\.safetensors has more than the allowed 49990 bytes"),
        ("endless/arm", SIZE + 10, OSError, r"/endless/.* has more than the allowed \d+ bytes"),
    ],
    ids=["digest", "missing", "truncated", "announced too large", "larger than announced"],
)
def test_a_failure_leaves_nothing(
    server: str,
    cache: Path,
    path: str,
    size: int | None,
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        fetch(f"{server}/{path}", "0" * 64, size)
    assert left(cache) == []


def test_nobody_listens(cache: Path) -> None:
    with pytest.raises(
        OSError, match=r"http://127\.0\.0\.1:1/arm/checkpoint\.yaml: Client.*connect"
    ):
        fetch("http://127.0.0.1:1/arm", "0" * 64)
    assert left(cache) == []


def test_ctrl_c_during_a_download_leaves_nothing(server: str, folder: Path, cache: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fetch(f"{server}/interrupted/arm", sha256_of(folder))
    assert left(cache) == []
    assert fetch(f"{server}/arm", sha256_of(folder)) == cache / sha256_of(folder)


def test_other_protocols(folder: Path, cache: Path) -> None:
    assert fetch(folder.as_uri(), sha256_of(folder)) == cache / sha256_of(folder)
    with pytest.raises(OSError, match="has more than the allowed 99 bytes"):
        fetch(folder.as_uri(), "0" * 64, 109)
    with pytest.raises(ValueError, match=r"tape://x cannot be reached: .*tape"):
        registered_checkpoint("tape://x", SHIPPED)


@pytest.mark.parametrize("package", ["aiohttp", "huggingface_hub"])
def test_a_missing_package_names_its_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url, extra = {
        "aiohttp": ("https://host/arm", "remote"),
        "huggingface_hub": ("hf://somebody/arm", "hub"),
    }[package]
    monkeypatch.setitem(sys.modules, package, None)
    # fsspec caches imported file systems.
    monkeypatch.delitem(
        sys.modules["fsspec.registry"].__dict__["_registry"], url.partition(":")[0], raising=False
    )
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    with pytest.raises(ValueError, match=rf'Run: pip install "stringline\[{extra}\]"'):
        fetch(url, "0" * 64)


def test_an_address_needs_a_digest_and_a_folder(server: str, requests: list[str]) -> None:
    with pytest.raises(ValueError, match=rf"{server}/arm needs the SHA-256 .*@sha256:HEX"):
        registered_checkpoint(f"{server}/arm", SHIPPED)
    for name in ("arm/weights.safetensors", "arm/optimiser.pt"):
        with pytest.raises(ValueError, match="is the address of a file; allowed: .* a folder"):
            registered_checkpoint(f"{server}/{name}@sha256:{'0' * 64}", SHIPPED)
    assert requests == []


def test_a_fetched_policy_is_loaded(server: str, folder: Path) -> None:
    (folder.parent / "banana").symlink_to(SHIPPED / "hand_over_banana")
    where = f"{server}/banana@sha256:{read_index(SHIPPED)['hand_over_banana'].sha256}"
    policy, digest = open_policy(where)
    assert digest == checkpoint_digest("hand_over_banana")
    assert policy.contract.embodiment == "aloha"
