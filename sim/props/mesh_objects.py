"""Objects to grasp from folders of OBJ and GLB files, such as YCB and Google Scanned Objects.

An object has textured parts to see, and their convex hull for physics, whose antipodal grasps are
found by geometry. Some objects of a folder are kept for evaluation. Nothing of such folders is part
of this package. Reading needs the extra `meshes`.
"""

import io
import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import COUNT, POSITIVE, SHARE, unknown_name
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.mjcf_parts import HIDDEN
from stringline.datasets.embodiments.transforms import Matrix
from stringline.sim.props.objects import DENSITY, HEAVIEST_KG, LIGHTEST_KG, WIDEST, Graspable, Hold
from stringline.sim.props.prop import CONTACT, VISUAL

logger = logging.getLogger(__name__)

SUFFIXES = (".glb", ".obj")
MOST_FACES = 200_000
LEAST_THICKNESS_M = 1e-4
UPS: Mapping[str, NDArray[np.float64]] = {
    "z": np.eye(3),
    "y": np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]]),
}
"""Rotation to z up by the axis of a file that points up."""
# The one of several resolutions, and the colours beside a mesh, that data sets keep by name.
_PREFERRED = ("google_16k", "google_64k", "tsdf", "poisson")
_SCANNED_TEXTURES = Path("..") / "materials" / "textures"


@dataclass(frozen=True)
class MeshPart:
    """A part of a mesh with one material.

    Attributes:
        vertices: (V, 3) m, z up.
        faces: (F, 3) indices of vertices.
        uv: (V, 2) places in the texture, from its lower left corner; None without.
        texture: (h, w, 3) uint8; None without.
        colour: (4,) RGBA, 0 to 1, which multiplies the texture.
    """

    vertices: NDArray[np.float64]
    faces: NDArray[np.int32]
    uv: NDArray[np.float64] | None
    texture: NDArray[np.uint8] | None
    colour: NDArray[np.float64]


@dataclass(frozen=True)
class Mesh:
    """A mesh for a simulation: its visible parts, and a convex hull for physics.

    Attributes:
        parts: The visible parts.
        hull: (H, 3) vertices of the convex hull of all parts, m.
        low: (3,) lower corner of the box around it, m.
        high: (3,) upper corner.
    """

    parts: tuple[MeshPart, ...]
    hull: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def find_meshes(folder: Path) -> dict[str, Path]:
    """Returns the mesh of each object in a folder by name, in order of names.

    An object is a file in the folder, `NAME.obj`, or a folder in it, of which one file is taken:
    that in `google_16k` for YCB, `meshes/model.obj` for Google Scanned Objects, else the first one.
    A folder without a licence file gets a warning.

    Raises:
        ValueError: The folder does not exist or has no meshes.
    """
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder} with meshes.")
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not files:
        raise ValueError(f"{folder} has no meshes; allowed: {', '.join(SUFFIXES)}.")
    found: dict[str, Path] = {}
    for path in sorted(files, key=_preference):
        inside = path.relative_to(folder).parts
        found.setdefault(inside[0] if len(inside) > 1 else path.stem, path)
    if not any("licen" in path.name.lower() for path in folder.iterdir()):
        logger.warning("%s has no licence file: look up what its meshes may be used for.", folder)
    return dict(sorted(found.items()))


def _preference(path: Path) -> tuple[int, str]:
    kept = [number for number, name in enumerate(_PREFERRED) if name in path.parts]
    return (kept[0] if kept else len(_PREFERRED), str(path))


def load_mesh(path: Path, *, unit_m: float = 1.0, up: str = "z") -> Mesh:
    """Reads a mesh file.

    Args:
        path: File of type OBJ or GLB.
        unit_m: Metres per unit of the file.
        up: The axis of the file that points up, `z` or `y`.

    Raises:
        ValueError: The file is of another kind or damaged, has no or too many faces or no volume,
            or its texture is not an image.
        ModuleNotFoundError: trimesh is not installed.
    """
    import trimesh

    POSITIVE.check(unit_m=unit_m)
    if up not in UPS:
        raise unknown_name("upward axis", up, UPS)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path} is not a mesh file; allowed: {', '.join(SUFFIXES)}.")
    _check_textures(path)
    try:
        scene = trimesh.load_scene(path, group_material=True, split_object=False)
        read = [each for each in scene.dump() if isinstance(each, trimesh.Trimesh)]
    except Exception as error:  # Each format fails differently.
        raise ValueError(f"{path} cannot be read: {type(error).__name__}: {error}.") from error
    count = sum(len(each.faces) for each in read)
    if not 0 < count <= MOST_FACES:
        raise ValueError(f"{path} has {count} faces; allowed: 1 to {MOST_FACES}.")
    parts = tuple(_part(each, path, unit_m * UPS[up]) for each in read)
    points = np.concatenate([part.vertices for part in parts])
    return Mesh(parts, _hull(points, path), points.min(axis=0), points.max(axis=0))


