"""Parts of episodes between the steps at which the stage increases."""

import numpy as np

from stringline.sim.collection.stage_clips import EpisodePart, parts_of


def test_parts_end_where_the_stage_increases() -> None:
    assert parts_of([0, 0, 1, 1, 1, 3, 3]) == [EpisodePart(0, 2, 1), EpisodePart(2, 5, 3)]
    assert parts_of([0, 0, 0]) == []
    assert [part.steps for part in parts_of([0, 0, 1, 1, 1, 3, 3])] == [3, 4]


def test_steps_of_frames_are_distinct_and_include_both_ends() -> None:
    for last in range(9, 60):
        steps = EpisodePart(2, last, 1).spread(8)
        assert (steps[0], steps[-1], len(set(steps))) == (2, last, 8)
        distances = np.diff(steps)
        assert distances.max() - distances.min() <= 1
