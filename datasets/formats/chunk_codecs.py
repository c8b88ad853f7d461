"""Decoding of the chunks of zarr format 2 into memory of a known size.

A chunk comes from elsewhere, and so does the description of its codec. Only codecs by the names in
`ALLOWED` run, never filters, and none makes more bytes than the array's metadata promise: numcodecs
would unpickle objects, and allocate whatever the header of a chunk claims.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.files.limits import MOST_DICTIONARY_BYTES
from stringline.datasets.files.zstd_header import zstd_size
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.image_codecs import decoded_picture
from stringline.datasets.formats.libraries import optional_library

Decoder = Callable[[bytes, Array], None]


def decoder_of(codec: Any) -> Decoder:
    """Returns the function that decodes a chunk into an array, by the entry `compressor`.

    Raises:
        ForeignDataError: The codec is not one of the allowed ones.
    """
    if codec is None:
        return _plain
    name = codec.get("id") if isinstance(codec, Mapping) else codec
    if not isinstance(name, str) or name not in ALLOWED:
        raise ForeignDataError(str(unknown_name("codec", str(name), ALLOWED)))
    if name in ("imagecodecs_jpeg2k", "imagecodecs_jpegxl"):
        optional_library("imagecodecs")
    return ALLOWED[name]


def _plain(data: bytes, into: Array) -> None:
    _check_length(len(data), into)
    into.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)


def _check_length(length: int, into: Array) -> None:
    if length != into.nbytes:
        raise ForeignDataError(f"a chunk has {length} bytes; allowed: {into.nbytes}")


def _blosc(data: bytes, into: Array) -> None:
    # The header has the decoded size at byte 4 and its own at byte 12; the decoder trusts both.
    _check_length(int.from_bytes(data[4:8], "little"), into)
    if int.from_bytes(data[12:16], "little") != len(data):
        raise ForeignDataError("the length in the header of a chunk is not that of the chunk")
    _numcodecs("Blosc", data, into)


def _lz4(data: bytes, into: Array) -> None:
    _check_length(int.from_bytes(data[:4], "little"), into)
    _numcodecs("LZ4", data, into)


def _zstd(data: bytes, into: Array) -> None:
    _check_length(zstd_size(data), into)
    _numcodecs("Zstd", data, into)


def _numcodecs(name: str, data: bytes, into: Array) -> None:
    codec = getattr(optional_library("numcodecs"), name)()
    codec.decode(data, out=into.reshape(-1).view(np.uint8))


def _zlib(data: bytes, into: Array, *, window: int) -> None:
    _stream(zlib.decompressobj(window).decompress(data, into.nbytes + 1), into)


def _bz2(data: bytes, into: Array) -> None:
    _stream(bz2.BZ2Decompressor().decompress(data, into.nbytes + 1), into)


def _lzma(data: bytes, into: Array) -> None:
    # Of xz and LZMA alone, whatever the metadata say: raw streams name filters of their own.
    stream = lzma.LZMADecompressor(memlimit=2 * MOST_DICTIONARY_BYTES)
    _stream(stream.decompress(data, into.nbytes + 1), into)


def _stream(decoded: bytes, into: Array) -> None:
    if len(decoded) > into.nbytes:
        raise ForeignDataError(f"a chunk decodes to more than the allowed {into.nbytes} bytes")
    _plain(decoded, into)


def _image(data: bytes, into: Array, *, name: str) -> None:
    # With `out` the decoder refuses images of another size before it decodes them.
    found = getattr(optional_library("imagecodecs"), f"{name}_decode")(data, out=into)
    if not np.may_share_memory(found, into):
        raise ForeignDataError("an image does not have the shape of its chunk")


def _picture(data: bytes, into: Array, *, kind: str) -> None:
    found = decoded_picture(data, kind, tuple(length for length in into.shape if length != 1))
    if not np.can_cast(found.dtype, into.dtype, "equiv"):
        raise ForeignDataError(f"an image is {found.dtype}; allowed: {into.dtype}")
    into[...] = found.reshape(into.shape)


ALLOWED: Mapping[str, Decoder] = {
    "blosc": _blosc,
    "bz2": _bz2,
    "gzip": lambda data, into: _zlib(data, into, window=31),
    "imagecodecs_jpeg": lambda data, into: _picture(data, into, kind="JPEG"),
    "imagecodecs_jpeg2k": lambda data, into: _image(data, into, name="jpeg2k"),
    "imagecodecs_jpegxl": lambda data, into: _image(data, into, name="jpegxl"),
    "imagecodecs_png": lambda data, into: _picture(data, into, kind="PNG"),
    "imagecodecs_webp": lambda data, into: _picture(data, into, kind="WEBP"),
    "lz4": _lz4,
    "lzma": _lzma,
    "zlib": lambda data, into: _zlib(data, into, window=15),
    "zstd": _zstd,
}
"""The decoder by the name of a codec: those of zarr 2, and of images."""
