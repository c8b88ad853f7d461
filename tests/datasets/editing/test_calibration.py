"""`stringline-data calibrate`: a store gets the poses and intrinsics that its cameras had."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.datasets.editing.waiting import waiting

from stringline import ALOHA, EpisodeStore
from stringline.datasets.cameras.camera_calibration import CameraCalibration
from stringline.datasets.data import main
from stringline.datasets.editing.edit import calibrate
from stringline.datasets.files.atomic import exclusive
from stringline.datasets.pointclouds.camera_check import check_cameras
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import verify_store
from stringline.datasets.store.transactions import trash_of

GEOMETRY = ("intrinsics", "T_base_camera")
SIDE = 400  # The intrinsics belong to images twice as large as those of the episode.


def write_cameras(path: Path, *names: str, side: int = SIDE) -> Path:
    """Writes the calibration of ALOHA's cameras for square images, by default of all cameras."""
    entries = {
        mount.name: {
            "parent": mount.parent,
            "T_parent_camera": mount.T_parent_camera.tolist(),
            "size": [side, side],
            "intrinsics": [
                *2 * [float(side / 2 / np.tan(np.radians(mount.fovy_deg) / 2))],
                *2 * [side / 2],
            ],
        }
        for mount in ALOHA.cameras
        if not names or mount.name in names
    }
    path.write_text(yaml.safe_dump({"version": 1, "embodiment": "aloha", "cameras": entries}))
    return path


@pytest.fixture
def bare(episode: StoredEpisode, tmp_path: Path) -> EpisodeStore:
    """Two copies of a simulated episode without geometry."""
    store = EpisodeStore.create(tmp_path / "bare")
    old = episode.attributes
    cameras = (replace(camera, has_geometry=False) for camera in old.contract.cameras)
    contract = old.contract.with_cameras(*cameras)
    arrays = {k: episode.arrays[k] for k in episode.arrays if k.partition("/")[0] not in GEOMETRY}
    for seed in range(2):
        store.write(arrays, replace(old, contract=contract, seed=seed))
    return store


