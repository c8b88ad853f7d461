"""Imports of MCAP: ROS 2 and Foxglove, resampling by time stamps, and errors."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from tests.datasets.conftest import DataCommand
from tests.datasets.formats import mcap_recordings as recordings
from tests.datasets.formats.conftest import Import
from tests.datasets.formats.mcap_recordings import Entry

from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.importing import Outcome
from stringline.datasets.formats.mcap import McapReader
from stringline.datasets.formats.recording import Message, Resampling, plain
from stringline.datasets.formats.vector_layout import NamedLayout
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore

Change = Callable[[list[Entry]], list[Entry]]
TASK = "arm.mcap"
TOPICS: dict[str, Any] = {
    "control_hz": 20,
    "state": {"/joint_states": None},
    "action": {"/command": ["data.0", "data.1", "data.2"]},
    "cameras": {"/front/image_raw": "front"},
}


def reader(**options: Any) -> McapReader:
    ends = {"closed": 0, "opened": 100}
    grippers = {"gripper": ends}
    if "/command" in options.get("action", TOPICS["action"]):
        grippers["data.2"] = ends
    return McapReader(NamedLayout(grippers, angle_unit="rad"), **{**TOPICS, **options})


@dataclass
class Take:
    """A recording, and its import."""

    path: Path
    run: Import

    def imported(self, **options: Any) -> tuple[EpisodeStore, Outcome]:
        return self.run(reader(**options), self.path)

    def only(self, **options: Any) -> StoredEpisode:
        store, outcome = self.imported(**options)
        assert outcome.refused == {}
        return store.episodes()[0]

    def refusal(self, **options: Any) -> str:
        return self.imported(**options)[1].refused[f"episode 0 ({TASK})"]


@pytest.fixture
def take(tmp_path: Path, imported: Import) -> Take:
    return Take(recordings.write_ros2(tmp_path / TASK, recordings.ros2_entries()), imported)


def in_store(seconds: Any) -> Any:
    """Returns the joints (T, 3) of the contract at times (T,)."""
    found = np.array([recordings.joints(time) for time in seconds])
    return found * (1, 1, 0.01)


def test_a_recording_of_ros2_is_resampled(take: Take) -> None:
    episode = take.only(depth={"/front/image_raw": "/front/depth"}, instruction="/task")
    arrays, contract = episode.arrays, episode.attributes.contract
    # Commands have no time stamp, so they count from their recording, 1 ms later.
    start = 0.001
    steps = start + np.arange(20) / 20
    np.testing.assert_allclose(arrays["time"], steps - start, atol=1e-9)
    np.testing.assert_allclose(
        arrays["joints/position"], in_store(np.floor(steps * 50 + 1e-6) / 50), atol=1e-6
    )
    commands = np.floor((steps - start) * 25 + 1e-6) / 25 + 0.04
    np.testing.assert_allclose(arrays["action"], in_store(commands), atol=1e-6)
    # Each image is stored once, with its own time.
    np.testing.assert_array_equal(arrays["frame/front"], np.arange(20) // 2)
    np.testing.assert_allclose(arrays["time/front"], np.arange(10) / 10 - start, atol=1e-9)
    for frame in range(10):
        np.testing.assert_array_equal(arrays["rgb/front"][frame], recordings.colours(frame))
        np.testing.assert_array_equal(arrays["depth/front"][frame], recordings.depth_mm(frame))
    assert episode.attributes.instruction == "reach the cup"
    assert episode.attributes.extra["start_ns"] == recordings.START_NS + 10**6
    assert (contract.control_hz, contract.camera("front").depth) == (20, "measured")
    assert [dimension.kind for dimension in contract.action] == ["joint", "joint", "gripper"]


def test_calibration_and_transforms_become_geometry(take: Take) -> None:
    episode = take.only(base_frame="base", grippers={"arm": "hand"})
    camera = episode.attributes.contract.camera("front")
    assert (camera.has_geometry, camera.distortion_model) == (True, "none")
    # The centre of the first pixel is (0, 0) in ROS and (0.5, 0.5) in the contract.
    np.testing.assert_array_equal(
        episode.arrays["intrinsics/front"], [[30, 0, 12], [0, 31, 8], [0, 0, 1]]
    )
    down = np.diag([1, -1, -1, 1.0])
    down[:3, 3] = recordings.T_CAMERA[0]
    np.testing.assert_allclose(episode.arrays["T_base_camera/front"], down, atol=1e-6)
    pose = episode.arrays["T_base_gripper/arm"]
    np.testing.assert_allclose(pose[:, 0, 3], 0.5)
    np.testing.assert_allclose(pose[:, 1, 3], 0.01 * (np.arange(20) // 2), atol=1e-6)


def test_a_moving_camera_has_a_pose_per_image(take: Take) -> None:
    def mounted(entry: Entry) -> Entry:
        fixed = recordings.transform(0, "hand", "camera_optical", (0, 0, 0.1), (0, 0, 0, 1))
        return (*entry[:3], {"transforms": [fixed]}) if entry[0] == "/tf_static" else entry

    entries = [mounted(entry) for entry in recordings.ros2_entries()]
    recordings.write_ros2(take.path, entries)
    pose = take.only(base_frame="base").arrays["T_base_camera/front"]
    assert pose.shape == (10, 4, 4)
    np.testing.assert_allclose(pose[:, 1, 3], 0.01 * np.arange(10), atol=1e-6)
    np.testing.assert_allclose(pose[:, 2, 3], 0.3, atol=1e-6)


def test_rectified_and_distorted_images_have_their_own_lens(take: Take) -> None:
    bent = {"d": [0.1, -0.2, 0.0, 0.0, 0.01], "distortion_model": "plumb_bob"}

    def renamed(entry: Entry) -> list[Entry]:
        topic, kind, seconds, fields = entry
        if topic == "/front/camera_info":
            return [(topic, kind, seconds, {**fields, **bent})]
        other = [("/front/image_rect_color", *entry[1:])] if topic == "/front/image_raw" else []
        return [entry, *other]

    entries = [new for entry in recordings.ros2_entries() for new in renamed(entry)]
    recordings.write_ros2(take.path, entries)
    episode = take.only(cameras={"/front/image_raw": "raw", "/front/image_rect_color": "flat"})
    raw, flat = episode.attributes.contract.cameras
    assert (raw.distortion_model, raw.distortion) == ("plumb_bob", tuple(bent["d"]))
    assert (flat.distortion_model, flat.distortion) == ("none", ())
    assert episode.arrays["intrinsics/raw"][0, 0] == 30
    assert episode.arrays["intrinsics/flat"][0, 0] == 20


def test_foxglove_json_is_imported(take: Take) -> None:
    lens = {"/front/compressed": "/front/calibration"}
    recordings.write_json(take.path)
    episode = take.only(**JOINTS_OF_FOXGLOVE, calibration=lens, base_frame="base")
    times = np.arange(11) / 10
    np.testing.assert_allclose(episode.arrays["joints/position"], in_store(times), atol=1e-6)
    assert episode.attributes.contract.camera("front").has_geometry
    assert episode.arrays["intrinsics/front"][0, 2] == 12
    for frame in range(11):
        shown = episode.arrays["rgb/front"][frame].astype(int)
        assert np.abs(shown - recordings.colours(frame)).mean() < 4


def test_foxglove_protobuf_is_imported(take: Take) -> None:
    topics = {
        "control_hz": 10,
        "state": {"/arm": None},
        "action": {"/arm": ["gripper", "waist"]},
        "cameras": {"/front": "front"},
    }
    recordings.write_protobuf(take.path)
    episode = take.only(**topics)
    expected = in_store(np.arange(11) / 10)
    np.testing.assert_allclose(episode.arrays["joints/position"], expected, atol=1e-6)
    np.testing.assert_allclose(episode.arrays["action"], expected[:, [2, 0]], atol=1e-6)
    for frame in range(11):
        np.testing.assert_array_equal(episode.arrays["rgb/front"][frame], recordings.colours(frame))


def test_each_file_of_a_folder_is_an_episode(tmp_path: Path, imported: Import) -> None:
    for number, seconds in enumerate((0.5, 1.0)):
        (tmp_path / "bags" / str(number)).mkdir(parents=True)
        path = tmp_path / "bags" / str(number) / f"take_{number}.mcap"
        recordings.write_ros2(path, recordings.ros2_entries(seconds))
    cut = tmp_path / "bags" / "take_2.mcap"
    cut.write_bytes((tmp_path / "bags" / "1" / "take_1.mcap").read_bytes()[:9000])
    store, outcome = imported(reader(), tmp_path / "bags")
    assert [episode.steps for episode in store.episodes()] == [10, 20]
    (name,) = outcome.refused
    assert name == "episode 2 (take_2.mcap)"
    assert "take_2.mcap cannot be read as MCAP; it is truncated, damaged" in outcome.refused[name]


def test_topics_and_numbers_that_no_option_chooses_are_named(take: Take) -> None:
    state, action = {"/joint_states": ["waist", "gripper"]}, {"/command": ["data.0", "data.2"]}
    outcome = take.imported(state=state, action=action)[1]
    reasons = {
        "/command data.1": "no option chooses it",
        "/front/depth": "images that no camera uses",
        "/joint_states elbow": "no option chooses it",
        "/task": "no option chooses it",
        "/tf": "no option chooses it",
        "/tf_static": "no option chooses it",
    }
    assert outcome.skipped_fields == {part: 1 for part in reasons.items()}
    depth = {"/front/image_raw": "/front/depth"}
    take.path = take.path.rename(take.path.with_name("other.mcap"))
    every = take.imported(depth=depth, base_frame="base", instruction="/task")[1]
    assert (len(every.imported), every.skipped_fields) == (1, {})


JOINTS_OF_FOXGLOVE = {
    "control_hz": 10,
    "state": {"/joints": None},
    "action": {"/joints": None},
    "cameras": {"/front/compressed": "front"},
}


def test_values_beside_the_positions_of_foxglove_are_named(take: Take) -> None:
    recordings.write_json(take.path, velocity=0.0, acceleration=1.5, effort=None)
    skipped_fields = take.imported(**JOINTS_OF_FOXGLOVE)[1].skipped_fields
    named = {part for part, _ in skipped_fields if part.startswith("/joints")}
    assert named == {"/joints velocity", "/joints acceleration"}


def test_a_joint_without_a_position_is_an_error(take: Take) -> None:
    recordings.write_json(take.path, position=None)
    why = take.refusal(**JOINTS_OF_FOXGLOVE)
    assert "/joints at message 0 has no position of 'gripper'." in why


def test_optional_fields_of_protobuf_that_are_not_set_are_missing() -> None:
    message = descriptor_pb2.UninterpretedOption(positive_int_value=0, string_value=b"a")
    assert plain(message) == {"name": [], "positive_int_value": 0, "string_value": b"a"}


def test_velocities_and_efforts_of_joints_are_named(take: Take) -> None:
    entries = recordings.ros2_entries()
    states = [fields for topic, *_, fields in entries if topic == "/joint_states"]
    for fields in states[1:]:
        fields["velocity"] = [0.1, 0.2, 0.3]
    states[-1]["effort"] = [1.0, 1.0, 1.0]
    recordings.write_ros2(take.path, entries)
    _, outcome = take.imported()
    reason = "of joints, only positions are imported"
    named = {part for part, why in outcome.skipped_fields if why == reason}
    assert named == {"/joint_states velocity", "/joint_states effort"}


def test_an_episode_has_a_largest_number_of_steps() -> None:
    far = [Message("/a", 10**9, {}), Message("/a", 10**15, {})]
    resampling = Resampling(50.0, False, 10**9)
    with pytest.raises(ForeignDataError, match="have 49999951 steps in common; allowed: 1048576"):
        resampling.steps([resampling.track("/a", far)])


def test_held_topics_keep_their_value(take: Take) -> None:
    entries = [
        entry for entry in recordings.ros2_entries() if entry[0] != "/command" or entry[2] < 0.1
    ]
    recordings.write_ros2(take.path, entries)
    action = take.only(held=["/command"]).arrays["action"]
    np.testing.assert_allclose(action[-1], in_store([0.12])[0], atol=1e-6)


@pytest.mark.slow
def test_the_command_line_chooses_topics(
    take: Take, tmp_path: Path, data_command: DataCommand
) -> None:
    arguments = [
        "format=mcap",
        f"path={take.path}",
        f"store={tmp_path / 'store'}",
        "layout=named",
        "layout.angle_unit=rad",
        "layout.grippers={gripper: {closed: 0, opened: 100}, data.2: {closed: 0, opened: 100}}",
        "format.control_hz=20",
        "format.state={/joint_states: null}",
        "format.action={/command: [data.0, data.1, data.2]}",
        "format.cameras={/front/image_raw: front}",
    ]
    assert data_command("import", *arguments)[0] == 0
    (episode,) = EpisodeStore.open(tmp_path / "store").episodes()
    assert episode.attributes.contract.joints == ("waist", "elbow", "gripper")


@pytest.mark.parametrize("module", ["mcap", "mcap_ros2", "mcap_protobuf"])
def test_a_missing_library_is_named(
    take: Take, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    for name in (f"{module}.reader", f"{module}.decoder"):
        monkeypatch.setitem(sys.modules, name, None)
    package = {"mcap": "mcap", "mcap_ros2": "mcap-ros2-support"}.get(
        module, "mcap-protobuf-support"
    )
    why = rf'This needs {package}, which is not installed. Run: pip install "stringline\[mcap\]"'
    with pytest.raises(ValueError, match=why):
        next(reader().episodes(take.path)).read()


def without(topic: str, start: float, end: float) -> Change:
    return lambda entries: [
        entry for entry in entries if entry[0] != topic or not start < entry[2] < end
    ]


def altered(topic: str, place: int | None, **fields: Any) -> Change:
    """Returns a change of the fields of one message of a topic, or of all."""

    def change(entries: list[Entry]) -> list[Entry]:
        numbers = [n for n, entry in enumerate(entries) if entry[0] == topic]
        chosen = numbers if place is None else [numbers[place]]
        return [
            (*entry[:3], {**entry[3], **fields}) if n in chosen else entry
            for n, entry in enumerate(entries)
        ]

    return change


STATES, IMAGES, LENS = "/joint_states", "/front/image_raw", "/front/camera_info"
NOT_FINITE = altered(STATES, 7, position=[0.0, float("nan"), 50.0])
NO_TRANSFORM = altered("/tf_static", 0, transforms=[])
BAYER = altered(IMAGES, 2, encoding="bayer_rggb16")
DEPTH = {"depth": {IMAGES: "/front/depth"}}


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({"action": {"/comand": None}}, None, "is no topic '/comand'. Did you mean '/command'"),
        ({"cameras": {STATES: "front"}}, None, "Topics with images: /front/depth, /front/im"),
        ({"state": {STATES: ["waits"]}}, None, "no number 'waits'. Did you mean 'waist'"),
        ({}, without(STATES, 0.2, 0.85), "/joint_states has a gap"),
        ({}, without(IMAGES, 0.1, 0.9), "/front/image_raw has a gap: its last message"),
        ({}, altered(STATES, 20, header=recordings.header(0.1)), "back by 0.28 s at message 20"),
        ({}, altered(STATES, 3, header=recordings.header(-1.7e9)), "stamp; set format.clock=log"),
        ({}, NOT_FINITE, "/joint_states at frame 7, 'elbow', is nan; every value must be finite."),
        ({}, altered(STATES, 7, name=["waist", "elbow"]), "message 7 has 2 names and 3 positions."),
        ({}, altered(IMAGES, 2, step=60), "/front/image_raw at frame 2 has 1184 bytes in rows"),
        ({}, BAYER, "image encoding 'bayer_rggb16'. Did you mean 'bayer_rggb8' or"),
        ({}, altered(IMAGES, 3, header=recordings.header(0.198)), "set format.clock=log for the"),
        ({}, altered(LENS, None, width=48), "/front/camera_info calibrates images of 16x48; those"),
        ({}, altered(LENS, 0, k=[0.0] * 9), "has focal lengths 0 and 0: not set?"),
        ({}, altered(LENS, 4, d=[0.1] * 5), "changes at message 4"),
        ({}, altered(LENS, 0, binning_x=2), "calibrates a larger image"),
        ({"base_frame": "bass"}, None, "There is no frame 'bass'. Did you mean 'base'"),
        ({"base_frame": "base"}, NO_TRANSFORM, "no frame 'camera_optical'. Allowed: base, hand."),
        (DEPTH, without("/front/depth", 0.2, 0.4), "no"),
    ],
)
def test_invalid_recordings_are_left_out(
    take: Take, options: dict[str, Any], change: Change | None, message: str
) -> None:
    if change:
        recordings.write_ros2(take.path, change(recordings.ros2_entries()))
    assert message in take.refusal(**options)


def test_different_clocks_are_an_error(take: Take) -> None:
    def late(entry: Entry) -> Entry:
        seconds = entry[2] + 30
        if entry[0] != "/joint_states":
            return entry
        return (*entry[:3], {**entry[3], "header": recordings.header(seconds)})

    entries = [late(entry) for entry in recordings.ros2_entries()]
    recordings.write_ros2(take.path, entries)
    why = take.refusal()
    assert "The clocks of /joint_states and " in why
    assert "differ by 30 s; set format.clock=log" in why
    assert take.imported(clock="log")[1].refused == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"control_hz": None}, "set the rate of the steps, format.control_hz=NUMBER"),
        ({"clock": "sim"}, "There is no clock 'sim'. Did you mean 'stamp'?"),
        ({"grippers": {"arm": "hand"}}, "format.grippers needs the frame of the base"),
        ({"depth": {"/frnt": "/front/depth"}}, "There is no topic in format.cameras '/frnt'"),
    ],
)
def test_missing_and_invalid_options_are_reported(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reader(**options)


def test_topics_are_offered_where_none_is_chosen(take: Take) -> None:
    offered = (
        "arm.mcap has images in /front/depth, /front/image_raw; other topics: /command "
        r"\(std_msgs/msg/Float64MultiArray\), /front/camera_info"
    )
    with pytest.raises(ValueError, match=offered):
        take.imported(cameras=None)
