"""Imports of LeRobotDatasets, written by pyarrow and PyAV in the documented layout."""

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.formats.importing import Outcome
from stringline.datasets.formats.lerobot import LeRobotReader
from stringline.datasets.formats.vector_layout import AlohaLayout, NamedLayout
from stringline.datasets.formats.video import write_video
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore

OPENINGS = AlohaLayout("opening", "opening")
CAMERA = "observation.images.cam_high"
DEPTH = "observation.images.cam_high_depth"
FPS = 50
LENGTHS = (5, 8, 4)
VIDEO_TOLERANCE = 12
DEPTH_CODING = {
    "video.depth_min": 0.01,
    "video.depth_max": 10.0,
    "video.shift": 3.5,
    "video.use_log": True,
}
Import = Callable[[LeRobotReader, Path], tuple[EpisodeStore, Outcome]]
Record = Callable[..., Path]


def encode(path: Path, frames: NDArray[Any], codec: str = "libx264") -> None:
    """Writes frames (T, H, W, 3) uint8, or (T, H, W) uint16 codes of depth, without loss."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if frames.ndim == 4:
        options = {
            "g": "2",
            "crf": "5",
            "preset": "8" if codec == "libsvtav1" else "fast",
            "svtav1-params": "rc=0",
        }
        write_video(path, frames, fps=FPS, codec=codec, pixel_format="yuv420p", options=options)
        return
    with av.open(str(path), "w") as container:
        stream = container.add_stream(
            "libx265", rate=FPS, options={"x265-params": "lossless=1:log-level=none"}
        )
        assert isinstance(stream, av.VideoStream)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "gray12le"
        for codes in frames:
            container.mux(stream.encode(depth_frame(codes)))
        container.mux(stream.encode())


def depth_frame(codes: NDArray[np.uint16]) -> av.VideoFrame:
    frame = av.VideoFrame(codes.shape[1], codes.shape[0], "gray12le")
    np.frombuffer(memoryview(frame.planes[0]), np.uint16).reshape(len(codes), -1)[
        :, : codes.shape[1]
    ] = codes
    return frame


def depth_codes(metres: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Codes depth as LeRobot 0.6 does: 4095 steps in the logarithm of depth plus a shift."""
    share = (np.log(metres + 3.5) - np.log(0.01 + 3.5)) / (np.log(10 + 3.5) - np.log(0.01 + 3.5))
    return np.rint(share * 4095).clip(0, 4095).astype(np.uint16)


def depth_metres(steps: int) -> NDArray[np.float64]:
    return 0.4 + 0.01 * np.arange(steps)[:, None, None] + np.linspace(0, 3, 16 * 24).reshape(16, 24)


def png(array: NDArray[Any]) -> dict[str, Any]:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format="PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def rows(samples: Any, episode: int, steps: int, first: int, images: bool) -> dict[str, Any]:
    """Returns the columns of an episode."""
    vector = pa.list_(pa.float32(), 14)
    columns = {
        "observation.state": pa.array(list(samples.joints(steps, episode)), vector),
        "action": pa.array(list(samples.joints(steps, episode + 100)), vector),
        "timestamp": pa.array(np.arange(steps, dtype=np.float32) / FPS),
        "frame_index": pa.array(np.arange(steps)),
        "episode_index": pa.array(np.full(steps, episode)),
        "index": pa.array(np.arange(first, first + steps)),
        "task_index": pa.array(np.zeros(steps, np.int64)),
    }
    if images:
        columns[CAMERA] = pa.array([png(samples.image(frame, episode)) for frame in range(steps)])
        columns[DEPTH] = pa.array(
            [png(np.rint(1000 * m).astype(np.uint16)) for m in depth_metres(steps)]
        )
    return columns


