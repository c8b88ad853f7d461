"""Assets of furniture catalogues (`.sh3f`) and of folders of GLB and OBJ files, read by trimesh.

A catalogue is a zip archive with `PluginFurnitureCatalog.properties`, which lists names, models and
sizes in centimetres (Sweet Home 3D). Converted meshes are kept in a cache. Rooms choose between
these assets and parametric ones.
"""

import hashlib
import io
import math
import os
import re
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import Range
from stringline.sim.scenes.asset_classes import CLASSES, usual_length
from stringline.sim.scenes.assets import Asset, Mesh, Solid, Stand, Top, Vectors, tight
from stringline.sim.scenes.rooms import seeded_asset

INDEX = "PluginFurnitureCatalog.properties"
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")


@dataclass(frozen=True)
class Piece:
    """One entry of a catalogue or folder.

    Attributes:
        identity: File and entry.
        name: Its name in lower case.
        model: Path of the mesh, in the archive or on the disk.
        size_m: Width, depth and height; None takes those of the mesh, which is in metres then.
        rotation: (3, 3) row by row, to be applied to the mesh first.
        elevation_m: Height above the floor at which it hangs.
        top_m: Height on which things can be put; None for nowhere.
        opening: Whether it is a door or a window.
        licence: Licence that the catalogue states; "" for none.
    """

    identity: str
    name: str
    model: str
    size_m: tuple[float, float, float] | None = None
    rotation: tuple[float, ...] = (1, 0, 0, 0, 1, 0, 0, 0, 1)
    elevation_m: float = 0.0
    top_m: float | None = None
    opening: bool = False
    licence: str = ""


def parse_properties(text: str) -> dict[str, str]:
    """Returns keys and values of a Java properties file, with escapes and continued lines."""
    joined = re.sub(r"\\\r?\n\s*", "", text)
    found = {}
    for line in joined.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and key[:1] not in ("#", "!"):
            plain = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), value.strip())
            found[key.strip()] = re.sub(r"\\(.)", r"\1", plain)
    return found


Entry = tuple[str, Callable[[], Piece]]
"""A name, and what reads the piece; that raises a ValueError if its fields are wrong."""


def entries_of_index(text: str, source: str) -> Iterator[Entry]:
    """Yields the entries of `PluginFurnitureCatalog.properties`."""
    values = parse_properties(text)
    numbers = sorted(int(key[5:]) for key in values if re.fullmatch(r"name#\d+", key))
    for number in numbers:
        end = f"#{number}"
        fields = {key[: -len(end)]: value for key, value in values.items() if key.endswith(end)}
        yield fields["name"].lower(), partial(_piece, fields, f"{source}/{number}")


def _piece(fields: Mapping[str, str], identity: str) -> Piece:
    width, depth, height = (_number(fields, key) for key in ("width", "depth", "height"))
    top = _number(fields, "dropOnTopElevation", str(height))
    turn = fields.get("modelRotation", "").split()
    if turn and len(turn) != 9:
        raise ValueError(f"modelRotation has {len(turn)} numbers; allowed: 9.")
    rotation = tuple(_number({"modelRotation": part}, "modelRotation") for part in turn)
    return Piece(
        identity=identity,
        name=fields["name"].lower(),
        model=fields.get("model", "").lstrip("/"),
        size_m=(width / 100, depth / 100, height / 100),
        rotation=rotation or Piece.rotation,
        elevation_m=_number(fields, "elevation", "0") / 100,
        top_m=None if top < 0 else top / 100,
        opening=fields.get("doorOrWindow", "false") == "true",
        licence=fields.get("license", ""),
    )


def _number(fields: Mapping[str, str], key: str, default: str = "") -> float:
    """Returns a finite number of an entry."""
    text = fields.get(key, default)
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"{key} is {text!r}; allowed: a number.")
    return found


MOST_FACES = 150_000
MOST_PIXELS = 128  # Rows and columns of textures; larger ones are thinned out.
HANGING_M = 0.5  # Elevation from which on a piece hangs on a wall.
FOLDER_FILES = (".glb", ".obj")
VERSION = 1  # Of the cached files.
# Files of these catalogues and folders have y up and z to the front.
Y_UP = np.array([[1.0, 0, 0], [0, 0, -1.0], [0, 1.0, 0]])
_PHRASE = re.compile(r" (?:with|for|of|in|on) ")


@dataclass(frozen=True)
class LoadedPieces:
    """The assets of a catalogue, and the pieces that were refused, each with the reason."""

    assets: tuple[Asset, ...]
    refused: tuple[tuple[str, str], ...]


