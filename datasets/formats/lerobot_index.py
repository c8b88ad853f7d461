"""Where the episodes of a LeRobotDataset lie: v2.x has a file per episode, v3.0 many episodes in each file."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stringline.datasets.formats import parquet
from stringline.datasets.formats.foreign import ForeignDataError

SUPPORTED = "v2.0, v2.1 and v3.0"


@dataclass(frozen=True)
class Location:
    """Where one episode lies.

    Attributes:
        number: Its `episode_index`.
        length: How many rows it has.
        tasks: What was asked for.
        data: Its parquet file.
        videos: For each video feature the file, and where in it the episode begins, in s.
    """

    number: int
    length: int
    tasks: tuple[str, ...]
    data: Path
    videos: Mapping[str, tuple[Path, float]]


def read_info(root: Path) -> dict[str, Any]:
    """Reads `meta/info.json`.

    Raises:
        ValueError: It is missing or damaged, or the version is not supported.
    """
    try:
        info: dict[str, Any] = json.loads((root / "meta" / "info.json").read_bytes())
        version, _ = str(info["codebase_version"]), (info["features"], info["fps"], info["data_path"])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ValueError(f"{root} is no LeRobotDataset: it has no meta/info.json.") from error
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{root}/meta/info.json is damaged: {error!r}.") from error
    if not version.startswith(("v2.", "v3.")):
        raise ValueError(f"{root} is a LeRobotDataset {version}; allowed: {SUPPORTED}.")
    return info


def locations(root: Path, info: Mapping[str, Any]) -> Iterator[Location]:
    """Yields all episodes in order.

    Raises:
        ForeignDataError: The list of episodes is damaged.
    """
    videos = [key for key, feature in info["features"].items() if feature["dtype"] == "video"]
    return (_v3 if str(info["codebase_version"]).startswith("v3") else _v2)(root, info, videos)


def _v2(root: Path, info: Mapping[str, Any], videos: list[str]) -> Iterator[Location]:
    for line, text in enumerate(_lines(root / "meta" / "episodes.jsonl"), 1):
        try:
            entry = json.loads(text)
            number, length, tasks = int(entry["episode_index"]), int(entry["length"]), tuple(entry.get("tasks", ()))
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise ForeignDataError(f"meta/episodes.jsonl is damaged in line {line}: {error!r}.") from error
        place = {"episode_index": number, "episode_chunk": number // int(info.get("chunks_size", 1000))}
        files = {key: (root / info["video_path"].format(video_key=key, **place), 0.0) for key in videos}
        yield Location(number, length, tasks, root / info["data_path"].format(**place), files)


def _lines(path: Path) -> list[bytes]:
    try:
        return [line for line in path.read_bytes().splitlines() if line.strip()]
    except FileNotFoundError as error:
        raise ForeignDataError(f"There is no {path.name} in {path.parent}.") from error


def _v3(root: Path, info: Mapping[str, Any], videos: list[str]) -> Iterator[Location]:
    files = sorted((root / "meta" / "episodes").glob("*/*.parquet"))
    if not files:
        raise ForeignDataError(f"There is no list of episodes in {root / 'meta' / 'episodes'}.")
    columns = ["episode_index", "length", "tasks", "data/chunk_index", "data/file_index"]
    columns += [f"videos/{key}/{field}" for key in videos for field in ("chunk_index", "file_index", "from_timestamp")]
    for file in files:
        for row in parquet.table(file, columns).to_pylist():
            yield Location(
                row["episode_index"],
                row["length"],
                tuple(row["tasks"] or ()),
                root / info["data_path"].format(chunk_index=row["data/chunk_index"], file_index=row["data/file_index"]),
                {key: _video(root, info, key, row) for key in videos},
            )


def _video(root: Path, info: Mapping[str, Any], key: str, row: Mapping[str, Any]) -> tuple[Path, float]:
    chunk, file, start = (row[f"videos/{key}/{field}"] for field in ("chunk_index", "file_index", "from_timestamp"))
    return root / info["video_path"].format(video_key=key, chunk_index=chunk, file_index=file), float(start)
