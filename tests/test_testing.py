"""Our readers, drivers, workcells and tasks pass the checks that others use for theirs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.datasets.formats.small_sets import READERS, VARIANTS

from stringline import ALOHA, ALOHA_CELL, KUKA_CELL, ArmState, Embodiment, Workcell, pose
from stringline.real_robot.driver_interface.driver import ArmDriver
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.drivers.lcm.lcm_driver import LcmDriver
from stringline.real_robot.drivers.lcm.lcm_link import DEFAULT_ADDRESS
from stringline.sim.tasks.task_registry import task_class
from stringline.testing import (
    check_driver,
    check_reader,
    check_state,
    check_task,
    check_workcell,
)

DRIVERS: dict[str, Callable[[], ArmDriver]] = {
    "aloha": lambda: AlohaDriver({"left": "/dev/none_left", "right": "/dev/none_right"}),
    "lcm": lambda: LcmDriver({"arm": DEFAULT_ADDRESS}),
    "fri": lambda: FriDriver({"arm": "127.0.0.1:30200"}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_readers(tmp_path: Path, name: str) -> None:
    of, write = VARIANTS[name]
    check_reader(READERS[of], write(tmp_path))


@pytest.mark.parametrize("name", DRIVERS)
def test_drivers(name: str) -> None:
    check_driver(DRIVERS[name]())


def state_of(body: Embodiment, **changes: np.ndarray) -> ArmState:
    """Returns the state of resting arms with a servo per joint."""
    arms = len(body.arms)
    zeros = np.zeros(len(body.joints))
    state = ArmState(
        time=0.0,
        position=body.home,
        velocity=zeros,
        effort=zeros,
        servo_error=np.zeros(18, np.uint16),
        servo_misses=np.zeros(18, np.int32),
        lost=np.zeros(arms, np.bool_),
    )
    return replace(state, **changes)  # type: ignore[arg-type]


def test_states() -> None:
    driver = DRIVERS["aloha"]()
    check_state(state_of(ALOHA), driver, ALOHA)
    for changes, message in (
        ({"position": ALOHA.home[:-1]}, r"position has the shape \(13,\)"),
        ({"velocity": np.full(14, np.nan)}, "velocity is not finite"),
        ({"position": np.rad2deg(ALOHA.home)}, "Outside of the limits .*left/shoulder"),
        ({"commanded": np.zeros(3)}, r"commanded has the shape \(3,\)"),
    ):
        with pytest.raises(AssertionError, match=message):
            check_state(state_of(ALOHA, **changes), driver, ALOHA)


@pytest.mark.parametrize("cell", [ALOHA_CELL, KUKA_CELL], ids=["aloha", "kuka"])
def test_workcells(cell: Workcell) -> None:
    check_workcell(cell, poses=3)


def test_workcells_that_do_not_agree_with_their_model() -> None:
    body = KUKA_CELL.embodiment
    (chain,) = body.chains
    raised = [replace(mount, T_parent_camera=pose((1.0, 0, 0.9))) for mount in body.cameras[:1]]
    turned = [replace(link, axis=-link.axis) for link in chain.links]
    beside = chain.T_last_gripper @ pose((0.0, 0.01, 0.0))
    for wrong, message in (
        (replace(body, cameras=tuple(raised)), "camera overhead is at"),
        (replace(body, chains=(replace(chain, links=tuple(turned)),)), "turns otherwise"),
        (
            replace(body, cameras=(), chains=(replace(chain, T_last_gripper=beside),)),
            "not between the pads",
        ),
    ):
        with pytest.raises(AssertionError, match=message):
            check_workcell(replace(KUKA_CELL, embodiment=wrong), poses=1)


def test_tasks() -> None:
    check_task(task_class("kuka_pick"), seeds=[0], time_limit_s=12.0)
    with pytest.raises(AssertionError, match="The expert fails on seed 0: "):
        check_task(task_class("kuka_pick"), seeds=[0], time_limit_s=2.0)
