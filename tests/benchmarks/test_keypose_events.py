"""Keyposes of experts that move as people are their grasps and releases."""

from importlib import import_module

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("task", ["bowl_on_rack", "hand_over_banana"])
def test_keyposes_of_recordings_by_hand_are_grasps_and_releases(task: str) -> None:
    counts = import_module("keypose_events").measure(task, range(4), human_like=True)
    assert counts["episodes"] == 4
    assert counts["matched"] >= 0.95 * max(counts["true"], counts["found"])
