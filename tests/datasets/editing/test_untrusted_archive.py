"""Archives that come from elsewhere cannot fill the memory or lead out of their folder."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from numcodecs.zstd import Zstd

from stringline.datasets.editing.archive import SUFFIX, archive, expand
from stringline.datasets.store.store import EpisodeStore

CHUNK = "rgb.front/c/0/0/0/0"
MIB = 2**20


@pytest.fixture
def packed(six_episodes: EpisodeStore, tmp_path: Path) -> Path:
    """An archived episode."""
    url = tmp_path / "archive"
    archive(six_episodes, str(url))
    files = sorted(url.iterdir())
    for file in files[1:]:
        file.unlink()
    return files[0]


def rewrite(file: Path, member: str, data: bytes, method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(file) as old:
        members = {name: old.read(name) for name in old.namelist()} | {member: data}
    with zipfile.ZipFile(file, "w") as new:
        for name, content in members.items():
            new.writestr(name, content, method if name == member else zipfile.ZIP_STORED)


@pytest.mark.parametrize(
    ("member", "data", "method", "message"),
    [
        (
            CHUNK,
            Zstd().encode(np.zeros(64 * MIB, np.uint8)),
            zipfile.ZIP_STORED,
            "a chunk has 67108864 bytes instead of 1440",
        ),
        (
            CHUNK,
            b"\x28\xb5\x2f\xfd\xc0\x58" + (2**40).to_bytes(8, "little") + bytes(9),
            zipfile.ZIP_STORED,
            "a chunk has 1099511627776 bytes instead of 1440",
        ),
        (CHUNK, b"no frame", zipfile.ZIP_STORED, "a chunk is not a frame of zstd"),
        (CHUNK, bytes(64 * MIB), zipfile.ZIP_DEFLATED, "has more than the allowed 68416 bytes"),
        ("zarr.json", bytes(64 * MIB), zipfile.ZIP_DEFLATED, "more than the allowed 16777216"),
        (CHUNK, bytes(MIB), zipfile.ZIP_BZIP2, "is compressed by method 12; allowed: none or"),
    ],
)
def test_bombs_are_refused(
    packed: Path, tmp_path: Path, member: str, data: bytes, method: int, message: str
) -> None:
    rewrite(packed, member, data, method)
    with pytest.raises(ValueError, match=message):
        expand(str(packed.parent), tmp_path / "back")
    assert list((tmp_path / "back").glob("*/")) == []


def test_links_out_of_an_archive_are_not_followed(packed: Path, tmp_path: Path) -> None:
    packed.rename(tmp_path / f"outside{SUFFIX}")
    packed.symlink_to(tmp_path / f"outside{SUFFIX}")
    with pytest.raises(ValueError, match="There is no archive at"):
        expand(str(packed.parent), tmp_path / "back")
