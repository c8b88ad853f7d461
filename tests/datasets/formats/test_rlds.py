"""Imports of RLDS: a data set that TensorFlow Datasets wrote, and damaged copies of it."""

import json
import runpy
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.datasets.formats.conftest import Import

from stringline.datasets.formats.rlds import RldsReader, masked_crc32c
from stringline.datasets.formats.vector_layout import AlohaLayout

FIXTURE = Path(__file__).parent / "fixtures" / "rlds.zip"
MADE: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("write_fixtures.py")))
LENGTHS = MADE["LENGTHS"]
ACTION = ("action/joints", "action/gripper")
TRAIN = "small-train.tfrecord-00000-of-00001"


def reader(**options: Any) -> RldsReader:
    named = {"control_hz": 20, "state": ["observation/state"], "action": ACTION, **options}
    return RldsReader(AlohaLayout("opening", "opening"), **named)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with zipfile.ZipFile(FIXTURE) as archive:
        archive.extractall(tmp_path / "set")
    return tmp_path / "set" / "small"


def test_a_data_set_of_tensorflow_datasets_is_imported(path: Path, imported: Import) -> None:
    depth = {"observation/image": "observation/depth"}
    store, outcome = imported(reader(depth=depth), path)
    assert (len(outcome.imported), outcome.refused) == (2, {})
    found = {episode.steps: episode for episode in store.episodes()}
    for number, steps in enumerate(LENGTHS):
        episode = found[steps]
        arrays, attributes = episode.arrays, episode.attributes
        np.testing.assert_array_equal(arrays["joints/position"], MADE["joints"](steps, number))
        np.testing.assert_array_equal(arrays["action"], MADE["joints"](steps, number + 5))
        np.testing.assert_allclose(arrays["time"], np.arange(steps) / 20)
        np.testing.assert_array_equal(arrays["reward"], np.eye(steps, dtype=np.float32)[-1])
        assert [camera.name for camera in attributes.contract.cameras] == ["image", "wrist"]
        for step in range(steps):
            shown = MADE["image"](step, number)
            np.testing.assert_array_equal(arrays["rgb/wrist"][step], shown)
            assert np.abs(arrays["rgb/image"][step].astype(int) - shown).mean() < 4
            assert (arrays["depth/image"][step] == 700 + step).all()
        assert attributes.instruction == f"task {number}"
        assert attributes.extra["split"] == ("train", "val")[number]


def test_a_single_feature_needs_no_list(path: Path, imported: Import) -> None:
    """Its characters were once taken for names of features."""
    store, outcome = imported(reader(state="observation/state"), path)
    assert (len(store), outcome.refused) == (2, {})


def test_the_unit_of_depth_may_be_named(path: Path, imported: Import) -> None:
    depth = {"observation/image": "observation/depth"}
    store, _ = imported(reader(depth=depth, depth_unit_m=0.0001), path)
    episode = store.episodes()[0]
    assert episode.attributes.contract.camera("image").depth_unit_m == 0.0001
    assert episode.arrays["depth/image"][0, 0, 0] == 700


def test_splits_cameras_and_last_steps_are_chosen(path: Path, imported: Import) -> None:
    chosen = reader(
        split="val",
        cameras={"observation/wrist": "hand"},
        state=["observation/packed"],
        drop_last=True,
    )
    store, outcome = imported(chosen, path / "1.0.0")
    assert outcome.refused == {}
    (episode,) = store.episodes()
    assert [camera.name for camera in episode.attributes.contract.cameras] == ["hand"]
    expected = MADE["joints"](LENGTHS[1], 1)[:-1]
    np.testing.assert_array_equal(episode.arrays["joints/position"], expected)


def test_features_that_no_option_chooses_are_named(path: Path, imported: Import) -> None:
    outcome = imported(reader(split="train", cameras={"observation/wrist": "hand"}), path)[1]
    reasons = {
        "discount": "no option chooses it",
        "episode_metadata/file_path": "not a feature of the steps",
        "is_terminal": "no option chooses it",
        "observation/depth": "images that no camera uses",
        "observation/image": "images that no camera uses",
        "observation/packed": "no option chooses it",
        "observation/tokens": "no option chooses it",
    }
    assert outcome.skipped_fields == {part: 1 for part in reasons.items()}


