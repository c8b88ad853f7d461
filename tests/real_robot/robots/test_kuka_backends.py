"""KUKA arms over LCM by configuration."""

from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.real_robot.drivers.lcm.lcm_link import DEFAULT_ADDRESS
from stringline.real_robot.robots.backends import LcmBackend, emulated_backend, robot_backend


def robot(*overrides: str) -> dict[str, Any]:
    with initialize_config_module("stringline.configs", version_base="1.3"):
        composed = OmegaConf.to_container(
            compose("deploy", overrides=["task=kuka_pick", *overrides]).robot, resolve=True
        )
    assert isinstance(composed, dict)
    return {str(key): value for key, value in composed.items()}


def test_a_configuration_names_arms_behind_drake_iiwa_driver() -> None:
    settings = robot("robot=kuka_lcm", "robot.driver.gripper.transport=wsg_lcm")
    one = robot_backend("lcm", "one", settings["driver"])
    assert isinstance(one, LcmBackend)
    assert one.embodiment is IIWA14
    driver = one.driver(
        settings["ports"], period_s=1 / settings["device_hz"], lock_step=False, read_only=True
    )
    assert driver.clocked_by_robot
    assert driver.servos == (
        f"arm/drake-iiwa-driver ({DEFAULT_ADDRESS} IIWA_STATUS)",
        "arm/gripper (SCHUNK_WSG_STATUS)",
    )
    assert (
        one.twin_driver({"arm": "239.255.76.67:7000"}, period_s=0.005)
        .servos[0]
        .endswith("(239.255.76.67:7000 IIWA_STATUS)")
    )
    driver_settings = robot("robot=kuka_lcm_emulated", "robot.arms=two")["driver"]
    emulated = robot_backend("lcm", "two", driver_settings)
    assert emulated.embodiment is IIWA14_BIMANUAL
    ports = {"right": DEFAULT_ADDRESS, "left": DEFAULT_ADDRESS}
    assert emulated.driver(ports, period_s=0.01, lock_step=True, read_only=False).arms == (
        "left",
        "right",
    )
    with pytest.raises(
        ValueError, match="ports for the arms arm; iiwa14_bimanual has the arms left, right"
    ):
        emulated.driver({"arm": DEFAULT_ADDRESS}, period_s=0.01, lock_step=False, read_only=True)


def test_unknown_names_in_a_configuration_are_refused() -> None:
    wrong_gripper = {"gripper": {"transport": "fri_output"}}
    for transport, arms, driver, message in (
        ("lmc", "one", {}, "no transport of KUKA arms 'lmc'. Did you mean 'lcm'"),
        ("lcm", "tow", {}, "no number of KUKA arms 'tow'. Did you mean 'two'"),
        ("lcm", "one", wrong_gripper, "no transport of a gripper for these arms 'fri_output'"),
    ):
        with pytest.raises(ValueError, match=message):
            robot_backend(transport, arms, driver)
    with pytest.raises(ValueError, match="no transport of KUKA arms 'ros'"):
        emulated_backend(IIWA14.name, "ros")
