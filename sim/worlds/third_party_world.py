"""Somebody else's world behind the face of ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.contract.validation import validate_action
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.transforms import Matrix, pose
from stringline.sim.environment.clock import FrameSchedule, demand_time_limit, joint_state
from stringline.sim.environment.environment import StepResult
from stringline.sim.environment.world_cameras import checked_image_size
from stringline.sim.robots.robot_model import PRIMITIVES
from stringline.sim.worlds.adapter import Peer
from stringline.sim.worlds.third_party_cameras import PeerCameras

MOST_SEED = 2**32 - 1


@dataclass
class PeerTask:
    """What is to be done, and how far it has come in this episode."""

    name: str
    instruction: str
    stages: tuple[str, ...]
    stage: int = 0


class PeerWorld:
    """A peer with cameras, a clock and the contract; an episode is a function of its seed and the actions.

    Args:
        peer: The world; closing this one closes it.
        cameras: Which ones `observe` draws; None: all that the peer has.
        image_size: Rows and columns of the images: one number for both, or two.
        control_hz: Actions per second; as many as the peer's.
        frame_hz: Images per second.
        time_limit_s: When an episode is cut off.
        robot_model: `primitives`, the default elsewhere, which has no meaning here: peers draw
            their own arms.

    Raises:
        ValueError: An argument is unknown or out of range.
    """

    def __init__(
        self,
        peer: Peer,
        *,
        cameras: Sequence[str] | None = None,
        image_size: int | Sequence[int] = 128,
        control_hz: float = 50.0,
        frame_hz: float = 12.5,
        time_limit_s: float = 15.0,
        robot_model: str = PRIMITIVES,
    ) -> None:
        about = peer.about
        size = checked_image_size(image_size)
        demand_time_limit(time_limit_s)
        if robot_model != PRIMITIVES:
            raise ValueError(
                f"robot.model is {robot_model!r}; {about.name} draws its own arms, so leave "
                f"robot.model away."
            )
        if control_hz != about.control_hz:
            raise ValueError(
                f"control_hz is {control_hz}; {about.name} has {about.control_hz} actions per "
                f"second."
            )
        self._schedule = FrameSchedule(
            control_hz,
            frame_hz,
            look=lambda time: self._cameras.frame(self.physics, time),
            measure=self._measure,
            image_delay_s=about.image_delay_s,
            joint_delay_s=about.joint_delay_s,
        )
        names = list(about.views) if cameras is None else cameras
        self.peer = peer
        self.time_limit_s = time_limit_s
        self.embodiment: Embodiment = about.embodiment
        self.task = PeerTask(about.name, about.instruction, about.stages)
        self._cameras = PeerCameras(names, about.views, size, about.T_base_world)
        seen = [Camera(name, *size, "simulated") for name in names]
        self.contract: Contract = about.embodiment.contract([], control_hz).with_cameras(*seen)
        self._success = False

    @property
    def physics(self) -> Any:
        """The peer's, of dm_control."""
        return self.peer.physics

    @property
    def frame_due(self) -> bool:
        """Whether the cameras deliver a new frame at this step."""
        return self._schedule.frame_due

    @property
    def time(self) -> float:
        """Seconds since the episode began."""
        return self._schedule.time

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Looks whether an episode can begin with them.

        Raises:
            ValueError: There is one; peers have none.
        """
        refuse_options(self.task.name, options)

    def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Begins the episode that the peer itself begins with that seed.

        Raises:
            ValueError: There is an option, or the seed is out of range.
        """
        self.check_options(options or {})
        seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        if not 0 <= seed <= MOST_SEED:
            raise ValueError(f"The seed is {seed}; {self.task.name} takes 0 to {MOST_SEED}.")
        self.peer.begin(seed)
        self.task.stage = 0
        self._success = False
        self._schedule.begin()

    def advance(self, action: Array) -> StepResult:
        """Applies one action (J,), absolute joint targets in rad and openings; after success or a blow-up nothing moves.

        Raises:
            ValueError: It has another length or is not finite.
        """
        targets: Vector = np.asarray(action, dtype=np.float64)
        validate_action(targets, self.contract)
        self._schedule.advance()
        if not self._success and not self.peer.unstable:
            self.peer.advance(targets)
            self.task.stage = max(self.task.stage, self.peer.stage)
            self._success = self.peer.stage == len(self.task.stages) - 1 and not self.peer.unstable
        expired = self.peer.unstable or self.time >= self.time_limit_s - 1e-9
        return StepResult(self._success, self.task.stage, self.time, expired, self.peer.unstable)

    def observe(self, cameras: bool = True) -> dict[str, Array]:
        """Returns what the contract says about now, or about as long ago as the peer's delays say; not to be changed.

        Args:
            cameras: False leaves all images and their geometry out.
        """
        return self._schedule.observe(cameras)

    def pose(self, body: str) -> Matrix:
        """Returns the true pose (4, 4) of a body of the peer's model in the base frame."""
        number = self.physics.model.name2id(body, "body")
        data = self.physics.data
        return self.peer.about.T_base_world @ pose(
            data.xpos[number], data.xmat[number].reshape(3, 3)
        )

    def joints(self) -> Vector:
        """Returns the true joints (J,) of now."""
        return self.peer.measure().position

    def close(self) -> None:
        """Gives the graphics and the physics back."""
        self._cameras.close()
        self.peer.close()

    def _measure(self) -> dict[str, Array]:
        now = self.peer.measure()
        return joint_state(self.embodiment, now.position, now.velocity, now.effort)


def refuse_options(task: str, options: Mapping[str, Any]) -> None:
    """Does nothing where there is no option.

    Raises:
        ValueError: There is one; peers' tasks have none.
    """
    for name in options:
        raise unknown_name(f"option of the task {task!r}", name, [])