def test_types_and_sizes_are_checked_before_values_are_decoded(
    path: Path, imported: Import
) -> None:
    features = path / "1.0.0" / "features.json"
    plain = features.read_text()
    chosen = reader(split="train", state=["observation/packed"])
    for old, new, message in (
        ('"float64"', '"object"', "There is no type of observation/packed 'object'."),
        ('"14"', '"100000000"', "4 values of 800000000 bytes; allowed: 536870912 bytes."),
    ):
        features.write_text(plain.replace(old, new))
        assert message in imported(chosen, path)[1].refused[f"episode 0 ({TRAIN})"]


def framed(data: bytes) -> bytes:
    """Returns a record of TFRecord."""
    length = struct.pack("<Q", len(data))
    sums = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
    return length + sums[0] + data + sums[1]


def test_the_checksum_is_that_of_tensorflow(path: Path) -> None:
    file = (path / "1.0.0" / TRAIN).read_bytes()
    length = struct.unpack("<Q", file[:8])[0]
    assert framed(file[12 : 12 + length]) == file[: 16 + length]


def flipped(place: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-5], "is truncated: record 0 ends at byte"),
        (lambda data: data[:7], "The length of record 0 of small-train"),
        (flipped(500), f"Record 0 of {TRAIN} has another checksum: the file is damaged or no TF"),
        (flipped(0), f"The length of record 0 of {TRAIN} has another checksum"),
        (lambda _: framed(b"\xff" * 9), "The record is not a tf.train.Example"),
        (lambda _: framed(b""), "The record lacks the feature steps/"),
    ],
)
def test_damaged_records_are_left_out(
    path: Path, imported: Import, change: Callable[[bytes], bytes], message: str
) -> None:
    file = path / "1.0.0" / TRAIN
    file.write_bytes(change(file.read_bytes()))
    store, outcome = imported(reader(), path)
    assert [episode.steps for episode in store.episodes()] == [LENGTHS[1]]
    assert message in outcome.refused[f"episode 0 ({TRAIN})"]


def test_records_before_a_damage_are_imported(path: Path, imported: Import) -> None:
    file = path / "1.0.0" / TRAIN
    data = file.read_bytes()
    file.write_bytes(data + data[:100])
    store, outcome = imported(reader(split="train"), path)
    assert len(store) == 1
    assert "record 1 ends at byte" in outcome.refused[f"episode 1 ({TRAIN})"]


def test_other_shapes_than_described_are_left_out(path: Path, imported: Import) -> None:
    features = path / "1.0.0" / "features.json"
    features.write_text(features.read_text().replace('"13"', '"5"'))
    why = imported(reader(split="train"), path)[1].refused[f"episode 0 ({TRAIN})"]
    assert "action/joints" in why or "action/gripper has 4 numbers for" in why


def described(name: str, text: str) -> Callable[[Path], object]:
    return lambda path: (path / name).write_text(text)


ARRAYS = json.dumps({"fileFormat": "array_record"})
NEAREST = "There is no feature 'observation/sate'. Did you mean 'observation/state'"


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({"control_hz": None}, None, "set it, format.control_hz=NUMBER"),
        ({"state": ["observation/sate"]}, None, NEAREST),
        ({"state": ["state"]}, None, r"observation/state \(14,\), observation/tokens other"),
        ({"split": "test"}, None, "There is no split 'test'. .*Allowed: train, val."),
        ({}, described("features.json", "{}"), "does not describe episodes with steps, as RLDS"),
        ({}, described("features.json", "{"), "is not JSON"),
        ({}, described("dataset_info.json", ARRAYS), "format 'array_record'; allowed: tfrecord."),
        (
            {},
            lambda path: (path / TRAIN).rename(path / TRAIN.replace("00001", "00003")),
            "lacks 2 of the 3 files of the split 'train', such as 00001-of-00003",
        ),
    ],
)
def test_missing_and_invalid_options_are_reported(
    path: Path, options: dict[str, Any], change: Callable[[Path], Any] | None, message: str
) -> None:
    if change:
        change(path / "1.0.0")
    with pytest.raises(ValueError, match=message):
        list(reader(**options).episodes(path))


@pytest.mark.parametrize(
    ("module", "package"), [("google_crc32c", "google-crc32c"), ("google.protobuf", "protobuf")]
)
def test_a_missing_library_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    for name in [name for name in sys.modules if name.startswith(module)]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, module, None)
    why = rf'This needs {package}, which is not installed. Run: pip install "stringline\[rlds\]"'
    with pytest.raises(ValueError, match=why):
        next(reader().episodes(path)).read()
