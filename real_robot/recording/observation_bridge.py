"""Observations of the contract from driver states and camera frames."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from stringline.datasets.contract.contract import Array, Contract, check_observation
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.ipc.heartbeat import is_age


class FrameSource(Protocol):
    """A source of camera frames."""

    def frames(self) -> dict[str, Array]:
        """Returns the latest `rgb/`, `depth/`, `intrinsics/` and `time/` of each camera."""
        ...


class ObservationAssembler:
    """Assembles observations.

    Raises:
        ValueError: The contract is for another embodiment.
    """

    def __init__(self, contract: Contract, embodiment: Embodiment) -> None:
        if contract.joints != tuple(joint.name for joint in embodiment.joints):
            raise ValueError(f"The contract has other joints than {embodiment.name}.")
        self._contract = contract
        self._embodiment = embodiment

    def build(
        self, arms: ArmState, history: Sequence[ArmState], frames: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Returns one observation.

        Args:
            arms: The newest state.
            history: Earlier states, oldest first, for the poses of wrist cameras at the times of
                their images.
            frames: Frames of at least the cameras of the contract.
        """
        observation: dict[str, Array] = {
            "time": np.asarray(arms.time),
            "joints/position": arms.position.astype(np.float32),
            "joints/velocity": arms.velocity.astype(np.float32),
            "joints/effort": arms.effort.astype(np.float32),
        }
        for arm, pose in self._embodiment.forward_kinematics(arms.position).items():
            observation[f"T_base_gripper/{arm}"] = pose.astype(np.float32)
        for camera in self._contract.cameras:
            kinds = ("rgb", "depth", "intrinsics", "time")
            observation |= {
                key: frames[key] for kind in kinds if (key := f"{kind}/{camera.name}") in frames
            }
            if f"time/{camera.name}" in frames:
                q = position_at(float(frames[f"time/{camera.name}"]), [*history, arms])
                pose = self._embodiment.camera_poses(q)[camera.name]
                observation[f"T_base_camera/{camera.name}"] = pose.astype(np.float32)
        check_observation(observation, self._contract)
        return observation

    def oldest_frame(self, frames: Mapping[str, Array], now: float) -> tuple[float, str]:
        """Returns the age (s) of the oldest frame, and its camera.

        It is infinite if a frame is missing, or if its time is no number or lies ahead.
        """
        ages = [
            (_age_s(float(frames.get(f"time/{camera.name}", -np.inf)), now), camera.name)
            for camera in self._contract.cameras
        ]
        return max(ages, default=(0.0, ""))


def _age_s(captured: float, now: float) -> float:
    age_s = now - captured
    return age_s if is_age(age_s) else np.inf


def position_at(time: float, history: Sequence[ArmState]) -> Vector:
    """Returns the joints (J,) at a time, interpolated between measurements and constant beyond."""
    times = np.array([state.time for state in history])
    after = int(np.searchsorted(times, time))
    if after == 0 or after == len(history):
        return history[max(after - 1, 0)].position
    before = history[after - 1]
    later = history[after]
    share = (time - before.time) / (later.time - before.time)
    return np.asarray(before.position + share * (later.position - before.position))
