"""Arms by configuration, and the MuJoCo world of a KUKA task behind emulated controllers."""

from contextlib import ExitStack

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.demonstrations import Replay, demonstrate
from tests.real_robot.network_namespace import own_network

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.real_robot.arm_kinds import FriArms, ServoArms, arm_kind, emulated_arms
from stringline.real_robot.lock_step import largest_difference
from stringline.real_robot.reasons import Reason
from stringline.real_robot.wire_evaluation import open_lock_step_robot
from stringline.sim.experts.expert import make_expert

SEED = 3

# As in `configs/robot`.
SERVOS = {"driver": {"bus_watchdog_s": 0.0}}
KUKA = {
    "transport": "fri",
    "arms": "one",
    "driver": {
        "version": "1.15",
        "operation_modes": ["T1", "AUT"],
        "gripper": {"transport": "fri_output", "fri_output": {"output": "Gripper.Opening"}},
    },
}


def test_a_configuration_names_the_arms() -> None:
    servos, one = arm_kind(SERVOS), arm_kind(KUKA)
    assert isinstance(servos, ServoArms)
    assert isinstance(one, FriArms)
    assert servos.body is ALOHA
    assert one.body is IIWA14
    assert arm_kind({**KUKA, "arms": "two"}).body is IIWA14_BIMANUAL
    driver = one.driver({"arm": "127.0.0.1:30200"}, period_s=0.01, lock_step=False, read_only=True)
    assert driver.servos == ("arm/controller (127.0.0.1:30200)",)
    assert driver.paced
    two = arm_kind({**KUKA, "arms": "two"})
    ports = {"right": "127.0.0.1:30201", "left": "127.0.0.1:30200"}
    assert two.driver(ports, period_s=0.01, lock_step=False, read_only=True).arms == IIWA14_BIMANUAL.arms == ("left", "right")
    assert two.twin_driver(ports, period_s=0.01).arms == IIWA14_BIMANUAL.arms
    with pytest.raises(ValueError, match="ports for the arms arm; iiwa14_bimanual has left, right"):
        two.driver({"arm": "127.0.0.1:30200"}, period_s=0.01, lock_step=False, read_only=True)
    assert [emulated_arms(body.name).body for body in (ALOHA, IIWA14, IIWA14_BIMANUAL)] == [ALOHA, IIWA14, IIWA14_BIMANUAL]
    with pytest.raises(ValueError, match="no emulated body 'iiwa7'. Did you mean 'iiwa14'"):
        emulated_arms("iiwa7")
    with pytest.raises(ValueError, match="no number of KUKA arms 'tow'. Did you mean 'two'"):
        arm_kind({"transport": "fri", "arms": "tow", "driver": {}})


@pytest.fixture(scope="module")
def demonstration() -> tuple[NDArray[np.float32], list[NDArray[np.float64]]]:
    return demonstrate("kuka_pick", make_expert("kuka_pick"), SEED)


@pytest.mark.parametrize(("transport", "apart"), [("fri", 0.03), ("lcm", 0.05)])
def test_what_an_expert_does_in_simulation_succeeds_over_each_transport_as_well(
    demonstration: tuple[NDArray[np.float32], list[NDArray[np.float64]]], transport: str, apart: float
) -> None:
    actions, joints = demonstration
    task = {"name": "kuka_pick", "control_hz": 50.0, "frame_hz": 12.5, "time_limit_s": 12.0}
    with ExitStack() as stack:
        if transport == "lcm":  # Multicast reaches nobody else.
            stack.enter_context(own_network())
        robot = open_lock_step_robot(stack, IIWA14.contract([], 50.0), task, transport)
        episode = robot.run(Replay(actions), SEED, execute_steps=24)
    assert episode.fault == []
    assert episode.success
    assert episode.counts.get(Reason.BARRED, 0) == 0
    difference = largest_difference(joints, episode.positions[:: robot.cycles_per_action])
    # Targets are interpolated on the wire and steps in the direct run: half an action's time. drake-iiwa-driver passes commands
    # on a period later.
    assert difference[IIWA14.hinges["arm"]].max() < apart
