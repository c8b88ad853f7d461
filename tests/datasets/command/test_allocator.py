"""Freed memory stays with a process and its children, unless the user wants something else."""

import os
import subprocess
import sys

import pytest

# The page faults of twenty arrays of 60 MB, one after the other.
FAULTS = """
import os, resource, sys
import numpy as np
from stringline.datasets.command.entry_points import keep_freed_memory
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


def faults(argument: str, *, code: str = FAULTS, **variables: str) -> list[str]:
    """Runs code in a process with only these variables of malloc; returns what it prints."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    # NumPy asks for huge pages, which would hide the faults.
    own["NUMPY_MADVISE_HUGEPAGE"] = "0"
    done = subprocess.run(
        [sys.executable, "-c", code, argument],
        capture_output=True,
        text=True,
        env=own | variables,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.slow
def test_arrays_are_fetched_from_the_system_once() -> None:
    kept, count, *variables = faults("keep")
    assert kept == "True"
    assert int(count) < 1.5 * PAGES
    assert int(faults("leave")[1]) > 15 * PAGES
    # A child process gets the same by its environment.
    names = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
    inherited = dict(zip(names, variables, strict=True))
    assert int(faults("leave", **inherited)[1]) < 1.5 * PAGES


# The entry of every command, then the page faults.
COMMAND = f"""
import sys
from stringline.datasets.command.entry_points import data
arguments = sys.argv
sys.argv = ["stringline-data", "--version"]
data()
sys.argv = arguments
{FAULTS}"""


@pytest.mark.slow
def test_each_command_keeps_its_freed_memory() -> None:
    count, mmap, trim = faults("leave", code=COMMAND)[-3:]
    assert int(count) < 1.5 * PAGES
    assert "None" not in (mmap, trim)
    assert int(faults("leave", MALLOC_MMAP_THRESHOLD_="4096", code=COMMAND)[-3]) > 15 * PAGES


def test_settings_of_the_user_have_priority() -> None:
    kept, _, *variables = faults("keep", MALLOC_MMAP_THRESHOLD_="4096")
    assert (kept, variables) == ("False", ["4096", "None"])
