"""Reads an incident log, also a damaged one."""

import itertools
import json
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from stringline.real_robot.incidents.incident_format import Damage, Entry, Kind, scan
from stringline.real_robot.ipc.mailbox import Record

_KNOWN = frozenset(int(kind) for kind in Kind)


@dataclass(frozen=True)
class Incident:
    """The intact records of a log, in order, and its damaged parts."""

    entries: Sequence[Entry]
    damage: Sequence[Damage]

    @classmethod
    def of(cls, data: bytes | mmap.mmap) -> Self:
        """Reads bytes; no content raises an error."""
        found = list(scan(data))
        entries = [part for part in found if isinstance(part, Entry)]
        return cls(entries, [part for part in found if isinstance(part, Damage)])

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Reads a file.

        Raises:
            ValueError: The file does not exist, or has no intact record.
        """
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"The incident log {path} does not exist.")
        with path.open("rb") as file:
            if not path.stat().st_size:
                raise ValueError(f"{path} is empty.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                incident = cls.of(data)
        if not incident.entries:
            raise ValueError(
                f"{path} is not an incident log: its {path.stat().st_size} bytes contain no intact "
                f"record."
            )
        return incident

    @cached_property
    def header(self) -> Mapping[str, Any]:
        """Content of the header; empty if it is damaged."""
        return next(
            (
                header
                for entry in self.entries
                if entry.kind == Kind.HEADER and (header := json_of(entry))
            ),
            {},
        )

    @cached_property
    def layout(self) -> np.dtype[np.void] | None:
        """Layout of the records of cycles; None if the header lacks it."""
        try:
            return layout_of(self.header["layout"])
        except (KeyError, ValueError, TypeError):
            return None

    @cached_property
    def cycles(self) -> list[tuple[Entry, Record]]:
        """The cycles with their decoded records; empty without a layout."""
        layout = self.layout
        if layout is None:
            return []
        whole = [
            entry
            for entry in self.entries
            if entry.kind == Kind.CYCLE and len(entry.payload) == layout.itemsize
        ]
        return [(entry, np.frombuffer(entry.payload, layout).reshape(())) for entry in whole]

    @property
    def missing(self) -> int:
        """Number of missing records between the first and the last."""
        numbers = [entry.number for entry in self.entries if entry.number]
        return sum(max(0, after - before - 1) for before, after in itertools.pairwise(numbers))

    @property
    def ended(self) -> Mapping[str, Any]:
        """Content of the last record; empty if the log is incomplete."""
        return next(
            (json_of(entry) for entry in reversed(self.entries) if entry.kind == Kind.END), {}
        )

    @property
    def unknown(self) -> int:
        """Number of records of unknown kinds."""
        return sum(entry.kind not in _KNOWN for entry in self.entries)


def json_of(entry: Entry) -> dict[str, Any]:
    """Returns the JSON object of a record, empty without one."""
    try:
        content = json.loads(entry.payload)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def plain_layout(layout: np.dtype[np.void]) -> list[Any]:
    """Returns a layout as plain JSON; `layout_of` is the inverse."""
    return [
        [
            field[0],
            plain_layout(layout[field[0]]) if layout[field[0]].names else field[1],
            *map(list, field[2:]),
        ]
        for field in layout.descr
    ]


def layout_of(plain: object) -> np.dtype[np.void]:
    """Returns the layout of a description as by `plain_layout`.

    Raises:
        ValueError: The description is invalid, or has objects.
    """
    try:
        layout = np.dtype(_fields(plain))
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise ValueError(f"This is not the layout of a record: {plain!r:.100}") from error
    if layout.hasobject or not layout.names or not layout.itemsize:
        raise ValueError(f"This is not the layout of a record: {plain!r:.100}")
    return layout


def _fields(plain: object) -> list[Any]:
    if not isinstance(plain, list):
        raise TypeError
    fields = []
    for name, kind, *shape in plain:
        fields.append(
            (
                str(name),
                _fields(kind) if isinstance(kind, list) else str(kind),
                *(tuple(s) for s in shape),
            )
        )
    return fields
