"""Episodes that kill their process at their start, for worlds of any kind; picklable."""

import ctypes
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Deaths:
    """Seeds that kill their process, with the number of times, counted in files of a folder."""

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
