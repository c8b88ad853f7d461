"""Episodes that end their process when they begin, for worlds of any kind; it can be sent to other processes."""

import ctypes
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Deaths:
    """Which seeds end their process when they begin: by seed, how often, counted in files of a folder, and how."""

    folder: Path
    by_kill: Mapping[int, int]
    by_fault: Mapping[int, int]

    def begin(self, seed: int | None) -> None:
        assert seed is not None
        with (self.folder / f"begun-{seed}").open("a") as file:
            file.write("x")
        begun = (self.folder / f"begun-{seed}").stat().st_size
        if begun <= self.by_kill.get(seed, 0):
            os.kill(os.getpid(), signal.SIGKILL)
        if begun <= self.by_fault.get(seed, 0):
            ctypes.string_at(0)
