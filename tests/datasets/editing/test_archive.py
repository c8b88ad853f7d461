"""Archives are small, readable by zarr, and lossless to the bit, also over S3."""

import contextlib
import os
import re
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from tests.datasets.conftest import MakeEpisode
from zarr.storage import ZipStore

import stringline.datasets.editing.archive
from stringline import Contract, EpisodeAttributes, EpisodeStore
from stringline.datasets.editing.archive import SUFFIX, Remote, archive, estimated_size, expand
from stringline.datasets.store.store import format_size, verify_store
from stringline.datasets.store.zarr_layout import array_name


@pytest.fixture
def store(tmp_path: Path, contract: Contract, make_episode: MakeEpisode) -> EpisodeStore:
    """Four episodes of images that stand still, with an empty array and a scalar."""
    store = EpisodeStore.create(tmp_path / "store")
    for seed in range(4):
        arrays = make_episode(steps=41, seed=seed)
        arrays["rgb/front"][:] = arrays["rgb/front"][0]
        extra = {"extra/none": np.zeros((0, 3), np.float32), "extra/one": np.array(7, np.int16)}
        store.write(
            arrays | extra, EpisodeAttributes(contract, "reach", seed, instruction="touch it")
        )
    return store


@contextlib.contextmanager
def s3_server(*buckets: str) -> Iterator[str]:
    """Starts a real S3 server, moto's, on loopback with some buckets and yields its address."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        try:
            yield _ready(server, buckets)
        finally:
            server.kill()


def _ready(server: "subprocess.Popen[str]", buckets: tuple[str, ...]) -> str:
    assert server.stdout is not None
    output = ""
    for line in server.stdout:
        output += line
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            for bucket in buckets:
                request = urllib.request.Request(f"{found[0]}/{bucket}", method="PUT")
                urllib.request.urlopen(request).close()
            return found[0]
    raise RuntimeError(f"The S3 server did not start: {output}")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Returns the address of a bucket on a local server, set by environment variables."""
    with s3_server("bucket") as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        yield "s3://bucket"


