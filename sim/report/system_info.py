"""Hardware and package versions of a measurement, without the name of the machine."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("stringline", "numpy", "torch", "mujoco", "dm-control", "diffusers", "zarr")


def system_info() -> str:
    """Returns processor, cores, memory and system: `Xeon ..., 2 cores, 16 GiB, Linux x86_64`."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{_processor()}, {cores} core{'s' if cores > 1 else ''}, {memory:.0f} GiB, "
        f"{platform.system()} {platform.machine()}"
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    for line in information.read_text().splitlines() if information.exists() else []:
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.processor() or "unknown processor"


def package_versions() -> dict[str, str]:
    """Returns the versions of Python and of the installed packages that affect results."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
