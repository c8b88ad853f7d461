"""Imports of replay buffers, written by zarr in the documented layout, and their errors."""

import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from imagecodecs.numcodecs import Jpeg, Png, Webp
from numpy.typing import NDArray
from tests.datasets.formats.conftest import OPENINGS, Import
from tests.datasets.formats.replay_buffers import LENGTHS, replay_buffer

from stringline.datasets.formats.diffusion_policy import DiffusionPolicyReader
from stringline.datasets.formats.importing import Outcome
from stringline.datasets.formats.vector_layout import DescribedLayout
from stringline.datasets.store.store import EpisodeStore

AXES = [
    {"name": axis, "arm": "finger", "kind": "position", "unit": "px", "frame": "image"}
    for axis in "xy"
]


Series = dict[str, NDArray[Any]]
Spoil = Callable[[Path], object]


@dataclass
class Buffer:
    """A replay buffer in the making, and its import."""

    series: Series
    path: Path
    run: Import

    def write(self, name: str = "set.zarr", codecs: Any = None, /, **series: NDArray[Any]) -> Path:
        """Writes the series, with others beside them or in their place."""
        return replay_buffer(self.path / name, self.series | series, codecs)

    def reader(self, **options: Any) -> DiffusionPolicyReader:
        return DiffusionPolicyReader(**{"layout": OPENINGS, "control_hz": 50, **options})

    def imported(self, path: Path, **options: Any) -> tuple[EpisodeStore, Outcome]:
        return self.run(self.reader(**options), path)


@pytest.fixture
def buffer(tmp_path: Path, samples: Any, imported: Import) -> Buffer:
    return Buffer(recorded(samples), tmp_path, imported)


def recorded(samples: Any) -> Series:
    """Returns the series of three episodes of ALOHA with a camera."""
    return {
        "img": np.concatenate(
            [np.stack([samples.image(f, e) for f in range(n)]) for e, n in enumerate(LENGTHS)]
        ),
        "state": np.concatenate([samples.joints(n, e) for e, n in enumerate(LENGTHS)]),
        "action": np.concatenate([samples.joints(n, e + 100) for e, n in enumerate(LENGTHS)]),
    }


@pytest.mark.parametrize("name", ["set.zarr", "set.zarr.zip"])
def test_joint_data_is_imported(buffer: Buffer, samples: Any, name: str) -> None:
    path = buffer.write(name)
    assert samples.size_of(path) < 100_000
    store, outcome = buffer.imported(path, cameras={"img": "overhead"})
    assert outcome.refused == {}
    for number, (episode, steps) in enumerate(zip(store.episodes(), LENGTHS, strict=True)):
        arrays = episode.arrays
        np.testing.assert_array_equal(arrays["joints/position"], samples.joints(steps, number))
        np.testing.assert_array_equal(arrays["action"], samples.joints(steps, number + 100))
        shown = [samples.image(frame, number) for frame in range(steps)]
        np.testing.assert_array_equal(arrays["rgb/overhead"], shown)


def test_described_data_is_imported(buffer: Buffer) -> None:
    target = np.random.default_rng(0).uniform(0, 512, (sum(LENGTHS), 2)).astype(np.float32)
    images = buffer.series["img"]
    path = buffer.write("pusht.zarr", img=images.astype(np.float32), action=target)
    store, _ = buffer.imported(path, layout=DescribedLayout(AXES), control_hz=10, state=None)
    episode = store.episodes()[1]
    np.testing.assert_array_equal(episode.arrays["action"], target[5:13])
    np.testing.assert_array_equal(episode.arrays["rgb/img"], images[5:13])
    assert [dimension.unit for dimension in episode.attributes.contract.action] == ["px", "px"]
    assert episode.attributes.contract.joints == ()


