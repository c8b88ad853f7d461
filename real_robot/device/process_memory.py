"""Memory of a process, its growth, and its processor time (Linux).

The kernel's own files are read, not psutil: it sums up clean and dirty private pages, and clean
ones are not a leak.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MEBIBYTE = 2**20
PER_S = 600.0  # Growth is given per ten minutes.
_FIELDS = {"Rss": "rss", "Pss": "pss", "Private_Dirty": "private"}


@dataclass(frozen=True)
class Resident:
    """Memory of a process in RAM, bytes.

    Attributes:
        rss: Resident set size; shared pages count in full.
        pss: Proportional set size; shared pages are divided among their processes.
        private: Private dirty pages.
    """

    rss: int
    pss: int
    private: int


def resident(pid: int, system: Path = Path("/proc")) -> Resident | None:
    """Returns the memory of a process; None if it has ended or belongs to another user."""
    try:
        lines = (system / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    words = [line.split() for line in lines]
    found = {
        _FIELDS[name]: int(word[1]) * 1024
        for word in words
        if word and (name := word[0].rstrip(":")) in _FIELDS
    }
    return Resident(**found) if len(found) == len(_FIELDS) else None


def processor_s(pid: int, system: Path = Path("/proc")) -> float:
    """Returns the processor time of all threads of a process, seconds; NaN if it has ended."""
    try:
        # The name, in brackets, may contain brackets; numbers follow it.
        words = (system / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Growth:
    """A straight line fitted to memory over time.

    Attributes:
        mib: Rise per ten minutes, MiB.
        error_mib: Its standard error, MiB; NaN with fewer than three samples.
        span_s: Time from the first to the last sample, seconds.
    """

    mib: float
    error_mib: float
    span_s: float

    @classmethod
    def of(cls, seconds: Sequence[float], sizes: Sequence[int]) -> "Growth":
        """Fits a line by least squares to sizes (N,) in bytes at rising times (N,).

        Raises:
            ValueError: There are fewer than two samples, or not as many sizes as times.
        """
        if len(seconds) < 2 or len(seconds) != len(sizes):
            raise ValueError(
                f"Growth needs two samples or more, each with its time; got {len(sizes)} and "
                f"{len(seconds)}."
            )
        time = np.asarray(seconds, np.float64)
        size = np.asarray(sizes, np.float64) / MEBIBYTE
        time = time - time.mean()
        size = size - size.mean()
        slope = float(time @ size / (time @ time))
        rest = size - slope * time
        error = np.sqrt(rest @ rest / (len(time) - 2) / (time @ time)) if len(time) > 2 else np.nan
        return cls(slope * PER_S, float(error) * PER_S, float(seconds[-1] - seconds[0]))
