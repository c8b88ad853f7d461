"""When an expert takes over from a policy: at a drawn time, or at a sign that the policy fails."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import mujoco
import numpy as np

from stringline.datasets.contract.argument_checks import NOT_NEGATIVE, POSITIVE, Range
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.skills import Scene

SHARE = Range(least=0, most=1)


@dataclass(frozen=True, kw_only=True)
class Takeovers:
    """When the expert takes over from the policy of an episode, once; then it acts until the end.

    At the latest it takes over at the time limit of the task.

    Attributes:
        drawn: Share of the episodes in which it takes over at a drawn time, 0 to 1.
        from_s: Earliest drawn time, s.
        until_s: Latest drawn time, s.
        stalled_s: It takes over when no gripper has left a place of 2 cm for this time, s; 0:
            never.
        stage_s: It takes over when no new stage has been reached for this time, s; 0: never.
        beside: Whether it takes over when a gripper that stands still near an object is about to
            close, with no object between its pads.
        expert_s: Longest time of the expert, s; if None, twice the time limit of the task.
        labels_s: At each plan of the policy, the motion that the expert would make from there in
            this time is stored, s; 0: none.

    Raises:
        ValueError: A number is out of range.
    """

    drawn: float = 0.5
    from_s: float = 0.5
    until_s: float = 8.0
    stalled_s: float = 2.0
    stage_s: float = 8.0
    beside: bool = True
    expert_s: float | None = None
    labels_s: float = 0.0

    def __post_init__(self) -> None:
        SHARE.check(**{"takeovers.drawn": self.drawn})
        for name in ("from_s", "until_s", "stalled_s", "stage_s", "labels_s"):
            NOT_NEGATIVE.check(**{f"takeovers.{name}": getattr(self, name)})
        if self.expert_s is not None:
            POSITIVE.check(**{"takeovers.expert_s": self.expert_s})
        if self.from_s > self.until_s:
            raise ValueError(
                f"takeovers.from_s is {self.from_s:g} and until_s {self.until_s:g}; allowed: "
                "from_s at most until_s."
            )

    def expert_time_s(self, time_limit_s: float) -> float:
        """Returns the longest time of the expert, seconds, given the time limit of the task."""
        return EXPERT_TIMES * time_limit_s if self.expert_s is None else self.expert_s


EXPERT_TIMES = 2.0
PLACE_M = 0.02
CLOSING = 0.15  # Opening by which the command of a closing gripper is ahead of it.
STILL_S, STILL_M = 0.1, 0.01
NEAR_M = 0.06  # Gap between a gripper and the ball around an object.
# Points around the middle between the pads, in the frame of the gripper, metres.
BETWEEN_M = [(x, 0.0, z) for x in (-0.01, 0.0, 0.01) for z in (-0.01, 0.0, 0.01)]
PADS_M = 0.08  # Largest distance of an object between the pads from their middle.

DRAWN = "drawn"
TIME_LIMIT = "time limit"
STALLED = "stalled"
NO_STAGE = "no new stage"
BESIDE = "closing beside"


class TakeoverSigns:
    """Watches an episode of a policy from its beginning, and tells when the expert takes over.

    Args:
        env: The world; its episode has begun.
        takeovers: When it takes over.
        time_limit_s: Time limit of the policy, s.
        rng: Source of randomness, which decides on a drawn time.
    """

    def __init__(
        self,
        env: TaskEnvironment,
        takeovers: Takeovers,
        time_limit_s: float,
        rng: np.random.Generator,
    ) -> None:
        self._env = env
        self._scene = Scene(env, env.task)
        self._takeovers = takeovers
        self._time_limit_s = time_limit_s
        is_drawn = rng.uniform() < takeovers.drawn
        drawn_s = rng.uniform(takeovers.from_s, takeovers.until_s)
        self._drawn_s = drawn_s if is_drawn else np.inf
        self._stage = env.task.stage
        self._stage_since = 0.0
        self._place: Mapping[str, Vector] = self._positions()
        self._place_since = 0.0
        steps = max(round(STILL_S * env.contract.control_hz), 1)
        self._recent = deque[Mapping[str, Vector]](maxlen=steps + 1)

    def sign(self, action: Vector) -> str:
        """Returns why the expert takes over before an action (J,) of the policy; empty if not.

        It is called in each control period.
        """
        now = self._env.time
        takeovers = self._takeovers
        positions = self._positions()
        self._recent.append(positions)
        if self._env.task.stage != self._stage:
            self._stage, self._stage_since = self._env.task.stage, now
        if any(np.linalg.norm(positions[arm] - self._place[arm]) > PLACE_M for arm in positions):
            self._place, self._place_since = positions, now
        if now >= self._time_limit_s - 1e-9:
            return TIME_LIMIT
        if now >= self._drawn_s:
            return DRAWN
        if takeovers.beside and any(self._closes_beside(arm, action) for arm in positions):
            return BESIDE
        if takeovers.stalled_s and now - self._place_since >= takeovers.stalled_s:
            return STALLED
        return (
            NO_STAGE if takeovers.stage_s and now - self._stage_since >= takeovers.stage_s else ""
        )

    def _positions(self) -> dict[str, Vector]:
        poses = self._env.embodiment.forward_kinematics(self._scene.joints())
        return {arm: poses[arm][:3, 3] for arm in self._env.embodiment.arms}

    def _closes_beside(self, arm: str, action: Vector) -> bool:
        """Returns whether a gripper is about to close beside an object that is near."""
        place = self._env.embodiment.grippers.get(arm)
        if place is None or self._scene.joints()[place] - action[place] < CLOSING:
            return False
        if self._scene.held(arm):
            return False
        moved = np.linalg.norm(self._recent[-1][arm] - self._recent[0][arm])
        if len(self._recent) < (self._recent.maxlen or 0) or moved > STILL_M:
            return False
        position = self._recent[-1][arm]
        props = self._env.task.props.values()
        gaps = [np.linalg.norm(self._scene.pose(p)[:3, 3] - position) - p.reach for p in props]
        return bool(min(gaps) < NEAR_M) and not is_between_pads(self._env, self._scene.gripper(arm))


def is_between_pads(env: TaskEnvironment, T_base_gripper: Matrix) -> bool:
    """Returns whether a prop is between the pads of a gripper at a pose (4, 4).

    Rays from the middle between the pads hit the pads first if there is nothing.
    """
    model, data = env.physics.model.ptr, env.physics.data.ptr
    props = env.task.props.values()
    shapes = {int(index) for prop in props for index in env.physics.bind(prop.shapes).element_id}
    hit = np.array([-1], np.int32)
    for point in BETWEEN_M:
        start = T_base_gripper[:3, :3] @ point + T_base_gripper[:3, 3]
        for sign in (1.0, -1.0):
            way = sign * T_base_gripper[:3, 1]
            distance = mujoco.mj_ray(model, data, start, way, None, 1, -1, hit)
            if 0 <= distance < PADS_M and int(hit[0]) in shapes:
                return True
    return False