@pytest.mark.parametrize(
    ("dimension", "message"),
    [
        ({}, "lacks arm."),
        ({"arm": "a", "knid": "joint"}, "no field of a dimension 'knid'. Did you mean 'kind'"),
        ({"arm": "a", "kind": "grip"}, "no kind of dimension 'grip'. Did you mean 'gripper'"),
        ({"arm": "a", "kind": "gripper"}, "gripper convention of x is missing"),
        ({"arm": "a", "gripper": "opening"}, "'x' has the kind 'joint'; grippers, and only these,"),
    ],
)
def test_descriptions_of_numbers_are_checked(dimension: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DescribedLayout([{"name": "x", **dimension}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"control_hz": None}, "the control rate; set it, format.control_hz=NUMBER"),
        ({"depth_unit_m": -1}, r"format.depth_unit_m must be a number above 0 \(got -1\)"),
        ({"depth_source": "guess"}, "There is no source of depth 'guess'"),
        ({"state": "qpos"}, r"no series 'qpos'. .* With their shapes: action \(14,\), img \(16"),
        ({"cameras": {"top": "a"}}, "There is no series 'top'"),
        ({"cameras": {"state": "a"}}, "no series with images 'state'. .*Allowed: img."),
        ({"layout": DescribedLayout()}, "Describe each number of the action in layout.action; got"),
        ({"layout": DescribedLayout(AXES * 7)}, "number of the state in layout.joints, or omit"),
    ],
)
def test_wrong_options_are_reported(buffer: Buffer, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        buffer.imported(buffer.write(), **options)


def spoilt(key: str, value: float) -> Spoil:
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


BAD_CHUNK = b"\x02\x01\x21\x08" + bytes(30)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoilt("action", np.nan), "action at frame 4, dimension 0, is nan"),
        (spoilt("state", 90), "state at frame 4, 'left/waist', is 90; impossible for a joint"),
        (spoilt("img", 300), "data/img at frame 4 has values from 60.0 to 300.0"),
        (lambda path: without_chunk(path, "img", "3.0.0.0", None), "lacks the chunk of frame 4"),
        (lambda path: (path / "data/action/3.0").write_bytes(BAD_CHUNK), "in frames 0 to 7"),
    ],
)
def test_a_damaged_episode_is_reported_and_the_others_are_imported(
    buffer: Buffer, spoil: Spoil, message: str
) -> None:
    path = buffer.write(img=buffer.series["img"].astype(np.float32))
    spoil(path)
    store, outcome = buffer.imported(path)
    assert list(outcome.refused) == ["episode 1 (set.zarr)"]
    assert message in outcome.refused["episode 1 (set.zarr)"]
    assert [episode.attributes.seed for episode in store.episodes()] == [0, 2]


def test_white_must_be_255(buffer: Buffer) -> None:
    path = buffer.write(img=buffer.series["img"].astype(np.float32) / 255)
    why = buffer.imported(path)[1].refused["episode 0 (set.zarr)"]
    assert "data/img at frame 0 has values up to" in why
    assert "allowed: 0 to 255. Is white 1?" in why


def test_unequal_lengths_are_named(buffer: Buffer) -> None:
    outcome = buffer.imported(buffer.write(img=buffer.series["img"][:15]))[1]
    assert "data/img ends at frame 2" in outcome.refused["episode 2 (set.zarr)"]


@pytest.mark.parametrize(
    ("key", "dtype", "unit_m", "stored_m"),
    [
        ("img_depth", np.float32, 1.0, 0.001),
        ("depth", np.float64, 0.001, 0.001),
        ("depth_image", np.uint16, 0.001, 0.001),
        ("img_depth", np.uint16, 0.0001, 0.0001),
        ("img_depth", np.uint8, 0.01, 0.001),
    ],
)
def test_depth_is_imported_in_its_unit(
    buffer: Buffer, key: str, dtype: type, unit_m: float, stored_m: float
) -> None:
    """Integers in a unit up to 1 mm are stored as they are, all other depth in mm."""
    metres = np.random.default_rng(0).uniform(0.3, 2, (sum(LENGTHS), 16, 24))
    depth = (metres / unit_m).astype(dtype)
    store, outcome = buffer.imported(buffer.write(**{key: depth}), depth_unit_m=unit_m)
    assert outcome.refused == {}
    camera = store.episodes()[1].attributes.contract.camera("img")
    assert (camera.depth, camera.depth_unit_m) == ("measured", stored_m)
    found = stored_m * store.episodes()[1].arrays["depth/img"].astype(float)
    np.testing.assert_allclose(found, unit_m * depth[5:13].astype(float), atol=stored_m / 2 + 1e-9)


def test_numbered_depth_belongs_to_the_camera_of_its_number(buffer: Buffer) -> None:
    """The names of recorders with several cameras: camera_0, depth_0 and so on."""
    images = buffer.series.pop("img")
    for number in range(2):
        buffer.series[f"camera_{number}"] = images
        buffer.series[f"depth_{number}"] = np.full(images.shape[:3], 500 + number, np.uint16)
    path = buffer.write()
    store, _ = buffer.imported(path, cameras={"camera_1": "side"}, depth_unit_m=0.001)
    episode = store.episodes()[0]
    assert (np.asarray(episode.arrays["depth/side"]) == 501).all()
    assert [camera.name for camera in episode.attributes.contract.cameras] == ["side"]
    named = {"camera_0": "depth_1"}
    for depth, sources in ((named, ["measured", None]), ({}, [None, None])):
        (reference, *_) = buffer.reader(depth=depth, depth_unit_m=0.001).episodes(path)
        assert [camera.depth for camera in reference.read().contract.cameras] == sources


MM = {"depth_unit_m": 0.001}


