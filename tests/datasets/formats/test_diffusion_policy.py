"""Imports of replay buffers, written by zarr in the documented layout, and their errors."""

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from imagecodecs.numcodecs import Jpeg, Png, Webp
from numpy.typing import NDArray
from tests.datasets.formats.replay_buffers import LENGTHS, replay_buffer

from stringline.datasets.formats.diffusion_policy import DiffusionPolicyReader
from stringline.datasets.formats.foreign import Reader
from stringline.datasets.formats.importing import Outcome
from stringline.datasets.formats.vector_layout import AlohaLayout, DescribedLayout
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore

OPENINGS = AlohaLayout("opening", "opening")
AXES = [
    {"name": axis, "arm": "finger", "kind": "position", "unit": "px", "frame": "image"}
    for axis in "xy"
]
Import = Callable[[Reader, Path], tuple[EpisodeStore, Outcome]]


@pytest.fixture
def series(samples: Any) -> dict[str, NDArray[Any]]:
    return {
        "img": np.concatenate(
            [np.stack([samples.image(f, e) for f in range(n)]) for e, n in enumerate(LENGTHS)]
        ),
        "state": np.concatenate([samples.joints(n, e) for e, n in enumerate(LENGTHS)]),
        "action": np.concatenate([samples.joints(n, e + 100) for e, n in enumerate(LENGTHS)]),
    }


@pytest.mark.parametrize("name", ["set.zarr", "set.zarr.zip"])
def test_joint_data_is_imported(
    tmp_path: Path, imported: Import, samples: Any, series: dict[str, NDArray[Any]], name: str
) -> None:
    path = replay_buffer(tmp_path / name, series)
    assert samples.size_of(path) < 100_000
    reader = DiffusionPolicyReader(OPENINGS, control_hz=50, cameras={"img": "overhead"})
    store, outcome = imported(reader, path)
    assert outcome.refused == {}
    for number, episode in enumerate(store.episodes()):
        steps = LENGTHS[number]
        np.testing.assert_array_equal(
            episode.arrays["joints/position"], samples.joints(steps, number)
        )
        np.testing.assert_array_equal(episode.arrays["action"], samples.joints(steps, number + 100))
        np.testing.assert_array_equal(
            episode.arrays["rgb/overhead"][steps - 1], samples.image(steps - 1, number)
        )
    assert len(Windows(store)) == sum(LENGTHS)
    assert imported(reader, path)[1].present == len(LENGTHS)


