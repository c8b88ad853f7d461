"""Hostile recordings: MCAP, and RLDS in TFRecords."""

import os
import struct
from pathlib import Path

import lz4.frame
from mcap.data_stream import RecordBuilder
from mcap.records import Chunk, DataEnd, Footer, Header
from tests.datasets.formats.hostile_corpus import Edit, cases, linked_to_secret, piped, written
from tests.datasets.formats.small_sets import databases, mcap, mcap_parts, rlds

from stringline.datasets.formats.rlds import masked_crc32c

MAGIC = b"\x89MCAP0\r\n"
TERABYTE = 2**40
SHARD = "1.0.0/small-train.tfrecord-00000-of-00001"
OUT = "leads out of the data set, to"
# A frame of zstd that claims a terabyte, and has a block of one byte, repeated.
ZSTD = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", TERABYTE) + b"\x0b\x00\x00\x00"


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


LZ4 = lz4.frame.compress_begin(lz4.frame.create_compression_context(), source_size=TERABYTE)


def bomb(file: Path, _: Path) -> None:
    with lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB) as packer:
        blocks = [packer.begin(), *[packer.compress(bytes(2**22)) for _ in range(70)]]
        data = b"".join([*blocks, packer.flush()])
    file.write_bytes(recording(chunk("lz4", data, 100)))


def indexed_terabyte(file: Path, _: Path) -> None:
    data = bytearray(file.read_bytes())
    place = data.index(b"\x28\xb5\x2f\xfd") - 8 - 4 - 4 - 4 - 8
    assert data[place + 16 : place + 20] == b"zstd"
    data[place : place + 8] = struct.pack("<Q", TERABYTE)
    file.write_bytes(data)


def exabyte(file: Path, _: Path) -> None:
    data = bytearray(file.read_bytes())
    data[9:17] = struct.pack("<Q", 2**60)
    file.write_bytes(data[:4000])


ZSTD_CHUNK, LZ4_CHUNK = chunk("zstd", ZSTD, 100), chunk("lz4", LZ4, 100)
LARGE = "Chunk 0 decodes to 1099511627776 bytes or more"
cases(
    "mcap",
    "mcap",
    mcap,
    "take_1.mcap",
    [
        ("a chunk of zstd that claims a terabyte", written(recording(ZSTD_CHUNK)), LARGE, 2),
        ("a chunk in the summary", written(recording(ZSTD_CHUNK, summary=True)), LARGE, 2),
        ("a chunk of lz4 that claims a terabyte", written(recording(LZ4_CHUNK)), LARGE, 2),
        ("a bomb of lz4", bomb, "Chunk 0 decodes to 268435457 bytes or more; allowed", 2),
        ("an indexed chunk that claims a terabyte", indexed_terabyte, LARGE, 2),
        ("a record of an exabyte", exabyte, "cannot be read as MCAP; it is truncated, damaged", 2),
        ("a link out", linked_to_secret, OUT, 2),
        ("a pipe", piped, "is neither a file nor a folder; it is not read.", 2),
    ],
)


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\n" + "".join(
    f"{chr(c + 1)}: &{chr(c + 1)} [{', '.join([f'*{chr(c)}'] * 9)}]\n" for c in range(98, 120)
)
cases(
    "mcap",
    "parts of rosbag2",
    mcap_parts,
    "take_1/metadata.yaml",
    [
        ("a list with aliases of aliases", written(BOMB), "with its aliases it has more than", 2),
        ("a list that is linked", linked_to_secret, OUT, 2),
    ],
)
cases(
    "mcap",
    "a database of rosbag2",
    databases,
    "take_1/take_1.db3",
    [
        ("a link out", linked_to_secret, OUT, 2),
        ("a pipe", piped, "is neither a file nor a folder; it is not read.", 2),
        ("no database", written(b"SQLite format 3\0" * 99), "cannot be read as a database of", 2),
    ],
)


def head_of(length: int) -> bytes:
    """Returns the head of a record of TFRecord."""
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc32c(packed))


def features(data: bytes | str) -> Edit:
    return lambda file, folder: written(data)(file.with_name("features.json"), folder)


def long_states(file: Path, _: Path) -> None:
    described = file.with_name("features.json")
    described.write_text(described.read_text().replace('"14"', f'"{10**30}"'))


def gigabyte_of_zeros(file: Path, _: Path) -> None:
    file.write_bytes(file.read_bytes() + head_of(2**30))
    os.truncate(file, file.stat().st_size + 2**30 + 4)


def record_of_an_exabyte(file: Path, _: Path) -> None:
    file.write_bytes(file.read_bytes() + head_of(2**60))


cases(
    "rlds",
    "rlds",
    rlds,
    SHARD,
    [
        ("a record of an exabyte", record_of_an_exabyte, "record 3 ends at byte 1152921504606", 3),
        ("a link out", linked_to_secret, OUT, 0),
        ("features of 17 MiB", features(b" " * (17 * 2**20)), "has 16777217 bytes or more", 0),
        ("nested features", features("[" * 200_000), "features.json is not JSON: maximum", 0),
        ("states beyond 64 bits", long_states, "has 56 numbers for 0 steps; allowed: 1", 0),
        ("a message of a gigabyte of zeros", gigabyte_of_zeros, "has another checksum", 3),
    ],
)
