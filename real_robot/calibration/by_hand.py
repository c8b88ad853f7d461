"""Calibration of arms that a person moves: the arms are only read, and a key takes images.

The device process is read-only, so no command leaves it.
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
_POLL_S = 0.02


class ByHand:
    """Takes images when a person presses a key.

    Args:
        device: Connected, armed and read-only device process.
    """

    def __init__(
        self,
        device: DeviceProcess,
        frames: FrameSource,
        contract: Contract,
        embodiment: Embodiment,
        settings: CalibrationSettings,
        *,
        keys: Keys,
        report: Callable[[str], None],
    ) -> None:
        self._device = device
        self._frames = frames
        self._settings = settings
        self._keys = keys
        self._report = report
        self._assembler = ObservationAssembler(contract, embodiment)
        self._hinges = np.concatenate([embodiment.hinges[arm] for arm in embodiment.arms])
        self._seen_until = -np.inf

    def run(self, take: Callable[[int, Observation], None]) -> int:
        """Takes images until the person ends it; returns the number of poses.

        `take` receives the number of the pose, from 1, and the observation of each image.

        Raises:
            RuntimeError: The arms cannot be measured.
        """
        self._device.begin()
        self._report(
            "Bring the arms to a pose from which the camera sees the board, and hold still. k: "
            "take the images; q: finish."
        )
        number = 0
        while self._keys.wait(Key.KEEP, Key.END) is Key.KEEP:
            if self._pose(number + 1, take):
                number += 1
        return number

    def _pose(self, number: int, take: Callable[[int, Observation], None]) -> bool:
        """Takes the images of a pose once the arms rest; returns whether any was taken."""
        deadline = time.monotonic() + self._settings.patience_s + self._settings.settle_s
        looks = 0
        since = np.inf
        at = np.full(len(self._device.latest().arms.position), np.inf)
        while time.monotonic() < deadline:
            state = self._device.latest()
            frames = self._frames.frames()
            if state.mode is Mode.FAULT:  # The measured joints may be wrong.
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
                looks += 1
                take(number, self._assembler.build(state.arms, history, frames))
                if looks == self._settings.looks:
                    return True
            time.sleep(_POLL_S)
        self._report(
            "No image was taken: the arms moved, or a camera shows no new images. Hold the arms "
            "still."
        )
        return looks > 0

    def _oldest(self, frames: dict[str, Array]) -> float:
        """Returns the capture time of the oldest image; -infinity if one is missing."""
        times = [frames.get(f"time/{name}") for name in self._settings.needed]
        return min(
            (float(when) if when is not None else -np.inf for when in times), default=-np.inf
        )
