"""Drivers of real cameras: RealSense on recordings of software cameras, and videos."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stringline.real_robot.cameras.camera import Camera, CameraError, Frame
from stringline.real_robot.cameras.camera_handle import CameraHandle
from stringline.real_robot.cameras.camera_process import check_identity, open_camera
from stringline.real_robot.cameras.camera_settings import CameraSettings
from stringline.real_robot.cameras.realsense import librealsense
from stringline.real_robot.ipc.camera_liveness import CameraLiveness

HEIGHT, WIDTH, HZ, IMAGES = 48, 64, 30, 12
UNIT_M = 0.0005
LENS = {"fx": 60.0, "fy": 61.0, "ppx": 30.5, "ppy": 23.5}
BASELINE_M = 0.03


def video_stream(rs: Any, kind: Any, number: int, form: Any, size: int) -> Any:
    """Describes one stream of a software camera."""
    lens, stream = rs.intrinsics(), rs.video_stream()
    lens.width, lens.height, lens.model, lens.coeffs = WIDTH, HEIGHT, rs.distortion.none, [0.0] * 5
    for name, value in LENS.items():
        setattr(lens, name, value)
    stream.type, stream.index, stream.uid, stream.fps, stream.bpp, stream.fmt = (
        kind,
        0,
        number,
        HZ,
        size,
        form,
    )
    stream.width, stream.height, stream.intrinsics = WIDTH, HEIGHT, lens
    return stream


def depth_card() -> np.ndarray:
    """A wall two metres away, with a square half as far."""
    card = np.full((HEIGHT, WIDTH), round(2.0 / UNIT_M), np.uint16)
    card[16:32, 24:40] = round(1.0 / UNIT_M)
    card[0] = 0
    return card


def record_realsense(path: Path, serial: str) -> None:
    """Records a software camera whose colour sensor is 3 cm to the right of its depth sensor."""
    rs = librealsense()
    device = rs.software_device()
    device.register_info(rs.camera_info.name, "Card camera")
    device.register_info(rs.camera_info.serial_number, serial)
    eyes = [device.add_sensor("Depth"), device.add_sensor("Color")]
    kinds = [(rs.stream.depth, 1, rs.format.z16, 2), (rs.stream.color, 2, rs.format.rgb8, 3)]
    profiles = [
        eye.add_video_stream(video_stream(rs, *kind)) for eye, kind in zip(eyes, kinds, strict=True)
    ]
    eyes[0].add_read_only_option(rs.option.depth_units, UNIT_M)
    apart = rs.extrinsics()
    apart.rotation, apart.translation = [1, 0, 0, 0, 1, 0, 0, 0, 1], [-BASELINE_M, 0, 0]
    profiles[0].register_extrinsics_to(profiles[1], apart)
    recorder = rs.recorder(str(path), device)
    sensors, kept = recorder.query_sensors(), []
    for sensor in sensors:
        sensor.open(sensor.get_stream_profiles()[0])
        sensor.start(lambda _: None)
    for number in range(1, IMAGES + 1):
        cards = [depth_card(), np.full((HEIGHT, WIDTH, 3), number, np.uint8)]
        for eye, profile, card, size in zip(eyes, profiles, cards, (2, 3), strict=True):
            image = rs.software_video_frame()
            image.pixels, image.stride, image.bpp = card, WIDTH * size, size
            image.timestamp, image.domain = (
                1000.0 + number * 1000 / HZ,
                rs.timestamp_domain.hardware_clock,
            )
            image.frame_number, image.profile = number, profile.as_video_stream_profile()
            eye.on_video_frame(image)
        kept.append(cards)  # The library reads them later.
        time.sleep(1 / HZ)
    for sensor in sensors:
        sensor.stop()
        sensor.close()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("realsense") / "cards.db3"
    record_realsense(path, "012345")
    return path


def realsense(recording: Path, **changes: Any) -> CameraSettings:
    plain = {
        "driver": "realsense",
        "source": str(recording),
        "height": HEIGHT,
        "width": WIDTH,
        "hz": HZ,
        "depth": True,
    }
    return CameraSettings.of("overhead", {**plain, **changes})


def frames_of(camera: Camera) -> Iterator[tuple[Frame, float]]:
    """Yields images with their ages until the end."""
    try:
        while True:
            frame = camera.frame()
            yield frame, time.monotonic() - frame.captured
    except CameraError:
        return


def test_a_realsense_delivers_colour_with_aligned_depth(
    recording: Path,
) -> None:
    settings = realsense(recording)
    camera = open_camera(settings)
    identity = camera.start()
    check_identity(identity, settings)
    assert (identity.serial, identity.description) == ("012345", "Card camera")
    seen = list(frames_of(camera))
    camera.close()
    numbers = [frame.number for frame, _ in seen]
    assert len(numbers) > IMAGES / 2
    assert numbers == sorted(numbers)
    for frame, age in seen:
        assert (frame.colour == frame.number).all()
        assert 0.0 <= age < 1.0
    # Stamps keep the pace of the camera, not that of the arrivals.
    steps = np.diff([frame.captured for frame, _ in seen]) * HZ - np.diff(numbers)
    assert np.median(np.abs(steps)) < 0.05
    depth, lens = seen[-1][0].depth, seen[-1][0].intrinsics
    assert depth is not None
    assert lens is not None
    # Millimetres at the pixels of the colour image: the square, half as far, has moved twice as far
    # to the left as the wall.
    assert np.allclose(lens, [[60, 0, 31], [0, 61, 24], [0, 0, 1]])
    columns = np.flatnonzero(depth[24] == 1000)
    assert abs(columns.mean() - (31.5 - LENS["fx"] * BASELINE_M / 1.0)) <= 1.0
    assert np.isin(depth, (0, 1000, 2000)).all()
    assert (depth[30:46, 50:60] == 2000).all()
    assert not depth[0].any()


def test_a_missing_realsense_is_reported_with_the_connected_ones(
    tmp_path: Path, recording: Path
) -> None:
    with pytest.raises(CameraError, match=r"the recording .*none.db3 does not exist"):
        open_camera(realsense(tmp_path / "none.db3")).start()
    expected = "of 64x48 at 30 Hz with the serial number 999. Connected serial numbers: none"
    with pytest.raises(CameraError, match=expected):
        open_camera(realsense(Path(), source="", serial="999")).start()
    with pytest.raises(
        CameraError,
        match=r"delivers colour and depth of 32x48 at 30 Hz. The recording is .*cards.db3",
    ):
        open_camera(realsense(recording, width=32)).start()
    camera = open_camera(realsense(recording, serial="999"))
    with pytest.raises(CameraError, match="its serial number is 012345; expected is 999"):
        check_identity(camera.start(), realsense(recording, serial="999"))
    camera.close()


def test_a_restarted_realsense_is_the_same_one(recording: Path, tmp_path: Path) -> None:
    """The serial number is not configured, and is fixed by the first start."""
    record_realsense(tmp_path / "other.db3", "543210")
    link = tmp_path / "camera.db3"
    link.symlink_to(recording)
    handle = CameraHandle(realsense(link), CameraLiveness.of(["overhead"]), 0)
    try:
        handle.start()
        assert handle.wait(20.0).serial == "012345"
        handle.end()
        link.unlink()
        link.symlink_to("other.db3")
        handle.start()
        with pytest.raises(CameraError, match="its serial number is 543210; expected is 012345"):
            handle.wait(20.0)
    finally:
        handle.end()


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyrealsense2", None)
    with pytest.raises(
        CameraError,
        match=r'pyrealsense2, which is not installed. Run: pip install "stringline\[realsense\]"',
    ):
        librealsense()
