"""The one way in which an unknown name is answered: what was got, and the nearest names that would do."""

import difflib
from collections.abc import Iterable


def unknown_name(kind: str, got: str, allowed: Iterable[str]) -> ValueError:
    """Returns the error for a name that does not exist.

    Args:
        kind: What was looked for, as a reader would say it ("camera", "task").
        got: The name as the user wrote it.
        allowed: Every valid name.
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(str(got), names, n=3, cutoff=0.4)  # A command line may have a number in its place.
    hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    return ValueError(f"There is no {kind} {got!r}.{hint} Allowed: {', '.join(names) or 'none'}.")
