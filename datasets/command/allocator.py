"""Settings of malloc for arrays of some MB that are made and dropped at every step."""

import ctypes
import os

# Parameters of mallopt(3) and the variables from which glibc reads them at the start of a process.
_TRIM = (-1, "MALLOC_TRIM_THRESHOLD_")
_MMAP = (-3, "MALLOC_MMAP_THRESHOLD_")

_KEPT_BYTES = 2**31 - 1  # The largest number that mallopt takes.
_BLOCK_BYTES = (2**30, 2**25)  # Versions of glibc before 2.35 refuse more than 32 MiB.


def keep_freed_memory() -> bool:
    """Makes malloc keep freed memory for later allocations, here and in child processes.

    By default, glibc returns large blocks to the system and fetches them again page by page. On two
    cores this took 15 % of a training step, and most of the time in which a batch is loaded.
    Variables of the environment that the user has set have priority.

    Returns:
        Whether malloc has been set: glibc has these settings, macOS and musl do not.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(name in os.environ for _, name in (_TRIM, _MMAP)):
        return False
    trim, trim_name = _TRIM
    mmap, mmap_name = _MMAP
    accepted = next((size for size in _BLOCK_BYTES if mallopt(mmap, size)), None)
    if accepted is None or not mallopt(trim, _KEPT_BYTES):
        return False
    os.environ[mmap_name] = str(accepted)
    os.environ[trim_name] = str(_KEPT_BYTES)
    return True
