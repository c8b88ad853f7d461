"""Safety limits out of their ranges are refused."""

import dataclasses
import inspect
from typing import Any

import numpy as np
import pytest
from tests.real_robot.filter_rig import LIMITS

from stringline import ALOHA, SafetyLimits


def test_limits_without_an_effect_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"speed_share must be a number above 0 and at most 1 \(got 2.0\)"
    ):
        SafetyLimits.of(ALOHA, speed_share=2.0)
    with pytest.raises(ValueError, match="acceleration must be a number above 0"):
        SafetyLimits.of(ALOHA, acceleration=0.0)
    with pytest.raises(ValueError, match="limits of acceleration must be positive"):
        dataclasses.replace(LIMITS, acceleration=0 * LIMITS.acceleration)
    with pytest.raises(ValueError, match="limits of velocity and acceleration must be finite"):
        dataclasses.replace(LIMITS, velocity=LIMITS.velocity + np.inf)
    with pytest.raises(
        ValueError, match="fault_after_misses is 2; allowed: from hold_after_misses on"
    ):
        dataclasses.replace(LIMITS, fault_after_misses=2)
    with pytest.raises(ValueError, match="box is .*; allowed: the lowest and the highest corner"):
        SafetyLimits.of(ALOHA, box=[[0.0, 0.0, 0.0], [1.0, 1.0, -1.0]])
    with pytest.raises(ValueError, match="oldest_image_s must be a number above 0"):
        SafetyLimits.of(ALOHA, oldest_image_s=0.0)
    with pytest.raises(ValueError, match="hold_temperature must not be above fault_temperature"):
        dataclasses.replace(LIMITS, hold_temperature=90.0)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("box", [[-500.0, -500.0, 0.0], [500.0, 500.0, 800.0]], "from -5 to 5"),
        ("acceleration", 3000.0, "above 0 and at most 500"),
        ("gripper_acceleration", 3000.0, "above 0 and at most 500"),
        ("tracking_rad", 45.0, "above 0 and at most 3.2"),
        ("margin_rad", 1.0, "from 0 to 0.5"),
        ("margin_rad", -0.1, "from 0 to 0.5"),
        ("effort", [3000.0] * 6, "above 0 and at most 500"),
        ("oldest_image_s", 150.0, "above 0 and at most 10"),
        ("hold_temperature", 343.0, "from 20 to 120"),
    ],
)
def test_a_limit_in_another_unit_is_refused(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be a number {allowed} "):
        SafetyLimits.of(ALOHA, **{name: value})


@pytest.mark.parametrize("strange", [float("nan"), float("inf"), "0.1", None, True])
def test_a_limit_that_is_not_a_number_is_refused(strange: Any) -> None:
    """Limits files may contain them; `nan` is neither above nor below any number."""
    asked = inspect.signature(SafetyLimits.of).parameters
    for name in (name for name, parameter in asked.items() if parameter.annotation is float):
        with pytest.raises(ValueError, match=rf"^{name} must be "):
            SafetyLimits.of(ALOHA, **{name: strange})
    for field in dataclasses.fields(SafetyLimits):
        if field.type in (float, int):
            with pytest.raises(ValueError, match=rf"^{field.name} (must be |is .*; allowed: )"):
                dataclasses.replace(LIMITS, **{field.name: strange})
