"""Drivers of real cameras, on what they record: RealSense through a pipeline on a recording of software cameras, and videos."""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from stringline.real_robot.cameras.bounded_calls import BoundedCalls
from stringline.real_robot.cameras.camera import Camera, CameraError, Frame
from stringline.real_robot.cameras.camera_handle import CameraHandle
from stringline.real_robot.cameras.camera_process import demand_as_configured, open_camera
from stringline.real_robot.cameras.camera_settings import CameraDriver, CameraSettings
from stringline.real_robot.cameras.cameras import Cameras, Patience
from stringline.real_robot.cameras.librealsense import librealsense
from stringline.real_robot.cameras.video_camera import VideoCamera, serial_of
from stringline.real_robot.ipc.camera_liveness import Count, Liveliness

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
    """Records a software camera whose colour eye is 3 cm to the right of the eye of its depth."""
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
    """Yields images with their ages until there are no more."""
    try:
        while True:
            frame = camera.frame()
            yield frame, time.monotonic() - frame.captured
    except CameraError:
        return


def test_a_realsense_brings_colour_with_the_depth_that_its_colour_eye_would_see(
    recording: Path,
) -> None:
    settings = realsense(recording)
    camera = open_camera(settings)
    identity = camera.start()
    demand_as_configured(identity, settings)
    assert (identity.serial, identity.words) == ("012345", "Card camera")
    seen = list(frames_of(camera))
    camera.close()
    numbers = [frame.number for frame, _ in seen]
    assert len(numbers) > IMAGES / 2
    assert numbers == sorted(numbers)
    for frame, age in seen:
        assert (frame.colour == frame.number).all()
        assert 0.0 <= age < 1.0
    # Stamps go at the pace of the camera, whatever that of the arrivals is.
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


def test_a_realsense_that_is_not_there_says_which_are(tmp_path: Path, recording: Path) -> None:
    with pytest.raises(CameraError, match=r"there is no recording .*none.db3"):
        open_camera(realsense(tmp_path / "none.db3")).start()
    expected = (
        r"none that brings colour and depth of 64x48 at 30 Hz with the serial number 999. .* "
        r"plugged in: none"
    )
    with pytest.raises(CameraError, match=expected):
        open_camera(realsense(Path(), source="", serial="999")).start()
    with pytest.raises(
        CameraError,
        match=r"none that brings colour and depth of 32x48 at 30 Hz. The recording is .*cards.db3",
    ):
        open_camera(realsense(recording, width=32)).start()
    camera = open_camera(realsense(recording, serial="999"))
    with pytest.raises(CameraError, match="its serial number is 012345; expected is 999"):
        demand_as_configured(camera.start(), realsense(recording, serial="999"))
    camera.close()


def test_a_realsense_that_is_started_anew_is_the_same_one(recording: Path, tmp_path: Path) -> None:
    """Nobody has said which one it is; it has."""
    record_realsense(tmp_path / "other.db3", "543210")
    link, context = tmp_path / "camera.db3", get_context("spawn")
    link.symlink_to(recording)
    handle = CameraHandle(realsense(link), Liveliness.of(["overhead"], context), 0, context)
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


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten images without loss, each of the colour of its number, 50 a second."""
    path = tmp_path_factory.mktemp("video") / "numbers.mkv"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("ffv1", rate=50)
        stream.width, stream.height, stream.pix_fmt, stream.time_base = (
            16,
            12,
            "bgr0",
            Fraction(1, 50),
        )
        for number in range(1, 11):
            card = av.VideoFrame.from_ndarray(
                np.full((12, 16, 3), 20 * number, np.uint8), format="rgb24"
            )
            image = card.reformat(format="bgr0")
            image.pts = number
            file.mux(stream.encode(image))
        file.mux(stream.encode())
    return path


def test_a_recorded_video_stands_in_for_a_camera_at_its_own_rate(video: Path) -> None:
    settings = CameraSettings(
        "table", CameraDriver.FILE, source=str(video), height=12, width=16, hz=50
    )
    camera = open_camera(settings)
    demand_as_configured(camera.start(), settings)
    start = time.monotonic()
    seen = [camera.frame() for _ in range(10)]
    took = time.monotonic() - start
    with pytest.raises(CameraError, match="numbers.mkv is at its end"):
        camera.frame()
    camera.close()
    assert [int(frame.colour[0, 0, 0]) for frame in seen] == [
        20 * number for number in range(1, 11)
    ]
    assert [frame.number for frame in seen] == list(range(1, 11))
    assert took >= 9 / 50 - 0.01
    assert np.allclose(np.diff([frame.captured for frame in seen]), 1 / 50, atol=0.01)


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The same ten images as a stream that FFmpeg opens without looking far ahead."""
    path = tmp_path_factory.mktemp("stream") / "numbers.y4m"
    with av.open(str(path), "w") as file:
        raw = file.add_stream("rawvideo", rate=50)
        raw.width, raw.height, raw.pix_fmt = 16, 12, "yuv420p"
        for number in range(1, 11):
            card = av.VideoFrame.from_ndarray(
                np.full((12, 16, 3), 20 * number, np.uint8), format="rgb24"
            )
            file.mux(raw.encode(card.reformat(format="yuv420p")))
        file.mux(raw.encode())
    return path.read_bytes()


