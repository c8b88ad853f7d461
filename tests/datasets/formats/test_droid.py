"""DROID's annotations: its RLDS gets the calibration of its fixed cameras."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.datasets.formats import droid_recordings as droid
from tests.datasets.formats.conftest import Run


@pytest.mark.slow
def test_the_annotations_of_droid_calibrate_its_fixed_cameras(tmp_path: Path, run: Run) -> None:
    root = droid.droid(tmp_path / "set")
    folder = droid.annotations(tmp_path / "droid")
    status, output, episodes = run(root, "rlds", *droid.RLDS, f"format.droid={folder}")
    assert status == 0, output
    assert "pose of wrist_image_left  2 of 2 episodes: one pose in the whole episode" in output
    for number, episode in enumerate(episodes):
        for camera, name in ((3, "exterior_image_1_left"), (4, "exterior_image_2_left")):
            pose = episode.arrays[f"T_base_camera/{name}"]
            np.testing.assert_allclose(
                pose, droid.pose(droid.pose_numbers(number, camera)), atol=1e-6
            )
            np.testing.assert_allclose(episode.arrays[f"intrinsics/{name}"], droid.K, rtol=1e-6)
        assert not episode.attributes.contract.camera("wrist_image_left").has_geometry
        assert episode.attributes.extra["droid_episode"] == droid.EPISODES[number]


def changed(name: str, change: Callable[[Any], None]) -> Callable[[Path], None]:
    """Returns a change of a JSON file of the annotations."""

    def apply(folder: Path) -> None:
        path = folder / f"{name}.json"
        plain = json.loads(path.read_text())
        change(plain)
        path.write_text(json.dumps(plain))

    return apply


def written(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def linked(folder: Path) -> None:
    (folder / SERIALS).unlink()
    (folder / SERIALS).symlink_to("/etc/passwd")


def first(**values: Any) -> Callable[[Path], None]:
    """Returns a change of the numbers of the first camera in the first episode, by file."""
    ((name, numbers),) = values.items()
    return changed(name, lambda plain: plain[FIRST].update({"111": numbers}))


FIRST, SERIALS = droid.EPISODES[0], "camera_serials.json"
EXTRINSICS = "cam2base_extrinsics.json"
BOTH = f"{EXTRINSICS} and cam2base_extrinsic_superset.json; format.cameras selects"
ABSENT = f"{droid.RIGHT} of the episode {FIRST} (serial number 222) is not calibrated in {BOTH}"
DAMAGED = f"The calibration of {droid.LEFT} in the episode {FIRST} is damaged: not enough"
NONE = "has no calibrations of DROID: cam2base_extrinsics.json or cam2base_extrinsic_superset"
RECURSION = f"{SERIALS} cannot be read: maximum recursion depth exceeded"
CENTRE = "the principal point is (9000, 360); allowed: inside the image of 720 rows and 1280"
UNSET = "is damaged: all numbers are 0: the camera was not calibrated"
LARGE = "intrinsics.json has 134217729 bytes or more; allowed: 134217728."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message", "others"),
    [
        (changed("cam2base_extrinsics", lambda plain: plain[FIRST].pop("222")), ABSENT, 1),
        (
            changed("intrinsics", lambda plain: plain.pop(FIRST)),
            "111) is not calibrated in intr",
            1,
        ),
        (
            changed("episode_id_to_path", lambda plain: plain.pop(FIRST)),
            "episode_id_to_path.json lacks the recording 'gs://xembodiment_data/r2d2/",
            1,
        ),
        (first(intrinsics=[1, 2]), DAMAGED, 1),
        (first(intrinsics=[520, 9e3, 520, 360]), CENTRE, 1),
        (first(cam2base_extrinsics=[0] * 6), UNSET, 1),
        (
            lambda folder: (folder / "intrinsics.json").unlink(),
            "lacks intrinsics.json, a file of",
            0,
        ),
        (written(SERIALS, "[]"), "camera_serials.json is a list; allowed: a mapping.", 0),
        (written(SERIALS, "{"), "camera_serials.json cannot be read: Expecting property name", 0),
        (written(SERIALS, "[" * 200_000), RECURSION, 0),
        (linked, "leads out of the data set, to /etc/passwd; it is not read.", 0),
        (lambda folder: os.truncate(folder / "intrinsics.json", 2**27 + 1), LARGE, 0),
        (lambda folder: [file.unlink() for file in folder.glob("cam2base*")], NONE, 0),
    ],
)
def test_what_the_annotations_lack_is_named(
    tmp_path: Path, run: Run, change: Callable[[Path], None], message: str, others: int
) -> None:
    root = droid.droid(tmp_path / "set")
    folder = droid.annotations(tmp_path / "droid")
    change(folder)
    status, output, episodes = run(
        root, "rlds", *droid.RLDS, droid.CHOSEN, f"format.droid={folder}"
    )
    assert status == 2
    assert message in output
    assert len(episodes) == others
