"""Images between a camera and the policy: stamps, sizes, rings and settings."""

from pathlib import Path

import numpy as np
import pytest

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.cameras.camera import CameraError, DeviceClock, Frame, Identity
from stringline.real_robot.cameras.camera_process import (
    Fitting,
    FrameRing,
    check_identity,
    frame_layout,
    ring_memory,
)
from stringline.real_robot.cameras.camera_settings import (
    CameraDriver,
    CameraSettings,
    RobotCameras,
    read_cameras,
)
from stringline.real_robot.ipc.heartbeat import CameraLiveness, Count
from stringline.real_robot.ipc.mailbox import Mailbox

RGBD = CameraSettings("overhead", CameraDriver.REALSENSE, height=4, width=6, depth=True)


def frame(number: int, settings: CameraSettings = RGBD) -> Frame:
    rows, columns = settings.size
    depth = np.full((rows, columns), 10 * number, np.uint16) if settings.depth else None
    return Frame(
        number,
        number / 10,
        np.full((rows, columns, 3), number, np.uint8),
        depth,
        np.eye(3, dtype=np.float32),
    )


def test_an_image_that_waited_keeps_its_age() -> None:
    clock = DeviceClock(latency_s=0.01)
    prompt = [clock.captured(5.0 + k / 30, 100.0 + k / 30 + 0.002 * (k % 3)) for k in range(30)]
    assert np.allclose(prompt, 100.0 - 0.01 + np.arange(30) / 30, atol=1e-9)
    # A pause of ten seconds, then a backlog that arrives at once and keeps its ages.
    backlog = [clock.captured(6.0 + k / 30, 111.0) for k in range(30)]
    assert np.allclose(backlog, 101.0 - 0.01 + np.arange(30) / 30, atol=1e-9)


def test_a_clock_set_back_restarts_the_mapping_and_one_set_forward_gives_no_future_image() -> None:
    clock = DeviceClock()
    clock.captured(5000.0, 100.0)
    assert clock.captured(1400.0, 100.1) == pytest.approx(100.1)
    assert clock.captured(9000.0, 100.2) == pytest.approx(100.2)


def test_scaling_keeps_the_direction_of_a_pixel() -> None:
    settings = CameraSettings(
        "overhead", CameraDriver.REALSENSE, height=48, width=64, depth=True, shown=(24, 24)
    )
    colour, depth = np.zeros((48, 64, 3), np.uint8), np.zeros((48, 64), np.uint16)
    colour[20:24, 40:44], depth[20:24, 40:44] = 255, 700
    lens = np.array([[60, 0, 33], [0, 61, 23], [0, 0, 1]], np.float32)
    shown = Fitting(settings)(Frame(1, 0.0, colour, depth, lens))
    assert shown.colour.shape == (24, 24, 3)
    assert shown.depth is not None
    assert shown.intrinsics is not None
    assert np.array_equal(
        np.argwhere(shown.depth), [[row, column] for row in (10, 11) for column in (16, 17)]
    )
    assert (shown.colour[10:12, 16:18] == 255).all()
    # The ray through the middle of the patch is the same in both images.
    before, after = (
        np.linalg.solve(lens, [42.0, 22.0, 1.0]),
        np.linalg.solve(shown.intrinsics, [17.0, 11.0, 1.0]),
    )
    assert np.allclose(before, after, atol=1e-6)


def test_images_are_cropped_to_a_vertical_field_of_view() -> None:
    lens = (500.0, 500.0, 320.0, 240.0)
    settings = CameraSettings(
        "overhead", CameraDriver.V4L2, source="x", intrinsics=lens, fovy_deg=30, shown=(64, 64)
    )
    shown = Fitting(settings)(Frame(1, 0.0, np.zeros((480, 640, 3), np.uint8)))
    assert shown.intrinsics is not None
    assert 2 * np.degrees(np.arctan(32 / shown.intrinsics[1, 1])) == pytest.approx(30, abs=0.1)
    assert shown.intrinsics[:2, 2].tolist() == pytest.approx([32, 32])


def test_colours_are_averaged_over_areas_and_an_image_of_the_right_size_is_unchanged() -> None:
    stripes = np.zeros((32, 32, 3), np.uint8)
    stripes[::2] = 200
    settings = CameraSettings(
        "overhead", CameraDriver.V4L2, source="x", height=32, width=32, shown=(8, 8)
    )
    assert np.abs(Fitting(settings)(Frame(1, 0.0, stripes)).colour.astype(int) - 100).max() <= 2
    same = CameraSettings("overhead", CameraDriver.V4L2, source="x", height=32, width=32)
    assert np.array_equal(Fitting(same)(Frame(1, 0.0, stripes)).colour, stripes)


def test_a_ring_gives_the_newest_complete_image_also_after_its_writer_died() -> None:
    memory = ring_memory(RGBD)
    writer, reader = FrameRing(memory, RGBD), FrameRing(memory, RGBD)
    assert reader.newest() is None
    for number in range(1, 8):
        writer.put(frame(number))
    slots = Mailbox(memory, frame_layout(RGBD))._slots
    slots["number"][8 % len(slots)] = 0  # The first step of a writer, which is killed then.
    slots["content"]["colour"][8 % len(slots)] = 99
    seen = reader.newest()
    assert seen is not None
    assert seen.depth is not None
    assert (seen.number, seen.captured) == (7, 0.7)
    assert (seen.colour == 7).all()
    assert (seen.depth == 70).all()
    FrameRing(memory, RGBD).put(frame(8))  # The next process.
    seen = reader.newest()
    assert seen is not None
    assert seen.number == 8


