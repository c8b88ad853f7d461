"""A stopwatch for the phases of a run, which adds up over interruptions."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stringline.datasets.files.atomic import write_file

_log = logging.getLogger(__name__)


class Stopwatch:
    """Seconds by phase, in a file that a continued run adds to."""

    def __init__(self, file: Path, phases: tuple[str, ...]) -> None:
        self._file = file
        self.phases = phases
        self.seconds: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}

    def elapsed(self) -> float:
        """Returns the sum of all finished blocks, seconds."""
        return sum(self.seconds.values())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Times a block, also if it is interrupted."""
        _log.info("%d of %d: %s", self.phases.index(name) + 1, len(self.phases), name)
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_file(self._file, json.dumps(self.seconds, indent=1).encode())
