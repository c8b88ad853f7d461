"""Poses to which a person brings the arms: they are only read, and a key says when to take images.

The device process is made read-only, so that no command leaves it, whoever made it.
"""

import time
from collections.abc import Callable

import numpy as np

from stringline.datasets.contract.contract import Array, Contract, Observation
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.calibration.calibration_settings import CalibrationSettings
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.execution.lock_step import explain_fault
from stringline.real_robot.operator.operator_keys import Key, Keys
from stringline.real_robot.recording.observation_bridge import FrameSource, ObservationAssembler
from stringline.real_robot.safety.reasons import Mode

_STILL = 0.005  # rad; a hand is not as still as a motor.
_LOOK_S = 0.02


class ByHand:
    """Takes images where a person says so.

    Args:
        device: Connected, armed and read-only.
        frames: Of the cameras.
        contract: Of the observations.
        body: That is moved.
        settings: How long the arms have to rest, and how many looks there are at each pose.
        keys: Of the person.
        say: Shows a line.
    """

    def __init__(
        self,
        device: DeviceProcess,
        frames: FrameSource,
        contract: Contract,
        body: Embodiment,
        settings: CalibrationSettings,
        *,
        keys: Keys,
        say: Callable[[str], None],
    ) -> None:
        self._device = device
        self._frames = frames
        self._settings = settings
        self._keys = keys
        self._say = say
        self._assembler = ObservationAssembler(contract, body)
        self._hinges = np.concatenate([body.hinges[arm] for arm in body.arms])
        self._seen_until = -np.inf

    def run(self, take: Callable[[int, Observation], None]) -> int:
        """Takes images until the person ends it; returns at how many poses.

        Args:
            take: Gets the number of the pose, from 1, and the observation, for each look.

        Raises:
            RuntimeError: Arms are not measured any more.
        """
        self._device.begin()
        self._say(
            "Bring the arms to a pose from which the board is seen, and hold still. k: take the "
            "images; q: that was all."
        )
        number = 0
        while self._keys.wait(Key.KEEP, Key.END) is Key.KEEP:
            if self._pose(number + 1, take):
                number += 1
        return number

    def _pose(self, number: int, take: Callable[[int, Observation], None]) -> bool:
        """Takes the images of a pose once the arms rest; returns whether they did."""
        deadline = time.monotonic() + self._settings.patience_s + self._settings.settle_s
        looks = 0
        since = np.inf
        at = np.full(len(self._device.latest().arms.position), np.inf)
        while time.monotonic() < deadline:
            state = self._device.latest()
            frames = self._frames.frames()
            if state.mode is Mode.FAULT:  # What is not measured is not where the arms are.
                raise RuntimeError(" ".join(explain_fault(state, self._device)))
            if state.arms.servo_misses.any():
                since = np.inf
            elif np.abs(state.arms.position - at)[self._hinges].max() > _STILL or since == np.inf:
                since = state.arms.time
                at = state.arms.position
            oldest = self._oldest(frames)
            if oldest >= since + self._settings.settle_s and oldest > self._seen_until:
                history = [past.arms for past in self._device.recent()]
                self._seen_until = oldest
                looks = looks + 1
                take(number, self._assembler.build(state.arms, history, frames))
                if looks == self._settings.looks:
                    return True
            time.sleep(_LOOK_S)
        self._say(
            "Nothing was taken: hold the arms still. A camera that stands still would be the "
            "other reason."
        )
        return looks > 0

    def _oldest(self, frames: dict[str, Array]) -> float:
        """Returns when the oldest of the images was taken; before all time if one is missing."""
        times = [frames.get(f"time/{name}") for name in self._settings.needed]
        return min(
            (float(when) if when is not None else -np.inf for when in times), default=-np.inf
        )
