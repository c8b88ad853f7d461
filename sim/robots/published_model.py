"""The visible meshes of a robot model that others published as MJCF, and their kinematics."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import mujoco
import numpy as np

from stringline.datasets.embodiments.transforms import Matrix, pose

# MuJoCo's colour for geoms without a colour of their own, which have that of their material.
PLAIN = (0.5, 0.5, 0.5, 1.0)
MARK = "drawn mesh"
SPECK_M = 1e-3

Numbers = tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Visual:
    """A mesh that is drawn and does not collide.

    Attributes:
        mesh: Name of the mesh, without slashes.
        scale: Scale along its axes.
        refpos: Origin in the file's coordinates, metres.
        refquat: Rotation in the file's coordinates, wxyz.
        colour: Red, green, blue and opacity, 0 to 1.
        T_body_mesh: (4, 4), its pose in its body.
    """

    mesh: str
    file: Path
    scale: Numbers
    refpos: Numbers
    refquat: Numbers
    colour: Numbers
    T_body_mesh: Matrix


@dataclass(frozen=True, eq=False)
class PublishedModel:
    """A model that others published.

    Attributes:
        skeleton: The model compiled without meshes, with all bodies and joints.
        visuals: Meshes by the name of their body, without textures.
    """

    path: Path
    skeleton: mujoco.MjModel
    visuals: Mapping[str, tuple[Visual, ...]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a model; the files of its meshes must exist and are not read.

        Raises:
            ValueError: The model cannot be read, or a mesh is missing.
        """
        try:
            spec = mujoco.MjSpec.from_file(str(path))
            drawn = _take_meshes(spec)
            meshes = {
                mesh.name or Path(mesh.file).stem: _described(mesh, path.parent / spec.meshdir)
                for mesh in spec.meshes
            }
            for mesh in list(spec.meshes):
                spec.delete(mesh)
            skeleton = spec.compile()
        except ValueError as error:
            raise ValueError(
                f"{path} cannot be read as a MuJoCo model: {' '.join(str(error).split())}"
            ) from error
        visuals: dict[str, tuple[Visual, ...]] = {}
        for number, (body, mesh, colour) in enumerate(drawn):
            described = meshes[mesh]
            if not described["file"].is_file():
                raise ValueError(
                    f"{path} needs the mesh {described['file']}, which does not exist."
                )
            geom = skeleton.geom(f"{MARK} {number}")
            visual = Visual(
                mesh.replace("/", "_"),
                **described,
                colour=colour,
                T_body_mesh=_placed(geom.pos, geom.quat),
            )
            visuals[body] = (*visuals.get(body, ()), visual)
        return cls(path, skeleton, visuals)


def _take_meshes(spec: Any) -> list[tuple[str, str, Numbers]]:
    """Replaces all mesh geoms by small spheres in their places.

    Returns body, mesh and colour of the visible meshes that do not collide, in the order of the
    numbers in the names of their spheres.
    """
    drawn: list[tuple[str, str, Numbers]] = []
    for body in spec.bodies:
        for geom in body.geoms:
            if not geom.meshname:
                continue
            is_mesh = geom.type == mujoco.mjtGeom.mjGEOM_MESH
            if is_mesh and not geom.contype and not geom.conaffinity:
                geom.name = f"{MARK} {len(drawn)}"
                drawn.append((body.name, geom.meshname, _colour(spec, geom)))
            geom.type = mujoco.mjtGeom.mjGEOM_SPHERE
            geom.size = [SPECK_M] * 3
            geom.meshname = ""
    return drawn


def _colour(spec: Any, geom: Any) -> Numbers:
    bare = geom.material and np.allclose(geom.rgba, PLAIN)
    rgba = spec.material(geom.material).rgba if bare else geom.rgba
    return tuple(float(value) for value in rgba)


def _described(mesh: Any, folder: Path) -> dict[str, Any]:
    frame = {
        key: tuple(float(value) for value in getattr(mesh, key))
        for key in ("scale", "refpos", "refquat")
    }
    return {"file": folder / mesh.file, **frame}


def _placed(position: Any, quat: Any) -> Matrix:
    rotation = np.empty(9)
    mujoco.mju_quat2Mat(rotation, quat)
    return pose(position, rotation.reshape(3, 3))
