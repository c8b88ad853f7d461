"""The message of a step in a recording.

Joints from several publishers, and numbers before the first command.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.datasets.formats import mcap_recordings as recordings
from tests.datasets.formats.conftest import Import
from tests.datasets.formats.mcap_recordings import Entry
from tests.datasets.formats.small_sets import MAKERS

from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.importing import Outcome
from stringline.datasets.formats.recording import latest
from stringline.datasets.store.store import EpisodeStore

STEPS = np.rint(np.arange(6) * 1e9 / 30).astype(np.int64)


@pytest.mark.parametrize("late_ns", [0, 1, 900, 50_000])
def test_rounding_does_not_take_the_message_before(late_ns: int) -> None:
    """Stamps in whole microseconds may lie behind the step that they belong to."""
    np.testing.assert_array_equal(latest("/image", STEPS + late_ns, STEPS, None), np.arange(6))


def test_a_step_has_no_later_message() -> None:
    half = round(1e9 / 60)
    np.testing.assert_array_equal(latest("/image", STEPS - half, STEPS, None), np.arange(6))
    with pytest.raises(ForeignDataError, match="/image has no message before 0 s"):
        latest("/image", STEPS + half, STEPS, None)


STATES = "/joint_states"


def from_two_publishers(entries: list[Entry]) -> list[Entry]:
    """Returns the joints of the arm and, 3 ms later, the gripper at half the rate."""
    found = []
    for place, (topic, kind, seconds, fields) in enumerate(entries):
        if topic != STATES:
            found.append((topic, kind, seconds, fields))
            continue
        arm = {"name": fields["name"][:2], "position": fields["position"][:2]}
        found.append((topic, kind, seconds, {**fields, **arm}))
        if place % 2 == 0:
            later = seconds + 0.003
            hand = {"name": ["gripper"], "position": recordings.joints(later)[2:]}
            hand["header"] = recordings.header(later)
            found.append((topic, kind, later, {**fields, **hand}))
    return found


def run(path: Path, entries: list[Entry], imported: Import, **options: Any) -> Any:
    recordings.write_ros2(path / "arm.mcap", entries)
    store, outcome = imported(MAKERS["mcap"](**options), path / "arm.mcap")
    return (store.episodes() or [None])[0], outcome


@pytest.mark.parametrize("wanted", [None, ["gripper", "waist"]])
def test_joints_of_several_publishers_are_merged_by_name(
    tmp_path: Path, imported: Import, wanted: list[str] | None
) -> None:
    entries = from_two_publishers(recordings.ros2_entries())
    episode, outcome = run(tmp_path, entries, imported, state={STATES: wanted})
    assert outcome.refused == {}
    names = wanted or ["waist", "elbow", "gripper"]
    assert list(episode.attributes.contract.joints) == names
    time = (
        episode.arrays["time"] + (episode.attributes.extra["start_ns"] - recordings.START_NS) / 1e9
    )
    arm = np.array([recordings.joints(t) for t in np.floor(time * 50 + 1e-6) / 50])
    hand = np.floor((time - 0.003) * 25 + 1e-6) / 25 + 0.003
    arm[:, 2] = [recordings.joints(t)[2] / 100 for t in hand]
    places = [["waist", "elbow", "gripper"].index(name) for name in names]
    np.testing.assert_allclose(episode.arrays["joints/position"], arm[:, places], atol=1e-6)


def test_publishers_without_positions_are_passed_over(tmp_path: Path, imported: Import) -> None:
    entries = recordings.ros2_entries(0.3)
    for _, kind, seconds, fields in [entry for entry in entries if entry[0] == STATES]:
        speeds = {"name": ["waist"], "position": [], "velocity": [0.1]}
        entries.append((STATES, kind, seconds + 0.004, {**fields, **speeds}))
    episode, outcome = run(tmp_path, entries, imported)
    assert (outcome.refused, len(episode.attributes.contract.joints)) == ({}, 3)


def test_a_publisher_that_stops_is_named(tmp_path: Path, imported: Import) -> None:
    entries = from_two_publishers(recordings.ros2_entries())
    stopped = [e for e in entries if not (e[3].get("name") == ["gripper"] and 0.1 < e[2] < 0.8)]
    outcome: Outcome = run(tmp_path, stopped, imported)[1]
    (why,) = outcome.refused.values()
    assert why.startswith("/joint_states (gripper) has a gap: ")


def test_the_episode_starts_at_the_first_complete_step(tmp_path: Path, imported: Import) -> None:
    entries = recordings.ros2_entries()
    for topic, _, seconds, fields in entries:
        if topic == "/command" and seconds < 0.3:
            fields["data"] = [float("nan")] * 2 + fields["data"][2:]
    episode, outcome = run(tmp_path, entries, imported)
    assert outcome.refused == {}
    reason = "not finite; the episode starts at the first complete step"
    assert outcome.skipped_fields["/command at the beginning", reason] == 1
    # Commands at 25 Hz, logged 1 ms later: the first one after 0.3 s.
    assert episode.attributes.extra["start_ns"] == recordings.START_NS + 321 * 10**6
    np.testing.assert_allclose(
        episode.arrays["action"][0, 0], recordings.joints(0.36)[0], atol=1e-6
    )


def test_numbers_that_are_never_finite_are_refused(tmp_path: Path, imported: Import) -> None:
    entries = recordings.ros2_entries(0.2)
    for topic, *_, fields in entries:
        if topic == "/command":
            fields["data"] = [float("nan")] * 3
    (why,) = run(tmp_path, entries, imported)[1].refused.values()
    assert why == "/command has no message whose numbers are all finite."
    assert len(EpisodeStore.open(tmp_path / "imported")) == 0
