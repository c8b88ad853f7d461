"""Reading members of zip files that come from elsewhere."""

import zipfile

# The module decodes the other methods without a bound.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Returns a member with at most `most` bytes.

    Raises:
        KeyError: It does not exist.
        ValueError: It is larger, or compressed by another method than deflate.
        BadZipFile: It is damaged.
    """
    info = archive.getinfo(name)
    if info.compress_type not in _METHODS:
        raise ValueError(
            f"{name} is compressed by method {info.compress_type}; allowed: none or deflate."
        )
    with archive.open(info) as member:
        data = member.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{name} has more than the allowed {most} bytes.")
    return data
