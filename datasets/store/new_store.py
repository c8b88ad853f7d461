"""Stores that a failure does not leave behind without an episode."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from stringline.datasets.files.made_folder import made_folder
from stringline.datasets.store.store import EpisodeStore


@contextmanager
def new_store(path: str | Path) -> Iterator[EpisodeStore]:
    """Creates or opens a store for a block, see `EpisodeStore.create`.

    If the block fails, a store that was created here is removed, unless it has an episode or
    another process works on it.
    """
    path = Path(path)
    with nullcontext() if path.exists() else made_folder(path):
        created = not (path / "zarr.json").exists()
        store = EpisodeStore.create(path)
        try:
            yield store
        except BaseException:
            # Episodes are folders, and the marks of other processes have names with a dot.
            files = list(path.iterdir())
            if created and all(each.is_file() and each.name[0] != "." for each in files):
                for each in files:
                    each.unlink()
            raise
