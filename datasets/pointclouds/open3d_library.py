"""open3d, which only some of the package needs: clouds in files, and the check of cameras."""

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np

from stringline.datasets.pointclouds.clouds import Cloud


def open3d() -> ModuleType:
    """Imports open3d.

    Raises:
        ValueError: It is not installed, or a library of the system that it needs is missing.
    """
    try:
        return importlib.import_module("open3d")
    except ImportError as error:
        raise ValueError(
            f"This needs open3d, which cannot be imported ({error}). Run: pip install "
            f'"stringline[view]"'
        ) from error


def write_ply(cloud: Cloud, path: Path) -> None:
    """Writes a cloud as a binary PLY file, places in double precision.

    Raises:
        ValueError: The name does not end in `.ply`, the cloud is empty, or the file cannot be
            written.
    """
    if path.suffix != ".ply":
        raise ValueError(f"A cloud is written as a .ply file; got {path}.")
    if not len(cloud):
        raise ValueError("The cloud is empty: no camera has a return.")
    library = open3d()
    points = library.geometry.PointCloud(library.utility.Vector3dVector(cloud.points))
    points.colors = library.utility.Vector3dVector(cloud.colours / np.float64(255))
    path.parent.mkdir(parents=True, exist_ok=True)
    if not library.io.write_point_cloud(str(path), points):
        raise ValueError(f"{path} could not be written.")


def read_ply(path: Path) -> Cloud:
    """Reads what `write_ply` wrote.

    Raises:
        ValueError: There is no such file, or no cloud in it.
    """
    points = open3d().io.read_point_cloud(str(path)) if path.is_file() else None
    if points is None or not len(points.points):
        raise ValueError(f"There is no cloud in {path}.")
    return Cloud(
        np.asarray(points.points), np.rint(np.asarray(points.colors) * 255).astype(np.uint8)
    )
