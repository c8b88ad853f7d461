"""Takeovers and returns by a page and by leaders: what arrives at the arms, and the recording."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.moving_arms import Arms, moving_arms
from tests.real_robot.network_namespace import own_network
from tests.real_robot.operator_hand import NoKeys, after, until
from tests.sim.teleop.visitor import Visitor

from stringline import ALOHA, IIWA14, ActionChunk, ArmState, Embodiment, EpisodeStore
from stringline.datasets.contract.contract import Array, Observation
from stringline.datasets.embodiments.transforms import quaternion
from stringline.datasets.store.episode import EpisodeAttributes, StoredEpisode
from stringline.real_robot.deployment.leader_teleoperation import Teleoperation
from stringline.real_robot.deployment.operated_session import TakeoverPage, open_page
from stringline.real_robot.deployment.policy_deployment import recording
from stringline.real_robot.deployment.supervised_run import SupervisedRun, Supervision
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.real_time import RealTimeEpisode, RealTimeRobot
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.operator.operator_keys import Key, Keys
from stringline.real_robot.safety.reasons import Mode

Vector = NDArray[np.float64]
TAKEOVERS = 20
HZ = 50.0
LEAD_S = 0.5
PATIENCE_S = 30.0
ROUNDING = 1e-9
# Goals of an episode begin at the measured pose: braked arms are that near to their last goal, rad
# and openings.
AT_REST = 0.01
BODIES: dict[str, Embodiment] = {"aloha": ALOHA, "fri": IIWA14}


class NoFrames:
    def frames(self) -> dict[str, Array]:
        return {}


class Swinging:
    """A policy whose plans begin anywhere near: the first joint swings about its home pose."""

    plans: ClassVar[int] = 0

    def __init__(self, body: Embodiment) -> None:
        self._home = body.home

    def plan(self, observation: Observation) -> ActionChunk:
        Swinging.plans += 1
        due = float(observation["time"]) + np.arange(40) / HZ
        way = np.tile(self._home, (40, 1))
        way[:, 0] += 0.15 * np.sin(4.0 * due)
        return ActionChunk(due, way.astype(np.float32))


class Brought:
    """Leaders that a person brings near the followers and then moves."""

    def __init__(self, device: DeviceProcess) -> None:
        self._device = device
        self.servos = device.servos
        self.arms = device.arms
        self._pose = device.latest().command

    def bring(self) -> None:
        self._pose = self._device.latest().command + 0.1

    def read(self, clock: Callable[[], float]) -> ArmState:
        now = clock()
        pose = self._pose + 0.1 * np.sin(5.0 * now)
        arms = self._device.latest().arms
        misses = np.zeros_like(arms.servo_misses)  # Those of the followers are not theirs.
        return replace(arms, time=now, position=pose, servo_misses=misses)


class Resetting(NoKeys):
    """An operator who resets each fault, such as those of a machine without time to spare."""

    _asked = False

    def pressed(self, *anew: Key) -> Key | None:
        self._asked = Key.RESET in anew and not self._asked
        return Key.RESET if self._asked else None

    def wait(self, *keys: Key) -> Key:
        return Key.RESET if Key.RESET in keys else Key.END

    wait_anew = wait


class LeadersHand(Resetting):
    """An operator with leaders, who presses the key to take over and to return.

    Attributes:
        leads: Whether the arms follow; on a busy machine, long after the key to take over.
    """

    def __init__(self, leaders: Brought, times: int) -> None:
        self._leaders = leaders
        self._left = times
        self._wait = after(LEAD_S)
        self._too_long = after(PATIENCE_S)
        self.leads = False

    def pressed(self, *anew: Key) -> Key | None:
        assert not self._too_long(), "The time of a key never came."
        if (Key.TAKE_OVER in anew and not self.leads) or not self._wait():
            return None
        self._wait = after(LEAD_S)
        self._too_long = after(PATIENCE_S)
        self.leads = False
        if Key.TAKE_OVER in anew:
            self._left -= 1
            return Key.TAKE_OVER
        self._leaders.bring()
        return Key.TAKE_OVER if self._left else Key.END


def visit(port: int, page: TakeoverPage, body: Embodiment, times: int) -> None:
    """Takes over as often as this: drags each arm while the key is held, and gives back."""
    leaders = page.leaders
    with Visitor(port) as visitor:
        for number in range(times):
            visitor.hold_key("Lead", lambda: not leaders.leading)
            for arm in body.arms:
                T = leaders.steering.poses[arm]
                shift = 0.04 * (-1) ** number * np.array([0.0, 1.0, 1.0])
                place = tuple(float(x) for x in T[:3, 3] + shift)
                wxyz = tuple(float(x) for x in quaternion(T[:3, :3]))
                visitor.drag(f"/handles/{arm}", place, wxyz)
            over = after(LEAD_S)
            visitor.hold_key("Lead", lambda over=over: not over())  # type: ignore[misc]
            plans = Swinging.plans
            while Swinging.plans == plans:
                visitor.key("Policy continues")
                time.sleep(0.1)
            time.sleep(LEAD_S)
        visitor.click("End the episode")


@dataclass
class Led:
    """A run with takeovers, and its recording."""

    result: RealTimeEpisode
    episode: StoredEpisode


@contextmanager
def operator(
    way: str, arms: Arms, body: Embodiment, times: int
) -> Iterator[tuple[Keys, Teleoperation, list[Callable[[list[DeviceState]], None]]]]:
    device = arms.device
    if way == "leaders":
        brought = Brought(device)
        yield LeadersHand(brought, times), Teleoperation(brought, device, body, agree=0.6), []
        return
    with open_page(0, device, body, HZ, NoFrames(), Resetting()) as (page, address):
        port = int(address.rsplit(":", 1)[1])
        person = threading.Thread(target=visit, args=(port, page, body, times), daemon=True)
        person.start()
        yield page, Teleoperation(page.leaders, device, body), [page.show]
        person.join(30.0)
        assert not person.is_alive()


def led(way: str, arms: Arms, body: Embodiment, folder: Path, times: int) -> Led:
    """Runs the policy with takeovers, and records it."""
    attributes = EpisodeAttributes(body.contract([], HZ), "swing", 0, source="deployment")
    robot = RealTimeRobot(arms.device, NoFrames(), attributes.contract, body)
    with (
        operator(way, arms, body, times) as (keys, leaders, watchers),
        recording(
            arms.device, folder / "store", attributes, body, NoFrames(), frame_hz=10.0
        ) as kept,
    ):

        def by_hand(state: DeviceState, target: Vector) -> None:
            kept.follow_by_hand(state, target)
            if isinstance(keys, LeadersHand):
                keys.leads = True

        supervision = Supervision(
            arms.device,
            body,
            keys,
            leaders=leaders,
            watchers=tuple(watchers),
            record_by_hand=by_hand,
        )
        run = SupervisedRun(robot, lambda: Swinging(body), 10, supervision)
        result = run.run(120.0, done=lambda: False, report=lambda state, _: kept.follow(state))
        kept.commit(None, {})
    store = EpisodeStore.open(folder / "store")
    (name,) = store.names()
    assert store.verify(name) == []
    return Led(result, store.episode(name))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["page", "leaders"])
@pytest.mark.parametrize("robot", list(BODIES))
def test_twenty_takeovers_and_returns_stay_within_the_limits_at_the_arms(
    robot: str, way: str, tmp_path: Path
) -> None:
    """Velocity and acceleration of what arrives; the recorded actions can be executed again.

    They hold on a busy machine too: `ServoLine` judges by the times at which goals were sent.
    """
    (tmp_path / "wire").mkdir()
    log = LogPlan(tmp_path / "log")
    with ExitStack() as stack:
        if robot != "aloha":
            stack.enter_context(own_network())
        arms = stack.enter_context(moving_arms(robot, tmp_path / "wire", log))
        body = BODIES[robot]
        done = led(way, arms, body, tmp_path, TAKEOVERS)
        assert not done.result.fault
        assert done.result.takeovers == TAKEOVERS
        marks = done.episode.attributes.interventions
        assert marks is not None
        assert len(marks) == TAKEOVERS
        assert all(last > first for first, last in marks)
        repeat(arms, body, done.episode)
        assert arms.violations() == 0
        for line in arms.lines.values():
            assert line.check.goals > 1000
            assert line.check.velocity <= 1.0 + ROUNDING
            assert line.check.acceleration <= 1.0 + ROUNDING
            assert line.check.resumed < AT_REST


def repeat(arms: Arms, body: Embodiment, episode: StoredEpisode) -> None:
    """Executes recorded actions of three seconds again: the arms arrive where they led."""
    times, actions = episode.arrays["time"], episode.arrays["action"]
    kept = times <= times[0] + 3.0
    assert Approach(arms.device, body).to(actions[0].astype(np.float64), 0.5, "the first action")
    arms.device.begin()
    due = time.monotonic() + 0.2 + times[kept] - times[0]
    due = np.concatenate([due, due[-1] + 0.1 * np.arange(1.0, 60.0)])  # Time to come to rest.
    way = np.concatenate([actions[kept], np.tile(actions[kept][-1], (59, 1))])
    end, goal = due[-60], actions[kept][-1]

    def arrived() -> bool:
        """Sends what follows anew, since plans become outdated."""
        later = due > time.monotonic() - 0.02
        arms.device.send(ActionChunk(due[later][:100], way[later][:100]))
        time.sleep(0.1)
        off = np.abs(arms.device.latest().command - goal).max()
        return bool(time.monotonic() > end and off < 0.01)

    until(arrived, 8.0)
    assert arms.device.latest().mode is not Mode.FAULT
