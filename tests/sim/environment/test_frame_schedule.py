"""A schedule draws no frame twice and none without an observer; frames are of their time."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stringline.datasets.contract.contract import Array
from stringline.sim.environment.sensing import FrameSchedule

CONTROL_HZ = 50.0


class Shown:
    """A world whose frames and joints are the step at which they were captured."""

    def __init__(self, frame_hz: float, image_steps: int = 0, joint_steps: int = 0) -> None:
        self.drawn: list[int] = []
        self.schedule = FrameSchedule(
            CONTROL_HZ,
            frame_hz,
            look=self._look,
            measure=lambda: {"joints/position": np.asarray(self.schedule.step)},
            image_delay_s=image_steps / CONTROL_HZ,
            joint_delay_s=joint_steps / CONTROL_HZ,
        )

    def _look(self, time: float) -> Mapping[str, Array]:
        self.drawn.append(self.schedule.step)
        assert time == self.schedule.step / CONTROL_HZ == self.schedule.time
        return {"time/camera": np.asarray(self.schedule.step)}

    def run(self, looks: list[bool]) -> list[dict[str, Array]]:
        """Advances some steps; returns the observations of the steps that are observed."""
        seen = []
        for look in looks:
            seen.append(self.schedule.observe() if look else {})
            self.schedule.advance()
        return seen


@given(
    every=st.integers(1, 6),
    image_steps=st.integers(0, 9),
    joint_steps=st.integers(0, 5),
    looks=st.lists(st.booleans(), min_size=1, max_size=30),
)
def test_observations_have_the_age_of_the_delay(
    every: int, image_steps: int, joint_steps: int, looks: list[bool]
) -> None:
    """Observers of every step and of few steps see the last due frame, with its delay."""
    looks = [True, *looks]
    seen = Shown(CONTROL_HZ / every, image_steps, joint_steps).run(looks)
    frame = 0  # Without delays a frame is drawn when it is observed.
    for step, observation in enumerate(seen):
        if not observation:
            continue
        if image_steps:
            frame = max(0, (step - image_steps) // every * every)
        elif step - step % every > frame:
            frame = step
        assert int(observation["time/camera"]) == frame
        assert int(observation["joints/position"]) == max(0, step - joint_steps)
        assert float(observation["time"]) == step / CONTROL_HZ


def test_frames_without_observers_are_not_drawn() -> None:
    world = Shown(12.5)
    world.run([False] * 9)
    assert world.drawn == []
    assert "time/camera" not in world.schedule.observe(cameras=False)
    assert world.drawn == []
    late = Shown(12.5, image_steps=5)
    late.run([False] * 9)
    assert late.drawn == [0, 4, 8]


@pytest.mark.parametrize("image_steps", [0, 5])
def test_frames_are_due_when_they_arrive_and_begin_anew(image_steps: int) -> None:
    world = Shown(12.5, image_steps)
    expected = [0, 4, 8] if image_steps == 0 else [0, 9]
    for _ in range(2):
        due = []
        for step in range(12):
            due += [step] if world.schedule.frame_due else []
            world.run([True])
        assert due == expected
        world.schedule.begin()
        assert world.schedule.time == 0.0


def test_rates_must_divide() -> None:
    for frame_hz in (15.0, 100.0):
        with pytest.raises(
            ValueError, match=rf"frame_hz is {frame_hz}; it must divide control_hz \(50.0\)"
        ):
            FrameSchedule(CONTROL_HZ, frame_hz, look=lambda time: {}, measure=dict)