def files_of(folder: Path) -> dict[str, bytes]:
    """Returns the contents of all files below a folder."""
    return {
        f"{path.relative_to(folder)}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.parametrize("chunk_bytes", [1, 700, 1 << 25])
def test_round_trips_are_exact(
    store: EpisodeStore, tmp_path: Path, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any chunk size, all files of the store are equal after expansion, metadata included."""
    monkeypatch.setattr(stringline.datasets.editing.archive, "CHUNK_BYTES", chunk_bytes)
    url = str(tmp_path / "archive")
    assert archive(store, url) == store.names()
    assert sorted(os.listdir(url)) == [f"{name}{SUFFIX}" for name in store.names()]
    back = expand(url, tmp_path / "back")
    assert files_of(back.path) == files_of(store.path)
    assert verify_store(back) == {}
    for name in store.names():
        with ZipStore(tmp_path / "archive" / f"{name}{SUFFIX}", mode="r") as packed:
            group = zarr.open_group(packed, mode="r")
            assert group.attrs["task"] == "reach"
            for key, array in store.episode(name).arrays.items():
                np.testing.assert_array_equal(group[array_name(key)][...], array)  # type: ignore[index]


@pytest.mark.slow
def test_s3_round_trip(store: EpisodeStore, tmp_path: Path, s3: str) -> None:
    url = f"{s3}/deep/bananas"
    assert Remote.at(url).sizes() == {}
    with pytest.raises(ValueError, match=r"There is no archive at s3://bucket/deep/bananas"):
        expand(url, tmp_path / "back")
    assert archive(store, url) == store.names()
    assert list(Remote.at(url).sizes()) == store.names()
    assert files_of(expand(url, tmp_path / "back").path) == files_of(store.path)


@pytest.mark.slow
def test_s3_errors_name_the_address(store: EpisodeStore, s3: str) -> None:
    with pytest.raises(OSError, match=r"s3://nowhere/x: .*bucket does not exist"):
        archive(store, "s3://nowhere/x")
    with pytest.raises(ValueError, match=r"tape://x cannot be reached: .*tape"):
        archive(store, "tape://x")


def test_without_s3fs_the_extra_is_named(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    # fsspec caches imported file systems.
    monkeypatch.delitem(sys.modules["fsspec.registry"].__dict__["_registry"], "s3", raising=False)
    with pytest.raises(
        ValueError, match=r's3://bucket cannot be reached: .*pip install "stringline\[remote\]"'
    ):
        archive(store, "s3://bucket")


def test_both_directions_continue_after_an_interruption(
    store: EpisodeStore, tmp_path: Path
) -> None:
    """Existing files are not written again; a truncated zip file counts as damaged."""
    folder, first = tmp_path / "archive", store.names()[0]
    archive(store, str(folder))
    assert archive(store, str(folder)) == []
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    (folder / f"{first}{SUFFIX}").unlink()
    assert archive(store, str(folder)) == [first]
    after = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert [name for name in after if after[name] != before[name]] == [f"{first}{SUFFIX}"]
    back = expand(str(folder), tmp_path / "back")
    (back.path / ".fetch-left").mkdir()
    (back.path / first).rename(tmp_path / "away")
    assert expand(str(folder), back.path).names() == store.names()
    assert files_of(back.path) == files_of(store.path)


@pytest.mark.parametrize("spoil", ["cut", "empty", "flip", "no zip"])
def test_a_damaged_file_is_named_and_the_others_are_expanded(
    store: EpisodeStore, tmp_path: Path, spoil: str
) -> None:
    folder, (bad, *good) = tmp_path / "archive", store.names()
    archive(store, str(folder))
    path = folder / f"{bad}{SUFFIX}"
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as packed:
        inside = next(
            info.header_offset + 60
            for info in packed.infolist()
            if info.filename.startswith("rgb.wrist/c")
        )
    data[inside] ^= 8
    path.write_bytes(
        {"cut": data[: len(data) // 2], "empty": b"", "flip": data, "no zip": b"hello"}[spoil]
    )
    with pytest.raises(
        ValueError,
        match=f"1 of 4 episodes are damaged, the others are done. The archived episode {bad}",
    ):
        expand(str(folder), tmp_path / "back")
    back = EpisodeStore.open(tmp_path / "back")
    assert back.names() == good
    assert verify_store(back) == {}
    assert sorted(os.listdir(back.path)) == sorted([*good, "zarr.json"])


@pytest.mark.slow
def test_every_flip_in_an_archive_is_harmless_or_found(store: EpisodeStore, tmp_path: Path) -> None:
    """After any flipped bit an episode is expanded unchanged or not at all."""
    archive(store, str(tmp_path / "archive"))
    name = store.names()[0]
    path = tmp_path / "archive" / f"{name}{SUFFIX}"
    for other in store.names()[1:]:
        (path.parent / f"{other}{SUFFIX}").unlink()
    intact, rng = path.read_bytes(), np.random.default_rng(0)
    refused = 0
    for trial in range(60):
        data = bytearray(intact)
        data[rng.integers(len(data))] ^= int(rng.integers(1, 256))
        path.write_bytes(data)
        target = tmp_path / f"back{trial}"
        try:
            expand(str(path.parent), target)
        except ValueError:
            refused += 1
            assert sorted(os.listdir(target)) == ["zarr.json"]
        else:
            assert files_of(target / name) == files_of(store.path / name)
    assert refused > 20


def test_a_damaged_episode_is_not_archived(store: EpisodeStore, tmp_path: Path) -> None:
    bad, *good = store.names()
    chunk = store.path / bad / "depth.front/c/0/0/0"
    chunk.write_bytes(b"x" + chunk.read_bytes()[1:])
    with pytest.raises(ValueError, match=f"Episode {bad}: depth/front is damaged"):
        archive(store, str(tmp_path / "archive"))
    assert list(Remote.at(str(tmp_path / "archive")).sizes()) == good


def test_the_estimated_size_is_close(store: EpisodeStore, tmp_path: Path) -> None:
    archive(store, str(tmp_path / "archive"))
    took = sum(Remote.at(str(tmp_path / "archive")).sizes().values())
    assert abs(estimated_size(store) - took) < 0.1 * took
    assert estimated_size(EpisodeStore.create(tmp_path / "empty")) == 0


def test_sizes_in_words() -> None:
    assert [
        format_size(size) for size in (0, 7, 2048, 3.25 * 2**20, 41 * 2**20, 1.6 * 2**30, 2**41)
    ] == ["0 B", "7 B", "2.0 KiB", "3.2 MiB", "41 MiB", "1.6 GiB", "2.0 TiB"]
