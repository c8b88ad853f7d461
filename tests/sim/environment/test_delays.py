"""Delayed values are those of the capture time, and all parts of an observation are of one time."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.aloha import ALOHA, START_POSE
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.environment.sensing import Delayed, delay_steps
from stringline.sim.tasks.task_registry import make_task

CAMERAS = ("overhead", "wrist_left")
IMAGE_S, JOINT_S = 0.3, 0.1  # The defaults of aloha_sim.
STEPS = 30


def wave(step: int) -> NDArray[np.float64]:
    return START_POSE + 0.2 * np.sin(0.1 * step + np.arange(14))


def episode(world: TaskEnvironment) -> list[dict[str, Array]]:
    """Returns the observations of all steps."""
    world.begin(3)
    seen = [world.observe()]
    for step in range(STEPS):
        world.advance(wave(step))
        seen.append(world.observe())
    return seen


@pytest.fixture(scope="module")
def delayed() -> Iterator[TaskEnvironment]:
    world = TaskEnvironment(
        make_task("hand_over_banana"),
        cameras=CAMERAS,
        image_size=48,
        image_delay_s=IMAGE_S,
        joint_delay_s=JOINT_S,
    )
    yield world
    world.close()


@pytest.fixture(scope="module")
def prompt() -> Iterator[list[dict[str, Array]]]:
    world = TaskEnvironment(make_task("hand_over_banana"), cameras=CAMERAS, image_size=48)
    yield episode(world)
    world.close()


@pytest.mark.slow
def test_delayed_observations_have_the_age_of_the_delay(
    delayed: TaskEnvironment, prompt: list[dict[str, Array]]
) -> None:
    for step, seen in enumerate(episode(delayed)):
        assert seen["time"] == prompt[step]["time"]
        state, frame = prompt[max(0, step - 5)], prompt[max(0, step - 15)]
        for key in seen:
            if key.startswith(("joints/", "T_base_gripper/")):
                np.testing.assert_array_equal(
                    seen[key], state[key], err_msg=f"{key} at step {step}"
                )
            elif key != "time":
                np.testing.assert_array_equal(
                    seen[key], frame[key], err_msg=f"{key} at step {step}"
                )


def test_values_of_one_observation_are_of_one_time(delayed: TaskEnvironment) -> None:
    for seen in episode(delayed):
        for arm, T_base_gripper in ALOHA.forward_kinematics(
            seen["joints/position"].astype(np.float64)
        ).items():
            np.testing.assert_allclose(seen[f"T_base_gripper/{arm}"], T_base_gripper, atol=1e-5)


def test_frames_have_their_capture_times_and_are_due_when_they_arrive(
    delayed: TaskEnvironment,
) -> None:
    delayed.begin(0)
    arrived = {}
    for step in range(STEPS):
        if delayed.frame_due:
            arrived[step] = round(float(delayed.observe()["time/overhead"]), 9)
        delayed.advance(wave(step))
    assert arrived == {0: 0.0, 19: 0.08, 23: 0.16, 27: 0.24}


def test_frames_arrive_without_earlier_observations(
    delayed: TaskEnvironment, prompt: list[dict[str, Array]]
) -> None:
    delayed.begin(3)
    for step in range(STEPS):
        delayed.advance(wave(step))
    seen = delayed.observe()
    assert seen["time/overhead"] == pytest.approx(0.24)  # At 0.6 s, four images in 0.32 s.
    np.testing.assert_array_equal(seen["rgb/wrist_left"], prompt[12]["rgb/wrist_left"])
    np.testing.assert_array_equal(seen["joints/position"], prompt[25]["joints/position"])


def test_a_queue_returns_the_first_value_until_the_next_arrives() -> None:
    line = Delayed[str](3)
    assert line.captured is None
    line.put(0, "a")
    line.put(2, "b")
    line.put(2, "c")
    assert [line.at(step) for step in range(2, 6)] == ["a", "a", "a", "c"]
    assert line.captured == 2
    line.clear()
    assert line.captured is None


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [-0.02, 0.03, float("nan"), float("inf")])
def test_delays_between_steps_are_refused(seconds: float) -> None:
    allowed = r"allowed: 0 and the multiples of the control period \(0.02 s\)"
    with pytest.raises(ValueError, match=f"image_delay_s is {seconds} s; {allowed}"):
        TaskEnvironment(make_task("hand_over_banana"), image_delay_s=seconds)
    with pytest.raises(ValueError, match=f"joint_delay_s is {seconds} s; {allowed}"):
        TaskEnvironment(make_task("hand_over_banana"), joint_delay_s=seconds)


def test_delays_are_counted_in_steps() -> None:
    assert [delay_steps("d", seconds, 50.0) for seconds in (0.0, 0.02, 0.1, 0.3)] == [0, 1, 5, 15]
