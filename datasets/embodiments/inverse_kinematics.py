"""Inverse kinematics of both arms by mink: joint targets for gripper poses, within joint and velocity limits.

mink: Zakka (2024), differential inverse kinematics as a quadratic program; here solved by DAQP
(Arnstrom et al. 2022).
"""

from collections.abc import Mapping
from xml.sax.saxutils import quoteattr

import mink
import mujoco
import numpy as np

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.embodiments.embodiment import Chain, Embodiment, Vector
from stringline.datasets.embodiments.transforms import Matrix, quaternion

# How far joints may go in one iteration, in seconds at their fastest. Undamped strides flip the
# wrist and get stuck.
STRIDE_SECONDS = 0.08


class OutOfReachError(ValueError):
    """No joint positions within the limits were found for the targets."""


class InverseKinematics:
    """Finds joint vectors whose grippers are where they should be.

    Args:
        embodiment: The body; its chains are all that is modelled.
        orientation_cost: Weight of a radian against a metre of error.
        posture_cost: Pull towards the starting joints; keeps redundant solutions near.
        damping: Levenberg-Marquardt damping, which keeps singular poses calm.
    """

    def __init__(
        self,
        embodiment: Embodiment,
        *,
        orientation_cost: float = 0.3,
        posture_cost: float = 1e-4,
        damping: float = 1e-6,
    ) -> None:
        self._embodiment = embodiment
        model = mujoco.MjModel.from_xml_string(kinematic_xml(embodiment))
        self._configuration = mink.Configuration(model)
        self._tasks = {
            arm: mink.FrameTask(f"{arm}/gripper", "site", 1.0, orientation_cost, lm_damping=damping)
            for arm in embodiment.arms
        }
        self._posture = mink.PostureTask(model, cost=posture_cost)
        self._hinges = np.concatenate([embodiment.hinges[arm] for arm in embodiment.arms])
        speeds = {embodiment.joints[i].name: embodiment.joints[i].velocity for i in self._hinges}
        self._position_limit = mink.ConfigurationLimit(model)
        self._velocity_limit = mink.VelocityLimit(model, speeds)

    def step(self, targets: Mapping[str, Matrix], q: Vector, seconds: float) -> Vector:
        """Moves the joints towards the targets for one tick, no faster than the velocity limits allow.

        Args:
            targets: `T_base_gripper` (4, 4) by arm; arms without one stay.
            q: Joint positions (J,), where the tick starts.
            seconds: Length of the tick.

        Returns:
            Joint positions (J,) at its end; grippers as they were.
        """
        tasks = self._start(targets, q)
        self._advance(tasks, seconds, [self._position_limit, self._velocity_limit])
        return self._result(q)

    def solve(
        self,
        targets: Mapping[str, Matrix],
        q_start: Vector,
        *,
        tolerance: float = 1e-4,
        iterations: int = 100,
    ) -> Vector:
        """Finds the joints that reach the targets, from `q_start` on and within the joint limits.

        Args:
            targets: `T_base_gripper` (4, 4) by arm; arms without one stay.
            q_start: Joint positions (J,) to start from.
            tolerance: Largest error allowed, in metres and in radians.
            iterations: When to give up.

        Returns:
            Joint positions (J,); grippers as they were.

        Raises:
            OutOfReachError: The targets were not reached; says how far it stayed.
            ValueError: A target is no finite 4x4 matrix, or for an arm that does not exist.
        """
        found, errors = self.nearest(targets, q_start, tolerance=tolerance, iterations=iterations)
        if max(errors.values(), default=0.0) <= tolerance:
            return found
        wanted = ", ".join(
            f"{arm} at {np.round(targets[arm][:3, 3], 3).tolist()} m" for arm in targets
        )
        raise OutOfReachError(
            f"Out of reach: {wanted}; the nearest found is off by {errors} (m or rad), allowed is "
            f"{tolerance}."
        )

    def nearest(
        self,
        targets: Mapping[str, Matrix],
        q_start: Vector,
        *,
        tolerance: float = 1e-4,
        iterations: int = 100,
    ) -> tuple[Vector, dict[str, float]]:
        """Finds the joints that reach the targets, or come near them, from `q_start` on and within the joint limits.

        Args:
            targets: `T_base_gripper` (4, 4) by arm; arms without one stay.
            q_start: Joint positions (J,) to start from.
            tolerance: Error in metres and in radians that is small enough to stop at.
            iterations: When to stop otherwise.

        Returns:
            Joint positions (J,), grippers as they were, and by arm the largest error that is left,
            in metres or radians.

        Raises:
            ValueError: A target is no finite 4x4 matrix, or for an arm that does not exist.
        """
        tasks = self._start(targets, q_start)
        for _ in range(iterations):
            if max(self._errors(tasks), default=0.0) <= tolerance:
                break
            self._advance(tasks, STRIDE_SECONDS, [self._position_limit, self._velocity_limit])
        return self._result(q_start), dict(zip(targets, self._errors(tasks), strict=True))

    def _start(self, targets: Mapping[str, Matrix], q: Vector) -> list[mink.FrameTask]:
        for arm, target in targets.items():
            if arm not in self._tasks:
                raise unknown_name("arm", arm, self._tasks)
            if target.shape != (4, 4) or not np.isfinite(target).all():
                raise ValueError(
                    f"The target of {arm!r} must be a finite 4x4 matrix; got {target!r}."
                )
            self._tasks[arm].set_target(
                mink.SE3(np.concatenate([quaternion(target[:3, :3]), target[:3, 3]]))
            )
        self._configuration.update(q=np.asarray(q, dtype=np.float64)[self._hinges])
        self._posture.set_target(self._configuration.q)
        return [self._tasks[arm] for arm in targets]

    def _advance(
        self, tasks: list[mink.FrameTask], seconds: float, limits: list[mink.Limit]
    ) -> None:
        velocity = mink.solve_ik(
            self._configuration,
            [*tasks, self._posture],
            seconds,
            "daqp",
            damping=1e-10,
            limits=limits,
        )
        self._configuration.integrate_inplace(velocity, seconds)

    def _errors(self, tasks: list[mink.FrameTask]) -> list[float]:
        return [float(np.abs(task.compute_error(self._configuration)).max()) for task in tasks]

    def _result(self, q: Vector) -> Vector:
        result = np.array(q, dtype=np.float64)
        result[self._hinges] = self._configuration.q
        return result


