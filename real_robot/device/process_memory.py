"""How much memory a process holds, how fast that grows, and how much processor time it has taken (Linux)."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MEBIBYTE = 2**20
PER_S = 600.0  # Growth is said per ten minutes.
_FIELDS = {"Rss": "rss", "Pss": "pss", "Private_Dirty": "private"}


@dataclass(frozen=True)
class Resident:
    """Memory of a process in RAM, bytes.

    Attributes:
        rss: All of it; what is shared counts in every process that has touched it.
        pss: The same, with what is shared divided among those that share it.
        private: What is its own and was written to.
    """

    rss: int
    pss: int
    private: int


def resident(pid: int, system: Path = Path("/proc")) -> Resident | None:
    """Returns what a process holds, None if it is gone or is no process of ours.

    Args:
        pid: Its number.
        system: Where the kernel shows its processes.
    """
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
    """Returns the seconds of processor time that a process has taken, of all its threads; not a number if it is gone."""
    try:
        # The name, in brackets, may hold anything; numbers follow it.
        words = (system / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Growth:
    """A straight line through memory over time.

    Attributes:
        mib: Rise per ten minutes, MiB.
        error_mib: Its standard error, MiB; not a number with fewer than three samples.
        span_s: Seconds that the samples span.
    """

    mib: float
    error_mib: float
    span_s: float

    @classmethod
    def of(cls, seconds: Sequence[float], sizes: Sequence[int]) -> "Growth":
        """Fits a line by least squares.

        Args:
            seconds: (N,) when, rising.
            sizes: (N,) bytes.

        Raises:
            ValueError: There are fewer than two samples.
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