def load_assets(path: str | Path, cache: str | Path | None = None) -> LoadedPieces:
    """Loads a `.sh3f` catalogue, or a folder of GLB and OBJ files.

    Args:
        path: The file or folder.
        cache: Folder of converted meshes; None converts them each time.

    Raises:
        ValueError: There is no such file, or it is no catalogue.
        ModuleNotFoundError: trimesh is not installed.
    """
    path = Path(path)
    assets = []
    refused = []
    with _Source(path) as source:
        for name, read in source.entries():
            try:
                piece = read()
                solids = _converted(source, piece, None if cache is None else Path(cache))
                assets.append(_asset(piece, solids))
            except ValueError as error:
                refused.append((name, str(error)))
    return LoadedPieces(tuple(assets), tuple(refused))


def head_noun(name: str) -> str:
    """Returns the head noun of an English name: "chair" of "folding chair with cushion".

    Raises:
        ValueError: The name has no word.
    """
    words = _PHRASE.split(name)[0].split() or name.split()
    if not words:
        raise ValueError(f"The name is {name!r}; allowed: at least one word.")
    return words[-1]


class _Source:
    """A catalogue or folder, with models as files on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_dir():
            self._archive = None
        elif path.is_file() and zipfile.is_zipfile(path):
            self._archive = zipfile.ZipFile(path)
        else:
            raise ValueError(f"{path} is no .sh3f catalogue; allowed: such a file, or a folder.")

    def entries(self) -> Iterator[Entry]:
        if self._archive is None:
            for file in sorted(self.path.rglob("*")):
                if file.suffix.lower() in FOLDER_FILES:
                    name = re.sub(r"[_\W]+", " ", file.stem).strip().lower()
                    model = file.relative_to(self.path).as_posix()
                    yield name or model, partial(Piece, f"{self.path.name}/{model}", name, model)
            return
        if INDEX not in self._archive.namelist():
            raise ValueError(f"{self.path} has no {INDEX}; allowed: catalogues of furniture.")
        text = self._archive.read(INDEX).decode("latin-1")
        yield from entries_of_index(text, self.path.stem)

    def digest(self, piece: Piece) -> str:
        """Returns the identity of a piece and its model for the cache."""
        if self._archive is None:
            content: Any = (self.path / piece.model).stat().st_mtime_ns
        else:
            self._check_member(piece)
            content = self._archive.getinfo(piece.model).CRC
        return hashlib.sha256(repr((VERSION, piece, content)).encode()).hexdigest()[:24]

    def extracted(self, piece: Piece, folder: Path) -> Path:
        """Returns the file of a model, with the files beside it."""
        if self._archive is None:
            return self.path / piece.model
        self._check_member(piece)
        beside = str(PurePosixPath(piece.model).parent)
        for name in self._archive.namelist():
            if str(PurePosixPath(name).parent) == beside:
                self._archive.extract(name, folder)
        return folder / piece.model

    def _check_member(self, piece: Piece) -> None:
        assert self._archive is not None
        if piece.model not in self._archive.namelist():
            raise ValueError(f"The archive lacks its model {piece.model}.")

    def __enter__(self) -> "_Source":
        return self

    def __exit__(self, *_: object) -> None:
        if self._archive is not None:
            self._archive.close()


def _converted(source: _Source, piece: Piece, cache: Path | None) -> tuple[Solid, ...]:
    """Returns the solids of a piece, from the cache if they are there."""
    kept = None if cache is None else cache / f"{source.digest(piece)}.npz"
    if kept is not None and kept.is_file():
        with np.load(io.BytesIO(kept.read_bytes())) as arrays:
            return _solids_of(dict(arrays))
    with tempfile.TemporaryDirectory() as folder:
        arrays = _arrays(source.extracted(piece, Path(folder)), piece)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        written = kept.with_name(f".{kept.name}.new")
        with written.open("wb") as file:
            np.savez(file, **arrays)
        written.rename(kept)
    return _solids_of(arrays)


def _arrays(file: Path, piece: Piece) -> dict[str, Any]:
    """Reads a mesh file; returns arrays of each of its parts, in the frame of an asset."""
    import trimesh

    try:
        loaded = trimesh.load(file, group_material=True, split_object=False)
    except Exception as error:  # Each format fails differently.
        raise ValueError(f"{file.name} cannot be read: {error}") from None
    scene = loaded if isinstance(loaded, trimesh.Scene) else trimesh.Scene(loaded)
    parts = [one for one in scene.dump() if isinstance(one, trimesh.Trimesh) and len(one.faces)]
    count = sum(len(part.faces) for part in parts)
    if not count:
        raise ValueError(f"{file.name} has no faces.")
    if count > MOST_FACES:
        raise ValueError(f"{file.name} has {count} faces; allowed: up to {MOST_FACES}.")
    turn = Y_UP @ np.array(piece.rotation).reshape(3, 3)
    corners = [np.asarray(part.vertices) @ turn.T for part in parts]
    low = np.min([each.min(0) for each in corners], axis=0)
    high = np.max([each.max(0) for each in corners], axis=0)
    extent = np.maximum(high - low, 1e-6)
    scale = np.ones(3) if piece.size_m is None else np.array(piece.size_m) / extent
    origin = np.array([(low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]])
    found: dict[str, Any] = {}
    for number, (part, vertices) in enumerate(zip(parts, corners, strict=True)):
        found[f"vertices{number}"] = (vertices - origin) * scale
        found[f"faces{number}"] = np.asarray(part.faces, np.int32)
        found |= {f"{name}{number}": array for name, array in _looks(part).items()}
    return found


def _looks(part: Any) -> dict[str, Any]:
    """Returns colour (3,), and texture (H, W, 3) with coordinates (V, 2), of a part."""
    material = getattr(part.visual, "material", None)
    image = getattr(material, "image", None) or getattr(material, "baseColorTexture", None)
    places = getattr(part.visual, "uv", None)
    colour = np.asarray(getattr(material, "main_color", (160, 160, 160)), float)[:3] / 255
    if image is None or places is None or len(places) != len(part.vertices):
        return {"colour": colour}
    pixels = np.asarray(image.convert("RGB"), np.uint8)
    step = [max(1, -(-length // MOST_PIXELS)) for length in pixels.shape[:2]]
    thinned = np.ascontiguousarray(pixels[:: step[0], :: step[1]])
    return {"colour": np.ones(3), "places": np.asarray(places, float), "image": thinned}


def _solids_of(arrays: dict[str, Any]) -> tuple[Solid, ...]:
    count = sum(name.startswith("vertices") for name in arrays)
    found = []
    for number in range(count):
        mesh = Mesh(
            arrays[f"vertices{number}"],
            arrays[f"faces{number}"],
            arrays.get(f"places{number}"),
            arrays.get(f"image{number}"),
        )
        red, green, blue = (float(channel) for channel in arrays[f"colour{number}"])
        colour = (red, green, blue)
        found.append(Solid("mesh", np.ones(3), np.zeros(3), np.eye(3), colour, mesh=mesh))
    return tuple(found)


def _asset(piece: Piece, solids: Sequence[Solid]) -> Asset:
    low, high = tight(solids)
    if ((high - low) <= 0).any():
        raise ValueError(f"{piece.name} is flat; allowed: meshes with a volume.")
    stand: Stand = "wall" if piece.elevation_m >= HANGING_M else "floor"
    if piece.opening:
        stand = "opening"
    tops: tuple[Top, ...] = ()
    if piece.top_m is not None and stand == "floor":
        half: Vectors = 0.45 * (high - low)
        tops = (Top(0.0, 0.0, min(piece.top_m, float(high[2])), float(half[0]), float(half[1])),)
    noun = head_noun(piece.name)
    return Asset(piece.identity, piece.name, noun, "", stand, tuple(solids), low, high, tops)


CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "stringline" / "furniture"
MOST_ROOM_FACES = (
    15_000  # Of pieces in rooms; others would take longer than all the rest of an image.
)
LENGTHS = (0.6, 1.6)  # Of a piece against the usual one of the class that it replaces.
SHARES = Range(least=0, most=1)


@dataclass(frozen=True)
class FurnitureChoice:
    """Draws assets of classes, some of them from catalogues; the files are read at the first draw.

    A piece can replace an asset of a class if the head nouns of both are the same and the sizes are
    similar.

    Attributes:
        paths: Catalogues and folders; see `load_assets`.
        share: Share of assets from them, for classes of which they have pieces.
    """

    paths: tuple[str, ...]
    share: float = 0.5

    def __post_init__(self) -> None:
        SHARES.check(furniture_share=self.share)

    @cached_property
    def pieces(self) -> dict[str, list[Asset]]:
        """The usable pieces by class."""
        found = [
            asset
            for path in self.paths
            for asset in load_assets(path, CACHE.expanduser()).assets
            if asset.stand != "opening" and _faces(asset) <= MOST_ROOM_FACES
        ]
        by_noun = defaultdict(list)
        for asset in found:
            by_noun[asset.noun].append(asset)
        return {name: _similar(name, by_noun[name.split()[-1]]) for name in CLASSES}

    def __call__(self, name: str, rng: np.random.Generator) -> Asset:
        """Draws an asset of a class."""
        pieces = self.pieces[name] if self.paths else []
        if pieces and rng.uniform() < self.share:
            return pieces[int(rng.integers(len(pieces)))]
        return seeded_asset(name, rng)


def _faces(asset: Asset) -> int:
    return sum(len(one.mesh.faces) for one in asset.solids if one.mesh is not None)


def _similar(name: str, assets: list[Asset]) -> list[Asset]:
    usual = usual_length(name)
    low, high = LENGTHS
    return [one for one in assets if low < np.linalg.norm(one.size) / usual < high]
