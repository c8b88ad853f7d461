"""Files of a data set that comes from elsewhere: inside of it, and of a bounded size."""

from pathlib import Path

from stringline.datasets.files.limits import MOST_METADATA_BYTES
from stringline.datasets.formats.foreign import ForeignDataError


def inside(root: Path, path: Path) -> Path:
    """Checks that a path, after its symbolic links, lies in the data set `root`, and returns it."""
    try:
        real = path.resolve()
        special = path.exists() and not (path.is_file() or path.is_dir())
    except (OSError, RuntimeError, ValueError) as error:  # A loop of links, a null character.
        raise ForeignDataError(f"{str(path)!r} cannot be resolved: {error}.") from error
    if not real.is_relative_to(_whole(root)):
        raise ForeignDataError(f"{path} leads out of the data set, to {real}; it is not read.")
    if special:  # Opening a pipe would wait for ever.
        raise ForeignDataError(f"{path} is neither a file nor a folder; it is not read.")
    return path


def _whole(root: Path) -> Path:
    """Returns the folder that contains a data set: the hub's cache has links from `snapshots`."""
    real = root.resolve()
    cache = real.parent.parent
    return cache if real.parent.name == "snapshots" and (cache / "blobs").is_dir() else real


def read_inside(root: Path, path: Path, most: int = MOST_METADATA_BYTES) -> bytes:
    """Reads a file of the data set `root` with at most `most` bytes.

    Raises:
        FileNotFoundError: It does not exist.
        ForeignDataError: It lies elsewhere, or is larger.
    """
    with inside(root, path).open("rb") as file:
        data = file.read(most + 1)
    check_size(path.name, len(data), most)
    return data


def check_size(name: str, size: int, most: int) -> None:
    """Checks a number of bytes; messages begin with `name`."""
    if size > most:
        raise ForeignDataError(f"{name} has {size} bytes or more; allowed: {most}.")