@contextmanager
def pipe_to(path: Path) -> Iterator[int]:
    """Makes a named pipe and returns its writing end: whatever nobody writes there, it does not end."""
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR)
    try:
        yield pipe
    finally:
        os.close(pipe)


def holds(what: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    """Waits until something holds, and says whether it did in time."""
    deadline = time.monotonic() + timeout_s
    while not what() and time.monotonic() < deadline:
        time.sleep(0.005)
    return what()


def reader_ended(source: str) -> bool:
    """Says whether the thread is gone that FFmpeg reads a source in."""
    return not any(source in thread.name for thread in threading.enumerate())


def test_a_source_that_stalls_is_noticed_in_time(stream: bytes, tmp_path: Path) -> None:
    settings = CameraSettings(
        "table", CameraDriver.FILE, source=str(tmp_path / "pipe.y4m"), height=12, width=16, hz=50
    )
    with pipe_to(Path(settings.source)) as pipe:
        os.write(pipe, stream)
        camera = VideoCamera(settings, next_s=0.4)
        demand_as_configured(camera.start(), settings)
        came = [time.monotonic() for _ in frames_of(camera)]
        assert len(came) == 10
        assert 0.4 <= time.monotonic() - came[-1] < 0.9
        with pytest.raises(CameraError, match=r"pipe\.y4m has shown nothing for 0\.4 s\."):
            camera.frame()
        camera.close()
        assert time.monotonic() - came[-1] < 1.0  # Nobody waits for it twice.
    assert holds(lambda: reader_ended(settings.source))  # FFmpeg came back when the pipe ended.


def test_a_source_that_never_begins_is_noticed_in_time(tmp_path: Path) -> None:
    settings = CameraSettings("table", CameraDriver.FILE, source=str(tmp_path / "silent.y4m"))
    with pipe_to(Path(settings.source)):
        camera = VideoCamera(settings, first_s=0.2)
        with pytest.raises(CameraError, match=r"silent\.y4m has shown nothing for 0\.2 s\."):
            camera.start()
        camera.close()
    assert holds(lambda: reader_ended(settings.source))


def test_a_camera_that_stalls_is_started_anew(
    stream: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Since it notices itself: whoever looks after it would be patient for much longer."""
    settings = CameraSettings(
        "table", CameraDriver.FILE, source=str(tmp_path / "pipe.y4m"), height=12, width=16, hz=50
    )
    with (
        caplog.at_level(logging.WARNING),
        pipe_to(Path(settings.source)) as pipe,
        Cameras([settings], Patience(silent_s=60.0, pause_s=0.01)) as cameras,
    ):
        (handle,) = cameras.handles
        os.write(pipe, stream)
        handle.wait(20.0)
        cameras.look_after()
        assert holds(lambda: "is started anew" in caplog.text)
        assert handle.count(Count.IMAGES) == 10
        os.write(pipe, stream)
        assert holds(lambda: handle.count(Count.IMAGES) == 20)
        assert np.allclose(cameras.frames()["rgb/table"], 200, atol=4)
    assert "Camera table is started anew, try 1 of 5: " in caplog.text
    assert "pipe.y4m has shown nothing for 2 s." in caplog.text


def test_calls_with_a_deadline() -> None:
    """Answers and errors come through in the order of the calls; after one that was late there is none."""
    calls, back = BoundedCalls("calls"), threading.Event()
    assert [calls(partial(str, number), 5.0) for number in range(3)] == ["0", "1", "2"]
    with pytest.raises(ValueError, match="no"):
        calls(lambda: int("no"), 5.0)
    assert calls(lambda: "yes", 5.0) == "yes"
    with pytest.raises(TimeoutError):
        calls(back.wait, 0.02)
    assert calls.late
    made: list[int] = []
    with pytest.raises(TimeoutError):
        calls(lambda: made.append(1), 5.0)
    back.set()
    assert holds(lambda: reader_ended("calls"))
    assert made == []


@pytest.mark.parametrize("driver", ["v4l2", "file"])
def test_a_video_port_that_is_not_there_is_refused(driver: str, tmp_path: Path) -> None:
    settings = CameraSettings.of("table", {"driver": driver, "source": str(tmp_path / "video9")})
    with pytest.raises(CameraError, match="video9 cannot be opened as a camera: .*No such file"):
        open_camera(settings).start()


def test_the_serial_number_of_a_usb_camera_is_read_from_the_system(tmp_path: Path) -> None:
    usb = tmp_path / "devices" / "usb1" / "1-2"
    (usb / "1-2:1.0").mkdir(parents=True)
    (usb / "serial").write_text("SN0042\n")
    port = tmp_path / "class" / "video3"
    port.mkdir(parents=True)
    (port / "device").symlink_to(usb / "1-2:1.0")
    (tmp_path / "video3").touch()
    (tmp_path / "by-id").symlink_to(tmp_path / "video3")
    assert serial_of(tmp_path / "by-id", tmp_path / "class") == "SN0042"
    assert serial_of(tmp_path / "video4", tmp_path / "class") == ""