def test_a_ring_refuses_images_of_another_size() -> None:
    ring = FrameRing(ring_memory(RGBD), RGBD)
    with pytest.raises(
        ValueError, match=r"colour has shape \(4, 5, 3\); configured is \(4, 6, 3\)"
    ):
        ring.put(Frame(1, 0.0, np.zeros((4, 5, 3), np.uint8)))
    with pytest.raises(ValueError, match=r"depth has shape None; configured is \(4, 6\)"):
        ring.put(Frame(1, 0.0, np.zeros((4, 6, 3), np.uint8)))


def test_cameras_without_an_image_are_infinitely_old() -> None:
    life = CameraLiveness.of(("overhead", "table"))
    life.times[1] = 5.0
    life.add(1, Count.LOST, 3)
    assert life.ages_s(7.5) == (np.inf, 2.5)
    assert (life.count(0, Count.LOST), life.count(1, Count.LOST)) == (0, 3)


def test_another_camera_is_refused_with_all_differences() -> None:
    wanted = CameraSettings(
        "overhead", CameraDriver.REALSENSE, serial="111", height=480, width=640, hz=30
    )
    check_identity(Identity("111", 480, 640, 29.97), wanted)
    with pytest.raises(CameraError) as refused:
        check_identity(Identity("222", 240, 320, 15.0), wanted)
    assert str(refused.value) == (
        "its serial number is 222; expected is 111; its images are 320x240; configured is 640x480; "
        "it delivers 15 images per second; configured are 30."
    )


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"driver": "realsens"}, "There is no camera driver 'realsens'. Did you mean 'realsense'"),
        (
            {"driver": "realsense", "fps": 30},
            "There is no setting of the camera 'overhead' 'fps'.*hz",
        ),
        ({"driver": "v4l2"}, "the driver v4l2 needs a source, such as /dev/video0"),
        ({"driver": "file", "source": "a.mp4", "depth": True}, "the driver file gives no depth"),
        ({"driver": "realsense", "hz": 0}, "640x480 at 0 Hz; all three must be positive"),
        (
            {"driver": "realsense", "hz": float("inf")},
            "640x480 at inf Hz; all three must be positive",
        ),
        (
            {"driver": "realsense", "height": 480.5},
            "640x480.5 at 30.0 Hz; all three must be positive",
        ),
        (
            {"driver": "realsense", "latency_s": -0.01},
            r"latency_s is -0\.01; allowed: a number of at least 0, since stamps are late",
        ),
        (
            {"driver": "realsense", "latency_s": float("nan")},
            "latency_s is nan; allowed: a number of at least 0",
        ),
        (
            {"driver": "v4l2", "source": "x", "intrinsics": [1, 2, 3, float("nan")]},
            r"intrinsics are \[1.0, .*nan\]; allowed",
        ),
        (
            {"driver": "v4l2", "source": "x", "intrinsics": [1, 2]},
            r"intrinsics are \[1.0, 2.0\]; allowed: \[fx, fy, cx, cy\]",
        ),
        (
            {"driver": "v4l2", "source": "x", "fovy_deg": 40},
            "fovy_deg is 40; allowed: 0 to 180, with known intrinsics",
        ),
    ],
)
def test_invalid_settings_are_refused(plain: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CameraSettings.of("overhead", plain)


def test_cameras_come_from_the_configuration_or_a_file_in_the_requested_size(
    tmp_path: Path,
) -> None:
    file = tmp_path / "cameras.yaml"
    file.write_text(
        "overhead: {driver: realsense, serial: 0123, depth: true}\ntable: {driver: v4l2, source: "
        "/dev/video0}\n"
    )
    robot = RobotCameras({"overhead": {"driver": "v4l2", "source": "x"}}, file=file)
    overhead, table = robot.offered()
    assert (overhead.height, overhead.width, overhead.depth, overhead.has_geometry) == (
        480,
        640,
        "measured",
        True,
    )
    assert (table.depth, table.has_geometry) == (None, False)
    asked = ALOHA.contract([type(overhead)("overhead", 96, 128, None)], 50.0).cameras
    (chosen,) = robot.chosen(asked)
    assert (chosen.serial, chosen.size, chosen.depth) == ("83", (96, 128), False)
    emulated = RobotCameras(["table"], emulated_hz=25.0)
    (shown,) = emulated.chosen(None, "address")
    assert (shown.driver, shown.source, shown.hz, shown.size) == (
        CameraDriver.EMULATED,
        "address",
        25.0,
        (128, 128),
    )
    with pytest.raises(ValueError, match="Real cameras need settings"):
        RobotCameras(["table"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file"),
        ("a: [", "is not valid YAML"),
        ("- overhead", "must give each camera its settings"),
    ],
)
def test_an_invalid_file_of_cameras_is_refused(
    tmp_path: Path, text: str | None, message: str
) -> None:
    file = tmp_path / "cameras.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_cameras(file)
