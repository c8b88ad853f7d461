"""How long the parts of a run took, over interruptions."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stringline.datasets.files.atomic import write_file

_log = logging.getLogger(__name__)


class Journal:
    """Seconds by phase, in a file that a continued run adds to."""

    def __init__(self, file: Path, phases: tuple[str, ...]) -> None:
        """Reads what earlier calls took.

        Args:
            file: Where the seconds are kept.
            phases: Names in the order in which they run.
        """
        self._file = file
        self._phases = phases
        self.seconds: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Times a block, also when it is interrupted."""
        _log.info("%d of %d: %s", self._phases.index(name) + 1, len(self._phases), name)
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_file(self._file, json.dumps(self.seconds, indent=1).encode())
