"""Textured meshes from folders of OBJ and GLB files, such as YCB and Google Scanned Objects.

Nothing of such folders is part of this package. Reading needs the extra `meshes`.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import POSITIVE, unknown_name

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
