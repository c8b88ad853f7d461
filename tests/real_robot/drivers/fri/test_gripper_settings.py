"""Grippers by configuration: the choice, and the messages about impossible settings."""

import re
from dataclasses import fields
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from stringline.real_robot.driver_interface.gripper import GripperState, NoGripper
from stringline.real_robot.drivers.fri.controller_io import IoGripper
from stringline.real_robot.drivers.fri.enums import IoType
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.drivers.grippers.gripper_choice import (
    FRI_OUTPUT,
    WSG_LCM,
    gripper_settings,
)
from stringline.real_robot.drivers.lcm.lcm_driver import LcmDriver
from stringline.real_robot.drivers.lcm.wsg import SchunkWsg, WsgGripper
from stringline.real_robot.emulators import emulate
from stringline.real_robot.emulators.program.emulator_client import FriEmulator
from stringline.real_robot.emulators.program.emulator_settings import (
    FriSettings,
    settings_of_document,
)
from stringline.real_robot.robots.backends import FriBackend, robot_backend

ONE, TWO = ("arm",), ("left", "right")


def test_a_configuration_names_a_transport_and_the_settings_of_each() -> None:
    both = {
        FRI_OUTPUT: {"output": "Open", "close_output": "Close", "kind": "BOOLEAN"},
        WSG_LCM: {"force_n": 20},
    }
    assert gripper_settings(None, ONE) is None
    assert gripper_settings({"transport": None, **both}, ONE) is None
    outputs = gripper_settings({"transport": FRI_OUTPUT, **both}, ONE)
    assert outputs == IoGripper("Open", IoType.BOOLEAN, close_output="Close")
    assert gripper_settings({"transport": WSG_LCM, **both}, ONE) == WsgGripper(force_n=20)
    assert gripper_settings({"transport": WSG_LCM}, ONE) == WsgGripper()
    assert gripper_settings({"transport": WSG_LCM, WSG_LCM: {"follow_s": None}}, ONE) == WsgGripper(
        follow_s=None
    )


def wsg(**settings: Any) -> dict[str, Any]:
    return {"transport": WSG_LCM, WSG_LCM: settings}


