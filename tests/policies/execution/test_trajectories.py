"""Keyposes through Cartesian actions: a hand that follows late gets there all the same."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from stringline.datasets.contract.contract import ActionDimension, Contract
from stringline.datasets.embodiments.arm_commands import CartesianCommands
from stringline.datasets.embodiments.transforms import angle_between, between
from stringline.policies.execution.keypose_motion import KeyposeMotion, PredictedKeypose
from stringline.policies.execution.trajectories import MotionSettings, TaskSpace

Floats = NDArray[np.float64]
HZ = 20.0
STEPS: dict[str, Any] = {"mode": "relative", "scale": 0.04, "limits": (-1.0, 1.0)}
TARGETS: dict[str, Any] = {"mode": "absolute", "speed": 0.8}


def commands_of(frame: str, turns: bool, declared: dict[str, Any]) -> CartesianCommands:
    action = [
        ActionDimension(f"arm/{a}", "arm", "position", unit="m", frame=frame, **declared)
        for a in "xyz"
    ]
    if turns:
        other = {"scale": 0.2} if declared is STEPS else {"speed": 3.0}
        more: dict[str, Any] = {**declared, **other}
        action += [
            ActionDimension(f"arm/turn_{a}", "arm", "rotation", frame=frame, **more) for a in "xyz"
        ]
    grip = ActionDimension(
        "arm/gripper", "arm", "gripper", "absolute", "opening", "base", -0.5, 0.5, (-1.0, 1.0)
    )
    made = Contract("hand", "table", HZ, (), ("arm/gripper",), ("arm",), (*action, grip))
    return CartesianCommands(made, "Keyposes")


class LateHand:
    """A hand that goes a share of each command in a period."""

    def __init__(self, commands: CartesianCommands, share: float) -> None:
        self.commands = commands
        self.share = share
        self.pose = np.eye(4)
        self.pose[:3, 3] = [0.4, 0.1, 0.3]
        self.opening = 1.0
        self.track: list[tuple[Floats, float]] = []

    def observed(self) -> dict[str, Floats]:
        return {"T_base_gripper/arm": self.pose, "joints/position": np.array([self.opening])}

    def advance(self, action: Floats) -> None:
        goal = self.commands.reached(action, self.pose[None])[0]
        self.pose = between(self.pose, goal, self.share)
        self.opening = float((1 - action[-1]) / 2)
        self.track.append((self.pose.copy(), self.opening))


def prediction_of(goal: Floats, acts: float = 1.0) -> PredictedKeypose:
    place = goal[:3, 3]
    each = np.ones((1, 1))
    return PredictedKeypose(
        pose=goal[None, None],
        approach=(place + np.array([0.0, 0.0, 0.08]))[None, None],
        corner=(place + np.array([0.0, 0.05, 0.12]))[None, None],
        departure=(place + np.array([0.0, 0.0, 0.1]))[None, None],
        share=each,
        acts=np.array([acts]),
        moves=np.array([acts]),
        before=each,
        after=0 * each,
    )


@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize(
    ("frame", "declared"), [("base", TARGETS), ("base", STEPS), ("gripper", STEPS)]
)
def test_the_gripper_closes_where_the_keypose_is(
    frame: str, declared: dict[str, Any], turns: bool, share: float
) -> None:
    commands = commands_of(frame, turns, declared)
    hand = LateHand(commands, share)
    goal = np.eye(4)
    goal[:3, :3] = Rotation.from_rotvec([0.3, -0.5, 0.8]).as_matrix() if turns else np.eye(3)
    goal[:3, 3] = [0.5, -0.1, 0.05]
    space = TaskSpace(commands)
    motion = KeyposeMotion(space, HZ, MotionSettings(), [0.0])
    for number in range(40):
        measured = space.measured(hand.observed())
        targets = motion.targets(number * 4 / HZ, 12, measured, prediction_of(goal))
        for action in space.actions(targets, measured)[:4]:
            hand.advance(action)
        if hand.opening < 0.5:
            break
    closing = next(n for n, (_, opening) in enumerate(hand.track) if opening < 0.5)
    there = hand.track[closing][0]
    assert np.linalg.norm(there[:3, 3] - goal[:3, 3]) < 0.006
    assert angle_between(there[:3, :3], goal[:3, :3]) < 0.05
    speed = np.linalg.norm(np.diff([T[:3, 3] for T, _ in hand.track], axis=0), axis=1) * HZ
    assert speed.max() < 0.8 * np.sqrt(3)


@pytest.mark.parametrize(("share", "reached"), [(0.1, True), (0.02, False)])
def test_a_stop_is_passed_once(share: float, reached: bool) -> None:
    """There the scene looks as before it, so the likeliest mode stays the stop; another follows.

    Not one that is hardly likely at all: then the arm stays.
    """
    commands = commands_of("base", False, TARGETS)
    hand = LateHand(commands, 1.0)
    stop, after = np.eye(4), np.eye(4)
    stop[:3, 3] = [0.5, 0.1, 0.2]
    after[:3, 3] = [0.5, 0.3, 0.2]
    poses = np.stack([stop, after])[None]
    above = poses[..., :3, 3] + np.array([0.0, 0.0, 0.05])
    ways = dict.fromkeys(("approach", "corner", "departure"), above)
    certain = np.ones(1)
    both = PredictedKeypose(
        pose=poses,
        share=np.array([[1 - share, share]]),
        acts=certain,
        moves=certain,
        before=np.ones((1, 2)),
        after=np.ones((1, 2)),
        **ways,
    )
    space = TaskSpace(commands)
    motion = KeyposeMotion(space, HZ, MotionSettings(), [0.0])
    for number in range(30):
        measured = space.measured(hand.observed())
        targets = motion.targets(number * 4 / HZ, 12, measured, both)
        for action in space.actions(targets, measured)[:4]:
            hand.advance(action)
    places = np.array([T[:3, 3] for T, _ in hand.track])
    assert np.linalg.norm(places - stop[:3, 3], axis=1).min() < 1e-3
    assert (np.linalg.norm(places - after[:3, 3], axis=1).min() < 1e-3) == reached


def test_a_hand_that_cannot_turn_ignores_the_rotation_of_a_keypose() -> None:
    space = TaskSpace(commands_of("base", False, TARGETS))
    hand = LateHand(space._commands, 1.0)
    q = space.measured(hand.observed())
    turned = hand.pose.copy()
    turned[:3, :3] = Rotation.from_rotvec([0.0, 0.2, 0.0]).as_matrix()
    np.testing.assert_allclose(space.attainable(turned[None])[0], hand.pose)
    np.testing.assert_allclose(space.nearest({"arm": turned}, q)[0], q)


def test_coordinates_follow_a_rotation_beyond_a_half_turn() -> None:
    space = TaskSpace(commands_of("base", True, TARGETS))
    hand = LateHand(space._commands, 1.0)
    q = space.measured(hand.observed())
    for angle in np.linspace(0.0, 5.0, 40):
        hand.pose[:3, :3] = Rotation.from_rotvec([0.0, 0.0, angle]).as_matrix()
        q, _ = space.nearest({"arm": hand.pose}, q)
        assert q[5] == pytest.approx(angle)
        np.testing.assert_allclose(space.poses(q)["arm"], hand.pose, atol=1e-9)
