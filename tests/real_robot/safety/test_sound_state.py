"""Values that are no numbers, and times that lie ahead: a fault by which the arms brake."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.filter_rig import LIMITS, PERIOD, Run, chunk, moved, state

from stringline import ALOHA, SafetyFilter
from stringline.real_robot.driver_interface.driver import RobotNotReadyError
from stringline.real_robot.ipc.heartbeat import CameraLiveness
from stringline.real_robot.safety import filter as safety
from stringline.real_robot.safety.reasons import Mode, Reason
from stringline.real_robot.safety.robot_stages import SoundState
from stringline.real_robot.safety.stage_context import Freshness

Vector = NDArray[np.float64]
FAR = moved(left__waist=2.0)


def with_value(field: str, value: float) -> dict[str, Vector]:
    """Returns changes of a state in which one joint has that value in a field."""
    values = ALOHA.home.copy() if field in ("position", "commanded") else np.zeros(14)
    values = values[:2] if field == "gripper_goals" else values
    values[1] = value
    return {field: values}


WRONG_STATES: list[dict[str, Any]] = [
    *(
        with_value(field, value)
        for field in ("position", "velocity", "effort", "commanded", "gripper_goals")
        for value in (np.nan, np.inf, -np.inf)
    ),
    {"position": ALOHA.home[:13]},
    {"effort": np.zeros(0)},
    {"commanded": np.zeros(13)},
    {"time": np.nan},
    {"time": np.inf},
    {"time": 1e9},
    {"time": 1.0},
]


def aged(name: str, value: float) -> Freshness:
    fields: dict[str, Any] = {name: (0.0, value, 0.0) if "image" in name else value}
    return Freshness(**fields)


WRONG_AGES = [
    aged(field.name, value) for field in dataclasses.fields(Freshness) for value in (np.nan, -0.5)
]


def braked(run: Run, **changes: Any) -> None:
    """Brakes from motion while something is wrong, and checks that from the commands."""
    for _ in range(12):
        run.step(FAR)
    assert run.speed() > 1.0
    for _ in range(12):
        run.step(FAR, **changes)
    path = np.array(run.path)
    assert np.isfinite(path).all()
    assert run.speed() == 0.0
    speeds = np.diff(path, axis=0) / PERIOD
    assert (np.abs(np.diff(speeds, axis=0)) / PERIOD <= LIMITS.acceleration + 1e-6).all()


@pytest.mark.parametrize("wrong", WRONG_STATES, ids=str)
def test_a_state_that_is_no_state_is_a_fault_in_its_cycle(wrong: dict[str, Any]) -> None:
    run = Run()
    braked(run, **wrong)
    assert run.filter.mode is Mode.FAULT
    assert Reason.BAD_STATE in run.filter.fault_reasons
    assert run.filter.counts[Reason.BAD_STATE] == 12
    run.step(FAR)
    assert run.filter.fault_reasons == Reason.BAD_STATE, "until an operator resets it"


@pytest.mark.parametrize("wrong", WRONG_AGES, ids=str)
def test_an_age_that_is_no_age_is_a_fault_in_its_cycle(wrong: Freshness) -> None:
    run = Run()
    braked(run, freshness=wrong)
    assert run.filter.mode is Mode.FAULT
    assert Reason.BAD_STATE in run.filter.fault_reasons


def test_infinite_ages_are_those_of_inputs_that_never_came() -> None:
    run = Run()
    braked(run, freshness=Freshness(permission_age_s=np.inf, image_ages_s=(0.0, np.inf)))
    assert run.filter.mode is Mode.HOLD


def test_an_episode_does_not_begin_at_a_pose_that_is_no_pose() -> None:
    wrong = state(**with_value("position", np.nan))
    fresh = SafetyFilter(ALOHA, LIMITS, PERIOD)
    with pytest.raises(RobotNotReadyError, match="position of left/shoulder nan"):
        fresh.start(wrong, 0)
    run = Run()
    run.step(moved(left__waist=0.01))
    run.filter.start(wrong, 1)
    assert run.filter.mode is Mode.FAULT
    assert run.filter.fault_reasons == Reason.BAD_STATE
    assert np.isfinite(run.step(FAR)).all()
    assert run.filter.mode is Mode.FAULT


@pytest.mark.parametrize(
    "wrong",
    [
        {"freshness": Freshness(image_ages_s=(0.0, np.nan, 0.1))},
        {"freshness": Freshness(image_ages_s=(np.nan, 0.0))},
        {"freshness": Freshness(supervisor_age_s=np.nan)},
        {"freshness": Freshness(permission_age_s=np.nan)},
        {"freshness": Freshness(stop_line_age_s=np.nan)},
        {"freshness": Freshness(action_age_s=np.nan)},
        {"freshness": Freshness(plan_age_s=np.nan)},
        {"freshness": Freshness(suspended_s=np.nan)},
        {"time": np.nan},
        {"temperature": np.full(18, np.nan)},
        with_value("effort", np.nan),
    ],
    ids=str,
)
def test_each_comparison_fails_closed_by_itself(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    """Without the first stage, no limit is kept by a value that is not comparable with it."""
    monkeypatch.setattr(
        safety, "STAGES", tuple(one for one in safety.STAGES if one is not SoundState)
    )
    run = Run()
    run.step(moved(left__waist=0.01))
    for _ in range(60):
        run.step(moved(left__waist=0.01), **wrong)
    assert run.filter.mode is not Mode.RUN


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"temperature": np.full(18, np.nan)}, Reason.HOT),
        ({"freshness": Freshness(suspended_s=np.nan)}, Reason.GAP),
    ],
    ids=str,
)
def test_of_two_limits_the_one_that_is_a_fault_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], reason: Reason
) -> None:
    monkeypatch.setattr(
        safety, "STAGES", tuple(one for one in safety.STAGES if one is not SoundState)
    )
    run = Run()
    run.step(moved(left__waist=0.01))
    run.step(moved(left__waist=0.01), **wrong)
    assert run.filter.mode is Mode.FAULT
    assert reason in run.filter.fault_reasons


@pytest.mark.parametrize("age_s", [np.nan, -0.5])
def test_images_of_no_age_are_not_followed(age_s: float) -> None:
    assert not Run().filter.admit(chunk(), 0, 0.0, age_s)


@pytest.mark.parametrize("captured", [np.nan, 1e9])
def test_capture_times_that_cannot_be_are_no_fresh_images(captured: float) -> None:
    cameras = CameraLiveness.of(["top", "side"])
    cameras.times[0] = 5.0
    cameras.times[1] = captured
    run = Run()
    for _ in range(3):
        run.step(moved(left__waist=0.01), freshness=Freshness(image_ages_s=cameras.ages_s(5.05)))
    assert run.filter.mode is Mode.FAULT