def outputs(**settings: Any) -> dict[str, Any]:
    return {"transport": FRI_OUTPUT, FRI_OUTPUT: {"output": "Open", **settings}}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"transport": "wsg_lmc"},
            "no transport of a gripper for these arms 'wsg_lmc'. Did you mean 'wsg_lcm'",
        ),
        ({"transprot": "wsg_lcm"}, "no setting of a gripper 'transprot'. Did you mean 'transport'"),
        ({"output": "Open"}, "no setting of a gripper 'output'. Did you mean 'fri_output'"),
        (wsg(force=30.0), "no setting of wsg_lcm 'force'. Did you mean 'force_n'"),
        (wsg(force_n="much"), "wsg_lcm.force_n is 'much'; allowed: a number."),
        (wsg(force_n=None), "wsg_lcm.force_n is None; allowed: a number."),
        (wsg(follow_s=True), "wsg_lcm.follow_s is True; allowed: a number, or null."),
        (wsg(status_channel=7), "wsg_lcm.status_channel is 7; allowed: text."),
        (wsg(ttl=0.5), "wsg_lcm.ttl is 0.5; allowed: a whole number."),
        (wsg(ttl=2), "ttl is 2; allowed: 0"),
        (wsg(address="10.0.0.1:7667"), "The address of LCM is '10.0.0.1:7667'"),
        (wsg(interface="eth0"), "The interface is 'eth0'"),
        (
            wsg(force_n=5.0),
            (
                "force_n is 5.0; allowed: above 5, below which drake-schunk-driver does not move, "
                "and "
                "at most 120."
            ),
        ),
        (wsg(force_n=float("nan")), "force_n is nan"),
        (wsg(force_n=121), "force_n is 121"),
        (
            wsg(closed_mm=110),
            "closed_mm 110, opened_mm 110.0 and stroke_mm 110.0; allowed: 0 <= closed_mm",
        ),
        (wsg(closed_mm=-1), "closed_mm -1"),
        (wsg(stroke_mm=float("inf")), "stroke_mm inf"),
        (wsg(status_hz=0), "status_hz must be a number from 1 to 1000 (got 0)."),
        (wsg(follow_s=0), "follow_s is 0; allowed: above 0 and below 3600, or null."),
        (
            wsg(command_channel="A", status_channel="A"),
            "The channels of commands and states are both A; they must differ.",
        ),
        (outputs(feedbak="In"), "no setting of fri_output 'feedbak'. Did you mean 'feedback'"),
        (outputs(output=""), "needs the name of the controller's output that moves it: output."),
        (outputs(output=None), "fri_output.output is None; allowed: text."),
        (
            {"transport": FRI_OUTPUT},
            "needs the name of the controller's output that moves it: output.",
        ),
        (outputs(kind="ANALOGUE"), "no kind of output 'ANALOGUE'. Did you mean 'ANALOG'"),
        (
            outputs(closed=1.0),
            (
                "The ANALOG output 'Open' is 1.0 when closed and 1.0 when opened; allowed: two "
                "different numbers."
            ),
        ),
        (outputs(opened=float("inf")), "allowed: two different numbers."),
        (
            outputs(kind="DIGITAL", opened=2),
            "The DIGITAL output 'Open' is 0.0 when closed and 2 when opened; allowed: 0 and 1",
        ),
        (
            outputs(close_below=0.7),
            (
                "closes at close_below 0.7 and opens at open_above 0.6; allowed: 0 <= close_below "
                "< "
                "open_above"
            ),
        ),
        (
            outputs(close_output="Close"),
            (
                "close_output is 'Close' beside the ANALOG output 'Open'; allowed: the name of "
                "another bit"
            ),
        ),
        (
            outputs(kind="BOOLEAN", close_output="Open"),
            "close_output is 'Open' beside the BOOLEAN output 'Open'",
        ),
    ],
)
def test_impossible_settings_are_refused_with_a_reason(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        gripper_settings(settings, ONE)


def test_each_of_two_grippers_has_channels_of_its_own() -> None:
    with pytest.raises(
        ValueError,
        match="left, right would share the channels SCHUNK_WSG_COMMAND and SCHUNK_WSG_STATUS",
    ):
        gripper_settings(wsg(), TWO)
    with pytest.raises(ValueError, match="would share the channels"):
        gripper_settings(wsg(command_channel="W_{arm}"), TWO)
    made = gripper_settings(wsg(command_channel="W_{arm}", status_channel="{arm}_S"), TWO)
    assert isinstance(made, WsgGripper)
    assert [made.channels(arm) for arm in TWO] == [("W_left", "left_S"), ("W_right", "right_S")]


def test_arms_without_a_controller_have_no_outputs() -> None:
    with pytest.raises(
        ValueError,
        match="no transport of a gripper for these arms 'fri_output'. .*Allowed: wsg_lcm",
    ):
        gripper_settings(outputs(), ONE, (WSG_LCM,))
    ports = {"arm": "127.0.0.1:30200"}
    with pytest.raises(ValueError, match="FRI 1.11 has no inputs and outputs for a gripper"):
        FriBackend("one", {"version": "1.11", "gripper": outputs()}).driver(
            ports, period_s=0.01, lock_step=False, read_only=True
        )
    old = FriBackend("one", {"version": "1.11", "gripper": wsg()})
    driver = old.driver(ports, period_s=0.01, lock_step=False, read_only=True)
    assert driver.servos == ("arm/controller (127.0.0.1:30200)", "arm/gripper (SCHUNK_WSG_STATUS)")
    with pytest.raises(ValueError, match="no arm 'amr'. Did you mean 'arm'"):
        FriDriver(ports, grippers={"amr": WsgGripper()})


def test_without_a_gripper_the_commanded_opening_counts_as_measured() -> None:
    gripper = NoGripper()
    assert (gripper.connect(0.0), gripper.servo, gripper.read(), gripper.wanted) == (
        [],
        "",
        GripperState(),
        1.0,
    )
    for commanded, opening in ((0.3, 0.3), (float("nan"), 0.3), (-2.0, 0.0), (7.0, 1.0)):
        gripper.command(commanded)
        assert (gripper.read().opening, gripper.wanted) == (opening, opening)
    gripper.close()


def test_an_emulator_has_the_gripper_that_its_driver_expects() -> None:
    assert FriEmulator().settings == FriEmulator(gripper=outputs()).settings
    given = wsg(address="239.1.2.3:4", command_channel="C_{arm}", status_channel="S_{arm}")
    document = FriEmulator(gripper=given, lock_step=True).settings.document()
    settings = settings_of_document(document)
    assert isinstance(settings, FriSettings)
    assert (settings.gripper, settings.gripper_address, settings.gripper_interface) == (
        WSG_LCM,
        "239.1.2.3:4",
        "127.0.0.1",
    )
    assert (settings.gripper_commands, settings.gripper_states) == ("C_{arm}", "S_{arm}")
    with pytest.raises(SystemExit, match="would share the channels"):
        emulate.main(["fri", "--arms", "two", "--gripper", WSG_LCM])


def test_the_configurations_of_arms_name_all_settings_and_their_defaults() -> None:
    found: dict[tuple[str, str], Any] = {}
    with initialize_config_module("stringline.configs", version_base="1.3"):
        for robot, transport in (
            ("kuka", FRI_OUTPUT),
            ("kuka", WSG_LCM),
            ("kuka_emulated", WSG_LCM),
        ):
            chosen = [
                "task=kuka_pick",
                f"robot={robot}",
                f"robot.driver.gripper.transport={transport}",
            ]
            found[robot, transport] = OmegaConf.to_container(
                compose("deploy", overrides=chosen).robot, resolve=True
            )
    real = [found["kuka", transport]["driver"]["gripper"] for transport in (FRI_OUTPUT, WSG_LCM)]
    assert [gripper_settings(one, ONE) for one in real] == [
        IoGripper("Gripper.Opening"),
        WsgGripper(),
    ]
    for transport, kind in ((FRI_OUTPUT, IoGripper), (WSG_LCM, WsgGripper)):
        assert set(real[0][transport]) == {field.name for field in fields(kind)}
    emulated = found["kuka_emulated", WSG_LCM]
    arms = robot_backend("fri", "one", emulated["driver"])
    emulator = arms.emulator(lock_step=True, cameras=(), image_size=64, **emulated["emulator"])
    settings = emulator.settings
    assert isinstance(settings, FriSettings)
    assert settings.gripper == WSG_LCM
    assert settings.gripper_commands == "SCHUNK_WSG_COMMAND_{arm}"
    assert settings.gripper_states == "SCHUNK_WSG_STATUS_{arm}"
    driver = arms.driver({"arm": "127.0.0.1:30200"}, period_s=0.01, lock_step=True, read_only=True)
    assert driver.servos[1] == "arm/gripper (SCHUNK_WSG_STATUS_arm)"


@pytest.mark.parametrize(
    ("transport", "port"), [("fri", "127.0.0.1:30200"), ("lcm", "239.255.76.67:7667")]
)
def test_a_gripper_may_be_left_as_it_is_beside_an_arm_that_moves(transport: str, port: str) -> None:
    """That one which is only read is sent nothing is for tests of grippers."""
    arms = robot_backend(transport, "one", {"gripper": wsg()})
    for still in (False, True):
        driver = arms.driver(
            {"arm": port}, period_s=0.01, lock_step=True, read_only=False, still_grippers=still
        )
        assert isinstance(driver, FriDriver | LcmDriver)
        gripper = driver._grippers["arm"]
        assert isinstance(gripper, SchunkWsg)
        assert gripper._read_only == still
