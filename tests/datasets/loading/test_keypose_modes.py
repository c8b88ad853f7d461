"""Modes of keyposes: ways that stay different whatever the place and the turn of the scene."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.datasets.loading.grasp_recordings import grasp_store

from stringline import EpisodeStore, rotation_about
from stringline.datasets.loading.keypose_modes import (
    EventPose,
    KeyposeCounts,
    ModeSettings,
    count_keyposes,
    modes_of_event,
    plain,
)
from stringline.datasets.loading.window_settings import KeyposeSettings
from stringline.datasets.loading.workspace_clouds import CloudSettings, cloud_maker

UP = rotation_about([1.0, 0.0, 0.0], 0.3)[2]


def event(name: object, scene: tuple[float, float, float], height: float = 0.05) -> EventPose:
    """Returns an event of one arm."""
    return EventPose(
        str(name), 1.0, UP[None], np.array([height]), np.array([scene]), np.array([60.0])
    )


def sizes(poses: list[EventPose], **settings: float) -> tuple[list[int], int]:
    """Returns the numbers of keyposes of each mode, and of those that belong to none."""
    found = modes_of_event("left closes", poses, ModeSettings(**settings))
    members = [each.episode for mode in found.modes for each in mode.members]
    members += [each.episode for each in found.others]
    assert sorted(members) == sorted(each.episode for each in poses), "none is lost or doubled"
    return [len(mode) for mode in found.modes], len(found.others)


def walls(count: int, seed: int = 0) -> list[EventPose]:
    """Returns grasps at two walls of a mug, 30 mm apart for the mean of its points."""
    random = np.random.default_rng(seed)
    return [
        event(row, (0.015, side * 0.015 + random.normal(0, 0.003), random.normal(0, 0.003)))
        for row, side in enumerate([1] * count + [-1] * (count // 2))
    ]


@pytest.mark.parametrize("seed", range(5))
def test_two_ways_are_two_modes(seed: int) -> None:
    assert sizes(walls(20, seed)) == ([20, 10], 0)


def test_what_varies_without_a_gap_is_one_mode() -> None:
    spread = [event(row, (0.0, y, 0.0)) for row, y in enumerate(np.linspace(-0.05, 0.05, 60))]
    assert sizes(spread) == ([60], 0)


def test_heights_and_tilts_tell_modes_apart_without_a_scene() -> None:
    none = (np.nan, np.nan, np.nan)
    low = [event(f"low {row}", none, 0.02) for row in range(6)]
    high = [event(f"high {row}", none, 0.09) for row in range(4)]
    lying = rotation_about([1.0, 0.0, 0.0], 1.5)[2][None]
    tilted = [replace(event(f"tilted {row}", none, 0.02), up=lying) for row in range(3)]
    assert sizes([*low, *high, *tilted]) == ([6, 4, 3], 0)
    assert sizes([*low, *high], mode_m=0.2) == ([10], 0)


def test_what_stands_around_a_gripper_differs_from_nothing() -> None:
    seen = [event(f"seen {row}", (0.0, 0.0, 0.0)) for row in range(5)]
    unseen = [event(f"unseen {row}", (np.nan, np.nan, np.nan)) for row in range(5)]
    assert sizes([*seen, *unseen]) == ([5, 5], 0)


def test_single_keyposes_are_named_and_belong_to_no_mode() -> None:
    assert sizes([*walls(20), event("far", (0.2, 0.2, 0.0))]) == ([20, 10], 1)
    assert sizes([event("only", (0.0, 0.0, 0.0))]) == ([1], 0)
    assert sizes([event("one", (0.0, 0.0, 0.0)), event("two", (0.3, 0.0, 0.0))]) == ([], 2)


@pytest.mark.parametrize("name", ["mode_m", "mode_deg"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_distances_are_positive(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be a number above 0 \(got .*\)"):
        ModeSettings(**{name: value})


def test_plain_numbers_have_no_nan() -> None:
    assert plain(np.array([[1.0, np.nan]])) == [[1.0, None]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    """Blocks at random places and turns, which are grasped at two ends."""
    path = tmp_path_factory.mktemp("grasps") / "store"
    return grasp_store(path, (0.02,) * 5 + (-0.02,) * 3, still=1)


def counted(store: EpisodeStore, *, depth: bool = True) -> KeyposeCounts:
    episodes = store.episodes()
    maker = cloud_maker(episodes, None, CloudSettings()) if depth else None
    return count_keyposes(episodes, KeyposeSettings(), ModeSettings(), maker)


@pytest.mark.slow
def test_the_scene_tells_grasps_at_different_ends_apart(store: EpisodeStore) -> None:
    """Blocks stand everywhere and are turned; only the end at which they are grasped is a mode."""
    names = store.names()
    counts = counted(store)
    assert counts.sequences == {"left closes, left opens": names[:8]}
    closes, opens = counts.events
    assert [closes.event, opens.event] == ["left closes", "left opens"]
    episodes = [{each.episode for each in mode.members} for mode in closes.modes]
    assert episodes == [set(names[:5]), set(names[5:8])]
    assert 1e3 * closes.modes[0].mean("scene")[0] == pytest.approx([-20, -20, 0], abs=6)
    assert closes.modes[0].mean("height") == pytest.approx([0.03], abs=2e-3)
    assert closes.modes[0].mean("descent_deg") == pytest.approx([90], abs=3)
    (alone,) = counted(store, depth=False).events[0].modes
    assert len(alone) == 8, "without depth the ends look alike"


@pytest.mark.slow
def test_an_episode_without_keyposes_is_named(store: EpisodeStore, tmp_path: Path) -> None:
    counts = counted(store, depth=False)
    assert list(counts.without) == store.names()[8:]
    assert "There is no keypose" in counts.without[store.names()[8]]
    assert set(counts.steps) == set(store.names()[:8])
    assert counts.to_dict()["episodes"] == 9
