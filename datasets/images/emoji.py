"""Emoji in three styles, from the packages of npm that contain their images."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.images.image_files import read_colours
from stringline.datasets.images.labelled_image import LabelledImage
from stringline.datasets.images.omissions import Omissions, OmittedError
from stringline.datasets.images.reading import ItemReference

EmojiLabel = Literal["name", "category", "subcategory"]
_DATASETS = {"google": "emoji-datasource-google", "twitter": "emoji-datasource-twitter"}
_FLUENT = "@lobehub/fluent-emoji-3d"
STYLES = (*_DATASETS, "fluent")
_SKIN_TONE = re.compile(r"1f3f[b-f]")
# Selects the coloured drawing of a character; names of files have it or not.
_SELECTOR = "fe0f"


@dataclass(frozen=True, kw_only=True)
class EmojiImages:
    """Reads `node_modules` with `emoji-datasource-google` or `-twitter`, and Fluent if it is there.

    The packages come from `npm install emoji-datasource-google emoji-datasource-twitter
    @lobehub/fluent-emoji-3d`. One emoji has the same name in all styles, which are the sources.
    Emoji with skin tones are left out. The name is the caption. The drawings are licensed under
    Apache 2.0 (Google), CC-BY 4.0 (Twitter) and MIT (Fluent).

    Attributes:
        label: `name`, `category` or `subcategory`.
        flags: Whether flags are read; most of them differ little between the styles.
        in_all_styles: Whether emoji that a style lacks are left out of the others, too.
    """

    label: EmojiLabel = "name"
    flags: bool = False
    in_all_styles: bool = False

    def __post_init__(self) -> None:
        if self.label not in get_args(EmojiLabel):
            raise unknown_name("label of emoji", self.label, get_args(EmojiLabel))

    def references(self, path: Path, omissions: Omissions) -> Sequence[ItemReference]:
        """Lists the images by style, in the order of the first package.

        Raises:
            ForeignDataError: No package has the names, or they cannot be read.
        """
        entries = self._entries(path, omissions)
        files = {style: _files(path, style) for style in STYLES}
        present = {style: found for style, found in files.items() if found}
        for style in sorted(files.keys() - present.keys()):
            omissions.add("styles", "the package is missing", style)
        found = []
        for style, by_points in present.items():
            for points, entry in entries.items():
                lacking = [each for each in present if points not in present[each]]
                if points not in by_points:
                    omissions.add("images", f"there is none in the style {style}", points)
                elif self.in_all_styles and lacking:
                    omissions.add("images", f"there is none in the style {lacking[0]}", points)
                else:
                    read = partial(_read, by_points[points], entry, self.label, style)
                    found.append(ItemReference(f"{style}, {points}", read))
        return found

    def _entries(self, path: Path, omissions: Omissions) -> dict[str, dict[str, Any]]:
        """Returns the description of each emoji by its code points."""
        found = {}
        for entry in _descriptions(path):
            points = _code_points(entry["unified"])
            for tone in entry.get("skin_variations", ()):
                omissions.add("emoji", "with skin tones", f"{points} {tone}")
            if entry["category"] == "Flags" and not self.flags:
                omissions.add("emoji", "flags (flags=false)", points)
            elif not _SKIN_TONE.search(points) or _SKIN_TONE.fullmatch(points):
                found[points] = entry
        return found


def _descriptions(path: Path) -> list[dict[str, Any]]:
    files = [path / package / "emoji.json" for package in _DATASETS.values()]
    file = next((each for each in files if each.is_file()), None)
    if file is None:
        raise ForeignDataError(
            f"{path} has none of the packages {', '.join(_DATASETS.values())}; run in its parent: "
            "npm install emoji-datasource-google"
        )
    try:
        entries = json.loads(file.read_bytes())
        for entry in entries:
            for name in ("unified", "name", "category", "subcategory"):
                entry[name] = str(entry[name] or entry["short_name"])
        # Two emoji are named "man in tuxedo"; only their short names differ.
        counts = Counter(entry["name"] for entry in entries)
        for entry in entries:
            if counts[entry["name"]] > 1:
                entry["name"] = str(entry["short_name"]).replace("_", " ")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ForeignDataError(f"{file} does not describe emoji: {error!r}.") from error
    return entries  # type: ignore[no-any-return]


def _files(path: Path, style: str) -> Mapping[str, Path]:
    """Returns the images of a style by code points."""
    if style in _DATASETS:
        folder = path / _DATASETS[style] / "img" / style / "64"
        return {_code_points(file.stem): file for file in sorted(folder.glob("*.png"))}
    folder = path / _FLUENT / "assets"
    return {_code_points(file.stem): file for file in sorted(folder.glob("*.webp"))}


def _code_points(name: str) -> str:
    points = name.lower().split("-")
    return "-".join(point for point in points if point != _SELECTOR)


def _read(file: Path, entry: Mapping[str, str], label: EmojiLabel, style: str) -> LabelledImage:
    name = entry["name"].lower()
    if not name.strip():
        raise OmittedError("emoji", "without a name")
    return LabelledImage(
        rgb=read_colours(file),
        label=name if label == "name" else entry[label],
        captions=(name,),
        source=style,
    )
