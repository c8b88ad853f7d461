"""The message of a step in a recording."""

import numpy as np
import pytest

from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.message_times import latest

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