def test_described_data_is_imported(
    tmp_path: Path, imported: Import, series: dict[str, NDArray[Any]]
) -> None:
    target = np.random.default_rng(0).uniform(0, 512, (sum(LENGTHS), 2)).astype(np.float32)
    path = replay_buffer(
        tmp_path / "pusht.zarr", {"img": series["img"].astype(np.float32), "action": target}
    )
    store, _ = imported(
        DiffusionPolicyReader(DescribedLayout(AXES), control_hz=10, state=None), path
    )
    episode = store.episodes()[1]
    np.testing.assert_array_equal(episode.arrays["action"], target[5:13])
    np.testing.assert_array_equal(episode.arrays["rgb/img"], series["img"][5:13])
    assert [dimension.unit for dimension in episode.attributes.contract.action] == ["px", "px"]
    assert episode.attributes.contract.joints == ()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: DiffusionPolicyReader(OPENINGS),
            "does not contain the control rate; set it, format.control_hz=NUMBER.",
        ),
        (lambda: DescribedLayout([{"name": "x"}]), "lacks arm."),
        (
            lambda: DescribedLayout([{"name": "x", "arm": "a", "knid": "joint"}]),
            "no field of a dimension 'knid'. Did you mean 'kind'",
        ),
        (
            lambda: DescribedLayout([{"name": "x", "arm": "a", "kind": "grip"}]),
            "no kind of dimension 'grip'. Did you mean 'gripper'",
        ),
        (
            lambda: DescribedLayout([{"name": "x", "arm": "a", "kind": "gripper"}]),
            "gripper convention of x is missing",
        ),
        (
            lambda: DescribedLayout([{"name": "x", "arm": "a", "gripper": "opening"}]),
            "'x' has the kind 'joint'; grippers, and only these,",
        ),
    ],
)
def test_missing_options_are_reported(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        (
            DiffusionPolicyReader(OPENINGS, control_hz=10, state="qpos"),
            r"no series 'qpos'. .* With their shapes: action \(14,\), img \(16",
        ),
        (
            DiffusionPolicyReader(OPENINGS, control_hz=10, cameras={"top": "a"}),
            "There is no series 'top'",
        ),
        (
            DiffusionPolicyReader(OPENINGS, control_hz=10, cameras={"state": "a"}),
            "no series with images 'state'. .*Allowed: img.",
        ),
        (
            DiffusionPolicyReader(DescribedLayout(), control_hz=10),
            "Describe each number of the action in layout.action; got nothing, it has: action_0",
        ),
        (
            DiffusionPolicyReader(DescribedLayout(AXES * 7), control_hz=10),
            "Describe each number of the state in layout.joints, or omit the state",
        ),
    ],
)
def test_unknown_series_are_answered_with_the_existing_ones(
    tmp_path: Path, imported: Import, series: dict[str, NDArray[Any]], reader: Reader, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        imported(reader, replay_buffer(tmp_path / "set.zarr", series))


def spoil_row(key: str, value: float) -> Callable[[Path], None]:
    """Returns a function that writes a value into frame 4 of the second episode."""

    def spoil(path: Path) -> None:
        array: Any = zarr.open_group(path, mode="r+", zarr_format=2)[f"data/{key}"]
        row = array[9]
        row[..., 0] = value
        array[9] = row

    return spoil


def without_chunk(path: Path, key: str, chunk: str, fill: float | None) -> None:
    """Removes a chunk, as zarr leaves out those that contain only the fill value."""
    (path / f"data/{key}/{chunk}").unlink()
    described = json.loads((path / f"data/{key}/.zarray").read_text())
    (path / f"data/{key}/.zarray").write_text(json.dumps(described | {"fill_value": fill}))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            spoil_row("action", np.nan),
            "action at frame 4, dimension 0, is nan; every value must be finite.",
        ),
        (
            spoil_row("state", 90),
            "state at frame 4, 'left/waist', is 90; impossible for a joint in rad",
        ),
        (
            spoil_row("img", 300),
            "data/img at frame 4 has values from 60.0 to 300.0; allowed: 0 to 255.",
        ),
        (
            lambda path: without_chunk(path, "img", "3.0.0.0", fill=None),
            "data/img lacks the chunk of frame 4 (data/img/3.0.0.0)",
        ),
        (
            lambda path: (path / "data/action/3.0").write_bytes(b"\x02\x01\x21\x08" + bytes(30)),
            "data/action cannot be read in frames 0 to 7",
        ),
    ],
)
def test_a_damaged_episode_is_reported_and_the_others_are_imported(
    tmp_path: Path,
    imported: Import,
    series: dict[str, NDArray[Any]],
    spoil: Callable[[Path], None],
    message: str,
) -> None:
    path = replay_buffer(tmp_path / "set.zarr", series | {"img": series["img"].astype(np.float32)})
    spoil(path)
    store, outcome = imported(DiffusionPolicyReader(OPENINGS, control_hz=50), path)
    assert list(outcome.refused) == ["episode 1 (set.zarr)"]
    assert message in outcome.refused["episode 1 (set.zarr)"]
    assert [episode.attributes.seed for episode in store.episodes()] == [0, 2]


