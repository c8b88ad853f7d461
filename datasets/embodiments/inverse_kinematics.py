"""Inverse kinematics by mink: joint targets for gripper poses within position and speed limits.

mink: Zakka (2024), differential inverse kinematics as a quadratic program, solved by DAQP
(Arnstrom et al. 2022).
"""

from collections.abc import Mapping
from xml.sax.saxutils import quoteattr

import mink
import mujoco
import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.embodiment import Chain, Embodiment, Vector
from stringline.datasets.embodiments.transforms import Matrix, quaternion

# Largest joint motion of an iteration, in seconds at full speed. Larger steps flip the wrist.
STRIDE_SECONDS = 0.08


class OutOfReachError(ValueError):
    """The inverse kinematics found no joint positions within the limits for the targets."""


class InverseKinematics:
    """Finds joint positions for target poses of the grippers.

    Args:
        embodiment: The embodiment; only its chains are modelled.
        orientation_cost: Weight of an orientation error in rad against a position error in metres.
        posture_cost: Weight of the distance to the initial joints, for redundant solutions.
        damping: Levenberg-Marquardt damping for singular poses.
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
        self._revolute = np.concatenate(
            [embodiment.revolute_joints[arm] for arm in embodiment.arms]
        )
        speeds = {embodiment.joints[i].name: embodiment.joints[i].velocity for i in self._revolute}
        self._limits = [mink.ConfigurationLimit(model), mink.VelocityLimit(model, speeds)]

    def step(self, targets: Mapping[str, Matrix], q: Vector, seconds: float) -> Vector:
        """Moves the joints towards the targets for one time step within the velocity limits.

        Args:
            targets: `T_base_gripper` (4, 4) by arm; arms without a target stay.
            q: Initial joint positions (J,).
            seconds: Length of the time step.

        Returns:
            Final joint positions (J,), with unchanged grippers.
        """
        tasks = self._start(targets, q)
        self._advance(tasks, seconds)
        return self._result(q)

    def solve(
        self,
        targets: Mapping[str, Matrix],
        q_start: Vector,
        *,
        tolerance: float = 1e-4,
        iterations: int = 100,
    ) -> Vector:
        """Returns joint positions (J,) that reach the targets, with unchanged grippers.

        Args:
            targets: `T_base_gripper` (4, 4) by arm; arms without a target stay.
            q_start: Initial joint positions (J,).
            tolerance: Largest error in metres and in radians.
            iterations: Largest number of iterations.

        Raises:
            OutOfReachError: The targets were not reached.
            ValueError: A target is not a finite 4x4 matrix, or its arm does not exist.
        """
        found, errors = self.nearest(targets, q_start, tolerance=tolerance, iterations=iterations)
        if max(errors.values(), default=0.0) <= tolerance:
            return found
        wanted = ", ".join(
            f"{arm} at {np.round(targets[arm][:3, 3], 3).tolist()} m" for arm in targets
        )
        raise OutOfReachError(
            f"Out of reach: {wanted}; the remaining error is {errors} (m or rad), allowed is "
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
        """Finds joint positions that reach the targets or come near them.

        Args:
            targets: `T_base_gripper` (4, 4) by arm; arms without a target stay.
            q_start: Initial joint positions (J,).
            tolerance: Error in metres and in radians at which the search ends.
            iterations: Largest number of iterations.

        Returns:
            Joint positions (J,), with unchanged grippers, and the remaining error of each arm (the
            larger one of metres and radians).
        """
        tasks = self._start(targets, q_start)
        for _ in range(iterations):
            if max(self._errors(tasks), default=0.0) <= tolerance:
                break
            self._advance(tasks, STRIDE_SECONDS)
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
        self._configuration.update(q=np.asarray(q, dtype=np.float64)[self._revolute])
        self._posture.set_target(self._configuration.q)
        return [self._tasks[arm] for arm in targets]

    def _advance(self, tasks: list[mink.FrameTask], seconds: float) -> None:
        velocity = mink.solve_ik(
            self._configuration,
            [*tasks, self._posture],
            seconds,
            "daqp",
            damping=1e-10,
            limits=self._limits,
        )
        self._configuration.integrate_inplace(velocity, seconds)

    def _errors(self, tasks: list[mink.FrameTask]) -> list[float]:
        return [float(np.abs(task.compute_error(self._configuration)).max()) for task in tasks]

    def _result(self, q: Vector) -> Vector:
        result = np.array(q, dtype=np.float64)
        result[self._revolute] = self._configuration.q
        return result


def kinematic_xml(embodiment: Embodiment) -> str:
    """Returns MJCF with the chains and gripper sites of an embodiment."""
    bodies = "".join(_chain_xml(embodiment, chain) for chain in embodiment.chains)
    return f'<mujoco><compiler angle="radian"/><worldbody>{bodies}</worldbody></mujoco>'


def _chain_xml(embodiment: Embodiment, chain: Chain) -> str:
    inner = f"<site name={quoteattr(f'{chain.arm}/gripper')} {_placed(chain.T_last_gripper)}/>"
    joints = [embodiment.joints[i] for i in embodiment.revolute_joints[chain.arm]]
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