def kinematic_xml(embodiment: Embodiment) -> str:
    """Returns MJCF with the embodiment's chains and gripper sites and nothing else."""
    bodies = "".join(_chain_xml(embodiment, chain) for chain in embodiment.chains)
    return f'<mujoco><compiler angle="radian"/><worldbody>{bodies}</worldbody></mujoco>'


def _chain_xml(embodiment: Embodiment, chain: Chain) -> str:
    inner = f"<site name={quoteattr(f'{chain.arm}/gripper')} {_placed(chain.T_last_gripper)}/>"
    joints = [embodiment.joints[i] for i in embodiment.hinges[chain.arm]]
    for link, joint in zip(reversed(chain.links), reversed(joints), strict=True):
        hinge = (
            f'<joint name={quoteattr(joint.name)} axis="{_numbers(link.axis)}" '
            f'range="{joint.lower} {joint.upper}"/>'
        )
        matter = '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
        inner = f"<body {_placed(link.T_parent_link)}>{matter}{hinge}{inner}</body>"
    return f"<body {_placed(chain.T_base_root)}>{inner}</body>"


def _placed(transform: Matrix) -> str:
    return f'pos="{_numbers(transform[:3, 3])}" quat="{_numbers(quaternion(transform[:3, :3]))}"'


def _numbers(values: Vector) -> str:
    return " ".join(repr(float(value)) for value in values)
