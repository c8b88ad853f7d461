"""Arms follow at bounded speed, stop at the nearest reachable pose, and come back."""

import numpy as np
import pytest

from stringline import ALOHA, InverseKinematics, Matrix, pose
from stringline.sim.teleop.steering import (
    ARRIVED,
    LEASH_M,
    METRES_PER_RADIAN,
    Speeds,
    Steering,
    apart,
    turned,
)

HZ = 50.0
SPEEDS = Speeds(linear=0.4, angular=2.0, joints=0.5)


@pytest.fixture
def steering() -> Steering:
    return Steering(ALOHA, HZ, SPEEDS)


def moved(
    T: Matrix, way: tuple[float, float, float], turn: tuple[float, float, float] = (0.0, 0.0, 0.0)
) -> Matrix:
    return pose(T[:3, 3] + way, T[:3, :3] @ turned(np.array(turn)))


def test_an_arm_moves_within_its_speed_limits_and_the_other_one_stays(
    steering: Steering,
) -> None:
    goal = moved(steering.targets["left"], (0.1, 0.05, -0.1), (0.3, 0.6, 0.2))
    steering.aim("left", goal)
    q = before = steering.q
    here = dict(steering.poses)
    for _ in range(90):
        q = steering.step()
        assert (np.abs(q - before) <= SPEEDS.joints * ALOHA.velocity_limits / HZ + 1e-9).all()
        assert (q >= ALOHA.lower).all()
        assert (q <= ALOHA.upper).all()
        metres, radians = apart(here["left"], steering.poses["left"])
        assert (
            metres <= 1.1 * SPEEDS.linear / HZ
        )  # A step of the kinematics is linear; the way is not quite.
        assert radians <= 1.1 * SPEEDS.angular / HZ
        before, here = q, dict(steering.poses)
    np.testing.assert_allclose(ALOHA.forward_kinematics(q)["left"], goal, atol=2e-4)
    assert max(apart(steering.poses["left"], goal)) < ARRIVED
    np.testing.assert_array_equal(
        q[ALOHA.revolute_joints["right"]], ALOHA.home[ALOHA.revolute_joints["right"]]
    )
    assert not steering.reach("left").held


def test_an_arm_stops_at_the_nearest_reachable_pose_and_comes_back(
    steering: Steering,
) -> None:
    """Nearest by the weights of the inverse kinematics, started from the same joints."""
    home, far = steering.targets["left"].copy(), pose((0.9, 0.3, 0.3))
    steering.aim("left", far)
    assert not steering.reach("left").held
    for _ in range(300):
        steering.step()
    reach = steering.reach("left")
    assert reach.held
    q, _ = InverseKinematics(ALOHA).nearest({"left": far}, ALOHA.home)
    metres, radians = apart(ALOHA.forward_kinematics(q)["left"], far)
    cost, least = (
        m**2 + (METRES_PER_RADIAN * r) ** 2
        for m, r in ((reach.metres, reach.radians), (metres, radians))
    )
    assert cost < 1.01 * least
    before = steering.poses["left"]
    for _ in range(10):
        steering.step()
    assert apart(before, steering.poses["left"])[0] < 1e-4
    steering.aim("left", home)
    for _ in range(150):
        steering.step()
    assert max(apart(steering.poses["left"], home)) < 1e-3
    assert not steering.reach("left").held


def test_a_stick_pushes_along_the_base_and_turns_about_the_gripper_but_never_runs_away(
    steering: Steering,
) -> None:
    start = steering.targets["right"].copy()
    steering.push(
        "right", np.array([0.0, 5.0, -0.5]), np.array([1.0, 0.0, 0.0])
    )  # More than all counts as all.
    ahead = moved(
        start, (0.0, SPEEDS.linear / HZ, -0.5 * SPEEDS.linear / HZ), (SPEEDS.angular / HZ, 0.0, 0.0)
    )
    np.testing.assert_allclose(steering.targets["right"], ahead, atol=1e-12)
    for _ in range(300):  # To where the arm cannot follow.
        steering.push("right", np.array([0.0, 1.0, 0.0]), np.zeros(3))
        steering.step()
    reach = steering.reach("right")
    assert reach.held
    assert reach.metres <= LEASH_M + 1e-9
    steering.recall("right")
    assert steering.reach("right").metres == 0.0


def test_grippers_go_at_their_own_speed_within_their_range(steering: Steering) -> None:
    place = ALOHA.grippers["left"]
    steering.grip("left", 7.0)
    assert steering.openings["left"] == 1.0
    openings = [steering.step()[place] for _ in range(60)]
    assert openings[0] == pytest.approx(SPEEDS.joints * ALOHA.velocity_limits[place] / HZ)
    assert openings[-1] == 1.0
    steering.reset(ALOHA.home)
    np.testing.assert_array_equal(steering.step(), ALOHA.home)


def test_invalid_targets_are_refused_and_change_nothing(steering: Steering) -> None:
    with pytest.raises(ValueError, match=r"There is no arm 'lefft'. Did you mean 'left'"):
        steering.aim("lefft", np.eye(4))
    with pytest.raises(ValueError, match="must be a finite 4x4 matrix"):
        steering.aim("left", np.full((4, 4), np.nan))
    with pytest.raises(ValueError, match="which is not a rotation matrix"):
        steering.aim("left", np.diag([1.0, 1.0, -1.0, 1.0]))
    with pytest.raises(ValueError, match=r"There is no gripper 'middle'. .*Allowed: left, right"):
        steering.grip("middle", 1.0)
    with pytest.raises(ValueError, match=r"The opening of 'left' is nan; allowed: 0 to 1"):
        steering.grip("left", float("nan"))
    for wrong in ({"linear": 0.0}, {"angular": -1.0}, {"joints": 1.1}):
        with pytest.raises(ValueError, match="allowed: above 0, and joints at most 1"):
            Speeds(**wrong)
    np.testing.assert_array_equal(steering.step(), ALOHA.home)
