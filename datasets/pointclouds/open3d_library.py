"""The optional library open3d, and point clouds in files."""

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np

from stringline.datasets.pointclouds.clouds import Cloud


def open3d() -> ModuleType:
    """Imports open3d.

    Raises:
        ValueError: open3d is not installed, or a system library that it needs.
    """
    try:
        return importlib.import_module("open3d")
    except (ImportError, OSError) as error:
        remedy = (
            "Install the system library: apt install libusb-1.0-0"
            if "libusb" in str(error)
            else 'Run: pip install "stringline[view]"'
        )
        raise ValueError(
            f"This needs open3d, which cannot be imported ({error}). {remedy}"
        ) from error


def write_ply(cloud: Cloud, path: Path) -> None:
    """Writes a cloud as a binary PLY file with positions in double precision."""
    if path.suffix != ".ply":
        raise ValueError(f"A cloud is written as a .ply file; got {path}.")
    if not len(cloud):
        raise ValueError("The cloud is empty: no camera has a valid depth pixel.")
    library = open3d()
    points = library.geometry.PointCloud(library.utility.Vector3dVector(cloud.points))
    points.colors = library.utility.Vector3dVector(cloud.colours / np.float64(255))
    path.parent.mkdir(parents=True, exist_ok=True)
    if not library.io.write_point_cloud(str(path), points):
        raise ValueError(f"{path} could not be written.")