def test_white_must_be_255(
    tmp_path: Path, imported: Import, series: dict[str, NDArray[Any]]
) -> None:
    path = replay_buffer(
        tmp_path / "set.zarr", series | {"img": series["img"].astype(np.float32) / 255}
    )
    outcome = imported(DiffusionPolicyReader(OPENINGS, control_hz=50), path)[1]
    assert "data/img at frame 0 has values up to" in outcome.refused["episode 0 (set.zarr)"]
    assert "allowed: 0 to 255. Is white 1?" in outcome.refused["episode 0 (set.zarr)"]


def test_unequal_lengths_are_named(
    tmp_path: Path, imported: Import, series: dict[str, NDArray[Any]]
) -> None:
    path = replay_buffer(tmp_path / "set.zarr", series | {"img": series["img"][:15]})
    outcome = imported(DiffusionPolicyReader(OPENINGS, control_hz=50), path)[1]
    assert (
        "data/img ends at frame 2, before the episode ends."
        in outcome.refused["episode 2 (set.zarr)"]
    )


@pytest.mark.parametrize(
    ("key", "dtype", "units_m"),
    [
        ("img_depth", np.float32, (1.0, 0.001)),
        ("depth", np.float64, (0.001, 0.001)),
        ("depth_image", np.uint16, (0.001, 0.001)),
        ("img_depth", np.uint16, (0.0001, 0.0001)),
        ("img_depth", np.uint8, (0.01, 0.001)),
    ],
)
def test_depth_is_imported_in_its_unit(
    tmp_path: Path,
    imported: Import,
    series: dict[str, NDArray[Any]],
    key: str,
    dtype: type,
    units_m: tuple[float, float],
) -> None:
    """Integers in a unit up to 1 mm are stored as they are, all other depth in mm."""
    unit_m, stored_m = units_m
    metres = np.random.default_rng(0).uniform(0.3, 2, (sum(LENGTHS), 16, 24))
    depth = (metres / unit_m).astype(dtype)
    path = replay_buffer(tmp_path / "set.zarr", series | {key: depth})
    reader = DiffusionPolicyReader(OPENINGS, control_hz=50, depth_unit_m=unit_m)
    store, outcome = imported(reader, path)
    assert outcome.refused == {}
    camera = store.episodes()[1].attributes.contract.camera("img")
    assert (camera.depth, camera.depth_unit_m) == ("measured", stored_m)
    found = stored_m * store.episodes()[1].arrays["depth/img"].astype(float)
    np.testing.assert_allclose(found, unit_m * depth[5:13].astype(float), atol=stored_m / 2 + 1e-9)


def test_numbered_depth_belongs_to_the_camera_of_its_number(
    tmp_path: Path, imported: Import, series: dict[str, NDArray[Any]]
) -> None:
    """The names of recorders with several cameras: camera_0, depth_0 and so on."""
    images = series.pop("img")
    for number in range(2):
        series[f"camera_{number}"] = images
        series[f"depth_{number}"] = np.full(images.shape[:3], 500 + number, np.uint16)
    path = replay_buffer(tmp_path / "set.zarr", series)
    reader = DiffusionPolicyReader(
        OPENINGS, control_hz=50, cameras={"camera_1": "side"}, depth_unit_m=0.001
    )
    episode = imported(reader, path)[0].episodes()[0]
    assert (np.asarray(episode.arrays["depth/side"]) == 501).all()
    assert [camera.name for camera in episode.attributes.contract.cameras] == ["side"]
    named = {"camera_0": "depth_1"}
    reader = DiffusionPolicyReader(OPENINGS, control_hz=50, depth=named, depth_unit_m=0.001)
    (reference, *_) = reader.episodes(path)
    cameras = reference.read().contract.cameras
    assert [camera.depth for camera in cameras] == ["measured", None]
    (reference, *_) = DiffusionPolicyReader(OPENINGS, control_hz=50, depth={}).episodes(path)
    assert {camera.depth for camera in reference.read().contract.cameras} == {None}


