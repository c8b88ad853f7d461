"""The header of a frame of zstd."""

_MAGIC = b"\x28\xb5\x2f\xfd"


def zstd_size(data: bytes) -> int:
    """Returns the decoded size in the header of a frame (RFC 8878, 3.1.1.1).

    A decoder allocates it before it finds that the frame has less.

    Raises:
        ValueError: The data is not a frame, or its header does not contain the size.
    """
    if data[:4] != _MAGIC or len(data) < 5:
        raise ValueError("a chunk is not a frame of zstd")
    flag = data[4] >> 6
    single = data[4] >> 5 & 1
    dictionary = data[4] & 3
    width = (1 if single else 0, 2, 4, 8)[flag]
    start = 5 + (not single) + (0, 1, 2, 4)[dictionary]
    if not width:
        raise ValueError("the header of a chunk does not contain its decoded size")
    return int.from_bytes(data[start : start + width], "little") + (256 if width == 2 else 0)
