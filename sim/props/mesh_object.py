"""Objects from mesh files: textured parts to see, and their convex hull for physics."""

import io

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.mjcf_parts import HIDDEN
from stringline.sim.props.graspable import DENSITY, HEAVIEST_KG, LIGHTEST_KG, Graspable
from stringline.sim.props.hull_holds import hull_holds
from stringline.sim.props.mesh_files import Mesh, MeshPart
from stringline.sim.props.prop import CONTACT, VISUAL


class MeshObject(Graspable):
    """An object of a mesh. Its origin is the middle of the box around it, and it rests as stored.

    Its mass is that of wood that fills the convex hull, within 40 and 250 g, as of `GraspObject`.

    Attributes:
        points: (N, 3), vertices of the convex hull, metres.
        radii: (N,), zeros.
    """

    def _build(self, name: str, mesh: Mesh) -> None:
        """Builds an object named `name`."""
        middle = (mesh.low + mesh.high) / 2
        self.points = mesh.hull - middle
        self.radii = np.zeros(len(self.points))
        self.holds = hull_holds(self.points)
        self._begin(name, float(np.linalg.norm(self.points, axis=1).max()))
        hull = self._root.asset.add("mesh", name="hull", vertex=self.points.ravel())
        volume = _hull_volume(self.points)
        mass = float(np.clip(DENSITY * volume, LIGHTEST_KG, HEAVIEST_KG))
        contact = {**CONTACT, "group": HIDDEN}
        self.body.add("geom", type="mesh", mesh=hull, mass=mass, **contact)
        for number, part in enumerate(mesh.parts):
            self._add_part(f"part_{number}", part, middle)

    def _add_part(self, name: str, part: MeshPart, middle: np.ndarray) -> None:
        """Adds a visible part, with its texture if it has one."""
        arrays = {"vertex": (part.vertices - middle).ravel(), "face": part.faces.ravel()}
        # Scans are open surfaces, which have no volume.
        if part.uv is not None:  # MuJoCo counts rows of a texture from the top.
            arrays["texcoord"] = (part.uv * (1, -1) + (0, 1)).ravel()
        shape = self._root.asset.add("mesh", name=name, inertia="shell", **arrays)
        look = {"rgba": part.colour}
        if part.texture is not None:
            file = mjcf.Asset(_png(part.texture), ".png")
            texture = self._root.asset.add("texture", name=name, type="2d", file=file)
            look = {"material": self._root.asset.add("material", name=name, texture=texture)}
        self.body.add("geom", type="mesh", mesh=shape, **look, **VISUAL)


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def _hull_volume(points: np.ndarray) -> float:
    from scipy.spatial import ConvexHull

    return float(ConvexHull(points).volume)
