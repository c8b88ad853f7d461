"""KUKA arms over LCM by configuration."""

from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.real_robot.drivers.lcm.lcm_link import DEFAULT_ADDRESS
from stringline.real_robot.robots.backends import arm_kind, emulated_arms
from stringline.real_robot.robots.lcm_backends import LcmArms


def robot(*overrides: str) -> dict[str, Any]:
    with initialize_config_module("stringline.configs", version_base="1.3"):
        composed = OmegaConf.to_container(
            compose("deploy", overrides=["task=kuka_pick", *overrides]).robot, resolve=True
        )
    assert isinstance(composed, dict)
    return {str(key): value for key, value in composed.items()}


def test_a_configuration_names_arms_behind_drake_iiwa_driver() -> None:
    settings = robot("robot=kuka_lcm", "robot.driver.gripper.transport=wsg_lcm")
    one = arm_kind(settings)
    assert isinstance(one, LcmArms)
    assert one.body is IIWA14
    driver = one.driver(
        settings["ports"], period_s=1 / settings["device_hz"], lock_step=False, read_only=True
    )
    assert driver.paced
    assert driver.servos == (
        f"arm/drake-iiwa-driver ({DEFAULT_ADDRESS} IIWA_STATUS)",
        "arm/gripper (SCHUNK_WSG_STATUS)",
    )
    assert (
        one.twin_driver({"arm": "239.255.76.67:7000"}, period_s=0.005)
        .servos[0]
        .endswith("(239.255.76.67:7000 IIWA_STATUS)")
    )
    emulated = arm_kind(robot("robot=kuka_lcm_emulated", "robot.arms=two"))
    assert emulated.body is IIWA14_BIMANUAL
    ports = {"right": DEFAULT_ADDRESS, "left": DEFAULT_ADDRESS}
    assert emulated.driver(ports, period_s=0.01, lock_step=True, read_only=False).arms == (
        "left",
        "right",
    )
    with pytest.raises(ValueError, match="ports for the arms arm; iiwa14_bimanual has left, right"):
        emulated.driver({"arm": DEFAULT_ADDRESS}, period_s=0.01, lock_step=False, read_only=True)


def test_what_a_configuration_cannot_name_is_refused() -> None:
    settings = robot("robot=kuka_lcm")
    for wrong, words in (
        ({"transport": "lmc"}, "no transport of KUKA arms 'lmc'. Did you mean 'lcm'"),
        ({"arms": "tow"}, "no number of KUKA arms 'tow'. Did you mean 'two'"),
        (
            {"driver": {"gripper": {"transport": "fri_output"}}},
            "no transport of a gripper for these arms 'fri_output'",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            arm_kind(settings | wrong)
    with pytest.raises(ValueError, match="no transport of KUKA arms 'ros'"):
        emulated_arms(IIWA14.name, "ros")
