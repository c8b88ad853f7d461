"""Errors of readers as `ForeignDataError`, whatever the libraries raise on damaged files."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from stringline.datasets.command.user_errors import raised_here
from stringline.datasets.formats.foreign import ForeignDataError

_LONGEST = 500  # Characters of a message, in one line.
_LONGEST_OF_OURS = 1200  # With the error of a library, which may repeat the data.
_log = logging.getLogger(__name__)


def in_brief(error: Exception) -> str:
    """Returns an error for a message; some repeat the data that they complain of."""
    return _cut(repr(error))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."


@contextmanager
def blamed_on_data() -> Iterator[None]:
    """Turns any error of a reader into a `ForeignDataError` in one line, with its cause.

    Damaged files make libraries raise errors of all types. Those of this package's checks keep
    their messages, except that long ones are cut; missing packages remain.

    Raises:
        ForeignDataError: The block failed.
    """
    try:
        yield
    except MemoryError as error:
        raise ForeignDataError(
            "It needs more memory than an import may use; allow more for a data set that you "
            "trust, memory_gib=NUMBER."
        ) from error
    except ImportError:
        raise
    except Exception as error:
        ours = isinstance(error, ValueError) and raised_here(error)
        readable = ours and "\n" not in str(error) and len(str(error)) <= _LONGEST_OF_OURS
        if isinstance(error, ForeignDataError) and readable:
            raise
        _log.debug("The trace of the error:", exc_info=True)
        if readable:
            raise ForeignDataError(str(error)) from error
        text = _cut(str(error)).rstrip(".")
        raise ForeignDataError(
            f"{text}." if ours else f"It cannot be read ({type(error).__name__}: {text})."
        ) from error