@pytest.mark.parametrize(
    ("key", "size", "options", "message"),
    [
        ("img_depth", (16, 24), {}, "does not contain its unit; set format.depth_unit_m, metres"),
        ("wrist_depth", (16, 24), MM, "'wrist_depth' belongs to no camera by its name; set form"),
        ("img_depth", (12, 24), MM, "data/img_depth has images of (12, 24), data/img of (16, 24)"),
        ("range_depth", (16, 24), {"depth": {"img": "range"}}, "Did you mean 'range_depth'"),
        ("depth", (16, 24, 1), {"depth": {"image": "depth"}}, "images 'image'. Did you mean 'img'"),
    ],
)
def test_depth_without_unit_or_camera_is_refused(
    buffer: Buffer, key: str, size: tuple[int, ...], options: dict[str, Any], message: str
) -> None:
    path = buffer.write(**{key: np.full((sum(LENGTHS), *size), 700, np.uint16)})
    with pytest.raises(ValueError, match=re.escape(message)):
        list(buffer.reader(**options).episodes(path))


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
    buffer: Buffer, value: Any, unit_m: float, message: str
) -> None:
    path = buffer.write("a.zarr", img_depth=np.full((sum(LENGTHS), 16, 24), value))
    outcome = buffer.imported(path, depth_unit_m=unit_m)[1]
    assert f"data/img_depth at frame 0 {message}" in outcome.refused["episode 0 (a.zarr)"]


def test_the_option_overrules_the_unit_in_the_data(
    buffer: Buffer, caplog: pytest.LogCaptureFixture
) -> None:
    path = buffer.write(img_depth=np.full((sum(LENGTHS), 16, 24), 700, np.uint16))
    array = zarr.open_group(path, zarr_format=2)["data/img_depth"]
    array.attrs["depth_unit_m"] = 0.00025
    (reference, *_) = buffer.reader(depth_unit_m=0.001).episodes(path)
    assert [camera.depth_unit_m for camera in reference.read().contract.cameras] == [0.001]
    assert "0.001 m, by format.depth_unit_m; the data state 0.00025 m." in caplog.text
    array.attrs["depth_unit_m"] = "mm"
    with pytest.raises(ValueError, match="has a unit of 'mm' by itself; allowed: a number above 0"):
        buffer.imported(path)


def test_other_files_are_refused(buffer: Buffer) -> None:
    path = buffer.write("cut.zarr.zip")
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(ValueError, match=r"is not a complete zip file .*Is it truncated\?"):
        buffer.imported(path)
    path = buffer.write("ends.zarr")
    zarr.open_group(path, zarr_format=2)["meta/episode_ends"][:] = [5, 5, 17]  # type: ignore[index]
    with pytest.raises(ValueError, match="meta/episode_ends must be increasing integers"):
        buffer.imported(path)


def test_an_unknown_codec_is_named(buffer: Buffer) -> None:
    described = buffer.write() / "data/img/.zarray"
    described.write_text(described.read_text().replace('"blosc"', '"imagecodecs_future"'))
    with pytest.raises(ValueError, match="img cannot be opened: There is no codec 'imagecodecs_fu"):
        buffer.imported(described.parents[2])


@pytest.mark.parametrize(
    ("codec", "tolerance"), [(Jpeg(level=95), 8), (Png(), 0), (Webp(level=101), 0)]
)
def test_compressed_images_are_imported(buffer: Buffer, codec: Any, tolerance: int) -> None:
    store, outcome = buffer.imported(buffer.write("set.zarr", {"img": codec}))
    assert outcome.refused == {}
    off = store.episodes()[1].arrays["rgb/img"].astype(int) - buffer.series["img"][5:13]
    assert np.abs(off).max() <= tolerance


def test_omitted_chunks_are_the_fill_value_and_named(buffer: Buffer) -> None:
    """By default zarr does not store a chunk of zeros."""
    path = buffer.write()
    without_chunk(path, "img", "3.0.0.0", fill=0)
    store, outcome = buffer.imported(path)
    assert outcome.refused == {}
    expected = buffer.series["img"].copy()
    expected[9:12] = 0
    np.testing.assert_array_equal(store.episodes()[1].arrays["rgb/img"], expected[5:13])
    assert outcome.skipped_fields == {("chunks of img", "not stored; read as the fill value"): 1}


def test_omitted_chunks_of_a_zip_file_are_the_fill_value_and_named(buffer: Buffer) -> None:
    path = buffer.path / "set.zarr.zip"
    with zipfile.ZipFile(buffer.write("full.zarr.zip")) as full, zipfile.ZipFile(path, "w") as less:
        for name in full.namelist():
            if name != "data/action/5.0":
                less.writestr(name, full.read(name))
    store, outcome = buffer.imported(path)
    assert not store.episodes()[2].arrays["action"][2:].any()
    assert outcome.skipped_fields == {("chunks of action", "not stored; read as the fill value"): 1}