@pytest.mark.parametrize(
    ("added", "options", "message"),
    [
        (
            {"img_depth": (16, 24)},
            {},
            "data/img_depth does not contain its unit; set format.depth_unit_m, metres per stored",
        ),
        (
            {"wrist_depth": (16, 24)},
            {"depth_unit_m": 0.001},
            "The depth series 'wrist_depth' belongs to no camera by its name; set format.depth=",
        ),
        (
            {"img_depth": (12, 24)},
            {"depth_unit_m": 0.001},
            "data/img_depth has images of (12, 24), data/img of (16, 24); allowed: depth that is",
        ),
        (
            {"range_depth": (16, 24)},
            {"depth": {"img": "range"}},
            "There is no series with depth 'range'. Did you mean 'range_depth'",
        ),
        (
            {"depth": (16, 24, 1)},
            {"depth": {"image": "depth"}},
            "There is no series with images 'image'. Did you mean 'img'",
        ),
    ],
)
def test_depth_without_unit_or_camera_is_refused(
    tmp_path: Path,
    series: dict[str, NDArray[Any]],
    added: dict[str, tuple[int, ...]],
    options: dict[str, Any],
    message: str,
) -> None:
    more = {key: np.full((sum(LENGTHS), *size), 700, np.uint16) for key, size in added.items()}
    path = replay_buffer(tmp_path / "set.zarr", series | more)
    with pytest.raises(ValueError, match=re.escape(message)):
        list(DiffusionPolicyReader(OPENINGS, control_hz=50, **options).episodes(path))


@pytest.mark.parametrize(
    ("value", "unit_m", "message"),
    [
        (np.float32(700), 1.0, "reaches 700 m at 1 m per number; allowed: at most 60."),
        (np.uint16(700), 1.0, "reaches 700 m at 1 m per number; allowed: at most 60."),
        (np.float32(0.7), 0.001, "reaches 0.7 mm at 0.001 m per number; expected: at least 20."),
        (np.float32(-1), 1.0, "has values that are negative or not finite."),
        (np.float32(np.nan), 1.0, "has values that are negative or not finite."),
        (np.bool_(True), 1.0, "is bool (16, 24); allowed: floats or integers of (16, 24)."),
    ],
)
def test_depth_in_another_unit_is_named(
    tmp_path: Path,
    imported: Import,
    series: dict[str, NDArray[Any]],
    value: Any,
    unit_m: float,
    message: str,
) -> None:
    depth = np.full((sum(LENGTHS), 16, 24), value)
    path = replay_buffer(tmp_path / "a.zarr", series | {"img_depth": depth})
    reader = DiffusionPolicyReader(OPENINGS, control_hz=50, depth_unit_m=unit_m)
    outcome = imported(reader, path)[1]
    assert f"data/img_depth at frame 0 {message}" in outcome.refused["episode 0 (a.zarr)"]


def test_a_unit_in_the_data_is_not_overruled(
    tmp_path: Path, series: dict[str, NDArray[Any]]
) -> None:
    depth = np.full((sum(LENGTHS), 16, 24), 700, np.uint16)
    path = replay_buffer(tmp_path / "a.zarr", series | {"img_depth": depth})
    array = zarr.open_group(path, zarr_format=2)["data/img_depth"]
    array.attrs["depth_unit_m"] = 0.00025
    reader = DiffusionPolicyReader(OPENINGS, control_hz=50, depth_unit_m=0.001)
    with pytest.raises(ValueError, match=r"unit of 0.00025 m by itself; .* is 0.001. Leave the op"):
        list(reader.episodes(path))
    array.attrs["depth_unit_m"] = "mm"
    with pytest.raises(ValueError, match="has a unit of 'mm' by itself; allowed: above 0"):
        list(DiffusionPolicyReader(OPENINGS, control_hz=50).episodes(path))
    with pytest.raises(ValueError, match="format.depth_unit_m is -1; allowed: above 0"):
        DiffusionPolicyReader(OPENINGS, control_hz=50, depth_unit_m=-1)
    with pytest.raises(ValueError, match="There is no source of depth 'guess'"):
        DiffusionPolicyReader(OPENINGS, control_hz=50, depth_source="guess")