@pytest.mark.slow
def test_the_geometry_of_the_simulation_is_restored(
    bare: EpisodeStore,
    episode: StoredEpisode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = write_cameras(tmp_path / "cameras.yaml")
    words = ["stringline-data", "calibrate", f"store={bare.path}", f"cameras={file}"]
    monkeypatch.setattr(sys, "argv", words)
    main()
    out, messages = capsys.readouterr()
    assert out.startswith(f"2 episodes of {bare.path} have the calibrations of overhead, ")
    assert "The intrinsics of overhead, which belong to images of 400x400, are scaled" in messages
    assert messages.endswith(f"Next: stringline-view store={bare.path} check=True\n")
    assert verify_store(bare) == {}
    first, second = bare.episodes()
    assert first.attributes.contract == episode.attributes.contract
    for key in episode.arrays:
        exact = key.partition("/")[0] not in GEOMETRY
        found = np.asarray(first.arrays[key])
        # The simulation measures poses of cameras, the calibration computes them.
        np.testing.assert_allclose(found, episode.arrays[key], atol=0 if exact else 2e-5, rtol=0)
    assert first.attributes.extra["edits"][0]["calibrate"] == {
        "cameras": ["overhead", "table", "wrist_left", "wrist_right"]
    }
    image = "rgb.overhead/c/0/0/0/0"
    old = next(trash_of(bare.path).glob(f"*.0000000000.*/{image}"))
    assert (first.path / image).samefile(old)  # Images are shared, not copied.
    (correction,) = check_cameras(second, steps=[0], cameras=["overhead", "wrist_left"]).corrections
    assert np.linalg.norm(correction.T_camera_corrected[:3, 3]) < 0.003


def test_one_camera_can_be_corrected(bare: EpisodeStore, tmp_path: Path) -> None:
    calibrate(bare, bare.names(), CameraCalibration.read(write_cameras(tmp_path / "all.yaml")))
    file = write_cameras(tmp_path / "one.yaml", "overhead")
    plain = yaml.safe_load(file.read_text())
    plain["cameras"]["overhead"]["T_parent_camera"][0][3] += 0.02
    file.write_text(yaml.safe_dump(plain))
    first, second = bare.names()
    before = {key: np.array(array) for key, array in bare.episode(first).arrays.items()}
    (corrected,) = calibrate(bare, [first], CameraCalibration.read(file))
    for key, array in bare.episode(corrected).arrays.items():
        expected = before[key]
        if key == "T_base_camera/overhead":
            expected[0, 3] += np.float32(0.02)
        np.testing.assert_allclose(array, expected, atol=1e-7, rtol=0)
    assert second in bare.names()


def test_intrinsics_alone_are_corrected_and_poses_stay(bare: EpisodeStore, tmp_path: Path) -> None:
    file = write_cameras(tmp_path / "all.yaml")
    names = calibrate(bare, bare.names(), CameraCalibration.read(file))
    before = {key: np.array(array) for key, array in bare.episode(names[0]).arrays.items()}
    plain = yaml.safe_load(file.read_text())
    for camera in plain["cameras"].values():
        del camera["T_parent_camera"]
        camera["parent"] = "recorded"
        camera["intrinsics"][0] *= 1.5
    file.write_text(yaml.safe_dump(plain))
    for corrected in calibrate(bare, names, CameraCalibration.read(file))[:1]:
        for key, array in bare.episode(corrected).arrays.items():
            expected = before[key]
            if key.startswith("intrinsics/"):
                expected[0, 0] *= 1.5
            np.testing.assert_allclose(array, expected, rtol=1e-6, atol=0)


def test_a_calibration_that_does_not_fit_every_episode_changes_none(
    bare: EpisodeStore, tmp_path: Path
) -> None:
    before = bare.names()
    calibration = CameraCalibration.read(write_cameras(tmp_path / "cameras.yaml", "overhead"))
    with pytest.raises(ValueError, match="lacks table, wrist_left, wrist_right; it has overhead."):
        calibrate(bare, before, calibration)
    assert bare.names() == before
    assert not trash_of(bare.path).exists()


def test_one_of_two_calibrations_at_once_is_refused(bare: EpisodeStore, tmp_path: Path) -> None:
    calibration = CameraCalibration.read(write_cameras(tmp_path / "cameras.yaml"))
    with waiting() as edits, exclusive(bare.path):
        for _ in range(2):
            edits.start(lambda: calibrate(bare, bare.names(), calibration))
    with pytest.raises(ValueError, match="Another command has replaced or removed .*, .* of "):
        edits.results()
    assert edits.succeeded == 1
    assert len(bare) == 2


def test_a_calibration_of_smaller_images_is_refused_without_a_record(
    bare: EpisodeStore, tmp_path: Path
) -> None:
    """Without a record, an import may have surrounded smaller images by black pixels."""
    before = bare.names()
    file = write_cameras(tmp_path / "cameras.yaml", side=100)
    with pytest.raises(
        ValueError,
        match=r"camera 'overhead' is for images of 100x100.*smaller than the stored ones of 200x200"
        r".*may be padded.*Allowed: the size and the intrinsics of the stored images, or of larger",
    ):
        calibrate(bare, before, CameraCalibration.read(file))
    assert bare.names() == before
    assert not trash_of(bare.path).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([], r"fitted_images is \[\]; allowed: an entry per camera"),
        ({"overhead": {"from": [100, 100], "to": [200, 200]}}, "'overhead' is {'from'"),
        ({"overhead": {"from": [100, 0], "to": [200, 200], "fit": "pad"}}, "is {'from': .100, 0"),
        ({"overhead": {"from": [100, 9], "to": [2, 0.5], "fit": "pad"}}, "'to': .2, 0.5"),
        ({"overhead": {"from": [100, 100], "to": [200, 200], "fit": "zoom"}}, "'fit': 'zoom'"),
    ],
)
def test_a_damaged_record_of_the_fit_is_refused(
    bare: EpisodeStore, tmp_path: Path, record: object, message: str
) -> None:
    old = bare.episodes()[0]
    arrays = dict(old.arrays)
    name = bare.write(arrays, replace(old.attributes, extra={"fitted_images": record}))
    before = bare.names()
    calibration = CameraCalibration.read(write_cameras(tmp_path / "cameras.yaml"))
    with pytest.raises(ValueError, match=f"Episode {name}: .*{message}"):
        calibrate(bare, [name], calibration)
    assert bare.names() == before


def test_a_recorded_fit_accepts_smaller_images(bare: EpisodeStore, tmp_path: Path) -> None:
    """Images of 100x100 were padded to 200x200: the focal length stays."""
    old = bare.episodes()[0]
    record = {"overhead": {"from": [100, 100], "to": [200, 200], "fit": "pad"}}
    name = bare.write(dict(old.arrays), replace(old.attributes, extra={"fitted_images": record}))
    others = ("table", "wrist_left", "wrist_right")
    file = write_cameras(tmp_path / "cameras.yaml", "overhead", side=100)
    calibration = CameraCalibration.read(file, others)
    (new,) = calibrate(bare, [name], calibration)
    focal = calibration.cameras["overhead"].intrinsics[0, 0]
    np.testing.assert_allclose(
        bare.episode(new).arrays["intrinsics/overhead"],
        [[focal, 0, 100], [0, focal, 100], [0, 0, 1]],
        rtol=1e-6,
    )
    contract = bare.episode(new).attributes.contract
    assert contract == old.attributes.contract.with_cameras(
        *(
            replace(camera, has_geometry=camera.name == "overhead")
            for camera in old.attributes.contract.cameras
        )
    )
    assert bare.episode(new).attributes.extra["fitted_images"] == record