def recorded(samples: Any, root: Path, version: str, images: str = "libx264") -> Path:
    """Writes three episodes with one camera; `images` is a codec, `image` or `depth`."""
    (root / "meta").mkdir(parents=True)
    kind = "image" if images == "image" else "video"
    features: dict[str, Any] = {
        "observation.state": {
            "dtype": "float32",
            "shape": [14],
            "names": [joint.name for joint in ALOHA.joints],
        },
        "action": {
            "dtype": "float32",
            "shape": [14],
            "names": {"motors": [joint.name for joint in ALOHA.joints]},
        },
        CAMERA: {"dtype": kind, "shape": [3, 16, 24], "names": ["channels", "height", "width"]},
        **{
            key: {"dtype": "int64", "shape": [1], "names": None}
            for key in ("frame_index", "episode_index", "index", "task_index")
        },
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    }
    if images in ("depth", "image"):
        info = (
            {"is_depth_map": True, **DEPTH_CODING} if images == "depth" else {"is_depth_map": True}
        )
        features[DEPTH] = {
            "dtype": kind,
            "shape": [16, 24, 1],
            "names": ["height", "width", "channels"],
            "info": info,
        }
    firsts = np.cumsum([0, *LENGTHS])
    tables = [
        pa.table(rows(samples, e, steps, int(firsts[e]), images == "image"))
        for e, steps in enumerate(LENGTHS)
    ]
    frames = [
        np.stack([samples.image(frame, e) for frame in range(steps)])
        for e, steps in enumerate(LENGTHS)
    ]
    depths = [depth_codes(depth_metres(steps)) for steps in LENGTHS] if images == "depth" else []
    codec = "libx264" if images == "depth" else images
    info = {"codebase_version": version, "fps": FPS, "features": features, "chunks_size": 1000}
    if version == "v3.0":
        info["data_path"] = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
        info["video_path"] = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
        parquet(
            root / "data/chunk-000/file-000.parquet", pa.concat_tables(tables[:2]), row_group_size=4
        )
        parquet(root / "data/chunk-000/file-001.parquet", tables[2])
        for key, parts in ((CAMERA, frames), (DEPTH, depths)):
            if kind == "video" and parts:
                encode(
                    root / f"videos/{key}/chunk-000/file-000.mp4", np.concatenate(parts[:2]), codec
                )
                encode(root / f"videos/{key}/chunk-000/file-001.mp4", parts[2], codec)
        parquet(
            root / "meta/episodes/chunk-000/file-000.parquet",
            index(firsts, [CAMERA, DEPTH] if depths else [CAMERA]),
        )
    else:
        info["data_path"] = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
        info["video_path"] = (
            "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
        )
        for e, table in enumerate(tables):
            parquet(root / f"data/chunk-000/episode_{e:06d}.parquet", table)
            if kind == "video":
                encode(root / f"videos/chunk-000/{CAMERA}/episode_{e:06d}.mp4", frames[e], codec)
        lines = [
            json.dumps({"episode_index": e, "tasks": ["stack"], "length": n})
            for e, n in enumerate(LENGTHS)
        ]
        (root / "meta/episodes.jsonl").write_text("\n".join(lines) + "\n")
    (root / "meta/info.json").write_text(json.dumps(info))
    return root


