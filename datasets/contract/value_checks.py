"""Checks of the values of tensors, which a training on a GPU skips."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SKIPPED = ContextVar("value checks are skipped", default=False)


@contextmanager
def without_value_checks() -> Iterator[None]:
    """Skips checks of values in this thread, for a block; shapes and types are checked.

    To check a value the host waits for the device. Windows of a store were checked when they were
    written, and a value that is not finite ends a training by its loss.
    """
    token = _SKIPPED.set(True)
    try:
        yield
    finally:
        _SKIPPED.reset(token)


def value_checks_are_skipped() -> bool:
    """Returns whether checks of values are skipped in this thread."""
    return _SKIPPED.get()
