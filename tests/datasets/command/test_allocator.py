"""Freed memory stays with a process and its children, unless the user wants something else."""

import os
import subprocess
import sys

import pytest

# The page faults of twenty arrays of 60 MB, one after the other.
FAULTS = """
import os, resource, sys
import numpy as np
from stringline.datasets.command.allocator import keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else None
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    np.ones(7_500_000)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(kept, faults, *(os.environ.get(f"MALLOC_{name}_THRESHOLD_") for name in ("MMAP", "TRIM")))
"""
PAGES = 60_000_000 // 4096

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the settings are those of glibc"
)


def faults(argument: str, **variables: str) -> list[str]:
    """Runs `FAULTS` in a process with only these variables of malloc."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    # NumPy asks for huge pages, which would hide the faults.
    own["NUMPY_MADVISE_HUGEPAGE"] = "0"
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, argument],
        capture_output=True,
        text=True,
        env=own | variables,
        check=True,
    )
    return done.stdout.split()


def test_arrays_are_fetched_from_the_system_once() -> None:
    kept, count, *variables = faults("keep")
    assert kept == "True"
    assert int(count) < 1.5 * PAGES
    assert int(faults("leave")[1]) > 15 * PAGES
    # A child process gets the same by its environment.
    names = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
    inherited = dict(zip(names, variables, strict=True))
    assert int(faults("leave", **inherited)[1]) < 1.5 * PAGES


def test_settings_of_the_user_have_priority() -> None:
    kept, _, *variables = faults("keep", MALLOC_MMAP_THRESHOLD_="4096")
    assert (kept, variables) == ("False", ["4096", "None"])
