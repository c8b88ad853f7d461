"""The description of a LeRobotDataset, `meta/info.json`, and the paths that it describes."""

import json
import re
import reprlib
import string
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stringline.datasets.contract.argument_checks import COUNT, POSITIVE
from stringline.datasets.formats.confinement import inside, read_inside
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.guard import in_brief

SUPPORTED = "v2.0, v2.1 and v3.0"
# As in {episode_index:06d}: widths of at most two digits.
_SPECIFICATION = re.compile(r"(0?[1-9]?[0-9]d?)?")


def read_info(root: Path) -> dict[str, Any]:
    """Reads `meta/info.json`."""
    try:
        info: dict[str, Any] = json.loads(read_inside(root, root / "meta" / "info.json"))
        version = str(info["codebase_version"])
        _ = (info["features"], info["fps"], info["data_path"])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ValueError(f"{root} is not a LeRobotDataset: it has no meta/info.json.") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{root}/meta/info.json is damaged: {in_brief(error)}.") from error
    if not version.startswith(("v2.", "v3.")):
        raise ValueError(f"{root} is a LeRobotDataset {version}; allowed: {SUPPORTED}.")
    for problem in _problems(info):
        raise ValueError(f"{root}/meta/info.json is damaged: {problem}.")
    return info


def _problems(info: Mapping[str, Any]) -> Iterator[str]:
    """Yields what is wrong with the types of the fields that the reader uses."""
    if info["fps"] not in POSITIVE:
        yield f"fps is {info['fps']!r}; allowed: {POSITIVE}"
    if info.get("chunks_size", 1) not in COUNT:
        yield f"chunks_size is {info['chunks_size']!r}; allowed: {COUNT}"
    features = info["features"]
    if not isinstance(features, dict):
        yield f"features is a {type(features).__name__}; allowed: a description by name"
        return
    for key, feature in features.items():
        if not isinstance(feature, dict) or not isinstance(feature.get("dtype"), str):
            yield f"the feature {key!r} has no dtype"
        elif not isinstance(feature.get("shape"), list) or any(
            length not in COUNT for length in feature["shape"]
        ):
            yield f"the feature {key!r} has shape {feature.get('shape')!r}; allowed: {COUNT}"


def path_of(root: Path, info: Mapping[str, Any], name: str, **place: int | str) -> Path:
    """Returns the path by a template of `info.json`, such as `data/chunk-{chunk_index:03d}`.

    Only the given fields are allowed, with widths of at most two digits: `str.format` would read
    attributes, and pad a number to gigabytes. The path must stay in the data set.
    """
    template = info.get(name)
    try:
        parts = list(string.Formatter().parse(template)) if isinstance(template, str) else None
        if parts is None or any(
            field is not None
            and (field not in place or conversion or not _SPECIFICATION.fullmatch(width or ""))
            for _, field, width, conversion in parts
        ):
            raise ValueError("allowed are names and widths, as in {episode_index:06d}")
        assert isinstance(template, str)
        path = root / template.format(**place)
    except (ValueError, TypeError) as error:
        raise ForeignDataError(
            f"{name} of meta/info.json is {reprlib.repr(template)}: {error}. Its fields are "
            f"{', '.join(place)}."
        ) from error
    return inside(root, path)
