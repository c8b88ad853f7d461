"""The list of pieces of a furniture catalogue, `PluginFurnitureCatalog.properties`."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

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
