"""Clips of motions: pairs that are reversals of each other, with the same frames."""

from functools import cache

import numpy as np
import pytest

from stringline.datasets.images.labelled_image import LabelledClip
from stringline.sim.scenes.assets import turned
from stringline.sim.scenes.motion_clips import (
    LABELS,
    MotionClips,
    MotionSettings,
    reversed_clip,
    stage_motion,
)
from stringline.sim.scenes.rooms import Room
from stringline.sim.scenes.scene_images import Optics

SETTINGS = MotionSettings(frames=5, optics=Optics(size=(48, 48)))


@cache
def clips() -> list[LabelledClip]:
    drawer = MotionClips(SETTINGS)
    found = [clip for number in range(10) for clip in drawer.room(number)]
    drawer.close()
    return found


def test_each_clip_is_followed_by_its_exact_reversal() -> None:
    for first, second in zip(clips()[::2], clips()[1::2], strict=True):
        assert (first.label, first.reverse_label) == (second.reverse_label, second.label)
        assert first.room == second.room
        np.testing.assert_array_equal(first.rgb, second.rgb[::-1])
        assert first.depth is not None
        assert second.depth is not None
        np.testing.assert_array_equal(first.depth, second.depth[::-1])
    pairs = {frozenset((clip.label, clip.reverse_label)) for clip in clips()}
    assert pairs == {frozenset(labels) for labels in LABELS.values()}


def test_both_labels_of_a_pair_have_the_same_frames() -> None:
    """So a single frame of unknown time tells nothing about the label."""
    frames: dict[str | None, list[bytes]] = {}
    for clip in clips():
        frames.setdefault(clip.label, []).extend(frame.tobytes() for frame in clip.rgb)
    for labels in LABELS.values():
        assert sorted(frames[labels[0]]) == sorted(frames[labels[1]])


def test_things_move_in_each_step() -> None:
    for clip in clips()[::2]:
        for before, after in zip(clip.rgb[:-1], clip.rgb[1:], strict=True):
            assert (before != after).any(), clip.label


@pytest.mark.slow
@pytest.mark.parametrize("pair", LABELS)
def test_every_room_has_a_thing_that_fits_its_table(pair: str) -> None:
    """A wide thing on a narrow desk ended the whole command once in 250 rooms."""
    for seed in range(600):
        room = Room(np.random.default_rng(seed), (2.0, 2.0), 0.5, 25)
        motion = stage_motion(pair, room)
        surface = next(one for one in room.surfaces if one.owner == 0)
        for mover in motion.movers:
            middle = np.linalg.inv(turned(room.placed[0].yaw)) @ (
                mover.pose(motion.ends[0])[0] - room.placed[0].position
            )
            assert abs(middle[1]) < surface.packing.half_y


@pytest.mark.parametrize("pair", LABELS)
def test_motions_are_what_their_labels_say(pair: str) -> None:
    for seed in range(4):
        room = Room(np.random.default_rng(seed), (2.0, 2.0), 0.5, 25)
        motion = stage_motion(pair, room)
        low, high = motion.ends
        assert 0 <= low < high <= 1
        poses = [[mover.pose(value) for mover in motion.movers] for value in (low, high)]
        (place, turn) = poses[0][0]
        (end, end_turn) = poses[1][0]
        if pair == "lift":
            assert end[2] - place[2] > 0.1
            np.testing.assert_allclose(end[:2], place[:2])
        if pair == "turn":
            half = motion.movers[0].pose((low + high) / 2)[1]
            # Left is counterclockwise from above.
            assert np.cross(turn @ (1, 0, 0), half @ (1, 0, 0))[2] > 0
        if pair == "approach":
            apart = [np.linalg.norm(first[0] - second[0]) for first, second in poses]
            assert apart[1] < apart[0] - 0.05
        if pair == "pass":
            assert motion.lane is not None
            assert (end - place)[:2] @ motion.lane > 0.2
        if pair == "open":
            assert not np.allclose(turn, end_turn)
            lid = motion.movers[0].solids[0].centre
            asset = room.placed[motion.movers[0].number].asset
            assert asset.hinge is not None
            # A lid rises when it opens, up to the vertical.
            shut, ajar = (motion.movers[0].pose(value) for value in (0.0, 0.4))
            assert (ajar[0] + ajar[1] @ lid)[2] > (shut[0] + shut[1] @ lid)[2]


def test_a_clip_without_a_reversal_is_refused() -> None:
    clip = LabelledClip(rgb=np.zeros((2, 4, 4, 3), np.uint8), label="pour")
    with pytest.raises(ValueError, match="A clip of 'pour' has no reverse_label"):
        reversed_clip(clip)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ValueError, match="There is no pair of motions 'lifft'. Did you mean 'lift"):
        MotionSettings(pairs=("lifft",))
    with pytest.raises(ValueError, match="motions is \\[\\]; allowed: any of lift"):
        MotionSettings(pairs=())
    with pytest.raises(ValueError, match=r"frames must be an integer from 2 to 256 \(got 1\)."):
        MotionSettings(frames=1)
