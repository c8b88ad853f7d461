"""Arms by configuration, and the MuJoCo world of a KUKA task behind emulated controllers."""

import math
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.demonstrations import CONTROL_HZ, Replay, demonstrate, largest_difference
from tests.real_robot.network_namespace import own_network

from stringline import ALOHA, IIWA14, IIWA14_BIMANUAL, Contract, TaskSettings, make_expert
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.driver_interface.interlocks import TRACKING_ERROR_RAD
from stringline.real_robot.emulated_evaluation import loop_evaluation
from stringline.real_robot.execution.lock_step import LockStepEpisode
from stringline.real_robot.robots.backends import (
    FriBackend,
    ServoBackend,
    emulated_backend,
    robot_backend,
)
from stringline.real_robot.safety.reasons import Reason
from stringline.sim.evaluation.results import EpisodeResult

SEED = 3
CYCLES_PER_ACTION = 2

# As in `configs/robot`.
KUKA = {
    "version": "1.15",
    "operation_modes": ["T1", "AUT"],
    "gripper": {"transport": "fri_output", "fri_output": {"output": "Gripper.Opening"}},
}


@pytest.mark.parametrize("transport", ["fri", "lcm"])
def test_the_tracking_limit_of_kuka_arms_is_below_the_distance_of_a_strayed_arm(
    transport: str,
) -> None:
    arms = emulated_backend(IIWA14_BIMANUAL.name, transport)
    revolute = np.concatenate([*IIWA14_BIMANUAL.revolute_joints.values()])
    assert (
        arms.limits(cartesian_speed=None, table_height=0.01).tracking[revolute] < TRACKING_ERROR_RAD
    ).all()
    assert arms.limits(tracking_rad=0.1).tracking[revolute] == pytest.approx(0.1)
    for value in (TRACKING_ERROR_RAD, 0.8, 0.0, math.nan, "0.1"):
        with pytest.raises(
            ValueError, match=r"tracking_rad must be a number above 0 and below 0\.3 \(got .*\)"
        ):
            arms.limits(tracking_rad=value)


def test_a_configuration_names_the_arms() -> None:
    servos = robot_backend(None, "one", {"bus_watchdog_s": 0.0})
    one = robot_backend("fri", "one", KUKA)
    assert isinstance(servos, ServoBackend)
    assert isinstance(one, FriBackend)
    assert servos.embodiment is ALOHA
    assert one.embodiment is IIWA14
    assert robot_backend("fri", "two", KUKA).embodiment is IIWA14_BIMANUAL
    driver = one.driver({"arm": "127.0.0.1:30200"}, period_s=0.01, lock_step=False, read_only=True)
    assert driver.servos == ("arm/controller (127.0.0.1:30200)",)
    assert driver.clocked_by_robot
    two = robot_backend("fri", "two", KUKA)
    ports = {"right": "127.0.0.1:30201", "left": "127.0.0.1:30200"}
    assert (
        two.driver(ports, period_s=0.01, lock_step=False, read_only=True).arms
        == IIWA14_BIMANUAL.arms
        == ("left", "right")
    )
    assert two.twin_driver(ports, period_s=0.01).arms == IIWA14_BIMANUAL.arms
    with pytest.raises(
        ValueError, match="ports for the arms arm; iiwa14_bimanual has the arms left, right"
    ):
        two.driver({"arm": "127.0.0.1:30200"}, period_s=0.01, lock_step=False, read_only=True)
    assert [
        emulated_backend(body.name).embodiment for body in (ALOHA, IIWA14, IIWA14_BIMANUAL)
    ] == [
        ALOHA,
        IIWA14,
        IIWA14_BIMANUAL,
    ]
    with pytest.raises(ValueError, match="no emulated embodiment 'iiwa7'. Did you mean 'iiwa14'"):
        emulated_backend("iiwa7")
    with pytest.raises(ValueError, match="no number of KUKA arms 'tow'. Did you mean 'two'"):
        robot_backend("fri", "tow", {})


class Known:
    """A policy that repeats the actions of an expert."""

    contract = IIWA14.contract([], CONTROL_HZ)

    def __init__(self, actions: NDArray[np.float32]) -> None:
        self._actions = actions

    def session(self, seed: int) -> Replay:
        return Replay(self._actions)


