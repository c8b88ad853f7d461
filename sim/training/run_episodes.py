"""The episodes of a run and those of its store, which may have been edited since it began."""

from collections.abc import Iterable, Sequence

from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.transactions import trash_of


def check_kept(store: EpisodeStore, begun: Sequence[str]) -> None:
    """Checks that the episodes with which a run began can be read still."""
    removed = _without(begun, store.names())
    if lost := [name for name in removed if not store.has_removed(name)]:
        raise ValueError(
            f"{store.path} has changed since the run began: neither the store nor "
            f"{trash_of(store.path)} has {_named(lost)}. Move the episodes back, or choose another "
            "output."
        )


def describe_change(before: Sequence[str], now: Sequence[str]) -> str:
    """Describes which episodes were removed and added; empty if none were."""
    parts = {"Removed": _without(before, now), "Added": _without(now, before)}
    return " ".join(f"{word}: {_named(names)}." for word, names in parts.items() if names)


def _without(names: Sequence[str], others: Iterable[str]) -> list[str]:
    known = set(others)
    return [name for name in names if name not in known]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}"
