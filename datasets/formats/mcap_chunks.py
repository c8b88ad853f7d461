"""The chunks of an MCAP file, whose decoded size is checked before any is decoded.

The libraries would allocate the size that a chunk claims, and decode LZ4 to any size.
"""

import io
from collections.abc import Iterator
from typing import IO, Any

from stringline.datasets.files.limits import MOST_CHUNK_BYTES
from stringline.datasets.files.zstd_header import zstd_size
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.libraries import optional_library

EXTRA = "mcap"
LARGEST_RECORD_BYTES = 2**30
_LZ4_RATIO = 255  # A byte of LZ4 stands for at most 255.
_RECORD_HEAD_BYTES = 9  # An opcode (uint8) and a length (uint64).


def check_chunks(stream: IO[bytes]) -> None:
    """Checks the size of all chunks that a reader of the file may decode.

    Raises:
        ForeignDataError: One decodes to more than `MOST_CHUNK_BYTES`.
    """
    for number, chunk in enumerate(_chunks(stream)):
        size = max(chunk.uncompressed_size, _decoded_bytes(chunk))
        if size > MOST_CHUNK_BYTES:
            raise ForeignDataError(
                f"Chunk {number} decodes to {size} bytes or more; allowed: {MOST_CHUNK_BYTES}."
            )


def _chunks(stream: IO[bytes]) -> Iterator[Any]:
    """Yields the chunks in the summary, where none belongs, and those of the index or the file."""
    kinds = optional_library("mcap.records", package="mcap", extra=EXTRA)
    data = optional_library("mcap.data_stream", package="mcap", extra=EXTRA)
    library = optional_library("mcap.reader", package="mcap", extra=EXTRA)
    stream.seek(-(library.FOOTER_SIZE + library.MAGIC_SIZE), io.SEEK_END)
    footer = next(_records(stream, skip_magic=True))
    places = []
    if isinstance(footer, kinds.Footer) and footer.summary_start:
        stream.seek(footer.summary_start)
        for record in _records(stream, skip_magic=True):
            if isinstance(record, kinds.Chunk):
                yield record
            elif isinstance(record, kinds.ChunkIndex):
                places.append(record.chunk_start_offset)
    for place in places:
        stream.seek(place + _RECORD_HEAD_BYTES)
        yield kinds.Chunk.read(data.ReadDataStream(stream))
    if not places:  # Then a reader goes through the whole file.
        stream.seek(0)
        yield from (each for each in _records(stream) if isinstance(each, kinds.Chunk))


def _records(stream: IO[bytes], *, skip_magic: bool = False) -> Iterator[Any]:
    """Yields the records from a place on, and chunks as they are stored."""
    library = optional_library("mcap.stream_reader", package="mcap", extra=EXTRA)
    found: Iterator[Any] = library.StreamReader(
        stream, skip_magic, emit_chunks=True, record_size_limit=LARGEST_RECORD_BYTES
    ).records
    return found


def _decoded_bytes(chunk: Any) -> int:
    """Returns the size to which a chunk decodes, or a larger one than allowed."""
    if chunk.compression == "zstd":
        try:
            return zstd_size(chunk.data)
        except ValueError:  # The decoder allocates the size in the chunk, or fails.
            return 0
    if chunk.compression != "lz4":
        return len(chunk.data)
    lz4 = optional_library("lz4.frame", package="lz4", extra=EXTRA)
    claimed = int(lz4.get_frame_info(chunk.data)["content_size"])
    if claimed or len(chunk.data) * _LZ4_RATIO <= MOST_CHUNK_BYTES:
        return claimed
    decoder = lz4.LZ4FrameDecompressor()
    return len(decoder.decompress(chunk.data, max_length=MOST_CHUNK_BYTES + 1))