def _part(read: Any, path: Path, turn: NDArray[np.float64]) -> MeshPart:
    vertices = np.asarray(read.vertices, dtype=np.float64) @ turn.T
    if not np.isfinite(vertices).all():
        raise ValueError(f"{path} has vertices that are not finite.")
    material = getattr(read.visual, "material", None)
    image = getattr(material, "baseColorTexture", None) or getattr(material, "image", None)
    colour = np.asarray(getattr(material, "main_color", (255, 255, 255, 255)), dtype=np.float64)
    uv = getattr(read.visual, "uv", None)
    if image is None and uv is not None:
        image = _scanned_texture(path)
    texture = None if image is None else np.asarray(image.convert("RGB"), dtype=np.uint8)
    # trimesh takes the mean of a texture for the colour of its material.
    tint = np.ones(4) if texture is not None else colour / 255
    places = None if uv is None or texture is None else np.asarray(uv, dtype=np.float64)
    return MeshPart(vertices, np.asarray(read.faces, dtype=np.int32), places, texture, tint)


def _scanned_texture(path: Path) -> Any:
    """Returns the texture that Google Scanned Objects keep beside the folder of the mesh."""
    from PIL import Image

    files = sorted((path.parent / _SCANNED_TEXTURES).glob("*.png"))
    return Image.open(files[0]) if files else None


def _check_textures(path: Path) -> None:
    """Checks the textures of an OBJ, which trimesh would leave out if they are damaged."""
    from PIL import Image

    for library in path.parent.glob("*.mtl") if path.suffix.lower() == ".obj" else ():
        words = [line.split(maxsplit=1) for line in library.read_text(errors="replace").split("\n")]
        for name in (word[1].strip() for word in words if word[:1] == ["map_Kd"] and word[1:]):
            file = library.parent / name
            try:
                if file.is_file():
                    Image.open(file).verify()
            except Exception as error:  # Pillow raises many kinds.
                raise ValueError(f"The texture {file} of {path} is not an image.") from error


def _hull(points: NDArray[np.float64], path: Path) -> NDArray[np.float64]:
    from scipy.spatial import ConvexHull, QhullError

    try:
        hull: NDArray[np.float64] = points[ConvexHull(points).vertices]
    except QhullError as error:
        raise ValueError(f"{path} is flat; physics needs a mesh with a volume.") from error
    thickness = np.ptp(hull, axis=0).min()
    if thickness < LEAST_THICKNESS_M:
        raise ValueError(
            f"{path} is {1e3 * thickness:.3g} mm thick; allowed: {1e3 * LEAST_THICKNESS_M:g} mm "
            "and above. Its unit may be wrong."
        )
    return hull


# Largest angle between the closing direction and the normal of the surface at a pad. Friction of
# .7 holds up to 35 degrees.
SKEW_DEG = 22.0
APART_DEG = 12.0  # Smallest angle between the closing directions of two grasps.
MOST = 16
SPREAD = 200  # Directions that are tried beside the normals of faces.


def hull_holds(points: NDArray[np.float64]) -> Sequence[Hold]:
    """Returns grasps of the hull of points (N, 3), m, those with the smallest angles first.

    The pads close on a line through the hull's centroid, where both surfaces are within 22 degrees
    of perpendicular to it and the hull is at most 90 mm wide. At most 16 grasps are returned, whose
    directions differ by 12 degrees or more.
    """
    from scipy.spatial import ConvexHull

    hull = ConvexHull(points)
    faces = np.unique(hull.equations.round(7), axis=0)
    centre = _centroid(points[hull.simplices])
    found = [
        each for across in _directions(faces) if (each := _hold(points, faces, centre, across))
    ]
    chosen: list[Hold] = []
    for _, hold in sorted(found, key=lambda each: each[0]):
        if all(abs(hold.across @ other.across) < _APART for other in chosen):
            chosen.append(hold)
    return chosen[:MOST]


_APART = float(np.cos(np.radians(APART_DEG)))


