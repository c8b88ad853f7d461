"""Hostile recordings: MCAP, and RLDS in TFRecords."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import lz4.frame
from mcap.data_stream import RecordBuilder
from mcap.records import Chunk, DataEnd, Footer, Header
from tests.datasets.formats.hostile_corpus import case, secret_of
from tests.datasets.formats.small_sets import mcap, rlds

from stringline.datasets.formats.tfds import masked_crc32c

MAGIC = b"\x89MCAP0\r\n"
TERABYTE = 2**40
SHARD = "small-train.tfrecord-00000-of-00001"
Edit = Callable[[Path, Path], object]
# A frame of zstd that claims a terabyte, and has a block of one byte, repeated.
ZSTD = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", TERABYTE) + b"\x0b\x00\x00\x00"


def second(name: str, says: str, others: int = 2) -> Callable[[Edit], Edit]:
    """Adds recordings whose second file is edited by the decorated function."""

    def add(edit: Edit) -> Edit:
        def build(folder: Path) -> Path:
            root = mcap(folder)
            edit(root / "take_1.mcap", folder)
            return root

        case(f"mcap, {name}", "mcap", says, others)(build)
        return edit

    return add


def chunk(compression: str, data: bytes, size: int) -> Chunk:
    return Chunk(
        compression=compression,
        data=data,
        message_end_time=1,
        message_start_time=1,
        uncompressed_crc=0,
        uncompressed_size=size,
    )


def recording(found: Chunk, *, summary: bool = False) -> bytes:
    """Returns a file with a single chunk, which with `summary` stands in the summary."""
    start = RecordBuilder()
    Header("", "").write(start)
    middle = RecordBuilder()
    found.write(middle)
    end = RecordBuilder()
    DataEnd(0).write(end)
    before = MAGIC + start.end()
    Footer(len(before) if summary else 0, 0, 0).write(end)
    return before + middle.end() + end.end() + MAGIC


@second("a chunk of zstd that claims a terabyte", "Chunk 0 decodes to 1099511627776 bytes or more")
def _(file: Path, _: Path) -> None:
    file.write_bytes(recording(chunk("zstd", ZSTD, 100)))


@second("a chunk in the summary", "Chunk 0 decodes to 1099511627776 bytes or more; allowed: 268")
def _(file: Path, _: Path) -> None:
    file.write_bytes(recording(chunk("zstd", ZSTD, 100), summary=True))


@second("a chunk of lz4 that claims a terabyte", "Chunk 0 decodes to 1099511627776 bytes or more")
def _(file: Path, _: Path) -> None:
    context = lz4.frame.create_compression_context()
    data = lz4.frame.compress_begin(context, source_size=TERABYTE)
    file.write_bytes(recording(chunk("lz4", data, 100)))


@second("a bomb of lz4", "Chunk 0 decodes to 268435457 bytes or more; allowed: 268435456.")
def _(file: Path, _: Path) -> None:
    with lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB) as packer:
        blocks = [packer.begin(), *[packer.compress(bytes(2**22)) for _ in range(70)]]
        data = b"".join([*blocks, packer.flush()])
    file.write_bytes(recording(chunk("lz4", data, 100)))


@second("an indexed chunk that claims a terabyte", "Chunk 0 decodes to 1099511627776 bytes or more")
def _(file: Path, _: Path) -> None:
    data = bytearray(file.read_bytes())
    place = data.index(b"\x28\xb5\x2f\xfd") - 8 - 4 - 4 - 4 - 8
    assert data[place + 16 : place + 20] == b"zstd"
    data[place : place + 8] = struct.pack("<Q", TERABYTE)
    file.write_bytes(data)


@second("a record of an exabyte", "cannot be read as MCAP; it is truncated, damaged")
def _(file: Path, _: Path) -> None:
    data = bytearray(file.read_bytes())
    data[9:17] = struct.pack("<Q", 2**60)
    file.write_bytes(data[:4000])


@second("a link out", "leads out of the data set, to")
def _(file: Path, folder: Path) -> None:
    file.unlink()
    file.symlink_to(secret_of(folder))


@second("a pipe", "is neither a file nor a folder; it is not read.")
def _(file: Path, _: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def shard(name: str, says: str, others: int = 0) -> Callable[[Edit], Edit]:
    """Adds a data set of RLDS whose file is edited by the decorated function."""

    def add(edit: Edit) -> Edit:
        def build(folder: Path) -> Path:
            root = rlds(folder)
            edit(root / "1.0.0" / SHARD, folder)
            return root

        case(f"rlds, {name}", "rlds", says, others)(build)
        return edit

    return add


@shard("a record of an exabyte", "is truncated: record 3 ends at byte 1152921504606", 3)
def _(file: Path, _: Path) -> None:
    length = struct.pack("<Q", 2**60)
    head = length + struct.pack("<I", masked_crc32c(length))
    file.write_bytes(file.read_bytes() + head)


@shard("a link out", "leads out of the data set, to")
def _(file: Path, folder: Path) -> None:
    file.unlink()
    file.symlink_to(secret_of(folder))


@shard("features of 17 MiB", "features.json has 16777217 bytes or more; allowed: 16777216.")
def _(file: Path, _: Path) -> None:
    file.with_name("features.json").write_bytes(b" " * (17 * 2**20))


@shard("nested features", "features.json is not JSON: maximum recursion depth")
def _(file: Path, _: Path) -> None:
    file.with_name("features.json").write_text("[" * 200_000)


@shard("states beyond 64 bits", "has 56 numbers for 0 steps; allowed: 1")
def _(file: Path, _: Path) -> None:
    features = file.with_name("features.json")
    features.write_text(features.read_text().replace('"14"', f'"{10**30}"'))


@shard("a message of a gigabyte of zeros", "has another checksum", 3)
def _(file: Path, _: Path) -> None:
    length = struct.pack("<Q", 2**30)
    head = length + struct.pack("<I", masked_crc32c(length))
    with file.open("ab") as opened:
        opened.write(head)
    os.truncate(file, file.stat().st_size + 2**30 + 4)
