"""The optional library open3d, and point clouds in files."""

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np

from stringline.datasets.pointclouds.clouds import Cloud


def open3d() -> ModuleType:
    """Imports open3d, which may lack a system library as well."""
    try:
        return importlib.import_module("open3d")
    except ImportError as error:
        raise ValueError(
            f"This needs open3d, which cannot be imported ({error}). Run: pip install "
            f'"stringline[view]"'
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