def _centroid(triangles: NDArray[np.float64]) -> Vector:
    """Returns the centroid (3,) of the solid within triangles (T, 3, 3) of a convex surface."""
    inside = triangles.mean(axis=(0, 1))
    volumes = abs(np.linalg.det(triangles - inside))
    middles = (triangles.sum(axis=1) + inside) / 4
    return np.asarray(volumes @ middles / volumes.sum())


def _directions(faces: Matrix) -> Iterator[Vector]:
    """Yields unit vectors along which the pads may close: of faces, and spread over a sphere."""
    yield from faces[:, :3]
    heights = np.linspace(0.0, 1.0, SPREAD)
    turns = np.pi * (1 + 5**0.5) * np.arange(SPREAD)  # The golden angle (Vogel, 1979).
    radii = np.sqrt(1 - heights**2)
    yield from np.stack([radii * np.cos(turns), radii * np.sin(turns), heights], axis=1)


def _hold(
    points: Matrix, faces: Matrix, centre: Vector, across: Vector
) -> tuple[float, Hold] | None:
    """Returns a grasp along a direction with its angle, rad; None where the pads would slip.

    Args:
        points: (N, 3).
        faces: (F, 4), outward normals and offsets of the faces.
        centre: (3,), a point inside.
        across: (3,), the direction.
    """
    if np.ptp(points @ across) > WIDEST:
        return None
    slopes = faces[:, :3] @ across
    with np.errstate(divide="ignore"):
        away = -(faces[:, :3] @ centre + faces[:, 3]) / slopes  # Where the line leaves each plane.
    first = int(np.where(slopes > 0, away, np.inf).argmin())
    last = int(np.where(slopes < 0, away, -np.inf).argmax())
    angle = float(np.arccos(np.clip(min(slopes[first], -slopes[last]), -1.0, 1.0)))
    if angle > np.radians(SKEW_DEG):
        return None
    middle = centre + across * (away[first] + away[last]) / 2
    return angle, Hold(middle, across, float(away[first] - away[last]))


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


@dataclass(frozen=True)
class MeshFolder:
    """Objects of a folder of OBJ and GLB files, such as YCB or Google Scanned Objects.

    The name of an object decides whether it is held out and its place in the order of choice, so
    other files in the folder do not change either.

    Args:
        folder: The folder; `find_meshes` describes its layouts.
        unit_m: Metres per unit of the files.
        up: The axis of the files that points up, `z` or `y`.
        count: Most objects to take. All of them are in the simulated world, whose steps take
            longer with each.
        held_out: Whether to take the objects that are held out in place of the others.
        share: Share of the objects that is held out, from 0 to below 1.

    Raises:
        ValueError: An argument is out of range.
    """

    folder: str | Path
    unit_m: float = 1.0
    up: str = "z"
    count: int = 24
    held_out: bool = False
    share: float = 0.2

    def __post_init__(self) -> None:
        COUNT.check(count=self.count)
        SHARE.check(share=self.share)

    def objects(self) -> Sequence[MeshObject]:
        """Reads the objects, in order of choice.

        Those that cannot be read, or that the gripper cannot grasp, are left out with a warning.

        Raises:
            ValueError: No object is left.
            ModuleNotFoundError: trimesh is not installed.
        """
        found = find_meshes(Path(self.folder).expanduser())
        split = [name for name in found if (_place(name) < self.share) == self.held_out]
        taken: list[MeshObject] = []
        refused: list[str] = []
        for name in sorted(split, key=_place):
            item = self._read(name, found[name])
            if item is not None:
                fits = any(hold.is_level() for hold in item.holds)
                taken += [item] * fits
                refused += [_described(item)] * (not fits)
            if len(taken) == self.count:
                break
        if refused:
            logger.warning(
                "No grasp from above fits these objects of %s, which are left out: %s.",
                self.folder,
                "; ".join(refused),
            )
        if not taken:
            kind = "held-out " if self.held_out else ""
            raise ValueError(f"{self.folder} has no {kind}object that the gripper can grasp.")
        return taken

    def _read(self, name: str, path: Path) -> MeshObject | None:
        """Returns an object, or None if its file cannot be used."""
        try:
            return MeshObject(name, load_mesh(path, unit_m=self.unit_m, up=self.up))
        except ValueError as error:
            logger.warning("The object %s is left out: %s", name, error)
            return None


def _described(item: MeshObject) -> str:
    size = " x ".join(f"{1e3 * side:.3g}" for side in np.ptp(item.points, axis=0))
    return f"{item.name} ({size} mm)"


def _place(name: str) -> float:
    """Returns a number of a name, 0 to 1, the same on all machines."""
    return zlib.crc32(name.encode()) / 2**32