@pytest.fixture(scope="module")
def demonstration() -> tuple[NDArray[np.float32], list[NDArray[np.float64]]]:
    return demonstrate("kuka_pick", make_expert("kuka_pick"), SEED)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transport", "other", "apart"), [("fri", "lcm", 0.03), ("lcm", None, 0.05)]
)
def test_an_expert_succeeds_over_each_transport_as_in_simulation_and_results_name_the_transport(
    demonstration: tuple[NDArray[np.float32], list[NDArray[np.float64]]],
    transport: str,
    other: str | None,
    apart: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    actions, joints = demonstration
    task = TaskSettings("kuka_pick", control_hz=CONTROL_HZ, time_limit_s=12.0)
    policy, episodes, summed_up = Known(actions), list[LockStepEpisode](), loop_evaluation._result

    def kept(seed: int, episode: LockStepEpisode, contract: Contract) -> EpisodeResult:
        episodes.append(episode)
        return summed_up(seed, episode, contract)

    monkeypatch.setattr(loop_evaluation, "_result", kept)
    file = tmp_path / "results.jsonl"
    with own_network() if transport == "lcm" else nullcontext():  # Multicast reaches no other test.
        evaluation = loop_evaluation.LoopEvaluation(
            policy, task, execute_steps=24, workers=1, transport=transport
        )
        (result,) = evaluation.run([SEED], file)
    (episode,) = episodes
    assert episode.fault == []
    assert result.success
    assert result.plans == math.ceil(len(episode.positions) / (24 * CYCLES_PER_ACTION))
    assert episode.counts.get(Reason.CONTROLLER_REFUSES, 0) == 0
    difference = largest_difference(joints, episode.positions[::CYCLES_PER_ACTION])
    # Targets are interpolated on the wire and steps in the direct run: half an action's time.
    # drake-iiwa-driver passes commands on a period later.
    assert difference[IIWA14.revolute_joints["arm"]].max() < apart
    with pytest.raises(ValueError, match="transport"):
        loop_evaluation.LoopEvaluation(
            policy, task, execute_steps=24, workers=1, transport=other
        ).run([SEED], file)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["fri", "lcm"])
def test_unread_messages_from_before_the_first_world_do_not_hide_its_beginning(
    transport: str,
) -> None:
    task = TaskSettings("kuka_pick", time_limit_s=12.0)
    still = Replay(np.tile(IIWA14.home, (2, 1)).astype(np.float32))
    with own_network() if transport == "lcm" else nullcontext(), ExitStack() as stack:
        robot = loop_evaluation.open_lock_step_robot(stack, Known.contract, task, transport)
        time.sleep(2.0)  # Enough for any socket's buffer at a thousand messages a second.
        states = list[DeviceState]()
        episode = robot.run(
            still,
            SEED,
            execute_steps=24,
            report=lambda state, _: states.append(state),
            done=lambda: len(states) == 20,
        )
    assert episode.fault == []
    assert len(states) == 20
    assert not any(state.arms.servo_error.any() for state in states)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["fri", "lcm"])
def test_an_episode_does_not_depend_on_episodes_before_it(transport: str) -> None:
    """To the bit, so results depend neither on the number of robots nor on an interruption."""
    task = TaskSettings("kuka_pick", time_limit_s=12.0)
    closing = np.tile(IIWA14.home, (40, 1)).astype(np.float32)
    closing[:, IIWA14.grippers["arm"]] = np.linspace(1, 0, 40)
    with own_network() if transport == "lcm" else nullcontext(), ExitStack() as stack:
        robot = loop_evaluation.open_lock_step_robot(stack, Known.contract, task, transport)

        def run(seed: int, cycles: int) -> list[NDArray[np.float64]]:
            told = list[DeviceState]()
            episode = robot.run(
                Replay(closing),
                seed,
                execute_steps=40,
                report=lambda state, _: told.append(state),
                done=lambda: len(told) == cycles,
            )
            assert episode.fault == []
            return episode.positions

        first = run(SEED, 60)
        assert (
            len(run(SEED + 1, 37)) == 37
        )  # No multiple of the 50 ms in which a gripper behind LCM acts.
        assert np.array_equal(run(SEED, 60), first)
    gripper = np.array(first)[:, IIWA14.grippers["arm"]]
    assert gripper[-1] < gripper[0] - 0.1
