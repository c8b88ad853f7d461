"""Readers whose errors are `ForeignDataError`, whatever the libraries raise on damaged files."""

import logging
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from stringline.datasets.command.user_errors import raised_here
from stringline.datasets.contract.contract import Array
from stringline.datasets.formats.foreign import (
    ForeignDataError,
    ForeignEpisode,
    Frames,
    Reader,
    Reference,
)

_LONGEST = 500  # Characters of a message, in one line.
_log = logging.getLogger(__name__)


class GuardedReader:
    """A reader that raises `ForeignDataError` in place of any error of a library.

    Damaged files make libraries raise errors of all types.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists the episodes of a data set."""
        with _explained():
            for reference in self._reader.episodes(path):
                yield replace(reference, read=partial(self._read, reference))

    @staticmethod
    def _read(reference: Reference) -> ForeignEpisode:
        with _explained():
            episode = reference.read()
        images = {key: partial(_frames, frames) for key, frames in episode.images.items()}
        return replace(episode, images=images)


def _frames(frames: Frames) -> Iterator[Array]:
    with _explained():
        yield from frames()


@contextmanager
def _explained() -> Iterator[None]:
    """Replaces errors of libraries; those of options and of this package's checks remain."""
    try:
        yield
    except MemoryError as error:
        raise ForeignDataError(
            "It needs more memory than an import may use; allow more for a data set that you "
            "trust, memory_gib=NUMBER."
        ) from error
    except Exception as error:
        ours = isinstance(error, ValueError) and raised_here(error)
        if ours and "\n" not in str(error):
            raise
        _log.debug("An error of a library:", exc_info=True)
        text = textwrap.shorten(str(error), _LONGEST).rstrip(".")
        raise ForeignDataError(
            f"{text}." if ours else f"It cannot be read ({type(error).__name__}: {text})."
        ) from error
