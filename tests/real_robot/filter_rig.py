"""A safety filter without a driver: tests of its stages make the states."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stringline import ALOHA, ActionChunk, ArmState, Embodiment, SafetyFilter, SafetyLimits
from stringline.real_robot.safety.stage_context import Freshness

Vector = NDArray[np.float64]

PERIOD = 0.01
LIMITS = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0)


def state(position: Vector = ALOHA.home, **changes: object) -> ArmState:
    """Returns a calm state, but for the changes."""
    calm = ArmState(
        0.0,
        position,
        np.zeros_like(position),
        np.zeros_like(position),
        np.zeros(18, np.uint8),
        np.zeros(18, np.int32),
        np.zeros(2, np.bool_),
    )
    return dataclasses.replace(calm, **changes)


def chunk(value: float = 0.0, start: float = 0.0, count: int = 50, joints: int = 14) -> ActionChunk:
    """Returns a chunk of 50 Hz that wants that of every joint."""
    return ActionChunk(
        start + 0.02 * np.arange(count, dtype=np.float64),
        np.full((count, joints), value, np.float32),
    )


class Run:
    """A filter in operation, whose arms are where their targets are."""

    def __init__(self, limits: SafetyLimits = LIMITS, body: Embodiment = ALOHA) -> None:
        self.filter = SafetyFilter(body, limits, PERIOD)
        self.filter.start(state(body.home), 0)
        self.now, self.path = 0.0, [body.home]
        assert self.filter.admit(chunk(joints=len(body.joints)), 0, 0.0)

    def step(self, target: Vector | None, **changes: object) -> Vector:
        """Runs a period with arms at the last command, but for `changes`; returns the command."""
        measured = changes.pop("position", self.path[-1])
        assert isinstance(measured, np.ndarray)
        freshness = changes.pop("freshness", None)
        assert freshness is None or isinstance(freshness, Freshness)
        measurement = state(measured, **{"time": self.now, **changes})
        self.path.append(self.filter.step(target, measurement, self.now, freshness).position)
        self.now += PERIOD
        return self.path[-1]

    def speed(self) -> float:
        """Returns the speed of the fastest joint, per second."""
        return float(np.abs(self.path[-1] - self.path[-2]).max()) / PERIOD


def moved(**joints: float) -> Vector:
    """Returns the home pose with joints moved by so much, such as `left__waist=0.1`."""
    q = ALOHA.home.copy()
    for name, value in joints.items():
        q[[joint.name for joint in ALOHA.joints].index(name.replace("__", "/"))] += value
    return q


def wrist_cameras(body: Embodiment, poses: Vector) -> dict[str, Vector]:
    """Returns the centers (T, 3) of the wrist cameras by arm, 11.5 mm behind their front glass."""
    T_base_grippers = body.forward_kinematics(poses)
    return {
        mount.parent: (T_base_grippers[mount.parent] @ mount.T_parent_camera)[:, :3]
        @ (0.0, 0.0, -0.0115, 1.0)
        for mount in body.cameras
        if mount.parent in body.arms
    }


def fastest(body: Embodiment, path: Sequence[Vector] | Vector) -> Vector:
    """Returns the speed (T,) of the fastest gripper, wrist camera or end of a capsule, m/s.

    Fingers are open.
    """
    poses = np.array(path)
    poses[:, list(body.grippers.values())] = 1.0
    places = [
        T_base_gripper[:, :3, 3] for T_base_gripper in body.forward_kinematics(poses).values()
    ]
    places += wrist_cameras(body, poses).values()
    ends = body.capsule_axes(poses)
    points = np.concatenate([np.stack(places, axis=1), ends.reshape(len(poses), -1, 3)], axis=1)
    return np.asarray(np.linalg.norm(np.diff(points, axis=0), axis=-1).max(axis=-1) / PERIOD)
