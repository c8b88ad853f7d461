"""The safety filter takes limits and capsules from the embodiment of an arm from a file."""

from pathlib import Path

import numpy as np
import pytest
from tests.real_robot.filter_rig import PERIOD, Run
from tests.sim.robots.arm_files import write_arm

from stringline import Embodiment, SafetyLimits
from stringline.datasets.embodiments.embodiment_record import from_record, record_of
from stringline.real_robot.safety.clearance import Clearance
from stringline.real_robot.safety.reasons import Reason
from stringline.sim.robots.arm_cell import arm_cell

WRIST_3, LIFT = 5, 1


@pytest.fixture(params=["file", "record"])
def body(request: pytest.FixtureRequest, tmp_path: Path) -> Embodiment:
    arm = arm_cell(str(write_arm(tmp_path))).embodiment
    if request.param == "file":
        return arm
    return from_record(arm.name, arm.base_frame, record_of(arm))


def test_the_arm_stays_within_its_limits_and_above_the_table(body: Embodiment) -> None:
    limits = SafetyLimits.of(body, cartesian_speed=None, soft_start_s=0.0)
    run = Run(limits, body)
    target = body.home.copy()
    target[WRIST_3] = 9.0
    for _ in range(400):
        run.step(target)
    assert run.path[-1][WRIST_3] == pytest.approx(body.upper[WRIST_3] - 0.01)
    assert run.filter.counts[Reason.POSITION] > 0
    speeds = np.abs(np.diff(run.path, axis=0)).max(axis=0) / PERIOD
    assert (speeds <= body.velocity_limits + 1e-6).all()
    assert speeds[WRIST_3] == pytest.approx(body.velocity_limits[WRIST_3])
    run, clearance = Run(limits, body), Clearance(body)
    target = body.home.copy()
    target[LIFT] += 1.5
    for _ in range(300):
        run.step(target)
    heights = np.array([clearance.measure(q).heights.min() for q in run.path])
    assert run.filter.counts[Reason.TABLE] > 0
    assert heights.min() >= -1e-9
