"""Grippers close on an object until the limit of their force stops them, through real protocols."""

import math
import select
import threading
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from tests.real_robot.filter_rig import chunk
from tests.real_robot.network_namespace import own_network

from stringline import ALOHA, SafetyFilter, SafetyLimits, Vector
from stringline.datasets.embodiments.transforms import quaternion
from stringline.real_robot.driver_interface.driver import RobotNotReadyError
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.drivers.dynamixel.control_table import VIPERX
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.drivers.lcm.wsg import WsgGripper
from stringline.real_robot.emulators.dynamixel.servo_server import EmulatedArms, Terminal
from stringline.real_robot.emulators.fri.kuka_server import EmulatedCell
from stringline.real_robot.emulators.grippers.emulated_wsg import GripperRig
from stringline.real_robot.emulators.plants.task_plant import TaskPlant

# The long axis of an object becomes the z axis of the gripper.
UPRIGHT = np.array([[0.0, 0.0, -1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
FULL_N = ALOHA.joints[-1].effort
GRIPPER = VIPERX[-1].ident


class Holding(TaskPlant):
    """A world in which an object stays between the pads of an arm while `put` is true.

    Attributes:
        arm: The arm.
        prop: Name of the object.
    """

    def __init__(self, task: str, arm: str, prop: str) -> None:
        super().__init__(task, cameras=())
        self.arm, self._prop, self.put = arm, self._world.task.props[prop], True

    def advance(self, target: Vector) -> None:
        world = self._world
        if self.put:
            q = world.task.robot.positions(world.physics)
            T = self.embodiment.forward_kinematics(q)[self.arm]
            self._prop.set_pose(world.physics, T[:3, 3], quaternion(T[:3, :3] @ UPRIGHT))
        super().advance(target)

    @property
    def gripper(self) -> int:
        return self.embodiment.grippers[self.arm]

    @property
    def held(self) -> bool:
        """Whether both pads touch the object."""
        contacts = self._world.task.contact_state(self._world.physics)
        return bool(contacts.held(self.arm, self._prop.name))

    def grip(self, opening: float, periods: int) -> None:
        target = self.embodiment.home.copy()
        target[self.gripper] = opening
        for _ in range(periods):
            self.advance(target)


@pytest.fixture(params=[("fmb_1", "right", "peg"), ("kuka_hand_over", "left", "bar")])
def world(request: pytest.FixtureRequest) -> Iterator[Holding]:
    with closing(Holding(*request.param)) as plant:
        yield plant


def test_a_gripper_squeezes_with_its_limited_force(world: Holding) -> None:
    """The object is held; a limit above the drive's own one has no effect, to the bit."""
    free = np.full(len(world.embodiment.joints), np.inf)
    own = world._world.physics.model.actuator_forcerange.copy()
    world.limit_efforts(free)
    np.testing.assert_array_equal(world._world.physics.model.actuator_forcerange, own)
    for newton in (25.0, 12.0):
        world.put = True
        limits = free.copy()
        limits[world.gripper] = newton
        world.limit_efforts(limits)
        world.grip(1.0, 60)
        world.grip(0.0, 60)
        world.put = False
        world.grip(0.0, 40)
        position, _, effort = world.measure()
        assert effort[world.gripper] == pytest.approx(-newton, abs=0.05)
        assert world.held
        assert position[world.gripper] > 0.1, "it stopped at the object"


class Served:
    """ALOHA arms in a world, on pseudo-terminals that a thread serves."""

    def __init__(self) -> None:
        self.plant = Holding("fmb_1", "right", "peg")
        self.arms = EmulatedArms(self.plant)
        self._terminals = {arm: Terminal(line) for arm, line in self.arms.lines.items()}
        self.ports = {arm: terminal.name for arm, terminal in self._terminals.items()}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._done.is_set():
            for terminal in select.select(list(self._terminals.values()), [], [], 0.02)[0]:
                terminal.serve()

    def grippers(self, register: table.Register) -> set[int]:
        return {line.servos[GRIPPER].get(register) for line in self.arms.lines.values()}

    def close(self) -> None:
        self._done.set()
        self._thread.join()
        for terminal in self._terminals.values():
            terminal.close()
        self.plant.close()


@pytest.fixture
def served() -> Iterator[Served]:
    with closing(Served()) as lines:
        yield lines


def squeezed(served: Served, driver: AlohaDriver) -> tuple[float, float]:
    """Opens and closes a gripper through the safety filter; returns its force and its opening."""
    plant = served.plant
    safety = SafetyFilter(ALOHA, SafetyLimits.of(ALOHA, soft_start_s=0.0), plant.period_s)
    state = driver.read(lambda: 0.0)
    safety.start(state, 0)
    for period in range(190):
        now = period * plant.period_s
        opening = float(period < 70)
        plant.put = period < 140
        target = ALOHA.home.copy()
        target[plant.gripper] = opening
        if period % 50 == 0:
            assert safety.admit(chunk(start=now, count=60), 0, now)
        driver.write(safety.step(target, state, now))
        # The servos answer in order, so this answer comes after the goals.
        state = driver.read(lambda now=now: now)
        served.arms.advance()
    assert plant.held
    return -float(state.effort[plant.gripper]), float(state.position[plant.gripper])


@pytest.mark.slow
@pytest.mark.parametrize(("newton", "counts"), [(None, 300), (FULL_N, 300), (14.0, 120), (1.0, 8)])
def test_goal_current_is_the_limit_of_the_force(
    served: Served, newton: float | None, counts: int
) -> None:
    """By default the servo's own limit holds, and nothing is written."""
    driver = AlohaDriver(
        served.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2, gripper_force_n=newton
    )
    with closing(driver):
        driver.connect()
        driver.arm()
        assert served.grippers(table.GOAL_CURRENT) == {counts}
        if newton in (FULL_N, 1.0):
            return  # As without a limit; too little for the weight of the object.
        force, opening = squeezed(served, driver)
        assert force == pytest.approx(FULL_N if newton is None else newton, abs=0.2)
        assert opening > 0.5, "it stopped at the object"


def test_goal_current_limits_the_force_in_one_mode_only(served: Served) -> None:
    """In position mode it has no effect; after a reboot it is the current limit again."""
    servo = served.arms.lines["right"].servos[GRIPPER]
    servo.set(table.GOAL_CURRENT, 60)
    assert servo.current_share == pytest.approx(0.2)
    servo.set(table.OPERATING_MODE, table.OperatingMode.POSITION)
    assert servo.current_share == 1.0
    servo.reboot()
    assert servo.get(table.GOAL_CURRENT) == 300


def test_forces_that_the_gripper_lacks_are_refused(served: Served) -> None:
    for force in (0.5, 36.0, math.nan, True):
        with pytest.raises(
            ValueError, match=rf"^gripper_force_n must be a number from 1 to 35 \(got {force}\)\.$"
        ):
            AlohaDriver(served.ports, gripper_force_n=force)
    served.arms.lines["left"].servos[GRIPPER].set(table.CURRENT_LIMIT, 100)
    driver = AlohaDriver(served.ports, answer_timeout_s=0.2, gripper_force_n=20.0)
    with closing(driver), pytest.raises(RobotNotReadyError, match="Current Limit is 100"):
        driver.connect()


@pytest.mark.parametrize("newton", [40.0, 12.0])
def test_a_wsg_closes_with_its_commanded_force(newton: float) -> None:
    """Over LCM's multicast: closed fully, it stops at the object with that force."""
    settings = WsgGripper(
        force_n=newton, command_channel="COMMAND_{arm}", status_channel="STATUS_{arm}"
    )
    with own_network(), closing(Holding("kuka_hand_over", "left", "bar")) as plant:
        rig = GripperRig(plant.embodiment.arms, settings, period_s=plant.period_s)
        gripper = settings.gripper("left", period_s=plant.period_s, read_only=False)
        gripper.link.open()
        cell = EmulatedCell(plant.embodiment, plant, version_of("1.15"), gripper_rig=rig)
        cell.begin(0, {})
        state = gripper.read()
        for period in range(240):
            plant.put = period < 160
            gripper.command(float(period < 60))
            rig.serve()
            cell.advance()
            rig.tick()
            state = gripper.read()
        gripper.close()
        rig.close()
        # The drive of the model is a spring, whose force this thin bar limits to 34 N.
        assert state.force == pytest.approx(min(newton, 34.2), abs=0.5)
        assert plant.held
        assert state.opening > 0.2
        assert state.error == 0
