"""What is drawn of a robot model that others published as MJCF: its meshes, and the skeleton that moves them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import mujoco
import numpy as np

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.embodiments.transforms import Matrix, pose

PLAIN = (
    0.5,
    0.5,
    0.5,
    1.0,
)  # The colour that MuJoCo gives shapes which have none of their own: then the material's counts.
MARK = "drawn mesh"
SPECK_M = 1e-3

Numbers = tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Visual:
    """A mesh that is drawn and does not collide.

    Attributes:
        mesh: Its name, without slashes.
        file: Of the mesh.
        scale: Along its axes.
        refpos: What of the file is its origin, metres.
        refquat: How that is turned.
        colour: Red, green, blue and opacity, 0 to 1.
        T_body_mesh: (4, 4), where it is in its body.
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
    """A model of somebody else's.

    Attributes:
        path: Of its file.
        skeleton: Compiled without meshes; bodies and joints are all there.
        visuals: By the name of the body. Textures are left out.
    """

    path: Path
    skeleton: mujoco.MjModel
    visuals: Mapping[str, tuple[Visual, ...]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a model; meshes are looked for and not read.

        Raises:
            ValueError: It cannot be read, or a mesh is missing.
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
                f"{path} cannot be read as a model of MuJoCo: {' '.join(str(error).split())}"
            ) from error
        visuals: dict[str, tuple[Visual, ...]] = {}
        for number, (body, mesh, colour) in enumerate(drawn):
            described = meshes[mesh]
            if not described["file"].is_file():
                raise ValueError(f"{path} is drawn with {described['file']}, which is not there.")
            geom = skeleton.geom(f"{MARK} {number}")
            visual = Visual(
                mesh.replace("/", "_"),
                **described,
                colour=colour,
                T_body_mesh=_placed(geom.pos, geom.quat),
            )
            visuals[body] = (*visuals.get(body, ()), visual)
        return cls(path, skeleton, visuals)

    def demand(self, kind: str, name: str, names: Collection[str]) -> None:
        """Does nothing if a name is among those of the model.

        Raises:
            ValueError: It is not.
        """
        if name not in names:
            raise unknown_name(f"{kind} in {self.path}", name, [known for known in names if known])


def _take_meshes(spec: Any) -> list[tuple[str, str, Numbers]]:
    """Makes specks of all shapes that are meshes, in their places.

    Returns:
        Body, mesh and colour of those that are drawn and do not collide; the speck of each bears
        the mark and its number.
    """
    drawn: list[tuple[str, str, Numbers]] = []
    for body in spec.bodies:
        for geom in body.geoms:
            if not geom.meshname:
                continue
            if (
                geom.type == mujoco.mjtGeom.mjGEOM_MESH
                and not geom.contype
                and not geom.conaffinity
            ):
                geom.name = f"{MARK} {len(drawn)}"
                drawn.append((body.name, geom.meshname, _colour(spec, geom)))
            geom.type = mujoco.mjtGeom.mjGEOM_SPHERE
            geom.size = [SPECK_M] * 3
            geom.meshname = ""
    return drawn


def _colour(spec: Any, geom: Any) -> Numbers:
    bare = geom.material and np.allclose(geom.rgba, PLAIN)
    return tuple(
        float(value) for value in (spec.material(geom.material).rgba if bare else geom.rgba)
    )


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
