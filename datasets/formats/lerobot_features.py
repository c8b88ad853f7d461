"""Which features of a LeRobotDataset are pictures, which depth, and what the numbers of a vector are called."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stringline.datasets.contract import Camera, DepthSource
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.names import unknown_name

Features = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class PictureFeature:
    """A feature that holds pictures.

    Attributes:
        key: Of the feature.
        video: Whether they are frames of a video, else single pictures in the parquet file.
        height: Rows.
        width: Columns.
        depth: Whether they are depth.
        info: What `info.json` says of the video.
    """

    key: str
    video: bool
    height: int
    width: int
    depth: bool
    info: Mapping[str, Any]

    @property
    def short(self) -> str:
        """Its name without the prefix that all have."""
        return self.key.removeprefix("observation.images.").removeprefix("observation.")


@dataclass(frozen=True)
class FeatureCamera:
    """A camera of the contract and the features that feed it."""

    camera: Camera
    colour: PictureFeature
    depth: PictureFeature | None


def picture_features(features: Features) -> Iterator[PictureFeature]:
    """Yields the features that hold pictures.

    Raises:
        ValueError: One has a shape that no picture has.
    """
    for key, feature in features.items():
        if feature["dtype"] not in ("video", "image"):
            continue
        shape, names = list(feature["shape"]), feature.get("names") or ()
        if len(shape) != 3:
            raise ValueError(f"The feature {key!r} holds pictures of shape {shape}; allowed: (H, W, C).")
        first = names[0] in ("channel", "channels") if names else shape[0] in (1, 3)
        height, width, channels = (*shape[1:], shape[0]) if first else shape
        info = feature.get("info") or feature.get("video_info") or {}
        is_depth = bool(info.get("is_depth_map", info.get("video.is_depth_map", False))) or channels == 1
        yield PictureFeature(key, feature["dtype"] == "video", height, width, is_depth, info)


def cameras_of(
    features: Features, chosen: Mapping[str, str] | None, depth: Mapping[str, str] | None, source: DepthSource
) -> list[FeatureCamera]:
    """Returns the cameras of a data set.

    Args:
        features: Of `info.json`.
        chosen: Features to take, whole or without `observation.images.`, each with the camera's name; None takes all.
        depth: The feature of a camera's depth by the feature of its colours; None pairs `<name>_depth` with `<name>`.
        source: Where depth comes from.

    Raises:
        ValueError: A feature does not exist, or depth belongs to no camera.
    """
    pictures = list(picture_features(features))
    by_name = {name: feature for feature in pictures for name in (feature.key, feature.short)}
    for name in (*(chosen or ()), *(depth or ()), *(depth or {}).values()):
        if name not in by_name:
            raise unknown_name("feature with pictures", name, [feature.key for feature in pictures])
    wanted = chosen or {feature.short: feature.short for feature in pictures if not feature.depth}
    named = {by_name[name].key: behind for name, behind in (depth or {}).items()}
    found = []
    for name, new in wanted.items():
        colour = by_name[name]
        paired = named.get(colour.key, f"{colour.short}_depth")
        behind = by_name.get(paired)
        if behind is not None and (behind.height, behind.width) != (colour.height, colour.width):
            raise ValueError(f"{behind.key} and {colour.key} differ in size; a camera has one.")
        camera = Camera(new, colour.height, colour.width, source if behind else None, has_geometry=False)
        found.append(FeatureCamera(camera, colour, behind))
    used = {entry.depth.key for entry in found if entry.depth}
    lost = [feature.key for feature in pictures if feature.depth and feature.key not in used]
    if chosen is None and lost:
        raise ValueError(f"The depth of {lost[0]!r} belongs to no camera; name it, format.depth={{COLOUR: {lost[0]}}}.")
    return found


def names_of(features: Features, key: str) -> list[str]:
    """Returns what the numbers of a vector are called, `<key>_<place>` where the data set does not say.

    Raises:
        ForeignDataError: There is no such feature.
    """
    if key not in features:
        raise ForeignDataError(str(unknown_name("feature", key, features)))
    width = int(features[key]["shape"][0])
    names = features[key].get("names")
    while isinstance(names, Mapping):  # As in {"motors": [...]}.
        names = next(iter(names.values()), None)
    if not isinstance(names, list) or len(names) != width:
        return [f"{key}_{place}" for place in range(width)]
    return [str(name) for name in names]