def parquet(path: Path, table: pa.Table, **options: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


def index(firsts: NDArray[np.int64], videos: list[str]) -> pa.Table:
    entries = []
    for e, steps in enumerate(LENGTHS):
        file, start = (0, firsts[e] / FPS) if e < 2 else (1, 0.0)
        entry = {
            "episode_index": e,
            "tasks": ["stack"],
            "length": steps,
            "data/chunk_index": 0,
            "data/file_index": file,
        }
        for key in videos:
            entry |= {
                f"videos/{key}/chunk_index": 0,
                f"videos/{key}/file_index": file,
                f"videos/{key}/from_timestamp": start,
            }
        entries.append(entry)
    return pa.Table.from_pylist(entries)


@pytest.fixture
def record(samples: Any) -> Record:
    return partial(recorded, samples)


@pytest.mark.parametrize(
    ("version", "images"),
    [("v2.1", "libx264"), ("v3.0", "libx264"), ("v3.0", "libsvtav1"), ("v2.1", "image")],
)
def test_what_was_recorded_comes_in(
    tmp_path: Path, imported: Import, record: Record, samples: Any, version: str, images: str
) -> None:
    root = record(tmp_path / "set", version, images)
    assert samples.size_of(root) < 100_000
    store, outcome = imported(LeRobotReader(OPENINGS), root)
    assert outcome.refused == {}
    assert [episode.steps for episode in store.episodes()] == list(LENGTHS)
    for number, episode in enumerate(store.episodes()):
        steps, arrays = LENGTHS[number], episode.arrays
        np.testing.assert_array_equal(arrays["joints/position"], samples.joints(steps, number))
        np.testing.assert_array_equal(arrays["action"], samples.joints(steps, number + 100))
        np.testing.assert_allclose(arrays["time"], np.arange(steps) / FPS, atol=1e-6)
        shown = np.stack([samples.image(frame, number) for frame in range(steps)])
        off = np.abs(arrays["rgb/cam_high"].astype(int) - shown).max()
        assert off == 0 if images == "image" else off <= VIDEO_TOLERANCE
        if images == "image":
            np.testing.assert_array_equal(
                arrays["depth/cam_high"], np.rint(1000 * depth_metres(steps))
            )
        assert (episode.attributes.instruction, episode.attributes.seed) == ("stack", number)
        assert episode.attributes.contract.control_hz == FPS
    assert len(Windows(store)) == sum(LENGTHS)
    again = imported(LeRobotReader(OPENINGS), root)[1]
    assert (len(again.imported), again.present) == (0, 3)


def test_depth_from_video_is_metric(tmp_path: Path, imported: Import, record: Record) -> None:
    store, outcome = imported(
        LeRobotReader(OPENINGS, cameras={"cam_high": "overhead"}),
        record(tmp_path / "set", "v3.0", "depth"),
    )
    assert outcome.refused == {}
    episode = store.episodes()[1]
    np.testing.assert_allclose(episode.arrays["depth/overhead"], 1000 * depth_metres(8), atol=4)
    camera = episode.attributes.contract.camera("overhead")
    assert (camera.depth, camera.depth_unit_m) == ("measured", 0.001)


def test_depth_can_be_paired_by_name(tmp_path: Path, imported: Import, record: Record) -> None:
    root = record(tmp_path / "set", "v2.1", "image")
    text = (root / "meta/info.json").read_text()
    (root / "meta/info.json").write_text(text.replace(DEPTH, "observation.images.range"))
    for path in root.glob("data/*/*.parquet"):
        table = pq.read_table(path)
        pq.write_table(
            table.rename_columns(
                [name.replace(DEPTH, "observation.images.range") for name in table.column_names]
            ),
            path,
        )
    with pytest.raises(
        ValueError,
        match=(
            "The depth feature 'observation.images.range' belongs to no camera; set format.depth="
        ),
    ):
        imported(LeRobotReader(OPENINGS), root)
    store, _ = imported(
        LeRobotReader(OPENINGS, cameras={CAMERA: "top"}, depth={"cam_high": "range"}), root
    )
    np.testing.assert_array_equal(
        store.episodes()[0].arrays["depth/top"], np.rint(1000 * depth_metres(5))
    )


def test_another_robot_is_described_by_its_names(
    tmp_path: Path, imported: Import, record: Record, samples: Any
) -> None:
    arms = {arm: [joint.name for joint in ALOHA.joints if joint.arm == arm] for arm in ALOHA.arms}
    layout = NamedLayout(
        {"left/gripper": "opening", "right/gripper": {"closed": 1, "opened": 0}},
        arms,
        "rad",
        "twins",
        "a table",
    )
    store, _ = imported(LeRobotReader(layout), record(tmp_path / "set", "v2.1", "image"))
    episode = store.episodes()[0]
    contract = episode.attributes.contract
    assert (contract.embodiment, contract.base_frame, contract.arms) == ("twins", "a table", ())
    assert contract.joints == tuple(joint.name for joint in ALOHA.joints)
    assert contract.action == ALOHA.contract([], 50.0).action
    np.testing.assert_allclose(
        episode.arrays["action"][:, 13], 1 - samples.joints(5, 100)[:, 13], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (
            NamedLayout(angle_unit="rad"),
            (
                r"Set the grippers, .* The state has: left/waist, .* The action has: "
                r"left/waist"
            ),
        ),
        (
            NamedLayout({}),
            (
                r"Set the unit of the joints, layout.angle_unit=rad or deg. The state has: "
                r"left/waist"
            ),
        ),
        (
            NamedLayout({"grip": "opening"}, angle_unit="rad"),
            "There is no joint 'grip'. Did you mean .*left/gripper",
        ),
        (
            NamedLayout({}, {"left": ["left/waist"]}, "rad"),
            "'left/shoulder' belongs to 0 arms in layout.arms",
        ),
    ],
)
def test_what_is_not_named_is_asked_for(
    tmp_path: Path, imported: Import, record: Record, layout: NamedLayout, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        imported(LeRobotReader(layout), record(tmp_path / "set", "v2.1", "image"))
    assert len(EpisodeStore.open(tmp_path / "imported")) == 0


def test_unknown_features_are_answered_with_what_there_is(
    tmp_path: Path, imported: Import, record: Record
) -> None:
    root = record(tmp_path / "set", "v2.1", "image")
    with pytest.raises(
        ValueError, match="There is no feature with images 'cam_hgih'. Did you mean"
    ):
        imported(LeRobotReader(OPENINGS, cameras={"cam_hgih": "a"}), root)
    with pytest.raises(ValueError, match="There is no source of depth 'guessed'"):
        LeRobotReader(OPENINGS, depth_source="guessed")
    outcome = imported(LeRobotReader(OPENINGS, state="observation.stat"), root)[1]
    assert (
        "There is no feature 'observation.stat'. Did you mean 'observation.state'"
        in outcome.refused[next(iter(outcome.refused))]
    )


def change(path: Path, column: str, edit: Callable[[list[Any]], list[Any]]) -> None:
    table = pq.read_table(path)
    place = table.schema.get_field_index(column)
    pq.write_table(table.set_column(place, column, pa.array(edit(table[column].to_pylist()))), path)


def put(frame: int, value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda old: [*old[:frame], value, *old[frame + 1 :]]


DATA = "data/chunk-000/episode_000001.parquet"
CLIP = f"videos/chunk-000/{CAMERA}/episode_000001.mp4"
PARTS = [0.0] * 14
BAD = [
    (
        ("libx264", DATA),
        lambda path: path.write_bytes(path.read_bytes()[:-50]),
        "cannot be read as parquet; it is truncated",
    ),
    (("libx264", DATA), lambda path: path.unlink(), "There is no file episode_000001.parquet in"),
    (
        ("libx264", DATA),
        lambda path: change(path, "action", put(3, [np.nan, *PARTS[1:]])),
        "action at frame 3, 'left/waist', is nan",
    ),
    (
        ("libx264", DATA),
        lambda path: change(path, "action", put(2, PARTS[1:])),
        "action at frame 2 has 13 numbers, the previous ones 14.",
    ),
    (
        ("libx264", DATA),
        lambda path: change(path, "action", put(6, None)),
        "action at frame 6 is empty.",
    ),
    (
        ("libx264", DATA),
        lambda path: change(path, "action", lambda old: ["x"] * len(old)),
        "action has type object",
    ),
    (
        ("libx264", DATA),
        lambda path: change(path, "timestamp", put(4, 0.02)),
        "timestamp does not increase at frame 4.",
    ),
    (
        ("libx264", DATA),
        lambda path: change(path, "episode_index", put(7, 9)),
        "The data has 7 frames of it, the list of episodes has 8.",
    ),
    (
        ("libx264", CLIP),
        lambda path: path.unlink(),
        f"{CAMERA}: there is no video episode_000001.mp4 in",
    ),
    (
        ("libx264", CLIP),
        lambda path: path.write_bytes(path.read_bytes()[:600]),
        f"{CAMERA} at frame 0: episode_000001.mp4 does not decode",
    ),
    (
        ("libx264", CLIP),
        lambda path: path.write_bytes(b"no video"),
        f"{CAMERA} at frame 0: episode_000001.mp4 does not decode",
    ),
    (
        ("libx264", CLIP),
        lambda path: encode(path, np.zeros((6, 16, 24, 3), np.uint8)),
        f"{CAMERA} has 6 frames in episode_000001.mp4; the episode has 8.",
    ),
    (
        ("libx264", CLIP),
        lambda path: encode(path, np.zeros((8, 16, 32, 3), np.uint8)),
        f"{CAMERA} at frame 0 is uint8 (16, 32, 3); allowed: uint8 (16, 24, 3).",
    ),
    (
        ("image", DATA),
        lambda path: change(path, CAMERA, put(2, {"bytes": b"\x89PNG", "path": None})),
        f"{CAMERA} at frame 2 does not decode",
    ),
    (
        ("image", DATA),
        lambda path: change(path, CAMERA, put(2, {"bytes": None, "path": "x"})),
        f"{CAMERA} at frame 2 is empty.",
    ),
    (
        ("image", DATA),
        lambda path: change(path, DEPTH, put(5, png(np.full((16, 24), 2, np.uint16)))),
        f"{DEPTH} at frame 5 reaches 2; integers are millimetres. Are these metres?",
    ),
]


@pytest.mark.parametrize(("place", "spoil", "message"), BAD)
def test_a_bad_episode_is_named_and_the_good_ones_come_in(
    tmp_path: Path,
    imported: Import,
    record: Record,
    place: tuple[str, str],
    spoil: Any,
    message: str,
) -> None:
    root = record(tmp_path / "set", "v2.1", place[0])
    spoil(root / place[1])
    store, outcome = imported(LeRobotReader(OPENINGS), root)
    assert list(outcome.refused) == ["episode 1 (data/chunk-000/episode_000001.parquet)"]
    assert message in next(iter(outcome.refused.values()))
    assert [episode.attributes.seed for episode in store.episodes()] == [0, 2]
    assert store.leftovers() == []


def test_damage_in_the_middle_of_a_video_is_named(
    tmp_path: Path, imported: Import, record: Record
) -> None:
    root = record(tmp_path / "set", "v3.0", "depth")
    path = root / f"videos/{DEPTH}/chunk-000/file-000.mp4"
    raw = bytearray(path.read_bytes())
    place = raw.index(b"mdat") + 3000
    raw[place : place + 1500] = bytes(1500)
    path.write_bytes(raw)
    outcome = imported(LeRobotReader(OPENINGS), root)[1]
    assert outcome.refused
    assert all(DEPTH in message for message in outcome.refused.values())


def test_a_list_that_breaks_off_leaves_what_it_lists(
    tmp_path: Path, imported: Import, record: Record
) -> None:
    root = record(tmp_path / "set", "v2.1", "image")
    path = root / "meta/episodes.jsonl"
    path.write_text(path.read_text()[:-20])
    store, outcome = imported(LeRobotReader(OPENINGS), root)
    assert len(store) == 2
    assert "meta/episodes.jsonl is damaged in line 3" in outcome.refused["episode 2 (meta)"]


def test_a_list_that_is_no_text_is_named(tmp_path: Path, imported: Import, record: Record) -> None:
    root = record(tmp_path / "set", "v2.1", "image")
    path = root / "meta/episodes.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"stack"', b'"st\xffck"', 1))
    assert (
        "meta/episodes.jsonl is damaged in line 1"
        in imported(LeRobotReader(OPENINGS), root)[1].refused["episode 0 (meta)"]
    )
    (root / "meta/info.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(ValueError, match="meta/info.json is damaged"):
        list(LeRobotReader(OPENINGS).episodes(root))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a LeRobotDataset: it has no meta/info.json."),
        ("{", "meta/info.json is damaged"),
        ("{}", "meta/info.json is damaged: KeyError"),
        (
            json.dumps({"codebase_version": "v1.6", "features": {}, "fps": 1, "data_path": ""}),
            "is a LeRobotDataset v1.6; allowed: v2.0, v2.1 and v3.0.",
        ),
    ],
)
def test_what_is_no_data_set_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    (tmp_path / "meta").mkdir()
    if text is not None:
        (tmp_path / "meta" / "info.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        list(LeRobotReader(OPENINGS).episodes(tmp_path))