def test_other_files_are_refused(tmp_path: Path, series: dict[str, NDArray[Any]]) -> None:
    reader = DiffusionPolicyReader(OPENINGS, control_hz=50)
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        ValueError, match="is not a replay buffer, a zarr 2 group with data and meta/episode_ends"
    ):
        list(reader.episodes(tmp_path / "empty"))
    path = replay_buffer(tmp_path / "cut.zarr.zip", series)
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(
        ValueError, match=r"cut.zarr.zip is not a complete zip file .*Is it truncated\?"
    ):
        list(reader.episodes(path))
    path = replay_buffer(tmp_path / "ends.zarr", series)
    zarr.open_group(path, zarr_format=2)["meta/episode_ends"][:] = [5, 5, 17]  # type: ignore[index]
    with pytest.raises(
        ValueError, match="meta/episode_ends must be increasing integers; got int64"
    ):
        list(reader.episodes(path))


def test_an_unknown_codec_is_named(tmp_path: Path, series: dict[str, NDArray[Any]]) -> None:
    path = replay_buffer(tmp_path / "set.zarr", series)
    text = (path / "data/img/.zarray").read_text()
    (path / "data/img/.zarray").write_text(text.replace('"blosc"', '"imagecodecs_future"'))
    with pytest.raises(
        ValueError,
        match="data/img cannot be opened: There is no codec 'imagecodecs_future'. Did you mean",
    ):
        list(DiffusionPolicyReader(OPENINGS, control_hz=50).episodes(path))


@pytest.mark.parametrize(
    ("codec", "tolerance"),
    [(Jpeg(level=95), 8), (Png(), 0), (Webp(level=101), 0)],
    ids=["jpeg", "png", "webp"],
)
def test_compressed_images_are_imported(
    tmp_path: Path,
    imported: Import,
    series: dict[str, NDArray[Any]],
    codec: Any,
    tolerance: int,
) -> None:
    path = replay_buffer(tmp_path / "set.zarr", series, {"img": codec})
    store, outcome = imported(DiffusionPolicyReader(OPENINGS, control_hz=50), path)
    assert outcome.refused == {}
    off = store.episodes()[1].arrays["rgb/img"].astype(int) - series["img"][5:13]
    assert np.abs(off).max() <= tolerance


def test_omitted_chunks_are_the_fill_value_and_named(
    tmp_path: Path, imported: Import, series: dict[str, NDArray[Any]]
) -> None:
    """By default zarr does not store a chunk of zeros."""
    path = replay_buffer(tmp_path / "set.zarr", series)
    without_chunk(path, "img", "3.0.0.0", fill=0)
    store, outcome = imported(DiffusionPolicyReader(OPENINGS, control_hz=50), path)
    assert outcome.refused == {}
    expected = series["img"].copy()
    expected[9:12] = 0
    np.testing.assert_array_equal(store.episodes()[1].arrays["rgb/img"], expected[5:13])
    assert outcome.left_out == {("chunks of img", "not stored; read as the fill value"): 1}


def test_omitted_chunks_of_a_zip_file_are_the_fill_value_and_named(
    tmp_path: Path, imported: Import, series: dict[str, NDArray[Any]]
) -> None:
    path = replay_buffer(tmp_path / "full.zarr.zip", series)
    with zipfile.ZipFile(path) as full, zipfile.ZipFile(tmp_path / "set.zarr.zip", "w") as less:
        for name in full.namelist():
            if name != "data/action/5.0":
                less.writestr(name, full.read(name))
    store, outcome = imported(
        DiffusionPolicyReader(OPENINGS, control_hz=50), tmp_path / "set.zarr.zip"
    )
    assert not store.episodes()[2].arrays["action"][2:].any()
    assert outcome.left_out == {("chunks of action", "not stored; read as the fill value"): 1}
