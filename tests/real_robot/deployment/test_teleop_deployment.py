"""`stringline-deploy mode=teleop`: its checks, refusals and recording; and the modes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from stringline import ALOHA, EpisodeStore
from stringline.real_robot.deployment.deployment_settings import (
    DeploymentMode,
    DeploymentSettings,
)
from stringline.real_robot.deployment.teleop_deployment import TeleopDeployment
from stringline.real_robot.emulators.plants.expert_hand import write_expert_hand
from stringline.real_robot.emulators.plants.plant import load_hand, save_hand
from stringline.real_robot.robots.robot_factory import RobotFactory


def settings(*overrides: str) -> DeploymentSettings:
    with initialize_config_module("stringline.configs", version_base="1.3"):
        composed = compose("deploy", overrides=["mode=teleop", *overrides])
        plain = OmegaConf.to_container(composed, resolve=True)
    assert isinstance(plain, dict)
    return DeploymentSettings.of({str(key): value for key, value in plain.items()})


@pytest.mark.slow
def test_a_scripted_hand_leads_emulated_arms_and_the_episode_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bent = ALOHA.home.copy()
    bent[2] += 0.2
    save_hand(tmp_path / "way.npz", np.array([0.0, 0.6]), np.stack([ALOHA.home, bent]))
    chosen = settings(
        "robot.lock_step=false",
        f"robot.leaders.hand={tmp_path / 'way.npz'}",
        "task.cameras=[]",
        "seconds=1.0",
        f"record={tmp_path / 'store'}",
        f"log.folder={tmp_path / 'log'}",
    )
    assert not TeleopDeployment(chosen).run()  # The banana was not moved.
    output = capsys.readouterr().out
    assert "ok      ports and servos of the followers: 18 servos answer" in output
    assert "ok      ports and servos of the leaders: they answer, and have no torque" in output
    assert "The scripted hand leads." in output
    assert "No success after" in output
    store = EpisodeStore.open(tmp_path / "store")
    (name,) = store.names()
    assert store.verify(name) == []
    episode = store.episode(name)
    assert episode.attributes.source == "teleoperation"
    assert episode.attributes.success is False
    assert episode.attributes.task == "hand_over_banana"
    assert episode.arrays["action"][-1][2] == pytest.approx(bent[2], abs=0.01)
    assert f"Recorded {episode.steps} steps as {name}" in output


def test_on_real_arms_all_missing_parts_are_reported_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ValueError, match="Not started") as refused:
        TeleopDeployment(settings("robot=aloha")).run()
    message = str(refused.value)
    assert "limits file: real arms need one, with the measured height of the table" in message
    for port in ("follower_left", "follower_right", "leader_left", "leader_right"):
        assert f"/dev/ttyDXL_{port} cannot be opened: No such file or directory." in message
    assert (
        "latency timers of the adapters: /dev/ttyDXL_follower_left not known"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((), "Teleoperation runs in real time: robot.lock_step=false"),
        (
            ("robot.lock_step=false", "record=null"),
            "Teleoperation records an episode: record=FOLDER",
        ),
        (
            ("robot.lock_step=false", "log.folder=null"),
            "recorded from the incident log: log.folder=FOLDER",
        ),
    ],
)
def test_impossible_teleoperation_is_refused(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TeleopDeployment(settings(*overrides))


def test_an_unknown_mode_is_answered_with_the_nearest() -> None:
    assert DeploymentMode.named("shadow") is DeploymentMode.SHADOW
    with pytest.raises(
        ValueError, match=r"There is no mode of deployment 'dryrun'\. Did you mean 'dry_run'"
    ):
        DeploymentMode.named("dryrun")


def test_missing_twins_and_leaders_are_reported() -> None:
    factory = RobotFactory(replace(settings("robot=aloha").robot, twin=None, leaders=None))
    with pytest.raises(ValueError, match=r"The configuration of aloha has no twin: robot\.twin"):
        factory.twin_emulator()
    with pytest.raises(
        ValueError, match=r"The configuration of aloha has no leaders: robot\.leaders"
    ):
        factory.leaders(None)
    assert factory.emulator() is None


def test_the_hand_of_an_expert_begins_at_home_and_does_the_task_in_its_own_world(
    tmp_path: Path,
) -> None:
    write_expert_hand(tmp_path / "way.npz", "hand_over_banana", 3, {}, 20.0)
    time_s, way = load_hand(tmp_path / "way.npz", 14)
    assert np.array_equal(way[0], ALOHA.home)
    assert time_s[1] == pytest.approx(0.3)
    assert 5.0 < time_s[-1] < 20.0
    assert (
        np.abs(np.diff(way[:, :6], axis=0)).max() < 0.2
    )  # No jump that a follower could not follow.
