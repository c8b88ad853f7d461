"""Objects from mesh files: textured parts to see, and their convex hull for physics."""

import io

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.mjcf_parts import HIDDEN
from stringline.datasets.embodiments.transforms import Matrix
from stringline.sim.props.mesh_files import Mesh, MeshPart
from stringline.sim.props.objects import DENSITY, HEAVIEST_KG, LIGHTEST_KG
from stringline.sim.props.prop import CONTACT, VISUAL, Prop


class MeshObject(Prop):
    """An object of a mesh. Its origin is the middle of the box around it, and it rests as stored.

    Its mass is that of wood that fills the convex hull, within 40 and 250 g, as of `GraspObject`.

    Attributes:
        points: (N, 3), vertices of the convex hull, metres.
    """

    def _build(self, name: str, mesh: Mesh) -> None:
        """Builds an object named `name`."""
        middle = (mesh.low + mesh.high) / 2
        self.points = mesh.hull - middle
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

    @property
    def rest_height(self) -> float:
        """Height of the origin above the ground on which the object rests, metres."""
        return -float(self.points[:, 2].min())

    def lowest(self, T_base_item: Matrix) -> float:
        """Returns the height of its lowest point in the base frame, metres."""
        return float((self.points @ T_base_item[2, :3]).min() + T_base_item[2, 3])


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def _hull_volume(points: np.ndarray) -> float:
    from scipy.spatial import ConvexHull

    return float(ConvexHull(points).volume)
