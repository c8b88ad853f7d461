"""Counts of clips of stages and of what has none."""

import logging

import numpy as np
import pytest

from stringline.datasets.images.labelled_image import LabelledClip
from stringline.sim.collection.stage_clips import StageEpisode, StageTally

CLIP = LabelledClip(rgb=np.zeros((2, 4, 4, 3), np.uint8))
FAILED = StageEpisode("kuka_pick-8", (), ("kuka pick: lifted",), "stage 'lifted' after 2 s")


def test_failures_and_short_parts_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    tally = StageTally()
    with caplog.at_level(logging.INFO):
        tally.add(StageEpisode("kuka_pick-7", (CLIP, CLIP), ("kuka pick: success",)), 2)
        tally.add(FAILED, 0)
    assert (tally.clips, tally.episodes, tally.failed) == (2, 2, 1)
    assert str(tally) == (
        "2 clips of 2 episodes; the expert failed in 1. Left out for fewer control steps than "
        "clip_frames: kuka pick: lifted (1), kuka pick: success (1)."
    )
    assert "The expert failed in kuka_pick-8: stage 'lifted' after 2 s." in caplog.text


def test_many_episodes_without_clips_end_the_command() -> None:
    tally = StageTally()
    for _ in range(29):
        tally.add(FAILED, 0)
    tally.add(StageEpisode("kuka_pick-7", (CLIP,)), 1)
    for _ in range(29):
        tally.add(FAILED, 0)
    with pytest.raises(ValueError, match="30 episodes in a row had no clip; allowed: fewer than"):
        tally.add(FAILED, 0)
